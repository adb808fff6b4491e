//! Both ends on loopback.
#![allow(clippy::disallowed_methods, reason = "drives real sockets on a real clock")]

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver as Inbox, channel};
use std::thread::JoinHandle;
use std::time::{Duration as StdDuration, Instant};

use headwater_units::{Bytes, Duration};

use super::*;

const PATIENCE: StdDuration = StdDuration::from_secs(30);
const PACKET: u64 = 1000;

/// A receiver on a thread of its own.
struct Running {
    address: SocketAddr,
    stop: std::sync::Arc<AtomicBool>,
    results: Inbox<Received>,
    thread: Option<JoinHandle<Result<(), TcpError>>>,
}

impl Running {
    fn new(timeline: Option<TimelineOptions>) -> Running {
        let listen = "127.0.0.1:0".parse().unwrap();
        let options = ReceiveOptions { listen, congestion: None, packet: Bytes::new(PACKET), timeline };
        let receiver = Receiver::listen(options).unwrap();
        let (address, stop) = (receiver.address().unwrap(), std::sync::Arc::new(AtomicBool::new(false)));
        let (said, results) = channel();
        let asked = stop.clone();
        let thread = std::thread::spawn(move || {
            receiver.run(&|| asked.load(Ordering::Relaxed), &mut |received| {
                said.send(received.clone()).map_err(std::io::Error::other)
            })
        });
        Running { address, stop, results, thread: Some(thread) }
    }

    fn result(&self) -> Received {
        self.results.recv_timeout(PATIENCE).unwrap()
    }

    /// Stops it; what it said then.
    fn end(mut self) -> Vec<Received> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap().unwrap();
        self.results.try_iter().collect()
    }
}

fn options(to: SocketAddr, amount: Amount) -> SendOptions {
    SendOptions { to, amount, congestion: None, name: "tcp".to_owned(), timeline: None }
}

/// Rows of a timeline: time, object, quantity, value.
fn rows(file: &std::path::Path) -> Vec<(u64, String, String, f64)> {
    let text = std::fs::read_to_string(file).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("t_ns,object,flow,quantity,value"));
    let row = |line: &str| {
        let [t, object, "0", quantity, value] = line.split(',').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        (t.parse().unwrap(), object.to_owned(), quantity.to_owned(), value.parse().unwrap())
    };
    lines.map(row).collect()
}

#[test]
fn so_many_bytes_arrive_and_both_ends_agree() {
    let receiver = Running::new(None);
    let bytes = 20_000_001;
    for congestion in [None, Some("reno"), Some("cubic")] {
        let options = SendOptions {
            congestion: congestion.map(str::to_owned),
            ..options(receiver.address, Amount::Bytes(Bytes::new(bytes)))
        };
        let sent = Sender::connect(options).unwrap().run(&|| false).unwrap();
        let received = receiver.result();
        assert!(sent.complete && received.complete, "{sent:?} {received:?}");
        assert_eq!((sent.bytes, received.bytes, received.name.as_str()), (bytes, bytes, "tcp"));
        assert!(congestion.is_none_or(|name| name == sent.congestion), "{sent:?}");
        assert!(
            sent.start_ns <= received.start_ns && received.finish_ns <= sent.finish_ns,
            "{sent:?} {received:?}"
        );
        let rate = bytes as f64 * 8.0 / received.seconds;
        assert!((received.goodput_bit_per_s / rate - 1.0).abs() < 1e-6, "{received:?}");
    }
    assert_eq!(receiver.end(), []);
}

#[test]
fn nothing_at_all_is_complete_too() {
    let receiver = Running::new(None);
    let sent = Sender::connect(options(receiver.address, Amount::Bytes(Bytes::ZERO))).unwrap();
    let sent = sent.run(&|| false).unwrap();
    let received = receiver.result();
    assert!(sent.complete && received.complete, "{sent:?} {received:?}");
    assert_eq!((sent.bytes, received.bytes, received.seconds), (0, 0, 0.0));
}

#[test]
fn a_sender_stops_after_its_time() {
    let receiver = Running::new(None);
    let sender = Sender::connect(options(receiver.address, Amount::For(Duration::from_millis(200)))).unwrap();
    let sent = sender.run(&|| false).unwrap();
    let received = receiver.result();
    assert!(sent.complete && sent.bytes == received.bytes && sent.bytes > 1_000_000, "{sent:?} {received:?}");
    assert!(sent.seconds >= 0.2, "{sent:?}");
}

#[test]
fn a_sender_that_is_stopped_says_what_it_did() {
    let receiver = Running::new(None);
    let (sender, start) =
        (Sender::connect(options(receiver.address, Amount::For(Duration::from_secs(600)))), Instant::now());
    let sent = sender.unwrap().run(&|| start.elapsed() > StdDuration::from_millis(100)).unwrap();
    assert!(sent.complete && sent.seconds < 600.0, "{sent:?}");
    assert_eq!(receiver.result().bytes, sent.bytes);
}

#[test]
fn a_receiver_that_is_stopped_says_what_it_has_of_all_connections() {
    let receiver = Running::new(None);
    let mut streams: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(receiver.address).unwrap()).collect();
    for (n, stream) in streams.iter_mut().enumerate() {
        stream.write_all(format!("c{n}\n").as_bytes()).unwrap();
        stream.write_all(&[1; 5000]).unwrap();
    }
    std::thread::sleep(StdDuration::from_millis(300));
    let results = receiver.end();
    let names: Vec<&str> = results.iter().map(|received| received.name.as_str()).collect();
    assert_eq!(names, ["c0", "c1", "c2"]);
    assert!(results.iter().all(|received| received.bytes == 5000 && !received.complete), "{results:?}");
}

#[test]
fn timelines_ascend_and_end_with_the_totals() {
    let folder = tempfile::tempdir().unwrap();
    let at =
        |name: &str| TimelineOptions { file: folder.path().join(name), every: Duration::from_millis(10) };
    let receiver = Running::new(Some(at("received.csv")));
    let options = SendOptions {
        timeline: Some(at("sent.csv")),
        ..options(receiver.address, Amount::For(Duration::from_millis(300)))
    };
    let sent = Sender::connect(options).unwrap().run(&|| false).unwrap();
    receiver.result();
    receiver.end();
    let of = |name: &str, quantity: &str| -> Vec<(u64, f64)> {
        let all = rows(&folder.path().join(name));
        assert!(all.is_sorted_by_key(|row| row.0) && all.iter().all(|row| row.1 == "tcp"));
        all.into_iter().filter(|row| row.2 == quantity).map(|row| (row.0, row.3)).collect()
    };
    let (windows, rtts) = (of("sent.csv", "window"), of("sent.csv", "rtt"));
    // A busy machine may sleep through some.
    assert!(windows.len() >= 10, "{windows:?}");
    assert!(windows[..windows.len() - 1].iter().all(|(t, _)| t % 10_000_000 == 0), "{windows:?}");
    assert!(windows.iter().all(|(_, window)| (1.0..1e6).contains(window)), "{windows:?}");
    assert!(rtts.iter().all(|(_, rtt)| (1e-7..1.0).contains(rtt)) && !rtts.is_empty(), "{rtts:?}");
    assert_eq!(of("sent.csv", "lost").last().unwrap().1, sent.retransmits as f64);
    let useful = of("received.csv", "useful");
    assert_eq!(useful.last().unwrap().1, sent.bytes as f64 / PACKET as f64);
    let goodput = of("received.csv", "goodput");
    let carried: f64 = goodput.iter().map(|(_, rate)| rate * 0.01).sum();
    // A late row is about more than one interval, and the last bytes are in no interval.
    assert!(
        carried < 1.01 * useful.last().unwrap().1 && carried > 0.3 * useful.last().unwrap().1,
        "{carried}"
    );
}

#[test]
fn a_connection_without_a_name_is_cut_off() {
    let receiver = Running::new(None);
    for bytes in [&[b'x'; 4096][..], b"a,b\n", b"\xff\xfe\n", b"\n"] {
        let mut stream = TcpStream::connect(receiver.address).unwrap();
        stream.write_all(bytes).unwrap();
        let received = receiver.result();
        assert_eq!((received.complete, received.bytes, received.name.as_str()), (false, 0, ""), "{bytes:?}");
    }
}

#[test]
fn what_cannot_be_is_an_error_that_says_what_can() {
    let to: SocketAddr = "127.0.0.1:1".parse().unwrap();
    let unknown =
        SendOptions { congestion: Some("fastest".into()), ..options(to, Amount::Bytes(Bytes::new(1))) };
    let error = Sender::connect(unknown).unwrap_err().to_string();
    assert!(error.contains("fastest") && error.contains("reno"), "{error}");
    for name in ["", "a,b", "a\nb", "x".repeat(201).as_str()] {
        let named = SendOptions { name: name.into(), ..options(to, Amount::Bytes(Bytes::new(1))) };
        assert!(matches!(Sender::connect(named), Err(TcpError::Name { .. })), "{name}");
    }
    let nobody = options(to, Amount::Bytes(Bytes::new(1)));
    assert!(matches!(Sender::connect(nobody), Err(TcpError::Connect { .. })));
    let taken = Running::new(None);
    let again = ReceiveOptions {
        listen: taken.address,
        congestion: None,
        packet: Bytes::new(PACKET),
        timeline: None,
    };
    assert!(matches!(Receiver::listen(again), Err(TcpError::Listen { .. })));
}

#[test]
fn a_receiver_that_goes_away_breaks_the_connection() {
    let receiver = Running::new(None);
    let sender = Sender::connect(options(receiver.address, Amount::For(Duration::from_secs(600)))).unwrap();
    let gone = std::thread::spawn(move || sender.run(&|| false));
    std::thread::sleep(StdDuration::from_millis(200));
    receiver.end();
    assert!(matches!(gone.join().unwrap(), Err(TcpError::Broken { bytes: 1.., .. })));
}
