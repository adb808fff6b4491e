//! Whether a process works (`/healthz`), and whether it serves (`/readyz`).

use std::path::Path;
use std::time::Duration;

use super::host::Host;

/// Time without an answer after which a part counts as stuck.
const ANSWER: Duration = Duration::from_secs(2);

/// Faults of the process itself that only a restart mends; none if it works.
pub(super) async fn troubles(host: &Host) -> Vec<String> {
    let ops = host.ops();
    // A process that is about to stop ends its parts one by one.
    let ended = if ops.is_draining() { Vec::new() } else { ops.ended() };
    let mut troubles: Vec<String> = ended.into_iter().map(|part| format!("{part} has ended")).collect();
    if host.data_address().is_some() {
        troubles.extend(silence_of("the data thread", host.node().look()).await);
    }
    if let Some(controller) = host.controller() {
        troubles.extend(silence_of("the controller", controller.answers()).await);
    }
    troubles
}

/// Fault of a part that says whether it is there, if it has one.
async fn silence_of(part: &str, answer: impl Future<Output = bool>) -> Option<String> {
    match tokio::time::timeout(ANSWER, answer).await {
        Ok(true) => None,
        Ok(false) => Some(format!("{part} has ended")),
        Err(_) => Some(format!("{part} does not answer")),
    }
}

/// Why the process does not serve now; nothing if it does.
pub(super) async fn obstacles(host: &Host) -> Vec<String> {
    let mut obstacles = troubles(host).await;
    let ops = host.ops();
    if ops.is_draining() {
        obstacles.push("draining: about to stop".to_owned());
    }
    if let Some(joins) = ops.joins().filter(|joins| !host.has_link(joins.path)) {
        let why = joins.trouble.map_or_else(String::new, |why| format!(": {why}"));
        obstacles.push(format!("not joined: no connection to the controller {}{why}", joins.at));
    }
    if let Some(store) = ops.store() {
        let folder = store.folder().to_owned();
        let written = tokio::task::spawn_blocking(move || writable(&folder)).await;
        if let Err(error) = written.unwrap_or_else(|error| Err(std::io::Error::other(error))) {
            obstacles.push(format!("the store cannot be written: {}: {error}", store.folder().display()));
        }
    }
    obstacles
}

/// Writes a file into a folder and removes it again.
fn writable(folder: &Path) -> std::io::Result<()> {
    let probe = folder.join("tmp").join(format!("probe-{}", std::process::id()));
    std::fs::write(&probe, [0])?;
    std::fs::remove_file(&probe)
}
