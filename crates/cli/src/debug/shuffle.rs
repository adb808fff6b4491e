//! `headwater debug shuffle`: programs that fetch map outputs, and servers to compare agents with.

use headwater_api::{AppError, Shutdown};
use headwater_bench::shuffle::{self, Fetched, Plan};
use serde_json::json;

use super::tcp::wait_for_line;
use crate::Failure;
use crate::args::{ShuffleFetchArgs, ShuffleServeArgs};
use crate::output::Terminal;

fn writing(source: std::io::Error) -> AppError {
    AppError::Io { doing: "cannot write the result".to_owned(), source }
}

/// Serves until interrupted.
pub(crate) async fn shuffle_serve(
    args: &ShuffleServeArgs,
    terminal: &Terminal,
    shutdown: &Shutdown,
) -> Result<(), Failure> {
    let ready = |listen| {
        let ready = json!({"type": "listening", "listen": listen});
        terminal.result(&ready, || format!("listening on {listen}")).map_err(writing)
    };
    Ok(shuffle::serve(args.listen, args.congestion.as_deref(), shutdown, ready).await?)
}

/// Fetches what the plan says, once a line on standard input starts it.
pub(crate) async fn shuffle_fetch(
    args: &ShuffleFetchArgs,
    terminal: &Terminal,
    shutdown: &Shutdown,
) -> Result<(), Failure> {
    let path = args.plan.display();
    let text = std::fs::read_to_string(&args.plan)
        .map_err(|source| AppError::Io { doing: format!("cannot read {path}"), source })?;
    let plan: Plan = serde_json::from_str(&text)
        .map_err(|error| AppError::Failed(format!("{path} is no plan: {error}")))?;
    let mut say = |fetched: Fetched| {
        terminal
            .result(&fetched, || match &fetched {
                Fetched::Ready => "ready; a line on standard input starts it".to_owned(),
                Fetched::Ended { coflow, .. } => format!("coflow {coflow} is here"),
                Fetched::Done { connections, resent, timeouts } => {
                    format!("all is here, by {connections} connections; {resent} segments sent again, {timeouts} timeouts")
                }
            })
            .map_err(writing)
    };
    let start = async || wait_for_line(shutdown);
    tokio::select! {
        fetched = shuffle::fetch(plan, &mut say, start) => Ok(fetched?),
        () = shutdown.wait() => Err(AppError::Interrupted { resumable: false }.into()),
    }
}
