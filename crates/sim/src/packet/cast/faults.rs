//! What goes wrong in a simulated cast: hosts that fall silent, die, come back or start anew.

use headwater_controller::ControllerCommand;
use headwater_units::PathId;

use super::host::Host;
use super::{Socket, World, drawn, host_config, node_of};
use crate::packet::Event;
use crate::packet::setup::Change;

impl World {
    /// A host's link to the controller is there, or again.
    pub(super) fn link(&mut self, host: u32) {
        self.hosts[host as usize].linked = true;
        self.command_controller(ControllerCommand::PathOpened { path: PathId(host), node: node_of(host) });
        self.with(host, |host, _, out| host.introduce(out));
        self.drive(host);
    }

    pub(super) fn change(&mut self, index: u32) {
        match self.setup.changes[index as usize].1.clone() {
            Change::Link(link, change) => self.carrier.change(self.now, link.0, change),
            Change::Paused(host, true) => self.silence(host),
            Change::Paused(host, false) => self.thaw(host),
            Change::Killed(host) => {
                self.silence(host);
                let it = &mut self.hosts[host as usize];
                it.dead = true;
                it.unheard.clear();
                it.socket = Socket::default();
                let later = &self.setup.changes[index as usize + 1..];
                if !later.iter().any(|(_, change)| *change == Change::Restart(host)) {
                    self.give_up(host, "it died");
                }
            }
            Change::Restart(host) => self.restart(host),
            Change::RestartController => unreachable!("no scenario asks for it"),
        }
    }

    /// Nobody waits for a host any more.
    fn give_up(&mut self, host: u32, why: &str) {
        let Some(row) = self.rows.get_mut(self.row_of[host as usize]) else { return };
        if row.finished.is_none() && row.failed.is_none() {
            row.failed = Some(why.to_owned());
            self.left -= 1;
        }
    }

    pub(super) fn silence(&mut self, host: u32) {
        let it = &mut self.hosts[host as usize];
        it.silent = true;
        it.silences += 1;
        self.carrier.agenda.push((self.now + self.setup.noticed).as_nanos(), Event::Introduce { host });
    }

    /// A host has been silent for as long as it takes to be noticed, if it has not spoken since.
    pub(super) fn miss(&mut self, host: u32) {
        let it = &mut self.hosts[host as usize];
        it.silences -= 1;
        if it.silent && it.silences == 0 && it.linked {
            it.linked = false;
            it.unheard.clear();
            self.command_controller(ControllerCommand::PathLost { path: PathId(host) });
        }
    }

    pub(super) fn thaw(&mut self, host: u32) {
        let it = &mut self.hosts[host as usize];
        if it.dead || !std::mem::take(&mut it.silent) {
            return;
        }
        for brought in std::mem::take(&mut it.socket).kept {
            it.take(self.now, brought);
        }
        for control in std::mem::take(&mut it.unheard) {
            self.with(host, |host, now, out| host.on_control(now, control, out));
        }
        if self.hosts[host as usize].linked {
            return self.drive(host);
        }
        self.link(host);
    }

    /// A host's process starts anew, with its objects and finished blocks.
    fn restart(&mut self, host: u32) {
        let (now, seed) = (self.now, drawn(&mut self.seeds));
        if self.setup.gets.iter().any(|(at, it)| *it == host && *at <= now) {
            // The controller invites again, but nobody asks again.
            self.give_up(host, "its process ended");
        }
        let it = &mut self.hosts[host as usize];
        let fresh = Host::new(host_config(&self.setup, host, seed));
        it.host = std::mem::replace(&mut it.host, fresh).restarted(seed, now);
        it.lives += 1;
        (it.silent, it.dead) = (false, false);
        it.unheard.clear();
        it.socket = Socket::default();
        if std::mem::take(&mut it.linked) {
            self.command_controller(ControllerCommand::PathLost { path: PathId(host) });
        }
        self.link(host);
    }
}
