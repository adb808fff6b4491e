//! A transfer as the user of a command sees it.

use headwater_api::{AppError, Config, GetResult, Node, Shutdown, Transfer, Update};
use serde_json::json;

use super::output::Terminal;

/// Has a node do something, shows how it goes, and closes the node once `show` has shown what came of it. Ctrl-C cancels the transfer, and
/// cuts short what the node does for others afterwards.
pub(crate) async fn by_node<T, R>(
    config: Config,
    begin: impl FnOnce(&Node) -> Transfer<T>,
    (terminal, shutdown): (&Terminal, &Shutdown),
    show: impl FnOnce(T) -> R,
) -> Result<R, AppError> {
    by_node_each(config, begin, (terminal, shutdown), &mut |_, _| {}, show).await
}

/// The same of several objects: `each` hears what came of one.
pub(crate) async fn by_node_each<T, R>(
    config: Config,
    begin: impl FnOnce(&Node) -> Transfer<T>,
    (terminal, shutdown): (&Terminal, &Shutdown),
    each: &mut dyn FnMut(&str, Result<GetResult, AppError>),
    show: impl FnOnce(T) -> R,
) -> Result<R, AppError> {
    let node = Node::open(config).await?;
    let result = follow(begin(&node), (terminal, shutdown), each).await;
    let shown = result.map(show);
    tokio::select! {
        () = node.close() => {}
        () = shutdown.wait() => node.close_now().await,
    }
    shown
}

async fn follow<T>(
    mut transfer: Transfer<T>,
    (terminal, shutdown): (&Terminal, &Shutdown),
    each: &mut dyn FnMut(&str, Result<GetResult, AppError>),
) -> Result<T, AppError> {
    // It is gone before the result is printed.
    let mut watch = terminal.watch();
    let mut cancelled = false;
    loop {
        let update = tokio::select! {
            update = transfer.next() => update,
            () = shutdown.wait(), if !cancelled => {
                cancelled = true;
                transfer.cancel();
                continue;
            }
        };
        match update {
            Some(Update::Progress(progress)) => watch.progress(&progress),
            Some(Update::Note(line)) => watch.note(&line),
            Some(Update::Ready) => waiting(terminal),
            Some(Update::Ended { what, result }) => each(&what, *result),
            Some(_) => {}
            None => return transfer.await,
        }
    }
}

/// Says that a request waits for its line.
fn waiting(terminal: &Terminal) {
    match terminal.json() {
        // A program that no longer listens will send no line either.
        true => drop(terminal.json_line(&json!({"type": "ready"}))),
        false => terminal.note("ready; a line on standard input starts the request"),
    }
}
