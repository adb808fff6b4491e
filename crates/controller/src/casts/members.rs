//! The receivers of a cast: invited, served, and given up.

use headwater_units::{Bytes, NodeId, PathId};
use headwater_wire::{FetchEnd, Fetched, MemberStanding, Outcome, Refusal, Request, ToNode, ToReceiver};

use super::Below;
use super::cast::{Cast, Multicast, Route, Served, Stage};
use crate::overlay::may_overlay;
use crate::selection::Placement;

impl Cast {
    /// A receiver asks for what it was told of.
    pub(super) fn asked(&mut self, below: &mut Below<'_>, path: PathId, request: Request) -> bool {
        let node = request.receiver;
        let Some(member) = self.members.get_mut(&node) else { return false };
        if member.has_ended() {
            let (request, reason) = (request.request, Refusal::UnknownObject);
            below.turn.answer(path, ToReceiver::Refused { request, reason });
            return false;
        }
        member.asks = Some((path, request));
        if self.stage == Stage::Running {
            self.serve_late(below, node);
        }
        true
    }

    /// A receiver is through.
    pub(super) fn fetched(&mut self, below: &mut Below<'_>, node: NodeId, fetched: Fetched) {
        if let Some(member) = self.members.get_mut(&node).filter(|member| !member.has_ended()) {
            (member.by_group, member.by_unicast) = (fetched.by_group, fetched.by_unicast);
            (member.relayed, member.files) = (fetched.relayed, fetched.files);
            let served = member.served;
            self.files = self.files.max(fetched.files);
            self.count_given(below, node, fetched.from);
            if let (FetchEnd::Failed(reason), Served::ByTrees) = (&fetched.end, served) {
                return self.leave_trees(below, node, reason);
            }
        }
        let standing = match fetched.end {
            FetchEnd::Had => MemberStanding::Had,
            FetchEnd::Kept => MemberStanding::Kept,
            FetchEnd::Failed(reason) => MemberStanding::Failed(reason),
        };
        self.end(below.turn.now, node, standing);
    }

    /// Counts what a receiver has got from whom.
    fn count_given(&mut self, below: &Below<'_>, node: NodeId, from: Vec<(NodeId, Bytes)>) {
        let rack = below.catalog.rack_of(node);
        for (from, bytes) in from.into_iter().filter(|(from, _)| below.catalog.node(*from).is_some()) {
            let more = |sum: Bytes| Bytes::new(sum.get().saturating_add(bytes.get()));
            let given = self.given.entry(from).or_default();
            *given = more(*given);
            let crosses = rack.is_none() || below.catalog.rack_of(from) != rack;
            self.between_racks = self.between_racks.map(|sum| if crosses { more(sum) } else { sum });
        }
    }

    /// A receiver is given up, and told so.
    pub(super) fn end_member(&mut self, below: &mut Below<'_>, node: NodeId, standing: MemberStanding) {
        let Some(member) = self.members.get(&node) else { return };
        let (request, task) = (member.request, member.task);
        self.end(below.turn.now, node, standing);
        below.turn.tell(node, ToNode::StopFetch { request });
        if let Some(task) = task {
            below.deliveries.end_task(&mut below.turn, below.catalog, task, Outcome::Cancelled);
        }
    }

    /// All receivers that are not through are given up, and told so.
    pub(super) fn end_open_members(&mut self, below: &mut Below<'_>, standing: &MemberStanding) {
        let open: Vec<NodeId> = self.open_members().map(|(node, _)| node).collect();
        open.into_iter().for_each(|node| self.end_member(below, node, standing.clone()));
    }

    /// Answers what a receiver has asked, by a flow of the group or overlay that it has a place in, or as any request.
    pub(super) fn serve(&mut self, below: &mut Below<'_>, node: NodeId, place: Option<(Placement, u16)>) {
        let Some(member) = self.members.get_mut(&node) else { return };
        let Some((path, mut request)) = member.asks.take() else { return };
        // A name may move; what the cast is of does not.
        request.name = self.object.to_string();
        request.passes_on &= may_overlay(self.wish);
        let served = if place.is_some() { Served::Shared } else { Served::Unicast };
        if let Some((place, room)) = &place {
            request.room = *room;
            request.delivery = Some(place.delivery(below.turn.config));
        }
        let (catalog, deliveries) = (below.catalog, &mut *below.deliveries);
        let place = place.map(|(place, _)| place);
        let Some(id) = deliveries.answer(&mut below.turn, catalog, path, &request, place) else { return };
        (member.task, member.standing) = (Some(id), MemberStanding::Receiving);
        if member.served != Served::ByTrees {
            member.served = served;
        }
        deliveries.call(id, &self.name);
        below.swarms.watch(&mut below.turn, catalog, deliveries, self.object);
    }

    /// Answers what a receiver has asked when the others are being served, by those who pass on already if there are such.
    fn serve_late(&mut self, below: &mut Below<'_>, node: NodeId) {
        let asks = self.members.get(&node).and_then(|member| member.asks.as_ref());
        let room = asks.map(|(_, request)| request.room).filter(|_| may_overlay(self.wish));
        let place = room.and_then(|room| {
            let (now, catalog, config) = (below.turn.now, below.catalog, below.turn.config);
            below.deliveries.join_overlay(now, catalog, config, self.object, (node, room), true)
        });
        self.serve(below, node, place);
    }

    pub(super) fn serve_waiting(&mut self, below: &mut Below<'_>) {
        self.asking().into_keys().for_each(|node| self.serve_late(below, node));
    }

    /// Receivers are told until they answer, and told anew when they come back; who stays away is given up.
    pub(super) fn look_after_members(&mut self, below: &mut Below<'_>) {
        let open: Vec<NodeId> = self.open_members().map(|(node, _)| node).collect();
        for node in open {
            let here = below.catalog.node(node).and_then(|it| Some((it.path?, it.info.incarnation)));
            let Some(member) = self.members.get_mut(&node) else { continue };
            let Some(here) = here else {
                let since = *member.away_since.get_or_insert(below.turn.now);
                if below.turn.now >= since + below.turn.config.cast_away {
                    self.end_member(below, node, MemberStanding::Away);
                }
                continue;
            };
            member.away_since = None;
            if member.told.is_some_and(|(_, life)| life != here.1) {
                // It knows nothing of it any more, and its flows are no use to it.
                (member.asks, member.served) = (None, Served::Unicast);
                if let Route::Multicast(Multicast::Open(group)) = &mut self.route {
                    group.own.remove(&node);
                }
                if let Some(task) = member.task.take() {
                    below.deliveries.end_task(&mut below.turn, below.catalog, task, Outcome::Failed);
                }
                member.request = below.turn.draws.request();
            }
            if member.told != Some(here) {
                (member.told, member.invite) = (Some(here), below.turn.retry());
            } else if member.asks.is_some() || member.task.is_some() {
                continue;
            }
            if member.invite.fire(below.turn.now, below.turn.config.retry_longest)
                && let Some(member) = self.members.get(&node)
            {
                below.turn.tell(node, ToNode::Fetch(Box::new(self.invitation(member))));
            }
        }
    }
}
