//! The asker of the cast, which hears how it goes by its own link to the controller, as `headwater cast` does.

use headwater_controller::ControllerCommand;
use headwater_machine::{Endpoint, Input, Packet};
use headwater_units::PathId;
use headwater_wire::{Body, Cast, Class, Control, MemberNews, MemberStanding, ToController, ToNode};

use super::transit::CONTROLLER;
use super::{ASKER, CAST, NAME, World, node_of};

impl World {
    /// Asks for the cast, if there is one that is not over; once more after the controller has started anew.
    pub(super) fn ask(&mut self) {
        if !self.asking {
            return;
        }
        let opened =
            ControllerCommand::PathOpened { path: PathId(ASKER), node: node_of(ASKER), network: None };
        self.controller.handle(self.now, Input::Command(opened));
        let cast = Cast {
            cast: CAST,
            name: NAME.to_owned(),
            to: self.setup.receivers.iter().map(|host| node_of(*host)).collect(),
            first: 0,
            of: 0,
            class: Class::Bulk,
            wish: self.setup.wish,
        };
        for part in cast.into_parts() {
            self.transit.say(self.now, ASKER, CONTROLLER, ToController::Cast(part).into());
        }
    }

    /// The controller says how the cast goes.
    pub(super) fn on_news(&mut self, packet: Packet) {
        let Body::Control(control) = packet.datagram.body else { return };
        match *control {
            Control::Node(ToNode::Casting(news)) => {
                self.route = Some(news.route);
                self.repairs = news.repairs;
                if news.over {
                    self.end_rows(|host| reason(host, &news.members));
                }
            }
            Control::Node(ToNode::CastRefused { reason, .. }) => self.end_rows(|_| format!("{reason:?}")),
            _ => {}
        }
    }

    /// The cast is over for those that are still waited for.
    fn end_rows(&mut self, why: impl Fn(u32) -> String) {
        self.asking = false;
        let rows = self.rows[..self.setup.receivers.len()].iter_mut();
        for row in rows.filter(|row| !row.is_over()) {
            row.failed = Some(why(row.host));
            self.left -= 1;
        }
    }
}

/// Reason in the controller's last word for a host that has not said how it ended.
fn reason(host: u32, members: &[MemberNews]) -> String {
    match members.iter().find(|member| member.node == node_of(host)).map(|member| &member.standing) {
        Some(MemberStanding::Failed(reason)) => reason.clone(),
        standing => format!("the cast is over: {standing:?}"),
    }
}
