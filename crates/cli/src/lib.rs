//! The command line: reads it, starts the command, shows what comes of it. The work of the commands is done by
//! [`headwater_api`], [`headwater_drill`], [`headwater_lab`] and [`headwater_testbed`].
//!
//! ```text
//!   args (as typed) -> settings (file < environment < flags) -> resolve (what a command acts on) -> app
//!                                   output, bar, tables (what people and programs see) <- Watch, result
//! ```

mod agent;
mod args;
#[cfg(feature = "laboratory")]
mod bench;
mod debug;
#[cfg(feature = "laboratory")]
mod drill;
#[cfg(feature = "laboratory")]
mod emulate;
mod exit;
mod experiments;
#[cfg(feature = "laboratory")]
mod inside;
#[cfg(feature = "laboratory")]
mod lab;
mod logging;
mod manual;
mod misuse;
mod network;
mod output;
mod pages;
pub mod panics;
mod reload;
mod resolve;
mod settings;
mod tables;
mod transfers;
mod usage;
mod values;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use headwater_units::Duration;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use self::args::{Cli, Command, DebugCommand, StatusArgs};
#[cfg(feature = "laboratory")]
use self::args::{ShuffleCommand, TcpCommand};
use self::output::Terminal;
use self::pages::Part;
use self::resolve::{Wanted, data_on_stdout};
use self::settings::{Layer, Origin, Settings};
use self::transfers::{by_node, by_node_each};
use self::usage::UsageError;
use self::values::Switch;
use headwater_api::{
    AppError, Config, Get, GetResult, Listening, Node, Output, QueryOptions, Shutdown, ShutdownTrigger,
};

/// Threads for control connections and HTTP; data has threads of its own.
const CONTROL_THREADS: usize = 2;
/// How long blocking work may hold up the end of the process.
const LAST_WORK: std::time::Duration = std::time::Duration::from_secs(1);

/// Runs the command line that this process was started with.
pub fn main() -> ExitCode {
    let arguments: Vec<std::ffi::OsString> = std::env::args_os().collect();
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(misuse) if misuse.use_stderr() => {
            misuse::tell(&misuse, &arguments);
            return exit::USAGE.into();
        }
        Err(answer) => {
            // Help and version are answers, and a reader that went away does not need them.
            drop(answer.print());
            return exit::OK.into();
        }
    };
    panics::end_the_process();
    headwater_api::open_many_files();
    run(&cli).into()
}

fn run(cli: &Cli) -> u8 {
    let mut flags = Layer::default();
    cli.global.fill(&mut flags);
    cli.command.fill(&mut flags);
    let data_on_stdout = match &cli.command {
        Command::Get(args) => data_on_stdout(args.output.as_ref()),
        Command::Debug(DebugCommand::Decode(_)) => true,
        _ => false,
    };
    let wants_json = flags.json.unwrap_or_default();
    let settings = match Settings::gather(cli.global.config.clone(), flags) {
        Ok(settings) => settings,
        Err(error) => {
            Terminal::new(wants_json, data_on_stdout, false, values::ProgressMode::None).usage(&error);
            return exit::USAGE;
        }
    };
    let json = settings.values.json.unwrap_or_default();
    let progress = settings.values.progress.unwrap_or_default();
    let mut terminal = Terminal::new(json, data_on_stdout, cli.global.quiet, progress);
    terminal.start_logging(is_daemon(&cli.command), cli.global.verbose, &settings);
    match dispatch(&cli.command, &settings, &terminal) {
        Ok(()) => exit::OK,
        Err(Failure::Usage(error)) => {
            terminal.usage(&error);
            exit::USAGE
        }
        // The reader of our output has had enough; that is no news to anybody.
        Err(Failure::App(AppError::Io { source, .. })) if source.kind() == io::ErrorKind::BrokenPipe => {
            exit::FAILED
        }
        Err(Failure::App(error)) => {
            terminal.failure(&error);
            error.exit_code()
        }
        // The table or the objects have said which.
        #[cfg(feature = "laboratory")]
        Err(Failure::Missed) => exit::MISSED,
        Err(Failure::Elsewhere(code)) => code,
    }
}

/// Why a command did not do what was asked.
enum Failure {
    Usage(UsageError),
    App(AppError),
    /// Everything ran, and a claim is a miss, or a drill has failed.
    #[cfg(feature = "laboratory")]
    Missed,
    /// Another process did it, said all there is to say, and ended with this code.
    Elsewhere(u8),
}

impl From<UsageError> for Failure {
    fn from(error: UsageError) -> Self {
        Failure::Usage(error)
    }
}

impl From<AppError> for Failure {
    fn from(error: AppError) -> Self {
        Failure::App(error)
    }
}

/// Output could not be written.
impl From<io::Error> for Failure {
    fn from(source: io::Error) -> Self {
        Failure::App(AppError::Io { doing: "cannot write the result".to_owned(), source })
    }
}

fn dispatch(command: &Command, settings: &Settings, terminal: &Terminal) -> Result<(), Failure> {
    match command {
        Command::Config(_) => config(settings, terminal)?,
        Command::Completions(args) => raw(&manual::completions(args.shell))?,
        Command::Man(args) => match &args.dir {
            None => raw(&manual::page()?)?,
            Some(dir) => {
                let files = manual::pages(dir).map_err(|source| AppError::Io {
                    doing: format!("cannot write pages to {}", dir.display()),
                    source,
                })?;
                let words = || format!("{} pages in {}", files.len(), dir.display());
                terminal.summary(&json!({ "files": files }), words)?;
            }
        },
        Command::Debug(DebugCommand::Symbols(args)) => debug::symbols(args, terminal)?,
        Command::Debug(DebugCommand::Decode(args)) => debug::decode(args, terminal)?,
        _ => return on_runtime(command, settings, terminal),
    }
    Ok(())
}

/// Bytes on standard output, as they are.
fn raw(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

fn config(settings: &Settings, terminal: &Terminal) -> io::Result<()> {
    if !terminal.json() {
        return terminal.out(&tables::settings(settings.rows()));
    }
    for (key, value, origin) in settings.rows() {
        let from = match origin {
            Some(Origin::File(path)) => Some(path.display().to_string()),
            Some(Origin::Environment(variable)) => Some((*variable).to_owned()),
            _ => None,
        };
        let (value, origin) = (value.unwrap_or(Value::Null), origin.map(Origin::word));
        terminal.json_line(&json!({"name": key.name, "value": value, "origin": origin, "from": from}))?;
    }
    Ok(())
}

fn on_runtime(command: &Command, settings: &Settings, terminal: &Terminal) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(CONTROL_THREADS)
        .enable_all()
        .build()
        .map_err(|source| AppError::Io { doing: "cannot start threads".to_owned(), source })?;
    let outcome = runtime.block_on(async {
        let (trigger, shutdown) = Shutdown::channel();
        stop_on_signals(trigger, terminal.clone(), drains(command, settings))?;
        act(command, settings, terminal, &shutdown).await
    });
    runtime.shutdown_timeout(LAST_WORK);
    outcome
}

/// Commands that run until they are stopped, and log what happens meanwhile.
fn is_daemon(command: &Command) -> bool {
    matches!(
        command,
        Command::Up(_) | Command::Node(_) | Command::Controller(_) | Command::Serve(_) | Command::Agent(_)
    )
}

/// How long a daemon goes on for others once it is asked to stop; nothing if it does not.
fn drains(command: &Command, settings: &Settings) -> Option<Duration> {
    let sends = is_daemon(command) && !matches!(command, Command::Controller(_) | Command::Agent(_));
    sends.then(|| settings.drain()).filter(|drain| *drain > Duration::ZERO)
}

/// The first SIGINT or SIGTERM asks the command to stop, the second ends the process at once.
fn stop_on_signals(
    trigger: ShutdownTrigger,
    terminal: Terminal,
    drains: Option<Duration>,
) -> Result<(), AppError> {
    let stopping = match drains {
        Some(_) => "stopping when nobody is served from here any more; once more to stop at once",
        None => "stopping; once more to stop at once",
    };
    let listen = |kind| {
        signal(kind).map_err(|source| AppError::Io { doing: "cannot wait for signals".to_owned(), source })
    };
    let (mut interrupts, mut terminations) =
        (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupts.recv() => terminal.note(stopping),
            _ = terminations.recv() => {}
        }
        trigger.set();
        tokio::select! {
            _ = interrupts.recv() => {}
            _ = terminations.recv() => {}
        }
        terminal.clear();
        std::process::exit(i32::from(exit::INTERRUPTED));
    });
    Ok(())
}

#[expect(clippy::too_many_lines, reason = "one flat match")]
async fn act(
    command: &Command,
    settings: &Settings,
    terminal: &Terminal,
    shutdown: &Shutdown,
) -> Result<(), Failure> {
    // The progress display is gone before the result is printed.
    match command {
        Command::Up(args) => {
            headwater_api::node(
                settings.up(args)?,
                shutdown,
                reload::on_hangup(command, settings, terminal)?,
                &mut *terminal.watch(),
                ready("controller and node", terminal),
            )
            .await?;
        }
        Command::Controller(args) => {
            headwater_api::controller(
                settings.daemon(args)?,
                shutdown,
                reload::on_hangup(command, settings, terminal)?,
                &mut *terminal.watch(),
                ready("controller", terminal),
            )
            .await?;
        }
        Command::Node(args) => {
            let (options, reloads) = (settings.node(args)?, reload::on_hangup(command, settings, terminal)?);
            headwater_api::node(options, shutdown, reloads, &mut *terminal.watch(), ready("node", terminal))
                .await?;
        }
        Command::Agent(args) => {
            let reloads = reload::on_hangup(command, settings, terminal)?;
            agent::act(args, settings, terminal, (shutdown, reloads)).await?;
        }
        Command::Serve(args) => {
            let options = settings.serve(args)?;
            let reloads = reload::on_hangup(command, settings, terminal)?;
            headwater_api::serve(
                options,
                shutdown,
                reloads,
                &mut *terminal.watch(),
                ready("serving", terminal),
            )
            .await?;
        }
        Command::Get(args) => {
            let Wanted { by, get, output } = settings.get(args)?;
            if args.what.len() > 1 {
                return get_several(by, get, output, &args.what, (terminal, shutdown)).await;
            }
            let begin = |node: &Node| node.get(get, output);
            let show = |result: GetResult| {
                let shown = terminal.summary(&result, || tables::fetched(&result));
                shown.map(|()| result.deadline_met)
            };
            let met = by_node(by, begin, (terminal, shutdown), show).await??;
            if met == Some(false) {
                terminal.note("error: it is there and verified, but its deadline has passed");
                return Err(Failure::Elsewhere(exit::LATE));
            }
        }
        Command::Cast(args) => {
            let (by, cast) = settings.cast(args)?;
            if let Some(switch) = args.to_new {
                let (query, labels) = (settings.query()?, args.whom.labels());
                let begun = headwater_api::standing_cast(query, &args.what, labels, switch == Switch::On);
                let standing = unless_stopped(shutdown, begun).await?;
                if switch == Switch::Off {
                    terminal.result(&standing, || {
                        format!("{}: nodes that join are not sent it any more\n", args.what)
                    })?;
                    return Ok(());
                }
                terminal.note("nodes that join later are sent it too, until `--to-new=off`");
            }
            let result =
                by_node(by, |node| node.cast(cast), (terminal, shutdown), std::convert::identity).await?;
            terminal.summary(&result, || tables::cast(&result))?;
            if !result.complete {
                let missing =
                    result.receivers.iter().filter(|it| !matches!(&*it.state, "done" | "had")).count();
                let stopped = match &result.stopped {
                    Some(why) => format!("the rollout was stopped {why}; "),
                    None => String::new(),
                };
                terminal.note(&format!(
                    "error: {stopped}{missing} of {} receivers do not have it; run the same command again to serve them",
                    result.receivers.len()
                ));
                let was_given_up = args.standing.drop_late && result.deadline_met == Some(false);
                return Err(Failure::Elsewhere(if was_given_up { exit::LATE } else { exit::FAILED }));
            }
            if result.deadline_met == Some(false) {
                terminal.note("error: all receivers have it, but not all had it by the deadline");
                return Err(Failure::Elsewhere(exit::LATE));
            }
        }
        Command::Plan(args) => {
            let (query, cast) = settings.plan(args)?;
            let plan = unless_stopped(shutdown, headwater_api::plan(query, &cast, args.rate)).await?;
            terminal.result(&plan, || tables::planned(&plan))?;
        }
        Command::Put(args) => {
            let (by, put) = settings.put(args)?;
            let show = |result| terminal.result(&result, || tables::stored(&result));
            by_node(by, |node| node.put(put), (terminal, shutdown), show).await??;
        }
        Command::Ls(_) => {
            let objects = unless_stopped(shutdown, headwater_api::ls(settings.query()?)).await?;
            if terminal.json() {
                objects.iter().try_for_each(|line| terminal.json_line(line))?;
            } else {
                terminal.out(&tables::objects(&objects))?;
            }
        }
        Command::Rm(args) => {
            let result = unless_stopped(shutdown, headwater_api::rm(settings.rm(args)?)).await?;
            terminal.result(&result, || tables::removed(&result))?;
        }
        Command::Gc(args) => {
            let result = unless_stopped(shutdown, headwater_api::gc(settings.gc(args)?)).await?;
            terminal.result(&result, || tables::collected(&result))?;
        }
        Command::Status(StatusArgs { agent: Some(socket), .. }) => {
            let status = tokio::task::block_in_place(|| agent::status(socket))?;
            terminal.result(&status, || agent::status_table(&status))?;
        }
        Command::Status(args) => {
            let part = Part { only: args.only.clone(), page: args.page };
            match args.watch {
                None => {
                    let report = unless_stopped(shutdown, headwater_api::status(settings.query()?)).await?;
                    let report = part.select(&report);
                    terminal.result(&report, || tables::status(&report, &part))?;
                }
                Some(every) => watch_status((&settings.query()?, &part), every, terminal, shutdown).await?,
            }
        }
        Command::Forget(args) => {
            let result = unless_stopped(shutdown, headwater_api::forget(settings.forget(args)?)).await?;
            terminal.result(&result, || tables::forgotten(&result))?;
        }
        #[cfg(feature = "laboratory")]
        Command::Demo(args) => {
            let options = settings.demo(args)?;
            let result = headwater_bench::demo::demo(options, shutdown, &mut *terminal.watch()).await?;
            terminal.result(&result, || result.table())?;
        }
        #[cfg(feature = "laboratory")]
        Command::Lab(command) => lab::act(command, terminal, shutdown)?,
        #[cfg(feature = "laboratory")]
        Command::Emulate(args) => emulate::act(args, terminal, shutdown)?,
        #[cfg(feature = "laboratory")]
        Command::Drill(args) => drill::act(args, terminal, shutdown)?,
        #[cfg(feature = "laboratory")]
        Command::Bench(command) => bench::act(command, settings, terminal, shutdown).await?,
        Command::Debug(DebugCommand::Replay(args)) => {
            let result = headwater_api::replay(&args.file)?;
            terminal.result(&result, || tables::replayed(&result))?;
            if !result.identical {
                return Err(AppError::Failed("the machines did not do the same again".to_owned()).into());
            }
        }
        #[cfg(feature = "laboratory")]
        Command::Debug(DebugCommand::Tcp(TcpCommand::Receive(args))) => {
            debug::tcp_receive(args, terminal, shutdown)?;
        }
        #[cfg(feature = "laboratory")]
        Command::Debug(DebugCommand::Tcp(TcpCommand::Send(args))) => {
            debug::tcp_send(args, terminal, shutdown)?;
        }
        #[cfg(feature = "laboratory")]
        Command::Debug(DebugCommand::Shuffle(ShuffleCommand::Serve(args))) => {
            debug::shuffle_serve(args, terminal, shutdown).await?;
        }
        #[cfg(feature = "laboratory")]
        Command::Debug(DebugCommand::Shuffle(ShuffleCommand::Fetch(args))) => {
            debug::shuffle_fetch(args, terminal, shutdown).await?;
        }
        Command::Debug(_) | Command::Config(_) | Command::Completions(_) | Command::Man(_) => {
            unreachable!("these need no runtime and were run before it was started")
        }
    }
    Ok(())
}

/// Several objects: a result for each, and the exit code of those that failed, if they have one in common.
async fn get_several(
    by: Config,
    get: Get,
    output: Output,
    what: &[String],
    (terminal, shutdown): (&Terminal, &Shutdown),
) -> Result<(), Failure> {
    let mut codes = std::collections::BTreeSet::new();
    let mut unshown = None;
    let mut each = |what: &str, result: Result<GetResult, AppError>| match result {
        Ok(result) => {
            unshown = terminal.summary(&result, || tables::fetched(&result)).err().or(unshown.take())
        }
        Err(error) => {
            codes.insert(error.exit_code());
            terminal.failure_of(what, &error);
        }
    };
    let begin = |node: &Node| node.get_several(what.to_vec(), get, output);
    by_node_each(by, begin, (terminal, shutdown), &mut each, |()| ()).await?;
    if let Some(error) = unshown {
        return Err(error.into());
    }
    match (codes.pop_first(), codes.is_empty()) {
        (None, _) => Ok(()),
        (Some(code), true) => Err(Failure::Elsewhere(code)),
        (Some(_), false) => Err(Failure::Elsewhere(exit::FAILED)),
    }
}

/// Prints address and fingerprint of a daemon once it listens.
fn ready(role: &'static str, terminal: &Terminal) -> impl FnOnce(&Listening) {
    let terminal = terminal.clone();
    move |listening| {
        // A daemon whose standard output was closed has work to do all the same.
        drop(terminal.result(listening, || tables::listening(role, listening)));
    }
}

/// A question that Ctrl-C gives up.
async fn unless_stopped<T>(
    shutdown: &Shutdown,
    question: impl Future<Output = Result<T, AppError>>,
) -> Result<T, AppError> {
    tokio::select! {
        answer = question => answer,
        () = shutdown.wait() => Err(AppError::Interrupted { resumable: false }),
    }
}

/// Shows the status until interrupted.
async fn watch_status(
    (options, part): (&QueryOptions, &Part),
    interval: Duration,
    terminal: &Terminal,
    shutdown: &Shutdown,
) -> Result<(), Failure> {
    // Below that, asking would keep the controller busy.
    let interval = std::time::Duration::from(interval.max(Duration::from_millis(100)));
    loop {
        let asked = unless_stopped(shutdown, headwater_api::status(options.clone())).await;
        let report = match asked {
            Err(AppError::Interrupted { .. }) => return Ok(()),
            asked => part.select(&asked?),
        };
        terminal.new_picture()?;
        terminal.result(&report, || {
            format!("total {}\n{}", tables::total_rate(&report), tables::status(&report, part))
        })?;
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            () = shutdown.wait() => return Ok(()),
        }
    }
}
