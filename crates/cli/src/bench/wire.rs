//! `headwater bench wire`: its options and its table.

use clap::Args;
use headwater_api::Shutdown;
use headwater_bench::figures::wire::{self, WireBench, WireOptions};
use headwater_units::Duration;

use super::Watching;
use crate::Failure;
use crate::inside::with_networks;
use crate::output::Terminal;
use crate::tables::Table;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater bench wire
  headwater bench wire --repeat 9 --for 2s --json

Two threads, one per end: our sockets with a window and ACKs, and one TCP connection, in turn. Paths: loopback; veth, two
hosts in namespaces between which the kernel carries large buffers uncut; veth-cut, the same packet by packet, as on a wire
without merging. The two ends share processors: trust the sum of their CPU time.

With --json, one object per path and payload size: path, payload, udp (gbit_per_s, send_ns and receive_ns per datagram,
send_cpu_s_per_gib, receive_cpu_s_per_gib, datagrams_per_buffer, lost_share), tcp (gbit_per_s, send_cpu_s_per_gib,
receive_cpu_s_per_gib), ratio (ours to TCP's), repeat.")]
pub(crate) struct WireArgs {
    /// Number of measurements of each, all in turn, of which the median is taken
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Duration of each measurement
    #[arg(long = "for", value_name = "TIME", default_value = "500ms")]
    time: Duration,
}

/// Runs it; waits, so this is for a thread that may.
pub(super) fn act(args: &WireArgs, terminal: &Terminal, shutdown: &Shutdown) -> Result<(), Failure> {
    with_networks(terminal, shutdown)?;
    let options = WireOptions { time: args.time.into(), repeat: args.repeat };
    let results = wire::run(&options, shutdown, &mut Watching::new(terminal))?;
    match terminal.json() {
        true => results.iter().try_for_each(|result| terminal.json_line(result))?,
        false => terminal.out(&table(&results))?,
    }
    Ok(())
}

fn table(results: &[WireBench]) -> String {
    let mut table = Table::new(&[
        "PATH",
        " PAYLOAD",
        " UDP GBIT/S",
        " TCP GBIT/S",
        " RATIO",
        " SEND NS",
        " RECEIVE NS",
        " UDP CPU S/GIB",
        " TCP CPU S/GIB",
        " PER BUFFER",
        " LOST",
    ]);
    for WireBench { path, payload, udp, tcp, ratio, .. } in results {
        table.row([
            path.to_string(),
            format!("{payload} B"),
            format!("{:.1}", udp.gbit_per_s),
            format!("{:.1}", tcp.gbit_per_s),
            format!("{ratio:.2}"),
            format!("{:.0}", udp.send_ns),
            format!("{:.0}", udp.receive_ns),
            format!("{:.2} + {:.2}", udp.send_cpu_s_per_gib, udp.receive_cpu_s_per_gib),
            format!("{:.2} + {:.2}", tcp.send_cpu_s_per_gib, tcp.receive_cpu_s_per_gib),
            format!("{:.1}", udp.datagrams_per_buffer),
            format!("{:.2} %", udp.lost_share * 100.0),
        ]);
    }
    table.render("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_bench::figures::wire::{TcpFigures, UdpFigures, WirePath};

    #[test]
    fn a_row_has_both_rates_and_what_each_end_cost() {
        let udp = UdpFigures {
            gbit_per_s: 34.04,
            send_ns: 299.4,
            receive_ns: 228.0,
            send_cpu_s_per_gib: 0.23,
            receive_cpu_s_per_gib: 0.18,
            datagrams_per_buffer: 45.96,
            lost_share: 0.001,
        };
        let tcp = TcpFigures { gbit_per_s: 33.7, send_cpu_s_per_gib: 0.24, receive_cpu_s_per_gib: 0.15 };
        let row = WireBench { path: WirePath::Veth, payload: 1400, udp, tcp, ratio: 1.01, repeat: 5 };
        let text = table(&[row]);
        let cells: Vec<&str> =
            text.lines().nth(1).unwrap().split("  ").filter(|c| !c.is_empty()).map(str::trim).collect();
        assert_eq!(
            cells,
            [
                "veth",
                "1400 B",
                "34.0",
                "33.7",
                "1.01",
                "299",
                "228",
                "0.23 + 0.18",
                "0.24 + 0.15",
                "46.0",
                "0.10 %"
            ]
        );
    }
}
