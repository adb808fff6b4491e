//! The bytes behind the receivers: by fetch, the blocks in assembly and where finished blocks go.

use std::net::SocketAddr;
use std::sync::Arc;

use headwater_codec::{Assembler, BlockShape, Decoder};
use headwater_machine::SortedMap;
use headwater_store::StoreError;
use headwater_transport::push::receiver::ReceiverStats;
use headwater_transport::{DecodeFailure, ReceiverCommand, ReceiverFailure};
use headwater_units::{BlockIndex, Bytes, FetchId, FlowId, Geometry, NodeId, ObjectId, SymbolId};
use tokio::sync::mpsc::UnboundedSender;

use super::buffers::Buffers;

/// Where verified blocks go. Called from worker threads, several at a time.
pub trait BlockSink: Send + Sync {
    /// Verifies the block and keeps it. Every byte that reaches the user passes here.
    ///
    /// # Errors
    /// [`StoreError::BlockMismatch`] if it is not the object's; anything else ends the task.
    fn keep(&self, block: BlockIndex, bytes: &[u8]) -> Result<(), StoreError>;

    /// Reads a block that was kept, to pass it on to others.
    ///
    /// # Errors
    /// [`StoreError::BlockMissing`] if it was not, or is not kept where it could be read; or the disk's.
    fn read(&self, block: BlockIndex, buffer: &mut Vec<u8>) -> Result<(), StoreError> {
        buffer.clear();
        Err(StoreError::BlockMissing { block })
    }

    /// Whether a block that was kept is so far ahead of its consumer that no more should come for now. The machine then
    /// hears of it only after [`super::Node::go_on`], and until then the block counts as one that waits for the disk.
    fn is_ahead(&self, _block: BlockIndex) -> bool {
        false
    }
}

/// Events of a fetch, for the asker.
#[derive(Debug)]
pub enum FetchEvent {
    /// The controller accepted, perhaps for the second time and with smaller symbols; answer with
    /// [`super::Node::start_fetch`].
    Accepted {
        /// The object.
        object: ObjectId,
        /// Its size.
        bytes: Bytes,
        /// T.
        symbol_size: u16,
    },
    /// A source is to send.
    Source {
        /// Its flow.
        flow: FlowId,
        /// The source's node.
        node: NodeId,
        /// Where its data socket should be reached, best first.
        at: Vec<SocketAddr>,
    },
    /// A source sends nothing any more, or is not to.
    SourceOver {
        /// Its flow.
        flow: FlowId,
    },
    /// A source is not believed any more.
    Distrusted(NodeId),
    /// Every wanted block is kept.
    Done {
        /// Counters of the fetch.
        stats: Box<ReceiverStats>,
        /// When the machine said so, nanoseconds of CLOCK_MONOTONIC.
        at_ns: u64,
    },
    /// The fetch ended without the object.
    Failed(ReceiverFailure, Box<ReceiverStats>),
    /// A block could not be kept.
    Broken(StoreError),
    /// All flows and the controller were told; this is the last event.
    Ended,
}

/// The result of a worker's assembly of a block.
pub(crate) enum Assembled {
    Kept(Vec<u8>),
    NeedMore(Assembler),
    Corrupt,
    Broken(StoreError),
}

/// A worker's result, of a block of a task, with the number of times that the task had begun.
pub(crate) struct Finished {
    begun: u32,
    assembled: Assembled,
}

/// The fetches of a node.
#[derive(Default)]
pub(crate) struct Fetches {
    pub(crate) running: SortedMap<FetchId, Box<Receiving>>,
}

impl Fetches {
    /// The payload of a symbol of an object that is being received, cut like this.
    pub(crate) fn symbol(&self, object: ObjectId, symbol_size: u16, symbol: SymbolId) -> Option<&[u8]> {
        let mut running = self.running.values();
        let its = running.find(|it| it.object == Some(object) && it.symbol_size() == Some(symbol_size))?;
        its.symbol(symbol)
    }
}

/// State of one fetch, beside the machine's.
pub(crate) struct Receiving {
    pub(crate) events: UnboundedSender<FetchEvent>,
    pub(crate) sink: Option<Arc<dyn BlockSink>>,
    /// The machine has said how it ended.
    pub(crate) over: bool,
    object: Option<ObjectId>,
    geometry: Option<Geometry>,
    /// How often the task has begun, perhaps with symbols of another size, or by another transport.
    begun: u32,
    assembling: SortedMap<BlockIndex, Assembler>,
    /// Blocks that were kept, and of which the machine does not hear yet: see [`BlockSink::is_ahead`].
    held_back: Vec<BlockIndex>,
}

impl Receiving {
    pub(crate) fn new(events: UnboundedSender<FetchEvent>) -> Self {
        Receiving {
            events,
            sink: None,
            over: false,
            object: None,
            geometry: None,
            begun: 0,
            assembling: SortedMap::default(),
            held_back: Vec::new(),
        }
    }

    pub(crate) fn symbol_size(&self) -> Option<u16> {
        self.geometry.map(|g| g.symbol_size())
    }

    /// Object that names its flows in a timeline, while it is known and still coming.
    pub(crate) fn watched(&self) -> Option<ObjectId> {
        self.object.filter(|_| !self.over)
    }

    /// The task begins, perhaps anew: what is partly here is thrown away.
    pub(crate) fn cut(&mut self, object: ObjectId, bytes: Bytes, symbol_size: u16, buffers: &mut Buffers) {
        self.object = Some(object);
        self.geometry = Geometry::new(bytes, symbol_size).ok();
        self.begun += 1;
        // The machine is told at the start what is here.
        self.held_back.clear();
        self.discard_all(buffers);
    }

    /// Puts a symbol in its place. A payload that cannot be one is left out; the block then needs one more.
    /// False if it is left out.
    pub(crate) fn keep_symbol(&mut self, symbol: SymbolId, payload: &[u8], buffers: &mut Buffers) -> bool {
        let Some(geometry) = &self.geometry else { return false };
        let assembler = self.assembling.get_or_insert_with(symbol.block, || {
            let shape =
                BlockShape::of(geometry, symbol.block).expect("the machine names blocks of the object");
            Assembler::with_buffer(shape, buffers.take())
        });
        let inserted = assembler.insert(symbol.esi, payload);
        if let Err(error) = &inserted {
            tracing::debug!(?symbol, %error, "symbol left out");
        }
        inserted.is_ok()
    }

    /// The payload of a symbol that has come, until its block is complete.
    pub(crate) fn symbol(&self, symbol: SymbolId) -> Option<&[u8]> {
        self.assembling.get(&symbol.block)?.symbol(symbol.esi)
    }

    pub(crate) fn discard(&mut self, block: BlockIndex, buffers: &mut Buffers) {
        if let Some(assembler) = self.assembling.remove(&block) {
            buffers.put(assembler.into_buffer());
        }
    }

    /// Its blocks are not wanted any more.
    pub(crate) fn discard_all(&mut self, buffers: &mut Buffers) {
        self.assembling.drain().for_each(|(_, assembler)| buffers.put(assembler.into_buffer()));
    }

    /// The job that decodes, verifies and keeps a block.
    pub(crate) fn assemble(&mut self, block: BlockIndex) -> Option<impl FnOnce() -> Finished + Send + use<>> {
        let mut assembler = self.assembling.remove(&block)?;
        let sink = self.sink.clone()?;
        let begun = self.begun;
        Some(move || {
            let outcome = match assembler.finish() {
                Err(_) => None,
                Ok(bytes) => Some(sink.keep(block, bytes)),
            };
            let assembled = match outcome {
                None => Assembled::NeedMore(assembler),
                Some(Ok(())) => Assembled::Kept(assembler.into_buffer()),
                Some(Err(StoreError::BlockMismatch { .. })) => Assembled::Corrupt,
                Some(Err(error)) => Assembled::Broken(error),
            };
            Finished { begun, assembled }
        })
    }

    /// Keeps what the machine would hear of a block to itself, if the block is too far ahead of its consumer.
    pub(crate) fn holds_back(&mut self, command: &ReceiverCommand) -> bool {
        let ReceiverCommand::BlockDecoded { block } = *command else { return false };
        let is_ahead = self.sink.as_ref().is_some_and(|sink| sink.is_ahead(block));
        if is_ahead {
            self.held_back.push(block);
        }
        is_ahead
    }

    /// The blocks that were held back and are not too far ahead any more.
    pub(crate) fn go_on(&mut self) -> Vec<BlockIndex> {
        let Some(sink) = &self.sink else { return Vec::new() };
        self.held_back.extract_if(.., |block| !sink.is_ahead(*block)).collect()
    }

    /// Command for the machine after a worker's result; none for a block of a task that has begun anew since, unless
    /// the block is kept.
    pub(crate) fn on_assembled(
        &mut self,
        block: BlockIndex,
        finished: Finished,
        buffers: &mut Buffers,
    ) -> Option<ReceiverCommand> {
        let Finished { begun, assembled } = finished;
        let outdated = self.begun != begun;
        if outdated && matches!(assembled, Assembled::NeedMore(_) | Assembled::Corrupt) {
            return None;
        }
        Some(match assembled {
            Assembled::Kept(buffer) => {
                buffers.put(buffer);
                ReceiverCommand::BlockDecoded { block }
            }
            Assembled::NeedMore(assembler) => {
                self.assembling.insert(block, assembler);
                ReceiverCommand::DecodeFailed { block, failure: DecodeFailure::NeedMore }
            }
            Assembled::Corrupt => ReceiverCommand::DecodeFailed { block, failure: DecodeFailure::Corrupt },
            Assembled::Broken(error) => {
                let _ = self.events.send(FetchEvent::Broken(error));
                ReceiverCommand::Cancel
            }
        })
    }
}
