//! Settings that describe a machine rather than one run, from four places.
//!
//! ```text
//! built-in default  <  /etc/headwater/config.toml  <  the user's config file  <  environment  <  flag
//! ```
//! The later one wins: a file says what usually holds, on this machine or for this user, the environment what holds
//! in this shell or service, a flag what holds now. A user who names a file (`--config`) means that one and no other.
//! `headwater config` prints each value and its origin. Raw values ([`Layer`]) stay apart from what commands get
//! ([`super::resolve`]).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use headwater_api::remembered_controller;
use headwater_units::{Bytes, Duration, NodeId};
use serde_json::Value;
use thiserror::Error;

use super::values::groups::Groups;
use super::values::labels::Labels;
use super::values::{
    Dscp, DscpLevels, HostPort, Listen, LogFormat, LogLevel, LossResponse, Mtu, NodeName, Port, ProgressMode,
    Rack, Rate, SettingValue, SourceCount, Spread, Theta, ValueError,
};

/// Names the config file when `--config` does not.
pub(crate) const CONFIG_VARIABLE: &str = "HEADWATER_CONFIG";
/// Settings of this machine's administrator, for all users and services.
const SYSTEM_FILE: &str = "/etc/headwater/config.toml";
/// Most time that a daemon which is asked to stop goes on for receivers that it alone can serve: shorter than the 90 s
/// after which systemd kills.
const DRAIN: Duration = Duration::from_secs(30);

/// Settings cannot be had.
#[derive(Debug, Error)]
pub(crate) enum SettingsError {
    #[error("cannot read config file {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("config file {}: {reason}", path.display())]
    Syntax { path: PathBuf, reason: String },
    #[error("config file {}: there is no setting '{key}'; did you mean '{nearest}'?", path.display())]
    UnknownKey { path: PathBuf, key: String, nearest: &'static str },
    #[error("{place}: {reason}")]
    Value { place: String, reason: ValueError },
    #[error("{place}: a string, a number, true or false expected")]
    Kind { place: String },
    #[error("{variable} is not valid UTF-8")]
    Encoding { variable: &'static str },
    #[error("no folder to keep state in: HOME is not set; give --state DIR")]
    NoHome,
}

/// Where a value came from; the later one wins.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    Default,
    /// Noted in the state folder by its daemon; the controller only.
    Daemon,
    File(PathBuf),
    Environment(&'static str),
    Flag,
}

impl Origin {
    /// One word, as in `config --json`.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Origin::Default => "default",
            Origin::Daemon => "daemon",
            Origin::File(_) => "file",
            Origin::Environment(_) => "env",
            Origin::Flag => "flag",
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::Daemon => f.write_str("noted by the daemon of this state folder"),
            Origin::File(path) => write!(f, "file {}", path.display()),
            Origin::Environment(variable) => write!(f, "env {variable}"),
            Origin::Flag => f.write_str("flag"),
        }
    }
}

/// The name of a setting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    /// In the file; the flag is `--` and this.
    pub(crate) name: &'static str,
    /// In the environment.
    pub(crate) variable: &'static str,
}

macro_rules! settings {
    ($($field:ident: $type:ty = $name:literal, $variable:literal;)*) => {
        /// The values of one place; `None` where it says nothing.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub(crate) struct Layer { $(pub(crate) $field: Option<$type>,)* }

        /// Every setting, in the order in which they are printed.
        pub(crate) const KEYS: &[Key] = &[$(Key { name: $name, variable: $variable }),*];

        impl Layer {
            /// Reads a value; `None` if there is no such key.
            fn read(&mut self, name: &str, text: &str) -> Option<Result<(), ValueError>> {
                match name {
                    $($name => Some(SettingValue::read(text).map(|value: $type| self.$field = Some(value))),)*
                    _ => None,
                }
            }

            /// The values in the order of [`KEYS`].
            pub(crate) fn written(&self) -> Vec<Option<Value>> {
                vec![$(self.$field.as_ref().map(SettingValue::written)),*]
            }

            /// Takes over every value of a stronger layer.
            fn overlay(&mut self, stronger: Layer) {
                $(if stronger.$field.is_some() { self.$field = stronger.$field; })*
            }
        }
    };
}

settings! {
    state: PathBuf = "state", "HEADWATER_HOME";
    node_name: NodeName = "node-name", "HEADWATER_NODE_NAME";
    controller: HostPort = "controller", "HEADWATER_CONTROLLER";
    listen: Listen = "listen", "HEADWATER_LISTEN";
    data_port: Port = "data-port", "HEADWATER_DATA_PORT";
    metrics: Listen = "metrics", "HEADWATER_METRICS";
    pin: NodeId = "pin", "HEADWATER_PIN";
    uplink: Rate = "uplink", "HEADWATER_UPLINK";
    downlink: Rate = "downlink", "HEADWATER_DOWNLINK";
    rack: Rack = "rack", "HEADWATER_RACK";
    label: Labels = "label", "HEADWATER_LABEL";
    limit: Rate = "limit", "HEADWATER_LIMIT";
    gentle: bool = "gentle", "HEADWATER_GENTLE";
    dscp: Dscp = "dscp", "HEADWATER_DSCP";
    dscp_control: Dscp = "dscp-control", "HEADWATER_DSCP_CONTROL";
    dscp_levels: DscpLevels = "dscp-levels", "HEADWATER_DSCP_LEVELS";
    dscp_trimmed: Dscp = "dscp-trimmed", "HEADWATER_DSCP_TRIMMED";
    mtu: Mtu = "mtu", "HEADWATER_MTU";
    max_sources: SourceCount = "max-sources", "HEADWATER_MAX_SOURCES";
    groups: Groups = "groups", "HEADWATER_GROUPS";
    spread: Spread = "spread", "HEADWATER_SPREAD";
    loss_response: LossResponse = "loss-response", "HEADWATER_LOSS_RESPONSE";
    theta: Theta = "theta", "HEADWATER_THETA";
    equal_theta: bool = "equal-theta", "HEADWATER_EQUAL_THETA";
    quota: Bytes = "quota", "HEADWATER_QUOTA";
    timeout: Duration = "timeout", "HEADWATER_TIMEOUT";
    json: bool = "json", "HEADWATER_JSON";
    progress: ProgressMode = "progress", "HEADWATER_PROGRESS";
    drain: Duration = "drain", "HEADWATER_DRAIN";
    log_level: LogLevel = "log-level", "HEADWATER_LOG_LEVEL";
    log_format: LogFormat = "log-format", "HEADWATER_LOG_FORMAT";
}

impl Layer {
    fn defaults(state: Option<PathBuf>) -> Self {
        Layer {
            state,
            data_port: Some(Port(0)),
            gentle: Some(false),
            dscp: Some(Dscp(0)),
            spread: Some(Spread::default()),
            loss_response: Some(LossResponse::default()),
            theta: Some(Theta::default()),
            equal_theta: Some(false),
            json: Some(false),
            progress: Some(ProgressMode::default()),
            drain: Some(DRAIN),
            log_format: Some(LogFormat::default()),
            ..Layer::default()
        }
    }

    fn of_environment(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, SettingsError> {
        let mut layer = Layer::default();
        for key in KEYS {
            // An empty variable is one that a script did not mean to set.
            let Some(text) = variable(key.variable).filter(|text| !text.is_empty()) else { continue };
            let text = text.into_string().map_err(|_| SettingsError::Encoding { variable: key.variable })?;
            if let Some(Err(reason)) = layer.read(key.name, &text) {
                return Err(SettingsError::Value { place: key.variable.to_owned(), reason });
            }
        }
        Ok(layer)
    }

    fn of_file(path: &Path, text: &str) -> Result<Self, SettingsError> {
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| SettingsError::Syntax {
            path: path.to_owned(),
            reason: error.to_string().trim_end().to_owned(),
        })?;
        let mut layer = Layer::default();
        for (key, value) in &table {
            let place = || format!("config file {}: {key}", path.display());
            let text = match value {
                toml::Value::String(text) => Some(text.clone()),
                toml::Value::Integer(_) | toml::Value::Float(_) | toml::Value::Boolean(_) => {
                    Some(value.to_string())
                }
                _ => None,
            };
            // An unknown key first: a table of them is more likely a misunderstanding than a wrong type.
            let Some(outcome) = layer.read(key, text.as_deref().unwrap_or_default()) else {
                let nearest = nearest(key);
                return Err(SettingsError::UnknownKey { path: path.to_owned(), key: key.clone(), nearest });
            };
            if text.is_none() {
                return Err(SettingsError::Kind { place: place() });
            }
            outcome.map_err(|reason| SettingsError::Value { place: place(), reason })?;
        }
        Ok(layer)
    }
}

/// Settings that hold, and where each comes from.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The values; `None` where no place says anything.
    pub(crate) values: Layer,
    origins: BTreeMap<&'static str, Origin>,
    /// Settings of the command line.
    flags: Layer,
    /// The file that the user named.
    config: Option<PathBuf>,
}

impl Settings {
    /// Reads file and environment and lays the flags over them.
    ///
    /// `config` is the file that the user named, which then must exist.
    pub(crate) fn gather(config: Option<PathBuf>, flags: Layer) -> Result<Self, SettingsError> {
        let named = config
            .clone()
            .or_else(|| std::env::var_os(CONFIG_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from));
        let own = dirs::config_dir().map(|dir| dir.join("headwater/config.toml"));
        let files = files(named, Path::new(SYSTEM_FILE), own);
        Ok(Settings { flags: flags.clone(), config, ..Self::layered(files, flags)? })
    }

    /// The same again, by what files and environment say now.
    pub(crate) fn again(&self) -> Result<Self, SettingsError> {
        Self::gather(self.config.clone(), self.flags.clone())
    }

    /// The same with these files, the weakest first.
    fn layered(files: Vec<PathBuf>, flags: Layer) -> Result<Self, SettingsError> {
        let mut layers =
            vec![(Layer::defaults(dirs::data_dir().map(|dir| dir.join("headwater"))), Origin::Default)];
        for path in files {
            let text = std::fs::read_to_string(&path)
                .map_err(|source| SettingsError::Read { path: path.clone(), source })?;
            layers.push((Layer::of_file(&path, &text)?, Origin::File(path)));
        }
        layers.push((Layer::of_environment(|name| std::env::var_os(name))?, Origin::Environment("")));
        layers.push((flags, Origin::Flag));
        let mut settings = Settings::merge(layers);
        settings.ask_the_daemon();
        Ok(settings)
    }

    /// The weakest layer first.
    fn merge(layers: Vec<(Layer, Origin)>) -> Self {
        let (origins, flags, config) = Default::default();
        let mut settings = Settings { values: Layer::default(), origins, flags, config };
        for (layer, origin) in layers {
            for (key, value) in KEYS.iter().zip(layer.written()) {
                if value.is_some() {
                    let origin = match &origin {
                        Origin::Environment(_) => Origin::Environment(key.variable),
                        other => other.clone(),
                    };
                    settings.origins.insert(key.name, origin);
                }
            }
            settings.values.overlay(layer);
        }
        settings
    }

    /// Takes the controller that the daemon of the state folder noted, if nothing else names one.
    fn ask_the_daemon(&mut self) {
        if self.values.controller.is_some() {
            return;
        }
        let noted = self.values.state.as_deref().and_then(remembered_controller);
        if let Some(controller) = noted.and_then(|text| text.parse().ok()) {
            self.values.controller = Some(controller);
            self.origins.insert("controller", Origin::Daemon);
        }
    }

    /// Where the value of a key came from; nowhere if it has none.
    pub(crate) fn origin(&self, name: &str) -> Option<&Origin> {
        self.origins.get(name)
    }

    /// Every setting with its value and origin.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (Key, Option<Value>, Option<&Origin>)> {
        KEYS.iter().zip(self.values.written()).map(|(key, value)| (*key, value, self.origin(key.name)))
    }

    /// The folder for keys, pins and the store.
    pub(crate) fn state(&self) -> Result<PathBuf, SettingsError> {
        self.values.state.clone().ok_or(SettingsError::NoHome)
    }
}

/// Which files are read, the weakest first: the one that the user named, else those that are there.
fn files(named: Option<PathBuf>, system: &Path, own: Option<PathBuf>) -> Vec<PathBuf> {
    match named {
        Some(path) => vec![path],
        None => std::iter::once(system.to_owned()).chain(own).filter(|path| path.exists()).collect(),
    }
}

/// The key that takes the fewest edits.
fn nearest(key: &str) -> &'static str {
    let written = key.to_ascii_lowercase().replace('_', "-");
    KEYS.iter().map(|candidate| candidate.name).min_by_key(|name| edits(&written, name)).unwrap_or_default()
}

/// Insertions, deletions and replacements that turn one text into the other (Levenshtein).
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, &b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Result<Layer, SettingsError> {
        Layer::of_file(Path::new("c.toml"), text)
    }

    #[test]
    fn flags_beat_the_environment_and_the_environment_beats_the_file() {
        let env = |name: &str| match name {
            "HEADWATER_UPLINK" => Some("2Mbit/s".into()),
            "HEADWATER_DSCP" => Some("7".into()),
            _ => None,
        };
        let flags = Layer { dscp: Some(Dscp(9)), ..Layer::default() };
        let settings = Settings::merge(vec![
            (Layer::defaults(None), Origin::Default),
            (file("uplink = '1Mbit/s'\ndscp = 1\nmtu = 9000").unwrap(), Origin::File("c.toml".into())),
            (Layer::of_environment(env).unwrap(), Origin::Environment("")),
            (flags, Origin::Flag),
        ]);
        let row = |name: &str| {
            let (_, value, origin) = settings.rows().find(|(key, ..)| key.name == name).unwrap();
            (value.map(|value| value.to_string()), origin.map(Origin::to_string))
        };
        let text = |value: &str, origin: &str| (Some(value.to_owned()), Some(origin.to_owned()));
        assert_eq!(row("dscp"), text("9", "flag"));
        assert_eq!(row("uplink"), text("\"2Mbit/s\"", "env HEADWATER_UPLINK"));
        assert_eq!(row("mtu"), text("9000", "file c.toml"));
        assert_eq!(row("gentle"), text("false", "default"));
        assert_eq!(row("limit"), (None, None));
    }

    #[test]
    fn the_users_file_beats_the_systems_and_a_named_one_stands_alone() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let system = write("system.toml", "controller = '10.0.0.1'\nquota = '1GiB'");
        let own = write("own.toml", "quota = '2GiB'");
        let named = write("named.toml", "drain = '5s'");
        let read = |files| {
            let settings = Settings::layered(files, Layer::default()).unwrap();
            let from = |name| settings.origin(name).cloned();
            (from("controller"), from("quota"), from("drain"))
        };
        let file = |path: &PathBuf| Some(Origin::File(path.clone()));
        let both = files(None, &system, Some(own.clone()));
        assert_eq!(read(both), (file(&system), file(&own), Some(Origin::Default)));
        assert_eq!(files(None, Path::new("/nonexistent"), Some(own.clone())), std::slice::from_ref(&own));
        let alone = read(files(Some(named.clone()), &system, Some(own)));
        assert_eq!((alone.1, alone.2), (None, file(&named)));
    }

    #[test]
    fn the_file_that_is_shipped_says_nothing_and_its_examples_can_be_used() {
        let shipped = include_str!("../../../packaging/config.toml");
        assert_eq!(file(shipped).unwrap(), Layer::default());
        let example =
            |line: &&str| line.starts_with('#') && line[1..].starts_with(|c: char| c.is_ascii_lowercase());
        let examples: Vec<&str> = shipped.lines().filter(example).map(|line| &line[1..]).collect();
        let layer = file(&examples.join("\n")).unwrap();
        let set = layer.written().into_iter().flatten().count();
        assert!(examples.len() > 8 && set == examples.len(), "{examples:?}");
    }

    #[test]
    fn an_unknown_key_is_told_the_nearest_one() {
        for (key, nearest) in [
            ("up-link", "uplink"),
            ("data_port", "data-port"),
            ("Quota", "quota"),
            ("maxsources", "max-sources"),
        ] {
            let error = file(&format!("{key} = 1")).unwrap_err().to_string();
            assert!(
                error.contains(&format!("'{key}'")) && error.contains(&format!("'{nearest}'")),
                "{error}"
            );
        }
        assert!(matches!(file("[node]\nlisten = ':1'"), Err(SettingsError::UnknownKey { .. })));
    }

    #[test]
    fn wrong_values_name_their_place() {
        let error = file("dscp = 64").unwrap_err().to_string();
        assert!(error.contains("c.toml: dscp") && error.contains("0..=63"), "{error}");
        assert!(matches!(file("dscp = [1]"), Err(SettingsError::Kind { .. })));
        assert!(matches!(file("dscp ="), Err(SettingsError::Syntax { .. })));
        let env = |name: &str| (name == "HEADWATER_GENTLE").then(|| "maybe".into());
        let error = Layer::of_environment(env).unwrap_err().to_string();
        assert!(error.starts_with("HEADWATER_GENTLE: "), "{error}");
    }

    #[test]
    fn an_empty_variable_is_not_set() {
        assert_eq!(Layer::of_environment(|_| Some("".into())).unwrap(), Layer::default());
    }

    #[test]
    fn edits_are_counted() {
        assert_eq!((edits("", "abc"), edits("kitten", "sitting"), edits("same", "same")), (3, 3, 0));
    }
}
