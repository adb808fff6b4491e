//! Casts of which not all receivers have been named yet: they are named in several messages.

use std::collections::BTreeMap;

use headwater_machine::{Shares, Taker};
use headwater_units::{Duration, NodeId, PathId, Time};
use headwater_wire::{Cast as Wanted, Refusal};

use crate::ControllerConfig;

/// An asker names all receivers within milliseconds. A cast whose next part has not come for this long is forgotten.
const NAMED_WITHIN: Duration = Duration::from_secs(10);
/// Receivers that are kept of all such casts: those of so many casts to as many as there may be, 8 MiB.
const FULL_CASTS: usize = 16;

/// All such casts.
#[derive(Default)]
pub(super) struct PartialCasts {
    casts: BTreeMap<u64, Partial>,
    shares: Shares,
    /// Shares of the receivers that were named.
    named: Shares,
}

struct Partial {
    path: PathId,
    taker: Taker,
    to: Vec<NodeId>,
    heard: Time,
}

impl PartialCasts {
    /// A wish with all of its receivers, once the last part of it has come.
    ///
    /// # Errors
    /// It has more receivers than a cast may have; there are too many such casts, of all or of this peer.
    pub(super) fn whole(
        &mut self,
        now: Time,
        config: &ControllerConfig,
        (path, taker): (PathId, Taker),
        part: Wanted,
    ) -> Result<Option<Wanted>, Refusal> {
        let Wanted { cast, first, of, .. } = part;
        if of as usize > config.max_receivers {
            return Err(Refusal::TooMany);
        }
        if part.to.len() >= of as usize {
            return Ok(Some(part));
        }
        self.forget(|partial| now >= partial.heard + NAMED_WITHIN);
        if first == 0 {
            self.remove(cast);
        }
        if !self.casts.contains_key(&cast) {
            if !self.shares.has_room(&taker, 1, config.max_casts) {
                return Err(Refusal::Full);
            }
            self.shares.take(&taker, 1);
            self.casts.insert(cast, Partial { path, taker, to: Vec::new(), heard: now });
        }
        let Some(known) = self.casts.get_mut(&cast) else { return Ok(None) };
        // Of a part that is missing or comes twice the asker says all again.
        if known.path != path || known.to.len() != first as usize {
            return Ok(None);
        }
        if !self.named.has_room(&known.taker, part.to.len(), FULL_CASTS * config.max_receivers) {
            self.remove(cast);
            return Err(Refusal::Full);
        }
        self.named.take(&known.taker, part.to.len());
        known.heard = now;
        known.to.extend(part.to);
        if known.to.len() < of as usize {
            return Ok(None);
        }
        let to = self.remove(cast).map_or_else(Vec::new, |known| known.to);
        Ok(Some(Wanted { to, first: 0, ..part }))
    }

    /// Whoever was naming receivers is gone.
    pub(super) fn path_lost(&mut self, path: PathId) {
        self.forget(|partial| partial.path == path);
    }

    fn forget(&mut self, is_over: impl Fn(&Partial) -> bool) {
        let over: Vec<u64> =
            self.casts.iter().filter(|(_, partial)| is_over(partial)).map(|(cast, _)| *cast).collect();
        over.into_iter().for_each(|cast| drop(self.remove(cast)));
    }

    fn remove(&mut self, cast: u64) -> Option<Partial> {
        let gone = self.casts.remove(&cast)?;
        self.shares.give_back(&gone.taker, 1);
        self.named.give_back(&gone.taker, gone.to.len());
        Some(gone)
    }
}
