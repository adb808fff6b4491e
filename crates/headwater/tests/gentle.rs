//! `--gentle` beside the kernel's TCP in a plain FIFO queue: real processes and packets in namespaces, no marks, no classes.
//!
//! The experiment at the end prints the figures of docs/gentle.md:
//! `cargo test -p headwater --test gentle -- --ignored --nocapture --test-threads=1`
#![allow(clippy::disallowed_methods, reason = "drives real processes on a real clock")]

mod cluster;

use std::path::Path;
use std::time::{Duration, Instant};

use cluster::{Process, number, random_file, text, wait_until};
use headwater_testbed::netns::{Capability, HostSpec, Link, Net, Spec};
use headwater_units::BitRate;

const PATIENCE: Duration = Duration::from_secs(60);
/// Hosts: the one that sends by Headwater, the one that sends by TCP, and the one that receives both.
const SOURCE: usize = 0;
const TCP: usize = 1;
const RECEIVER: usize = 2;

/// Three hosts; all that comes to the receiver waits in one queue.
struct Shared {
    folder: tempfile::TempDir,
    net: Net,
    rate: BitRate,
}

impl Shared {
    /// `None` where namespaces are not allowed; says why.
    fn build(rate: BitRate, queue: Duration, object: usize) -> Option<Shared> {
        if let Err(why) = Capability::probe() {
            headwater_skips::cannot(why);
            return None;
        }
        let receiver = HostSpec { downlink: Some(rate), ..HostSpec::default() };
        let hosts = vec![HostSpec::default(), HostSpec::default(), receiver];
        let queue = headwater_units::Duration::from_nanos(queue.as_nanos() as u64);
        let net = Net::build(&Spec { hosts, queue, ..Spec::default() }).unwrap();
        let folder = tempfile::tempdir().unwrap();
        random_file(&folder.path().join("object.bin"), object, 1);
        Some(Shared { folder, net, rate })
    }

    fn start(&self, host: usize, name: &str, args: &[&str]) -> Process {
        let command = self.net.command(host, env!("CARGO_BIN_EXE_headwater")).unwrap();
        Process::start_by(self.folder.path(), name, command, args)
    }

    fn path(&self, name: &str) -> String {
        text(&self.folder.path().join(name))
    }

    fn serve(&self, flags: &[&str]) -> Process {
        let listen = format!("{}:7001", self.net.ipv4(SOURCE));
        let (object, state, rows) = (self.path("object.bin"), self.path("source"), self.path("sent.csv"));
        let args = ["serve", &object, "--listen", &listen, "--state", &state, "--timeline", &rows];
        let mut source = self.start(SOURCE, "source", &[&args[..], flags].concat());
        source.line(PATIENCE);
        source
    }

    /// A fetch from nothing: what an earlier one had got is gone.
    fn get(&self, flags: &[&str]) -> Process {
        let from = format!("{}:7001", self.net.ipv4(SOURCE));
        let out = self.folder.path().join("out");
        let _ = std::fs::remove_dir_all(&out);
        std::fs::create_dir(&out).unwrap();
        let (out, state) = (text(&out.join("out.bin")), self.path("receiver"));
        let args = ["get", "object.bin", "--from", &from, "-o", &out, "--state", &state, "--force"];
        let args = [&args[..], &["--progress", "json"], flags].concat();
        self.start(RECEIVER, "receiver", &args)
    }

    fn tcp_receiver(&self) -> Process {
        let listen = format!("{}:5001", self.net.ipv4(RECEIVER));
        let mut receiver =
            self.start(RECEIVER, "tcp-receive", &["debug", "tcp", "receive", "--listen", &listen]);
        receiver.line(PATIENCE);
        receiver
    }

    /// Goodput of the kernel's CUBIC over this time, as a part of what the link carries.
    fn tcp(&self, time: &str) -> f64 {
        let to = format!("{}:5001", self.net.ipv4(RECEIVER));
        let args = ["debug", "tcp", "send", "--to", &to, "--for", time, "--congestion", "cubic"];
        let ended = self.start(TCP, "tcp-send", &args).end(PATIENCE);
        assert_eq!(ended.code, Some(0), "{}", ended.log);
        let sent = ended.last.unwrap();
        number(&sent["bytes"]) * 8.0 / number(&sent["seconds"]) / self.rate.get() as f64
    }

    fn yields(&self) -> f64 {
        yields(&self.folder.path().join("sent.csv"))
    }

    /// TCP beside a fetch that began a second before and goes on all the while, and what the fetch had meanwhile.
    fn beside(&self, flags: &[&str], time: &str) -> (f64, f64) {
        let mut get = self.get(flags);
        wait_until("some of the object", PATIENCE, || get.bytes_done() > 0);
        std::thread::sleep(Duration::from_secs(1));
        let (from, before) = (Instant::now(), get.bytes_done());
        let tcp = self.tcp(time);
        assert!(get.is_running(), "it was over before TCP was");
        let bytes = (get.bytes_done() - before) as f64;
        let elapsed = from.elapsed().as_secs_f64();
        // It says goodbye: its source does not go on.
        get.interrupt();
        get.end(PATIENCE);
        (tcp, bytes * 8.0 / elapsed / self.rate.get() as f64)
    }
}

/// How often the flow that began last has yielded, by its source's timeline.
fn yields(path: &Path) -> f64 {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let rows: Vec<Vec<&str>> = text.lines().skip(1).map(|row| row.split(',').collect()).collect();
    let whole = rows.iter().filter(|row| row.len() == 5);
    let mut flows: Vec<&str> = Vec::new();
    for row in whole.clone() {
        if !flows.contains(&row[2]) {
            flows.push(row[2]);
        }
    }
    let of_it = |row: &&Vec<&str>| flows.last() == Some(&row[2]) && row[3] == "yields";
    let last = whole.clone().rev().find(of_it).expect("a flow that sends has rows");
    last[4].parse().unwrap()
}

/// Goal: what a user saw, curl with half of its rate beside `get --gentle`, does not happen: TCP has several times as much,
/// because the flow has yielded to the delay of the queue; and a fetch that is not gentle never yields so.
#[test]
fn tcp_in_the_same_fifo_gets_most_of_the_link_beside_a_gentle_fetch() {
    let Some(shared) = Shared::build(BitRate::new(100_000_000), Duration::from_millis(20), 96 << 20) else {
        return;
    };
    let _tcp = shared.tcp_receiver();
    let _source = shared.serve(&["--timeline-every", "50ms"]);
    let (tcp, gentle) = shared.beside(&["--gentle"], "3s");
    let yields = shared.yields();
    let dropped = shared.net.counters(Link::Downlink(RECEIVER)).unwrap().dropped;
    println!("TCP {tcp:.3}, gentle {gentle:.3} of the link; {yields} yields, {dropped} dropped");
    assert!(yields >= 3.0, "{yields} yields");
    assert!(tcp >= 2.0 * gentle, "TCP {tcp}, gentle {gentle}");

    let (_, bulk) = shared.beside(&[], "500ms");
    let yields = shared.yields();
    assert!(yields == 0.0, "an ordinary fetch goes by its weight: {yields} yields, {bulk}");
}

/// Goal: `serve --gentle` is what makes everything that a machine sends gentle, whatever is asked for.
#[test]
fn a_source_that_serves_gently_yields_whoever_asks() {
    let Some(shared) = Shared::build(BitRate::new(50_000_000), Duration::from_millis(20), 8 << 20) else {
        return;
    };
    let _tcp = shared.tcp_receiver();
    let _source = shared.serve(&["--gentle", "--timeline-every", "50ms"]);
    let get = shared.get(&[]);
    let tcp = shared.tcp("1s");
    let ended = get.end(PATIENCE);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    let yields = shared.yields();
    assert!(yields >= 1.0, "{yields} yields, TCP {tcp}");
}

/// The figures of docs/gentle.md. Goal: at least 0.9 of its goodput alone for TCP in a deep FIFO, and 0.9 of the link for a
/// gentle fetch alone.
#[test]
#[ignore = "an experiment: needs root and an idle machine, see the top of this file"]
fn figures_of_tcp_beside_a_fetch_in_fifos_of_several_depths() {
    const RATE: BitRate = BitRate::new(200_000_000);
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let runs: usize = std::env::var("RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(3);
    for depth in [2, 5, 50] {
        let Some(shared) = Shared::build(RATE, Duration::from_millis(depth), 240 << 20) else { return };
        let _tcp = shared.tcp_receiver();
        let _source = shared.serve(&["--timeline-every", "50ms"]);
        let mut figures: [Vec<f64>; 7] = Default::default();
        for _ in 0..runs {
            figures[0].push(shared.tcp("4s"));
            let (tcp, gentle) = shared.beside(&["--gentle"], "4s");
            let yields = shared.yields();
            println!("{depth} ms: TCP {tcp:.3}, gentle {gentle:.3}, {yields} yields");
            figures[1].push(tcp);
            figures[2].push(gentle);
            let (tcp, bulk) = shared.beside(&[], "4s");
            figures[3].push(tcp);
            figures[4].push(bulk);
            for (figure, flags) in [(5, &["--gentle"][..]), (6, &[])] {
                let ended = shared.get(flags).end(PATIENCE);
                assert_eq!(ended.code, Some(0), "{}", ended.log);
                let seconds = number(&ended.last.unwrap()["seconds"]);
                figures[figure].push(f64::from(240 << 20) * 8.0 / seconds / RATE.get() as f64);
            }
        }
        println!("{depth} ms: {figures:.3?}");
        let [alone, tcp, gentle, beside_bulk, bulk, solo, bulk_solo] = figures.map(median);
        println!(
            "FIFO of {depth} ms, medians of {runs}: TCP alone {alone:.3}; beside a gentle fetch {tcp:.3} ({:.2} of alone), which has \
             {gentle:.3}; beside an ordinary one {beside_bulk:.3} ({:.2}), which has {bulk:.3}; a gentle fetch alone {solo:.3}, \
             an ordinary one {bulk_solo:.3}",
            tcp / alone,
            beside_bulk / alone
        );
    }
}
