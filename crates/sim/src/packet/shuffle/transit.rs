//! Frames on their way, and messages beside them.

use headwater_machine::Packet;
use headwater_switch::Frame;
use headwater_units::{Bytes, Duration, Time};
use headwater_wire::Body;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::super::Event;
use super::super::agenda::Agenda;
use super::super::delivery::hash;
use super::super::frame::{Bodies, SimFrame};
use super::super::network::{Ground, Network};
use super::super::setup::{Jitter, SetupError};
use super::connection::Connection;
use super::setup::ShuffleSetup;

pub(super) struct Transit {
    pub(super) agenda: Agenda<Event>,
    pub(super) network: Network,
    bodies: Bodies,
    data: u32,
    ack: u32,
    /// Whether data has one of the ordered classes.
    has_classes: bool,
    jitter: Duration,
    rng: ChaCha8Rng,
    /// By host: when its last packet leaves its machines.
    launched: Vec<Time>,
}

impl Transit {
    pub(super) fn new(setup: &ShuffleSetup) -> Result<Self, SetupError> {
        let ground = Ground {
            topology: &setup.topology,
            routes: &setup.routes,
            port: &*setup.port,
            choice: &*setup.choice,
            on_trees: false,
            tallied: false,
            seed: setup.seed,
        };
        let rate = |link| (setup.port)(link, true).rate;
        let slowest = setup.topology.hosts().iter().filter_map(|host| {
            let links = setup.topology.fabric().leaving(*host);
            links.iter().map(|link| rate(*link)).min()
        });
        let packet = slowest.min().map_or(Duration::ZERO, |rate| setup.data / rate);
        Ok(Transit {
            agenda: Agenda::new(),
            network: Network::new(&ground)?,
            bodies: Bodies::default(),
            data: setup.data.get() as u32,
            ack: setup.ack.get() as u32,
            has_classes: setup.classes.count > 1,
            jitter: match setup.jitter {
                Jitter::None => Duration::ZERO,
                Jitter::UpTo(most) => most,
                Jitter::PacketOnPath => packet,
            },
            rng: ChaCha8Rng::seed_from_u64(setup.seed ^ 0x6a69_7474_6572),
            launched: vec![Time::ZERO; setup.topology.hosts().len()],
        })
    }

    /// A packet leaves one end of a connection.
    pub(super) fn send(&mut self, now: Time, connection: &Connection, packet: Packet) {
        let is_data = matches!(packet.datagram.body, Body::Symbol(_));
        let (here, there) = match is_data {
            true => (connection.from, connection.to),
            false => (connection.to, connection.from),
        };
        let (to, flow) = (packet.path.0, packet.datagram.flow.0);
        let (class, ecn) = (packet.datagram.class, packet.ecn);
        let body = self.bodies.put(packet, to);
        let len = if is_data { self.data } else { self.ack };
        let hash = connection.path.unwrap_or_else(|| hash(flow, here, there));
        let mut frame = SimFrame::new(body, there, len, class, ecn).with_hash(hash);
        if is_data {
            frame = frame.whole();
            if self.has_classes {
                frame = frame.ordered(connection.class);
            }
        }
        let at = self.hold_back(now, here);
        self.network.launch(at, here, frame, &mut self.agenda, &mut self.bodies);
    }

    /// When a packet leaves its host's machines: later by a random part of the jitter, but never before an earlier one.
    fn hold_back(&mut self, now: Time, host: u32) -> Time {
        if self.jitter == Duration::ZERO {
            return now;
        }
        let drawn = Duration::from_nanos(self.rng.random_range(0..=self.jitter.as_nanos()));
        let last = &mut self.launched[host as usize];
        *last = (*last).max(now + drawn);
        *last
    }

    /// A frame has crossed a link; the packet, if it has come to its host.
    pub(super) fn arrive(&mut self, now: Time, link: u32, frame: SimFrame) -> Option<Packet> {
        let Transit { network, agenda, bodies, .. } = self;
        network
            .arrive(now, link, frame, agenda, bodies)
            .then(|| bodies.take(frame.body(), frame.ecn(), !frame.is_whole()))
    }

    /// The departure event of a link has come; a frame that has crossed it, if one has.
    pub(super) fn serve(&mut self, now: Time, link: u32) -> Option<SimFrame> {
        self.network.serve_due(now, link, &mut self.agenda, &mut self.bodies)
    }

    /// Bytes of a frame of data on the line.
    pub(super) fn data(&self) -> Bytes {
        Bytes::new(self.data.into())
    }
}
