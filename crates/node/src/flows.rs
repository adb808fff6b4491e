//! Flows that begin or end at this node: their keys, their owners, and the messages that may come by them.
//!
//! ```text
//!   datagram --> of a known flow? --> made under its key? --> may its owner get it? --> Read
//!                    |                     `--------------------------`--> Unread::Stray
//!                    `--> Unread::Unknown
//! ```
//! A flow's key proves who made a datagram, and gives no right to give orders: these come over control links, whose peers are known.

use core::net::SocketAddr;
use std::collections::VecDeque;

use headwater_machine::SortedMap;
use headwater_units::{FlowId, FlowKey};
use headwater_wire::{Body, Datagram, HeaderKey, Parsed, parse, parse_trimmed};

/// Number of ended flows of the source whose keys are kept, so that a repeated FIN is understood.
const RETIRED: usize = 256;

/// The flows of a node.
#[derive(Default)]
pub struct Flows {
    flows: SortedMap<FlowId, Box<Flow>>,
    /// Flows of the source that have ended, oldest first.
    retired: VecDeque<FlowId>,
}

struct Flow {
    key: HeaderKey,
    owner: Owner,
}

enum Owner {
    /// This node's source.
    Source {
        /// Where it need not ask whether the receiver is there, until the receiver has been seen there.
        vouched: Vec<SocketAddr>,
    },
    /// This node's receivers.
    Receivers {
        /// T of all symbols of the flow.
        symbol_size: u16,
    },
}

/// The owner of a datagram that came by a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum For {
    /// This node's source.
    Source {
        /// It is the first that came from where the controller says that the receiver is.
        vouched: bool,
    },
    /// This node's receivers.
    Receivers,
}

/// A datagram that may be handed to a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Read<'a> {
    /// Its content.
    pub datagram: Datagram,
    /// A symbol's bytes.
    pub payload: &'a [u8],
    /// Its owner.
    pub whose: For,
}

/// Why a datagram is not handed to a machine of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// The flow is not known here.
    Unknown,
    /// The other end of the flow does not send such datagrams.
    Stray,
}

impl Flows {
    /// The source has a flow, under this key. The controller says that its receiver is at one of these addresses.
    pub fn send(&mut self, flow: FlowId, key: &FlowKey, vouched: Vec<SocketAddr>) {
        self.retired.retain(|it| *it != flow);
        self.insert(flow, key, Owner::Source { vouched });
    }

    /// The receivers have a flow, under this key; its symbols have this size.
    pub fn receive(&mut self, flow: FlowId, key: &FlowKey, symbol_size: u16) {
        self.insert(flow, key, Owner::Receivers { symbol_size });
    }

    fn insert(&mut self, flow: FlowId, key: &FlowKey, owner: Owner) {
        self.flows.insert(flow, Box::new(Flow { key: HeaderKey::new(key), owner }));
    }

    /// A flow of the source has ended. Its receiver may still say so, and is answered.
    pub fn retire(&mut self, flow: FlowId) {
        self.retired.push_back(flow);
        if self.retired.len() > RETIRED
            && let Some(oldest) = self.retired.pop_front()
        {
            self.flows.remove(&oldest);
        }
    }

    /// A flow of the receivers has ended.
    pub fn forget(&mut self, flow: FlowId) {
        self.flows.remove(&flow);
    }

    /// The key of a flow.
    #[inline]
    pub fn key(&mut self, flow: FlowId) -> Option<&HeaderKey> {
        self.flows.get_mut(&flow).map(|flow| &flow.key)
    }

    /// Reads a datagram that claims to be of this flow. `trimmed`: it has the code point of what switches have cut.
    ///
    /// # Errors
    /// [`Unread`]
    #[inline]
    pub fn read<'a>(
        &mut self,
        flow: FlowId,
        bytes: &'a [u8],
        trimmed: bool,
        from: impl Into<SocketAddr>,
    ) -> Result<Read<'a>, Unread> {
        let Flow { key, owner } = &mut **self.flows.get_mut(&flow).ok_or(Unread::Unknown)?;
        let parsed = match trimmed {
            true => parse_trimmed(bytes, key).map(|datagram| Parsed { datagram, payload: &[] }),
            false => parse(bytes, key),
        };
        let Parsed { datagram, payload } = parsed.map_err(|_| Unread::Stray)?;
        // A switch that trims says so by a code point. A flag that says so may be anybody's.
        if trimmed != datagram.body.is_trimmed() || !owner.may_get(&datagram.body, payload.len()) {
            return Err(Unread::Stray);
        }
        Ok(Read { datagram, payload, whose: owner.gets(from) })
    }

    /// The owner of a datagram that the network has brought by this flow, where networks only bring what the other end
    /// has sent: in a simulation.
    ///
    /// # Errors
    /// [`Unread`]
    #[inline]
    pub fn whose(&mut self, flow: FlowId, body: &Body, from: impl Into<SocketAddr>) -> Result<For, Unread> {
        let Flow { owner, .. } = &mut **self.flows.get_mut(&flow).ok_or(Unread::Unknown)?;
        let payload = owner.payload();
        if owner.may_get(body, payload) { Ok(owner.gets(from)) } else { Err(Unread::Stray) }
    }
}

/// Whether receivers may get this, with a payload of this length, by a flow or tree whose symbols have this size.
#[inline]
pub(crate) fn may_receive(body: &Body, payload: usize, symbol_size: u16) -> bool {
    match body {
        Body::Control(_) => false,
        Body::Symbol(_) | Body::ScheduledSymbol(_) => {
            body.is_trimmed() || payload == usize::from(symbol_size)
        }
        _ => true,
    }
}

impl Owner {
    #[inline]
    fn may_get(&self, body: &Body, payload: usize) -> bool {
        match self {
            Owner::Source { .. } => {
                !matches!(body, Body::Control(_) | Body::Symbol(_) | Body::ScheduledSymbol(_))
            }
            Owner::Receivers { symbol_size } => may_receive(body, payload, *symbol_size),
        }
    }

    /// The length of a symbol's payload.
    fn payload(&self) -> usize {
        match self {
            Owner::Source { .. } => 0,
            Owner::Receivers { symbol_size } => usize::from(*symbol_size),
        }
    }

    #[inline]
    fn gets(&mut self, from: impl Into<SocketAddr>) -> For {
        match self {
            Owner::Source { vouched } => {
                let seen = !vouched.is_empty() && vouched.contains(&from.into());
                if seen {
                    vouched.clear();
                }
                For::Source { vouched: seen }
            }
            Owner::Receivers { .. } => For::Receivers,
        }
    }
}

#[cfg(test)]
mod tests {
    use headwater_units::{BlockIndex, Esi, PacketNumber, SymbolId};
    use headwater_wire::{Class, Control, FinReason, SymbolHeader, ToSource, emit, mark_trimmed};

    use super::*;

    const FLOW: FlowId = FlowId(5);
    const KEY: FlowKey = FlowKey([3; 32]);
    const T: u16 = 100;

    fn at(host: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, host], 7000))
    }

    fn symbol() -> Body {
        let symbol = SymbolId { block: BlockIndex(0), esi: Esi(0) };
        Body::Symbol(SymbolHeader::new(PacketNumber(0), symbol))
    }

    fn emitted(key: FlowKey, body: Body, symbol_size: u16) -> Vec<u8> {
        let symbol_size = if matches!(body, Body::Symbol(_)) { symbol_size } else { 0 };
        let datagram = Datagram { class: Class::Control, key_epoch: 0, flow: FLOW, body };
        let mut bytes = vec![0; datagram.len(symbol_size)];
        emit(&datagram, symbol_size, &HeaderKey::new(&key), &mut bytes);
        bytes
    }

    fn read(flows: &mut Flows, bytes: &[u8], trimmed: bool) -> Result<For, Unread> {
        flows.read(FLOW, bytes, trimmed, at(1)).map(|read| read.whose)
    }

    fn receiving() -> Flows {
        let mut flows = Flows::default();
        flows.receive(FLOW, &KEY, T);
        flows
    }

    #[test]
    fn only_who_has_the_key_is_heard_and_by_whom_the_flow_belongs_to() {
        let fin = emitted(KEY, Body::Fin(FinReason::Done), 0);
        let mut flows = Flows::default();
        assert_eq!(read(&mut flows, &fin, false), Err(Unread::Unknown));
        flows.send(FLOW, &KEY, Vec::new());
        assert_eq!(read(&mut flows, &fin, false), Ok(For::Source { vouched: false }));
        let forged = emitted(FlowKey([4; 32]), Body::Fin(FinReason::Done), 0);
        assert_eq!(read(&mut flows, &forged, false), Err(Unread::Stray));
        flows.receive(FLOW, &KEY, T);
        assert_eq!(read(&mut flows, &fin, false), Ok(For::Receivers));
    }

    #[test]
    fn nobody_gets_orders_by_a_flow_and_a_source_gets_no_symbols() {
        let order = emitted(KEY, Body::Control(Box::new(Control::Source(ToSource::Stop { flow: FLOW }))), 0);
        let symbol = emitted(KEY, symbol(), T);
        let mut flows = receiving();
        assert_eq!(read(&mut flows, &order, false), Err(Unread::Stray));
        assert_eq!(read(&mut flows, &symbol, false), Ok(For::Receivers));
        flows.send(FLOW, &KEY, Vec::new());
        assert_eq!(read(&mut flows, &order, false), Err(Unread::Stray));
        assert_eq!(read(&mut flows, &symbol, false), Err(Unread::Stray));
    }

    #[test]
    fn a_symbol_is_as_long_as_its_flow_says_or_has_nothing() {
        let mut flows = receiving();
        assert_eq!(read(&mut flows, &emitted(KEY, symbol(), T + 1), false), Err(Unread::Stray));
        assert_eq!(read(&mut flows, &emitted(KEY, symbol(), T - 1), false), Err(Unread::Stray));
        let payload = flows.read(FLOW, &emitted(KEY, symbol(), T), false, at(1)).map(|it| it.payload.len());
        assert_eq!(payload, Ok(usize::from(T)));
    }

    #[test]
    fn a_symbol_is_trimmed_by_its_code_point_and_not_by_its_flag() {
        let mut flows = receiving();
        let mut cut = emitted(KEY, symbol(), T);
        let whole = cut.clone();
        let len = mark_trimmed(&mut cut).expect("a symbol can be trimmed");
        cut.truncate(len);
        assert_eq!(read(&mut flows, &cut, true), Ok(For::Receivers));
        assert_eq!(read(&mut flows, &cut, false), Err(Unread::Stray), "anybody can set a flag");
        let read = flows.read(FLOW, &whole, true, at(1)).expect("switches know nothing of flags");
        assert!(read.datagram.body.is_trimmed() && read.payload.is_empty());
    }

    #[test]
    fn a_receiver_is_vouched_for_once() {
        let mut flows = Flows::default();
        let fin = emitted(KEY, Body::Fin(FinReason::Done), 0);
        let mut whose = |from| flows.read(FLOW, &fin, false, from).map(|it| it.whose);
        assert_eq!(whose(at(1)), Err(Unread::Unknown));
        flows.send(FLOW, &KEY, vec![at(1), at(2)]);
        let mut whose = |from| flows.read(FLOW, &fin, false, from).map(|it| it.whose);
        assert_eq!(whose(at(3)), Ok(For::Source { vouched: false }));
        assert_eq!(whose(at(2)), Ok(For::Source { vouched: true }));
        assert_eq!(whose(at(1)), Ok(For::Source { vouched: false }), "it is where it was seen");
    }

    #[test]
    fn keys_of_ended_flows_are_kept_for_a_while() {
        let mut flows = Flows::default();
        let last = RETIRED as u64;
        for flow in 0..=last {
            flows.send(FlowId(flow), &KEY, Vec::new());
            flows.retire(FlowId(flow));
        }
        assert!(flows.key(FlowId(0)).is_none() && flows.key(FlowId(1)).is_some());
        // One that begins anew is no ended one.
        flows.send(FlowId(1), &KEY, Vec::new());
        (0..RETIRED as u64).for_each(|more| {
            flows.send(FlowId(last + 1 + more), &KEY, Vec::new());
            flows.retire(FlowId(last + 1 + more));
        });
        assert!(flows.key(FlowId(1)).is_some() && flows.key(FlowId(last)).is_none());
        flows.receive(FLOW, &KEY, T);
        flows.forget(FLOW);
        assert!(flows.key(FLOW).is_none());
    }
}
