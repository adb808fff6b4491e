//! How many packets of a flow were pushed or asked for, and how many of these may still come.

use super::numbers::{Lost, Seen};

/// The count of one flow.
#[derive(Debug, Default)]
pub(super) struct Expected {
    /// Packets that were pushed or asked for.
    packets: u64,
    /// Those that were asked for; its low half is the sequence number of the newest pull.
    asked: u64,
    /// Of those that were expected, what may still come.
    pub(super) coming: u32,
    answering: Answering,
}

/// Whether anything comes.
#[derive(Clone, Copy, Debug)]
enum Answering {
    /// It does. Number of packets that were given up in a silence and are waited for since its end.
    Heard { restored: u32 },
    /// Nothing has come for so long that nobody waits for it.
    Silent,
}

impl Default for Answering {
    fn default() -> Self {
        Answering::Heard { restored: 0 }
    }
}

/// Meaning of a packet's arrival to its flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Came {
    pub(super) seen: Seen,
    /// It was coming.
    pub(super) counted: bool,
    pub(super) lost: Lost,
    /// Number of packets that were given up and may come after all.
    pub(super) restored: u32,
    /// Number of expected packets that never will come: the source has sent all that it was asked for.
    pub(super) vain: u32,
}

impl Expected {
    pub(super) fn packets(&self) -> u64 {
        self.packets
    }

    pub(super) fn asked(&self) -> u64 {
        self.asked
    }

    pub(super) fn is_silent(&self) -> bool {
        matches!(self.answering, Answering::Silent)
    }

    /// Whether something may come.
    pub(super) fn is_awaited(&self) -> bool {
        self.coming > 0 || self.is_silent()
    }

    /// The source pushes this many packets.
    pub(super) fn push(&mut self, pushed: u32) {
        self.packets += u64::from(pushed);
        self.coming += pushed;
    }

    /// One more is asked for, of which it is `counted` that it comes.
    #[inline]
    pub(super) fn ask(&mut self, counted: bool) {
        self.asked += 1;
        self.packets += 1;
        self.coming += u32::from(counted);
    }

    /// A packet has come, and `next` is above the largest number that has. `answered`: with it the source has sent all that it was
    /// asked for, by the pull with these low bits and those before.
    #[inline]
    pub(super) fn on_arrival(
        &mut self,
        came: &mut Came,
        next: u64,
        answered: Option<u8>,
        by_group: bool,
        window: u32,
    ) {
        // More may have left than this end counts.
        self.packets = self.packets.max(next);
        came.lost.packets = came.lost.packets.min(self.coming);
        self.coming -= came.lost.packets;
        let vain = answered.map_or(0, |pull| self.asked_in_vain(next, pull, by_group));
        self.packets -= u64::from(vain);
        match &mut self.answering {
            Answering::Silent => {
                let above = u32::try_from(self.packets.saturating_sub(next)).unwrap_or(u32::MAX).min(window);
                came.restored = above.saturating_sub(self.coming);
                self.coming += came.restored;
                self.answering = Answering::Heard { restored: came.restored };
            }
            Answering::Heard { restored } if came.seen == Seen::Awaited && self.coming > 0 => {
                came.counted = true;
                came.vain = vain.min(self.coming - 1);
                self.coming -= 1 + came.vain;
                *restored = restored.saturating_sub(1 + came.vain);
            }
            Answering::Heard { .. } => {}
        }
    }

    /// Of those that are expected from `next` on after a silence, how many nobody will send: all but those that were
    /// asked for since the source heard the pull with these low bits. Packets that were lost on the way to it, or were
    /// more than it may owe, would be counted on for ever, and take of the window. A group does not say whose pulls it
    /// has heard.
    fn asked_in_vain(&self, next: u64, pull: u8, by_group: bool) -> u32 {
        let open = u32::try_from(self.packets - next).unwrap_or(u32::MAX);
        let may_be = match self.answering {
            Answering::Silent => open,
            Answering::Heard { restored } => restored.min(open),
        };
        let unheard = (self.asked as u8).wrapping_sub(pull);
        match (open as u8).wrapping_sub(unheard) {
            _ if by_group => may_be,
            // Fewer than none: it was asked for more than this end counts.
            128.. => 0,
            vain => u32::from(vain).min(may_be),
        }
    }

    /// It has been silent for too long; `next` is above the largest number that has come. Returns how many are given up.
    pub(super) fn give_up(&mut self, next: u64) -> u32 {
        // Pulls that were lost are not what it has been waiting for this time: the last answer was to a newer one. A source bounds what
        // it owes, so some were asked for in vain. To count on them for ever would leave room for one packet in each timeout.
        if let Answering::Heard { restored: 1.. } = self.answering {
            self.packets = next;
        }
        self.answering = Answering::Silent;
        std::mem::take(&mut self.coming)
    }
}
