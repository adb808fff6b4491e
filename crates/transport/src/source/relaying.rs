//! Objects that are sent on while they arrive: what their reception means for the flows that send them
//! ([`crate::pull::Relays`]).

use headwater_units::{FlowId, Geometry, ObjectId};

use super::{Source, enqueue};
use crate::pull::PullFlow;
use crate::transports::Flow;
use crate::{Arriving, Relaying};

impl Source {
    /// The reception of an object begins, perhaps anew.
    pub(super) fn relay(&mut self, relaying: &Relaying) {
        let object = relaying.object;
        if self.holdings.contains_key(&object) {
            return;
        }
        if let Ok(geometry) = Geometry::new(relaying.bytes, relaying.symbol_size) {
            self.common.pull.relays.begin(object, geometry, &relaying.have);
        }
        self.with_relaying(object, |flow| flow.on_anew(None));
    }

    /// All of an object is here.
    pub(super) fn on_all_here(&mut self, object: ObjectId) {
        self.common.pull.relays.hold(object);
        self.with_relaying(object, |_| {});
    }

    pub(super) fn on_arriving(&mut self, object: ObjectId, what: Arriving) {
        match what {
            Arriving::Symbol(symbol) => {
                if self.common.pull.relays.list(object, symbol) {
                    self.with_relaying(object, |_| {});
                }
            }
            Arriving::Decoding(block) => self.common.pull.relays.set_decoding(object, block, true),
            Arriving::NeedsMore(block) => {
                self.common.pull.relays.set_decoding(object, block, false);
                self.with_relaying(object, |_| {});
            }
            Arriving::Anew(block) => {
                self.common.pull.relays.anew(object, block);
                self.with_relaying(object, |flow| flow.on_anew(Some(block)));
            }
            Arriving::Whole(block) => {
                let symbols = self.common.pull.relays.whole(object, block);
                self.with_relaying(object, |flow| flow.on_whole(block, &symbols));
            }
            Arriving::Over => {
                if !self.holdings.contains_key(&object) {
                    self.common.pull.relays.end(object);
                    self.end_flows_of(object);
                }
            }
        }
    }

    /// Every flow that sends an object on may have something to send now.
    #[inline]
    fn with_relaying(&mut self, object: ObjectId, mut change: impl FnMut(&mut PullFlow)) {
        let flows: Vec<FlowId> = self.common.pull.relays.take_flows(object);
        for flow in &flows {
            if let Some(held) = self.flows.get_mut(flow) {
                if let Flow::Pull(flow) = &mut held.flow {
                    change(flow);
                }
                enqueue(held, *flow, &mut self.ready);
            }
        }
        self.common.pull.relays.put_flows(object, flows);
    }
}
