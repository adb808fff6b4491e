//! The demo as root of a user namespace, for users who are nobody special.
//!
//! This binary runs once more in there, where networks can be built, and tells this process how it goes as JSON lines.

use std::path::Path;

use headwater_api::{AppError, Shutdown, Watch};
use headwater_testbed::netns::in_user_namespace;
use headwater_units::BitRate;

use super::DemoOptions;
use super::progress::{error_of, progress_of};
use super::{DemoResult, NETWORK_VARIABLE, failure};
use crate::subprocess::{Guard, Process};

/// Runs the whole demo in a user namespace; `None` if networks cannot be built in there either.
pub(super) async fn demo_inside(
    program: &Path,
    options: &DemoOptions,
    shutdown: &Shutdown,
    watch: &mut dyn Watch,
) -> Result<Option<DemoResult>, AppError> {
    let log = std::env::temp_dir().join(format!("headwater-demo-{}.log", std::process::id()));
    let result = run(program, options, &log, shutdown, watch).await;
    if !options.keep {
        let _ = std::fs::remove_file(&log);
    }
    result
}

async fn run(
    program: &Path,
    options: &DemoOptions,
    log: &Path,
    shutdown: &Shutdown,
    watch: &mut dyn Watch,
) -> Result<Option<DemoResult>, AppError> {
    let guard = Guard::start((!options.keep).then_some(log))?;
    let mut command = in_user_namespace(program);
    command.args(arguments(options)).env(NETWORK_VARIABLE, "namespaces");
    let mut child = Process::start("the demo's user namespace", command, log.to_owned(), &guard)?;
    let (mut last, mut begun, mut asked) = (None, false, false);
    loop {
        tokio::select! {
            line = child.json() => {
                let Some(line) = line else { break };
                match progress_of(&line) {
                    Some(progress) => {
                        if !std::mem::replace(&mut begun, true) {
                            watch.note("in network namespaces inside a user namespace, limited in the middle");
                        }
                        watch.progress(&progress);
                    }
                    None => last = Some(line),
                }
            }
            // It cleans up after itself, so it is waited for.
            () = shutdown.wait(), if !asked => {
                asked = true;
                child.interrupt();
            }
        }
    }
    child.ended().await?;
    let status = child
        .reap()
        .map_err(|source| AppError::Io { doing: "cannot wait for the demo".to_owned(), source })?;
    if asked {
        return Err(AppError::Interrupted { resumable: false });
    }
    let last = last.ok_or_else(|| child.failed(&format!("ended without a result ({status})")))?;
    match error_of(&last) {
        Some((_, message)) if message.starts_with(UNAVAILABLE) => Ok(None),
        Some((code, message)) => Err(failure(code, message)),
        None => serde_json::from_value(last)
            .map(Some)
            .map_err(|error| child.failed(&format!("printed a result that cannot be read ({error})"))),
    }
}

/// How the error of a demo begins that was to use namespaces and cannot.
pub(super) const UNAVAILABLE: &str = "no network namespaces: ";

/// The command line that stands for these options.
fn arguments(options: &DemoOptions) -> Vec<String> {
    let rate = |rate: &BitRate| format!("{}bit/s", rate.get());
    let rates = options.rates.iter().map(rate).collect::<Vec<_>>().join(",");
    let mut arguments: Vec<String> =
        ["demo", "--json", "--progress", "json", "--rates"].map(String::from).into();
    arguments.extend([
        rates,
        format!("--size={}B", options.size.get()),
        format!("--loss={}", options.loss),
        format!("--seed={}", options.seed),
    ]);
    arguments.extend(options.kills.iter().map(|(source, at)| format!("--kill={source}@{}ns", at.as_nanos())));
    arguments.extend(
        options.joins.iter().map(|(uplink, at)| format!("--join={}@{}ns", rate(uplink), at.as_nanos())),
    );
    arguments.extend(
        options
            .rerates
            .iter()
            .map(|(source, at, uplink)| format!("--rerate={source}@{}ns={}", at.as_nanos(), rate(uplink))),
    );
    if options.keep {
        arguments.push("--keep".to_owned());
    }
    arguments.extend(super::sending_flags(&options.common));
    arguments
}
