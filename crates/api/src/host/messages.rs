//! Messages over links and within the process, and their dispatch.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

use headwater_control::{Link, Unread};
use headwater_controller::NotForgotten;
use headwater_machine::Taker;
use headwater_node as node;
use headwater_udp::GroupAddr;
use headwater_units::{Duration, PathId};
use headwater_wire::{
    CoflowRank, Control, GroupQuestion, NodeInfo, ToController, ToNode, ToSource, network_of, resolve_address,
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::addresses::{THIS_MACHINE, introduced};
use super::query_door::{Asker, asker};
use super::{Host, LOCAL};
use crate::ops::rounded;
use crate::outbox::Outbox;
use crate::query::{Answer, MOST_ADDRESSES, Query, Role};
use crate::report::address_of;
use headwater_driver::NodeEvent;

/// Answers up to this length take no part of the memory for answers.
const SMALL_ANSWER: usize = 16 << 10;
/// Answers that were made and are not read yet take no more memory than this, KiB; one that is longer alone does.
const ANSWERS_KIB: usize = 64 << 10;
/// Answers that may wait for their memory at the same time; a peer that asks for more is refused at once.
const WAITING_AT_ONCE: usize = 16;
/// Maximum time that an answer waits for memory.
const ROOM_FOR_AN_ANSWER: std::time::Duration = std::time::Duration::from_secs(2);

/// Bounds the memory of answers, however many peers ask and however slowly they read.
pub(super) struct Answers {
    waiting: Semaphore,
    held: Semaphore,
}

impl Default for Answers {
    fn default() -> Self {
        Answers { waiting: Semaphore::new(WAITING_AT_ONCE), held: Semaphore::new(ANSWERS_KIB) }
    }
}

/// Whoever takes places of tables by what comes over a link.
pub(super) fn taker(link: &Link) -> Taker {
    Taker { node: link.peer(), network: Some(network_of(link.remote_addr().ip())) }
}

impl Host {
    /// The machines of this process and its own controller, without a network between them.
    pub(super) fn attach_local(&self) {
        let Some(controller) = &self.inner.controller else { return };
        let (out, mut commands) = Outbox::here();
        controller.attach(LOCAL, self.id(), None, out);
        if self.inner.node.is_none() {
            return;
        }
        // A node without a listener is not listed, but its controller must know where its own machines are. Where they are bound to
        // one address, that is their own for sure; where to all, each peer knows one (see `addresses`).
        let info = NodeInfo {
            room: self.room(SocketAddr::from(([127, 0, 0, 1], 1))),
            rtt: Some(Duration::ZERO),
            seen: self.data_address().map(|at| at.ip()).filter(|ip| !ip.is_unspecified()),
            ..self.template().clone()
        };
        controller.deliver(LOCAL, ToController::Hello(info), None);
        let host = self.clone();
        self.spawn(async move {
            while let Some(mut control) = commands.recv().await {
                control.resolve(THIS_MACHINE);
                host.hand_in(LOCAL, control, None);
            }
        });
    }

    /// Dispatches the events of the data thread.
    pub(super) async fn send_out(self, mut events: UnboundedReceiver<NodeEvent>) {
        let mut sending = BTreeMap::new();
        while let Some(event) = events.recv().await {
            match event {
                NodeEvent::Sending { flow, object, receiver } => {
                    #[allow(clippy::disallowed_methods)] // The log says how long it took.
                    sending.insert(flow, (object, receiver, Instant::now()));
                    let receiver = receiver.short();
                    tracing::info!(%flow, %object, receiver, "sending");
                }
                NodeEvent::Sent(flow) => {
                    if let Some((object, receiver, began)) = sending.remove(&flow) {
                        let (receiver, seconds) = (receiver.short(), rounded(began.elapsed().as_secs_f64()));
                        tracing::info!(%flow, %object, receiver, seconds, "sent");
                    }
                }
                NodeEvent::Unreadable(object, how) => self.spoiled(object, how),
                NodeEvent::Control(path, control) => self.say(path, control),
            }
        }
    }

    /// Says something by a path; nobody hears it where there is no link now.
    pub(crate) fn say(&self, path: PathId, control: impl Into<Control>) {
        let control = control.into();
        if path != LOCAL {
            if let Some(peer) = self.state().peers.get(&path) {
                peer.say(control);
            }
        } else if let (Some(controller), Control::Controller(word)) = (&self.inner.controller, control) {
            controller.deliver(LOCAL, word, None);
        }
    }

    /// From now on hands over invitations to casts, and by which path they came.
    pub(crate) fn hear_invitations(&self) -> UnboundedReceiver<(PathId, ToNode)> {
        let (to, heard) = unbounded_channel();
        self.state().on_invitations = Some(to);
        heard
    }

    /// From now on hands over what is said of casts that this process has asked for, and by which path.
    pub(crate) fn hear_casts(&self) -> UnboundedReceiver<(PathId, ToNode)> {
        let (to, heard) = unbounded_channel();
        let on_casts = &mut self.state().on_casts;
        on_casts.retain(|to| !to.is_closed());
        on_casts.push(to);
        heard
    }

    /// From now on hands over the order of coflows that agents fetch.
    pub(crate) fn hear_ranks(&self) -> UnboundedReceiver<Vec<CoflowRank>> {
        let (to, heard) = unbounded_channel();
        self.state().on_ranks = Some(to);
        heard
    }

    /// Tells everybody that this node fetches what it is invited to ([`Host::hear_invitations`]).
    pub(crate) fn keeps(&self) {
        let mut state = self.state();
        state.keeps = true;
        for peer in state.peers.values() {
            peer.say(ToController::Keeps);
        }
        drop(state);
        self.say(LOCAL, ToController::Keeps);
    }

    /// Handles a message to this process, but not to its own controller, from a controller or a node.
    fn hand_in(&self, path: PathId, control: Control, unread: Option<Unread>) {
        match control {
            Control::Node(ToNode::NameStands(stands)) => self.name_stands(path, *stands),
            Control::Node(ToNode::NameRefused { claim, why }) => self.name_refused(path, claim, why),
            Control::Node(ToNode::ProbeGroup(question)) => {
                drop(tokio::spawn(self.clone().probe_group(path, *question)));
            }
            Control::Node(word @ (ToNode::Fetch(_) | ToNode::StopFetch { .. })) => {
                if let Some(to) = &self.state().on_invitations {
                    let _ = to.send((path, word));
                }
            }
            Control::Node(
                word @ (ToNode::Casting(_)
                | ToNode::CastRefused { .. }
                | ToNode::StandingCastChanged { .. }
                | ToNode::CastAtRates { .. }),
            ) => {
                for to in &self.state().on_casts {
                    let _ = to.send((path, word.clone()));
                }
            }
            Control::Node(ToNode::CoflowRanks(ranks)) => {
                if let Some(to) = &self.state().on_ranks {
                    let _ = to.send(ranks);
                }
            }
            Control::Node(ToNode::InstallTree(_) | ToNode::RemoveTree { .. } | ToNode::Signal(_))
            | Control::Source(_)
            | Control::Receiver(_) => {
                if let Some(node) = &self.inner.node {
                    node.control(path, control);
                }
            }
            Control::Controller(word) => {
                if let Some(controller) = &self.inner.controller {
                    controller.deliver(path, word, unread);
                }
            }
        }
    }

    /// Finds out for a controller who hears a group.
    async fn probe_group(self, path: PathId, question: GroupQuestion) {
        let flow = question.asked.flow;
        let heard = match (GroupAddr::towards(question.at, question.towards), &self.inner.node) {
            (Ok(group), Some(node)) => node.probe_group(group, question).await,
            (Err(error), _) => {
                tracing::info!(%error, "a group cannot be asked");
                Vec::new()
            }
            (Ok(_), None) => Vec::new(),
        };
        self.say(path, ToController::GroupProbed { asked: flow, heard });
    }

    /// Something came over a link. What its other end may not say is counted, and nothing else becomes of it.
    pub(super) fn on_control(
        &self,
        path: PathId,
        link: &Link,
        role: node::Role,
        (control, unread): (Control, Unread),
    ) {
        let peer = node::Peer { role, node: link.peer(), at: link.remote_addr() };
        if let Err(refused) = peer.may_say(&control) {
            tracing::debug!(peer = %link.peer(), %refused, "message refused");
            return self.inner.ops.refuse_message();
        }
        match control {
            Control::Controller(word) => self.on_word(path, link, word, Some(unread)),
            mut order => {
                order.resolve(peer.at);
                peer.narrow(&mut order);
                match (role, order, &self.inner.node) {
                    (node::Role::Caller, Control::Source(ToSource::Push(push)), Some(node)) => {
                        node.push_of_caller(path, taker(link), push);
                    }
                    (_, order, _) => self.hand_in(path, order, Some(unread)),
                }
            }
        }
    }

    /// Hands a message of a node or an asker to the controller of this process.
    pub(super) fn on_word(&self, path: PathId, link: &Link, word: ToController, unread: Option<Unread>) {
        let from = link.remote_addr();
        let word = match word {
            ToController::Hello(info) => {
                let info = introduced(info, link.peer(), from);
                if let Some(listen) = info.listen {
                    let label = resolve_address(listen, from).to_string();
                    self.state().labels.note(taker(link), label);
                }
                ToController::Hello(info)
            }
            ToController::Hold(holding) => {
                self.state().held_by.note(holding.object, path, taker(link));
                ToController::Hold(holding)
            }
            other => other,
        };
        self.hand_in(path, Control::Controller(word), unread);
    }

    fn role(&self) -> Role {
        Role {
            controls: self.inner.controller.is_some(),
            sends: self.inner.node.is_some(),
            controller: self.state().controller_at.clone(),
        }
    }

    /// An answer, and its part of the memory that answers may take. `None`: there is no more for now.
    pub(super) async fn make_answer(
        &self,
        link: &Link,
        query: Query,
    ) -> Option<(Vec<u8>, Option<SemaphorePermit<'_>>)> {
        let Answers { waiting, held } = &self.inner.answers;
        let answer = self.answer(link, query).await;
        let bytes = postcard::to_stdvec(&answer).expect("an answer can be written");
        if bytes.len() <= SMALL_ANSWER {
            return Some((bytes, None));
        }
        let _turn = waiting.try_acquire().ok()?;
        let kib = bytes.len().div_ceil(1024).min(ANSWERS_KIB) as u32;
        let held = tokio::time::timeout(ROOM_FOR_AN_ANSWER, held.acquire_many(kib)).await.ok()?.ok()?;
        Some((bytes, Some(held)))
    }

    async fn answer(&self, link: &Link, query: Query) -> Answer {
        let from = match asker(&query) {
            Asker::Anybody => None,
            Asker::Operator => Some(self.origin(link)),
        };
        match query {
            Query::Holdings if self.inner.node.is_some() => {
                // A process that is about to stop has nothing for peers that come now.
                let leaving = self.is_leaving();
                let holdings = if leaving { Vec::new() } else { self.holdings() };
                let names = if leaving { Vec::new() } else { self.namings() };
                let (info, spoiled) = (Box::new(self.info_for(link)), self.spoiled_holdings());
                Answer::Holdings { info, holdings, names, spoiled }
            }
            Query::Holdings => Answer::Unknown,
            Query::Hashes { object } => self.tell_hashes(object).await,
            Query::HashesOrWhere { object, in_vain } => {
                self.tell_hashes_or_where(link.peer(), object, in_vain).await
            }
            Query::View => Answer::view(self.own_report(Some(link)).await.as_ref()),
            Query::Addresses { of } => match &self.inner.controller {
                Some(controller) => {
                    let here = SocketAddr::new(self.own_ip(Some(link)), 0);
                    let of = of.into_iter().take(MOST_ADDRESSES).collect();
                    let infos = controller.infos(of).await.into_iter();
                    Answer::Addresses(infos.map(|info| (info.node, address_of(&info, here))).collect())
                }
                None => Answer::Unknown,
            },
            Query::Status => Answer::view(self.own_status(link).await.as_ref()),
            Query::DataPath => Answer::view(self.data_path().as_ref()),
            Query::Role => Answer::Role(self.role()),
            Query::Forget { node } => match (&self.inner.controller, from) {
                (Some(controller), Some(from)) => {
                    let forgetting = controller.forget(node, from).await;
                    if forgetting == Some(Err(NotForgotten::NotFromThere)) {
                        self.inner.ops.refuse_message();
                    }
                    forgetting.map_or(Answer::Unknown, Answer::Forgetting)
                }
                _ => Answer::Unknown,
            },
        }
    }
}
