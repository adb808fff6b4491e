//! The end of every input and every timer: touched tasks are brought into order, and effects are carried out.

use headwater_machine::{Output, Packet};
use headwater_units::Time;

use super::Controller;
use crate::tasks::Tasks;
use crate::turn::{Effect, Turn};

impl Controller {
    /// Brings everything that the last input or timer touched into order.
    pub(super) fn settle(&mut self, now: Time) {
        let Controller { deliveries, catalog, planner, desk, .. } = self;
        let turn = &mut desk.turn(now);
        for object in catalog.take_resized() {
            deliveries.end_tasks_of_another_size(turn, catalog, object);
        }
        let plan = |turn: &mut Turn<'_>, tasks: &Tasks| planner.plan(turn, tasks, catalog);
        deliveries.settle(turn, catalog, plan);
        self.carry_out();
    }

    /// Does what parts want done, in the order in which they wanted it.
    pub(super) fn carry_out(&mut self) {
        for effect in self.desk.effects.drain(..) {
            let said = match effect {
                Effect::Answer(path, control) => Some((path, control)),
                Effect::Tell(node, control) => self.catalog.path_of(node).map(|path| (path, control)),
                Effect::Event(event) => {
                    self.out.push_back(Output::Event(event));
                    None
                }
                Effect::Wake(subject, at) => {
                    self.timers.set(subject, at);
                    None
                }
            };
            let transmit = said.map(|(path, control)| Output::Transmit(Packet::control(path, control)));
            self.out.extend(transmit);
        }
    }
}
