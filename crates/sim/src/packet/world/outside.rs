//! Outside events: changes of links and hosts.

use super::World;
use crate::packet::setup::Change;

impl World {
    pub(super) fn change(&mut self, index: u32) {
        self.changes_left -= 1;
        match self.setup.changes[index as usize].1.clone() {
            Change::Link(link, change) => self.delivery.change(self.now, link.0, change),
            Change::Paused(host, paused) => self.pause(host, paused),
            // Nobody can tell the two from outside; what it forgets it forgets when it restarts.
            Change::Killed(host) => self.pause(host, true),
            Change::Restart(host) => self.restart(host),
            Change::RestartController => self.restart_controller(),
            Change::LoseControllerState | Change::Member(..) => unreachable!("only casts have these"),
        }
    }

    fn pause(&mut self, host: u32, paused: bool) {
        self.paused[host as usize] = paused;
        self.slots.iter_mut().filter(|slot| slot.host == host).for_each(|slot| slot.paused = paused);
        if !paused {
            let here = (0..self.slots.len() as u32).filter(|&s| self.slots[s as usize].host == host);
            for slot in here.collect::<Vec<_>>() {
                self.slots[slot as usize].wake = u64::MAX;
                self.drain_slot(slot);
            }
        }
    }
}
