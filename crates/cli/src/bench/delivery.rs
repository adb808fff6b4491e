//! `headwater bench delivery`: its options and its table.

use std::io;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use headwater_api::{KeepManyOptions, Shutdown};
use headwater_bench::figures::delivery::{
    self, DeliveryLine, DeliveryMedian, DeliveryOptions, DeliveryRun, ManyRun, Peer, Scenario,
};
use headwater_units::{Bytes, ObjectId};

use super::Watching;
use crate::Failure;
use crate::inside::with_networks;
use crate::output::Terminal;
use crate::settings::Settings;
use crate::tables::Table;
use crate::usage::UsageError;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater bench delivery
  headwater bench delivery --scenario multi,multi-kill --peers headwater,aria2 --repeat 3
  headwater bench delivery --scenario fat --json | jq 'select(.type == \"median\")'
  headwater bench delivery --scenario many --receivers-per-node 10,100

Scenarios:
  multi         sources of 100, 100 and 300 Mbit/s, one receiver of 1 Gbit/s, 256 MiB
  multi-kill    the same; after 2 s the host of the fastest source is silent
  multi-rerate  the same; after 2 s the fastest source's uplink has 20 Mbit/s
  fanout        one source of 200 Mbit/s, four receivers that begin together
  fanout-16     one source and 16 receivers that begin together, every host 20 Mbit/s in each direction, 32 MiB
  fanout-32     the same with 32 receivers
  fat           one source, one receiver, no limits, 1 GiB in memory
  fat-mtu       the same, packet by packet
  many          many objects of 10 MiB into one node at once, from three sources; every link has 1 Gbit/s

Peers that are not installed are named and left out (scripts/install-deps bench). All get the same object, and what arrives is
compared with its hash. Seconds run from the start of the receivers to the exit of the last. It needs root or a user namespace.

With --json, one object per line, by type: missing (peer, why); run (scenario, peer, round, bytes, seconds, ideal_seconds, ratio,
wire_floor, mb_per_s, cpu_s_per_gib, source_cpu_s_per_gib, receiver_cpu_s_per_gib, sent_per_size, first_seconds, checked, cpu_by,
load, error); median (scenario, peer, runs, failed, the figures, times_ours); many (gets, bytes_each, seconds,
ideal_seconds, ratio, mb_per_s, fairness, fastest_seconds, median_seconds, slowest_seconds, peak_rss_bytes, cpu_s_per_gib,
receiver_cpu_s_per_gib, sent_per_size, error).

Exit code: 0 if all of Headwater's own runs went well, 3 if one did not.")]
pub(crate) struct DeliveryArgs {
    /// The settings to compare in
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    #[arg(default_value = "multi,multi-kill,multi-rerate,fanout,fanout-16,fanout-32,fat,fat-mtu,many", value_parser = one_of(Scenario::ALL, Scenario::word))]
    scenario: Vec<Scenario>,
    /// Size of the object, of `many` each [default: 256MiB; fanout-16, -32: 32MiB; fat: 1GiB; many: 10MiB]
    #[arg(long)]
    size: Option<Bytes>,
    /// Rounds, in which the peers take turns; medians count
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Tools that take part [default: all that are installed]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = one_of(Peer::ALL, Peer::word))]
    peers: Vec<Peer>,
    /// Gets at the same time in `many`
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "10,100", value_parser = gets_at_once)]
    receivers_per_node: Vec<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct GetsArgs {
    /// Wait until each object has this many holders
    #[arg(long, value_name = "N", default_value_t = 1)]
    holders: usize,
    /// Objects to fetch
    #[arg(required = true, value_name = "ID")]
    objects: Vec<ObjectId>,
}

/// Takes one of these, by its word.
fn one_of<T: Copy + Send + Sync + 'static, const N: usize>(
    all: [T; N],
    word: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let words = PossibleValuesParser::new(all.map(word));
    words.map(move |typed| {
        all.into_iter().find(|it| word(*it) == typed).expect("clap lets no other word pass")
    })
}

/// As many as one source can have files open for.
fn gets_at_once(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(gets @ 1..=10_000) => Ok(gets),
        _ => Err("write a number from 1 to 10000".to_owned()),
    }
}

/// Runs it.
pub(super) async fn act(
    args: &DeliveryArgs,
    terminal: &Terminal,
    shutdown: &Shutdown,
) -> Result<(), Failure> {
    tokio::task::block_in_place(|| with_networks(terminal, shutdown))?;
    if args.size == Some(Bytes::ZERO) {
        return Err(UsageError::Options("--size: an empty object is delivered already".to_owned()).into());
    }
    let options = DeliveryOptions {
        scenarios: args.scenario.clone(),
        size: args.size,
        repeat: args.repeat,
        peers: if args.peers.is_empty() { Peer::ALL.to_vec() } else { args.peers.clone() },
        gets: args.receivers_per_node.clone(),
    };
    let mut printed = Ok(());
    let mut say = |line: &DeliveryLine| {
        // The first failure stays.
        if printed.is_ok() {
            printed = show(line, terminal);
        }
    };
    let lines = delivery::run(&options, shutdown, &mut Watching::new(terminal), &mut say).await?;
    printed?;
    if !terminal.json() {
        terminal.out(&tables(&lines))?;
    }
    if lines.iter().any(is_our_failure) { Err(Failure::Missed) } else { Ok(()) }
}

/// Whether it tells of a delivery that Headwater did not manage.
fn is_our_failure(line: &DeliveryLine) -> bool {
    match line {
        DeliveryLine::Run(run) => run.peer == Peer::Headwater && run.error.is_some(),
        DeliveryLine::Many(run) => run.error.is_some(),
        _ => false,
    }
}

/// Has this machine's daemon fetch many objects at once.
pub(super) async fn gets(
    args: &GetsArgs,
    settings: &Settings,
    terminal: &Terminal,
    shutdown: &Shutdown,
) -> Result<(), Failure> {
    let options =
        KeepManyOptions { query: settings.query()?, objects: args.objects.clone(), holders: args.holders };
    let result = headwater_api::keep_many(&options, shutdown).await?;
    let words = || format!("{} objects in {:.2} s", result.each_seconds.len(), result.seconds);
    terminal.result(&result, words)?;
    Ok(())
}

/// A line while it goes on: JSON as it is, for people what went wrong or is missing.
fn show(line: &DeliveryLine, terminal: &Terminal) -> io::Result<()> {
    if terminal.json() {
        return terminal.json_line(line);
    }
    match line {
        DeliveryLine::Missing { peer, why } => terminal.note(&format!("without {peer}: {why}")),
        DeliveryLine::Run(DeliveryRun { scenario, peer, error: Some(error), .. }) => {
            terminal.note(&format!("{scenario}: {peer}: {error}"));
        }
        DeliveryLine::Many(ManyRun { gets, error: Some(error), .. }) => {
            terminal.note(&format!("{}: {gets} gets: {error}", Scenario::Many));
        }
        _ => {}
    }
    Ok(())
}

/// All medians in one table, and one for many gets.
fn tables(lines: &[DeliveryLine]) -> String {
    let medians: Vec<&DeliveryMedian> = lines
        .iter()
        .filter_map(|line| if let DeliveryLine::Median(median) = line { Some(median) } else { None })
        .collect();
    let many: Vec<&ManyRun> = lines
        .iter()
        .filter_map(|line| if let DeliveryLine::Many(run) = line { Some(run) } else { None })
        .collect();
    let compared = (!medians.is_empty()).then(|| compared(&medians));
    let many = (!many.is_empty()).then(|| many_table(&many));
    compared.into_iter().chain(many).collect::<Vec<_>>().join("\n")
}

fn compared(medians: &[&DeliveryMedian]) -> String {
    let mut table = Table::new(&[
        "SCENARIO",
        "PEER",
        " RUNS",
        " SECONDS",
        " TIMES OURS",
        " RATIO",
        " FLOOR",
        " MB/S",
        " CPU S/GIB",
        " RECEIVER'S",
        " SENT/SIZE",
    ]);
    for DeliveryMedian { scenario, peer, runs, failed, figures, times_ours } in medians {
        let number = |value: f64, digits: usize| match runs {
            0 => "-".to_owned(),
            _ => format!("{value:.digits$}"),
        };
        let maybe = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"));
        let runs = if *failed > 0 { format!("{runs}, {failed} failed") } else { runs.to_string() };
        table.row([
            scenario.to_string(),
            peer.to_string(),
            runs,
            number(figures.seconds, 3),
            times_ours.map_or_else(|| "-".to_owned(), |times| format!("{times:.2}")),
            maybe(figures.ratio),
            maybe(figures.wire_floor),
            number(figures.mb_per_s, 1),
            number(figures.cpu_s_per_gib, 2),
            number(figures.receiver_cpu_s_per_gib, 2),
            number(figures.sent_per_size, 3),
        ]);
    }
    table.render("")
}

fn many_table(runs: &[&ManyRun]) -> String {
    let mut table = Table::new(&[
        "GETS AT ONCE",
        " SECONDS",
        " RATIO",
        " MB/S",
        " FAIRNESS",
        " FIRST",
        " MEDIAN",
        " LAST",
        " PEAK MEMORY",
        " CPU S/GIB",
        " RECEIVER'S",
        " SENT/SIZE",
    ]);
    for ManyRun { gets, bytes_each, figures, .. } in runs {
        let what = format!("{gets} of {}", Bytes::new(*bytes_each));
        let Some(run) = figures else {
            let mut cells: [String; 12] = std::array::from_fn(|_| "-".to_owned());
            [cells[0], cells[1]] = [what, "failed".to_owned()];
            table.row(cells);
            continue;
        };
        table.row([
            what,
            format!("{:.2}", run.seconds),
            format!("{:.3}", run.ratio),
            format!("{:.1}", run.mb_per_s),
            format!("{:.3}", run.fairness),
            format!("{:.2} s", run.fastest_seconds),
            format!("{:.2} s", run.median_seconds),
            format!("{:.2} s", run.slowest_seconds),
            Bytes::new(run.peak_rss_bytes).to_string(),
            format!("{:.2}", run.cpu_s_per_gib),
            format!("{:.2}", run.receiver_cpu_s_per_gib),
            format!("{:.3}", run.sent_per_size),
        ]);
    }
    table.render("")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use headwater_bench::figures::delivery::{Figures, ManyFigures};

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: DeliveryArgs,
    }

    fn parsed(line: &str) -> Result<DeliveryArgs, clap::Error> {
        Line::try_parse_from(std::iter::once("delivery").chain(line.split_whitespace())).map(|line| line.args)
    }

    #[test]
    fn by_default_all_compare_in_every_scenario() {
        let args = parsed("").unwrap();
        assert_eq!(args.scenario, Scenario::ALL);
        assert_eq!((args.size, args.repeat, args.peers.len()), (None, 5, 0));
    }

    #[test]
    fn lists_are_read_by_the_names_that_are_printed() {
        let args =
            parsed("--scenario fat,many --peers headwater,curl+b3sum --size 1GiB --receivers-per-node 1000")
                .unwrap();
        assert_eq!(args.scenario, [Scenario::Fat, Scenario::Many]);
        assert_eq!(args.peers, [Peer::Headwater, Peer::CurlB3sum]);
        assert_eq!((args.size, args.receivers_per_node), (Some(Bytes::mib(1024)), vec![1000]));
        for wrong in ["--scenario fast", "--peers wget", "--repeat 0", "--receivers-per-node 0", "--size x"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
        let error = parsed("--peers wget").unwrap_err().to_string();
        assert!(error.contains("curl+b3sum") && error.contains("rqbit"), "{error}");
    }

    fn median(peer: Peer, runs: usize, failed: usize, times_ours: Option<f64>) -> DeliveryLine {
        let figures = Figures {
            seconds: 4.6,
            ideal_seconds: Some(4.295),
            ratio: (runs > 0).then_some(1.0712),
            wire_floor: Some(1.0456),
            mb_per_s: 58.35,
            cpu_s_per_gib: 3.456,
            receiver_cpu_s_per_gib: 2.0,
            sent_per_size: 1.07,
            ..Figures::default()
        };
        DeliveryLine::Median(DeliveryMedian {
            scenario: Scenario::Multi,
            peer,
            runs,
            failed,
            figures,
            times_ours,
        })
    }

    #[test]
    fn the_table_compares_with_ours_and_shows_failures_as_such() {
        let lines = [
            DeliveryLine::Missing { peer: Peer::Uftp, why: "not installed: uftp (uftp)".into() },
            median(Peer::Headwater, 5, 0, Some(1.0)),
            median(Peer::Rqbit, 0, 5, None),
        ];
        let text = tables(&lines);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows.len(), 3, "{text}");
        assert_eq!(
            rows[1],
            ["multi", "headwater", "5", "4.600", "1.00", "1.071", "1.046", "58.4", "3.46", "2.00", "1.070"]
        );
        assert_eq!(
            rows[2],
            ["multi", "rqbit", "0,", "5", "failed", "-", "-", "-", "1.046", "-", "-", "-", "-"]
        );
    }

    #[test]
    fn many_gets_have_a_table_of_their_own() {
        let figures = ManyFigures { peak_rss_bytes: 64 << 20, fairness: 0.98, ..ManyFigures::default() };
        let run = ManyRun { gets: 100, bytes_each: 10 << 20, figures: Some(figures), error: None };
        let failed =
            ManyRun { gets: 1000, figures: None, error: Some("no source".to_owned()), ..run.clone() };
        let lines = [DeliveryLine::Many(run), DeliveryLine::Many(failed)];
        let text = tables(&lines);
        assert!(text.starts_with("GETS AT ONCE") && text.contains("100 of 10.0 MiB"), "{text}");
        assert!(text.contains("0.980") && text.lines().last().unwrap().contains("failed"), "{text}");
        assert_eq!(lines.map(|line| is_our_failure(&line)), [false, true]);
    }
}
