//! `cast`: one object onto many nodes; and `plan`, which says before what that takes.

use std::collections::BTreeMap;

use clap::Args;
use headwater_api::Receivers;
use headwater_units::{BitRate, Duration};
use headwater_wire::{Precedence, TransferOrder, Urgency};

use super::flags::{ControllerFlag, TimeoutFlag};
use crate::settings::Layer;
use crate::values::labels::Label;
use crate::values::policy::Policy;
use crate::values::waves::WaveEnd;
use crate::values::{Switch, Via};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater put model.bin --name model
  headwater cast model --all
  headwater cast model --to 10.0.0.2,10.0.0.3,worker-7
  headwater cast model --label zone=eu --label disk=ssd
  headwater cast model --all --via overlay --json
  headwater cast model --all --via trees        (where the controller runs with --topology FILE)
  headwater cast model --label zone=eu --to-new
  headwater cast model --all --waves 5%,25%,100% --pause 60s --max-failures 2

  headwater cast model --all --deadline 90s
  headwater cast model --all --via rates --policy srsf       (where switches compute rates; docs/priorities.md)

Every receiver runs `headwater node` (or `up`) and keeps the object in its store, verified, and offers it from then on.

Where the controller knows the network (--topology), the object comes down disjoint trees, each symbol about once over each link.
Trees are rerouted around failures; a receiver that no tree reaches any more is served by itself, unless --via trees insists.

Where the network carries IP multicast from the source to at least two receivers (a probe tests that first), each symbol leaves
the source once and switches copy it. A receiver that stands still for half a second does not hold up the others: it is detached,
and catches up by a flow of its own. Receivers that the probe does not reach are served one by one.

Where multicast does not work, the receivers form an overlay: the object's blocks fall into stripes, each stripe goes down a tree of
receivers, and these pass it on as it arrives. So the source and each receiver send about one copy, and all have it in about the time of
one. A receiver that is slow soon passes nothing on any more; what one that dies was to pass on comes from another after half a second.
Where nodes state their rack (`headwater node --label rack=NAME`), each byte enters a rack once and is handed on inside. Where they
state --uplink, those with more pass on more. The command says which route it takes and why.

Ctrl-C stops all receivers. Finished blocks are kept: the same command resumes from there, and does nothing on receivers that have
the object already. If this command is killed or loses the controller, the cast goes on without it.

--waves serves receivers one group after the other: first those up to 5 % of all, then those up to 25 %, and so on. The next wave begins
when the one before is over, --pause has passed, and no more than --max-failures receivers have failed or are away. Receivers that have
the object already come first, the others by name, so that the same command resumes a rollout that was stopped. This command leads it:
if it ends, the wave that has begun goes on and no other begins.

--policy, --deadline and --drop-late say how it stands to other casts. Where switches compute rates these serve casts in that order.
Elsewhere those that go to each receiver by itself get a larger weight, and the other routes take no notice but for --drop-late.

--to-new keeps supplying: a node that joins later, and carries the labels, is sent what the name stands for then. The controller does that
without this command, also after a restart; `headwater status` lists it, and --to-new=off with the same labels, from the same state folder,
ends it.

The command fails if any receiver does not have the object in the end; the table, or --json, says which and why.")]
pub(crate) struct CastArgs {
    /// A name, an id (64 hex digits), or the beginning of an id
    #[arg(value_name = "NAME|ID")]
    pub(crate) what: String,
    #[command(flatten)]
    pub(crate) whom: WhomFlags,
    /// Serve nodes that join later too, all or those with these labels; `off` ends that and sends nothing
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true, default_missing_value = "on", conflicts_with = "to")]
    pub(crate) to_new: Option<Switch>,
    /// Route that the object takes
    #[arg(long, value_name = "HOW", default_value_t)]
    pub(crate) via: Via,
    #[command(flatten)]
    pub(crate) standing: StandingFlags,
    #[command(flatten)]
    controller: ControllerFlag,
    #[command(flatten)]
    timeout: TimeoutFlag,
}

impl CastArgs {
    pub(super) fn fill(&self, layer: &mut Layer) {
        self.controller.fill(layer);
        self.timeout.fill(layer);
    }
}

/// How a cast stands to others.
#[derive(Debug, Args)]
pub(crate) struct StandingFlags {
    /// Order of casts: srsf (smallest remaining size times receivers), edf (next deadline), fifo (oldest), fair (nobody), or a number
    /// (smaller first) [default: edf with --deadline, else srsf]
    #[arg(long, value_name = "POLICY|N")]
    pub(crate) policy: Option<Policy>,
    /// All receivers should have it within this time, as in 90s; exit code 8 if they do not
    #[arg(long, value_name = "TIME", conflicts_with = "waves")]
    pub(crate) deadline: Option<Duration>,
    /// Give the cast up when it cannot meet its deadline any more
    #[arg(long, requires = "deadline")]
    pub(crate) drop_late: bool,
}

impl StandingFlags {
    /// Urgency that the flags state, if any.
    pub(crate) fn urgency(&self) -> Option<Urgency> {
        let order = match (self.policy, self.deadline) {
            (Some(Policy(order)), _) => order,
            (None, Some(_)) => TransferOrder::EarliestDeadline,
            (None, None) => return None,
        };
        let precedence = Precedence { order, drops_late: self.drop_late };
        Some(Urgency { precedence, deadline: self.deadline })
    }
}

/// Receivers of a cast, and its waves.
#[derive(Debug, Args)]
pub(crate) struct WhomFlags {
    /// Which nodes: names, addresses or fingerprints as `headwater status` lists them, with commas between
    #[arg(
        long,
        value_name = "NODE,...",
        value_delimiter = ',',
        conflicts_with_all = ["all", "label"]
    )]
    pub(crate) to: Vec<String>,
    /// All nodes that keep objects and are connected now
    #[arg(long, conflicts_with = "label")]
    pub(crate) all: bool,
    /// All connected nodes that keep objects and carry this label, as in rack=r1; if repeated, those that carry all labels
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    pub(crate) label: Vec<Label>,
    /// Serve receivers in waves: how much of all have the object after each, as parts (5%,25%,100%) or numbers (1,10,100%)
    #[arg(long, value_name = "SHARE,...", value_delimiter = ',')]
    pub(crate) waves: Vec<WaveEnd>,
    /// Time between the end of a wave and the next, as in 60s [default: none]
    #[arg(long, value_name = "TIME", requires = "waves")]
    pub(crate) pause: Option<Duration>,
    /// Begin no wave once more receivers than this have failed or are away [default: 0]
    #[arg(long, value_name = "N", requires = "waves")]
    pub(crate) max_failures: Option<u32>,
}

impl WhomFlags {
    /// Whether anybody was named.
    pub(crate) fn is_empty(&self) -> bool {
        !self.all && self.to.is_empty() && self.label.is_empty()
    }

    /// The labels, by key.
    pub(crate) fn labels(&self) -> BTreeMap<String, String> {
        self.label.iter().map(|label| (label.key.clone(), label.value.clone())).collect()
    }

    /// Receivers of the cast.
    pub(crate) fn receivers(&self) -> Receivers {
        match (self.all, self.label.is_empty()) {
            (true, _) => Receivers::All,
            (false, true) => Receivers::Named(self.to.clone()),
            (false, false) => {
                let labels = self.label.iter().map(|label| (label.key.clone(), label.value.clone()));
                Receivers::Labelled(labels.collect())
            }
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater plan model --all
  headwater plan model --label zone=eu --waves 5%,25%,100% --pause 60s
  headwater plan model --all --rate 10Gbit/s        (for nodes whose rates are not known)

Nothing is sent. The least time is what the links allow: what the sources can send, what the slowest receiver can receive, and what all
uplinks together carry. A cast by trees, multicast or overlay comes within about a tenth of it where links are equal; disks and processors
are not counted. Rates are those that nodes state (--uplink, --downlink) or have shown; --rate is taken for all others.")]
pub(crate) struct PlanArgs {
    /// A name, an id (64 hex digits), or the beginning of an id
    #[arg(value_name = "NAME|ID")]
    pub(crate) what: String,
    #[command(flatten)]
    pub(crate) whom: WhomFlags,
    /// Rate to assume for nodes whose rates are not known, as in 10Gbit/s
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<BitRate>,
    #[command(flatten)]
    controller: ControllerFlag,
    #[command(flatten)]
    timeout: TimeoutFlag,
}

impl PlanArgs {
    pub(super) fn fill(&self, layer: &mut Layer) {
        self.controller.fill(layer);
        self.timeout.fill(layer);
    }
}
