//! Log: its content, and the form of its lines.

use std::io::{self, IsTerminal};

use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt};

use super::settings::Settings;
use super::values::{LogFormat, LogLevel};

/// From little to much.
const LEVELS: [LogLevel; 5] =
    [LogLevel::Error, LogLevel::Warn, LogLevel::Info, LogLevel::Debug, LogLevel::Trace];

/// Log settings of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// It stays until it is stopped, and says what happens meanwhile.
    pub(crate) daemon: bool,
    /// Number of `-v`.
    pub(crate) verbose: u8,
    /// `-q`.
    pub(crate) quiet: bool,
}

/// The running log: its level can be changed.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    wanted: Wanted,
    filter: Option<Handle<EnvFilter, Registry>>,
}

impl Log {
    /// Sends logs to `writer`. RUST_LOG wins over `-v` and `-q`, these over the settings.
    pub(crate) fn start<W>(wanted: Wanted, settings: &Settings, writer: W) -> Log
    where
        W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
    {
        let level = wanted.level(settings.values.log_level);
        let (filter, handle) = match std::env::var(EnvFilter::DEFAULT_ENV).is_ok_and(|text| !text.is_empty())
        {
            true => (reload::Layer::new(EnvFilter::from_default_env()).0, None),
            false => {
                let (filter, handle) = reload::Layer::new(EnvFilter::new(directives(level)));
                (filter, Some(handle))
            }
        };
        // A reader of the log that went away must not end the process.
        let lines = fmt::layer().with_writer(writer).log_internal_errors(false);
        let lines = match settings.values.log_format.unwrap_or_default() {
            LogFormat::Text => lines.with_target(false).with_ansi(io::stderr().is_terminal()).boxed(),
            LogFormat::Json => {
                lines.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed()
            }
        };
        // A second start in one process keeps the first one's logs.
        drop(tracing_subscriber::registry().with(filter).with(lines).try_init());
        Log { wanted, filter: handle }
    }

    /// Takes over the level of new settings; false where RUST_LOG, `-v` or `-q` have the say.
    pub(crate) fn set_level(&self, settings: &Settings) -> bool {
        let level = self.wanted.level(settings.values.log_level);
        let Some(filter) = self.filter.as_ref().filter(|_| !self.wanted.is_fixed()) else { return false };
        filter.reload(EnvFilter::new(directives(level))).is_ok()
    }
}

impl Wanted {
    fn is_fixed(self) -> bool {
        self.quiet || self.verbose > 0
    }

    fn level(self, setting: Option<LogLevel>) -> LogLevel {
        let usual = if self.daemon { LogLevel::Info } else { LogLevel::Warn };
        let more = |level: LogLevel, steps: u8| {
            let place = LEVELS.iter().position(|it| *it == level).unwrap_or_default();
            LEVELS[(place + usize::from(steps)).min(LEVELS.len() - 1)]
        };
        match (self.quiet, self.verbose) {
            (true, _) => LogLevel::Error,
            (_, 0) => setting.unwrap_or(usual),
            (_, steps) => more(usual, steps),
        }
    }
}

/// Filter of the log. Lines of other libraries are of interest when something is looked for. Targets are compared by
/// how they begin: `headwater` stands for the crates `headwater_...` too.
fn directives(level: LogLevel) -> String {
    match level {
        LogLevel::Info => format!("warn,headwater={level}"),
        _ => level.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemons_say_what_happens_and_commands_what_is_wrong() {
        let level = |daemon, verbose, quiet, setting| Wanted { daemon, verbose, quiet }.level(setting);
        assert_eq!(level(true, 0, false, None), LogLevel::Info);
        assert_eq!(level(false, 0, false, None), LogLevel::Warn);
        assert_eq!(level(false, 0, false, Some(LogLevel::Debug)), LogLevel::Debug);
        assert_eq!(level(true, 1, false, Some(LogLevel::Error)), LogLevel::Debug);
        assert_eq!(level(false, 9, false, None), LogLevel::Trace);
        assert_eq!(level(true, 0, true, Some(LogLevel::Trace)), LogLevel::Error);
    }
}
