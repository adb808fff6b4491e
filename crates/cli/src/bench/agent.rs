//! `headwater bench agent`: its options and its table.

use clap::Args;
use headwater_api::Shutdown;
use headwater_bench::figures::agent::{self, AgentBench, AgentOptions};
use headwater_bench::figures::carriers::{self, Carried};
use headwater_units::Bytes;

use super::Watching;
use crate::Failure;
use crate::output::Terminal;
use crate::tables::Table;
use crate::usage::UsageError;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater bench agent
  headwater bench agent --flows 400 --coflows 10 --json
  headwater bench agent --carriers

Two agents on loopback, each a process, and a program that fetches all flows at once by its agent: files from memory, TLS between the agents.

With --json, one object: flows, connections, gbit_per_s, cpu_s_per_gib (of both agents), peak_rss_bytes (of the receiving one), drops (TCP
segments sent again), mean_cct_s (from the first request to the end of a coflow). With --carriers, carriers as well: of each its carrier (tls, quic), gbit_per_s and cpu_s_per_gib,
the median of three, both ends in one process.")]
pub(crate) struct AgentArgs {
    /// Bytes of all flows together
    #[arg(long, default_value = "1GiB")]
    size: Bytes,
    /// Flows at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4000))]
    flows: u32,
    /// Coflows that these belong to, in turn
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4000))]
    coflows: u32,
    /// Measure also what could carry flows, without agents: TLS 1.3 over TCP, and QUIC
    #[arg(long)]
    carriers: bool,
}

/// Measured figures.
#[derive(serde::Serialize)]
struct Measured {
    #[serde(flatten)]
    agents: AgentBench,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    carriers: Vec<Carried>,
}

/// Runs it.
pub(super) async fn act(args: &AgentArgs, terminal: &Terminal, shutdown: &Shutdown) -> Result<(), Failure> {
    if args.size < Bytes::new(u64::from(args.flows)) {
        return Err(UsageError::Options("--size: less than a byte for each flow".to_owned()).into());
    }
    let options = AgentOptions { size: args.size, flows: args.flows, coflows: args.coflows.min(args.flows) };
    let mut watching = Watching::new(terminal);
    let agents = agent::run(&options, shutdown, &mut watching).await?;
    let carriers = match args.carriers {
        true => carriers::run(args.size, shutdown, &mut watching).await?,
        false => Vec::new(),
    };
    drop(watching);
    let measured = Measured { agents, carriers };
    terminal.result(&measured, || {
        let carriers = (!measured.carriers.is_empty()).then(|| carriers_table(&measured.carriers));
        [Some(table(&measured.agents)), carriers].into_iter().flatten().collect::<Vec<_>>().join("\n")
    })?;
    Ok(())
}

fn carriers_table(carriers: &[Carried]) -> String {
    let mut table = Table::new(&["CARRIER", " GBIT/S", " CPU S/GIB"]);
    for it in carriers {
        table.row([
            it.carrier.to_owned(),
            format!("{:.2}", it.gbit_per_s),
            format!("{:.2}", it.cpu_s_per_gib),
        ]);
    }
    table.render("")
}

fn table(result: &AgentBench) -> String {
    let mut table =
        Table::new(&["FLOWS", " CONNECTIONS", " GBIT/S", " CPU S/GIB", " PEAK MIB", " DROPS", " MEAN CCT"]);
    table.row([
        result.flows.to_string(),
        result.connections.to_string(),
        format!("{:.2}", result.gbit_per_s),
        format!("{:.2}", result.cpu_s_per_gib),
        format!("{:.1}", result.peak_rss_bytes as f64 / 1_048_576.0),
        result.drops.to_string(),
        format!("{:.3} s", result.mean_cct_s),
    ]);
    table.render("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_what_both_agents_gave_and_cost() {
        let row = AgentBench {
            flows: 400,
            connections: 1,
            gbit_per_s: 7.126,
            cpu_s_per_gib: 1.5,
            peak_rss_bytes: 64 << 20,
            drops: 0,
            mean_cct_s: 0.5,
        };
        let text = table(&row);
        let cells: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(cells, ["400", "1", "7.13", "1.50", "64.0", "0", "0.500", "s"]);
    }
}
