//! The casts that a node takes part in.
//!
//! Only the node's own controller may invite it. An invitation is identified by its number: if it is repeated, it is answered again,
//! whether the fetch still runs or is over.

use std::collections::{BTreeSet, VecDeque};

use headwater_units::PathId;
use headwater_wire::{Fetched, Invitation, ToNode};

/// Number of finished invitations to remember, so that a repeated one is answered and not fetched again.
const REMEMBERED: usize = 256;

/// An action about invitations.
#[derive(Clone, Debug, PartialEq)]
pub enum InvitationAction {
    /// Fetch what this invites to; [`Invitations::ended`] says what came of it.
    Fetch(Box<Invitation>),
    /// Stop the fetch of this number. It has nothing to say any more.
    Stop(u64),
    /// Say to the controller what came of an invitation.
    Answer(Box<Fetched>),
}

/// The invitations of a node. After each call, [`Invitations::poll`] until it has nothing more.
pub struct Invitations {
    controller: PathId,
    running: BTreeSet<u64>,
    over: VecDeque<Fetched>,
    out: VecDeque<InvitationAction>,
    strangers: u64,
}

impl Invitations {
    /// Hears the controller behind this link, and nobody else.
    pub fn new(controller: PathId) -> Self {
        let (running, over, out) = Default::default();
        Invitations { controller, running, over, out, strangers: 0 }
    }

    /// Returns the next action.
    pub fn poll(&mut self) -> Option<InvitationAction> {
        self.out.pop_front()
    }

    /// Messages of somebody else than the controller.
    pub fn strangers(&self) -> u64 {
        self.strangers
    }

    /// Handles a message about casts by this link. False if it is by no link that may.
    pub fn on_control(&mut self, path: PathId, control: ToNode) -> bool {
        if path != self.controller {
            self.strangers += 1;
            return false;
        }
        match control {
            ToNode::Fetch(invitation) => self.on_invitation(invitation),
            ToNode::StopFetch { request } if self.running.remove(&request) => {
                self.out.push_back(InvitationAction::Stop(request));
            }
            _ => {}
        }
        true
    }

    fn on_invitation(&mut self, invitation: Box<Invitation>) {
        let request = invitation.request;
        if let Some(over) = self.over.iter().find(|over| over.request == request) {
            self.out.push_back(InvitationAction::Answer(Box::new(over.clone())));
        } else if self.running.insert(request) {
            self.out.push_back(InvitationAction::Fetch(invitation));
        }
    }

    /// A fetch has ended by itself.
    pub fn ended(&mut self, fetched: Fetched) {
        // One that was stopped has nothing to say.
        if !self.running.remove(&fetched.request) {
            return;
        }
        self.out.push_back(InvitationAction::Answer(Box::new(fetched.clone())));
        self.over.push_back(fetched);
        if self.over.len() > REMEMBERED {
            self.over.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use headwater_units::{Bytes, ObjectId};
    use headwater_wire::{Class, FetchEnd};

    use super::*;

    const CONTROLLER: PathId = PathId(1);

    fn invitation(request: u64) -> ToNode {
        let object = ObjectId([7; 32]);
        let name = "model".to_owned();
        ToNode::Fetch(Box::new(Invitation { request, name, object, class: Class::Bulk, group: None }))
    }

    fn fetched(request: u64) -> Fetched {
        let (by_group, by_unicast, relayed, from) = Default::default();
        Fetched { request, end: FetchEnd::Kept, by_group, by_unicast, relayed, from, files: Bytes::ZERO }
    }

    fn all(invitations: &mut Invitations) -> Vec<InvitationAction> {
        std::iter::from_fn(|| invitations.poll()).collect()
    }

    #[test]
    fn an_invitation_that_is_said_again_is_fetched_once_and_answered_again() {
        let mut node = Invitations::new(CONTROLLER);
        assert!(node.on_control(CONTROLLER, invitation(4)));
        assert!(node.on_control(CONTROLLER, invitation(4)));
        assert!(matches!(all(&mut node)[..], [InvitationAction::Fetch(_)]));
        node.ended(fetched(4));
        node.on_control(CONTROLLER, invitation(4));
        let said = InvitationAction::Answer(Box::new(fetched(4)));
        assert_eq!(all(&mut node), [said.clone(), said]);
    }

    #[test]
    fn only_the_nodes_controller_may_invite_or_stop() {
        let mut node = Invitations::new(CONTROLLER);
        assert!(!node.on_control(PathId(2), invitation(4)));
        node.on_control(CONTROLLER, invitation(5));
        assert!(!node.on_control(PathId(2), ToNode::StopFetch { request: 5 }));
        assert!(matches!(all(&mut node)[..], [InvitationAction::Fetch(_)]));
        assert_eq!(node.strangers(), 2);
        node.on_control(CONTROLLER, ToNode::StopFetch { request: 5 });
        node.ended(fetched(5));
        assert_eq!(all(&mut node), [InvitationAction::Stop(5)], "who was stopped says nothing");
    }

    #[test]
    fn what_is_over_is_remembered_for_a_while() {
        let mut node = Invitations::new(CONTROLLER);
        for request in 0..=REMEMBERED as u64 {
            node.on_control(CONTROLLER, invitation(request));
            node.ended(fetched(request));
        }
        all(&mut node);
        node.on_control(CONTROLLER, invitation(0));
        assert!(matches!(all(&mut node)[..], [InvitationAction::Fetch(_)]), "the oldest is forgotten");
    }
}
