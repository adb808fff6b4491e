//! Storms of the hub: lanes that break and peers that are away or lie, programs that stall, cancel and die, little memory. Whatever
//! happens, a program gets the right bytes in order and no more than it has room for, every flow ends, and no memory is left behind.
//!
//! A storm is its seed: `STORM=17` plays one alone, `STORMS=10000` plays 10,000.

mod peer;
mod program;

use std::collections::BTreeMap;

use headwater_machine::{Endpoint, Input, Output};
use headwater_policy::coflow::courier::Limits;
use headwater_testkit::Agenda;
use headwater_transport::courier::{CourierConfig, LaneId};
use headwater_units::{Bytes, Duration, FlowId, NodeId, Rank, Time};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{CoflowId, Fetch, FromLane, Hub, HubCommand, HubConfig, HubEvent, SessionId, Wanted};
use crate::fields::Name;
use crate::peer_frames::FromFetcher;
use peer::{Connection, Output as Held, Peer};
use program::{Fetched, Program};

const STORMS: u64 = 300;
const PATIENCE: Duration = Duration::from_secs(20);
const BLOCK: u64 = 4 << 10;
/// Flows that a user may have.
const QUOTA: usize = 12;

enum Happening {
    /// Something breaks, or somebody does something.
    Act,
    /// The hub wants to be asked.
    Wake,
    /// A connection's attempt is over.
    Dialled { lane: LaneId, epoch: u64 },
    /// A frame is at the peer.
    ToPeer { lane: LaneId, epoch: u64, frame: FromFetcher },
    /// News of a lane are at the hub.
    ToHub { lane: LaneId, epoch: u64, what: FromLane<Vec<u8>> },
    /// A program has read this many bytes.
    Written { flow: FlowId, bytes: u64 },
    /// The hub hears that a program is gone.
    Gone(SessionId),
}

struct Storm {
    seed: u64,
    rng: ChaCha8Rng,
    agenda: Agenda<Happening>,
    hub: Hub<Vec<u8>>,
    memory: u64,
    peers: BTreeMap<NodeId, Peer>,
    connections: BTreeMap<LaneId, Connection>,
    /// Since when each lane has had none, as the hub has heard.
    down_since: BTreeMap<LaneId, Time>,
    programs: BTreeMap<SessionId, Program>,
    is_calm: bool,
    resets: u64,
}

fn name(text: String) -> Name {
    Name::new(text).unwrap()
}

impl Storm {
    fn new(seed: u64) -> Storm {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let courier = CourierConfig {
            block: Bytes::new(BLOCK),
            pipeline: rng.random_range(1..9),
            classes: rng.random_range(1..3),
            ..CourierConfig::default()
        };
        let limits = Limits {
            max_num: rng.random_range(1..6),
            max_per_pair: Some(rng.random_range(1..4)),
            ..Limits::default()
        };
        let memory = rng.random_range(2..200) * BLOCK;
        let config = HubConfig {
            courier,
            limits,
            memory: Bytes::new(memory),
            flows_per_user: QUOTA,
            patience: PATIENCE,
        };
        let peers =
            (0..rng.random_range(1..5)).map(|n| (NodeId([n; 32]), Peer::new(n > 0 && rng.random_bool(0.25))));
        let peers = peers.collect();
        let programs =
            (0..rng.random_range(1..6)).map(|n| (SessionId(n), Program::new((n % 2) as u32))).collect();
        let mut agenda = Agenda::default();
        (0..400).for_each(|_| {
            agenda.at(Time::ZERO + Duration::from_millis(rng.random_range(0..8_000)), Happening::Act)
        });
        Storm {
            seed,
            rng,
            agenda,
            hub: Hub::new(config).unwrap(),
            memory,
            peers,
            connections: BTreeMap::new(),
            down_since: BTreeMap::new(),
            programs,
            is_calm: false,
            resets: 0,
        }
    }

    fn soon(&mut self, most_ms: u64) -> Duration {
        Duration::from_micros(self.rng.random_range(0..most_ms * 1_000))
    }

    // ---- the hub's driver

    fn tell(&mut self, command: HubCommand<Vec<u8>>) {
        self.hub.handle(self.agenda.now(), Input::Command(command));
        self.drive();
    }

    fn drive(&mut self) {
        loop {
            match self.hub.poll(self.agenda.now()) {
                Output::Event(event) => self.act_for_hub(event),
                Output::Transmit(packet) => panic!("{packet:?}"),
                Output::Wake(at) => {
                    at.into_iter().for_each(|at| self.agenda.at(at, Happening::Wake));
                    break;
                }
            }
        }
        assert!(self.hub.budget.used().get() <= self.memory);
    }

    fn act_for_hub(&mut self, event: HubEvent<Vec<u8>>) {
        match event {
            HubEvent::Say { session, frame } => {
                let user = self.programs[&session].user;
                let of_user = self.programs.values().filter(|it| it.user == user && !it.is_forgotten);
                // With the one that may be refused.
                let flows: usize = of_user.map(Program::count).sum();
                let program = self.programs.get_mut(&session).unwrap();
                let (down, now) = (&self.down_since, self.agenda.now());
                let was_away = |peer| {
                    down.iter().any(|(lane, since)| lane.pair.peer == peer && now.since(*since) >= PATIENCE)
                };
                program.hear(frame, &self.peers, was_away, flows > QUOTA);
            }
            HubEvent::Data { session, flow, name, offset, block } => {
                let program = self.programs.get_mut(&session).unwrap();
                let bytes = block.len() as u64;
                if !program.is_alive {
                    return self
                        .hub
                        .handle(self.agenda.now(), Input::Command(HubCommand::Drained(vec![(flow, bytes)])));
                }
                program.take(name, offset.get(), &block, &self.peers);
                let slow = if program.is_stalled && !self.is_calm { 3_000 } else { 30 };
                let span = self.soon(slow);
                self.agenda.after(span, Happening::Written { flow, bytes });
            }
            HubEvent::Dial { lane, epoch } => {
                assert!(self.connections.insert(lane, Connection::new(epoch)).is_none(), "dialled twice");
                let span = self.soon(20);
                self.agenda.after(span, Happening::Dialled { lane, epoch });
            }
            HubEvent::Send { lane, epoch, frame } => {
                let connection =
                    self.connections.get_mut(&lane).expect("a lane is dialled before it is used");
                assert!(epoch <= connection.epoch, "no connection of the future is known");
                if connection.epoch == epoch && !connection.is_up {
                    connection.waiting.push(frame);
                } else {
                    let at = connection.reaches_peer(self.agenda.now(), &mut self.rng);
                    self.agenda.at(at, Happening::ToPeer { lane, epoch, frame });
                }
            }
            HubEvent::HangUp(lane) => {
                self.connections.remove(&lane).expect("a lane is hung up once");
                self.down_since.remove(&lane);
                self.forget(lane);
            }
        }
    }

    /// Drops what is under way in a lane; that it broke is heard in any case.
    fn forget(&mut self, lane: LaneId) {
        self.agenda.retain(|it| match it {
            Happening::ToHub { what: FromLane::Down(_), .. } => true,
            Happening::Dialled { lane: of, .. }
            | Happening::ToPeer { lane: of, .. }
            | Happening::ToHub { lane: of, .. } => *of != lane,
            _ => true,
        });
    }

    // ---- lanes and peers

    fn dialled(&mut self, lane: LaneId, epoch: u64) {
        let is_away = self.peers[&lane.pair.peer].away_until > self.agenda.now();
        if is_away {
            return self.break_off(lane);
        }
        let Some(connection) = self.connections.get_mut(&lane).filter(|it| it.epoch == epoch) else { return };
        connection.is_up = true;
        for frame in std::mem::take(&mut connection.waiting) {
            let at = connection.reaches_peer(self.agenda.now(), &mut self.rng);
            self.agenda.at(at, Happening::ToPeer { lane, epoch, frame });
        }
    }

    /// A connection ends, or was never made; another is tried after a pause.
    fn break_off(&mut self, lane: LaneId) {
        self.forget(lane);
        let pause = self.soon(1_000);
        let Some(connection) = self.connections.get_mut(&lane) else { return };
        let epoch = connection.epoch;
        *connection = Connection::new(epoch + 1);
        self.resets += 1;
        // Whether the hub hears of it before or after it asks for more is chance.
        self.agenda.after(pause, Happening::Dialled { lane, epoch: epoch + 1 });
        self.agenda
            .after(pause / 2, Happening::ToHub { lane, epoch, what: FromLane::Down("broken".to_owned()) });
    }

    fn at_peer(&mut self, lane: LaneId, epoch: u64, frame: &FromFetcher) {
        let Some(connection) = self.connections.get_mut(&lane).filter(|it| it.epoch == epoch) else { return };
        let peer = &self.peers[&lane.pair.peer];
        let mut answers = peer.answer(connection, frame, &mut self.rng);
        if std::mem::take(&mut connection.is_silent) {
            answers.insert(0, FromLane::Up);
        }
        for what in answers {
            let at = connection.reaches_hub(self.agenda.now(), &mut self.rng);
            self.agenda.at(at, Happening::ToHub { lane, epoch, what });
        }
    }

    fn at_hub(&mut self, lane: LaneId, epoch: u64, what: FromLane<Vec<u8>>) {
        match &what {
            FromLane::Up => drop(self.down_since.remove(&lane)),
            FromLane::Down(_) => {
                self.down_since.entry(lane).or_insert(self.agenda.now());
            }
            FromLane::Frame(_) | FromLane::Block { .. } => {}
        }
        self.tell(HubCommand::Lane { lane, epoch, what });
    }

    // ---- what goes wrong, and what programs do

    fn any<K: Copy, V>(rng: &mut ChaCha8Rng, of: &BTreeMap<K, V>) -> Option<K> {
        let n = rng.random_range(0..of.len().max(1));
        of.keys().nth(n).copied()
    }

    fn act(&mut self) {
        let session = Self::any(&mut self.rng, &self.programs).unwrap();
        match self.rng.random_range(0..40) {
            0..=13 => self.fetch(session),
            14..=24 => self.grant(session),
            25..=26 => self.cancel(session),
            27 => {
                let program = self.programs.get_mut(&session).unwrap();
                program.is_stalled = !program.is_stalled;
            }
            28 if self.rng.random_bool(0.4) => self.kill(session),
            29..=33 => {
                if let Some(lane) = Self::any(&mut self.rng, &self.connections)
                    && self.connections[&lane].is_up
                {
                    self.break_off(lane);
                }
            }
            34..=35 => {
                let node = Self::any(&mut self.rng, &self.peers).unwrap();
                let span = if self.rng.random_bool(0.1) { 40_000 } else { 3_000 };
                let away = self.soon(span);
                self.peers.get_mut(&node).unwrap().away_until = self.agenda.now() + away;
                let lanes = self.connections.iter().filter(|(lane, it)| lane.pair.peer == node && it.is_up);
                let lanes: Vec<LaneId> = lanes.map(|it| *it.0).collect();
                lanes.into_iter().for_each(|lane| self.break_off(lane));
            }
            36..=37 => {
                let rank = |rng: &mut ChaCha8Rng| Rank::new(rng.random_range(0..6));
                let ranks = (0..4).map(|n| (coflow(n), rank(&mut self.rng))).collect();
                self.tell(HubCommand::Ranks(ranks));
            }
            _ => {}
        }
    }

    fn fetch(&mut self, session: SessionId) {
        let program = &self.programs[&session];
        if !program.is_alive {
            return;
        }
        let n = program.flows.len() as u64;
        // Now and then under a name that is in use.
        let name_of_flow = if n > 0 && self.rng.random_bool(0.05) { self.rng.random_range(0..n) } else { n };
        let again = program.flows.contains_key(&name_of_flow);
        let node = Self::any(&mut self.rng, &self.peers).unwrap();
        let peer = (again || self.rng.random_bool(0.97)).then_some(node);
        let held = Held::draw(self.seed, &mut self.rng);
        let credit = self.rng.random_range(0..=held.size);
        let coflow = coflow(self.rng.random_range(0..4));
        let wanted = Wanted {
            application: coflow.application,
            proof: crate::registry::proof(b"token"),
            coflow: coflow.number,
            host: name("host".to_owned()),
            output: name(held.to_string()),
            first: 0,
            count: 1,
        };
        let program = self.programs.get_mut(&session).unwrap();
        if again && !program.flows[&name_of_flow].has_ended {
            program.refused_names.push(name_of_flow);
        } else if again {
            return;
        } else {
            program.flows.insert(name_of_flow, Fetched::new(peer, held, credit));
        }
        let user = program.user;
        let fetch = Fetch { session, name: name_of_flow, user, peer, wanted, credit: Bytes::new(credit) };
        self.tell(HubCommand::Fetch(Box::new(fetch)));
    }

    fn grant(&mut self, session: SessionId) {
        let bytes = self.rng.random_range(1..20 * BLOCK);
        let program = self.programs.get_mut(&session).unwrap();
        let Some(name) = Self::any(&mut self.rng, &program.flows).filter(|_| program.is_alive) else {
            return;
        };
        program.flows.get_mut(&name).unwrap().credit += bytes;
        self.tell(HubCommand::Credit { session, name, bytes: Bytes::new(bytes) });
    }

    fn cancel(&mut self, session: SessionId) {
        let program = self.programs.get_mut(&session).unwrap();
        let Some(name) = Self::any(&mut self.rng, &program.flows).filter(|_| program.is_alive) else {
            return;
        };
        program.flows.get_mut(&name).unwrap().has_ended = true;
        self.tell(HubCommand::Cancel { session, name });
    }

    /// A program dies; another comes in its place.
    fn kill(&mut self, session: SessionId) {
        let program = self.programs.get_mut(&session).unwrap();
        if !std::mem::replace(&mut program.is_alive, false) {
            return;
        }
        let user = program.user;
        let span = self.soon(100);
        self.agenda.after(span, Happening::Gone(session));
        let next = SessionId(self.programs.len() as u64);
        self.programs.insert(next, Program::new(user));
    }

    // ---- time

    fn happen(&mut self, it: Happening) {
        match it {
            Happening::Act => self.act(),
            Happening::Wake => self.drive(),
            Happening::Dialled { lane, epoch } => self.dialled(lane, epoch),
            Happening::ToPeer { lane, epoch, frame } => self.at_peer(lane, epoch, &frame),
            Happening::ToHub { lane, epoch, what } => self.at_hub(lane, epoch, what),
            Happening::Written { flow, bytes } => self.tell(HubCommand::Drained(vec![(flow, bytes)])),
            Happening::Gone(session) => {
                self.programs.get_mut(&session).unwrap().is_forgotten = true;
                self.tell(HubCommand::Gone { session });
            }
        }
    }

    fn run_until(&mut self, end: Time) {
        while self.agenda.due().is_some_and(|at| at <= end) {
            let it = self.agenda.pop().unwrap();
            self.happen(it);
        }
        self.agenda.wait_until(end);
    }

    /// Everybody is here and reads; flows from peers that lie are given up.
    fn calm(&mut self) {
        self.is_calm = true;
        let now = self.agenda.now();
        self.peers.values_mut().for_each(|peer| peer.away_until = now);
        for (session, flows) in self.programs.iter().map(|(id, it)| (*id, it.open())).collect::<Vec<_>>() {
            for name in flows {
                let flow = self.programs.get_mut(&session).unwrap().flows.get_mut(&name).unwrap();
                if flow.peer.is_some_and(|peer| self.peers[&peer].lies) {
                    flow.has_ended = true;
                    self.tell(HubCommand::Cancel { session, name });
                } else {
                    flow.credit += flow.held.size;
                    let bytes = Bytes::new(flow.held.size);
                    self.tell(HubCommand::Credit { session, name, bytes });
                }
            }
        }
    }

    fn check_end(&self) {
        for (session, program) in &self.programs {
            let open: Vec<&Fetched> = program.open().iter().map(|name| &program.flows[name]).collect();
            assert!(open.is_empty(), "{session:?} still waits: {open:?}");
        }
        let hub = &self.hub;
        assert_eq!(hub.budget.used(), Bytes::ZERO, "memory is left behind");
        assert!(hub.flows.is_empty() && hub.by_name.is_empty() && hub.of_user.is_empty());
        assert!(hub.coflows.is_empty() && hub.waiting.is_empty() && hub.events.is_empty());
        assert_eq!(hub.courier.flows(), 0);
        assert!(self.connections.is_empty() && hub.lanes.is_empty(), "lanes that nobody needs are hung up");
    }
}

fn coflow(n: u64) -> CoflowId {
    CoflowId { application: name(format!("job-{}", n % 2)), number: n / 2 }
}

/// Counts of events in a storm, so that storms that see nothing are noticed.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    done: u64,
    broken: u64,
    resets: u64,
    malformed: u64,
    again: u64,
}

fn play(seed: u64) -> Seen {
    let mut storm = Storm::new(seed);
    storm.run_until(Time::ZERO + Duration::from_secs(8));
    storm.calm();
    // Long enough for every pause, and for lanes to be hung up.
    storm.run_until(Time::ZERO + Duration::from_secs(200));
    storm.check_end();
    let hub = &storm.hub;
    let again = hub.courier.stats().again;
    Seen { done: hub.done, broken: hub.broken, resets: storm.resets, malformed: hub.malformed, again }
}

#[test]
fn programs_get_the_right_bytes_whatever_happens_to_lanes_peers_and_programs() {
    let seeds = match std::env::var("STORM") {
        Ok(seed) => seed.parse().map(|seed| seed..seed + 1).unwrap(),
        Err(_) => 0..std::env::var("STORMS").map_or(STORMS, |count| count.parse().unwrap()),
    };
    let mut seen = Seen::default();
    for seed in seeds.clone() {
        let it = std::panic::catch_unwind(|| play(seed)).unwrap_or_else(|_| panic!("storm {seed}"));
        seen.done += it.done;
        seen.broken += it.broken;
        seen.resets += it.resets;
        seen.malformed += it.malformed;
        seen.again += it.again;
    }
    println!("{seen:?}");
    if seeds.end - seeds.start >= STORMS {
        assert!(seen.done > 5_000 && seen.broken > 1_000 && seen.resets > 5_000, "{seen:?}");
        assert!(seen.malformed > 100 && seen.again > 1_000, "{seen:?}");
    }
}
