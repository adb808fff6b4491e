//! Casts in the packet simulator, by the machines of real hosts: a whole node per host, and the product's controller beside the network.
//!
//! ```text
//!   who asks --Cast--> Controller --Fetch, Push, InstallTree ...--> Host (Node, Invitations) --packets--> ports, links, switches
//!                          ^------- Hello, Request, Fetched ... ---'                        <-----------'
//! ```
//! Nothing is decided here: [`host`] does what a node asks its driver for, [`transit`] moves packets and messages, and this module has
//! the clock, starts the requests and injects the faults. The cost of an event does not depend on the number of hosts or flows.

mod asker;
mod faults;
pub mod host;
mod misconduct;
mod settings;
mod setup;
mod shelves;
pub(crate) mod transit;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use headwater_controller::{Controller, ControllerCommand, NameRecord, TaskRecord};
use headwater_fabric::{LinkId, PointId};
use headwater_machine::{Endpoint, Input, Output, Packet};
use headwater_node::{Peer, Role, To};
use headwater_switch::{Frame, LinkChange};
use headwater_units::{BitRate, Bytes, Duration, Geometry, NodeId, ObjectId, PathId, TaskId, Time};
use headwater_wire::{Body, CastRoute, Control, Ecn, FetchEnd, MemberStanding, SYMBOL_OVERHEAD, TreeRepair};
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

pub use setup::{CastAt, CastOutcome, CastSetup, GetAt, Leftovers, ReceiverRow};

use host::{Host, Job, Passed, Surroundings};
use misconduct::{Misconduct, Replays};
use settings::{controller_config, host_config};
pub use transit::MOST_MEMBERS;
use transit::{Brought, CONTROLLER, NOWHERE, NetworkView, Transit};

use super::Event;
use super::frame::SimFrame;
use super::network::{Ground, Network};
use super::setup::{Change, SetupError};

/// Object that is cast.
const OBJECT: ObjectId = ObjectId([9; 32]);
/// Name of the object.
const NAME: &str = "object";
/// The asker's number of its first cast; further ones follow.
const CAST: u64 = 1;
/// The link of the asker for its casts; hosts have those of their numbers.
const ASKER: u32 = CONTROLLER - 2;
/// Headers of IPv4 and UDP.
const IP_UDP: u64 = 28;
/// At rest, it is listened for this time whether anybody says anything all the same.
const LISTENED: Duration = Duration::from_secs(60);
/// Events between two looks of the watcher.
const WATCHED_EVERY: u64 = 1 << 16;
/// Requests that nobody has invited to have numbers from here on.
const GETS: u64 = 1 << 48;

/// Where a host's data socket is.
pub fn address(host: u32) -> SocketAddr {
    let [_, b, c, d] = host.to_be_bytes();
    SocketAddr::from(([10, b, c, d], 7000))
}

fn host_at(at: SocketAddr) -> Option<u32> {
    match at.ip().to_canonical() {
        IpAddr::V4(ip) if ip.octets()[0] == 10 => {
            let [_, b, c, d] = ip.octets();
            Some(u32::from_be_bytes([0, b, c, d]))
        }
        _ => None,
    }
}

fn node_of(host: u32) -> NodeId {
    let mut id = [1; 32];
    id[..4].copy_from_slice(&host.to_be_bytes());
    NodeId(id)
}

/// Runs to the end; now and then `watch` hears how many still want the object, and how many events there were.
///
/// # Errors
/// [`SetupError`] before anything runs.
pub fn run(setup: CastSetup, watch: &mut dyn FnMut(usize, u64)) -> Result<CastOutcome, SetupError> {
    let mut world = World::new(setup)?;
    world.open();
    let until = world.setup.until;
    while !world.is_over() && world.step(until, watch) {}
    let left = world.leftovers();
    let unrest = match left.is_empty() && world.setup.drain.is_some() {
        true => world.listen(watch),
        false => 0,
    };
    Ok(world.outcome(left, unrest))
}

struct World {
    setup: CastSetup,
    now: Time,
    transit: Transit,
    hosts: Vec<Standing>,
    controller: Controller,
    /// When the controller is to be polled; `u64::MAX`: an event for nothing earlier is on its way.
    controller_wake: u64,
    jobs: Jobs,
    rows: Vec<ReceiverRow>,
    /// By host: its row; none has that of nobody.
    row_of: Vec<usize>,
    /// Receivers of which something is still to come.
    left: usize,
    /// As in [`CastOutcome::route`].
    route: Option<CastRoute>,
    /// As in [`CastOutcome::repairs`].
    repairs: Vec<TreeRepair>,
    /// Casts that the asker has asked for, and of which it waits for the controller's last word, by number.
    asking: BTreeSet<u64>,
    /// How receivers of its casts do, as far as it was told: a message has room for some of them.
    told: BTreeMap<(u64, NodeId), MemberStanding>,
    /// Further casts that it has still to ask for.
    to_ask: usize,
    /// Changes that are still to come.
    changes_left: usize,
    /// Nobody waits for anything any more since then.
    over_since: Option<Time>,
    /// Records that the controller has its driver keep.
    kept: Kept,
    replays: Replays,
    events: u64,
    /// Bytes of messages between hosts and the controller.
    message_bytes: u64,
    seeds: ChaCha8Rng,
    /// Whatever is drawn for what goes wrong.
    chance: ChaCha8Rng,
}

/// Records that outlast a controller.
#[derive(Default)]
struct Kept {
    tasks: BTreeMap<TaskId, Box<TaskRecord>>,
    names: BTreeMap<String, Box<NameRecord>>,
    /// Nothing of an earlier controller is there at the next start.
    is_lost: bool,
}

/// A host, and how it is.
struct Standing {
    host: Host,
    /// When it is woken; `u64::MAX`: not at all.
    wake: u64,
    /// It neither hears nor says anything.
    silent: bool,
    /// It will not hear anything any more.
    dead: bool,
    /// The controller has its link.
    linked: bool,
    /// Times that it has fallen silent, and could not be noticed yet.
    silences: u32,
    /// Times that it was started anew: what disk and decoder did for its process before is of no use then.
    lives: u32,
    /// Messages that the link has brought while it was silent, oldest first.
    unheard: Vec<Control>,
    socket: Socket,
    /// Messages to the controller, and from it.
    messages: (u64, u64),
    /// Times that its link to the controller was opened.
    links: u32,
    /// Its misconduct, and that of others towards it.
    misconduct: Option<Box<Misconduct>>,
}

impl Standing {
    /// The network has brought something.
    fn take(&mut self, now: Time, Brought { packet, bytes, wrong }: Brought) {
        let from = address(packet.path.0);
        match bytes {
            Some(bytes) => self.host.on_bytes(now, from, packet.path, &bytes),
            None => self.host.on_packet(now, from, packet, wrong),
        }
    }
}

/// Packets that a host's kernel keeps while its process does not run.
#[derive(Default)]
struct Socket {
    kept: Vec<Brought>,
    bytes: u64,
}

impl Socket {
    /// The receive buffer that the product asks for.
    const ROOM: u64 = 8 << 20;

    fn keep(&mut self, brought: Brought, room: u16) {
        let Brought { packet, bytes, .. } = &brought;
        let len = bytes.as_ref().map_or(packet.datagram.len(room), |bytes| bytes.len()) as u64;
        if self.bytes + len <= Self::ROOM {
            self.bytes += len;
            self.kept.push(brought);
        }
    }
}

/// Work of disks and decoders, by number: an event has no room for it.
#[derive(Default)]
struct Jobs {
    places: Vec<(u32, u32, Option<Job>)>,
    free: Vec<u32>,
}

impl Jobs {
    fn put(&mut self, host: u32, life: u32, job: Job) -> u32 {
        let at = self.free.pop().unwrap_or(self.places.len() as u32);
        match self.places.get_mut(at as usize) {
            Some(place) => *place = (host, life, Some(job)),
            None => self.places.push((host, life, Some(job))),
        }
        at
    }

    fn take(&mut self, at: u32) -> Option<(u32, u32, Job)> {
        let (host, life, job) = self.places.get_mut(at as usize)?;
        self.free.push(at);
        Some((*host, *life, job.take()?))
    }
}

/// A host's access to the world.
struct Around<'a> {
    now: Time,
    host: u32,
    life: u32,
    view: NetworkView<'a>,
    transit: &'a mut Transit,
    jobs: &'a mut Jobs,
    linked: bool,
    said: &'a mut u64,
    said_bytes: &'a mut u64,
    row: Option<&'a mut ReceiverRow>,
    left: &'a mut usize,
    misconduct: Option<(&'a Misconduct, &'a mut ChaCha8Rng)>,
}

impl Surroundings for Around<'_> {
    fn path(&mut self, at: &[SocketAddr]) -> PathId {
        match at.first() {
            Some(group) if group.ip().is_multicast() => self.transit.group_at(*group),
            Some(host) => PathId(host_at(*host).unwrap_or(NOWHERE)),
            None => PathId(NOWHERE),
        }
    }

    #[inline]
    fn send(&mut self, mut packet: Packet, bytes: usize, mut wrong: bool) {
        if let Some((misconduct, chance)) = &mut self.misconduct {
            wrong |= misconduct.spoils(&packet.datagram.body, chance);
            misconduct.forge(&mut packet.datagram, chance);
        }
        self.transit.send(&self.view, self.now, self.host, packet, (bytes, wrong));
    }

    fn forward(&mut self, to: SocketAddr, parcel: Passed) {
        let bytes = parcel.datagram.len(parcel.payload);
        let path = self.path(&[to]);
        let mut wrong = parcel.wrong;
        let mut packet = Packet { path, ecn: Ecn::NotEct, datagram: parcel.datagram };
        if let Some((misconduct, chance)) = &mut self.misconduct {
            wrong |= misconduct.spoils(&packet.datagram.body, chance);
            misconduct.forge(&mut packet.datagram, chance);
        }
        self.transit.send(&self.view, self.now, self.host, packet, (bytes, wrong));
    }

    fn send_bytes(&mut self, to: To<SocketAddr>, bytes: Arc<[u8]>) {
        let path = match to {
            To::Node(at) => self.path(&[at]),
            To::Group(path) => path,
        };
        self.transit.send_bytes(&self.view, self.now, self.host, path, bytes);
    }

    fn say(&mut self, word: Control) {
        // Nobody hears it where there is no link.
        if self.linked {
            *self.said += 1;
            *self.said_bytes += word.encoded_len() as u64;
            self.transit.say(self.now, self.host, CONTROLLER, word);
        }
    }

    fn later(&mut self, after: Duration, job: Job) {
        let endpoint = self.jobs.put(self.host, self.life, job);
        self.transit.agenda.push((self.now + after).as_nanos(), Event::Decoded { endpoint, block: 0 });
    }

    fn join(&mut self, group: SocketAddr, joins: bool) {
        self.transit.join(self.host, group, joins);
    }

    fn ended(&mut self, _: u64, end: &FetchEnd) {
        let Some(row) = &mut self.row else { return };
        let was_over = row.is_over();
        match end {
            _ if row.finished.is_some() => {}
            // A receiver that has failed by one route may be invited again, and then have it by another.
            FetchEnd::Had | FetchEnd::Kept => {
                (row.finished, row.failed, row.failed_at) = (Some(self.now), None, None);
            }
            FetchEnd::Failed(why) if !was_over => row.fail(self.now, why.clone()),
            FetchEnd::Failed(_) => {}
        }
        *self.left -= usize::from(!was_over);
    }
}

/// Copies of the object that crossed links, all headers included.
struct CopiesSeen {
    /// From the host that sent most, but for the source.
    from_host: f64,
    /// To the host that most reached.
    to_host: f64,
    from_all: f64,
    /// Into the rack that most entered, and out of the rack that most left.
    of_rack: (f64, f64),
}

impl World {
    fn new(setup: CastSetup) -> Result<Self, SetupError> {
        let hosts = setup.topology.hosts().len() as u32;
        let ground = Ground {
            topology: &setup.topology,
            routes: &setup.routes,
            port: &*setup.port,
            choice: &*setup.choice,
            on_trees: false,
            tallied: false,
            seed: setup.seed,
        };
        let mut network = Network::new(&ground)?;
        for (_, change) in &setup.changes {
            if let Change::Link(link, LinkChange::Rate(_) | LinkChange::Down(_)) = change {
                network.keep_frames(link.0);
            }
        }
        let transit = Transit::new(network, &setup);
        let mut seeds = ChaCha8Rng::seed_from_u64(setup.seed ^ 0x6361_7374);
        let standing = |host| Standing {
            host: Host::new(host_config(&setup, host, drawn(&mut seeds))),
            wake: u64::MAX,
            silent: false,
            dead: false,
            linked: false,
            silences: 0,
            lives: 0,
            unheard: Vec::new(),
            socket: Socket::default(),
            messages: (0, 0),
            links: 0,
            misconduct: None,
        };
        let standings = (0..hosts).map(standing).collect();
        let row = |host: u32, from| ReceiverRow { host, from, finished: None, failed: None, failed_at: None };
        let mut rows: Vec<ReceiverRow> = setup.receivers.iter().map(|host| row(*host, Time::ZERO)).collect();
        rows.extend(setup.gets.iter().map(|get| row(get.host, get.at)));
        for CastAt { at, receivers } in &setup.further {
            for host in receivers {
                if rows.iter().all(|row| row.host != *host) {
                    rows.push(row(*host, *at));
                }
            }
        }
        let mut row_of = vec![usize::MAX; hosts as usize];
        rows.iter().enumerate().for_each(|(row, it)| row_of[it.host as usize] = row);
        Ok(World {
            now: Time::ZERO,
            transit,
            hosts: standings,
            controller: Controller::new(controller_config(&setup), drawn(&mut seeds)),
            controller_wake: u64::MAX,
            jobs: Jobs::default(),
            row_of,
            left: rows.len(),
            rows,
            route: None,
            repairs: Vec::new(),
            asking: (!setup.receivers.is_empty()).then_some(CAST).into_iter().collect(),
            told: BTreeMap::new(),
            to_ask: setup.further.len(),
            changes_left: setup.changes.len(),
            over_since: None,
            kept: Kept::default(),
            replays: Replays::default(),
            events: 0,
            message_bytes: 0,
            seeds,
            chance: ChaCha8Rng::seed_from_u64(setup.seed ^ 0x6368_616e_6365),
            setup,
        })
    }

    // ---- the beginning and the end

    fn open(&mut self) {
        let bytes = self.setup.bytes;
        for holder in std::iter::once(&self.setup.source).chain(&self.setup.holders) {
            self.hosts[*holder as usize].host.hold(self.now, OBJECT, bytes, Some(NAME.to_owned()));
        }
        (0..self.hosts.len() as u32).for_each(|host| self.link(host));
        for (index, (at, _)) in self.setup.changes.iter().enumerate() {
            self.transit.agenda.push(at.as_nanos(), Event::Change { index: index as u32 });
        }
        for (index, get) in self.setup.gets.iter().enumerate() {
            self.transit.agenda.push(get.at.as_nanos(), Event::Start { task: index as u32 });
        }
        for (index, cast) in self.setup.further.iter().enumerate() {
            let task = (self.setup.gets.len() + index) as u32;
            self.transit.agenda.push(cast.at.as_nanos(), Event::Start { task });
        }
        // Behind what the hosts have said.
        self.ask();
    }

    /// The next event, if there is one until then.
    fn step(&mut self, until: Time, watch: &mut dyn FnMut(usize, u64)) -> bool {
        let Some((at, &event)) = self.transit.agenda.advance() else { return false };
        self.now = Time::from_nanos(at);
        if self.now > until {
            return false;
        }
        self.events += 1;
        if self.events.is_multiple_of(WATCHED_EVERY) {
            watch(self.left, self.events);
        }
        self.happen(event);
        true
    }

    /// All are at rest. Says how many packets and messages are sent all the same.
    fn listen(&mut self, watch: &mut dyn FnMut(usize, u64)) -> u64 {
        let (until, before) = (self.now + LISTENED, self.transit.sent);
        while self.step(until, watch) {}
        self.transit.sent - before
    }

    /// Nobody waits for anything any more, and all are at rest, or have had time to come to it. Where there is such a time, everything
    /// that is to go wrong has gone wrong before.
    fn is_over(&mut self) -> bool {
        if self.left > 0 || self.to_ask > 0 {
            return false;
        }
        let Some(drain) = self.setup.drain else { return true };
        if self.changes_left > 0 {
            return false;
        }
        let since = *self.over_since.get_or_insert(self.now);
        let is_at_rest = || {
            // First what is soon said: this is looked at after every event.
            let Leftovers { tasks, casts, members, under_way, .. } = self.leftovers_of_few();
            let few = (tasks, casts, members, under_way) == (0, 0, 0, 0);
            // Who is silent has to be missed, and who has lost the controller comes back.
            let is_settled = |it: &Standing| it.silences == 0 && (it.linked || it.silent);
            few && self.hosts.iter().all(is_settled) && self.leftovers().is_empty()
        };
        self.now > since + drain || (self.asking.is_empty() && is_at_rest())
    }

    /// What is left, without asking every host.
    fn leftovers_of_few(&self) -> Leftovers {
        Leftovers {
            tasks: self.controller.running_tasks(),
            casts: self.controller.running_casts(),
            members: self.controller.overlay_members(),
            under_way: self.transit.under_way(),
            ..Leftovers::default()
        }
    }

    fn leftovers(&self) -> Leftovers {
        let up = || (0..).zip(&self.hosts).filter(|(_, it)| !it.dead && !it.silent);
        Leftovers {
            flows: up().map(|(host, it)| (host, it.host.flows())).filter(|(_, flows)| *flows > 0).collect(),
            fetching: up().filter(|(_, it)| !it.host.is_idle()).map(|(host, _)| host).collect(),
            trees: up().filter(|(_, it)| it.host.has_trees()).map(|(host, _)| host).collect(),
            ..self.leftovers_of_few()
        }
    }

    /// Copies that crossed links of hosts and racks.
    fn copies_of(&mut self, copy: Bytes) -> CopiesSeen {
        let World { setup, transit, now, .. } = self;
        let fabric = setup.topology.fabric();
        let hosts: BTreeMap<PointId, u32> = setup.topology.hosts().iter().copied().zip(0..).collect();
        let mut by_host = vec![0; hosts.len()];
        let mut to_host = vec![0; hosts.len()];
        let mut by_rack: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        let rack_of = |point: PointId| setup.topology.place(point).and_then(|place| place.rack);
        for number in 0..transit.network.link_count() {
            let Some(link) = fabric.link(LinkId(number)) else { continue };
            let bytes = transit.network.stats(*now, number).bytes_out.get();
            if let Some(host) = hosts.get(&link.from) {
                by_host[*host as usize] += bytes;
            }
            if let Some(host) = hosts.get(&link.to) {
                to_host[*host as usize] += bytes;
            }
            match (rack_of(link.from), rack_of(link.to)) {
                (from, to) if from == to || setup.racks.is_empty() => {}
                (from, to) => {
                    from.into_iter().for_each(|rack| by_rack.entry(rack).or_default().1 += bytes);
                    to.into_iter().for_each(|rack| by_rack.entry(rack).or_default().0 += bytes);
                }
            }
        }
        let all = by_host.iter().sum();
        by_host[setup.source as usize] = 0;
        let most = |bytes: Option<u64>| bytes.unwrap_or(0) as f64 / copy.get().max(1) as f64;
        let racks = || by_rack.values();
        let (entered, left) = (racks().map(|it| it.0).max(), racks().map(|it| it.1).max());
        CopiesSeen {
            from_host: most(by_host.into_iter().max()),
            to_host: most(to_host.into_iter().max()),
            from_all: most(Some(all)),
            of_rack: (most(entered), most(left)),
        }
    }

    fn outcome(mut self, left: Leftovers, unrest: u64) -> CastOutcome {
        let fabric = self.setup.topology.fabric();
        let uplinks = fabric.leaving(self.setup.topology.hosts()[self.setup.source as usize]);
        let rates = uplinks.iter().filter_map(|link| fabric.link(*link)?.capacity);
        let rate = BitRate::new(rates.map(BitRate::get).sum());
        let geometry = Geometry::fitting(self.setup.bytes, self.setup.room);
        let frame =
            u64::from(geometry.symbol_size()) + SYMBOL_OVERHEAD as u64 + IP_UDP + self.setup.framing.get();
        let copy = Bytes::new(geometry.total_symbols().get() * frame);
        let now = self.now;
        let sent = uplinks.iter().map(|link| self.transit.network.stats(now, link.0).bytes_out.get());
        let sent: u64 = sent.sum();
        let copies = self.copies_of(copy);
        let links = 0..self.transit.network.link_count();
        let lost: u64 = links.map(|link| self.transit.network.stats(now, link).dropped).sum();
        CastOutcome {
            all: self
                .rows
                .iter()
                .filter_map(|row| row.finished)
                .max()
                .unwrap_or(Time::ZERO)
                .since(Time::ZERO),
            one_copy: copy / rate,
            copies: sent as f64 / copy.get() as f64,
            messages: self.hosts.iter().map(|it| it.messages).collect(),
            message_bytes: self.message_bytes,
            host_copies: copies.from_host,
            all_copies: copies.from_all,
            host_copies_in: copies.to_host,
            rack_copies: copies.of_rack,
            dropped: lost + self.transit.network.faults.unroutable,
            distrusted: distrusted(&self.hosts),
            left,
            unrest,
            controller: *self.controller.stats(),
            route: self.route,
            repairs: self.repairs,
            receivers: self.rows,
            events: self.events,
        }
    }

    // ---- what happens

    #[inline(always)]
    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive { link, frame } => self.arrive(link, frame),
            Event::Wake { slot } => self.wake(slot),
            Event::Serve { link } => {
                if let Some(frame) = self.transit.serve(self.now, link) {
                    self.arrive(link, frame);
                }
            }
            Event::Deliver { body } => self.deliver(body, u32::MAX, Ecn::NotEct, false),
            Event::Decoded { endpoint, .. } => self.on_job(endpoint),
            Event::Change { index } => self.change(index),
            Event::Start { task } => self.start(task),
            Event::Introduce { host } => self.miss(host),
            Event::Link { host } => self.find_again(host),
            Event::Stop { .. } | Event::Sample | Event::Midway => unreachable!("nobody asks for it here"),
        }
    }

    #[inline(always)]
    fn arrive(&mut self, link: u32, frame: SimFrame) {
        if self.transit.arrive(self.now, link, frame) {
            self.deliver(frame.body(), link, frame.ecn(), !frame.is_whole());
        }
    }

    #[inline]
    fn deliver(&mut self, body: u32, link: u32, ecn: Ecn, cut: bool) {
        let now = self.now;
        let transit::Arrived { at, brought } = self.transit.take(body, link, ecn, cut);
        if self.may_go_wrong() && self.is_replay_of_old(body, at, &brought) {
            return;
        }
        if at == CONTROLLER {
            return self.tell_controller(brought.packet);
        }
        let Some(it) = self.hosts.get(at as usize) else { return self.on_news(brought.packet) };
        if let (Body::Control(_), None) = (&brought.packet.datagram.body, &brought.bytes) {
            return self.hear(at, brought.packet);
        }
        let brought = match it.misconduct {
            Some(_) => self.damaged(at, brought),
            None => brought,
        };
        let it = &mut self.hosts[at as usize];
        // Packets that the network brings to a host that does not listen are gone, but for those that its kernel keeps.
        if it.silent {
            if !it.dead {
                it.socket.keep(brought, self.setup.room);
            }
            return;
        }
        it.take(now, brought);
        self.drive(at);
    }

    fn wake(&mut self, slot: u32) {
        if slot == CONTROLLER {
            if self.controller_wake == self.now.as_nanos() {
                self.controller_wake = u64::MAX;
                self.drive_controller();
            }
        } else if self.hosts[slot as usize].wake == self.now.as_nanos() {
            self.hosts[slot as usize].wake = u64::MAX;
            self.drive(slot);
        }
    }

    fn on_job(&mut self, job: u32) {
        let Some((host, life, job)) = self.jobs.take(job) else { return };
        let it = &mut self.hosts[host as usize];
        if it.lives == life && !it.dead {
            it.host.on_job(self.now, job);
            self.drive(host);
        }
    }

    /// A get begins, or behind them all a further cast.
    fn start(&mut self, index: u32) {
        let Some(&GetAt { host, delivery, .. }) = self.setup.gets.get(index as usize) else {
            return self.ask_further(index as usize - self.setup.gets.len());
        };
        if self.hosts[host as usize].dead {
            return self.give_up(host, "it is dead");
        }
        self.with(host, |host, now, out| host.get(now, NAME, GETS + u64::from(index), delivery, out));
        self.drive(host);
    }

    /// Has a host's machines say all that they have to say.
    #[inline]
    fn drive(&mut self, host: u32) {
        if self.hosts[host as usize].silent {
            return;
        }
        self.with(host, |host, now, out| host.drive(now, out));
        let it = &mut self.hosts[host as usize];
        if let Some(at) = it.host.wake() {
            let at = at.max(self.now).as_nanos();
            if at < it.wake {
                it.wake = at;
                self.transit.agenda.push(at, Event::Wake { slot: host });
            }
        }
    }

    #[inline]
    fn with<T>(&mut self, host: u32, of: impl FnOnce(&mut Host, Time, &mut Around<'_>) -> T) -> T {
        let World { setup, now, transit, hosts, jobs, rows, row_of, left, chance, message_bytes, .. } = self;
        let it = &mut hosts[host as usize];
        let mut around = Around {
            now: *now,
            host,
            life: it.lives,
            view: NetworkView { topology: &setup.topology, routes: &setup.routes },
            transit,
            jobs,
            linked: it.linked,
            said: &mut it.messages.0,
            said_bytes: message_bytes,
            row: rows.get_mut(row_of[host as usize]),
            left,
            misconduct: it.misconduct.as_deref().map(|misconduct| (misconduct, chance)),
        };
        of(&mut it.host, *now, &mut around)
    }

    // ---- the controller

    fn tell_controller(&mut self, packet: Packet) {
        // A message by a link that is gone is not heard.
        let host = packet.path.0;
        if self.hosts.get(host as usize).is_some_and(|it| !it.linked) {
            return;
        }
        pass_the_door(Role::Caller, host, &packet);
        self.controller.handle(self.now, Input::Packet(packet));
        self.drive_controller();
    }

    fn command_controller(&mut self, command: ControllerCommand) {
        self.controller.handle(self.now, Input::Command(command));
        self.drive_controller();
    }

    fn drive_controller(&mut self) {
        loop {
            match self.controller.poll(self.now) {
                Output::Wake(at) => {
                    let at = at.map_or(u64::MAX, |at| at.max(self.now).as_nanos());
                    if at < self.controller_wake {
                        self.controller_wake = at;
                        self.transit.agenda.push(at, Event::Wake { slot: CONTROLLER });
                    }
                    return;
                }
                Output::Transmit(packet) => {
                    let Body::Control(control) = packet.datagram.body else { continue };
                    let to = packet.path.0;
                    if let Some(it) = self.hosts.get_mut(to as usize) {
                        if !it.linked {
                            continue;
                        }
                        it.messages.1 += 1;
                        self.message_bytes += control.encoded_len() as u64;
                    }
                    self.transit.say(self.now, CONTROLLER, to, *control);
                }
                Output::Event(event) => self.kept.on_event(event),
            }
        }
    }

    /// The controller says something to a host.
    fn hear(&mut self, host: u32, packet: Packet) {
        pass_the_door(Role::Controller, CONTROLLER, &packet);
        let Body::Control(control) = packet.datagram.body else { return };
        let it = &mut self.hosts[host as usize];
        if !it.linked || it.dead {
            return;
        }
        if it.silent {
            return it.unheard.push(*control);
        }
        self.with(host, |host, now, out| host.on_control(now, *control, out));
        self.drive(host);
    }
}

/// Links here are between machines that send only what the door lets through.
fn pass_the_door(role: Role, host: u32, packet: &Packet) {
    let Body::Control(control) = &packet.datagram.body else { return };
    let peer = Peer { role, node: node_of(host), at: address(host) };
    if let Err(refused) = peer.may_say(control) {
        panic!("host {host} sends what is refused, since {refused}: {control:?}");
    }
}

fn drawn(from: &mut ChaCha8Rng) -> [u8; 32] {
    let mut seed = [0; 32];
    from.fill_bytes(&mut seed);
    seed
}

/// Pairs of hosts: the first has found the second to send wrong bytes.
fn distrusted(hosts: &[Standing]) -> Vec<(u32, u32)> {
    let number = |node: NodeId| (0..hosts.len() as u32).find(|host| node_of(*host) == node);
    let of = |(host, it): (u32, &Standing)| -> Vec<(u32, u32)> {
        it.host.distrusted().iter().filter_map(|node| Some((host, number(*node)?))).collect()
    };
    (0..).zip(hosts).flat_map(of).collect()
}
