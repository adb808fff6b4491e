//! The asker of the casts, which hears how they go by its own link to the controller, as `headwater cast` does.

use headwater_controller::ControllerCommand;
use headwater_machine::{Endpoint, Input, Packet};
use headwater_units::PathId;
use headwater_wire::{Body, Cast, Class, Control, MemberStanding, ToController, ToNode};

use super::transit::CONTROLLER;
use super::{ASKER, CAST, CastAt, NAME, World, node_of};

impl World {
    /// Asks for the casts that are not over, if there are any; once more after the controller has started anew.
    pub(super) fn ask(&mut self) {
        if self.asking.is_empty() && self.to_ask == 0 {
            return;
        }
        let opened =
            ControllerCommand::PathOpened { path: PathId(ASKER), node: node_of(ASKER), network: None };
        self.controller.handle(self.now, Input::Command(opened));
        for cast in self.asking.clone() {
            self.ask_for(cast);
        }
    }

    /// The time of a further cast has come.
    pub(super) fn ask_further(&mut self, index: usize) {
        let cast = CAST + 1 + index as u64;
        self.to_ask -= 1;
        self.asking.insert(cast);
        self.ask_for(cast);
    }

    /// The receivers of a cast, by its number.
    fn receivers_of(&self, cast: u64) -> &[u32] {
        match (cast - CAST).checked_sub(1) {
            None => &self.setup.receivers,
            Some(further) => {
                let CastAt { receivers, .. } = &self.setup.further[further as usize];
                receivers
            }
        }
    }

    fn ask_for(&mut self, cast: u64) {
        let cast = Cast {
            cast,
            name: NAME.to_owned(),
            to: self.receivers_of(cast).iter().map(|host| node_of(*host)).collect(),
            first: 0,
            of: 0,
            class: Class::Bulk,
            wish: self.setup.wish,
        };
        for part in cast.into_parts() {
            self.transit.say(self.now, ASKER, CONTROLLER, ToController::Cast(part).into());
        }
    }

    /// The controller says how a cast goes.
    pub(super) fn on_news(&mut self, packet: Packet) {
        let Body::Control(control) = packet.datagram.body else { return };
        match *control {
            Control::Node(ToNode::Casting(news)) => {
                if news.cast == CAST {
                    self.route = Some(news.route);
                    self.repairs = news.repairs;
                }
                let members = news.members.into_iter();
                self.told.extend(members.map(|member| ((news.cast, member.node), member.standing)));
                if news.over {
                    let told = std::mem::take(&mut self.told);
                    self.end_rows(news.cast, |host| reason(told.get(&(news.cast, node_of(host)))));
                    self.told = told;
                }
            }
            Control::Node(ToNode::CastRefused { cast, reason }) => {
                self.end_rows(cast, |_| format!("{reason:?}"));
            }
            _ => {}
        }
    }

    /// A cast is over for those that are still waited for.
    fn end_rows(&mut self, cast: u64, why: impl Fn(u32) -> String) {
        if !self.asking.remove(&cast) {
            return;
        }
        for host in self.receivers_of(cast).to_vec() {
            let gets = self.setup.gets.iter().any(|get| get.host == host);
            let row = &mut self.rows[self.row_of[host as usize]];
            // A host that also gets it by itself hears by that how it goes.
            if !row.is_over() && !gets {
                row.fail(self.now, why(host));
                self.left -= 1;
            }
        }
    }
}

/// Reason that the controller gives for a host that has not said how it ended.
fn reason(standing: Option<&MemberStanding>) -> String {
    match standing {
        Some(MemberStanding::Failed(reason)) => reason.clone(),
        standing => format!("the cast is over: {standing:?}"),
    }
}
