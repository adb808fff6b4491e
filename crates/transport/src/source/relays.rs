//! Blocks that flows of an overlay wait for. A host that is still receiving an object sends symbols of a block on in
//! their order as they come, so what is wrong goes on too. A receiver that finds a block wrong asks its sender once
//! more, and that is answered from a block that was verified: so a second wrong version convicts its direct sender.
//!
//! ```text
//!   a flow is to send a block --the block is whole--> Prepare, as of any object
//!                             `--it is not----------> waiting --Whole--> Prepare
//! ```
//! Only the question to the driver waits. The flow itself goes on with the blocks that are there, and says that it lives
//! ([`headwater_wire::Body::Heartbeat`]) when there are none.

use std::collections::{BTreeMap, VecDeque};

use headwater_machine::Bits;
use headwater_units::{BlockIndex, Esi, FlowId, ObjectId};

/// Number of objects to remember whose reception has come to nothing.
const REMEMBERED: usize = 64;

/// All objects that are sent on while they are received.
#[derive(Debug, Default)]
pub(super) struct Relays {
    objects: BTreeMap<ObjectId, Relayed>,
    /// Objects of which nothing more comes, the oldest first.
    given_up: VecDeque<ObjectId>,
}

/// One of them.
#[derive(Debug, Default)]
struct Relayed {
    /// Number of flows that send it on.
    flows: usize,
    /// Blocks that are here; none before the reception has begun.
    whole: Option<Whole>,
    /// By block that is partly here: the first source symbol that is not.
    partly: BTreeMap<u32, u32>,
    waiting: BTreeMap<u32, Vec<Waiting>>,
}

/// The blocks of an object that are here.
#[derive(Debug)]
struct Whole {
    blocks: u32,
    bits: Bits,
}

/// A flow that waits for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) flow: FlowId,
    /// It wants repair symbols too.
    pub(super) repair: bool,
}

impl Relays {
    /// Whether no object is sent on.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Whether an object can be sent on: not, after its reception has come to nothing.
    pub(super) fn may_enter(&self, object: ObjectId) -> bool {
        !self.given_up.contains(&object)
    }

    /// One more flow sends an object on.
    pub(super) fn enter(&mut self, object: ObjectId) {
        self.objects.entry(object).or_default().flows += 1;
    }

    /// A flow is over.
    pub(super) fn leave(&mut self, object: ObjectId, flow: FlowId) {
        let Some(relayed) = self.objects.get_mut(&object) else { return };
        relayed.waiting.retain(|_, flows| {
            flows.retain(|it| it.flow != flow);
            !flows.is_empty()
        });
        relayed.flows = relayed.flows.saturating_sub(1);
        self.forget_if_over(object);
    }

    /// The reception of an object of `blocks` blocks begins, perhaps anew, with these. Returns who waited for one of
    /// them.
    pub(super) fn begin(
        &mut self,
        object: ObjectId,
        blocks: u32,
        have: &[BlockIndex],
    ) -> Vec<(BlockIndex, Waiting)> {
        self.given_up.retain(|its| *its != object);
        let relayed = self.objects.entry(object).or_default();
        relayed.partly.clear();
        relayed.whole = Some(Whole { blocks, bits: Bits::new(blocks) });
        have.iter().filter(|block| block.0 < blocks).flat_map(|block| relayed.on_whole(*block)).collect()
    }

    /// A block is here up to a symbol. Returns who waits for it.
    pub(super) fn partly(&mut self, object: ObjectId, block: BlockIndex, below: Esi) -> Vec<FlowId> {
        let Some(relayed) = self.objects.get_mut(&object).filter(|it| it.whole.is_some()) else {
            return Vec::new();
        };
        match below.0 {
            0 => _ = relayed.partly.remove(&block.0),
            below => _ = relayed.partly.insert(block.0, below),
        }
        relayed.waiting.get(&block.0).into_iter().flatten().map(|waiting| waiting.flow).collect()
    }

    /// The first source symbol of a block that is not here.
    pub(super) fn below(&self, object: ObjectId, block: BlockIndex) -> Esi {
        let relayed = self.objects.get(&object);
        Esi(relayed.and_then(|relayed| relayed.partly.get(&block.0)).copied().unwrap_or(0))
    }

    /// A block is here. Returns who waited for it.
    pub(super) fn whole(&mut self, object: ObjectId, block: BlockIndex) -> Vec<(BlockIndex, Waiting)> {
        self.objects.get_mut(&object).map_or_else(Vec::new, |relayed| relayed.on_whole(block))
    }

    /// All of an object is here, and it is sent like any other. Returns who waited.
    pub(super) fn hold(&mut self, object: ObjectId) -> Vec<(BlockIndex, Waiting)> {
        let waiting = self.objects.remove(&object).unwrap_or_default().waiting;
        let each =
            |(block, flows): (u32, Vec<Waiting>)| flows.into_iter().map(move |it| (BlockIndex(block), it));
        waiting.into_iter().flat_map(each).collect()
    }

    /// Nothing more comes of an object, and what is here may vanish.
    pub(super) fn end(&mut self, object: ObjectId) {
        self.given_up.retain(|its| *its != object);
        self.given_up.push_back(object);
        if self.given_up.len() > REMEMBERED {
            self.given_up.pop_front();
        }
        if let Some(relayed) = self.objects.get_mut(&object) {
            (relayed.whole, relayed.partly, relayed.waiting) = Default::default();
            self.forget_if_over(object);
        }
    }

    /// A flow wants a block. Whether it waits for it from now on.
    pub(super) fn waits(&mut self, object: ObjectId, block: BlockIndex, waiting: Waiting) -> bool {
        let Some(relayed) = self.objects.get_mut(&object) else { return false };
        if relayed.whole.as_ref().is_some_and(|whole| block.0 < whole.blocks && whole.bits.get(block.0)) {
            return false;
        }
        relayed.waiting.entry(block.0).or_default().push(waiting);
        true
    }

    /// A flow does not want a block any more. Whether it waited for it.
    pub(super) fn gives_up(&mut self, object: ObjectId, block: BlockIndex, flow: FlowId) -> bool {
        let Some(relayed) = self.objects.get_mut(&object) else { return false };
        let Some(flows) = relayed.waiting.get_mut(&block.0) else { return false };
        let before = flows.len();
        flows.retain(|it| it.flow != flow);
        let waited = flows.len() < before;
        if flows.is_empty() {
            relayed.waiting.remove(&block.0);
        }
        waited
    }

    fn forget_if_over(&mut self, object: ObjectId) {
        let is_over = |relayed: &Relayed| relayed.flows == 0 && relayed.whole.is_none();
        if self.objects.get(&object).is_some_and(is_over) {
            self.objects.remove(&object);
        }
    }
}

impl Relayed {
    fn on_whole(&mut self, block: BlockIndex) -> Vec<(BlockIndex, Waiting)> {
        if let Some(whole) = self.whole.as_mut().filter(|whole| block.0 < whole.blocks) {
            whole.bits.set(block.0);
        }
        self.partly.remove(&block.0);
        let waited = self.waiting.remove(&block.0).unwrap_or_default();
        waited.into_iter().map(|it| (block, it)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: ObjectId = ObjectId([1; 32]);
    const ONE: Waiting = Waiting { flow: FlowId(1), repair: false };
    const TWO: Waiting = Waiting { flow: FlowId(2), repair: true };

    fn block(n: u32) -> BlockIndex {
        BlockIndex(n)
    }

    #[test]
    fn a_flow_waits_for_a_block_until_it_is_whole() {
        let mut relays = Relays::default();
        assert!(!relays.waits(OBJECT, block(0), ONE), "an object that is not sent on is all here");
        relays.enter(OBJECT);
        assert!(relays.waits(OBJECT, block(0), ONE) && relays.waits(OBJECT, block(3), ONE));
        assert_eq!(relays.begin(OBJECT, 5, &[block(0), block(9)]), [(block(0), ONE)]);
        assert!(!relays.waits(OBJECT, block(0), TWO));
        assert!(relays.waits(OBJECT, block(3), TWO));
        assert_eq!(relays.whole(OBJECT, block(3)), [(block(3), ONE), (block(3), TWO)]);
        assert!(relays.whole(OBJECT, block(3)).is_empty() && !relays.waits(OBJECT, block(3), ONE));
    }

    #[test]
    fn who_has_given_up_or_is_over_waits_no_longer() {
        let mut relays = Relays::default();
        relays.enter(OBJECT);
        relays.enter(OBJECT);
        relays.begin(OBJECT, 5, &[]);
        assert!([ONE, TWO].into_iter().all(|it| relays.waits(OBJECT, block(2), it)));
        assert!(relays.waits(OBJECT, block(4), TWO) && relays.waits(OBJECT, block(3), ONE));
        assert!(relays.gives_up(OBJECT, block(2), ONE.flow) && !relays.gives_up(OBJECT, block(2), ONE.flow));
        relays.leave(OBJECT, TWO.flow);
        assert!(relays.whole(OBJECT, block(2)).is_empty() && relays.whole(OBJECT, block(4)).is_empty());
        assert_eq!(relays.hold(OBJECT), [(block(3), ONE)]);
        assert!(relays.is_empty());
    }

    #[test]
    fn an_object_is_forgotten_with_its_reception_and_its_last_flow() {
        let mut relays = Relays::default();
        relays.enter(OBJECT);
        relays.begin(OBJECT, 5, &[block(1)]);
        assert!(relays.may_enter(OBJECT));
        relays.end(OBJECT);
        assert!(!relays.may_enter(OBJECT));
        assert!(relays.waits(OBJECT, block(1), ONE), "it may have vanished");
        relays.leave(OBJECT, ONE.flow);
        assert!(relays.is_empty());
        relays.begin(OBJECT, 5, &[]);
        assert!(relays.may_enter(OBJECT), "it is received anew");
        relays.leave(OBJECT, ONE.flow);
        assert!(!relays.is_empty(), "others may come");
        relays.end(OBJECT);
        assert!(relays.is_empty());
    }
}
