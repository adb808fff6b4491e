//! Commands about objects: in the store of this machine, and as the controller knows them.

use std::path::PathBuf;

use clap::Args;
use headwater_units::Duration;

use super::flags::{ControllerFlag, QuotaFlag, TimeoutFlag};
use crate::cli::settings::Layer;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater put model.bin --name model
  headwater put dataset/
  headwater put huge.img --link

The file is cloned where the file system can (no bytes move), else copied. With --link it is hard-linked: quick and
small everywhere, but then the file must never change again.

A daemon on the same state folder offers the object at once; without one, start it: headwater node --join HOST.")]
pub(crate) struct PutArgs {
    /// The file or folder
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::AnyPath)]
    pub(crate) file: PathBuf,
    /// Name of the object [default: the file's name]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Hard-link instead of copying; the file must never change again
    #[arg(long)]
    pub(crate) link: bool,
    #[command(flatten)]
    quota: QuotaFlag,
}

impl PutArgs {
    pub(super) fn fill(&self, layer: &mut Layer) {
        self.quota.fill(layer);
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater ls
  headwater ls --controller 10.0.0.1 --json

With --json, one line per object: object, name, bytes, holders.")]
pub(crate) struct LsArgs {
    #[command(flatten)]
    controller: ControllerFlag,
    #[command(flatten)]
    timeout: TimeoutFlag,
}

impl LsArgs {
    pub(super) fn fill(&self, layer: &mut Layer) {
        self.controller.fill(layer);
        self.timeout.fill(layer);
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater rm model
  headwater rm 1f3a9c42

Copies on other machines stay.")]
pub(crate) struct RmArgs {
    /// A name, an id (64 hex digits), or the beginning of an id
    #[arg(value_name = "NAME|ID")]
    pub(crate) what: String,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater status
  headwater status --watch
  headwater status --controller 10.0.0.1 --json")]
pub(crate) struct StatusArgs {
    /// Show it again and again, every TIME, until interrupted
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "1s")]
    pub(crate) watch: Option<Duration>,
    #[command(flatten)]
    controller: ControllerFlag,
    #[command(flatten)]
    timeout: TimeoutFlag,
}

impl StatusArgs {
    pub(super) fn fill(&self, layer: &mut Layer) {
        self.controller.fill(layer);
        self.timeout.fill(layer);
    }
}
