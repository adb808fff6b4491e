//! A block in reception with its bytes (RFC 6330 §5.4).
//!
//! Source symbols are copied to their place in the block, their only copy; repair symbols wait beside it. If no source
//! symbol is lost, the block is there without a decode and without another copy. Otherwise the whole elimination runs
//! once, and only the missing symbols are filled in.

use headwater_units::{Bytes, Esi};

use crate::gf256::Kernel;
use crate::symbol_set::SymbolSet;
use crate::{BlockShape, CodecError, Decoder, Inserted, Method, NeedMore, SPARE_SYMBOLS, dense, rfc6330};

/// One block in reception.
#[derive(Debug)]
pub struct Assembler {
    shape: BlockShape,
    /// K * T bytes. The place of a source symbol that is not in `symbols` holds its decoded value in state `Decoded`,
    /// else anything.
    block: Vec<u8>,
    symbols: SymbolSet<Box<[u8]>>,
    progress: Progress,
    method: Method,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Collecting,
    /// The symbols at hand were tried and do not suffice.
    Dependent,
    /// `block` holds every source symbol.
    Decoded,
}

impl Assembler {
    /// Nothing received yet; allocates the block.
    pub fn new(shape: BlockShape) -> Self {
        Assembler::with_buffer(shape, Vec::new())
    }

    /// Nothing received yet; the block is put into `buffer`, which grows if it must.
    ///
    /// The buffer's old content is never seen again: [`Decoder::finish`] gives the block only when every byte of it was
    /// received or decoded.
    pub fn with_buffer(shape: BlockShape, mut buffer: Vec<u8>) -> Self {
        if buffer.capacity() < shape.padded_len() {
            // Fresh memory is zero already, which growing does not make use of.
            buffer = vec![0; shape.padded_len()];
        }
        buffer.resize(shape.padded_len(), 0);
        Assembler {
            shape,
            block: buffer,
            symbols: SymbolSet::new(shape),
            progress: Progress::Collecting,
            method: Method::Fastest,
        }
    }

    /// Says how to solve for what is missing, other than the fastest way: to measure or to compare.
    pub fn set_method(&mut self, method: Method) {
        self.method = method;
    }

    /// The bytes of a symbol as received; `None` if it is not at hand.
    pub fn symbol(&self, esi: Esi) -> Option<&[u8]> {
        if !self.symbols.contains(esi) {
            None
        } else if esi.0 < self.shape.source_symbols() {
            Some(&self.block[self.shape.span(esi.0)])
        } else {
            self.symbols.repair_symbol(esi).map(|bytes| &**bytes)
        }
    }

    /// Gives the buffer back: the block if [`Decoder::finish`] succeeded last or nothing is missing, else empty.
    /// Its capacity is worth keeping for [`Assembler::with_buffer`].
    pub fn into_buffer(mut self) -> Vec<u8> {
        let complete = self.is_systematic_complete() || self.progress == Progress::Decoded;
        self.block.truncate(if complete { self.shape.block_len() } else { 0 });
        self.block
    }

    /// The memory that payloads take at this moment.
    pub fn held_bytes(&self) -> Bytes {
        let repair = self.symbols.repair().len() as u64 * u64::from(self.shape.symbol_size());
        Bytes::new(self.block.len() as u64 + repair)
    }

    /// The most that [`Assembler::held_bytes`] can be: the block and K + 32 repair symbols. [`Decoder::finish`]
    /// takes about three blocks more while the sparse solver runs, and m (2 K + m) bytes while m symbols are filled in
    /// without it.
    pub fn held_bytes_limit(shape: BlockShape) -> Bytes {
        let symbols = 2 * u64::from(shape.source_symbols()) + u64::from(SPARE_SYMBOLS);
        Bytes::new(u64::from(shape.symbol_size())) * symbols
    }

    /// Fills in what is missing; false if the symbols' equations are dependent.
    fn decode(&mut self) -> bool {
        let missing = self.shape.source_symbols() - self.symbols.source_symbols_present();
        match self.method.decoding(self.shape, missing) {
            Some(kernel) => self.decode_dense(kernel),
            None => self.decode_sparse(missing),
        }
    }

    fn decode_dense(&mut self, kernel: Kernel) -> bool {
        let Assembler { shape, block, symbols, .. } = self;
        let repair = symbols.repair().iter().map(|(esi, bytes)| (*esi, &**bytes));
        dense::fill_in(kernel, *shape, block, |index| symbols.has_source(index), repair)
    }

    fn decode_sparse(&mut self, missing: u32) -> bool {
        // Source symbols that came after many repair symbols make some of those superfluous, and rows cost time.
        let useful = (missing + SPARE_SYMBOLS) as usize;
        // Honest symbols never need the second attempt; ESIs picked to be dependent could spoil the first.
        let decoded = self.solve(useful).or_else(|| {
            let all = self.symbols.repair().len();
            if all > useful { self.solve(all) } else { None }
        });
        let Some(decoded) = decoded else { return false };
        for index in self.symbols.sources(false) {
            let span = self.shape.span(index);
            self.block[span.clone()].copy_from_slice(&decoded[span]);
        }
        true
    }

    /// The padded block from all source symbols and at most `limit` repair symbols at hand.
    fn solve(&self, limit: usize) -> Option<Vec<u8>> {
        let sources = self.symbols.sources(true).map(|i| (Esi(i), &self.block[self.shape.span(i)]));
        let repair = self.symbols.repair().iter().map(|(esi, bytes)| (*esi, &**bytes));
        rfc6330::decode(self.shape, sources.chain(repair.take(limit)))
    }

    fn check_padding(&self, esi: Esi, payload: &[u8]) -> Result<(), CodecError> {
        let used = self.shape.block_len().saturating_sub(self.shape.span(esi.0).start);
        match payload.get(used..) {
            Some(padding) if padding.iter().any(|&byte| byte != 0) => Err(CodecError::Padding(esi)),
            _ => Ok(()),
        }
    }
}

impl Decoder for Assembler {
    fn shape(&self) -> BlockShape {
        self.shape
    }

    fn insert(&mut self, esi: Esi, payload: &[u8]) -> Result<Inserted, CodecError> {
        let is_source = self.shape.is_source(esi)?;
        self.shape.check_symbol_len(payload.len())?;
        let inserted = if is_source {
            self.check_padding(esi, payload)?;
            let inserted = self.symbols.insert_source(esi.0);
            if inserted == Inserted::New {
                self.block[self.shape.span(esi.0)].copy_from_slice(payload);
            }
            inserted
        } else {
            self.symbols.insert_repair(esi, || payload.into())
        };
        if inserted == Inserted::New {
            self.progress = Progress::Collecting;
        }
        Ok(inserted)
    }

    fn contains(&self, esi: Esi) -> bool {
        self.symbols.contains(esi)
    }

    fn source_symbols_present(&self) -> u32 {
        self.symbols.source_symbols_present()
    }

    fn distinct(&self) -> u32 {
        self.symbols.distinct()
    }

    fn retain(&mut self, keep: &mut dyn FnMut(Esi) -> bool) -> u32 {
        let forgotten = self.symbols.retain(keep);
        if forgotten > 0 {
            self.progress = Progress::Collecting;
        }
        forgotten
    }

    fn finish(&mut self) -> Result<&[u8], NeedMore> {
        let source_symbols = self.shape.source_symbols();
        let have = self.distinct();
        if !self.is_systematic_complete() && self.progress == Progress::Collecting && have >= source_symbols {
            self.progress = if self.decode() { Progress::Decoded } else { Progress::Dependent };
        }
        if self.is_systematic_complete() || self.progress == Progress::Decoded {
            Ok(&self.block[..self.shape.block_len()])
        } else {
            Err(NeedMore { have, at_least: source_symbols.saturating_sub(have).max(1), source_symbols })
        }
    }
}
