//! Steps of a cast as time passes: the next step of its route, repeated invitations, and news for the node that asked.

use headwater_units::Time;
use headwater_wire::{CastWish, MAX_FLOWS, ToNode, WhyUnicast};

use super::Below;
use super::cast::{Cast, Multicast, Route, Stage, Trees};
use crate::ControllerEvent;
use crate::timers::Subject;

impl Cast {
    /// Looks after a cast: tells receivers, goes on to the next step, tells the asker, and sets the next wake-up. True
    /// if it is over.
    pub(super) fn tick(&mut self, below: &mut Below<'_>) -> bool {
        if matches!((self.stage, &self.route), (Stage::Gathering { .. }, Route::Overlay(None)))
            && self.may_begin(below)
        {
            // Receivers of an overlay have their places before they ask, and are invited by their places.
            self.set_out(below);
        }
        self.invite_more(below);
        self.look_after_members(below);
        self.drop_if_late(below);
        self.take_unclaimed_places(below);
        let trees = self.look_after_trees(below);
        let now = below.turn.now;
        let (asking, open) = (self.members.asking(), self.members.open());
        match self.stage {
            Stage::Gathering { until } if asking > 0 && (asking == open || now >= until) => {
                self.set_out(below)
            }
            Stage::Probing { until } | Stage::Opening { until } if now >= until => {
                self.give_up_group(below);
            }
            _ => {}
        }
        if self.tell_asker(below) {
            return true;
        }
        let due = self.members.next_due().into_iter().chain(self.lapse_at).min();
        let mut next = due
            .unwrap_or(Time::MAX)
            .min(self.news_at)
            .min(self.over_at.unwrap_or(Time::MAX))
            .min(self.invitations.due().unwrap_or(Time::MAX))
            .min(self.drops_at().filter(|at| *at > now).unwrap_or(Time::MAX))
            .min(trees.unwrap_or(Time::MAX));
        match self.stage {
            Stage::Gathering { until } | Stage::Probing { until } | Stage::Opening { until }
                if until > now =>
            {
                next = next.min(until);
            }
            _ => {}
        }
        below.turn.wake(Subject::Cast(self.number), Some(next));
        false
    }

    /// Those have asked who are waited for: takes the route that was chosen.
    fn set_out(&mut self, below: &mut Below<'_>) {
        match (&self.route, self.wish) {
            (Route::Multicast(_), _) => self.probe(below),
            (Route::Trees(_), _) => self.install_trees(below),
            (_, CastWish::Overlay) => self.serve_without_group(below, WhyUnicast::Wished),
            _ if self.members.open() > MAX_FLOWS => self.serve_without_group(below, WhyUnicast::TooMany),
            _ => self.serve_without_group(below, WhyUnicast::NoGroups),
        }
    }

    /// Tells the asker how it does, if it is time. True if that was the last word.
    fn tell_asker(&mut self, below: &mut Below<'_>) -> bool {
        let now = below.turn.now;
        let mut over = false;
        if self.members.open() > 0 {
            self.over_at = None;
        } else {
            // The number of symbols that left on the group's flow is known when it ends, which it does when its members
            // say goodbye.
            let until = *self.over_at.get_or_insert(now + below.turn.config.retry_first);
            over = match &self.route {
                Route::Trees(Trees::Installed(..)) => self.stop_trees(below),
                Route::Multicast(Multicast::Open(_)) => false,
                _ => true,
            } || now >= until;
        }
        if !over && now < self.news_at {
            return false;
        }
        self.news_at = now + self.news_every(below.turn.config);
        if let Some(asker) = self.asker {
            if let Some(how) = self.at_rates(now) {
                below.turn.answer(asker, ToNode::CastAtRates { cast: self.number, how });
            }
            let news = self.news(now, below.deliveries.tasks(), over);
            news.into_iter().for_each(|news| below.turn.answer(asker, ToNode::Casting(Box::new(news))));
        }
        if over {
            let route = std::mem::replace(&mut self.route, Route::Overlay(None));
            self.abandon(below, route);
            self.dismiss_away(below);
            let done = self.members.done();
            let failed = self.members.len() - done;
            let in_time =
                self.urgency.and_then(|it| it.deadline).map(|deadline| self.members.have_it_by(deadline));
            below.turn.event(ControllerEvent::CastOver { cast: self.number, done, failed, in_time });
            below.turn.wake(Subject::Cast(self.number), None);
        }
        over
    }
}
