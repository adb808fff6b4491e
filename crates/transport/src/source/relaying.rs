//! Objects that are sent on while they are received: what their reception means for the flows that send them.

use headwater_machine::Output;
use headwater_units::{BlockIndex, Esi, FlowId, Geometry, ObjectId, Time};

use super::{Source, SourceEvent, Waiting};
use crate::{Arriving, Relaying};

impl Source {
    /// The reception of an object begins, perhaps anew.
    pub(super) fn relay(&mut self, relaying: &Relaying) {
        let object = relaying.object;
        if self.holdings.contains_key(&object) {
            return;
        }
        if let Ok(geometry) = Geometry::new(relaying.bytes, relaying.symbol_size) {
            let ready = self.relays.begin(object, geometry.layout().block_count(), &relaying.have);
            self.prepare(ready);
        }
    }

    /// All of an object is here.
    pub(super) fn on_all_here(&mut self, object: ObjectId) {
        let ready = self.relays.hold(object);
        self.prepare(ready);
    }

    pub(super) fn on_arriving(&mut self, now: Time, object: ObjectId, what: Arriving) {
        match what {
            Arriving::Partly { block, below } => {
                for flow in self.relays.partly(object, block, below) {
                    self.with_flow(flow, |flow, _, _| flow.on_partly_here(block, below));
                }
            }
            Arriving::Whole(block) => {
                let ready = self.relays.whole(object, block);
                self.prepare(ready);
            }
            Arriving::Over if !self.holdings.contains_key(&object) => {
                self.relays.end(object);
                self.end_flows_of(now, object);
            }
            Arriving::Over => {}
        }
    }

    /// These blocks are here, for flows that have waited for them.
    fn prepare(&mut self, ready: Vec<(BlockIndex, Waiting)>) {
        for (block, Waiting { flow, repair }) in ready {
            self.event(SourceEvent::Prepare { flow, block, repair });
        }
    }

    /// Whether what a flow has to say to the driver is about a block that has yet to come. Then it waits, or waits no longer.
    pub(super) fn is_held_up(&mut self, output: &Output<SourceEvent>) -> bool {
        let object = |flow: &FlowId| self.flows.get(flow).map(|held| held.flow.object());
        match *output {
            Output::Event(SourceEvent::Prepare { flow, block, repair }) => {
                let Some(object) = object(&flow) else { return false };
                let waits = self.relays.waits(object, block, Waiting { flow, repair });
                let below = self.relays.below(object, block);
                if waits && below > Esi(0) {
                    self.with_flow(flow, |flow, _, _| flow.on_partly_here(block, below));
                }
                waits
            }
            Output::Event(SourceEvent::Release { flow, block }) => {
                object(&flow).is_some_and(|object| self.relays.gives_up(object, block, flow))
            }
            _ => false,
        }
    }
}
