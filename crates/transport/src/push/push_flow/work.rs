//! The next symbol to send, under either rule of assignment.

use headwater_units::{BlockIndex, Geometry, PacketNumber, SymbolId};
use headwater_wire::{Ack, Assignment};

use super::listed::Listed;
use super::pick::{Pick, Upcoming};
use super::residue::Residue;
use headwater_flow::blocks::BlockTable;

/// The work of one flow.
#[derive(Clone, Debug)]
pub(super) struct Work {
    geometry: Geometry,
    look_ahead: usize,
    first_undecoded: u32,
    rule: Rule,
    /// The first packet sent under the assignment in force: only an ACK of it or a later one knows that assignment.
    since: PacketNumber,
}

#[derive(Clone, Debug)]
enum Rule {
    Unassigned,
    Listed(Box<Listed>),
    Residue(Residue),
}

impl Work {
    /// None yet. At most `look_ahead` blocks are open at a time.
    pub(super) fn new(geometry: Geometry, look_ahead: usize) -> Self {
        Work { geometry, look_ahead, first_undecoded: 0, rule: Rule::Unassigned, since: PacketNumber(0) }
    }

    /// Takes a new assignment; `next` is the number of the next packet. Returns how many entries made no sense.
    pub(super) fn assign(&mut self, assignment: &Assignment, next: PacketNumber) -> u64 {
        self.since = next;
        match assignment {
            Assignment::Residue { index, of } | Assignment::Equal { index, of } => {
                let equal = matches!(assignment, Assignment::Equal { .. });
                if *of == 0 || index >= of {
                    return 1;
                }
                if !matches!(&self.rule, Rule::Residue(r) if r.is(*index, *of, equal)) {
                    let mut residue = Residue::new(self.geometry, self.look_ahead, *index, *of, equal);
                    residue.decoded_below(self.first_undecoded);
                    self.rule = Rule::Residue(residue);
                } else if let Rule::Residue(residue) = &mut self.rule {
                    residue.reopen();
                }
                0
            }
            Assignment::Listed(works) => {
                if !matches!(self.rule, Rule::Listed(_)) {
                    let mut listed = Listed::new(self.geometry, self.look_ahead);
                    listed.decoded_below(self.first_undecoded);
                    self.rule = Rule::Listed(Box::new(listed));
                }
                let Rule::Listed(listed) = &mut self.rule else { unreachable!("made so above") };
                listed.assign(works)
            }
        }
    }

    /// Every block below is decoded. True if that is news.
    pub(super) fn decoded_below(&mut self, block: BlockIndex) -> bool {
        if block.0 <= self.first_undecoded {
            return false;
        }
        self.first_undecoded = block.0;
        match &mut self.rule {
            Rule::Unassigned => {}
            Rule::Listed(listed) => listed.decoded_below(block.0),
            Rule::Residue(residue) => residue.decoded_below(block.0),
        }
        true
    }

    /// Handles the ACK's entries about single blocks. `delivered` are the blocks of the packets that it newly
    /// acknowledged; `newest` is whether no later one has been seen.
    // Called at one place, once for every ACK; a call costs a fifth of what it does.
    #[inline(always)]
    pub(super) fn on_ack(&mut self, ack: &Ack, newest: bool, delivered: impl Iterator<Item = BlockIndex>) {
        match &mut self.rule {
            Rule::Unassigned => {}
            Rule::Residue(residue) => {
                for block in delivered.filter(|b| !ack.owed.iter().any(|o| o.block == *b)) {
                    residue.delivered(block.0);
                }
                if newest {
                    for owed in &ack.owed {
                        residue.owes(owed.block.0, owed.symbols.get());
                    }
                }
            }
            Rule::Listed(listed) => {
                // An ACK made before the assignment arrived may call a block decoded that was found corrupt since.
                if ack.largest >= self.since {
                    for owed in ack.owed.iter().filter(|o| o.symbols.get() == 0) {
                        listed.decoded(owed.block.0);
                    }
                }
            }
        }
    }

    /// The next new symbol that can be sent now; `true` beside it if an earlier one waits for its block.
    #[inline]
    pub(super) fn peek(&mut self, blocks: &BlockTable) -> (Option<Pick>, bool) {
        match &mut self.rule {
            Rule::Unassigned => (None, false),
            Rule::Listed(listed) => listed.peek(blocks),
            Rule::Residue(residue) => residue.peek(blocks),
        }
    }

    /// It was sent.
    #[inline]
    pub(super) fn commit(&mut self, pick: Pick) {
        match &mut self.rule {
            Rule::Unassigned => {}
            Rule::Listed(listed) => listed.commit(pick),
            Rule::Residue(residue) => residue.commit(pick),
        }
    }

    /// Whether the receiver names the very symbols that it wants.
    pub(super) fn names_symbols(&self) -> bool {
        matches!(self.rule, Rule::Listed(_))
    }

    /// Whether a lost symbol is still asked for.
    pub(super) fn wants(&self, symbol: SymbolId, attempt: u8) -> bool {
        match &self.rule {
            Rule::Unassigned => false,
            Rule::Listed(listed) => listed.wants(symbol, attempt),
            Rule::Residue(residue) => residue.wants(symbol),
        }
    }

    /// Whether a symbol that was sent can be named again now: not while its block is here but partly, and is being verified.
    pub(super) fn can_name(&self, symbol: SymbolId, attempt: u8, blocks: &BlockTable) -> bool {
        let block = blocks.get(symbol.block);
        !block.is_partly_here() || block.has(symbol.esi, attempt)
    }

    /// Whether a lost symbol that is asked for needs to go out again. Under the residue rule what is in flight of its
    /// block may already cover what is owed; should that fall short after all, a new symbol serves as well.
    pub(super) fn needs(&self, symbol: SymbolId, blocks: &BlockTable) -> bool {
        match &self.rule {
            Rule::Residue(residue) => residue.needs(symbol, blocks),
            _ => true,
        }
    }

    /// Whether symbols of the block are left to send.
    pub(super) fn has_left(&self, block: BlockIndex) -> bool {
        match &self.rule {
            Rule::Unassigned => false,
            Rule::Listed(listed) => listed.has_left(block.0),
            Rule::Residue(residue) => residue.has_left(block.0),
        }
    }

    /// Asks `prepare` for the blocks that come next: at least `least` of them, and enough for `symbols` symbols.
    pub(super) fn prepare(
        &self,
        blocks: &mut BlockTable,
        least: usize,
        symbols: f64,
        mut prepare: impl FnMut(&mut BlockTable, Upcoming),
    ) {
        let mut covered = 0.0;
        let mut count = 0;
        let mut step = |blocks: &mut BlockTable, upcoming: Upcoming| {
            let more = count < least || covered < symbols;
            if more {
                prepare(blocks, upcoming);
                count += 1;
                covered += f64::from(upcoming.symbols);
            }
            more
        };
        match &self.rule {
            Rule::Unassigned => {}
            Rule::Listed(listed) => {
                for upcoming in listed.upcoming() {
                    if !step(blocks, upcoming) {
                        break;
                    }
                }
            }
            Rule::Residue(residue) => {
                for i in 0.. {
                    let Some(upcoming) = residue.upcoming(i, blocks) else { break };
                    if upcoming.symbols > 0 && !step(blocks, upcoming) {
                        break;
                    }
                }
            }
        }
    }
}
