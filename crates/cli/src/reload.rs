//! SIGHUP: a daemon reads its settings anew, takes over what can change while it runs, and says what takes a restart.

use headwater_api::{AppError, Reload, Reloads, service};
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use super::args::Command;
use super::output::Terminal;
use super::settings::{Origin, Settings};
use super::usage::UsageError;

/// Settings that each daemon takes over while it runs; the others are part of its sockets, its machines or what others
/// were told of it.
fn live(command: &Command) -> &'static [&'static str] {
    match command {
        Command::Up(_) | Command::Node(_) => {
            &["log-level", "limit", "gentle", "rack", "label", "quota", "drain"]
        }
        Command::Serve(_) => &["log-level", "limit", "rack", "label", "drain"],
        _ => &["log-level"],
    }
}

/// Where a daemon hears of its new settings, whenever this process is sent SIGHUP.
pub(super) fn on_hangup(
    command: &Command,
    settings: &Settings,
    terminal: &Terminal,
) -> Result<Reloads, AppError> {
    let (trigger, reloads) = Reloads::channel();
    let mut hangups = signal(SignalKind::hangup())
        .map_err(|source| AppError::Io { doing: "cannot wait for signals".to_owned(), source })?;
    let (live, mut settings, terminal) = (live(command), settings.clone(), terminal.clone());
    tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            service::reloading();
            match anew(&settings) {
                Ok((new, reload)) => {
                    tell(&changes(&settings, &new), live);
                    terminal.set_log_level(&new);
                    settings = new;
                    trigger.send(reload);
                }
                Err(error) => {
                    tracing::error!(%error, "settings were not read anew; those in force stay");
                    service::reloaded();
                }
            }
        }
    });
    Ok(reloads)
}

fn anew(settings: &Settings) -> Result<(Settings, Reload), UsageError> {
    let new = settings.again()?;
    let reload = new.reload()?;
    Ok((new, reload))
}

/// A setting that has changed: its name, what it was and what it is.
type Change = (&'static str, Option<Value>, Option<Value>);

fn changes(old: &Settings, new: &Settings) -> Vec<Change> {
    // A value that the daemon itself has noted is no change of the user's.
    let chosen = |settings: &Settings| -> Vec<Option<Value>> {
        let rows = settings.rows();
        rows.map(|(_, value, origin)| value.filter(|_| origin != Some(&Origin::Daemon))).collect()
    };
    let names = new.rows().map(|(key, ..)| key.name);
    let pairs = chosen(old).into_iter().zip(chosen(new));
    names.zip(pairs).filter(|(_, (old, new))| old != new).map(|(name, (old, new))| (name, old, new)).collect()
}

fn tell(changes: &[Change], live: &[&str]) {
    let word = |value: &Option<Value>| value.as_ref().map_or_else(|| "unset".to_owned(), Value::to_string);
    for (setting, old, new) in changes {
        let (was, is) = (word(old), word(new));
        if live.contains(setting) {
            tracing::info!(setting, was, is, "setting changed");
        } else {
            tracing::warn!(
                setting,
                was,
                is,
                "setting changed in the file: it takes a restart of this process"
            );
        }
    }
    tracing::info!(changed = changes.len(), "settings read anew");
}
