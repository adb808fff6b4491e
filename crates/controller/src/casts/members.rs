//! The receivers of a cast: invited, served, and given up.

use headwater_units::{Bytes, NodeId, PathId};
use headwater_wire::{FetchEnd, Fetched, MemberStanding, Outcome, Refusal, Request, ToNode, ToReceiver};

use super::Below;
use super::cast::{Cast, Multicast, Route, Stage};
use super::invitations::Progress;
use super::member::Served;
use crate::overlay::may_overlay;
use crate::selection::Placement;

impl Cast {
    /// A receiver asks for what it was told of.
    pub(super) fn asked(&mut self, below: &mut Below<'_>, path: PathId, request: Request) -> bool {
        let node = request.receiver;
        let Some(member) = self.members.get(node) else { return false };
        if member.has_ended() {
            let (request, reason) = (request.request, Refusal::UnknownObject);
            below.turn.answer(path, ToReceiver::Refused { request, reason });
            return false;
        }
        if let (None, Some(lapse_at)) = (&member.asks, &mut self.lapse_at) {
            // While some ask, others may only be slow.
            *lapse_at = below.turn.now + below.turn.config.cast_gather;
        }
        self.members.change(node, |member| member.asks = Some((path, request)));
        if self.stage == Stage::Running {
            self.serve_late(below, node);
        }
        true
    }

    /// A receiver is through.
    pub(super) fn fetched(&mut self, below: &mut Below<'_>, node: NodeId, fetched: Fetched) {
        if self.members.get(node).is_some_and(|member| !member.has_ended()) {
            let served = self.members.change(node, |member| {
                (member.by_group, member.by_unicast) = (fetched.by_group, fetched.by_unicast);
                (member.relayed, member.files) = (fetched.relayed, fetched.files);
                member.served
            });
            self.files = self.files.max(fetched.files);
            self.count_given(below, node, fetched.from);
            if let (FetchEnd::Failed(reason), Some(Served::ByTrees)) = (&fetched.end, served) {
                return self.leave_trees(below, node, reason);
            }
        }
        let standing = match fetched.end {
            FetchEnd::Had => MemberStanding::Had,
            FetchEnd::Kept => MemberStanding::Kept,
            FetchEnd::Failed(reason) => MemberStanding::Failed(reason),
        };
        below.deliveries.leave_place(self.object, node);
        below.deliveries.finish_request(below.turn.config, node, fetched.request);
        self.end(below.turn.now, node, standing);
    }

    /// Counts what a receiver has got from whom.
    fn count_given(&mut self, below: &Below<'_>, node: NodeId, from: Vec<(NodeId, Bytes)>) {
        for (from, bytes) in from.into_iter().filter(|(from, _)| below.catalog.node(*from).is_some()) {
            let more = |sum: Bytes| Bytes::new(sum.get().saturating_add(bytes.get()));
            let given = self.given.entry(from).or_default();
            *given = more(*given);
            let crosses = !below.catalog.share_rack(node, from);
            self.between_racks = self.between_racks.map(|sum| if crosses { more(sum) } else { sum });
        }
    }

    /// A receiver is given up, and told so.
    pub(super) fn end_member(&mut self, below: &mut Below<'_>, node: NodeId, standing: MemberStanding) {
        self.end(below.turn.now, node, standing);
        self.dismiss(below, node);
    }

    /// A receiver is to stop, and nobody is to send to it.
    fn dismiss(&mut self, below: &mut Below<'_>, node: NodeId) {
        let Some(member) = self.members.get(node) else { return };
        let (request, task) = (member.request, member.task);
        below.deliveries.leave_place(self.object, node);
        below.turn.tell(node, ToNode::StopFetch { request });
        below.deliveries.finish_request(below.turn.config, node, request);
        if let Some(task) = task {
            below.deliveries.end_task(&mut below.turn, below.catalog, task, Outcome::Cancelled);
        }
    }

    /// Those that are still away are given up.
    pub(super) fn dismiss_away(&mut self, below: &mut Below<'_>) {
        self.members.away().into_iter().for_each(|node| self.dismiss(below, node));
    }

    /// All receivers that are not through are given up, and told so.
    pub(super) fn end_open_members(&mut self, below: &mut Below<'_>, standing: &MemberStanding) {
        let open = self.members.open_members();
        let open: Vec<_> = open.map(|(node, member)| (node, member.request, member.task)).collect();
        for (node, request, task) in open {
            self.end_member(below, node, standing.clone());
            if let Some(task) = task {
                below.deliveries.stop_task(below.turn.config, task, (node, request));
            }
        }
    }

    /// Answers what a receiver has asked, by a flow of the group or overlay that it has a place in, or as any request.
    pub(super) fn serve(&mut self, below: &mut Below<'_>, node: NodeId, place: Option<(Placement, u16)>) {
        let asked = self.members.change(node, |member| member.asks.take());
        let Some((path, mut request)) = asked.flatten() else { return };
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
        let task = deliveries.answer(&mut below.turn, catalog, path, &request, place);
        let Some(id) = task else {
            // It is told of the cast again, and then asks again.
            let again = self.members.get(node).map(|member| member.invite.due());
            return self.members.look_after(node, again);
        };
        self.members.change(node, |member| {
            (member.task, member.standing) = (Some(id), MemberStanding::Receiving);
            if member.served != Served::ByTrees {
                member.served = served;
            }
        });
        deliveries.call(id, &self.name);
        if let Some(urgency) = self.urgency {
            deliveries.put_in_line(id, self.begun, urgency);
        }
        below.swarms.watch(&mut below.turn, catalog, deliveries, self.object);
    }

    /// Answers what a receiver has asked when the others are being served, by those who pass on already if there are such.
    fn serve_late(&mut self, below: &mut Below<'_>, node: NodeId) {
        let asks = self.members.get(node).and_then(|member| member.asks.as_ref());
        let room = asks.map(|(_, request)| request.room).filter(|_| may_overlay(self.wish));
        let place = room.and_then(|room| {
            let (now, catalog, config) = (below.turn.now, below.catalog, below.turn.config);
            below.deliveries.join_overlay(now, catalog, config, self.object, (node, room), true)
        });
        self.serve(below, node, place);
    }

    pub(super) fn serve_waiting(&mut self, below: &mut Below<'_>) {
        self.members.rooms_asked().into_keys().for_each(|node| self.serve_late(below, node));
    }

    /// Invites those whose turn it is.
    pub(super) fn invite_more(&mut self, below: &mut Below<'_>) {
        let (members, catalog, tasks) = (&self.members, below.catalog, below.deliveries.tasks());
        let progress = |node: NodeId| {
            let Some(member) = members.get(node) else { return Progress::Gone };
            match &member.standing {
                MemberStanding::Kept | MemberStanding::Had => return Progress::HasBegun,
                MemberStanding::Failed(_) => return Progress::Failed,
                _ if member.has_ended() || catalog.path_of(node).is_none() => return Progress::Gone,
                _ => {}
            }
            match member.task.map(|id| tasks.get(id)) {
                None => Progress::Asks,
                Some(Some(task)) if task.has_brought() => Progress::HasBegun,
                Some(Some(task)) if !task.is_answered() => Progress::Asks,
                Some(Some(_)) => Progress::Answered,
                // Its task has ended, and it asks anew or not at all.
                Some(None) => Progress::Gone,
            }
        };
        for node in self.invitations.next(below.turn.now, progress) {
            self.members.look_after(node, Some(below.turn.now));
        }
    }

    /// Looks after those receivers for which it is time.
    pub(super) fn look_after_members(&mut self, below: &mut Below<'_>) {
        while let Some(node) = self.members.take_due(below.turn.now) {
            self.look_after_member(below, node);
        }
    }

    /// A receiver is told until it answers, and told anew when it comes back. If it stays away it is not waited for, but its flows go on:
    /// it may be back, and through, before the others are.
    fn look_after_member(&mut self, below: &mut Below<'_>, node: NodeId) {
        let (now, config) = (below.turn.now, below.turn.config);
        let Some(member) = self.members.get(node).filter(|member| !member.has_ended()) else { return };
        if self.invitations.is_left(node) {
            return;
        }
        let here = below.catalog.node(node).and_then(|it| Some((it.path?, it.info.incarnation)));
        let Some(here) = here else {
            let since = member.away_since.unwrap_or(now);
            if now >= since + config.cast_away {
                below.deliveries.leave_place(self.object, node);
                return self.end(now, node, MemberStanding::Away);
            }
            self.members.change(node, |member| member.away_since = Some(since));
            return self.members.look_after(node, Some(since + config.cast_away));
        };
        if member.told.is_some_and(|(_, life)| life != here.1) {
            self.forget_life(below, node);
        }
        let is_due = self.members.change(node, |member| {
            let was_away = member.away_since.take().is_some();
            if was_away || member.told != Some(here) {
                (member.told, member.invite) = (Some(here), below.turn.retry());
            } else if member.asks.is_some() || member.task.is_some() {
                return None;
            }
            Some((member.invite.fire(now, config.retry_longest), member.invite.due()))
        });
        let Some((say, again)) = is_due.flatten() else { return };
        self.members.look_after(node, Some(again));
        if let (true, Some(member)) = (say, self.members.get(node)) {
            below.turn.tell(node, ToNode::Fetch(Box::new(self.invitation(member))));
        }
    }

    /// A receiver has begun anew: it knows nothing of the cast any more, and its flows are no use to it.
    fn forget_life(&mut self, below: &mut Below<'_>, node: NodeId) {
        if let Route::Multicast(Multicast::Open(group)) = &mut self.route {
            group.own.remove(&node);
        }
        let request = below.turn.draws.request();
        let task = self.members.change(node, |member| {
            (member.asks, member.served, member.request) = (None, Served::Unicast, request);
            member.task.take()
        });
        if let Some(task) = task.flatten() {
            below.deliveries.end_task(&mut below.turn, below.catalog, task, Outcome::Failed);
        }
    }
}
