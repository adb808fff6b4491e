//! A source's driver: which blocks it has read.

use std::collections::BTreeMap;

use headwater_transport::{SourceCommand, SourceEvent};
use headwater_units::{BlockIndex, FlowId};
use headwater_wire::{Body, Datagram};

/// Blocks that a source has asked for and not released, by flow.
#[derive(Debug, Default)]
pub struct Preparation {
    blocks: BTreeMap<(FlowId, BlockIndex), bool>,
}

impl Preparation {
    /// Takes what the machine says. If it asks for a block: the answer, to be given to [`Preparation::ready`] when that is read.
    pub fn on_event(&mut self, event: &SourceEvent) -> Option<SourceCommand> {
        match event {
            SourceEvent::Prepare { flow, block, repair } => {
                self.blocks.entry((*flow, *block)).or_default();
                Some(SourceCommand::BlockReady { flow: *flow, block: *block, repair: *repair })
            }
            SourceEvent::Release { flow, block } => {
                assert!(
                    self.blocks.remove(&(*flow, *block)).is_some(),
                    "{block} of {flow:?} was not asked for"
                );
                None
            }
            SourceEvent::Closed { flow } => {
                self.blocks.retain(|(of, _), _| of != flow);
                None
            }
            SourceEvent::Opened(_) | SourceEvent::FellBack { .. } => None,
        }
    }

    /// The machine is told this now.
    pub fn ready(&mut self, command: &SourceCommand) {
        if let SourceCommand::BlockReady { flow, block, .. } = command
            && let Some(ready) = self.blocks.get_mut(&(*flow, *block))
        {
            *ready = true;
        }
    }

    /// Answer of a driver whose disk takes no time.
    pub fn answer(&mut self, event: &SourceEvent) -> Option<SourceCommand> {
        let ready = self.on_event(event)?;
        self.ready(&ready);
        Some(ready)
    }

    /// The machine sends this: a symbol's block must be ready.
    pub fn sends(&self, datagram: &Datagram) {
        let symbol = match &datagram.body {
            Body::Symbol(header) => header.symbol,
            Body::ScheduledSymbol(header) => header.symbol,
            _ => return,
        };
        let ready = self.blocks.get(&(datagram.flow, symbol.block)) == Some(&true);
        assert!(ready, "{symbol:?} of {:?} is sent, which is not ready", datagram.flow);
    }

    /// The last block of the object that is held.
    pub fn newest(&self) -> Option<BlockIndex> {
        self.blocks.keys().map(|(_, block)| *block).max()
    }

    /// Whether every block was released.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }
}
