//! Commands about this program itself: its settings, completions and manual.

use std::path::PathBuf;

use clap::Args;

use super::EXPERIMENT;
use super::flags::{
    ControllerFlag, DrainFlag, ListenFlag, MachineFlags, MetricsFlag, NodeNameFlag, PlanningFlags, QuotaFlag,
    SendingFlags, TimeoutFlag,
};
use crate::settings::Layer;
use crate::values::{Spread, Theta};

#[derive(Debug, Args)]
#[command(after_long_help = "Order, the later wins:
  built-in default < /etc/headwater/config.toml < the user's config file < environment < flag

With --config FILE or HEADWATER_CONFIG, FILE is the only file read. A file is TOML, one `name = value` per line without sections, names as printed here; the variable of each setting is
HEADWATER_ and its name in capitals (state: HEADWATER_HOME). What this command prints is a valid config file:
  headwater config --uplink 1Gbit/s >~/.config/headwater/config.toml

A setting that a command has no use for is ignored by it, so one file serves all of them. With --json, one line per
setting: name, value (null where unset), origin (default, daemon, file, env, flag or null), from (the file or variable).")]
/// Print every setting that a config file can hold, and where its value comes from.
///
/// Settings come from built-in defaults, the config file, the environment and flags; the later of these wins.
pub(crate) struct ConfigArgs {
    #[command(flatten)]
    controller: ControllerFlag,
    #[command(flatten)]
    node_name: NodeNameFlag,
    #[command(flatten)]
    listen: ListenFlag,
    #[command(flatten)]
    machine: MachineFlags,
    #[command(flatten)]
    sending: SendingFlags,
    #[command(flatten)]
    planning: PlanningFlags,
    #[command(flatten)]
    metrics: MetricsFlag,
    #[command(flatten)]
    drain: DrainFlag,
    #[command(flatten)]
    quota: QuotaFlag,
    #[command(flatten)]
    timeout: TimeoutFlag,
    /// As in `get`
    #[arg(long, value_name = "HOW", help_heading = EXPERIMENT)]
    spread: Option<Spread>,
    /// As in `get`
    #[arg(long, value_name = "VALUE", help_heading = EXPERIMENT)]
    theta: Option<Theta>,
}

impl ConfigArgs {
    pub(super) fn fill(&self, layer: &mut Layer) {
        self.controller.fill(layer);
        self.node_name.fill(layer);
        self.listen.fill(layer);
        self.machine.fill(layer);
        self.sending.fill(layer);
        self.planning.fill(layer);
        self.metrics.fill(layer);
        self.drain.fill(layer);
        self.quota.fill(layer);
        self.timeout.fill(layer);
        layer.spread = self.spread;
        layer.theta = self.theta;
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater completions bash >~/.local/share/bash-completion/completions/headwater
  headwater completions zsh  >~/.zfunc/_headwater
  headwater completions fish >~/.config/fish/completions/headwater.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater man | man -l -
  headwater man ~/.local/share/man/man1")]
pub(crate) struct ManArgs {
    /// Write headwater.1 and a page per command into this folder [default: headwater.1 on standard output]
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(crate) dir: Option<PathBuf>,
}
