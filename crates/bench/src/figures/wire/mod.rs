//! Our UDP path beside the kernel's TCP on the same path, in turn: what the wire gives a core.
//!
//! Two threads, one per end, send as fast as a window of 1 MiB lets them; our end acknowledges each 46 datagrams as the
//! product does. Neither end makes or reads the data, so this is the bound that the sockets set, without coding, hashing
//! and disk. The soft interrupt of a virtual cable runs in whichever thread sends: trust the sum of the two ends.
//!
//! Loopback, and two hosts in namespaces on one bridge: with large buffers that the kernel carries from end to end, and with
//! packets one by one, as on a wire without merging.

mod tcp;
mod udp;

use std::net::{IpAddr, Ipv4Addr};
use std::thread::{Builder, ScopedJoinHandle, scope};
use std::time::Duration;

use cpu_time::ThreadTime;
use headwater_api::{AppError, Shutdown};
use headwater_testbed::netns::{HostSpec, Net, Spec};
use headwater_testbed::soft_switch::in_namespace;
use headwater_units::Bytes;
use serde::Serialize;

use super::{BenchWatch, median_of, network, ratio};

/// Bytes of UDP payload, the usual and the jumbo size, and the packets that they fit in.
const SIZES: [(usize, u16); 2] = [(1400, 1500), (8900, 9000)];

/// Options of the measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WireOptions {
    /// Duration of each measurement.
    pub time: Duration,
    /// How often each is taken; medians count.
    pub repeat: u32,
}

/// A path between two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WirePath {
    /// 127.0.0.1.
    Loopback,
    /// Two hosts in namespaces; buffers of many packets travel uncut.
    Veth,
    /// The same, packet by packet: the kernel cuts buffers as they leave the sender.
    VethCut,
}

/// A path and a payload size, measured.
#[derive(Clone, Debug, Serialize)]
pub struct WireBench {
    /// The path.
    pub path: WirePath,
    /// Bytes of UDP payload per datagram. TCP has the same path and chooses its own.
    pub payload: usize,
    /// Our sockets.
    pub udp: UdpFigures,
    /// The kernel's TCP.
    pub tcp: TcpFigures,
    /// Our rate over that of TCP, measured right after it: the median of the pairs.
    pub ratio: f64,
    /// Number of measurements that a median is of.
    pub repeat: u32,
}

/// Figures of our sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct UdpFigures {
    /// Payload that arrived, in units of 10^9 bit/s.
    pub gbit_per_s: f64,
    /// CPU time of the sending thread per datagram that arrived, ns.
    pub send_ns: f64,
    /// CPU time of the receiving thread per datagram that arrived, ns.
    pub receive_ns: f64,
    /// CPU seconds of the sending thread per GiB that arrived.
    pub send_cpu_s_per_gib: f64,
    /// CPU seconds of the receiving thread per GiB that arrived.
    pub receive_cpu_s_per_gib: f64,
    /// Datagrams that the kernel handed over in one buffer.
    pub datagrams_per_buffer: f64,
    /// Share of the datagrams that did not arrive.
    pub lost_share: f64,
}

/// Figures of TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TcpFigures {
    /// Data that arrived, in units of 10^9 bit/s.
    pub gbit_per_s: f64,
    /// CPU seconds of the sending thread per GiB.
    pub send_cpu_s_per_gib: f64,
    /// CPU seconds of the receiving thread per GiB.
    pub receive_cpu_s_per_gib: f64,
}

/// Measures every path and size.
///
/// Where no namespaces are to be had there is loopback alone, and the watch is told why.
///
/// # Errors
/// [`AppError::Interrupted`], or what the system says.
pub fn run(
    options: &WireOptions,
    shutdown: &Shutdown,
    watch: &mut dyn BenchWatch,
) -> Result<Vec<WireBench>, AppError> {
    let settings = self::settings(watch)?;
    let of = settings.len() * options.repeat as usize;
    let mut pairs: Vec<Vec<(UdpFigures, TcpFigures)>> = vec![Vec::new(); settings.len()];
    for round in 0..options.repeat as usize {
        // A round has all of them: when the machine gets busier, it does so for all.
        for (index, setting) in settings.iter().enumerate() {
            if shutdown.is_set() {
                return Err(AppError::Interrupted { resumable: false });
            }
            let number = round * settings.len() + index + 1;
            watch.begun(&format!("{}, {} B", setting.path, setting.payload), number, of);
            let tcp = tcp::measure(setting, options.time)?;
            pairs[index].push((udp::measure(setting, options.time)?, tcp));
        }
    }
    let results = settings.iter().zip(&pairs).map(|(setting, pairs)| WireBench {
        path: setting.path,
        payload: setting.payload,
        udp: udp_median(pairs),
        tcp: tcp_median(pairs),
        ratio: median_of(pairs.iter().map(|(udp, tcp)| ratio(udp.gbit_per_s, tcp.gbit_per_s))),
        repeat: options.repeat,
    });
    Ok(results.collect())
}

impl std::fmt::Display for WirePath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            WirePath::Loopback => "loopback",
            WirePath::Veth => "veth",
            WirePath::VethCut => "veth-cut",
        })
    }
}

/// Where two ends meet.
struct Setting {
    path: WirePath,
    payload: usize,
    /// Of the receiving end.
    address: IpAddr,
    /// The sender is on host 0, the receiver on host 1; `None` is this process's own network.
    net: Option<Net>,
}

/// An end of the path.
#[derive(Clone, Copy)]
enum End {
    Sender,
    Receiver,
}

impl Setting {
    /// Opens a socket at an end; it stays there whichever thread uses it.
    fn open<T: Send>(
        &self,
        end: End,
        open: impl FnOnce() -> std::io::Result<T> + Send,
    ) -> Result<T, AppError> {
        let failed = |error| AppError::io(format!("cannot open a socket for {}", self.path), error);
        let Some(net) = &self.net else { return open().map_err(failed) };
        let host = match end {
            End::Sender => 0,
            End::Receiver => 1,
        };
        let namespace = net.namespace(host).map_err(|error| AppError::Failed(error.to_string()))?;
        in_namespace(namespace, open).flatten().map_err(failed)
    }
}

fn settings(watch: &mut dyn BenchWatch) -> Result<Vec<Setting>, AppError> {
    let mut settings = Vec::new();
    for (payload, _) in SIZES {
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        settings.push(Setting { path: WirePath::Loopback, payload, address, net: None });
    }
    for (path, cut) in [(WirePath::Veth, false), (WirePath::VethCut, true)] {
        for (payload, mtu) in SIZES {
            let hosts = vec![HostSpec::default(); 2];
            let spec = Spec { hosts, mtu, edges: false, ..Spec::default() };
            match network(&spec, cut) {
                Ok(net) => {
                    let address = IpAddr::V4(net.ipv4(1));
                    settings.push(Setting { path, payload, address, net: Some(net) });
                }
                Err(error) => {
                    watch.note(&format!("loopback only: {error}"));
                    return Ok(settings);
                }
            }
        }
    }
    Ok(settings)
}

/// Results of both ends, each with the CPU seconds of its thread.
struct Both<S, R> {
    sent: S,
    send_cpu: f64,
    received: R,
    receive_cpu: f64,
}

/// Runs the two ends, each on a thread of its own.
fn both<S: Send, R: Send>(
    send: impl FnOnce() -> std::io::Result<S> + Send,
    receive: impl FnOnce() -> std::io::Result<R> + Send,
) -> Result<Both<S, R>, AppError> {
    let failed = |error| AppError::io("cannot send or receive", error);
    let (sent, received) = scope(|scope| {
        let receiver = Builder::new().name("receiver".to_owned()).spawn_scoped(scope, || timed(receive));
        let sender = Builder::new().name("sender".to_owned()).spawn_scoped(scope, || timed(send));
        (sender.and_then(joined), receiver.and_then(joined))
    });
    let ((sent, send_cpu), (received, receive_cpu)) = (sent.map_err(failed)?, received.map_err(failed)?);
    Ok(Both { sent, send_cpu, received, receive_cpu })
}

fn timed<T>(work: impl FnOnce() -> std::io::Result<T>) -> std::io::Result<(T, f64)> {
    let before = ThreadTime::now();
    let done = work()?;
    Ok((done, before.elapsed().as_secs_f64()))
}

fn joined<T>(thread: ScopedJoinHandle<'_, std::io::Result<T>>) -> std::io::Result<T> {
    thread.join().unwrap_or_else(|reason| std::panic::resume_unwind(reason))
}

/// CPU seconds per GiB.
fn per_gib(seconds: f64, bytes: u64) -> f64 {
    ratio(seconds * Bytes::mib(1024).get() as f64, bytes as f64)
}

fn gbit(bytes: u64, seconds: f64) -> f64 {
    ratio(bytes as f64 * 8.0 / 1e9, seconds)
}

fn udp_median(pairs: &[(UdpFigures, TcpFigures)]) -> UdpFigures {
    let of = |value: fn(&UdpFigures) -> f64| median_of(pairs.iter().map(|(udp, _)| value(udp)));
    UdpFigures {
        gbit_per_s: of(|f| f.gbit_per_s),
        send_ns: of(|f| f.send_ns),
        receive_ns: of(|f| f.receive_ns),
        send_cpu_s_per_gib: of(|f| f.send_cpu_s_per_gib),
        receive_cpu_s_per_gib: of(|f| f.receive_cpu_s_per_gib),
        datagrams_per_buffer: of(|f| f.datagrams_per_buffer),
        lost_share: of(|f| f.lost_share),
    }
}

fn tcp_median(pairs: &[(UdpFigures, TcpFigures)]) -> TcpFigures {
    let of = |value: fn(&TcpFigures) -> f64| median_of(pairs.iter().map(|(_, tcp)| value(tcp)));
    TcpFigures {
        gbit_per_s: of(|f| f.gbit_per_s),
        send_cpu_s_per_gib: of(|f| f.send_cpu_s_per_gib),
        receive_cpu_s_per_gib: of(|f| f.receive_cpu_s_per_gib),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loopback(payload: usize) -> Setting {
        Setting { path: WirePath::Loopback, payload, address: IpAddr::V4(Ipv4Addr::LOCALHOST), net: None }
    }

    #[test]
    fn both_ways_move_data_over_loopback_and_say_what_it_cost() {
        let setting = loopback(1400);
        let udp = udp::measure(&setting, Duration::from_millis(100)).unwrap();
        assert!(udp.gbit_per_s > 0.01 && udp.send_ns > 0.0 && udp.receive_ns > 0.0, "{udp:?}");
        assert!(udp.datagrams_per_buffer >= 1.0 && (0.0..0.9).contains(&udp.lost_share), "{udp:?}");
        let tcp = tcp::measure(&setting, Duration::from_millis(100)).unwrap();
        assert!(tcp.gbit_per_s > 0.01 && tcp.send_cpu_s_per_gib > 0.0, "{tcp:?}");
    }

    #[test]
    fn a_result_has_the_names_that_programs_read() {
        let result = WireBench {
            path: WirePath::VethCut,
            payload: 1400,
            udp: UdpFigures::default(),
            tcp: TcpFigures::default(),
            ratio: 0.9,
            repeat: 5,
        };
        let line = serde_json::to_value(&result).unwrap();
        assert_eq!((line["path"].as_str(), line["ratio"].as_f64()), (Some("veth-cut"), Some(0.9)));
        for field in ["gbit_per_s", "send_ns", "receive_ns", "receive_cpu_s_per_gib", "datagrams_per_buffer"]
        {
            assert!(line["udp"][field].is_number(), "{field}: {line}");
        }
        assert!(line["tcp"]["gbit_per_s"].is_number(), "{line}");
    }

    #[test]
    fn figures_are_medians_of_the_pairs() {
        let pair = |udp, tcp| {
            (
                UdpFigures { gbit_per_s: udp, ..UdpFigures::default() },
                TcpFigures { gbit_per_s: tcp, ..TcpFigures::default() },
            )
        };
        let pairs = [pair(1.0, 9.0), pair(30.0, 7.0), pair(2.0, 8.0)];
        assert_eq!(udp_median(&pairs).gbit_per_s, 2.0);
        assert_eq!(tcp_median(&pairs).gbit_per_s, 8.0);
    }
}
