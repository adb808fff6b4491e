//! `--wait-for-start`: the process gets ready, and asks for nothing before a line arrives.

use std::io::BufRead;

use tokio::sync::oneshot;

use super::{AppError, Shutdown};

/// Waits for one line on standard input.
///
/// # Errors
/// [`AppError::Failed`] if the input ends before, [`AppError::Interrupted`] if the process is to stop.
pub(super) async fn wait(shutdown: &Shutdown) -> Result<(), AppError> {
    let (heard, line) = oneshot::channel();
    // A thread of its own, not one of the runtime's: nothing can end a read, and the end of the process waits for those.
    std::thread::Builder::new()
        .name("start".into())
        .spawn(move || heard.send(first_line(&mut std::io::stdin().lock())))
        .map_err(|e| AppError::io("cannot wait for standard input", e))?;
    tokio::select! {
        line = line => line.map_err(|_| ended())?,
        () = shutdown.wait() => Err(AppError::Interrupted { resumable: false }),
    }
}

fn first_line(input: &mut impl BufRead) -> Result<(), AppError> {
    // The line's content does not matter, so it is not kept.
    match input.skip_until(b'\n') {
        Ok(0) => Err(ended()),
        Ok(_) => Ok(()),
        Err(error) => Err(AppError::io("cannot read standard input", error)),
    }
}

fn ended() -> AppError {
    AppError::Failed("--wait-for-start: standard input ended before the line that starts the request".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_starts_and_the_end_of_input_does_not() {
        assert!(first_line(&mut &b"\n"[..]).is_ok());
        assert!(first_line(&mut &b"go\nmore"[..]).is_ok());
        let error = first_line(&mut &b""[..]).unwrap_err().to_string();
        assert!(error.contains("--wait-for-start"), "{error}");
    }
}
