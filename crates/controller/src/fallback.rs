//! Receivers of a cast for which its trees have come to nothing.
//!
//! ```text
//!   Receiving by trees -- no way leads to it, its source stopped, its fetch failed --> StopFetch, Fetch under another number
//!                                                                                         |
//!                                                       served by itself, as by any request <-'
//! ```
//! Once: a second failure is one. What it has stays. Where whoever asked insists on trees, the first failure is one.

use headwater_units::{NodeId, Time};
use headwater_wire::{CastWish, MemberStanding, Outcome, ToNode, WhyUnicast};
use rand::Rng;

use super::Controller;
use super::casts::Stage;

impl Controller {
    /// A receiver's trees bring it nothing any more, for this reason: it is to fetch once more, by itself.
    pub(super) fn leave_trees(&mut self, now: Time, number: u64, node: NodeId, reason: &str) {
        let cast = self.casts.get_mut(number).expect("the caller has found it");
        let insists = cast.wish == CastWish::Trees;
        let on_trees = cast.members.get_mut(&node).filter(|member| member.on_trees && !member.has_ended());
        let Some(member) = on_trees else { return };
        if insists {
            return self.end_member(now, number, node, MemberStanding::Failed(reason.to_owned()));
        }
        let (request, task) = (member.request, member.task.take());
        (member.on_trees, member.asks, member.told) = (false, None, None);
        member.standing = MemberStanding::Invited;
        if let Some(installed) = &mut cast.installed {
            installed.leave_out(node);
        }
        self.stats.receivers_off_trees += 1;
        self.send_to(node, ToNode::StopFetch { request });
        if let Some(task) = task {
            self.end_task(now, task, Outcome::Failed);
        }
        let request = self.rng.random();
        self.casts.renumber(number, node, request);
        self.look_after_members(now, number);
    }

    /// There are no trees, and whoever asked wants nothing else.
    pub(super) fn fail_without_trees(&mut self, now: Time, number: u64, why: WhyUnicast) {
        let reason = match why {
            WhyUnicast::NoTrees => "no tree of the network leads to two receivers",
            _ => "the source could not open the trees",
        };
        let cast = self.casts.get_mut(number).expect("the caller has found it");
        cast.stage = Stage::Running;
        let open: Vec<NodeId> = cast.open_members().map(|(node, _)| node).collect();
        for node in open {
            self.end_member(now, number, node, MemberStanding::Failed(reason.to_owned()));
        }
        self.remove_trees(now, number);
    }
}
