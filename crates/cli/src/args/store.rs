//! Commands about objects: in the store of this machine, and as the controller knows them.

use std::path::PathBuf;

use clap::Args;
use headwater_units::Duration;

use super::flags::{ControllerFlag, QuotaFlag, TimeoutFlag};
use crate::settings::Layer;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater put model.bin --name model
  headwater put dataset/
  headwater put huge.img --link
  pg_dump db | headwater put - --name db.sql

A name belongs to the node that gave it. That node may give it to other bytes at any time; nobody else, while it is up.

The file is cloned where the file system can (no bytes move), else copied. With --link it is hard-linked: quick and
small everywhere, but then the file must never change again. Named pipes and disks (block devices) are read to their end.

Of a folder, names (of any bytes), contents, permissions, links within it and modification times are kept; owners and extended
attributes are not. With their times, equal contents that were written at different times are different objects: use --no-mtimes where
several machines put the same.

A daemon on the same state folder offers the object at once; without one, start it: headwater node --join HOST.")]
pub(crate) struct PutArgs {
    /// The file or folder; - for standard input
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::AnyPath)]
    pub(crate) file: PathBuf,
    /// Name of the object [default: the file's name; none for a stream]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Take over a name that only copies hold while its owner is away; the owner itself does not need this
    #[arg(long)]
    pub(crate) replace: bool,
    /// Hard-link instead of copying; the file must never change again
    #[arg(long)]
    pub(crate) link: bool,
    /// Leave sockets, pipes, devices and links that lead out of the folder out of the object, instead of refusing it
    #[arg(long)]
    pub(crate) skip_special: bool,
    /// Leave out the modification times of a folder's files, so that equal contents are one object
    #[arg(long)]
    pub(crate) no_mtimes: bool,
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

A name goes, and the object with it unless it has another name or a folder needs it; an id removes the object with all
its names. With a folder go its files that nothing else needs. Copies on other machines stay.")]
pub(crate) struct RmArgs {
    /// A name, an id (64 hex digits), or the beginning of an id
    #[arg(value_name = "NAME|ID")]
    pub(crate) what: String,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater gc --dry-run
  headwater gc --json

What goes: files of folders that were removed or never finished, and what broken-off transfers into the store left.
What stays: everything that was put or kept by itself, named or not, and whatever is being fetched or sent. A daemon does
this by itself, at its start and every hour, and leaves broken-off transfers of the last week.")]
pub(crate) struct GcArgs {
    /// Only say what would go
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater forget storage-7
  headwater forget 1f3a9c42 --controller 10.0.0.1

Objects that only it held are no longer listed. A node that is connected is not forgotten: stop it first. One that comes
back is known again. Run this on the controller's machine, or on that of a connected node: from there a node is forgotten
once it has been away for 10 minutes, since until then it may be restarting.")]
pub(crate) struct ForgetArgs {
    /// The node: its name or address, or 8 digits or more of its fingerprint
    #[arg(value_name = "NODE")]
    pub(crate) what: String,
    #[command(flatten)]
    controller: ControllerFlag,
    #[command(flatten)]
    timeout: TimeoutFlag,
}

impl ForgetArgs {
    pub(super) fn fill(&self, layer: &mut Layer) {
        self.controller.fill(layer);
        self.timeout.fill(layer);
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater status
  headwater status --watch
  headwater status --only rack=r7 --page 2
  headwater status --controller 10.0.0.1 --json
  headwater status --agent /run/headwater-agent/agent.sock")]
pub(crate) struct StatusArgs {
    /// Show an agent of this machine instead, by its socket: its coflows, the most important first, and its connections
    #[arg(long, value_name = "SOCKET", value_hint = clap::ValueHint::FilePath, conflicts_with_all = ["watch", "only", "page"])]
    pub(crate) agent: Option<std::path::PathBuf>,
    /// Show it again and again, every TIME, until interrupted
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "1s")]
    pub(crate) watch: Option<Duration>,
    /// Show only those nodes, objects and tasks in whose name, address, label (KEY=VALUE) or id TEXT occurs
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Option<String>,
    /// Show this page of lists that have more than 40 lines
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) page: u32,
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
