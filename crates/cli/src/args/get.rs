//! `get`: objects onto this machine.

use std::path::PathBuf;

use clap::Args;
use headwater_units::{Duration, ObjectId};

use super::EXPERIMENT;
use super::experiments::{TimelineFlags, TuningFlag};
use super::flags::{ControllerFlag, MachineFlags, SendingFlags, SourcesFlag, TimeoutFlag};
use crate::settings::Layer;
use crate::values::{ByteRange, HostPort, Spread, Theta, Transport};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater get model -o model.bin
  headwater get model.bin --from 10.0.0.1,10.0.0.2,10.0.0.3 --hash HEX
  headwater get backup.tar --from 10.0.0.1 -o - | tar x
  headwater get disk.img --controller 10.0.0.1 --range 1MiB-2MiB -o part.bin
  headwater get model -o model.bin --json --progress json
  headwater get model --keep
  headwater get config.json weights.bin -o model/
  headwater get dataset -o - | tar x

An interrupted get goes on from its finished blocks when the same command is run again, a folder from its finished files, too.
What this machine's own store has is taken from there.")]
pub(crate) struct GetArgs {
    /// A name, an id (64 hex digits), or the beginning of an id; or several, into one folder
    ///
    /// Several objects are fetched in parallel, a bounded number at a time. A failure does not stop the others; the exit code reports
    /// it. With --json there is a line for each.
    #[arg(value_name = "NAME|ID", required = true)]
    pub(crate) what: Vec<String>,
    /// Where to write: a file, a folder, or - for standard output [default: the object's name]
    ///
    /// A file or folder appears under its name only when it is complete and verified. FOLDER/ is made if its own folder is there. With
    /// `-` verified blocks are written in order as they finish, a folder as a tar; nothing else goes to standard output, and --json goes
    /// to standard error. A device or a pipe is written to in the same way; a block device only with --force.
    #[arg(short, long, value_name = "FILE|FOLDER/|-", value_hint = clap::ValueHint::AnyPath)]
    pub(crate) output: Option<PathBuf>,
    /// Keep it in this machine's store instead of a file
    ///
    /// The daemon of the state folder fetches it over its own data port, keeps it and offers it to others from then on.
    /// Without a daemon this command puts it into the store. An object that is there already is not fetched again, unless --force
    /// is given.
    #[arg(long, conflicts_with_all = ["output", "from", "range", "sha256", "record", "wait_for_start", "timeline", "tuning"])]
    pub(crate) keep: bool,
    /// Sources to fetch from, without any controller: HOST or HOST:PORT, with commas between [default port: 7001]
    #[arg(long, value_name = "ADDR,...", value_delimiter = ',', conflicts_with = "controller")]
    pub(crate) from: Vec<HostPort>,
    #[command(flatten)]
    controller: ControllerFlag,
    /// Fetch only bytes A to B of the object, A included, B not; `A-` goes to the end
    ///
    /// Counted from 0, with units where you like: 0-1 is the first byte, 1MiB-2MiB the second mebibyte, 4096- all but
    /// the first 4096 bytes. Only the blocks that cover the range are fetched, and each is verified. The output has B - A
    /// bytes; an end behind the object's is cut to it.
    #[arg(long, value_name = "A-B")]
    pub(crate) range: Option<ByteRange>,
    /// Accept only the object with this id (BLAKE3, 64 hex digits), whatever the name points at
    #[arg(long, value_name = "HEX")]
    pub(crate) hash: Option<ObjectId>,
    /// Compute SHA-256 too, while the object arrives
    #[arg(long)]
    pub(crate) sha256: bool,
    /// Replace the output if there is one
    #[arg(long, visible_alias = "overwrite")]
    pub(crate) force: bool,
    /// It should be complete within this time, as in 90s: its flows weigh more until then; exit code 8 if it is not
    #[arg(long, value_name = "TIME", conflicts_with_all = ["keep", "from"])]
    pub(crate) deadline: Option<Duration>,
    #[command(flatten)]
    timeout: TimeoutFlag,
    #[command(flatten)]
    sources: SourcesFlag,
    #[command(flatten)]
    machine: MachineFlags,
    #[command(flatten)]
    sending: SendingFlags,
    /// Transport: its source decides when a symbol leaves (push), or this receiver asks for each symbol (pull)
    ///
    /// `auto` pulls if the receiver's process has seen trimmed packets before it asks, eight flows or more lead to it, and all ends have
    /// stated --uplink and --downlink. Only a daemon (--keep) can meet that: a plain `get` has received nothing when it asks, so it is
    /// pushed to. The size of the object does not matter. Where switches trim, `pull` needs --downlink, --uplink and
    /// --dscp-control 48: docs/push-or-pull.md.
    #[arg(long, value_name = "HOW", default_value_t)]
    pub(crate) transport: Transport,
    /// End at once when the object is here, even if this process still serves others
    ///
    /// With a controller, processes that fetch one object at the same time pass on to each other what they receive, where that is faster
    /// than to be served one by one. A process that has the whole object prints its result, and then stays until those whom it serves
    /// have what they need of it, 2 seconds at most; Ctrl-C ends that too. A process that leaves earlier tells them, and they turn to
    /// others at once. A `get` with --range, --limit or --from serves nobody.
    #[arg(long)]
    pub(crate) no_drain: bool,
    /// Which symbols a source that pushes sends [default: listed, or what --tuning says]
    #[arg(long, value_name = "HOW", help_heading = EXPERIMENT)]
    spread: Option<Spread>,
    /// Weight of every flow: `auto` or a number of at least 0.5; a number only with --from [default: auto]
    #[arg(long, value_name = "VALUE", help_heading = EXPERIMENT)]
    theta: Option<Theta>,
    /// Record every input of this receiver, for `debug replay`
    #[arg(long, value_name = "FILE", help_heading = EXPERIMENT)]
    pub(crate) record: Option<PathBuf>,
    /// Connect, report that ({"type":"ready"} with --json), and request only after a line on standard input
    ///
    /// The seconds of the result, and --timeout, then count from that line.
    #[arg(long, help_heading = EXPERIMENT)]
    pub(crate) wait_for_start: bool,
    #[command(flatten)]
    pub(crate) timeline: TimelineFlags,
    #[command(flatten)]
    pub(crate) tuning: TuningFlag,
}

impl GetArgs {
    pub(super) fn fill(&self, layer: &mut Layer) {
        self.controller.fill(layer);
        self.timeout.fill(layer);
        self.sources.fill(layer);
        self.machine.fill(layer);
        self.sending.fill(layer);
        layer.spread = self.spread;
        layer.theta = self.theta;
    }
}
