//! Signals: one message of a controller to many nodes, which they split among each other (Datacast §III, "a signalling
//! protocol, which uses a hierarchical transmission tree structure").
//!
//! ```text
//!   controller -- Signal --> root -- Signal --> node -- Signal --> leaf     each takes its own part out, and sends on what is left
//!              <- Signalled -     <- Signalled -     <- Signalled -         once all below have said so, or are given up
//! ```
//! **Who may say what.** The part of a node is a whole datagram of a flow that only the controller and this node know,
//! and is sent on as it is: whoever passes it on can read it, and change nothing. So it holds no key; a node that is to
//! have one is told by a connection of its own. What comes back is tagged by the other half of the node's key, which
//! the node above is lent for this.

use core::net::SocketAddr;

use headwater_units::{FlowId, FlowKey};
use serde::{Deserialize, Serialize};

use super::TreeOrder;
use super::limits::MAX_FLOWS;
use crate::HeaderKey;

/// More nodes than this are not told by one message.
pub const MAX_SIGNALLED: usize = 4096;
/// Trees of one node that a message says something of.
const MAX_UPDATES: usize = 64;

/// Controller to a node, from node to node: what it is to do, and what it is to send on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signal {
    /// The node's flow for signals ([`TreeOrder::signals`]).
    pub flow: FlowId,
    /// Never the same twice on a flow.
    pub number: u32,
    /// Its own part; nothing, if it only sends on.
    pub updates: Vec<TreeUpdate>,
    /// Nodes that are told next.
    pub below: Vec<SignalBranch>,
}

/// Part of a node's tree order that a reroute changes; the rest of its order stays as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeUpdate {
    /// The tree.
    pub tree: FlowId,
    /// [`TreeOrder::version`].
    pub version: u32,
    /// [`TreeOrder::parent`].
    pub parent: Option<SocketAddr>,
    /// [`TreeOrder::branches`].
    pub branches: Vec<Vec<SocketAddr>>,
    /// [`TreeOrder::receives`].
    pub receives: bool,
}

/// Part of a signal that is sent on to one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalBranch {
    /// Its data socket.
    pub to: SocketAddr,
    /// Its flow for signals.
    pub flow: FlowId,
    /// [`Signal::number`] of what it is sent.
    pub number: u32,
    /// By which its answer is tagged ([`answer_key`]).
    pub answers: [u8; 16],
    /// How many nodes are told by this: itself, and those that are told through it.
    pub members: u16,
    /// Over how many nodes the last of these is told.
    pub levels: u8,
    /// A whole datagram with its [`Signal`].
    pub datagram: Vec<u8>,
}

/// The answer to a [`Signal`], to its sender.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signalled {
    /// [`Signal::flow`].
    pub flow: FlowId,
    /// [`Signal::number`].
    pub number: u32,
    /// It has come, but not everybody below has answered yet.
    pub open: bool,
    /// Nodes that were not told, ascending: the node itself is 0, those of its first branch come next, each branch in
    /// this order.
    pub untold: Vec<u16>,
}

/// The key of what a node answers to signals on its flow: the half of its key that tags nothing else.
pub fn answer_key(key: &FlowKey) -> [u8; 16] {
    let mut half = [0; 16];
    half.copy_from_slice(&key.0[16..]);
    half
}

/// The same, to make and check tags with.
pub fn answer_tags(half: [u8; 16]) -> HeaderKey {
    let mut key = [0; 32];
    key[..16].copy_from_slice(&half);
    HeaderKey::new(&FlowKey(key))
}

impl Signal {
    pub(crate) fn within_bounds(&self) -> Result<(), &'static str> {
        let members: usize = self.below.iter().map(|branch| usize::from(branch.members)).sum();
        let fits = |branch: &SignalBranch| branch.members > 0 && branch.levels > 0;
        if self.updates.len() > MAX_UPDATES || self.below.len() > MAX_SIGNALLED || members >= MAX_SIGNALLED {
            return Err("too many nodes or trees to signal to");
        }
        if !self.below.iter().all(fits) {
            return Err("a signal to nobody");
        }
        self.updates.iter().try_for_each(TreeUpdate::within_bounds)
    }
}

impl Signalled {
    pub(crate) fn within_bounds(&self) -> Result<(), &'static str> {
        if self.untold.len() > MAX_SIGNALLED || !self.untold.is_sorted_by(|a, b| a < b) {
            return Err("a malformed list of untold nodes");
        }
        Ok(())
    }
}

impl TreeUpdate {
    fn within_bounds(&self) -> Result<(), &'static str> {
        let addresses: usize = self.branches.iter().map(Vec::len).sum();
        if addresses > MAX_FLOWS || self.branches.iter().any(Vec::is_empty) {
            return Err("too many branches, or an empty one");
        }
        Ok(())
    }
}

impl TreeOrder {
    /// The change that a signal carries for a node that has an older version of the order.
    pub fn update(&self) -> TreeUpdate {
        TreeUpdate {
            tree: self.tree.flow,
            version: self.version,
            parent: self.parent,
            branches: self.branches.clone(),
            receives: self.receives,
        }
    }

    /// The same order with this update.
    pub fn updated(&self, update: TreeUpdate) -> TreeOrder {
        let TreeUpdate { tree: _, version, parent, branches, receives } = update;
        TreeOrder { version, parent, branches, receives, ..self.clone() }
    }
}
