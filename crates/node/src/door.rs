//! The door: which peer may send which control message to a process.
//!
//! The peer at the other end of a control link has proved its key and nothing else. A link may send what its role
//! allows, which follows from how it came to be ([`Role`]): one exhaustive match, so that a new message does not
//! compile without a rule.
//!
//! | Role | May send |
//! |---|---|
//! | any | who it is and what it holds, about itself only |
//! | controller | orders to this node, its sources and its receivers |
//! | source | to the controller of this process: reports of sources on their flows |
//! | caller | to the controller of this process: messages of sources, receivers, agents and askers of casts; to its sources: orders to send to the caller itself |
//!
//! The door knows links, not tasks. The machine that a message is for checks its subject: a source takes orders about a flow only
//! from the path that made the flow, a receiver listens only to the controller that it has asked, and a controller takes messages about
//! a task only from its receiver.

use core::net::{IpAddr, SocketAddr};

use headwater_units::NodeId;
use headwater_wire::{Control, FlowRole, Push, ToController, ToNode, ToReceiver, ToSource};

/// The role of a link's other end towards this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// A controller that this process has joined, or asks.
    Controller,
    /// A source that this process has dialled, to fetch from it without a controller elsewhere.
    Source,
    /// A peer that has dialled this process.
    Caller,
}

/// The other end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its role towards this process.
    pub role: Role,
    /// The node whose key it has proved.
    pub node: NodeId,
    /// Where it is.
    pub at: SocketAddr,
}

/// Why a message is not heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No peer in this role may send it.
    Role(Role),
    /// The message speaks for another node.
    ForAnother(NodeId),
}

impl core::fmt::Display for Refused {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Refused::Role(Role::Controller) => f.write_str("a controller may not say it"),
            Refused::Role(Role::Source) => f.write_str("a source may not say it"),
            Refused::Role(Role::Caller) => f.write_str("only the node's own controller may say it"),
            Refused::ForAnother(node) => write!(f, "it speaks for another node ({})", node.short()),
        }
    }
}

impl Peer {
    /// Whether this peer may say this.
    ///
    /// # Errors
    /// Why not.
    pub fn may_say(&self, control: &Control) -> Result<(), Refused> {
        match control {
            Control::Controller(word) => self.may_tell_the_controller(word),
            Control::Node(order) => match order {
                ToNode::Fetch(_)
                | ToNode::StopFetch { .. }
                | ToNode::ProbeGroup(_)
                | ToNode::InstallTree(_)
                | ToNode::RemoveTree { .. }
                | ToNode::Signal(_)
                | ToNode::NameStands(_)
                | ToNode::NameRefused { .. }
                | ToNode::Casting(_)
                | ToNode::CastRefused { .. }
                | ToNode::StandingCastChanged { .. }
                | ToNode::CastAtRates { .. }
                | ToNode::CoflowRanks(_) => self.as_(&[Role::Controller]),
            },
            Control::Source(order) => match order {
                ToSource::Push(push) => match self.role {
                    Role::Controller => Ok(()),
                    Role::Source => Err(Refused::Role(self.role)),
                    Role::Caller => self.may_make(push),
                },
                // Of a flow that another has made, the source does not take them.
                ToSource::SetTheta { .. }
                | ToSource::Pause { .. }
                | ToSource::Resume { .. }
                | ToSource::Stop { .. } => self.as_(&[Role::Controller, Role::Caller]),
            },
            Control::Receiver(answer) => match answer {
                ToReceiver::Accepted { .. }
                | ToReceiver::Refused { .. }
                | ToReceiver::Flows { .. }
                | ToReceiver::FinAck { .. }
                | ToReceiver::UnknownTask { .. } => self.as_(&[Role::Controller]),
            },
        }
    }

    fn may_tell_the_controller(&self, word: &ToController) -> Result<(), Refused> {
        match word {
            // A process that runs a controller, or serves, is a node itself.
            ToController::Hello(info) => self.speaks_for(info.node),
            ToController::Hold(_)
            | ToController::Drop { .. }
            | ToController::Spoiled { .. }
            | ToController::Named(_)
            | ToController::Unname { .. }
            | ToController::Leaving
            | ToController::Keeps => Ok(()),
            ToController::Request(request) | ToController::UrgentRequest(request, _) => {
                self.speaks_for(request.receiver)?;
                self.as_(&[Role::Caller])
            }
            ToController::Pushing { .. }
            | ToController::PushRefused { .. }
            | ToController::Stopped { .. }
            | ToController::Report { .. } => self.as_(&[Role::Source, Role::Caller]),
            ToController::Claim(_)
            | ToController::Feedback { .. }
            | ToController::Distrust { .. }
            | ToController::Fin { .. }
            | ToController::GroupProbed { .. }
            | ToController::GroupSent { .. }
            | ToController::Transfers { .. }
            | ToController::TreeReady { .. }
            | ToController::Silent { .. }
            | ToController::Signalled(_)
            | ToController::Cast(_)
            | ToController::UrgentCast(..)
            | ToController::StopCast { .. }
            | ToController::StandingCast { .. }
            | ToController::Coflows(_)
            | ToController::Fetched(_) => self.as_(&[Role::Caller]),
        }
    }

    /// Peers that are not a controller of this node may make flows to themselves, and to nobody else.
    fn may_make(&self, push: &Push) -> Result<(), Refused> {
        self.speaks_for(push.receiver)?;
        match push.role {
            FlowRole::Single => Ok(()),
            FlowRole::Member { .. } | FlowRole::Group { .. } | FlowRole::Tree { .. } | FlowRole::Relay => {
                Err(Refused::Role(self.role))
            }
        }
    }

    /// Takes out of a permitted message what its sender cannot know: of the addresses to which a caller wants to be
    /// sent, those that are not its own by the word of this link. Packets to such an address wait for its answer
    /// (docs/decisions/0030).
    pub fn narrow(&self, control: &mut Control) {
        if let (Role::Caller, Control::Source(ToSource::Push(push))) = (self.role, control) {
            let own = self.at.ip().to_canonical();
            push.at.retain(|at| at.ip().to_canonical() == own && !is_group(at.ip()));
        }
    }

    fn as_(&self, roles: &[Role]) -> Result<(), Refused> {
        if roles.contains(&self.role) { Ok(()) } else { Err(Refused::Role(self.role)) }
    }

    fn speaks_for(&self, node: NodeId) -> Result<(), Refused> {
        if node == self.node { Ok(()) } else { Err(Refused::ForAnother(node)) }
    }
}

fn is_group(ip: IpAddr) -> bool {
    ip.to_canonical().is_multicast()
}
