//! Probes of which members hear a multicast group.
//!
//! A probe of a group is a datagram of a flow whose key all members have, as long as the datagrams that follow. Each member that
//! hears it answers by unicast on a flow of its own. So the asker knows who answers, and nobody else can make members answer.
//!
//! ```text
//!   probe(group, members) -- Probe to the group, again every `every` while someone is silent --> Heard(who answered)
//!                                                                        `-- `tries` times at most
//! ```

use std::collections::VecDeque;

use headwater_machine::SortedMap;
use headwater_units::{Duration, FlowId, Time};
use headwater_wire::{Body, FlowSecret, GroupQuestion, HeaderKey, Probe, ProbeAck, parse};

/// Maximum number of flows whose probes are answered. More are those of a controller that forgets to say when they are over.
const MAX_ANSWERED: usize = 1024;

/// Timeouts of group probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupProbesConfig {
    /// Number of probes before members that have not answered count as deaf: 3.
    pub tries: u32,
    /// The wait after each time: 100 ms, more than a round trip and a busy member need.
    pub every: Duration,
}

impl Default for GroupProbesConfig {
    fn default() -> Self {
        GroupProbesConfig { tries: 3, every: Duration::from_millis(100) }
    }
}

/// Names one probing of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProbeId(u32);

/// An action about groups.
#[derive(Clone)]
pub enum GroupAction<G, A> {
    /// Send a probe to a group.
    Probe {
        /// The group.
        group: G,
        /// Its flow, and that flow's key.
        flow: FlowId,
        /// The key.
        key: HeaderKey,
        /// The packet to send.
        probe: Probe,
    },
    /// Answer a probe.
    Answer {
        /// The asker.
        to: A,
        /// The flow of this node's answers.
        flow: FlowId,
        /// The key.
        key: HeaderKey,
        /// The packet to send.
        ack: ProbeAck,
    },
    /// A probing is over.
    Heard {
        /// The probe.
        id: ProbeId,
        /// Members that have answered, by their flows, in the order of their answers.
        members: Vec<FlowId>,
    },
}

/// Questions and answers of a node about multicast groups. `G` is a group, `A` the address of a node. After each call,
/// [`GroupProbes::poll`] until it has nothing more.
pub struct GroupProbes<G, A> {
    config: GroupProbesConfig,
    /// By the flow on which a group is probed: the one on which to answer.
    answers: SortedMap<FlowId, Box<Answer>>,
    probings: Vec<Probing<G>>,
    /// Numbers of probes, so that no answer to one is taken for that to another.
    next_probe: u32,
    out: VecDeque<GroupAction<G, A>>,
}

struct Answer {
    asked: HeaderKey,
    flow: FlowId,
    key: HeaderKey,
}

/// Members that are asked, and have not all answered.
struct Probing<G> {
    group: G,
    flow: FlowId,
    key: HeaderKey,
    probe: Probe,
    silent: Vec<(FlowId, HeaderKey)>,
    heard: Vec<FlowId>,
    next: Time,
    tries_left: u32,
}

impl<G: Clone, A> GroupProbes<G, A> {
    /// Asks nobody, answers nobody.
    pub fn new(config: GroupProbesConfig) -> Self {
        let (answers, probings, out) = Default::default();
        GroupProbes { config, answers, probings, next_probe: 0, out }
    }

    /// When [`GroupProbes::tick`] is due.
    pub fn wake(&self) -> Option<Time> {
        self.probings.iter().map(|probing| probing.next).min()
    }

    /// Whether something is to be done.
    #[inline]
    pub fn has_actions(&self) -> bool {
        !self.out.is_empty()
    }

    /// Returns the next action.
    pub fn poll(&mut self) -> Option<GroupAction<G, A>> {
        self.out.pop_front()
    }

    /// Answers probes on the flow `asked`, on the flow `own`.
    pub fn answer(&mut self, asked: &FlowSecret, own: &FlowSecret) {
        if self.answers.len() < MAX_ANSWERED {
            let answer =
                Answer { asked: HeaderKey::new(&asked.key), flow: own.flow, key: HeaderKey::new(&own.key) };
            self.answers.insert(asked.flow, Box::new(answer));
        }
    }

    /// Undoes [`GroupProbes::answer`].
    pub fn ignore(&mut self, asked: FlowId) {
        self.answers.remove(&asked);
    }

    /// Finds out which members of a group hear it. It takes [`GroupProbesConfig::tries`] times [`GroupProbesConfig::every`] where not
    /// all do.
    pub fn probe(&mut self, now: Time, group: G, question: &GroupQuestion) -> ProbeId {
        let GroupQuestion { asked, members, bytes, .. } = question;
        self.next_probe = self.next_probe.wrapping_add(1);
        let probe = Probe { number: self.next_probe, bytes: (*bytes).max(Probe::SHORTEST), fits: None };
        self.probings.push(Probing {
            group,
            flow: asked.flow,
            key: HeaderKey::new(&asked.key),
            probe,
            silent: members.iter().map(|it| (it.flow, HeaderKey::new(&it.key))).collect(),
            heard: Vec::new(),
            next: now,
            tries_left: self.config.tries,
        });
        self.tick(now);
        ProbeId(probe.number)
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Time) {
        let is_over = |it: &mut Probing<G>| it.silent.is_empty() || (it.next <= now && it.tries_left == 0);
        for probing in self.probings.extract_if(.., is_over) {
            let Probing { probe, heard: members, .. } = probing;
            self.out.push_back(GroupAction::Heard { id: ProbeId(probe.number), members });
        }
        for probing in self.probings.iter_mut().filter(|probing| probing.next <= now) {
            (probing.next, probing.tries_left) = (now + self.config.every, probing.tries_left - 1);
            let Probing { group, flow, key, probe, .. } = probing;
            let (group, flow, key, probe) = (group.clone(), *flow, key.clone(), *probe);
            self.out.push_back(GroupAction::Probe { group, flow, key, probe });
        }
    }

    /// A datagram of a flow that is nothing else's; whether it was a probe that is answered here, or an answer that is waited for.
    pub fn on_datagram(&mut self, now: Time, flow: FlowId, bytes: &[u8], from: A) -> bool {
        if let Some(Answer { asked, flow, key }) = self.answers.get(&flow).map(|it| &**it) {
            let Ok(parsed) = parse(bytes, asked) else { return false };
            let Body::Probe(Probe { number, bytes, .. }) = parsed.datagram.body else { return false };
            let (to, ack) = (from, ProbeAck { number, bytes });
            self.out.push_back(GroupAction::Answer { to, flow: *flow, key: key.clone(), ack });
            return true;
        }
        for probing in &mut self.probings {
            let Some(place) = probing.silent.iter().position(|it| it.0 == flow) else { continue };
            let parsed = parse(bytes, &probing.silent[place].1);
            let expected = ProbeAck { number: probing.probe.number, bytes: probing.probe.bytes };
            if parsed.is_ok_and(|parsed| parsed.datagram.body == Body::ProbeAck(expected)) {
                probing.heard.push(flow);
                probing.silent.remove(place);
                if probing.silent.is_empty() {
                    self.tick(now);
                }
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use headwater_units::{Bytes, FlowKey};
    use headwater_wire::{Class, Datagram, emit};

    use super::*;

    type Probes = GroupProbes<&'static str, &'static str>;
    /// A flow, and a datagram of it as it travels.
    type Sent = (FlowId, Vec<u8>);

    fn secret(number: u8) -> FlowSecret {
        FlowSecret { flow: FlowId(number.into()), key: FlowKey([number; 32]) }
    }

    fn question(members: &[u8]) -> GroupQuestion {
        let at = "239.1.1.1:7003".parse().unwrap();
        let members = members.iter().copied().map(secret).collect();
        GroupQuestion { at, towards: at, asked: secret(100), members, bytes: 200 }
    }

    fn ms(n: u64) -> Time {
        Time::ZERO + Duration::from_millis(n)
    }

    fn written(flow: FlowId, key: &HeaderKey, body: Body) -> Vec<u8> {
        let datagram = Datagram { class: Class::Control, key_epoch: 0, flow, body };
        let mut bytes = vec![0; datagram.len(0)];
        emit(&datagram, 0, key, &mut bytes);
        bytes
    }

    /// The probes that one node sends now, as they travel, and the members heard where it is over.
    fn said(node: &mut Probes) -> (Vec<Sent>, Vec<Vec<FlowId>>) {
        let (mut sent, mut heard) = (Vec::new(), Vec::new());
        while let Some(action) = node.poll() {
            match action {
                GroupAction::Probe { flow, key, probe, .. } => {
                    assert_eq!(Bytes::new(probe.bytes.into()), Bytes::new(200));
                    sent.push((flow, written(flow, &key, Body::Probe(probe))));
                }
                GroupAction::Answer { flow, key, ack, .. } => {
                    sent.push((flow, written(flow, &key, Body::ProbeAck(ack))));
                }
                GroupAction::Heard { members, .. } => heard.push(members),
            }
        }
        (sent, heard)
    }

    /// Hands a node what another one has sent; what it says then.
    fn hear(node: &mut Probes, now: Time, sent: &[Sent]) -> (Vec<Sent>, Vec<Vec<FlowId>>) {
        for (flow, bytes) in sent {
            node.on_datagram(now, *flow, bytes, "there");
        }
        said(node)
    }

    #[test]
    fn a_probing_is_over_as_soon_as_all_have_answered_or_after_its_tries() {
        let mut asker = Probes::new(GroupProbesConfig::default());
        let mut members: Vec<Probes> = (1..=2).map(|_| Probes::new(GroupProbesConfig::default())).collect();
        for (number, member) in (1..).zip(&mut members) {
            member.answer(&secret(100), &secret(number));
        }
        asker.probe(ms(0), "group", &question(&[1, 2]));
        let (probes, _) = said(&mut asker);
        let answers: Vec<_> = members.iter_mut().map(|member| hear(member, ms(1), &probes).0).collect();
        assert_eq!(hear(&mut asker, ms(2), &answers[1]).1, Vec::<Vec<FlowId>>::new());
        assert_eq!(hear(&mut asker, ms(3), &answers[0]).1, [[FlowId(2), FlowId(1)]]);
        assert_eq!(asker.wake(), None);

        asker.probe(ms(10), "group", &question(&[1, 2, 3]));
        let (probes, _) = said(&mut asker);
        let (answer, _) = hear(&mut members[0], ms(11), &probes);
        hear(&mut asker, ms(12), &answer);
        let mut asked = 1;
        while let Some(at) = asker.wake() {
            asker.tick(at);
            let (probes, heard) = said(&mut asker);
            asked += probes.len();
            if let [members] = &heard[..] {
                assert_eq!((at, asked, &members[..]), (ms(310), 3, &[FlowId(1)][..]));
            }
        }
        assert_eq!(asked, 3);
    }

    #[test]
    fn nobody_answers_under_another_key_or_after_it_was_told_to_ignore_probes() {
        let mut asker = Probes::new(GroupProbesConfig::default());
        let mut member = Probes::new(GroupProbesConfig::default());
        member.answer(&FlowSecret { key: FlowKey([9; 32]), ..secret(100) }, &secret(1));
        asker.probe(ms(0), "group", &question(&[1]));
        let (probes, _) = said(&mut asker);
        assert_eq!(hear(&mut member, ms(1), &probes).0, []);
        member.answer(&secret(100), &secret(1));
        let (answer, _) = hear(&mut member, ms(1), &probes);
        assert_eq!(answer.len(), 1);
        // An answer to another probe is none.
        let forged = (
            FlowId(1),
            written(
                FlowId(1),
                &HeaderKey::new(&FlowKey([1; 32])),
                Body::ProbeAck(ProbeAck { number: 77, bytes: 200 }),
            ),
        );
        assert!(hear(&mut asker, ms(2), &[forged]).1.is_empty());
        member.ignore(FlowId(100));
        assert_eq!(hear(&mut member, ms(3), &probes).0, []);
    }
}
