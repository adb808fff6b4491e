//! Commands that need network namespaces, for users who are nobody special: the same command once more, as root of a user
//! namespace.

use std::os::unix::process::CommandExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use headwater_api::{AppError, Shutdown};
use headwater_testbed::emulate::{EmulateError, EmulatedNet};
use headwater_testbed::netns::in_user_namespace;
use rustix::process::{Pid, Signal, kill_process};

use super::Failure;
use super::output::Terminal;

/// Set where a command runs inside already, so that it cannot go on for ever.
const INSIDE: &str = "HEADWATER_INSIDE";
/// How soon a signal is passed on, or the end noticed.
const LOOK: Duration = Duration::from_millis(20);

/// Returns at once where networks can be built, or where a user namespace would not help either. Else does all of the command
/// in one and returns how that ended, as the failure that it is for this process too.
pub(super) fn with_networks(terminal: &Terminal, shutdown: &Shutdown) -> Result<(), Failure> {
    let helps = match EmulatedNet::probe() {
        Err(EmulateError::Unavailable(why)) => why.user_namespace,
        _ => false,
    };
    if !helps || std::env::var_os(INSIDE).is_some() {
        return Ok(());
    }
    terminal.note("no right to build networks here: going on in a user namespace");
    let failed = |source| AppError::Io { doing: "cannot go on in a user namespace".to_owned(), source };
    let mut command = in_user_namespace(std::env::current_exe().map_err(failed)?);
    // A group of its own: it hears of Ctrl-C from us, and once.
    command.args(std::env::args_os().skip(1)).env(INSIDE, "1").process_group(0);
    let mut child = command.spawn().map_err(failed)?;
    let mut told = false;
    loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Err(Failure::Elsewhere(code(status)));
        }
        if shutdown.is_set() && !std::mem::replace(&mut told, true) {
            // It has not been reaped, so the number is its own.
            let _ = kill_process(Pid::from_child(&child), Signal::INT);
        }
        #[allow(clippy::disallowed_methods, reason = "a child is waited for")]
        std::thread::sleep(LOOK);
    }
}

/// As a shell has it.
fn code(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt as _;
    let signal = status.signal().map(|signal| 128 + signal);
    status.code().or(signal).and_then(|code| u8::try_from(code).ok()).unwrap_or(super::exit::FAILED)
}
