//! What a host can send of objects that it is still receiving: symbols as they arrive, and blocks once they are whole.
//!
//! ```text
//!                    Symbol              Decoding                Whole
//!   a block: nothing -------> Listed --------------> Decoding ----------> Whole: read again, as of an object that is held
//!                               ^ ^    NeedsMore        |
//!                               | `---------------------'
//!                               `------ Anew: the list begins anew
//! ```
//! One receiver of n, that of class i, sends the symbols of its class that its source has sent it on to the n - 1 others, each of whom
//! has asked it for that class of the block; where racks are known, to one other in each rack, who passes them on within it
//! (`overlay` of the controller). A list per block in flight says which have come; each flow has its own place in it, so
//! that a slow receiver holds nobody up and costs no memory: the list of a block ends when it is whole, and what is asked for of it
//! after that is made from the block itself.
//!
//! A receiver that has lost symbols, or gets none of some class, asks for more of the other classes. If a relay is asked for symbols
//! beyond its part that it has not got, it asks the source of its class for them, once for all who want them. So such a symbol too leaves
//! the source once and is passed on to all who want it, and the relay has it for itself.
//!
//! Listed symbols have not been verified. Only requests by class are served from a list. A request for a whole block, because of a wrong
//! one, is served from a verified block or not yet: so a relay answers for all that it sends of such a block
//! ([`crate::task::blame`]).
//!
//! Not in SCDP, which has no relays; the classes and wants are its own (§III-F).

use std::collections::BTreeMap;

use headwater_machine::{Bits, SortedMap};
use headwater_units::{BlockIndex, FlowId, Geometry, ObjectId, SymbolId};
use headwater_wire::Want;

/// All objects that are being received and sent on, or are to be.
#[derive(Debug, Default)]
pub(crate) struct Relays {
    objects: BTreeMap<ObjectId, Relayed>,
}

/// One of them.
#[derive(Debug, Default)]
pub(crate) struct Relayed {
    /// Those that send it on.
    flows: Vec<FlowId>,
    reception: Reception,
}

#[derive(Debug, Default)]
enum Reception {
    /// It has not begun.
    #[default]
    Awaited,
    Coming {
        geometry: Geometry,
        whole: Bits,
        /// Blocks of which some symbols are here.
        blocks: SortedMap<u32, Listed>,
    },
    /// It is over, and all of it is here.
    Held,
}

#[derive(Debug, Default)]
struct Listed {
    /// In the order in which they came.
    symbols: Vec<u32>,
    decoding: bool,
    /// By class: symbols wanted by somebody, if more than one part.
    wanted: Vec<(u8, u32)>,
}

/// What can be sent of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage<'a> {
    /// Nothing now.
    Nothing,
    /// These symbols, in the order in which they came.
    Listed(&'a [u32]),
    /// Any symbol, once the block is prepared.
    Whole,
}

impl Relays {
    pub(crate) fn get(&self, object: ObjectId) -> Option<&Relayed> {
        self.objects.get(&object)
    }

    /// A flow is to send an object on.
    pub(crate) fn enter(&mut self, object: ObjectId, flow: FlowId) {
        self.objects.entry(object).or_default().flows.push(flow);
    }

    /// Whether it is one that sends an object on.
    pub(crate) fn has(&self, object: ObjectId, flow: FlowId) -> bool {
        self.get(object).is_some_and(|relayed| relayed.flows.contains(&flow))
    }

    /// A flow is over.
    pub(crate) fn leave(&mut self, object: ObjectId, flow: FlowId) {
        let Some(relayed) = self.objects.get_mut(&object) else { return };
        relayed.flows.retain(|its| *its != flow);
        if relayed.flows.is_empty() && !matches!(relayed.reception, Reception::Coming { .. }) {
            self.objects.remove(&object);
        }
    }

    /// The flows that send an object on, to be given back by [`Relays::put_flows`], so that going through them costs no copy.
    pub(crate) fn take_flows(&mut self, object: ObjectId) -> Vec<FlowId> {
        self.objects.get_mut(&object).map_or_else(Vec::new, |relayed| std::mem::take(&mut relayed.flows))
    }

    pub(crate) fn put_flows(&mut self, object: ObjectId, flows: Vec<FlowId>) {
        if let Some(relayed) = self.objects.get_mut(&object) {
            relayed.flows = flows;
        }
    }

    /// The reception of an object begins, perhaps anew.
    pub(crate) fn begin(&mut self, object: ObjectId, geometry: Geometry, have: &[BlockIndex]) {
        let mut whole = Bits::new(geometry.layout().block_count());
        let known = have.iter().filter(|block| block.0 < geometry.layout().block_count());
        known.for_each(|block| _ = whole.set(block.0));
        let reception = Reception::Coming { geometry, whole, blocks: SortedMap::default() };
        self.objects.entry(object).or_default().reception = reception;
    }

    /// All of the object is here.
    pub(crate) fn hold(&mut self, object: ObjectId) {
        let Some(relayed) = self.objects.get_mut(&object) else { return };
        relayed.reception = Reception::Held;
        if relayed.flows.is_empty() {
            self.objects.remove(&object);
        }
    }

    /// Nothing more comes of it.
    pub(crate) fn end(&mut self, object: ObjectId) {
        self.objects.remove(&object);
    }

    /// A symbol has come. True if that is news to flows.
    #[inline]
    pub(crate) fn list(&mut self, object: ObjectId, symbol: SymbolId) -> bool {
        let Some(relayed) = self.objects.get_mut(&object).filter(|relayed| !relayed.flows.is_empty()) else {
            return false;
        };
        let Reception::Coming { whole, blocks, geometry } = &mut relayed.reception else { return false };
        let block = symbol.block.0;
        if block >= geometry.layout().block_count() || whole.get(block) {
            return false;
        }
        blocks.get_or_default(block).symbols.push(symbol.esi.0);
        true
    }

    /// Somebody wants symbols of a block. If that is more of their class than anybody wanted before, and more than its part, they are
    /// to be had: returns the class, and how many.
    pub(super) fn want(&mut self, object: ObjectId, want: &Want, source_symbols: u32) -> Option<(u8, u32)> {
        let Reception::Coming { whole, blocks, geometry } = &mut self.objects.get_mut(&object)?.reception
        else {
            return None;
        };
        let block = want.block.0;
        let is_more = want.stride > 1 && want.last() >= source_symbols;
        if !is_more || block >= geometry.layout().block_count() || whole.get(block) {
            return None;
        }
        let stride = u32::from(want.stride);
        let (class, symbols) = ((want.start % stride) as u8, want.last() / stride + 1);
        let wanted = &mut blocks.get_or_default(block).wanted;
        let at = wanted.iter().position(|(its, _)| *its == class).unwrap_or_else(|| {
            wanted.push((class, 0));
            wanted.len() - 1
        });
        let most = &mut wanted[at].1;
        let is_news = symbols > *most;
        *most = symbols.max(*most);
        is_news.then_some((class, symbols))
    }

    /// A block is with the decoder, or back from it.
    pub(crate) fn set_decoding(&mut self, object: ObjectId, block: BlockIndex, decoding: bool) {
        if let Some(listed) = self.listed(object, block) {
            listed.decoding = decoding;
        }
    }

    /// What was here of a block is gone.
    pub(crate) fn anew(&mut self, object: ObjectId, block: BlockIndex) {
        if let Some(listed) = self.listed(object, block) {
            *listed = Listed::default();
        }
    }

    /// A block is here, verified. Returns the symbols that came of it by themselves.
    pub(crate) fn whole(&mut self, object: ObjectId, block: BlockIndex) -> Vec<u32> {
        let Some(Reception::Coming { whole, blocks, geometry }) =
            self.objects.get_mut(&object).map(|relayed| &mut relayed.reception)
        else {
            return Vec::new();
        };
        if block.0 < geometry.layout().block_count() {
            whole.set(block.0);
        }
        blocks.remove(&block.0).map_or_else(Vec::new, |listed| listed.symbols)
    }

    fn listed(&mut self, object: ObjectId, block: BlockIndex) -> Option<&mut Listed> {
        match &mut self.objects.get_mut(&object)?.reception {
            Reception::Coming { blocks, .. } => blocks.get_mut(&block.0),
            _ => None,
        }
    }
}

impl Relayed {
    /// What can be sent of a block of the object, cut like this.
    #[inline]
    pub(super) fn stage(&self, cut: &Geometry, block: u32) -> Stage<'_> {
        match &self.reception {
            Reception::Held => Stage::Whole,
            Reception::Coming { geometry, whole, blocks } if geometry == cut => match blocks.get(&block) {
                Some(listed) if !listed.decoding => Stage::Listed(&listed.symbols),
                Some(_) => Stage::Nothing,
                None if whole.get(block) => Stage::Whole,
                None => Stage::Nothing,
            },
            // Cut otherwise: what comes is of no use to it, but all of it is.
            Reception::Coming { .. } | Reception::Awaited => Stage::Nothing,
        }
    }
}
