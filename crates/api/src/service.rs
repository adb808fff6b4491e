//! Notifications to the service manager that started a daemon (systemd's `sd_notify`); none without one.

use std::time::Duration;

use sd_notify::NotifyState;

use super::health;
use super::host::Host;

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "the service manager cannot be told");
    }
}

/// The daemon serves; also after a reload.
pub(super) fn ready() {
    tell(&[NotifyState::Ready]);
}

/// Settings are being read anew; [`reloaded`] follows.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(_) => tell(&[NotifyState::Reloading]),
    }
}

/// New settings are in force, or were refused.
pub fn reloaded() {
    ready();
}

/// The daemon is about to stop.
pub(super) fn stopping(status: &str) {
    tell(&[NotifyState::Stopping, NotifyState::Status(status)]);
}

/// Tells the service manager again and again that the process works, as long as `works` says so, if somebody wants to know.
pub(super) fn keep_alive_while<F: Future<Output = bool> + Send>(
    works: impl Fn() -> F + Send + 'static,
) -> Option<tokio::task::JoinHandle<()>> {
    let every = (sd_notify::watchdog_enabled()? / 3).max(Duration::from_millis(10));
    Some(tokio::spawn(async move {
        loop {
            match works().await {
                true => tell(&[NotifyState::Watchdog]),
                false => tracing::error!("not healthy"),
            }
            tokio::time::sleep(every).await;
        }
    }))
}

/// Tells the service manager again and again that the process works, as long as it does, if somebody wants to know (`WatchdogSec=`).
pub(super) fn keep_alive(host: &Host) {
    let Some(within) = sd_notify::watchdog_enabled() else { return };
    let (host, every) = (host.clone(), (within / 3).max(Duration::from_millis(10)));
    let serving = host.clone();
    serving.spawn(async move {
        loop {
            match health::troubles(&host).await {
                troubles if troubles.is_empty() => tell(&[NotifyState::Watchdog]),
                troubles => tracing::error!(reason = troubles.join("; "), "not healthy"),
            }
            tokio::time::sleep(every).await;
        }
    });
}
