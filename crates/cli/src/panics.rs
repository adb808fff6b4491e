//! A panic in a thread that the process depends on ends the process, so that a service manager starts it again.
//!
//! Tasks of the runtime are not among them: a panic ends the task, one peer's connection, and those on which a daemon depends end it with
//! an error ([`headwater_api::AppError::Failed`]).

use std::io::{self, Write};

use crate::exit;

/// Names of threads that move data: the data thread, and its workers by their prefix.
const DATA: &str = "data";
const WORKERS: &str = "worker-";

/// Makes such a panic end the process with [`exit::PANICKED`], after the usual message.
pub fn end_the_process() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        let thread = std::thread::current();
        let name = thread.name().unwrap_or_default();
        if name == DATA || name.starts_with(WORKERS) {
            // Where standard error is a file on a full disk, nobody hears it; a panic here would change the exit code.
            let _ = writeln!(
                io::stderr(),
                "headwater: the thread `{name}` panicked, which is a defect of headwater; the process ends. \
                 Start it again: what is finished is kept. Please report the message above."
            );
            std::process::exit(exit::PANICKED.into());
        }
    }));
}
