//! The switch at work: a thread that moves frames between hosts' interfaces and the [`EmulatedFabric`] in real time.
//!
//! ```text
//!  PacketPort::receive -> RawFrame::parse -> EmulatedFabric::inject
//!                                            EmulatedFabric::poll -> set the host's MAC -> PacketPort::send
//! ```
//!
//! Due times follow from the network alone, so a thread that runs late delivers late and loses no rate. How late is
//! recorded for every frame, and [`Validity`] says whether what was measured meanwhile counts: this is a clock on a machine
//! that has other things to do.
//!
//! Near a due time the thread spins, since sleeping wakes tens of microseconds late; else it sleeps until a frame comes. On a
//! processor [of its own](super::Reserved) it never sleeps.
//! Commands come over a channel and are heard within a millisecond.
//!
//! Not here: the namespaces and interfaces, which are [`crate::emulate`]'s.

use std::io;
use std::net::IpAddr;
use std::num::NonZero;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle};

use headwater_fabric::{HostId, LinkId, PointId, Routes, Topology};
use headwater_switch::{AllocatorView, Choice, LinkChange, PortConfig, PortStats, StoreConfig};
use headwater_units::{BitRate, Bytes, Duration, Time};
use thiserror::Error;

use super::{
    AddressBook, AddressError, CaptureCounts, EmulatedFabric, EmulatedFabricError, FabricCounts, Groups,
    MacAddress, NotForwarded, PacketPort, RawFrame, Recorder, RingStats, TrimRule, reserved, wait,
};

mod jitter;
mod lateness;
mod mover;
#[cfg(test)]
mod tests;

use jitter::Jitter;
pub use lateness::Validity;
use mover::{Mover, Round};

/// Spins instead of sleeping when the next deadline is closer than this: longer than most wake-ups take.
const AWAKE: Duration = Duration::from_micros(100);
/// The longest sleep, so that commands are heard.
const LONGEST_SLEEP: Duration = Duration::from_millis(1);
/// Before other programs of the machine, and not so far before that a spinning switch leaves them nothing. Not real-time: the
/// kernel keeps a twentieth of each second for the others then, and takes it in one piece (50 ms late, measured).
const NICE: i32 = -10;

/// A network, and the cables to its hosts.
pub struct SoftSwitchSpec<'a> {
    /// The network.
    pub topology: &'a Topology,
    /// Where switches send what is for a host.
    pub routes: &'a Routes,
    /// The port of a link; the flag says whether a host's NIC is meant.
    pub port: &'a dyn Fn(LinkId, bool) -> PortConfig,
    /// How a switch, counted by its point, chooses among equal paths.
    pub choice: &'a dyn Fn(u32) -> Choice,
    /// Seed of all random draws.
    pub seed: u64,
    /// The switch's end of each host's cable and the address of the host's, by host and in the order of its cables.
    pub hosts: Vec<(PacketPort, MacAddress)>,
    /// Addresses of hosts and groups.
    pub book: AddressBook,
    /// How long packets are that fill a link: what [`Validity`] allows follows from it.
    pub packet: Bytes,
    /// Changes of links, by time since the start; ascending.
    pub changes: Vec<(Time, LinkId, LinkChange)>,
    /// The longest time that a host takes to send a packet to another, by the number of hosts times the one plus the other;
    /// empty if they take none.
    pub jitter: Vec<Duration>,
    /// Rule of trimming, at all ports that trim.
    pub trim: TrimRule,
    /// Members of groups that [`SoftSwitch::set_group`] does not name.
    pub groups: Groups,
    /// Packet capture sink, if capturing is enabled.
    pub recorder: Option<Recorder>,
    /// Bytes that switches keep of each tree of Datacast; none: they only forward.
    pub tree_store: Option<Bytes>,
    /// They do not happen before [`SoftSwitch::begin`], and their times are since then.
    pub hold: bool,
    /// The processor that nobody else runs on, by its number, if there is one; see [`Reserved`](super::Reserved).
    pub processor: Option<usize>,
}

/// One moment on two clocks, of which neither is ever set: what is timed by one can be told in the other's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begin {
    /// On the switch's, which runs since its start and dates samples and snapshots.
    pub switch: Time,
    /// On the machine's (`CLOCK_MONOTONIC`), which all its processes share; in nanoseconds.
    pub monotonic_ns: u64,
}

/// The switch cannot be started, changed or asked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SoftSwitchError {
    /// The network cannot be, or be changed, so.
    #[error(transparent)]
    Fabric(#[from] EmulatedFabricError),
    /// The address of a group is none, or another's.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Not as many cables as hosts have in all.
    #[error("hosts have {hosts} cables, and {cables} are given")]
    Cables {
        /// Cables of all hosts of the topology.
        hosts: usize,
        /// Cables given.
        cables: usize,
    },
    /// No thread to run on.
    #[error("cannot start the switch's thread: {0}")]
    Thread(#[source] io::Error),
    /// The thread has ended, which it does not do by itself.
    #[error("the switch has stopped{}", if .reason.is_empty() { String::new() } else { format!(": {}", .reason) })]
    Stopped {
        /// Its last error; empty where [`SoftSwitch::stop`] will tell it.
        reason: String,
    },
}

/// Which queues are looked at, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// The interval.
    pub every: Duration,
    /// Which links.
    pub links: Vec<LinkId>,
    /// Samples to keep at most; memory for all of them is taken at once, and later looks are left out.
    pub most: usize,
}

/// A look at a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSample {
    /// When, exactly, however late the switch was.
    pub at: Time,
    /// The link whose queue it is.
    pub link: LinkId,
    /// Packets in it, the frame on the line included.
    pub packets: u64,
}

/// A link at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkState {
    /// Frames in its queue, the one on the line included.
    pub queue: u64,
    /// Counters of its port.
    pub port: PortStats,
    /// Frames that the link has lost behind its queue.
    pub lost: u64,
    /// Grants of its port to scheduled transfers, if it grants rates.
    pub allocator: Option<AllocatorView>,
}

/// Everything that is counted, at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// Since the start.
    pub at: Time,
    /// By link.
    pub links: Vec<LinkState>,
    /// Counters of all frames.
    pub counts: FabricCounts,
    /// Frames on links, behind their queues.
    pub in_flight: u64,
    /// Counters of the cables, by host and in the order of its cables.
    pub ports: Vec<RingStats>,
    /// Frames that went nowhere, by [`NotForwarded`].
    pub not_forwarded: [u64; NotForwarded::ALL.len()],
    /// Frames that had arrived at their host when its interface took no more.
    pub unsent: u64,
    /// Buffers that hold frames: those in queues and on links, once what is due has been sent.
    pub buffers: u64,
    /// How often an interface was down or away.
    pub port_errors: u64,
    /// Multicast groups whose members have been learnt, or that are flooded.
    pub groups: u64,
    /// Their members, all together.
    pub memberships: u64,
    /// Joins, and floods, of groups beyond [`MAX_GROUPS`](super::MAX_GROUPS).
    pub groups_refused: u64,
    /// Counters of the packet capture, if there is one.
    pub captured: Option<CaptureCounts>,
    /// How well the switch has kept time since the start, or since [`SoftSwitch::forget_lateness`].
    pub validity: Validity,
}

/// A running switch. Dropping it stops it.
#[derive(Debug)]
pub struct SoftSwitch {
    commands: Sender<Command>,
    thread: Option<JoinHandle<Snapshot>>,
}

type Reply<T> = Sender<T>;

enum Command {
    Change(LinkId, LinkChange, Reply<Result<(), EmulatedFabricError>>),
    SetGroup(IpAddr, u32, Vec<HostId>, Reply<Result<(), SoftSwitchError>>),
    Begin(Reply<Begin>),
    Snapshot(Reply<Snapshot>),
    Sample(Sampling, Reply<()>),
    TakeSamples(Reply<Vec<QueueSample>>),
    ForgetLateness(Reply<()>),
    Stop,
}

impl SoftSwitch {
    /// Begins to move frames. Time runs from here.
    ///
    /// # Errors
    /// [`SoftSwitchError`]; nothing is moved then.
    pub fn start(spec: SoftSwitchSpec<'_>) -> Result<SoftSwitch, SoftSwitchError> {
        let SoftSwitchSpec { topology, routes, port, choice, seed, hosts, book, changes, .. } = spec;
        let SoftSwitchSpec { hold, recorder, jitter, packet, trim, groups, tree_store, processor, .. } = spec;
        let cables = |host: &PointId| topology.fabric().leaving(*host).len();
        let ends: Vec<(HostId, usize)> = (0..)
            .map(HostId)
            .zip(topology.hosts())
            .flat_map(|(host, point)| (0..cables(point)).map(move |cable| (host, cable)))
            .collect();
        if hosts.len() != ends.len() {
            return Err(SoftSwitchError::Cables { hosts: ends.len(), cables: hosts.len() });
        }
        let mut fabric = EmulatedFabric::with_tap(topology, routes, port, choice, seed, recorder)?;
        // The change is tried on another fabric first, so that it cannot fail on the way.
        let mut tried = EmulatedFabric::<RawFrame>::new(topology, routes, port, choice, seed)?;
        changes.iter().try_for_each(|(at, link, change)| tried.change(*at, *link, *change))?;
        let links = topology.fabric().link_count() as u32;
        let rates = (0..links).filter_map(|link| topology.fabric().link(LinkId(link))?.capacity);
        let limit = lateness::limit(packet, rates.min().unwrap_or(BitRate::new(u64::MAX)));
        if topology.hosts().iter().any(|host| topology.forwards(*host)) {
            fabric.let_hosts_forward();
        }
        if let Some(size) = tree_store {
            fabric.keep_trees(StoreConfig { size, ..StoreConfig::default() }, book.clone());
        }
        let count = topology.hosts().len();
        let hosts = ends.into_iter().zip(hosts).collect();
        let mut mover = Mover::new(fabric, links, hosts, book, changes, limit);
        mover.set_rules(trim, groups);
        if !jitter.is_empty() {
            mover.delay_hosts(Jitter::new(jitter, count, seed));
        }
        if !hold {
            mover.begin(Time::ZERO);
        }
        let (commands, inbox) = channel();
        let thread = thread::Builder::new()
            .name("soft-switch".to_owned())
            .spawn(move || run(mover, &inbox, processor))
            .map_err(SoftSwitchError::Thread)?;
        Ok(SoftSwitch { commands, thread: Some(thread) })
    }

    /// Changes how a link behaves, from now on.
    ///
    /// # Errors
    /// No such link, a rate at which no line runs, or the switch has stopped.
    pub fn change(&self, link: LinkId, change: LinkChange) -> Result<(), SoftSwitchError> {
        Ok(self.ask(|reply| Command::Change(link, change, reply))??)
    }

    /// Makes hosts the members of a multicast group, whatever they join and leave, and says which number its address has,
    /// below 2^31; see [`EmulatedFabric::set_group`].
    ///
    /// # Errors
    /// No multicast address or that of another group, or the switch has stopped.
    pub fn set_group(
        &self,
        address: IpAddr,
        group: u32,
        members: Vec<HostId>,
    ) -> Result<(), SoftSwitchError> {
        self.ask(|reply| Command::SetGroup(address, group, members, reply))?
    }

    /// Lets the changes that were [held](SoftSwitchSpec::hold) happen at their times since now, and says when that is.
    ///
    /// Called again, they begin anew, and what has not happened until then does not happen any more. Where none were held,
    /// it only says what time it is.
    ///
    /// # Errors
    /// The switch has stopped.
    pub fn begin(&self) -> Result<Begin, SoftSwitchError> {
        self.ask(Command::Begin)
    }

    /// Everything that is counted, now.
    ///
    /// # Errors
    /// The switch has stopped.
    pub fn snapshot(&self) -> Result<Snapshot, SoftSwitchError> {
        self.ask(Command::Snapshot)
    }

    /// Looks at queues from now on; what was sampled before and not taken is forgotten.
    ///
    /// # Errors
    /// The switch has stopped.
    pub fn sample(&self, what: Sampling) -> Result<(), SoftSwitchError> {
        // Else the samples of one moment would never end.
        let every = what.every.max(Duration::from_nanos(1));
        self.ask(|reply| Command::Sample(Sampling { every, ..what }, reply))
    }

    /// Ends the sampling and returns what was seen, ascending by time.
    ///
    /// # Errors
    /// The switch has stopped.
    pub fn take_samples(&self) -> Result<Vec<QueueSample>, SoftSwitchError> {
        self.ask(Command::TakeSamples)
    }

    /// Counts lateness, and what [`Validity`] says, from now on only.
    ///
    /// # Errors
    /// The switch has stopped.
    pub fn forget_lateness(&self) -> Result<(), SoftSwitchError> {
        self.ask(Command::ForgetLateness)
    }

    /// Ends it: what is in queues and on links is gone. Returns the last counts.
    ///
    /// # Errors
    /// [`SoftSwitchError::Stopped`] with the reason if its thread had panicked.
    pub fn stop(mut self) -> Result<Snapshot, SoftSwitchError> {
        self.join()
    }

    fn join(&mut self) -> Result<Snapshot, SoftSwitchError> {
        // One that is gone needs no telling.
        let _ = self.commands.send(Command::Stop);
        let thread =
            self.thread.take().expect("joined only once: by `stop`, which takes the switch, or `drop`");
        thread.join().map_err(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied());
            SoftSwitchError::Stopped { reason: text.unwrap_or("it panicked").to_owned() }
        })
    }

    fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, SoftSwitchError> {
        let stopped = || SoftSwitchError::Stopped { reason: String::new() };
        let (reply, answer) = channel();
        self.commands.send(command(reply)).map_err(|_| stopped())?;
        answer.recv().map_err(|_| stopped())
    }
}

impl Drop for SoftSwitch {
    fn drop(&mut self) {
        if self.thread.is_some() {
            // A caller that wants the result calls `stop`.
            let _ = self.join();
        }
    }
}

/// Time since the switch was started.
#[derive(Clone, Copy, Debug)]
struct Clock {
    /// By `CLOCK_MONOTONIC`.
    start_ns: u64,
}

impl Clock {
    fn start() -> Clock {
        Clock { start_ns: monotonic_ns() }
    }

    fn now(self) -> Time {
        Time::from_nanos(monotonic_ns() - self.start_ns)
    }

    fn moment(self, at: Time) -> Begin {
        Begin { switch: at, monotonic_ns: self.start_ns + at.as_nanos() }
    }
}

fn monotonic_ns() -> u64 {
    nanos(rustix::time::clock_gettime(rustix::time::ClockId::Monotonic))
}

/// Neither part is negative: one clock runs since the machine was started, and the other since 1970.
fn nanos(time: rustix::time::Timespec) -> u64 {
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec as u64
}

fn run(mut mover: Mover<PacketPort>, commands: &Receiver<Command>, processor: Option<usize>) -> Snapshot {
    // None is a must: without them it is late more often, which is recorded.
    let alone = processor.is_some_and(|processor| reserved::move_to(processor).is_ok());
    let _ = rustix::thread::set_current_timer_slack(NonZero::new(1));
    let _ = rustix::process::setpriority_process(None, NICE);

    let clock = Clock::start();
    if let Some(recorder) = mover.recorder() {
        recorder.begin(nanos(rustix::time::clock_gettime(rustix::time::ClockId::Realtime)));
    }
    loop {
        loop {
            match commands.try_recv() {
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => {
                    return mover.snapshot(&mut || clock.now());
                }
                Ok(command) => obey(&mut mover, clock, command),
                Err(TryRecvError::Empty) => break,
            }
        }
        let Round { busy, next } = mover.round(&mut || clock.now());
        let left = next.map_or(Duration::MAX, |next| next.since(clock.now()));
        let idle = !busy && left > AWAKE;
        if let Some(recorder) = mover.recorder().filter(|_| idle) {
            recorder.idle(clock.now());
        }
        if alone || !idle {
            std::hint::spin_loop();
            continue;
        }
        // An interface that is down is noticed when frames are sent to it; the sleep is short either way.
        let _ = wait(mover.ports(), Some((left - AWAKE).min(LONGEST_SLEEP)));
    }
}

/// Carries out a command. The asker may be gone, and then needs no answer.
fn obey(mover: &mut Mover<PacketPort>, clock: Clock, command: Command) {
    let now = clock.now();
    match command {
        Command::Change(link, change, reply) => drop(reply.send(mover.change(now, link, change))),
        Command::SetGroup(address, group, members, reply) => {
            drop(reply.send(mover.set_group(now, address, group, &members)));
        }
        Command::Begin(reply) => {
            mover.begin(now);
            let _ = reply.send(clock.moment(now));
        }
        Command::Snapshot(reply) => drop(reply.send(mover.snapshot(&mut || clock.now()))),
        Command::Sample(what, reply) => {
            mover.sample(now, what);
            let _ = reply.send(());
        }
        Command::TakeSamples(reply) => drop(reply.send(mover.take_samples())),
        Command::ForgetLateness(reply) => {
            mover.forget_lateness();
            let _ = reply.send(());
        }
        Command::Stop => unreachable!("the loop ends on it"),
    }
}
