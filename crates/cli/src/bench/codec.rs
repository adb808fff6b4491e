//! `headwater bench codec`: its options and its tables.

use std::io;

use clap::Args;
use headwater_bench::figures::codec::{self, Changeover, CodecBench, Failures, Wanted};

use crate::Failure;
use crate::output::Terminal;
use crate::tables::Table;
use crate::usage::UsageError;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater bench codec
  headwater bench codec --k 191 --t 1376 --loss 0.01 --json
  headwater bench codec --changeover                        from how many losses on the sparse solver is faster
  headwater bench codec --k 100 --failures 1000000          how often K, K + 1 and K + 2 symbols do not decode

MB/s are 10^6 bytes of source per second of CPU time, one thread. decode fills in the lost source symbols from as many
repair symbols; encode makes as many repair symbols at once, at least one; without a loss, both are about source symbols
alone. CRATE is the same work by the elimination of RFC 6330. Takes a minute or two.

With --json, one object per row: k, t, loss, op, mb_per_s, memcpy_share, crate_mb_per_s, memcpy_mb_per_s, symbols,
kernel; with --changeover: k, t, kernel, measured, rule; with --failures: k, extra, blocks, failed.")]
pub(crate) struct CodecArgs {
    /// Source symbols of a block
    #[arg(long, value_name = "K", value_delimiter = ',', default_value = "64,100,256,1000")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=56_403))]
    k: Vec<u32>,

    /// Bytes of a symbol
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_value = "1376,8192")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    t: Vec<u16>,

    /// Shares of a block's source symbols that are lost
    #[arg(long, value_name = "SHARE", value_delimiter = ',', default_value = "0,0.01,0.03,0.1,0.5")]
    loss: Vec<f64>,

    /// Number of measurements of each figure, of which the median is taken
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,

    /// Find out instead from how many losses on the sparse solver is faster, with each kernel of this machine
    #[arg(long, conflicts_with = "loss")]
    changeover: bool,

    /// Find out instead how often blocks do not decode, from this many blocks of each K
    #[arg(long, value_name = "BLOCKS", conflicts_with_all = ["loss", "changeover"])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    failures: Option<u32>,
}

/// Runs it.
pub(super) fn act(args: &CodecArgs, terminal: &Terminal) -> Result<(), Failure> {
    let wanted = Wanted {
        source_symbols: args.k.clone(),
        symbol_sizes: args.t.clone(),
        losses: args.loss.clone(),
        repeat: args.repeat,
    };
    let mut printed: io::Result<()> = Ok(());
    if let Some(blocks) = args.failures {
        let results = codec::failures(&wanted, blocks, 0, |result| say(terminal, &mut printed, result));
        printed?;
        print(terminal, results, failures)
    } else if args.changeover {
        let results = codec::changeovers(&wanted, |result| say(terminal, &mut printed, result));
        printed?;
        print(terminal, results, changeovers)
    } else {
        let results = codec::run(&wanted, |result| say(terminal, &mut printed, result));
        printed?;
        print(terminal, results, table)
    }
}

fn say(terminal: &Terminal, printed: &mut io::Result<()>, result: &impl serde::Serialize) {
    if terminal.json() && printed.is_ok() {
        *printed = terminal.json_line(result);
    }
}

fn print<R>(
    terminal: &Terminal,
    results: Result<Vec<R>, codec::CodecBenchError>,
    table: impl Fn(&[R]) -> String,
) -> Result<(), Failure> {
    let results = results.map_err(|error| UsageError::Options(error.to_string()))?;
    if !terminal.json() {
        terminal.out(&table(&results))?;
    }
    Ok(())
}

fn table(results: &[CodecBench]) -> String {
    let mut table = Table::new(&[
        " K",
        " T",
        " LOSS",
        "OP",
        " SYMBOLS",
        " MB/S",
        " OF MEMCPY",
        " CRATE MB/S",
        " TIMES CRATE",
        "KERNEL",
    ]);
    for r in results {
        table.row([
            r.k.to_string(),
            r.t.to_string(),
            format!("{:.1} %", r.loss * 100.0),
            r.op.to_owned(),
            r.symbols.to_string(),
            format!("{:.0}", r.mb_per_s),
            format!("{:.0} %", r.memcpy_share * 100.0),
            format!("{:.0}", r.crate_mb_per_s),
            format!("{:.1}", r.mb_per_s / r.crate_mb_per_s),
            r.kernel.to_owned(),
        ]);
    }
    table.render("")
}

fn changeovers(results: &[Changeover]) -> String {
    let mut table = Table::new(&[" K", " T", "KERNEL", " SPARSE FROM", " RULE"]);
    let or_never = |lost: Option<u32>| lost.map_or("never".to_owned(), |lost| lost.to_string());
    for r in results {
        table.row([
            r.k.to_string(),
            r.t.to_string(),
            r.kernel.to_owned(),
            or_never(r.measured),
            or_never(r.rule),
        ]);
    }
    table.render("")
}

fn failures(results: &[Failures]) -> String {
    let mut table = Table::new(&[" K", " SYMBOLS", " BLOCKS", " FAILED", " SHARE", " PUBLISHED"]);
    for r in results {
        table.row([
            r.k.to_string(),
            format!("K + {}", r.extra),
            r.blocks.to_string(),
            r.failed.to_string(),
            format!("{:.1e}", f64::from(r.failed) / f64::from(r.blocks)),
            format!("{:.0e}", r.published()),
        ]);
    }
    table.render("")
}
