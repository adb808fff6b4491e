//! The hub's driver: what programs and lanes say goes into the machine, and what it wants is done.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use headwater_machine::{Endpoint, Input, Output};
use headwater_transport::courier::LaneId;
use headwater_units::{Duration, Time};
use tokio::sync::mpsc::{Receiver, UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use crate::blocks::Block;
use crate::hub::{FromLane, Hub, HubCommand, HubConfig, HubEvent, SessionId};
use crate::link::{self, Dialling, News, ToPeer};
use crate::outbox::{Outbox, ToProgram};
use crate::status::{AgentStatus, CoflowDemand};

/// Messages that are dealt with before the machine is asked.
const AT_ONCE: usize = 256;

/// Messages of sessions and of the agent itself to the hub.
#[derive(Debug)]
pub(crate) enum ToHub {
    /// A program has said who it is. Its outbox is kept until it is gone.
    Enter { session: SessionId, outbox: Outbox },
    /// For the machine.
    Command(HubCommand<Block>),
    /// Question for the running fetches.
    Demand(oneshot::Sender<Vec<CoflowDemand>>),
    /// How is it?
    Status(oneshot::Sender<AgentStatus>),
}

/// The hub, its lanes and the outboxes of its programs.
pub(crate) struct Driver {
    hub: Hub<Block>,
    began: Instant,
    dialling: Arc<Dialling>,
    news: UnboundedSender<News>,
    links: BTreeMap<LaneId, UnboundedSender<ToPeer>>,
    outboxes: BTreeMap<SessionId, Outbox>,
}

impl Driver {
    /// # Errors
    /// The limits make no sense.
    pub(crate) fn new(
        config: HubConfig,
        dialling: Arc<Dialling>,
    ) -> Result<(Driver, UnboundedReceiver<News>), headwater_policy::PlanError> {
        let (news, heard) = unbounded_channel();
        let (links, outboxes) = (BTreeMap::new(), BTreeMap::new());
        Ok((Driver { hub: Hub::new(config)?, began: now(), dialling, news, links, outboxes }, heard))
    }

    /// Runs until nobody can tell it anything.
    pub(crate) async fn run(mut self, mut told: Receiver<ToHub>, mut news: UnboundedReceiver<News>) {
        // Of a hub that wants nothing, nothing is asked for a long time.
        let long = Duration::from_secs(3600);
        loop {
            let wake = self.drive().unwrap_or_else(|| self.time() + long);
            tokio::select! {
                biased;
                Some(it) = news.recv() => {
                    self.hear(it);
                    for it in std::iter::from_fn(|| news.try_recv().ok()).take(AT_ONCE) {
                        self.hear(it);
                    }
                }
                it = told.recv() => {
                    let Some(it) = it else { return };
                    self.told(it);
                    for it in std::iter::from_fn(|| told.try_recv().ok()).take(AT_ONCE) {
                        self.told(it);
                    }
                }
                () = sleep_until(self.instant(wake)) => {}
            }
        }
    }

    fn time(&self) -> Time {
        let nanos = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Time::ZERO + Duration::from_nanos(nanos)
    }

    fn instant(&self, at: Time) -> Instant {
        self.began + std::time::Duration::from_nanos(at.as_nanos())
    }

    fn tell(&mut self, command: HubCommand<Block>) {
        let now = self.time();
        self.hub.handle(now, Input::Command(command));
    }

    /// Does what the hub wants; when it is to be asked again.
    fn drive(&mut self) -> Option<Time> {
        loop {
            match self.hub.poll(self.time()) {
                Output::Transmit(_) => unreachable!("an agent sends no packets itself"),
                Output::Event(event) => self.act(event),
                Output::Wake(at) => return at,
            }
        }
    }

    fn act(&mut self, event: HubEvent<Block>) {
        match event {
            HubEvent::Say { session, frame } => {
                if let Some(outbox) = self.outboxes.get(&session) {
                    outbox.say(frame);
                }
            }
            HubEvent::Data { session, flow, name, offset, block } => {
                let length = block.len() as u64;
                let outbox = self.outboxes.get(&session);
                if !outbox.is_some_and(|it| it.put(ToProgram::Data { flow, name, offset, block })) {
                    // The program is gone, and its session has not said so yet.
                    self.tell(HubCommand::Drained(vec![(flow, length)]));
                }
            }
            HubEvent::Dial { lane, epoch } => {
                let link = link::start(lane, epoch, self.dialling.clone(), self.news.clone());
                self.links.insert(lane, link);
            }
            HubEvent::Send { lane, epoch, frame } => {
                if let Some(link) = self.links.get(&lane) {
                    // A link ends only when this end is dropped.
                    let _ = link.send(ToPeer { epoch, frame });
                }
            }
            HubEvent::HangUp(lane) => drop(self.links.remove(&lane)),
        }
    }

    fn hear(&mut self, News { lane, epoch, what }: News) {
        if let FromLane::Down(reason) = &what {
            tracing::debug!(peer = %lane.pair.peer, reason, "a lane is down");
        }
        self.tell(HubCommand::Lane { lane, epoch, what });
    }

    fn told(&mut self, it: ToHub) {
        match it {
            ToHub::Enter { session, outbox } => drop(self.outboxes.insert(session, outbox)),
            ToHub::Command(command) => {
                if let HubCommand::Gone { session } = &command {
                    self.outboxes.remove(session);
                }
                self.tell(command);
            }
            ToHub::Demand(answer) => drop(answer.send(self.hub.demand())),
            ToHub::Status(answer) => drop(answer.send(self.status())),
        }
    }

    fn status(&self) -> AgentStatus {
        let status = self.hub.status(self.time(), |node| self.dialling.peers.name_of(node));
        AgentStatus { bytes_received: self.dialling.received.load(Ordering::Relaxed), ..status }
    }
}

#[allow(clippy::disallowed_methods)] // This is the machine's driver.
fn now() -> Instant {
    Instant::now()
}
