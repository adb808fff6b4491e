//! From the plaintext of a connection, in pieces of any length, to frames and blocks.

use headwater_units::Bytes;

use crate::blocks::{Block, Pool};
use crate::fields::{DATA_HEAD, FrameError, HEAD, head};
use crate::peer_frames::{DATA, LONGEST_FROM_SOURCE};

/// Result of a received piece.
#[derive(Debug)]
pub(crate) enum Piece<'a> {
    /// A frame, as a whole.
    Frame(&'a [u8]),
    /// A block.
    Data { flow: u64, offset: Bytes, block: Block },
}

/// State of the frame that is under way.
#[derive(Debug)]
pub(crate) struct Assembler {
    /// Whether blocks may come, and how long other frames may be.
    most: u32,
    takes_data: bool,
    pool: Pool,
    frame: Vec<u8>,
    /// Length of the frame, or of the head of a block; unknown before its first bytes are here.
    need: usize,
    data: Option<Data>,
}

#[derive(Debug)]
struct Data {
    flow: u64,
    offset: Bytes,
    missing: usize,
    block: Block,
}

impl Assembler {
    /// For a side that receives blocks.
    pub(crate) fn of_fetcher(pool: Pool) -> Self {
        Self::new(LONGEST_FROM_SOURCE, true, pool)
    }

    /// For a side that receives no data, and frames of at most `most` bytes.
    pub(crate) fn of_source(most: u32) -> Self {
        Self::new(most, false, Pool::default())
    }

    fn new(most: u32, takes_data: bool, pool: Pool) -> Self {
        Assembler { most, takes_data, pool, frame: Vec::new(), need: HEAD, data: None }
    }

    /// More bytes are here; `tell` hears of each frame that they complete.
    ///
    /// # Errors
    /// [`FrameError`] if they are no frames, or whatever `tell` says.
    pub(crate) fn push<E: From<FrameError>>(
        &mut self,
        mut bytes: &[u8],
        tell: &mut dyn FnMut(Piece<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        loop {
            if let Some(data) = &mut self.data {
                let (now, rest) = bytes.split_at(data.missing.min(bytes.len()));
                data.block.push(now);
                data.missing -= now.len();
                bytes = rest;
                if data.missing > 0 {
                    return Ok(());
                }
                let Data { flow, offset, block, .. } = self.data.take().expect("it is there");
                tell(Piece::Data { flow, offset, block })?;
                continue;
            }
            let (now, rest) = bytes.split_at((self.need - self.frame.len()).min(bytes.len()));
            self.frame.extend_from_slice(now);
            bytes = rest;
            if self.frame.len() < self.need {
                return Ok(());
            }
            self.complete(tell)?;
        }
    }

    /// As much of the frame is here as was needed.
    fn complete<E: From<FrameError>>(
        &mut self,
        tell: &mut dyn FnMut(Piece<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let first = *self.frame.first_chunk::<HEAD>().expect("a head is needed at least");
        let (length, kind) = head(first, self.most)?;
        let is_data = self.takes_data && kind == DATA;
        let whole = if is_data { DATA_HEAD } else { length as usize + 4 };
        if self.need < whole {
            self.need = whole;
            return Ok(());
        }
        if is_data {
            let bytes = (length as usize + 4).checked_sub(DATA_HEAD).ok_or(FrameError::Short(kind))?;
            let field = |at: usize| u64::from_be_bytes(self.frame[at..at + 8].try_into().expect("8 bytes"));
            let (flow, offset) = (field(5), Bytes::new(field(13)));
            self.data = Some(Data { flow, offset, missing: bytes, block: self.pool.take(bytes) });
        } else {
            tell(Piece::Frame(&self.frame))?;
        }
        self.frame.clear();
        self.need = HEAD;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fields::data_head;
    use crate::peer_frames::FromSource;

    proptest! {
        /// However the bytes are cut, the same frames and blocks come out.
        #[test]
        fn cuts_do_not_matter(blocks in prop::collection::vec((any::<u64>(), any::<u64>(), 0_usize..70_000), 1..6), cut in 1_usize..9_000) {
            let mut bytes = Vec::new();
            let mut sent = Vec::new();
            for (flow, offset, len) in blocks {
                let payload: Vec<u8> = (0..len).map(|at| (at as u64 ^ flow) as u8).collect();
                bytes.extend_from_slice(&data_head(DATA, flow, offset, len));
                bytes.extend_from_slice(&payload);
                sent.push((flow, offset, payload));
                FromSource::Opened { flow, length: Bytes::new(7), info: 1, stamp: 2 }.emit(&mut bytes);
            }
            let mut assembler = Assembler::of_fetcher(Pool::default());
            let (mut got, mut frames) = (Vec::new(), 0);
            for part in bytes.chunks(cut) {
                assembler.push(part, &mut |piece| {
                    match piece {
                        Piece::Frame(frame) => {
                            FromSource::parse(frame)?;
                            frames += 1;
                        }
                        Piece::Data { flow, offset, block } => got.push((flow, offset.get(), block.to_vec())),
                    }
                    Ok::<(), FrameError>(())
                }).unwrap();
            }
            prop_assert_eq!(frames, sent.len());
            prop_assert_eq!(got, sent);
        }
    }

    #[test]
    fn an_endless_frame_is_refused_by_its_head_alone() {
        let mut assembler = Assembler::of_source(100);
        let mut nothing = |_: Piece<'_>| Ok::<(), FrameError>(());
        let error = assembler.push(&[0xff, 0xff, 0xff, 0xff, 1], &mut nothing).unwrap_err();
        assert_eq!(error, FrameError::TooLong { length: u32::MAX, most: 100 });
        assert!(assembler.frame.capacity() < 100);
    }
}
