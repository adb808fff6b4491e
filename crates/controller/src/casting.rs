//! What the controller does for a cast: whom it tells, how receivers are to be served, and what whoever asked is told.
//!
//! The receivers fetch by ordinary tasks. Those that have heard the group's probe have one flow each that belongs to the group,
//! from one source; where there is no group, receivers pass on to each other what comes ([`super::overlay`]); all others are served
//! as by any request. A cast itself does not outlast its controller: the tasks do, and what
//! a receiver has when it is asked again, it does not fetch again.

use core::net::SocketAddr;

use headwater_units::{Bytes, FlowId, FlowKey, Geometry, NodeId, PathId, Symbols, Time};
use headwater_wire::{
    Cast as Wanted, CastWay, CastWish, Delivery, FetchEnd, Fetched, FlowRole, FlowSecret, GroupQuestion,
    MAX_FLOWS, MemberStanding, Outcome, Push, Refusal, Request, SYMBOL_OVERHEAD, ToController, ToNode,
    ToReceiver, ToSource, WhyUnicast,
};
use rand::Rng;

use super::Controller;
use super::casts::{Cast, Member, Stage};
use super::overlay::may_overlay;
use super::selection::Place;
use super::tasks::Retry;
use super::timers::Subject;
use crate::{CastBegun, ControllerEvent, TaskGroup};

impl Controller {
    // ---- whoever asks

    /// Somebody asks for a cast, perhaps once more.
    pub(super) fn cast(&mut self, now: Time, path: PathId, wanted: Wanted) {
        let number = wanted.cast;
        let Some(&by) = self.links.get(&path) else {
            self.stats.strangers += 1;
            return;
        };
        if let Some(known) = self.casts.get_mut(number) {
            if known.asked_by != by {
                self.stats.strangers += 1;
                return self.send(path, ToNode::CastRefused { cast: number, reason: Refusal::Full });
            }
            (known.asker, known.news_at) = (path, now);
            return self.tick_cast(now, number);
        }
        if self.is_early(now, &wanted.name) {
            return self.hold_back(path, wanted.name.clone(), ToController::Cast(wanted));
        }
        match self.begin_cast(now, (path, by), wanted) {
            Ok(cast) => {
                self.stats.casts_accepted += 1;
                self.event(ControllerEvent::CastBegun(Box::new(CastBegun {
                    cast: number,
                    name: cast.name.clone(),
                    object: cast.object,
                    bytes: cast.bytes,
                    receivers: cast.members.len(),
                })));
                self.casts.add(cast);
                self.tick_cast(now, number);
            }
            Err(reason) => {
                self.stats.casts_refused += 1;
                self.send(path, ToNode::CastRefused { cast: number, reason });
            }
        }
    }

    fn begin_cast(
        &mut self,
        now: Time,
        (asker, asked_by): (PathId, NodeId),
        wanted: Wanted,
    ) -> Result<Cast, Refusal> {
        let unresolved = || self.registry.why_unresolved(&wanted.name);
        let object = self.registry.resolve(&wanted.name).ok_or_else(unresolved)?;
        let bytes = self.registry.object(object).ok_or(Refusal::UnknownObject)?.bytes;
        let source =
            *self.sources_of(object, 0, |_| true).first().ok_or_else(|| self.no_source_of(object))?;
        if wanted.wish == CastWish::Trees && self.network.is_none() {
            return Err(Refusal::NoNetwork);
        }
        if self.casts.len() >= self.config.max_casts {
            return Err(Refusal::Full);
        }
        let mut to = wanted.to;
        if to.is_empty() {
            let keepers = self.registry.nodes().filter(|node| node.keeps && node.path.is_some());
            to = keepers.map(|node| node.info.node).filter(|node| *node != source).collect();
        }
        if to.len() > MAX_FLOWS {
            return Err(Refusal::TooMany);
        }
        if to.is_empty() {
            return Err(Refusal::Nobody);
        }
        let source_at = self.registry.node(source).and_then(|node| node.info.data.first().copied());
        let mut cast = Cast {
            number: wanted.cast,
            asker,
            asked_by,
            name: wanted.name,
            object,
            bytes,
            class: wanted.class,
            source,
            source_at,
            begun: now,
            stage: Stage::Gathering { until: now + self.config.cast_gather },
            way: CastWay::Open,
            wish: wanted.wish,
            group: None,
            flow: None,
            installed: None,
            symbol_size: 0,
            files: Bytes::ZERO,
            to_group: Bytes::ZERO,
            given: Default::default(),
            between_racks: None,
            members: Default::default(),
            news_at: now + self.config.cast_news,
            over_at: None,
        };
        for node in to {
            let (own, request) = (self.secret(), self.rng.random());
            cast.members.insert(node, Member::new(now, request, own, &self.config));
            // What cannot come to anything is said at once.
            match self.registry.node(node) {
                _ if self.registry.holds(node, object) => cast.end(now, node, MemberStanding::Had),
                Some(known) if known.path.is_some() && !known.keeps => {
                    let reason = "it keeps no objects: it is not run by `headwater node` or `up`";
                    cast.end(now, node, MemberStanding::Failed(reason.to_owned()));
                }
                Some(known) if known.path.is_some() => {}
                _ => cast.end(now, node, MemberStanding::Away),
            }
        }
        let has_rack = |node: &NodeId| self.registry.rack_of(*node).is_some();
        cast.between_racks = cast.members.keys().any(has_rack).then_some(Bytes::ZERO);
        let at = cast.source_at.and_then(|source| self.unused_group(self.by_ipv4(source, &cast)));
        let trees = matches!(wanted.wish, CastWish::Best | CastWish::Trees) && self.may_install_trees(&cast);
        cast.way = match at {
            _ if wanted.wish == CastWish::Unicast => CastWay::Unicast(WhyUnicast::Wished),
            _ if cast.open_members().count() < 2 => CastWay::Unicast(WhyUnicast::TooFew),
            _ if trees => {
                cast.installed = Some(Default::default());
                CastWay::Open
            }
            _ if wanted.wish == CastWish::Trees => return Err(Refusal::OffNetwork),
            None if wanted.wish == CastWish::Multicast => CastWay::Unicast(WhyUnicast::NoGroups),
            None => CastWay::Open,
            Some(_) if wanted.wish == CastWish::Overlay => CastWay::Open,
            Some(at) => {
                cast.group = Some((at, self.secret()));
                CastWay::Open
            }
        };
        if cast.way != CastWay::Open {
            // Nobody has to be waited for.
            cast.stage = Stage::Running;
        }
        Ok(cast)
    }

    /// A group address that no running cast has.
    fn unused_group(&mut self, ipv4: bool) -> Option<core::net::SocketAddr> {
        let range = *self.config.groups.iter().find(|range| range.first.is_ipv4() == ipv4)?;
        let start: u32 = self.rng.random();
        let tries = u32::try_from(self.casts.len()).unwrap_or(u32::MAX).saturating_add(1).min(range.count);
        (0..tries).map(|n| range.nth(start.wrapping_add(n))).find(|at| !self.casts.uses(*at))
    }

    pub(super) fn secret(&mut self) -> FlowSecret {
        FlowSecret { flow: self.unused_flow_id(), key: FlowKey(self.rng.random()) }
    }

    /// Whoever asked for a cast does not want it any more.
    pub(super) fn stop_cast(&mut self, now: Time, path: PathId, number: u64) {
        let Some(cast) = self.casts.get(number) else { return };
        if !self.is_from(path, cast.asked_by) {
            self.stats.strangers += 1;
            return;
        }
        let open: Vec<NodeId> = cast.open_members().map(|(node, _)| node).collect();
        for node in open {
            self.end_member(now, number, node, MemberStanding::Failed("stopped".to_owned()));
        }
        self.tick_cast(now, number);
    }

    // ---- receivers

    /// A receiver asks for what it was told of.
    pub(super) fn asked_for_cast(&mut self, now: Time, path: PathId, request: Request) {
        let key = (request.receiver, request.request);
        let Some(number) = self.casts.of_request(key) else { return };
        let cast = self.casts.get_mut(number).expect("requests and casts agree");
        let stage = cast.stage;
        let member = cast.members.get_mut(&key.0).expect("requests and casts agree");
        if member.has_ended() {
            return self.send(path, ToReceiver::Refused { request: key.1, reason: Refusal::UnknownObject });
        }
        member.asks = Some((path, request));
        if stage == Stage::Running {
            let place = self.late_place(number, key.0);
            self.serve(now, number, key.0, place);
        }
        self.tick_cast(now, number);
    }

    /// A receiver is through.
    pub(super) fn fetched(&mut self, now: Time, node: NodeId, fetched: Fetched) {
        let Some(number) = self.casts.of_request((node, fetched.request)) else { return };
        let cast = self.casts.get_mut(number).expect("requests and casts agree");
        if let Some(member) = cast.members.get_mut(&node).filter(|member| !member.has_ended()) {
            (member.by_group, member.alone) = (fetched.by_group, fetched.alone);
            (member.relayed, member.files) = (fetched.relayed, fetched.files);
            cast.files = cast.files.max(fetched.files);
            let on_trees = member.on_trees;
            let rack = self.registry.rack_of(node);
            for (from, bytes) in fetched.from {
                if self.registry.node(from).is_none() {
                    continue;
                }
                let more = |sum: Bytes| Bytes::new(sum.get().saturating_add(bytes.get()));
                let given = cast.given.entry(from).or_default();
                *given = more(*given);
                let crosses = rack.is_none() || self.registry.rack_of(from) != rack;
                cast.between_racks = cast.between_racks.map(|sum| if crosses { more(sum) } else { sum });
            }
            if let (FetchEnd::Failed(reason), true) = (&fetched.end, on_trees) {
                self.leave_trees(now, number, node, reason);
                return self.tick_cast(now, number);
            }
        }
        cast.end(
            now,
            node,
            match fetched.end {
                FetchEnd::Had => MemberStanding::Had,
                FetchEnd::Kept => MemberStanding::Kept,
                FetchEnd::Failed(reason) => MemberStanding::Failed(reason),
            },
        );
        self.tick_cast(now, number);
    }

    /// A receiver is given up, and told so.
    pub(super) fn end_member(&mut self, now: Time, number: u64, node: NodeId, standing: MemberStanding) {
        let cast = self.casts.get_mut(number).expect("the caller has found it");
        let member = cast.members.get(&node).expect("the caller has found it there");
        let (request, task) = (member.request, member.task);
        cast.end(now, node, standing);
        self.send_to(node, ToNode::StopFetch { request });
        if let Some(task) = task {
            self.end_task(now, task, Outcome::Cancelled);
        }
    }

    /// Answers what a receiver has asked, by a flow of the group or as any request.
    pub(super) fn serve(&mut self, now: Time, number: u64, node: NodeId, place: Option<(Place, u16)>) {
        let cast = self.casts.get_mut(number).expect("the caller has found it");
        let (object, name, may_pass_on) = (cast.object, cast.name.clone(), may_overlay(cast.wish));
        let member = cast.members.get_mut(&node).expect("the caller has found it there");
        let Some((path, mut request)) = member.asks.take() else { return };
        // A name may move; what the cast is of does not.
        request.name = object.to_string();
        request.passes_on &= may_pass_on;
        let flow = place.as_ref().and_then(|(place, _)| place.flow());
        let grouped = place.is_some();
        if let Some((place, room)) = &place {
            request.room = *room;
            request.delivery = Some(Delivery::Pull { initial_window: place.window(&self.config) });
        }
        let task = self.answer(now, path, &request, place.map(|(place, _)| place));
        let cast = self.casts.get_mut(number).expect("an answer ends no cast");
        let member = cast.members.get_mut(&node).expect("an answer ends no cast");
        if let Some(task) = task {
            (member.task, member.standing) = (Some(task), MemberStanding::Receiving);
            (member.flow, member.grouped) = (flow, grouped);
            self.tasks.get_mut(task).expect("begun just now").name = name;
            self.watch_for_swarm(now, object);
        }
    }

    /// All that have asked are served one by one, and so are those who will.
    pub(super) fn serve_each(&mut self, now: Time, number: u64, why: WhyUnicast) {
        let cast = self.casts.get_mut(number).expect("the caller has found it");
        (cast.way, cast.stage) = (CastWay::Unicast(why), Stage::Running);
        self.serve_waiting(now, number);
        if let Some(flow) = self.casts.close(number) {
            self.stop_group(now, number, flow.flow);
        }
        self.remove_trees(now, number);
    }

    pub(super) fn serve_waiting(&mut self, now: Time, number: u64) {
        let cast = self.casts.get(number).expect("the caller has found it");
        let waiting: Vec<NodeId> =
            cast.open_members().filter(|(_, member)| member.asks.is_some()).map(|(node, _)| node).collect();
        for node in waiting {
            let place = self.late_place(number, node);
            self.serve(now, number, node, place);
        }
    }

    pub(super) fn stop_group(&mut self, now: Time, number: u64, flow: FlowId) {
        let source = self.casts.get(number).expect("the caller has found it").source;
        if let Some(node) = self.registry.node(source) {
            let incarnation = node.info.incarnation;
            self.stop_flow(now, source, flow, incarnation);
        }
    }

    // ---- the group

    /// Whether a group is one of IPv4. A source beside its controller may be reached by both: then its receivers decide.
    fn by_ipv4(&self, source: SocketAddr, cast: &Cast) -> bool {
        let data_of = |node: &NodeId| self.registry.node(*node)?.info.data.first().copied();
        let theirs = || cast.members.keys().filter_map(data_of);
        let mut known = core::iter::once(source).chain(theirs()).filter(|at| !at.ip().is_unspecified());
        known.next().is_none_or(|at| at.is_ipv4())
    }

    /// Everybody is here who is waited for: asks the source who of them hears the group.
    fn probe(&mut self, now: Time, number: u64) {
        let cast = self.casts.get_mut(number).expect("the caller has found it");
        if cast.installed.is_some() {
            return self.install_trees(now, number);
        }
        let source = cast.source;
        let asking = cast.members.iter().filter(|(_, member)| member.asks.is_some() && !member.has_ended());
        let asking: Vec<(NodeId, FlowSecret, u16)> = asking
            .map(|(node, member)| {
                let room = member.asks.as_ref().map_or(0, |(_, request)| request.room);
                (*node, member.own.clone(), room)
            })
            .collect();
        let data_of = |node: &NodeId| self.registry.node(*node)?.info.data.first().copied();
        let towards = asking.iter().find_map(|(node, ..)| data_of(node));
        let room = self.registry.node(source).map(|node| node.info.room);
        let (Some((at, asked)), Some(towards), Some(room), 2..) =
            (cast.group.clone(), towards, room, asking.len())
        else {
            return self.serve_without_group(now, number, WhyUnicast::TooFew);
        };
        let room = asking.iter().fold(room, |least, (_, _, room)| least.min(*room));
        cast.symbol_size = Geometry::fitting(cast.bytes, room).symbol_size();
        cast.stage = Stage::Probing { until: now + self.config.silent_limit };
        let question = GroupQuestion {
            at,
            towards,
            asked,
            members: asking.into_iter().map(|(_, own, _)| own).collect(),
            bytes: cast.symbol_size.saturating_add(SYMBOL_OVERHEAD as u16),
        };
        self.send_to(source, ToNode::ProbeGroup(Box::new(question)));
    }

    /// The source knows who of the receivers hears the group.
    pub(super) fn group_probed(&mut self, now: Time, source: NodeId, asked: FlowId, heard: &[FlowId]) {
        let Some(number) = self.casts.of_flow(source, asked) else { return };
        let cast = self.casts.get(number).expect("flows and casts agree");
        if !matches!(cast.stage, Stage::Probing { .. }) {
            return;
        }
        let asking = cast.open_members().filter(|(_, member)| member.asks.is_some());
        let of = u16::try_from(asking.count()).unwrap_or(u16::MAX);
        let hears = |member: &Member| member.asks.is_some() && heard.contains(&member.own.flow);
        let hearing: Vec<NodeId> =
            cast.open_members().filter(|(_, member)| hears(member)).map(|(node, _)| node).collect();
        match hearing.len() {
            2.. => self.open_group(now, number, &hearing, of),
            _ => self.serve_without_group(now, number, WhyUnicast::Unheard { of }),
        }
        self.tick_cast(now, number);
    }

    fn open_group(&mut self, now: Time, number: u64, hearing: &[NodeId], of: u16) {
        let group = self.secret();
        let flows: Vec<FlowId> = hearing.iter().map(|_| self.unused_flow_id()).collect();
        let first = hearing.first().and_then(|node| self.registry.node(*node));
        let member_at = first.and_then(|node| node.info.data.first().copied());
        let task = self.unused_task_id();
        let cast = self.casts.get_mut(number).expect("the caller has found it");
        let (at, _) = cast.group.clone().expect("a group that was probed has an address");
        for (node, flow) in hearing.iter().zip(&flows) {
            cast.members.get_mut(node).expect("it is open").flow = Some(*flow);
        }
        cast.stage = Stage::Opening { until: now + self.config.silent_limit };
        cast.way = CastWay::Multicast { at, members: hearing.len() as u16, of };
        let push = Push {
            task,
            flow: group.flow,
            object: cast.object,
            bytes: cast.bytes,
            symbol_size: cast.symbol_size,
            key: group.key,
            theta: headwater_units::Theta::ONE,
            class: cast.class,
            receiver: cast.source,
            delivery: Delivery::Pull { initial_window: self.config.cast_window },
            index: 0,
            of: 1,
            at: core::iter::once(at).chain(member_at).collect(),
            start: None,
            role: FlowRole::Group { members: flows },
        };
        let source = cast.source;
        self.casts.open(number, group);
        self.stats.casts_grouped += 1;
        self.send_to(source, ToSource::Push(push));
    }

    /// The source has opened a group's flow: its members may have theirs.
    pub(super) fn group_opened(&mut self, now: Time, flow: FlowId) {
        let Some((number, group)) = self.casts.of_group(flow) else { return };
        let cast = self.casts.get_mut(number).expect("flows and casts agree");
        if !matches!(cast.stage, Stage::Opening { .. }) {
            return;
        }
        cast.stage = Stage::Running;
        let (at, _) = cast.group.clone().expect("a group that was opened has an address");
        let (source, room) = (cast.source, cast.symbol_size);
        let places: Vec<(NodeId, FlowId)> =
            cast.open_members().filter_map(|(node, member)| Some((node, member.flow?))).collect();
        for (node, own) in places {
            let group = TaskGroup { flow: group.flow, key: group.key, at };
            self.serve(now, number, node, Some((Place::Group { node: source, flow: own, group }, room)));
        }
        self.serve_waiting(now, number);
        self.tick_cast(now, number);
    }

    /// A group's flow is over, or was refused.
    pub(super) fn group_over(&mut self, now: Time, flow: FlowId) {
        let Some((number, _)) = self.casts.of_group(flow) else { return };
        let cast = self.casts.get(number).expect("flows and casts agree");
        let begun = cast.stage == Stage::Running;
        self.casts.close(number);
        if !begun {
            self.serve_without_group(now, number, WhyUnicast::Source);
        }
        self.tick_cast(now, number);
    }

    /// How much has left on a group's flow.
    pub(super) fn group_sent(&mut self, now: Time, node: NodeId, flow: FlowId, sent: Symbols) {
        if let Some(number) = self.casts.of_flow(node, flow) {
            let cast = self.casts.get_mut(number).expect("flows and casts agree");
            let sent = cast.installed.as_mut().map_or(sent, |installed| installed.has_sent(flow, sent));
            cast.to_group = Bytes::new(sent.get().saturating_mul(u64::from(cast.symbol_size)));
        } else if !self.tasks.is_group(node, flow) && !self.ending.contains_key(&(node, flow)) {
            // Nobody knows what it is for.
            let incarnation = self.registry.node(node).expect("it has a path").info.incarnation;
            self.stop_flow(now, node, flow, incarnation);
        }
    }

    // ---- time

    /// Looks after a cast: tells receivers, goes on to the next step, tells whoever asked, and sets the next wake-up.
    pub(super) fn tick_cast(&mut self, now: Time, number: u64) {
        self.look_after_members(now, number);
        let trees = self.look_after_trees(now, number);
        let Some(cast) = self.casts.get(number) else { return };
        let waiting = cast.open_members().filter(|(_, member)| member.asks.is_none()).count();
        let asking = cast.open_members().filter(|(_, member)| member.asks.is_some()).count();
        match cast.stage {
            Stage::Gathering { until } if asking > 0 && (waiting == 0 || now >= until) => {
                match (cast.group.is_some() || cast.installed.is_some(), cast.wish) {
                    (true, _) => self.probe(now, number),
                    (false, CastWish::Overlay) => self.serve_without_group(now, number, WhyUnicast::Wished),
                    (false, _) => self.serve_without_group(now, number, WhyUnicast::NoGroups),
                }
            }
            Stage::Probing { until } | Stage::Opening { until } if now >= until => {
                self.serve_without_group(now, number, WhyUnicast::Source);
            }
            _ => {}
        }
        if self.tell_asker(now, number) {
            return;
        }
        let Some(cast) = self.casts.get(number) else { return };
        let mut next = cast.news_at.min(cast.over_at.unwrap_or(Time::MAX)).min(trees.unwrap_or(Time::MAX));
        match cast.stage {
            Stage::Gathering { until } | Stage::Probing { until } | Stage::Opening { until }
                if until > now =>
            {
                next = next.min(until);
            }
            _ => {}
        }
        self.timers.set(Subject::Cast(number), Some(next));
    }

    /// Receivers are told until they answer, and told anew when they come back; who stays away is given up.
    pub(super) fn look_after_members(&mut self, now: Time, number: u64) {
        let Some(cast) = self.casts.get(number) else { return };
        let open: Vec<NodeId> = cast.open_members().map(|(node, _)| node).collect();
        for node in open {
            let here = self.registry.node(node).and_then(|it| Some((it.path?, it.info.incarnation)));
            let cast = self.casts.get_mut(number).expect("looked up just now");
            let member = cast.members.get_mut(&node).expect("it is open");
            let Some(here) = here else {
                let since = *member.away_since.get_or_insert(now);
                if now >= since + self.config.cast_away {
                    self.end_member(now, number, node, MemberStanding::Away);
                }
                continue;
            };
            member.away_since = None;
            if member.told.is_some_and(|(_, life)| life != here.1) {
                // It knows nothing of it any more, and its flows are no use to it.
                (member.asks, member.flow) = (None, None);
                (member.grouped, member.on_trees) = (false, false);
                if let Some(task) = member.task.take() {
                    self.end_task(now, task, Outcome::Failed);
                }
                let request = self.rng.random();
                self.casts.renumber(number, node, request);
            }
            let cast = self.casts.get_mut(number).expect("looked up just now");
            let member = cast.members.get_mut(&node).expect("it is open");
            if member.told != Some(here) {
                (member.told, member.invite) = (Some(here), Retry::at(now, self.config.retry_first));
            } else if member.asks.is_some() || member.task.is_some() {
                continue;
            }
            if member.invite.fire(now, self.config.retry_longest) {
                let member = cast.members.get(&node).expect("it is open");
                let invitation = cast.invitation(member);
                self.send_to(node, ToNode::Fetch(Box::new(invitation)));
            }
        }
    }

    /// Forgets a cast, and says what came of it.
    fn cast_over(&mut self, number: u64) {
        let Some(cast) = self.casts.get(number) else { return };
        let has = |member: &&Member| matches!(member.standing, MemberStanding::Kept | MemberStanding::Had);
        let done = cast.members.values().filter(has).count();
        let failed = cast.members.len() - done;
        self.event(ControllerEvent::CastOver { cast: number, done, failed });
        self.casts.remove(number);
    }

    /// Tells whoever asked how it does, if it is time. True if that was the last word.
    fn tell_asker(&mut self, now: Time, number: u64) -> bool {
        let Some(cast) = self.casts.get_mut(number) else { return true };
        let mut over = false;
        if cast.open_members().next().is_none() {
            // What has left on the group's flow is known when it ends, which it does when its members say goodbye.
            let until = *cast.over_at.get_or_insert(now + self.config.retry_first);
            over = cast.flow.is_none() || now >= until;
            if cast.installed.is_some() {
                over = self.stop_trees(now, number) || now >= until;
            }
        }
        let Some(cast) = self.casts.get_mut(number) else { return true };
        if !over && now < cast.news_at {
            return false;
        }
        cast.news_at = now + self.config.cast_news;
        let asker = cast.asker;
        let news = cast.news(now, &self.tasks, over);
        news.into_iter().for_each(|news| self.send(asker, ToNode::Casting(Box::new(news))));
        if over {
            if let Some(flow) = self.casts.close(number) {
                self.stop_group(now, number, flow.flow);
            }
            self.remove_trees(now, number);
            self.cast_over(number);
            self.timers.set(Subject::Cast(number), None);
        }
        over
    }
}

impl Member {
    fn new(now: Time, request: u64, own: FlowSecret, config: &super::ControllerConfig) -> Self {
        Member {
            request,
            own,
            told: None,
            invite: Retry::at(now, config.retry_first),
            asks: None,
            flow: None,
            grouped: false,
            on_trees: false,
            task: None,
            standing: MemberStanding::Invited,
            away_since: None,
            bytes: Bytes::ZERO,
            files: Bytes::ZERO,
            by_group: Bytes::ZERO,
            alone: Bytes::ZERO,
            relayed: Bytes::ZERO,
            ended: None,
        }
    }
}
