//! `headwater emulate`: its options and tables. The work is done by [`headwater_testbed::emulate`].

use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, Subcommand, ValueHint};
use headwater_api::{AppError, Shutdown};
use headwater_experiment::scenario::{NetworkTextError, Scenario};
use headwater_testbed::emulate::{
    CaptureStatus, ControlSocket, EmulateError, EmulatedNet, HostStatus, LinkStatus, NetOptions, Runs,
    Status, TimeStatus, check_fault, command_on,
};
use headwater_testbed::netns;
use headwater_testbed::soft_switch::{Groups, MAX_FRAME};
use headwater_units::{BitRate, Duration};
use serde_json::json;

use super::Failure;
use super::output::Terminal;
use super::tables::Table;
use super::usage::UsageError;

/// How soon Ctrl-C and the end of `--for` are noticed.
const STEP: std::time::Duration = std::time::Duration::from_millis(50);
/// How often counts are shown.
const SECOND: std::time::Duration = std::time::Duration::from_secs(1);

#[derive(Debug, Args)]
#[command(subcommand_negates_reqs = true)]
#[command(after_help = "Examples:
  headwater emulate 'fabric = { kind = \"dumbbell\", left = 1, right = 1, rate = \"20 Mbit/s\", delay = \"10 ms\" }'
  headwater emulate lab.toml --for 10s --json
  headwater emulate experiments/ppush/fig2.toml --pcap captures
Then, in another terminal:
  headwater emulate exec 0 -- ping -c 3 10.99.0.2
  headwater emulate fault left-right loss 1%
  headwater emulate status

FILE is a scenario, as those of experiments: `fabric`, and where they are not as usual `port`, `nic`, `packet`, `routing` and
`faults`, whose times run from the start. What else a scenario has is not used. So one file means the same network here and
in `headwater lab run`. Text with a `=` in it is taken for the scenario itself.

Hosts are network namespaces, with the addresses 10.99.0.1, fd00:99::1 and so on. All links are run by one thread of this
process: together they may carry some 50000 packets a second on a machine that has two idle processors. How late packets were
is said at the end; where it says INVALID the machine was too slow or too busy, and measurements do not count.

With --pcap, DIR gets a file for each direction of each cable, which Wireshark and tcpdump read: packets as they left its queue,
with marks, and at the nanosecond at which their last bit did. Files of that name that are there already are replaced.

Multicast groups have as members the hosts whose programs have joined them, as their kernels report by IGMP and MLD. Groups of one
link (224.0.0.0/24, ff02::/16) go nowhere.

With --json: an object with \"type\":\"ready\", then one per second with \"type\":\"second\", and at the end the last counts.")]
pub(crate) struct EmulateArgs {
    #[command(subcommand)]
    command: Option<EmulateCommand>,
    /// The scenario: a TOML file, or its text
    #[arg(value_name = "FILE|TEXT", required = true, value_hint = ValueHint::FilePath)]
    scenario: Option<String>,
    /// End by itself after this long, as in 10s [default: when interrupted]
    #[arg(long = "for", value_name = "TIME")]
    span: Option<Duration>,
    /// Where everything random in the network comes from [default: 1]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Keep all packets as they leave their ports: a pcap file for each in this folder, as in left-right.pcap
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pcap: Option<PathBuf>,
    /// How many bytes of each packet are kept [default: 128]
    #[arg(long, value_name = "N", requires = "pcap", value_parser = clap::value_parser!(u16).range(14..=MAX_FRAME as i64))]
    pcap_snap: Option<u16>,
    /// Give what is sent to a multicast group to all other hosts [default: to those that have joined it]
    #[arg(long)]
    flood_groups: bool,
}

#[derive(Debug, Subcommand)]
enum EmulateCommand {
    /// Run a program on a host of the running network
    Exec(ExecArgs),
    /// Change a link of the running network
    Fault(FaultArgs),
    /// Show hosts, links and lateness of the running networks
    Status(StatusArgs),
    /// Remove the namespaces that killed processes have left behind
    #[command(after_help = "Examples:
  headwater emulate clean

Networks that still run are left alone. Seldom needed: a guard process removes them within seconds.")]
    Clean,
}

/// Which network is meant.
#[derive(Debug, Args)]
struct RunFlag {
    /// Which of several running networks, as `emulate status` names them
    #[arg(long, value_name = "ID")]
    run: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater emulate exec 0 -- ping -c 3 10.99.0.2
  headwater emulate exec h1 -- iperf3 -s
  headwater emulate exec 1 -- bash

Only the network is another: files and processes are those of this machine. The exit code is the program's. What still runs
when the network ends is killed.")]
struct ExecArgs {
    /// The host: its number or its name
    #[arg(value_name = "HOST")]
    host: String,
    #[command(flatten)]
    run: RunFlag,
    /// The program and its arguments
    #[arg(value_name = "CMD", required = true, last = true, value_hint = ValueHint::CommandWithArguments)]
    command: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater emulate fault left-right loss 1%            each packet is lost with this chance; 0 ends it
  headwater emulate fault left-right rate 5Mbit/s
  headwater emulate fault h0-left down                  what is in its queue is lost; `up` mends it
  headwater emulate fault left-right duplicate 1%
  headwater emulate fault left-right reorder 1% 2ms     held back for a random time up to this
  headwater emulate fault left-right drop-next 100

A link is one direction of a cable, from-to; `emulate status` lists all. The other direction is a link of its own.")]
struct FaultArgs {
    /// The link, as in left-right
    #[arg(value_name = "LINK")]
    link: String,
    /// Change of the link
    #[arg(value_name = "FAULT", required = true, num_args = 1..=3)]
    what: Vec<String>,
    #[command(flatten)]
    run: RunFlag,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater emulate status
  headwater emulate status --json | jq '.links[] | select(.dropped > 0)'

With --json, one object per running network: run, seconds, hosts, links, what became of all frames, lateness.")]
struct StatusArgs {
    #[command(flatten)]
    run: RunFlag,
}

impl From<EmulateError> for Failure {
    fn from(error: EmulateError) -> Self {
        let text = error.to_string();
        match error {
            EmulateError::Fault(_)
            | EmulateError::Setup(_)
            | EmulateError::Size { .. }
            | EmulateError::PacketSize { .. }
            | EmulateError::Cables { .. }
            | EmulateError::HostFault => Failure::Usage(UsageError::Options(text)),
            EmulateError::NoRun(_) | EmulateError::UnknownLink { .. } => {
                Failure::App(AppError::NotFound(text))
            }
            _ => Failure::App(AppError::Failed(text)),
        }
    }
}

/// Does what was asked; waits, so this is for a thread that may.
pub(crate) fn act(args: &EmulateArgs, terminal: &Terminal, shutdown: &Shutdown) -> Result<(), Failure> {
    let EmulateArgs { scenario, span, seed, pcap, flood_groups, .. } = args;
    let starts = scenario.is_some() || span.is_some() || seed.is_some() || pcap.is_some() || *flood_groups;
    if args.command.is_some() && starts {
        let text = "a scenario, --for, --seed, --pcap and --flood-groups start a network; they do not go with exec, fault, status or clean";
        return Err(UsageError::Options(text.to_owned()).into());
    }
    // Nothing else goes on in this runtime but the waiting for signals.
    tokio::task::block_in_place(|| match (&args.command, &args.scenario) {
        (Some(EmulateCommand::Exec(args)), _) => exec(args),
        (Some(EmulateCommand::Fault(args)), _) => fault(args, terminal),
        (Some(EmulateCommand::Status(args)), _) => status(args, terminal),
        (Some(EmulateCommand::Clean), _) => clean(terminal),
        (None, Some(scenario)) => up(scenario, args, terminal, shutdown),
        (None, None) => unreachable!("clap asks for a scenario where there is no command"),
    })
}

#[allow(clippy::disallowed_methods, reason = "seconds of people, and `--for`")]
fn up(scenario: &str, args: &EmulateArgs, terminal: &Terminal, shutdown: &Shutdown) -> Result<(), Failure> {
    let scenario = read(scenario)?;
    let mut options = NetOptions { pcap: args.pcap.clone(), ..NetOptions::default() };
    options.pcap_snap = args.pcap_snap.map_or(options.pcap_snap, usize::from);
    if args.flood_groups {
        options.groups = Groups::Flooded;
    }
    let net = EmulatedNet::build_with(&scenario, args.seed.unwrap_or(1), &options)?;
    let control = ControlSocket::open(net.run_id())?;
    let mut before = net.status()?;
    if terminal.json() {
        let links: Vec<&str> = before.links.iter().map(|link| link.link.as_str()).collect();
        let control = control.path();
        terminal.json_line(&json!({
            "type": "ready", "run": before.run, "control": control, "hosts": before.hosts, "links": links,
        }))?;
    } else {
        terminal.out(&introduction(&before))?;
    }
    let start = Instant::now();
    let live = !terminal.json() && io::stdout().is_terminal();
    let mut shown = start;
    while !shutdown.is_set() && args.span.is_none_or(|span| start.elapsed() < std::time::Duration::from(span))
    {
        control.serve(&net, STEP);
        if shown.elapsed() < SECOND {
            continue;
        }
        shown += SECOND;
        // One that has stopped says why when it is joined.
        let Ok(now) = net.status() else { break };
        if terminal.json() {
            terminal.json_line(&second(&before, &now))?;
        } else if live {
            terminal.new_picture()?;
            terminal.out(&format!("{}\n{}", introduction(&now), rates(&before, &now)))?;
        }
        before = now;
    }
    let last = net.status();
    drop(control);
    let stopped = net.stop();
    let last = match last {
        Ok(last) => last,
        Err(error) => return Err(stopped.err().unwrap_or(error).into()),
    };
    if live {
        terminal.new_picture()?;
    }
    terminal.result(&last, || totals(&last))?;
    stopped?;
    Ok(())
}

/// A file, or the text itself.
fn read(what: &str) -> Result<Scenario, Failure> {
    let path = PathBuf::from(what);
    let inline = what.contains('=') && !path.exists();
    let text = match inline {
        true => what.to_owned(),
        false => std::fs::read_to_string(&path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => AppError::NotFound(format!("no file {}", path.display())),
            _ => AppError::Io { doing: format!("cannot read {}", path.display()), source },
        })?,
    };
    let place = if inline { Path::new("the scenario") } else { &path };
    Scenario::of_network(&text).map_err(|error: NetworkTextError| {
        Failure::Usage(UsageError::Options(format!("{}: {error}", place.display())))
    })
}

fn exec(args: &ExecArgs) -> Result<(), Failure> {
    let runs = Runs::of_this_user()?;
    let status = runs.status(&runs.choose(args.run.run.as_deref())?)?;
    let is_meant = |host: &&HostStatus| args.host == host.name || args.host.parse() == Ok(host.host);
    let host = status.hosts.iter().find(is_meant).ok_or_else(|| {
        AppError::NotFound(format!(
            "no host '{}'; there are {}, numbered from 0",
            args.host,
            status.hosts.len()
        ))
    })?;
    let (program, arguments) = args.command.split_first().expect("clap asks for one");
    // Returns only if it failed: from here on this process is the program.
    let source = command_on(&host.namespace, program).args(arguments).exec();
    Err(AppError::Io {
        doing: "cannot start nsenter (Debian and Ubuntu package: util-linux)".to_owned(),
        source,
    }
    .into())
}

fn fault(args: &FaultArgs, terminal: &Terminal) -> Result<(), Failure> {
    check_fault(&args.what)?;
    let runs = Runs::of_this_user()?;
    let run = runs.choose(args.run.run.as_deref())?;
    runs.fault(&run, &args.link, &args.what)?;
    let what = args.what.join(" ");
    terminal.summary(&json!({ "run": run, "link": args.link, "fault": what }), || {
        format!("{}: {what}", args.link)
    })?;
    Ok(())
}

fn status(args: &StatusArgs, terminal: &Terminal) -> Result<(), Failure> {
    let runs = Runs::of_this_user()?;
    let ids = match (&args.run.run, runs.ids()) {
        (None, ids) if !ids.is_empty() => ids,
        (wanted, _) => vec![runs.choose(wanted.as_deref())?],
    };
    for run in ids {
        let status = runs.status(&run)?;
        terminal.result(&status, || format!("{}\n{}", introduction(&status), totals(&status)))?;
    }
    Ok(())
}

fn clean(terminal: &Terminal) -> Result<(), Failure> {
    let removed = netns::clean().map_err(EmulateError::from)?;
    // Looking at the sockets removes those of the dead.
    let running = Runs::of_this_user().map(|runs| runs.ids()).unwrap_or_default();
    terminal.summary(&json!({ "removed": removed, "running": running }), || match &removed[..] {
        [] => "nothing to remove".to_owned(),
        names => format!("removed {}", names.join(" ")),
    })?;
    Ok(())
}

/// Table of the hosts, and how to get to them.
fn introduction(status: &Status) -> String {
    let mut table = Table::new(&["HOST", "NAME", "NAMESPACE", "IPV4", "IPV6"]);
    for host in &status.hosts {
        table.row([
            host.host.to_string(),
            host.name.clone(),
            host.namespace.clone(),
            host.ipv4.to_string(),
            host.ipv6.map_or_else(|| "-".to_owned(), |ip| ip.to_string()),
        ]);
    }
    let peer = status.hosts.last().map(|host| host.ipv4.to_string()).unwrap_or_default();
    let link = status.links.first().map(|link| link.link.as_str()).unwrap_or_default();
    format!(
        "{}, {} s\n{}\n  headwater emulate exec 0 -- ping {peer}\n  headwater emulate fault {link} loss 1%\n",
        status.run,
        status.seconds.round(),
        table.render("  ")
    )
}

const HEADINGS: [&str; 7] = ["LINK", " RATE", " QUEUE", " MARKED", " DROPPED", " TRIMMED", " LOST"];

/// Table of the links' traffic since `before`; links without any are counted.
fn rates(before: &Status, now: &Status) -> String {
    let mut table = Table::new(&HEADINGS);
    let pairs = before.links.iter().zip(&now.links);
    let mut quiet = 0;
    for (was, is) in pairs {
        if (was.packets, was.dropped, was.queue) == (is.packets, is.dropped, is.queue) && is.queue == 0 {
            quiet += 1;
            continue;
        }
        table.row([
            is.link.clone(),
            rate(before, now, was, is).to_string(),
            is.queue.to_string(),
            (is.marked - was.marked).to_string(),
            (is.dropped - was.dropped).to_string(),
            (is.trimmed - was.trimmed).to_string(),
            (is.lost - was.lost).to_string(),
        ]);
    }
    let mut text = table.render("  ");
    let _ = writeln!(text, "  {quiet} links without packets");
    text + "\n" + &verdict(&now.lateness)
}

fn rate(before: &Status, now: &Status, was: &LinkStatus, is: &LinkStatus) -> BitRate {
    let seconds = (now.seconds - before.seconds).max(1e-9);
    BitRate::new(((is.bytes - was.bytes) as f64 * 8.0 / seconds) as u64)
}

/// The same for programs, all links.
fn second(before: &Status, now: &Status) -> serde_json::Value {
    let links = before.links.iter().zip(&now.links).map(|(was, is)| {
        json!({
            "link": is.link,
            "bit_per_s": rate(before, now, was, is).get(),
            "packets": is.packets - was.packets,
            "queue": is.queue,
            "marked": is.marked - was.marked,
            "dropped": is.dropped - was.dropped,
            "trimmed": is.trimmed - was.trimmed,
            "lost": is.lost - was.lost,
        })
    });
    let links: Vec<_> = links.collect();
    json!({ "type": "second", "run": now.run, "seconds": now.seconds, "links": links, "lateness": now.lateness })
}

/// Table of the rates that ports grant to scheduled transfers, if they do.
fn granted(status: &Status) -> String {
    let mut table = Table::new(&["PORT OF", "CRITICAL", " ACTIVE", " AVAILABLE", " ALPHA"]);
    let mut is_empty = true;
    for link in status.links.iter().filter(|link| link.packets > 0) {
        let Some(allocator) = &link.allocator else { continue };
        is_empty = false;
        table.row([
            link.link.clone(),
            allocator.critical.clone().unwrap_or_else(|| "-".to_owned()),
            allocator.active.to_string(),
            allocator.available.to_string(),
            format!("{:.2}", allocator.alpha),
        ]);
    }
    if is_empty { String::new() } else { table.render("  ") }
}

/// Table of the totals since the start.
fn totals(status: &Status) -> String {
    let mut table = Table::new(&[
        "LINK",
        " PACKETS",
        " MEAN RATE",
        " QUEUE",
        " LONGEST",
        " MARKED",
        " DROPPED",
        " TRIMMED",
        " LOST",
    ]);
    for link in status.links.iter().filter(|link| link.packets + link.dropped > 0) {
        let mean = link.bytes as f64 * 8.0 / status.seconds.max(1e-9);
        table.row([
            link.link.clone(),
            link.packets.to_string(),
            BitRate::new(mean as u64).to_string(),
            link.queue.to_string(),
            link.max_queue.to_string(),
            link.marked.to_string(),
            link.dropped.to_string(),
            link.trimmed.to_string(),
            link.lost.to_string(),
        ]);
    }
    let mut text = table.render("  ");
    text += &granted(status);
    let _ = writeln!(
        text,
        "  {} packets sent, {} copied for groups, {} received, {} dropped, {} lost, {} twice, {} held back, {} without a route",
        status.injected,
        status.copied,
        status.delivered,
        status.dropped,
        status.lost,
        status.duplicated,
        status.reordered,
        status.unroutable
    );
    for (reason, count) in &status.not_forwarded {
        let _ = writeln!(text, "  {count} not forwarded: {reason}");
    }
    if let Some(CaptureStatus { folder, frames, missed }) = &status.capture {
        let _ = writeln!(text, "  {frames} packets kept in {}, {missed} missed", folder.display());
    }
    text + &verdict(&status.lateness)
}

fn verdict(seen: &TimeStatus) -> String {
    let mut text = format!(
        "  lateness of {} packets: p50 {:.1} us, p99 {:.1} us, p99.9 {:.1} us, at most {:.1} us; read after p99 {:.1} us\n",
        seen.sent, seen.p50_us, seen.p99_us, seen.p999_us, seen.max_us, seen.read_p99_us
    );
    let _ = match seen.valid {
        true => writeln!(text, "  valid: both p99 within {:.0} us, nothing missed", seen.limit_us),
        false => writeln!(
            text,
            "  INVALID: the machine was too slow or too busy (p99 may be {:.0} us; {} packets missed)",
            seen.limit_us, seen.missed
        ),
    };
    text
}
