//! Faults in a simulated cast: hosts that fall silent, die, come back or restart.

use headwater_controller::{Controller, ControllerCommand, ControllerEvent};
use headwater_machine::{Endpoint, Input};
use headwater_units::{Duration, PathId};
use rand::Rng;

use super::host::Host;
use super::settings::{controller_config, host_config};
use super::{ASKER, Kept, Socket, World, drawn, node_of};
use crate::packet::Event;
use crate::packet::setup::Change;

/// Time within which all hosts find a controller again that was gone.
const FOUND_AGAIN: Duration = Duration::from_secs(1);
/// Silence of the controller, after which the node that waits for a cast asks once more.
const ASKS_AGAIN: Duration = Duration::from_secs(2);

impl Kept {
    pub(super) fn on_event(&mut self, event: ControllerEvent) {
        match event {
            ControllerEvent::Persist(record) => _ = self.tasks.insert(record.task, record),
            ControllerEvent::Forget { task, .. } => _ = self.tasks.remove(&task),
            ControllerEvent::NameChanged(record) => {
                self.names.insert(record.naming.name.clone(), record);
            }
            ControllerEvent::NameForgotten { name } => _ = self.names.remove(&name),
            ControllerEvent::NodeUp(_)
            | ControllerEvent::NodeDown { .. }
            | ControllerEvent::StandingBegun(_)
            | ControllerEvent::StandingEnded(_)
            | ControllerEvent::CastBegun(_)
            | ControllerEvent::CastOver { .. } => {}
        }
    }
}

impl World {
    /// The controller's process starts anew with what it was told to keep. Everybody has lost it, and finds it again.
    fn restart_controller(&mut self) {
        let (seed, now) = (drawn(&mut self.seeds), self.now);
        self.controller = Controller::new(controller_config(&self.setup), seed);
        self.controller_wake = u64::MAX;
        let (names, tasks) = (self.kept.names.values(), self.kept.tasks.values());
        let returned = (!self.kept.is_lost).then_some(ControllerCommand::Returned);
        let names = names.map(|record| ControllerCommand::RestoreName(record.clone()));
        let tasks = tasks.map(|record| ControllerCommand::Restore(record.clone()));
        for command in returned.into_iter().chain(names).chain(tasks) {
            self.controller.handle(now, Input::Command(command));
        }
        self.kept.is_lost = false;
        self.drive_controller();
        for host in 0..self.hosts.len() as u32 {
            let it = &mut self.hosts[host as usize];
            it.linked = false;
            it.unheard.clear();
            // Messages on their way between them are lost.
            let least = self.setup.control_delay * 2;
            let after = least + Duration::from_nanos(self.chance.random_range(0..FOUND_AGAIN.as_nanos()));
            self.transit.agenda.push((now + after).as_nanos(), Event::Link { host });
        }
        self.transit.agenda.push((now + ASKS_AGAIN).as_nanos(), Event::Link { host: ASKER });
    }

    /// Somebody's link to the controller is there again, after that had started anew.
    pub(super) fn find_again(&mut self, host: u32) {
        match self.hosts.get(host as usize) {
            None => self.ask(),
            // A host that does not run now comes by itself later.
            Some(it) if !it.linked && !it.silent => self.link(host),
            Some(_) => {}
        }
    }

    /// A host's link to the controller is there, or again.
    pub(super) fn link(&mut self, host: u32) {
        let it = &mut self.hosts[host as usize];
        (it.linked, it.links) = (true, it.links + 1);
        self.command_controller(ControllerCommand::PathOpened {
            path: PathId(host),
            node: node_of(host),
            network: None,
        });
        self.with(host, |host, _, out| host.introduce(out));
        self.drive(host);
    }

    pub(super) fn change(&mut self, index: u32) {
        self.changes_left -= 1;
        match self.setup.changes[index as usize].1.clone() {
            Change::Link(link, change) => self.transit.change(self.now, link.0, change),
            Change::Paused(host, true) => self.silence(host),
            Change::Paused(host, false) => self.thaw(host),
            Change::Killed(host) => {
                self.silence(host);
                let it = &mut self.hosts[host as usize];
                it.dead = true;
                it.unheard.clear();
                it.socket = Socket::default();
                self.transit.leave_all(host);
                let later = &self.setup.changes[index as usize + 1..];
                if !later.iter().any(|(_, change)| *change == Change::Restart(host)) {
                    self.give_up(host, "it died");
                }
            }
            Change::Restart(host) => self.restart(host),
            Change::RestartController => self.restart_controller(),
            Change::LoseControllerState => self.kept = Kept { is_lost: true, ..Kept::default() },
            Change::Member(host, fault) => self.change_member(host, fault),
        }
    }

    /// Nobody waits for a host any more.
    pub(super) fn give_up(&mut self, host: u32, why: &str) {
        let Some(row) = self.rows.get_mut(self.row_of[host as usize]) else { return };
        if row.finished.is_none() && row.failed.is_none() {
            row.fail(self.now, why.to_owned());
            self.left -= 1;
        }
    }

    pub(super) fn silence(&mut self, host: u32) {
        let it = &mut self.hosts[host as usize];
        it.silent = true;
        it.silences += 1;
        self.transit.agenda.push((self.now + self.setup.noticed).as_nanos(), Event::Introduce { host });
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
        let kept = std::mem::take(&mut it.socket).kept;
        for brought in kept {
            // The node has its driver read the payload right after the packet was handed in.
            self.hosts[host as usize].take(self.now, brought);
            self.drive(host);
        }
        for control in std::mem::take(&mut self.hosts[host as usize].unheard) {
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
        if self.setup.gets.iter().any(|get| get.host == host && get.at <= now) {
            // The controller invites again, but nobody asks again.
            self.give_up(host, "its process ended");
        }
        let it = &mut self.hosts[host as usize];
        let fresh = Host::new(host_config(&self.setup, host, seed));
        it.host = std::mem::replace(&mut it.host, fresh).restarted(seed, now);
        it.lives += 1;
        self.transit.leave_all(host);
        (it.silent, it.dead) = (false, false);
        it.unheard.clear();
        it.socket = Socket::default();
        if std::mem::take(&mut it.linked) {
            self.command_controller(ControllerCommand::PathLost { path: PathId(host) });
        }
        self.link(host);
    }
}
