//! A whole switch as a machine with two verbs.
//!
//! `handle` takes a frame in; after it, `poll` until it names a wake time. `poll` says which frame leaves by which port and
//! when its last bit does, so a driver that wakes late still learns the true times. There is no other door for frames.
//!
//! A frame that a plain port takes is handed out at once, with a departure that may lie ahead: one event per frame is
//! enough for a simulator. A driver that cannot hold a frame until then says so once ([`Switch::hold_frames`]) and gets
//! every frame when it is due.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use headwater_units::Time;
use thiserror::Error;

use crate::{
    Egress, Forwarding, Frame, Offered, Passed, Port, PortConfig, PortError, PortIndex, SwitchStats,
};

/// Output of a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwitchOutput<F> {
    /// A frame leaves.
    Transmit {
        /// By this port.
        port: PortIndex,
        /// Its last bit, then; in the future only if the port is [plain](Port::is_plain).
        at: Time,
        /// The frame.
        frame: F,
    },
    /// A frame is gone, and was counted.
    Dropped {
        /// The port that had no room or went down; none if it had nowhere to go.
        port: Option<PortIndex>,
        /// The frame.
        frame: F,
    },
    /// Nothing more before this time, or before the next frame comes in.
    Wake(Option<Time>),
}

/// A switch cannot be set up so.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SwitchError {
    /// More ports than can be numbered.
    #[error("{0} ports are more than the {max} that can be numbered", max = u16::MAX)]
    TooManyPorts(usize),
    /// One port is wrong.
    #[error("port {port}: {error}")]
    Port {
        /// The port.
        port: PortIndex,
        /// The reason.
        error: PortError,
    },
}

/// Ports and the table that leads to them.
#[derive(Clone, Debug)]
pub struct Switch<F> {
    ports: Vec<Port<F>>,
    forwarding: Forwarding,
    /// Said at the next poll, before what is due.
    outbox: VecDeque<SwitchOutput<F>>,
    due: Due,
    stats: SwitchStats,
}

/// When each port has its next frame.
#[derive(Clone, Debug)]
struct Due {
    /// One entry per change; those that no longer agree with `of_port` are stale.
    order: BinaryHeap<Reverse<(Time, PortIndex)>>,
    of_port: Vec<Option<Time>>,
    /// Ports that were lent out, each once, and must be asked again.
    lent: Vec<PortIndex>,
    is_lent: Vec<bool>,
}

impl<F: Frame> Switch<F> {
    /// An empty switch with these ports, numbered from zero, and this table.
    ///
    /// A route to a port that is not there leads nowhere.
    ///
    /// # Errors
    /// See [`SwitchError`].
    pub fn new(ports: Vec<PortConfig>, forwarding: Forwarding) -> Result<Self, SwitchError> {
        let count = ports.len();
        // The last index means "no port".
        if count > usize::from(u16::MAX) {
            return Err(SwitchError::TooManyPorts(count));
        }
        let ports = ports.into_iter().enumerate().map(|(index, config)| {
            Port::new(config).map_err(|error| SwitchError::Port { port: PortIndex(index as u16), error })
        });
        Ok(Switch {
            ports: ports.collect::<Result<_, _>>()?,
            forwarding,
            outbox: VecDeque::new(),
            due: Due {
                order: BinaryHeap::new(),
                of_port: vec![None; count],
                lent: Vec::new(),
                is_lent: vec![false; count],
            },
            stats: SwitchStats::default(),
        })
    }

    /// From now on no frame is handed out before its last bit has left: every port takes the general way.
    pub fn hold_frames(&mut self) {
        for port in &mut self.ports {
            port.make_plain(false);
        }
    }

    /// Takes in a frame that has wholly arrived by port `ingress`; [`PortIndex::OWN`] if the device itself sends it.
    pub fn handle(&mut self, now: Time, ingress: PortIndex, frame: F) {
        self.stats.frames_in += 1;
        let Switch { ports, forwarding, outbox, due, stats } = self;
        match forwarding.egress(ingress, frame.destination(), frame.flow_hash()) {
            Egress::One(port) => offer(ports, outbox, due, stats, now, port, frame),
            Egress::Copies(copies) => {
                let (last, others) = copies.split_last().expect("copies go to at least one port");
                stats.copies += others.len() as u64;
                for &port in others {
                    offer(ports, outbox, due, stats, now, port, frame.clone());
                }
                offer(ports, outbox, due, stats, now, *last, frame);
            }
            Egress::None => {
                stats.unroutable += 1;
                outbox.push_back(SwitchOutput::Dropped { port: None, frame });
            }
        }
    }

    /// The next thing to do or know; ask again until it is [`SwitchOutput::Wake`].
    ///
    /// Frames due by `now` come in the order of their departures, ports in order where these are equal.
    pub fn poll(&mut self, now: Time) -> SwitchOutput<F> {
        if let Some(output) = self.outbox.pop_front() {
            return output;
        }
        while let Some(port) = self.due.lent.pop() {
            self.due.is_lent[port.index()] = false;
            self.due.set(port, self.ports[port.index()].next_departure());
        }
        match self.due.first() {
            Some((at, port)) if at <= now => {
                let from = &mut self.ports[port.index()];
                let (at, frame) = from.dequeue(now).expect("a port that is due has a frame");
                self.due.set(port, from.next_departure());
                SwitchOutput::Transmit { port, at, frame }
            }
            next => SwitchOutput::Wake(next.map(|it| it.0)),
        }
    }

    /// Takes a link down or up again. Down: the port is left out of every choice, what it has not sent by `now` is dropped,
    /// and of what a plain port has already handed out the driver drops whatever was to leave after `now`.
    ///
    /// Says how many frames were handed out so and are counted as dropped.
    ///
    /// # Panics
    /// If there is no such port.
    pub fn set_port_up(&mut self, now: Time, port: PortIndex, up: bool) -> u64 {
        self.forwarding.set_port_up(port, up);
        if up {
            return 0;
        }
        let cleared = self.ports[port.index()].clear(now);
        self.due.set(port, self.ports[port.index()].next_departure());
        // The last departures are taken back; those not even told yet are at the outbox's end.
        let mut handed_out = cleared.promised;
        for output in self.outbox.iter_mut().rev() {
            if handed_out > 0
                && let SwitchOutput::Transmit { port: by, frame, .. } = output
                && *by == port
            {
                let frame = frame.clone();
                *output = SwitchOutput::Dropped { port: Some(port), frame };
                handed_out -= 1;
            }
        }
        let dropped = cleared.frames.into_iter();
        self.outbox.extend(dropped.map(|frame| SwitchOutput::Dropped { port: Some(port), frame }));
        handed_out
    }

    /// How many ports there are.
    pub fn port_count(&self) -> usize {
        self.ports.len()
    }
    /// A port, to look at.
    ///
    /// # Panics
    /// If there is no such port.
    pub fn port(&self, port: PortIndex) -> &Port<F> {
        &self.ports[port.index()]
    }
    /// A port, to change; poll afterwards.
    ///
    /// # Panics
    /// If there is no such port.
    pub fn port_mut(&mut self, port: PortIndex) -> &mut Port<F> {
        self.due.lend(port);
        &mut self.ports[port.index()]
    }
    /// The table.
    pub fn forwarding(&self) -> &Forwarding {
        &self.forwarding
    }
    /// The table, to change routes and choice; for links see [`Switch::set_port_up`].
    pub fn forwarding_mut(&mut self) -> &mut Forwarding {
        &mut self.forwarding
    }
    /// Counters outside the ports.
    pub fn stats(&self) -> SwitchStats {
        self.stats
    }
}

/// Offers a frame to a port the way that the port takes it.
fn offer<F: Frame>(
    ports: &mut [Port<F>],
    outbox: &mut VecDeque<SwitchOutput<F>>,
    due: &mut Due,
    stats: &mut SwitchStats,
    now: Time,
    index: PortIndex,
    mut frame: F,
) {
    let Some(port) = ports.get_mut(index.index()) else {
        stats.unroutable += 1;
        outbox.push_back(SwitchOutput::Dropped { port: None, frame });
        return;
    };
    if port.has_allocator()
        && let Some(offer) = port.allocate(now, frame.len(), frame.claim().as_ref())
    {
        frame.lower_offer(offer);
    }
    outbox.extend(if port.is_plain() {
        Some(match port.pass(now, &mut frame) {
            Passed::Leaves(at) => SwitchOutput::Transmit { port: index, at, frame },
            Passed::Dropped => SwitchOutput::Dropped { port: Some(index), frame },
        })
    } else {
        let offered = port.enqueue(now, frame);
        due.set(index, port.next_departure());
        match offered {
            Offered::Queued => None,
            Offered::Dropped(frame) => Some(SwitchOutput::Dropped { port: Some(index), frame }),
        }
    });
}

impl Due {
    fn set(&mut self, port: PortIndex, at: Option<Time>) {
        let known = &mut self.of_port[port.index()];
        if *known != at {
            *known = at;
            self.order.extend(at.map(|at| Reverse((at, port))));
            // Each port has one entry that counts. Links that flap pile up stale ones far ahead, which no poll comes to.
            if self.order.len() > 2 * self.of_port.len() + 16 {
                self.order = (0..).zip(&self.of_port).filter_map(entry).collect();
            }
        }
    }
    fn first(&mut self) -> Option<(Time, PortIndex)> {
        while let Some(&Reverse((at, port))) = self.order.peek() {
            if self.of_port[port.index()] == Some(at) {
                return Some((at, port));
            }
            self.order.pop();
        }
        None
    }
    fn lend(&mut self, port: PortIndex) {
        if !std::mem::replace(&mut self.is_lent[port.index()], true) {
            self.lent.push(port);
        }
    }
}

fn entry((port, at): (u16, &Option<Time>)) -> Option<Reverse<(Time, PortIndex)>> {
    at.map(|at| Reverse((at, PortIndex(port))))
}
