//! A fetch while it runs: the machine's events are answered until it is over.

use std::collections::{BTreeMap, VecDeque};
use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use headwater_driver::{FetchEvent, monotonic_nanos};
use headwater_store::StoreError;
use headwater_transport::ReceiverFailure;
use headwater_transport::push::receiver::ReceiverStats;
use headwater_units::{Bytes, FetchId, FlowId, NodeId, ObjectId, PathId};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::MissedTickBehavior;

use super::{Arrivals, Fetch, Fetched, Follower, label};
use crate::errors::{GivenUp, QuietSource};
use crate::host::Host;
use crate::{AppError, Shutdown};

/// How a fetch ended: its counters, and when the last block was kept, nanoseconds of CLOCK_MONOTONIC.
type Over = Result<(Box<ReceiverStats>, u64), AppError>;

/// Number of waiting blocks from which on decoder, hash or disk hold a fetch up.
const MANY_BEHIND: u32 = 8;

/// A fetch that runs.
pub(super) struct Running<'a> {
    fetch: &'a Fetch,
    host: &'a Host,
    controller: Option<PathId>,
    id: FetchId,
    pub(super) events: UnboundedReceiver<FetchEvent>,
    /// Events that came while the object was opened.
    early: VecDeque<FetchEvent>,
    pub(super) open: Option<Open>,
    /// Sources that are to send.
    sources: BTreeMap<FlowId, (NodeId, Vec<SocketAddr>)>,
    broken: Option<StoreError>,
    cancelled: bool,
    /// How often it was looked at, and how often it was held up.
    looks: (u32, u32),
}

impl<'a> Running<'a> {
    pub(super) fn new(
        fetch: &'a Fetch,
        host: &'a Host,
        controller: Option<PathId>,
        (id, events): (FetchId, UnboundedReceiver<FetchEvent>),
        open: Option<Open>,
    ) -> Self {
        let (early, sources, looks) = Default::default();
        Running {
            fetch,
            host,
            controller,
            id,
            events,
            early,
            open,
            sources,
            broken: None,
            cancelled: false,
            looks,
        }
    }

    /// Blocks had to wait for decoder, hash or disk most of the time.
    pub(super) fn was_held_up(&self) -> bool {
        let (looks, held_up) = self.looks;
        held_up * 2 > looks
    }

    pub(super) async fn until_over(&mut self, shutdown: &Shutdown, follower: &mut dyn Follower) -> Over {
        let mut tick = tokio::time::interval(follower.interval());
        // On a busy machine, all that were missed would come at once.
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                event = next_of(&mut self.early, &mut self.events) => {
                    if let Some(over) = self.on_event(event, follower).await {
                        return over;
                    }
                }
                _ = tick.tick() => self.look(follower),
                given_up = moved(self.open.as_ref()), if !self.cancelled => match given_up {
                    true => self.cancel(),
                    false => self.host.node().go_on(self.id),
                },
                () = shutdown.wait(), if !self.cancelled => self.cancel(),
            }
        }
    }

    fn cancel(&mut self) {
        self.cancelled = true;
        self.host.node().cancel(self.id);
    }

    fn look(&mut self, follower: &mut dyn Follower) {
        if let Some(stats) = self.host.node().snapshot().receivers.get(&self.id) {
            self.looks.0 += 1;
            self.looks.1 += u32::from(stats.blocks_behind > MANY_BEHIND);
            follower.tick(stats);
        }
    }

    /// Answers an event. Says how the fetch has ended, if it has.
    async fn on_event(&mut self, event: Option<FetchEvent>, follower: &mut dyn Follower) -> Option<Over> {
        match event {
            Some(FetchEvent::Accepted { object, bytes, symbol_size }) => {
                return self.on_accepted((object, bytes), symbol_size, follower).await.err().map(Err);
            }
            Some(FetchEvent::Source { flow, node, at }) => _ = self.sources.insert(flow, (node, at)),
            Some(FetchEvent::SourceOver { flow }) => _ = self.sources.remove(&flow),
            Some(FetchEvent::Distrusted(node)) => {
                self.learn_labels([node]).await;
                follower.note(&format!(
                    "source {} sent bytes that are not the object's; nothing of it is taken any more",
                    label(self.host, node)
                ));
            }
            Some(FetchEvent::Broken(error)) => self.broken = Some(error),
            Some(FetchEvent::Done { stats, at_ns }) => return Some(Ok((stats, at_ns))),
            Some(FetchEvent::Failed(failure, stats)) => return Some(Err(self.why(failure, &stats).await)),
            Some(FetchEvent::Ended) | None => {
                let why = "the data thread has ended; see the log above".to_owned();
                return Some(Err(AppError::Failed(why)));
            }
        }
        None
    }

    /// A controller has accepted the request: the object is opened, and what is missing is fetched.
    async fn on_accepted(
        &mut self,
        (object, bytes): (ObjectId, Bytes),
        symbol_size: u16,
        follower: &mut dyn Follower,
    ) -> Result<(), AppError> {
        let fetch = self.fetch;
        if let Some(expected) = fetch.hash
            && expected != object
        {
            return Err(AppError::Verification(format!(
                "'{}' is {object} there, not {expected} as --hash demands; nothing was fetched",
                fetch.config.name
            )));
        }
        let opened = match &self.open {
            // Asked anew after the controller forgot: the file is still open.
            Some(open) if open.object == object => Ok(open.arrivals.clone()),
            _ => {
                let opening = fetch.open(self.host, self.controller, object, bytes, follower);
                unless_given_up(opening, &mut self.early, &mut self.events).await
            }
        };
        let arrivals = match opened {
            Ok(arrivals) => arrivals,
            // Why it was given up is the next event.
            Err(_) if self.early.iter().any(is_failure) => return Ok(()),
            Err(error) => return Err(error),
        };
        let (wanted, have) = (arrivals.wanted(), arrivals.have());
        match &mut self.open {
            Some(open) => {
                if symbol_size < open.symbol_size {
                    follower.note(&format!(
                        "a path carries shorter packets than its ends: going on with symbols of {symbol_size} bytes \
                         instead of {}",
                        open.symbol_size
                    ));
                }
                open.symbol_size = symbol_size;
            }
            None => self.open = Some(Open::of(object, symbol_size, arrivals.clone())),
        }
        self.host.node().start_fetch(self.id, wanted, have, arrivals);
        Ok(())
    }

    /// Asks the controller where sources are reached: a node that dialled in said so only to it.
    async fn learn_labels(&self, nodes: impl IntoIterator<Item = NodeId>) {
        if let Some(controller) = self.controller {
            self.host.learn_labels(controller, nodes).await;
        }
    }

    /// Why a fetch has failed, with what the user may do.
    async fn why(&mut self, failure: ReceiverFailure, stats: &ReceiverStats) -> AppError {
        self.learn_labels(self.sources.values().map(|(node, _)| *node)).await;
        if let Some(error) = self.broken.take() {
            return error.into();
        }
        let quiet = self.sources.iter().map(|(flow, (node, at))| {
            let counted = stats.flows.iter().find(|it| it.flow == *flow);
            QuietSource {
                node: *node,
                at: at.clone(),
                bytes: counted.map_or(Bytes::ZERO, |it| it.bytes),
                was_heard: counted.is_some_and(|it| it.symbols > 0),
            }
        });
        let open = self.open.as_ref();
        let given_up = GivenUp {
            what: &self.fetch.config.name,
            block: open.map_or(Bytes::ZERO, |open| open.arrivals.hashes().layout().block_bytes()),
            patience: self.fetch.config.patience,
            limit: self.fetch.config.limit,
            symbol_size: open.map(|open| open.symbol_size),
            sources: quiet.collect(),
            label: &|node| label(self.host, node),
        };
        AppError::of_failure(failure, &given_up)
    }
}

/// The next event, of those that were put aside first.
async fn next_of(
    early: &mut VecDeque<FetchEvent>,
    events: &mut UnboundedReceiver<FetchEvent>,
) -> Option<FetchEvent> {
    match early.pop_front() {
        Some(event) => Some(event),
        None => events.recv().await,
    }
}

fn is_failure(event: &FetchEvent) -> bool {
    matches!(event, FetchEvent::Failed(..) | FetchEvent::Ended)
}

/// Opens an object, unless it is given up meanwhile. Events meanwhile are put aside.
async fn unless_given_up(
    opening: impl Future<Output = Result<Arc<Arrivals>, AppError>>,
    early: &mut VecDeque<FetchEvent>,
    events: &mut UnboundedReceiver<FetchEvent>,
) -> Result<Arc<Arrivals>, AppError> {
    let mut opening = std::pin::pin!(opening);
    loop {
        tokio::select! {
            biased;
            opened = &mut opening => return opened,
            event = events.recv() => {
                let Some(event) = event else { return opening.await };
                let over = is_failure(&event);
                early.push_back(event);
                if over {
                    return Err(AppError::Failed("it was given up before it was opened".to_owned()));
                }
            }
        }
    }
}

/// An object whose place is open.
pub(super) struct Open {
    pub(super) object: ObjectId,
    pub(super) symbol_size: u16,
    pub(super) arrivals: Arc<Arrivals>,
    /// Bytes that were here before.
    pub(super) resumed: Bytes,
}

impl Open {
    pub(super) fn of(object: ObjectId, symbol_size: u16, arrivals: Arc<Arrivals>) -> Open {
        let layout = arrivals.hashes().layout();
        let resumed = arrivals.have().into_iter().map(|block| layout.len(block)).sum();
        Open { object, symbol_size, arrivals, resumed }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.arrivals.have().len() == self.arrivals.wanted().len()
    }

    /// Everything was here already.
    pub(super) fn without_asking(self) -> Fetched {
        let Open { object, symbol_size, arrivals, resumed } = self;
        Fetched {
            object,
            symbol_size,
            stats: ReceiverStats::default(),
            received_ns: monotonic_nanos(),
            arrivals,
            resumed,
            held_up: false,
            goodbye: tokio::spawn(async {}),
        }
    }
}

/// Waits until the consumer of the blocks has caught up (false), or wants no more (true).
async fn moved(open: Option<&Open>) -> bool {
    let Some(Open { arrivals, .. }) = open else { return pending().await };
    arrivals.moved.notified().await;
    arrivals.given_up.load(Ordering::Acquire)
}

/// A fetch that nobody waits for any more is ended, so that the sources stop.
pub(super) struct CancelOnDrop<'a> {
    pub(super) host: &'a Host,
    pub(super) id: FetchId,
    pub(super) armed: bool,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.host.node().cancel(self.id);
        }
    }
}
