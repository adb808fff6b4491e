//! One round of the switch: what has arrived goes in, what is due goes out. Time and waiting are the thread's.

use std::net::IpAddr;

use headwater_fabric::{HostId, LinkId};
use headwater_switch::LinkChange;
use headwater_units::{Duration, Time};

use super::jitter::Jitter;
use super::lateness::Lateness;
use super::{LinkState, QueueSample, Sampling, Snapshot, SoftSwitchError};
use crate::soft_switch::membership::{Learnt, Membership};
use crate::soft_switch::{
    AddressBook, DropReason, EmulatedFabric, EmulatedFabricError, FabricOutput, FramePool, FramePort, Groups,
    MacAddress, NotForwarded, PacketPort, RawBuffer, RawFrame, Recorder, RingStats, TrimRule,
};

/// Buffers that are kept for later: more than a burst of all hosts of a small network.
const KEEP: usize = 4096;

/// A port that knows how it is doing.
pub(super) trait Cable: FramePort {
    /// Counters so far.
    fn counters(&mut self) -> RingStats;
    /// How long the first frame of the last batch had been there when it was read, if that is known.
    fn waited(&self) -> Option<Duration>;
}

impl Cable for PacketPort {
    fn counters(&mut self) -> RingStats {
        // The kernel has no reason to refuse; its drops are then those it told last.
        self.stats().unwrap_or_else(|_| self.last_stats())
    }

    fn waited(&self) -> Option<Duration> {
        self.oldest_wait()
    }
}

/// The switch's end of a host's cable.
struct HostEnd<P> {
    /// Owning host, and index of the cable among its cables.
    at: (HostId, usize),
    port: P,
    mac: MacAddress,
    /// Frames that are due; empty between rounds.
    outgoing: Vec<RawFrame>,
    due: Vec<Time>,
}

/// Result of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Round {
    /// Whether anything came in.
    pub(super) busy: bool,
    /// When there is something to do next.
    pub(super) next: Option<Time>,
}

/// The network, its hosts' cables, and what is counted.
pub(super) struct Mover<P> {
    fabric: EmulatedFabric<RawFrame, Option<Recorder>>,
    links: u32,
    hosts: Vec<HostEnd<P>>,
    /// How many hosts there are.
    count: usize,
    book: AddressBook,
    membership: Membership,
    trim: TrimRule,
    /// Sending times of hosts, if they take time.
    jitter: Option<Jitter>,
    pool: FramePool,
    arrived: Vec<RawBuffer>,
    /// Ascending by time, since the beginning.
    script: Vec<(Time, LinkId, LinkChange)>,
    /// When that was, and how much of the script has happened since.
    begun: Option<(Time, usize)>,
    sampling: Option<Sampler>,
    /// By link.
    lost: Vec<u64>,
    not_forwarded: [u64; NotForwarded::ALL.len()],
    unsent: u64,
    port_errors: u64,
    lateness: Lateness,
    /// Missed deadlines when lateness was last reset.
    missed_before: u64,
}

struct Sampler {
    what: Sampling,
    next: Time,
    samples: Vec<QueueSample>,
}

impl<P: Cable> Mover<P> {
    pub(super) fn new(
        fabric: EmulatedFabric<RawFrame, Option<Recorder>>,
        links: u32,
        hosts: Vec<((HostId, usize), (P, MacAddress))>,
        book: AddressBook,
        script: Vec<(Time, LinkId, LinkChange)>,
        limit: Duration,
    ) -> Self {
        let count = hosts.last().map_or(0, |((host, _), _)| host.index() + 1);
        let end = |(at, (port, mac))| HostEnd { at, port, mac, outgoing: Vec::new(), due: Vec::new() };
        Mover {
            fabric,
            links,
            membership: Membership::new(Groups::default(), count),
            count,
            hosts: hosts.into_iter().map(end).collect(),
            book,
            trim: TrimRule::default(),
            jitter: None,
            pool: FramePool::new(KEEP),
            arrived: Vec::new(),
            script,
            begun: None,
            sampling: None,
            lost: vec![0; links as usize],
            not_forwarded: Default::default(),
            unsent: 0,
            port_errors: 0,
            lateness: Lateness::new(limit),
            missed_before: 0,
        }
    }

    /// Before anything has come in.
    pub(super) fn set_rules(&mut self, trim: TrimRule, groups: Groups) {
        self.trim = trim;
        self.membership = Membership::new(groups, self.count);
    }

    /// Hosts take time to send.
    pub(super) fn delay_hosts(&mut self, jitter: Jitter) {
        self.jitter = Some(jitter);
    }

    /// Packet capture sink, if capturing is enabled.
    pub(super) fn recorder(&mut self) -> Option<&mut Recorder> {
        self.fabric.tap_mut().as_mut()
    }

    pub(super) fn ports(&self) -> impl Iterator<Item = &P> {
        self.hosts.iter().map(|host| &host.port)
    }

    /// Takes in what has arrived and sends what is due by now; `clock` is read as often as something happens.
    pub(super) fn round(&mut self, clock: &mut impl FnMut() -> Time) -> Round {
        let mut busy = false;
        for host in 0..self.hosts.len() {
            busy |= self.take_in(host, clock);
        }
        let now = clock();
        self.up_to(now);
        let next = self.deliver(now, clock);
        let leaves = self.jitter.as_ref().and_then(Jitter::next);
        Round { busy, next: next.into_iter().chain(leaves).min() }
    }

    /// Sends what is due by `now`, and says when there is more.
    fn deliver(&mut self, now: Time, clock: &mut impl FnMut() -> Time) -> Option<Time> {
        let next = loop {
            match self.fabric.poll(now) {
                FabricOutput::Deliver { host, cable, due, mut frame } => {
                    let place = self.place(host, cable);
                    let host = &mut self.hosts[place];
                    frame.set_destination_mac(host.mac);
                    host.outgoing.push(frame);
                    host.due.push(due);
                }
                FabricOutput::Dropped { link: Some(link), why: DropReason::Lost, .. } => {
                    self.lost[link.index()] += 1;
                }
                FabricOutput::Dropped { .. } => {}
                FabricOutput::Wake(at) => break at,
            }
        };
        (0..self.hosts.len()).for_each(|host| self.send(host, clock));
        next
    }

    /// Where a cable stands among those of all hosts.
    fn place(&self, host: HostId, cable: usize) -> usize {
        match self.hosts.len() == self.count {
            true => host.index(),
            false => self.hosts.partition_point(|end| end.at < (host, cable)),
        }
    }

    fn take_in(&mut self, host: usize, clock: &mut impl FnMut() -> Time) -> bool {
        let end = &mut self.hosts[host];
        let count = match end.port.receive(&self.pool, &mut self.arrived) {
            Ok(0) => return false,
            Ok(count) => count,
            Err(_) => {
                self.port_errors += 1;
                return false;
            }
        };
        if let Some(waited) = end.port.waited() {
            self.lateness.read(count, waited);
        }
        let now = clock();
        self.up_to(now);
        let at = self.hosts[host].at;
        let mut arrived = std::mem::take(&mut self.arrived);
        for buffer in arrived.drain(..) {
            match RawFrame::parse(buffer, &self.book) {
                Ok(frame) => self.take_frame(now, at, frame),
                Err(reason) => self.not_forwarded[reason as usize] += 1,
            }
        }
        self.arrived = arrived;
        true
    }

    fn take_frame(&mut self, now: Time, (host, cable): (HostId, usize), mut frame: RawFrame) {
        frame.set_trim(self.trim);
        let to = frame.destination_address();
        if to.is_multicast() {
            if let Some(changed) = self.membership.hear(host.0, frame.packet()) {
                frame.lead_nowhere();
                changed.iter().for_each(|(group, learnt)| self.regroup(now, Some(*group), learnt));
            } else if let Some(flooded) = self.membership.flood(to) {
                self.regroup(now, Some(to), &flooded);
                frame.look_up(&self.book);
            }
        }
        match &mut self.jitter {
            Some(jitter) => jitter.hold(now, host, frame),
            None if self.hosts.len() == self.count => self.fabric.inject(now, host, frame),
            None => self.fabric.inject_at(now, host, cable, frame),
        }
    }

    /// Copies go to these members from now on; `address` says that the group may be new, or over.
    fn regroup(&mut self, now: Time, address: Option<IpAddr>, learnt: &Learnt) {
        let members: Vec<HostId> = learnt.members.iter().copied().map(HostId).collect();
        self.fabric.set_group(now, learnt.number, &members);
        match address {
            Some(address) if members.is_empty() => self.book.remove_group(address),
            Some(address) => {
                let listed = self.book.insert_group(address, learnt.number);
                listed.expect("a group that is learnt has a multicast address of its own");
            }
            None => {}
        }
    }

    /// Trees are snapshots: links have gone or come.
    fn regroup_all(&mut self, now: Time) {
        let all: Vec<Learnt> = self.membership.all().cloned().collect();
        all.iter().for_each(|learnt| self.regroup(now, None, learnt));
    }

    fn send(&mut self, host: usize, clock: &mut impl FnMut() -> Time) {
        let HostEnd { port, outgoing, due, .. } = &mut self.hosts[host];
        if outgoing.is_empty() {
            return;
        }
        // An interface that is down takes none.
        let done = port.send(outgoing).unwrap_or_else(|_| {
            self.port_errors += 1;
            0
        });
        let now = clock();
        due[..done].iter().for_each(|due| self.lateness.sent(now.since(*due)));
        // A real cable does not wait either.
        self.unsent += (outgoing.len() - done) as u64;
        outgoing.clear();
        due.clear();
    }

    /// Changes happen from now on as the script says; nothing happens before this.
    pub(super) fn begin(&mut self, now: Time) {
        self.up_to(now);
        self.begun = Some((now, 0));
    }

    /// The next change of the script.
    fn next_change(&self) -> Option<(Time, LinkId, LinkChange)> {
        let (beginning, done) = self.begun?;
        let (at, link, change) = *self.script.get(done)?;
        Some((beginning + at.since(Time::ZERO), link, change))
    }

    /// Lets frames leave their hosts, changes the network and looks at its queues, each at its time, however late it is now.
    fn up_to(&mut self, now: Time) {
        while let Some((at, host, frame)) = self.jitter.as_mut().and_then(|jitter| jitter.release(now)) {
            self.change_and_look(at);
            self.fabric.inject(at, host, frame);
        }
        self.change_and_look(now);
    }

    fn change_and_look(&mut self, now: Time) {
        loop {
            let change = self.next_change();
            let sample = self.sampling.as_ref().and_then(Sampler::next);
            match change.map(|it| it.0).into_iter().chain(sample).min() {
                Some(at) if at <= now && sample == Some(at) => self.look(at),
                Some(at) if at <= now => {
                    let (_, link, change) = change.expect("what is due is a sample or a change");
                    self.fabric.change(at, link, change).expect("all changes were tried before the start");
                    self.begun = self.begun.map(|(beginning, done)| (beginning, done + 1));
                    if matches!(change, LinkChange::Down(_)) {
                        self.regroup_all(at);
                    }
                }
                _ => return,
            }
        }
    }

    fn look(&mut self, at: Time) {
        let Some(sampler) = &mut self.sampling else { return };
        for &link in &sampler.what.links {
            let packets = self.fabric.queue_len(at, link);
            sampler.samples.push(QueueSample { at, link, packets });
        }
        sampler.next = at + sampler.what.every;
    }

    pub(super) fn change(
        &mut self,
        now: Time,
        link: LinkId,
        change: LinkChange,
    ) -> Result<(), EmulatedFabricError> {
        self.up_to(now);
        self.fabric.change(now, link, change)?;
        if matches!(change, LinkChange::Down(_)) {
            self.regroup_all(now);
        }
        Ok(())
    }

    pub(super) fn set_group(
        &mut self,
        now: Time,
        address: IpAddr,
        group: u32,
        members: &[HostId],
    ) -> Result<(), SoftSwitchError> {
        self.up_to(now);
        if address.is_multicast()
            && let Some(number) = self.membership.name(address)
        {
            self.book.remove_group(address);
            self.fabric.set_group(now, number, &[]);
        }
        self.book.insert_group(address, group)?;
        self.fabric.set_group(now, group, members);
        Ok(())
    }

    pub(super) fn sample(&mut self, now: Time, what: Sampling) {
        // All at once: growing in the middle would be a pause.
        let samples = Vec::with_capacity(what.most);
        self.sampling = Some(Sampler { next: now, what, samples });
    }

    pub(super) fn take_samples(&mut self) -> Vec<QueueSample> {
        self.sampling.take().map(|sampler| sampler.samples).unwrap_or_default()
    }

    pub(super) fn forget_lateness(&mut self) {
        self.missed_before = self.missed();
        self.lateness.forget();
    }

    fn missed(&mut self) -> u64 {
        let unread: u64 = self.hosts.iter_mut().map(|host| host.port.counters().kernel_drops).sum();
        unread + self.unsent
    }

    pub(super) fn snapshot(&mut self, clock: &mut impl FnMut() -> Time) -> Snapshot {
        let now = clock();
        self.up_to(now);
        // So that what has come to its host has also been sent to it.
        self.deliver(now, clock);
        let links = (0..self.links).map(LinkId).map(|link| LinkState {
            queue: self.fabric.queue_len(now, link),
            port: self.fabric.stats(now, link),
            lost: self.lost[link.index()],
            allocator: self.fabric.allocator(now, link),
        });
        let links = links.collect();
        let missed = self.missed() - self.missed_before;
        Snapshot {
            at: now,
            links,
            counts: self.fabric.counts(),
            in_flight: self.fabric.in_flight().frames,
            ports: self.hosts.iter_mut().map(|host| host.port.counters()).collect(),
            not_forwarded: self.not_forwarded,
            unsent: self.unsent,
            buffers: self.pool.lent(),
            port_errors: self.port_errors,
            groups: self.membership.all().count() as u64,
            memberships: self.membership.all().map(|it| it.members.len() as u64).sum(),
            groups_refused: self.membership.refused(),
            captured: self.recorder().map(|recorder| recorder.counts()),
            validity: self.lateness.validity(missed),
        }
    }
}

impl Sampler {
    /// When it looks again, if there is room for what it sees.
    fn next(&self) -> Option<Time> {
        (self.samples.len() + self.what.links.len() <= self.what.most).then_some(self.next)
    }
}
