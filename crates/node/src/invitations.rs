//! The casts that a node takes part in.
//!
//! Only the node's own controller may invite it. An invitation is identified by its number: if it is repeated, it is answered again,
//! whether the fetch still runs or is over.
//!
//! ```text
//!   invitation --> Look --looked--> Join, Fetch --ended--> Answer --left--> Leave
//!                        `--> Answer: it is here
//! ```

use std::collections::VecDeque;
use std::collections::btree_map::{BTreeMap, Entry};

use headwater_transport::push::receiver::FlowStats;
use headwater_units::{Bytes, NodeId, ObjectId, PathId};
use headwater_wire::{FetchEnd, Fetched, GroupInvitation, Invitation, MAX_FLOWS, ToNode};

/// Number of finished invitations to remember, so that a repeated one is answered and not fetched again.
const REMEMBERED: usize = 256;

/// Blocks in flight of a fetch into the store of a node that runs. Many at once share the same links, and all together hold at most as much as
/// a few lone fetches.
pub const BLOCKS_IN_FLIGHT: usize = 32;

/// Blocks in flight of one that an invitation began: a receiver that was left behind can keep what goes on to come by the group as long as
/// it is no further ahead, and need not ask for it again.
pub const BLOCKS_OF_A_CAST: usize = 128;

/// An action about invitations.
#[derive(Clone, Debug, PartialEq)]
pub enum InvitationAction {
    /// Look whether the object is here, for [`Invitations::looked`].
    Look {
        /// The invitation's number.
        request: u64,
        /// The object.
        object: ObjectId,
    },
    /// Join this group, and answer its probes.
    Join {
        /// The invitation's number.
        request: u64,
        /// The group, and who asks in it.
        group: Box<GroupInvitation>,
    },
    /// Fetch what this invites to; [`Invitations::ended`] says what came of it.
    Fetch(Box<Invitation>),
    /// Stop what was begun for the invitation with this number. It has nothing to say any more.
    Stop(u64),
    /// Say to the controller what came of an invitation.
    Answer(Box<Fetched>),
    /// Leave the group, and answer its probes no more.
    Leave {
        /// The invitation's number.
        request: u64,
        /// The group.
        group: Box<GroupInvitation>,
    },
}

/// Standing of an invitation that is not over.
enum Standing {
    /// It is looked for.
    Invited(Box<Invitation>),
    /// It is fetched, with a group or without.
    Fetching(Option<Box<GroupInvitation>>),
}

/// The invitations of a node. After each call, [`Invitations::poll`] until it has nothing more.
pub struct Invitations {
    controller: PathId,
    running: BTreeMap<u64, Standing>,
    /// Groups whose sources are still to hear that it is over.
    leaving: BTreeMap<u64, Box<GroupInvitation>>,
    over: VecDeque<Fetched>,
    out: VecDeque<InvitationAction>,
    strangers: u64,
}

impl Invitations {
    /// Hears the controller behind this link, and nobody else.
    pub fn new(controller: PathId) -> Self {
        let (running, leaving, over, out) = Default::default();
        Invitations { controller, running, leaving, over, out, strangers: 0 }
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
            ToNode::StopFetch { request } => {
                if let Some(standing) = self.running.remove(&request) {
                    self.out.push_back(InvitationAction::Stop(request));
                    if let Standing::Fetching(Some(group)) = standing {
                        self.out.push_back(InvitationAction::Leave { request, group });
                    }
                }
            }
            _ => {}
        }
        true
    }

    fn on_invitation(&mut self, invitation: Box<Invitation>) {
        let Invitation { request, object, .. } = *invitation;
        if let Some(over) = self.over.iter().find(|over| over.request == request) {
            self.out.push_back(InvitationAction::Answer(Box::new(over.clone())));
        } else if let Entry::Vacant(entry) = self.running.entry(request) {
            entry.insert(Standing::Invited(invitation));
            self.out.push_back(InvitationAction::Look { request, object });
        }
    }

    /// The object of this invitation is here, or is not: it is fetched, by its group too. `files`: as in [`Invitations::ended`].
    pub fn looked(&mut self, request: u64, is_here: bool, files: Bytes) {
        let Some(standing) = self.running.get_mut(&request) else { return };
        let Standing::Invited(invitation) = standing else { return };
        if is_here {
            return self.ended(request, FetchEnd::Had, &[], files);
        }
        let invitation = invitation.clone();
        let group = invitation.group.clone().map(Box::new);
        *standing = Standing::Fetching(group.clone());
        let join = group.map(|group| InvitationAction::Join { request, group });
        self.out.extend(join.into_iter().chain([InvitationAction::Fetch(invitation)]));
    }

    /// A fetch has ended by itself, and these are its flows. `files`: the size of a folder's files, all of which are here; zero of what is
    /// no folder.
    ///
    /// The controller hears at once. A group is left no sooner than its source knows ([`Invitations::left`]), unless the fetch failed or was
    /// none.
    pub fn ended(&mut self, request: u64, end: FetchEnd, flows: &[FlowStats], files: Bytes) {
        // One that was stopped has nothing to say.
        let Some(standing) = self.running.remove(&request) else { return };
        let knows = end != FetchEnd::Kept;
        let fetched = report(request, end, flows, files);
        self.out.push_back(InvitationAction::Answer(Box::new(fetched.clone())));
        self.over.push_back(fetched);
        if self.over.len() > REMEMBERED {
            self.over.pop_front();
        }
        if let Standing::Fetching(Some(group)) = standing {
            self.leaving.insert(request, group);
            if knows {
                self.left(request);
            }
        }
    }

    /// Those who sent know that the fetch has ended, or do not answer.
    pub fn left(&mut self, request: u64) {
        let group = self.leaving.remove(&request);
        self.out.extend(group.map(|group| InvitationAction::Leave { request, group }));
    }
}

/// What a fetch has brought, by whom.
fn report(request: u64, end: FetchEnd, flows: &[FlowStats], files: Bytes) -> Fetched {
    let own = |flow: &FlowStats| flow.bytes - flow.by_group;
    // A source that was replaced and came back had several flows.
    let mut from: Vec<(NodeId, Bytes)> = Vec::new();
    for flow in flows.iter().filter(|flow| own(flow) > Bytes::ZERO) {
        match from.iter_mut().find(|(node, _)| *node == flow.node) {
            Some((_, bytes)) => *bytes += own(flow),
            None => from.push((flow.node, own(flow))),
        }
    }
    from.truncate(MAX_FLOWS);
    Fetched {
        request,
        end,
        by_group: flows.iter().map(|flow| flow.by_group).sum(),
        by_unicast: flows.iter().map(own).sum(),
        relayed: flows.iter().filter(|flow| flow.relays).map(|flow| flow.bytes).sum(),
        from,
        files,
    }
}

#[cfg(test)]
mod tests {
    use headwater_units::{BitRate, FlowId, FlowKey};
    use headwater_wire::{Class, Delivery, FlowSecret, MarkSignal};

    use super::*;

    const CONTROLLER: PathId = PathId(1);
    const OBJECT: ObjectId = ObjectId([7; 32]);

    fn invitation_by(request: u64, group: Option<GroupInvitation>) -> Box<Invitation> {
        let name = "model".to_owned();
        Box::new(Invitation { request, name, object: OBJECT, class: Class::Bulk, group })
    }

    fn group() -> GroupInvitation {
        let secret = |n| FlowSecret { flow: FlowId(n), key: FlowKey([n as u8; 32]) };
        let at = "239.0.0.1:7000".parse().unwrap();
        let source = "10.0.0.1:7000".parse().unwrap();
        GroupInvitation { at, source, asked: secret(1), own: secret(2) }
    }

    fn all(invitations: &mut Invitations) -> Vec<InvitationAction> {
        std::iter::from_fn(|| invitations.poll()).collect()
    }

    fn invite(node: &mut Invitations, request: u64) {
        assert!(node.on_control(CONTROLLER, ToNode::Fetch(invitation_by(request, None))));
    }

    fn answer(request: u64, end: FetchEnd) -> InvitationAction {
        InvitationAction::Answer(Box::new(report(request, end, &[], Bytes::ZERO)))
    }

    fn look(request: u64) -> InvitationAction {
        InvitationAction::Look { request, object: OBJECT }
    }

    #[test]
    fn an_invitation_that_is_said_again_is_fetched_once_and_answered_again() {
        let mut node = Invitations::new(CONTROLLER);
        invite(&mut node, 4);
        invite(&mut node, 4);
        assert_eq!(all(&mut node), [look(4)]);
        node.looked(4, false, Bytes::ZERO);
        invite(&mut node, 4);
        node.looked(4, false, Bytes::ZERO);
        assert_eq!(all(&mut node), [InvitationAction::Fetch(invitation_by(4, None))]);
        node.ended(4, FetchEnd::Kept, &[], Bytes::ZERO);
        invite(&mut node, 4);
        let said = answer(4, FetchEnd::Kept);
        assert_eq!(all(&mut node), [said.clone(), said]);
    }

    #[test]
    fn what_is_here_is_neither_joined_nor_fetched() {
        let mut node = Invitations::new(CONTROLLER);
        node.on_control(CONTROLLER, ToNode::Fetch(invitation_by(4, Some(group()))));
        node.looked(4, true, Bytes::ZERO);
        assert_eq!(all(&mut node), [look(4), answer(4, FetchEnd::Had)]);
    }

    #[test]
    fn a_group_is_joined_before_the_fetch_and_left_when_its_source_knows_or_the_fetch_failed_or_was_stopped()
    {
        let (request, group) = (4, Box::new(group()));
        let begun = || {
            let mut node = Invitations::new(CONTROLLER);
            let invitation = invitation_by(request, Some((*group).clone()));
            node.on_control(CONTROLLER, ToNode::Fetch(invitation.clone()));
            node.looked(request, false, Bytes::ZERO);
            let join = InvitationAction::Join { request, group: group.clone() };
            assert_eq!(all(&mut node), [look(request), join, InvitationAction::Fetch(invitation)]);
            node
        };
        let leave = || InvitationAction::Leave { request, group: group.clone() };
        let mut node = begun();
        node.ended(request, FetchEnd::Kept, &[], Bytes::ZERO);
        assert_eq!(all(&mut node), [answer(request, FetchEnd::Kept)], "its source does not know yet");
        node.on_control(CONTROLLER, ToNode::StopFetch { request });
        node.left(request);
        node.left(request);
        assert_eq!(all(&mut node), [leave()]);

        let failed = FetchEnd::Failed("the disk is full".to_owned());
        let mut node = begun();
        node.ended(request, failed.clone(), &[], Bytes::ZERO);
        assert_eq!(all(&mut node), [answer(request, failed), leave()]);

        let mut node = begun();
        node.on_control(CONTROLLER, ToNode::StopFetch { request });
        node.left(request);
        assert_eq!(all(&mut node), [InvitationAction::Stop(request), leave()]);
    }

    #[test]
    fn only_the_nodes_controller_may_invite_or_stop() {
        let mut node = Invitations::new(CONTROLLER);
        assert!(!node.on_control(PathId(2), ToNode::Fetch(invitation_by(4, None))));
        invite(&mut node, 5);
        assert!(!node.on_control(PathId(2), ToNode::StopFetch { request: 5 }));
        assert_eq!(all(&mut node), [look(5)]);
        assert_eq!(node.strangers(), 2);
        node.on_control(CONTROLLER, ToNode::StopFetch { request: 5 });
        node.looked(5, false, Bytes::ZERO);
        node.ended(5, FetchEnd::Kept, &[], Bytes::ZERO);
        assert_eq!(all(&mut node), [InvitationAction::Stop(5)], "who was stopped says nothing");
    }

    #[test]
    fn what_is_over_is_remembered_for_a_while() {
        let mut node = Invitations::new(CONTROLLER);
        for request in 0..=REMEMBERED as u64 {
            invite(&mut node, request);
            node.ended(request, FetchEnd::Kept, &[], Bytes::ZERO);
        }
        all(&mut node);
        invite(&mut node, 0);
        assert_eq!(all(&mut node), [look(0)], "the oldest is forgotten");
    }

    #[test]
    fn a_report_counts_what_came_by_the_group_by_own_flows_and_through_relays() {
        let flow = |n: u8, bytes, by_group, relays| FlowStats {
            bytes: Bytes::new(bytes),
            by_group: Bytes::new(by_group),
            relays,
            flow: FlowId(n.into()),
            node: NodeId([n; 32]),
            came_by: Delivery::Push,
            symbols: 0,
            useful: 0,
            lost: 0,
            marked: 0,
            rate: BitRate::ZERO,
            starved: 0,
            outstanding: 0,
            turnaround: None,
            live: false,
            silent: false,
            signal: MarkSignal::Unknown,
        };
        let flows =
            [flow(1, 100, 100, false), flow(2, 30, 10, false), flow(3, 5, 0, true), flow(2, 7, 0, false)];
        let fetched = report(4, FetchEnd::Kept, &flows, Bytes::new(9));
        let from = vec![(NodeId([2; 32]), Bytes::new(27)), (NodeId([3; 32]), Bytes::new(5))];
        let [by_group, by_unicast, relayed, files] = [110, 32, 5, 9].map(Bytes::new);
        assert_eq!(
            fetched,
            Fetched { request: 4, end: FetchEnd::Kept, by_group, by_unicast, relayed, from, files }
        );
    }
}
