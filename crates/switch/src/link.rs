//! Faults of a link: it loses frames that leave its queue, delivers them twice, or holds them back.
//!
//! A healthy link needs nothing from here. Losses come in three kinds: a cut link loses all, a script loses the next
//! few frames that carry a symbol, and chance loses any. Only what chance decides draws from the random stream, in the
//! order loss, duplicate, delay of the frame, delay of its copy, and no draw is made for a fault that is switched off.
//! Equal seeds and equal frames thus meet equal fates, in a simulation as on real packets.
//!
//! Not here: the propagation delay, which has no state, and the line's rate, which is its port's.

use headwater_units::{BitRate, Duration};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A change of a link's behaviour. Chances are 0..=1; what is beyond means never or always, and NaN means never.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LinkChange {
    /// Drops each frame with this chance, behind the queue.
    Loss(f64),
    /// Delivers each frame twice with this chance.
    Duplicate(f64),
    /// Holds each frame back with this chance, for a random time up to this.
    Reorder(f64, Duration),
    /// Drops this many of the next frames that carry a symbol.
    DropNext(u64),
    /// The line's new rate.
    Rate(BitRate),
    /// Cut, with all frames in its queue, or mended.
    Down(bool),
}

/// Fate of a frame on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Fate {
    /// It never arrives.
    Lost,
    /// It arrives, and perhaps a copy of it does.
    Arrives {
        /// Delay beyond the link's own.
        later: Duration,
        /// The same of its copy, if there is one.
        copy: Option<Duration>,
    },
}

/// The faults of one link, and their stream of chances.
#[derive(Clone, Debug)]
pub struct LinkFaults {
    down: bool,
    loss: f64,
    duplicate: f64,
    reorder: f64,
    /// A frame that is held back arrives up to this much later.
    reorder_by: Duration,
    /// Number of frames with a symbol to drop from now on.
    drop_next: u64,
    rng: ChaCha8Rng,
}

impl LinkFaults {
    /// A link without faults. The network's seed and the link's number in it decide all that chance will decide.
    pub fn new(seed: u64, link: u32) -> Self {
        LinkFaults {
            down: false,
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            reorder_by: Duration::ZERO,
            drop_next: 0,
            rng: ChaCha8Rng::seed_from_u64(seed ^ (u64::from(link) << 32)),
        }
    }

    /// From now on behaves so.
    ///
    /// A [`LinkChange::Rate`] changes nothing here, and of [`LinkChange::Down`] only what has left the queue is dealt with:
    /// rate and queue are the port's.
    pub fn change(&mut self, change: LinkChange) {
        match change {
            LinkChange::Loss(chance) => self.loss = chance,
            LinkChange::Duplicate(chance) => self.duplicate = chance,
            LinkChange::Reorder(chance, by) => (self.reorder, self.reorder_by) = (chance, by),
            LinkChange::DropNext(count) => self.drop_next = self.drop_next.saturating_add(count),
            LinkChange::Down(down) => self.down = down,
            LinkChange::Rate(_) => {}
        }
    }

    /// Whether the link is cut.
    #[inline]
    pub fn is_down(&self) -> bool {
        self.down
    }

    /// Decides about one frame whose last bit has left the line; frames come in the order in which they left.
    ///
    /// `has_symbol` says whether it carries a symbol that a script may drop.
    #[inline]
    pub fn carry(&mut self, has_symbol: bool) -> Fate {
        let scripted = self.drop_next > 0 && has_symbol;
        self.drop_next -= u64::from(scripted);
        if self.down || scripted || self.chance(self.loss) {
            return Fate::Lost;
        }
        let twice = self.chance(self.duplicate);
        let later = self.held_back();
        Fate::Arrives { later, copy: twice.then(|| self.held_back()) }
    }

    fn held_back(&mut self) -> Duration {
        if !self.chance(self.reorder) {
            return Duration::ZERO;
        }
        Duration::from_nanos(self.rng.random_range(0..=self.reorder_by.as_nanos()))
    }

    fn chance(&mut self, of: f64) -> bool {
        of > 0.0 && self.rng.random::<f64>() < of
    }
}

/// Counters of a network's faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Frames lost on links.
    pub lost: u64,
    /// Frames made twice.
    pub duplicated: u64,
    /// Frames held back; copies do not count.
    pub reordered: u64,
    /// Frames with no route to their host.
    pub unroutable: u64,
}

impl FaultCounts {
    /// Counts what became of one frame.
    #[inline]
    pub fn note(&mut self, fate: Fate) {
        match fate {
            Fate::Lost => self.lost += 1,
            Fate::Arrives { later, copy } => {
                self.reordered += u64::from(later > Duration::ZERO);
                self.duplicated += u64::from(copy.is_some());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: Fate = Fate::Arrives { later: Duration::ZERO, copy: None };

    fn link(changes: &[LinkChange]) -> LinkFaults {
        let mut link = LinkFaults::new(7, 0);
        changes.iter().for_each(|&change| link.change(change));
        link
    }

    #[test]
    fn a_link_without_faults_delays_nothing_and_draws_nothing() {
        let mut idle = link(&[LinkChange::Loss(0.0), LinkChange::Duplicate(f64::NAN)]);
        let untouched = LinkFaults::new(7, 0).rng;
        assert!((0..100).all(|_| idle.carry(true) == WHOLE));
        assert_eq!(idle.rng, untouched);
    }

    #[test]
    fn links_of_one_network_have_fates_of_their_own() {
        let fates = |of: u32| {
            let mut link = LinkFaults::new(7, of);
            link.change(LinkChange::Loss(0.5));
            (0..64).map(|_| link.carry(true)).collect::<Vec<_>>()
        };
        assert_eq!(fates(3), fates(3));
        assert_ne!(fates(3), fates(4));
    }

    #[test]
    fn a_script_drops_the_next_symbols_and_nothing_else() {
        let mut scripted = link(&[LinkChange::DropNext(1), LinkChange::DropNext(1)]);
        let fates = [false, true, false, true, true].map(|has_symbol| scripted.carry(has_symbol));
        assert_eq!(fates, [WHOLE, Fate::Lost, WHOLE, Fate::Lost, WHOLE]);
        scripted.change(LinkChange::DropNext(u64::MAX));
        scripted.change(LinkChange::DropNext(u64::MAX));
        assert_eq!(scripted.carry(true), Fate::Lost);
    }

    #[test]
    fn a_cut_link_loses_all_and_a_mended_one_goes_on() {
        let mut cut = link(&[LinkChange::Down(true)]);
        assert!(cut.is_down());
        assert_eq!(cut.carry(false), Fate::Lost);
        cut.change(LinkChange::Down(false));
        assert_eq!((cut.is_down(), cut.carry(false)), (false, WHOLE));
    }

    /// 10,000 frames at a chance of 0.3: the count is within 5 standard deviations (5 * 46).
    #[test]
    fn chances_are_those_asked_for() {
        let by = Duration::from_nanos(1_000_000);
        let count = |change, is: fn(Fate) -> bool| {
            let mut link = link(&[change]);
            (0..10_000).filter(|_| is(link.carry(true))).count()
        };
        let lost = count(LinkChange::Loss(0.3), |it| it == Fate::Lost);
        let twice = count(LinkChange::Duplicate(0.3), |it| matches!(it, Fate::Arrives { copy: Some(_), .. }));
        let held = count(LinkChange::Reorder(0.3, by), |it| it != WHOLE);
        for got in [lost, twice, held] {
            assert!((2_770..=3_230).contains(&got), "{got} of 10000");
        }
    }

    #[test]
    fn frames_are_held_back_by_at_most_what_was_asked() {
        let by = Duration::from_nanos(10);
        let mut link = link(&[LinkChange::Reorder(1.0, by), LinkChange::Duplicate(1.0)]);
        let mut counts = FaultCounts::default();
        for _ in 0..1_000 {
            let fate = link.carry(true);
            counts.note(fate);
            let Fate::Arrives { later, copy: Some(copy) } = fate else { panic!("{fate:?}") };
            assert!(later <= by && copy <= by);
        }
        // One delay of eleven is zero, and is not held back.
        assert!(counts.duplicated == 1_000 && (850..=960).contains(&counts.reordered), "{counts:?}");
    }
}
