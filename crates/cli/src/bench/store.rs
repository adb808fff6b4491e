//! `headwater bench store`: its options and its table.

use std::path::PathBuf;

use clap::Args;
use headwater_api::Shutdown;
use headwater_bench::figures::store::{self, StoreBench, StoreOptions};
use headwater_units::Bytes;

use super::Watching;
use crate::Failure;
use crate::output::Terminal;
use crate::tables::Table;
use crate::usage::UsageError;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater bench store
  headwater bench store --dir /var/lib/headwater --size 1GiB --json

memcpy: memory copied, in pieces of 256 KiB. hash: blocks in memory compared with their BLAKE3. keep: blocks verified, written
to the file of a transfer and marked as here. read: blocks read from a source's file, which the kernel still has in memory.
Each by one thread and by two that share the blocks.

With --json, one object per operation and number of threads: op, threads, mb_per_s, memcpy_share (of as many threads that
copy memory), scaling (over one thread), repeat.")]
pub(crate) struct StoreArgs {
    /// Where files go, twice the size [default: memory]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    dir: Option<PathBuf>,
    /// Size of the object
    #[arg(long, default_value = "256MiB")]
    size: Bytes,
    /// Number of measurements of each, all in turn, of which the median is taken
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
}

/// Runs it; waits, so this is for a thread that may.
pub(super) fn act(args: &StoreArgs, terminal: &Terminal, shutdown: &Shutdown) -> Result<(), Failure> {
    if args.size == Bytes::ZERO {
        return Err(UsageError::Options("--size: an empty object has no blocks".to_owned()).into());
    }
    let options = StoreOptions { size: args.size, folder: args.dir.clone(), repeat: args.repeat };
    let results = store::run(&options, shutdown, &mut Watching::new(terminal))?;
    match terminal.json() {
        true => results.iter().try_for_each(|result| terminal.json_line(result))?,
        false => terminal.out(&table(&results))?,
    }
    Ok(())
}

fn table(results: &[StoreBench]) -> String {
    let mut table = Table::new(&["OPERATION", " THREADS", " MB/S", " OF MEMCPY", " TIMES ONE THREAD"]);
    for result in results {
        table.row([
            result.op.to_string(),
            result.threads.to_string(),
            format!("{:.0}", result.mb_per_s),
            format!("{:.1} %", result.memcpy_share * 100.0),
            format!("{:.2}", result.scaling),
        ]);
    }
    table.render("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_bench::figures::store::StoreOp;

    #[test]
    fn a_row_has_the_speed_its_share_of_memory_s_and_what_a_second_thread_gave() {
        let row = StoreBench {
            op: StoreOp::Keep,
            threads: 2,
            mb_per_s: 4000.4,
            memcpy_share: 0.2,
            scaling: 1.8,
            repeat: 5,
        };
        let text = table(&[row]);
        let cells: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(cells, ["keep", "2", "4000", "20.0", "%", "1.80"]);
    }
}
