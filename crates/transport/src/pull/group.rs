//! The receivers of a group: how much each has asked for, and who holds the others up (SCDP §III-E).
//!
//! ```text
//!   member 1:  pulls ---->  3 asked for   \
//!   member 2:  pulls ---->  1 asked for    > one symbol for all, and one less asked for by each
//!   member 3:  pulls ---->  2 asked for   /
//!   member 4:  nothing asked for, for `detach_after` while others wait: detached, and served by its own flow
//! ```
//! Where paths must be validated ([`PullFlowConfig::validates_paths`]), nothing is sent before every member has spoken: the first window
//! would find nobody there. A member that has not spoken after `assemble_for` is detached.
//!
//! The group's flow sends a symbol when every member has asked for one. A member whose last pull had `fin` and was answered wants
//! nothing more, and holds nobody up. A member's want says how far the run of a block has to go. The member that lost most decides, so
//! the others get symbols that they do not need (the overhead of SCDP §IV-F).
//!
//! [`PullFlowConfig::validates_paths`]: super::PullFlowConfig::validates_paths

use headwater_units::{BlockIndex, FlowId, Time};
use headwater_wire::Want;

/// A member's pull, as far as its group is concerned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemberPull {
    /// Number of symbols beyond those asked for before.
    pub(super) more: u32,
    pub(super) fin: bool,
    pub(super) wants: [Option<Want>; 2],
}

/// A message of a member to its group.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MemberSays {
    /// The member asks for symbols.
    Asks(MemberPull),
    /// The member leaves: its own flow serves it from now on.
    Leaves,
}

/// The members of a group that are attached.
#[derive(Debug)]
pub(super) struct Members {
    attached: Vec<Member>,
    /// Flows that belong to the group and are not over, attached or not.
    known: Vec<FlowId>,
    /// Since when some have asked and others have not.
    held_since: Option<Time>,
    most_asked: u64,
}

#[derive(Debug)]
struct Member {
    flow: FlowId,
    /// It has spoken, or need not.
    here: bool,
    asked: u64,
    fin: bool,
    oldest: BlockIndex,
}

impl Member {
    fn wants_nothing(&self) -> bool {
        self.fin && self.asked == 0
    }
}

impl Members {
    /// `here`: they need not speak before they are sent something.
    pub(super) fn new(flows: &[FlowId], most_asked: u64, here: bool) -> Self {
        let member = |&flow| Member { flow, here, asked: 0, fin: false, oldest: BlockIndex(0) };
        let attached = flows.iter().map(member).collect();
        Members { attached, known: flows.to_vec(), held_since: None, most_asked }
    }

    /// A member asks for more. False if there is no such member, or it is detached.
    pub(super) fn on_pull(&mut self, flow: FlowId, pull: &MemberPull) -> bool {
        let Some(member) = self.attached.iter_mut().find(|member| member.flow == flow) else { return false };
        member.here = true;
        member.asked = (member.asked + u64::from(pull.more)).min(self.most_asked);
        member.fin = pull.fin;
        if let Some(oldest) = pull.wants[0] {
            member.oldest = oldest.block;
        }
        true
    }

    /// A member's flow is over. True if it was the last one.
    pub(super) fn on_leave(&mut self, flow: FlowId) -> bool {
        self.detach(flow);
        self.known.retain(|known| *known != flow);
        self.known.is_empty()
    }

    /// A member is served by its own flow from now on.
    pub(super) fn detach(&mut self, flow: FlowId) {
        self.attached.retain(|member| member.flow != flow);
        self.held_since = None;
    }

    /// Every attached member is done with the blocks below.
    pub(super) fn oldest(&self) -> Option<BlockIndex> {
        let waiting = self.attached.iter().filter(|member| !member.wants_nothing());
        waiting.map(|member| member.oldest).min()
    }

    /// Whether every member is known to be there, and there is one.
    pub(super) fn are_here(&self) -> bool {
        self.attached.iter().all(|member| member.here) && !self.attached.is_empty()
    }

    /// Whether every member has asked for a symbol, or wants none, and somebody has.
    pub(super) fn all_ask(&self) -> bool {
        self.attached.iter().all(|member| member.asked > 0 || member.fin) && self.are_owed()
    }

    /// Whether some have asked for more than has left.
    pub(super) fn are_owed(&self) -> bool {
        self.attached.iter().any(|member| member.asked > 0)
    }

    /// Whether the next symbol is the last one for all of them.
    pub(super) fn is_last(&self) -> bool {
        self.attached.iter().all(|member| member.fin && member.asked <= 1)
    }

    /// A symbol leaves for all. Those who wanted none get it too, and owe nothing for it.
    pub(super) fn on_sent(&mut self) {
        self.attached.iter_mut().for_each(|member| member.asked = member.asked.saturating_sub(1));
        self.held_since = None;
    }

    /// There is something to send, but not all are here, or have asked: those that have not are waited for from now on.
    pub(super) fn on_held(&mut self, now: Time) {
        let some_wait = match self.are_here() {
            true => self.attached.iter().any(|member| member.asked > 0) && !self.all_ask(),
            false => self.attached.iter().any(|member| member.here),
        };
        if some_wait {
            self.held_since.get_or_insert(now);
        } else {
            self.held_since = None;
        }
    }

    /// Since when somebody holds the group up.
    pub(super) fn held_since(&self) -> Option<Time> {
        self.held_since
    }

    /// Those who hold the group up are detached, and named.
    pub(super) fn detach_stragglers(&mut self, detached: &mut Vec<FlowId>) {
        self.held_since = None;
        let are_here = self.are_here();
        self.attached.retain(|member| {
            let keeps = if are_here { member.asked > 0 || member.fin } else { member.here };
            if !keeps {
                detached.push(member.flow);
            }
            keeps
        });
    }
}

#[cfg(test)]
mod tests {
    use headwater_units::Duration;

    use super::*;

    const A: FlowId = FlowId(1);
    const B: FlowId = FlowId(2);

    fn pull(more: u32, fin: bool) -> MemberPull {
        MemberPull { more, fin, wants: [None; 2] }
    }

    #[test]
    fn a_symbol_leaves_when_all_have_asked() {
        let mut members = Members::new(&[A, B], 100, true);
        assert!(!members.all_ask());
        assert!(members.on_pull(A, &pull(2, false)));
        assert!(!members.all_ask());
        members.on_pull(B, &pull(1, false));
        assert!(members.all_ask());
        members.on_sent();
        assert!(!members.all_ask(), "B has to ask again");
        assert!(!members.on_pull(FlowId(3), &pull(1, false)), "a stranger");
    }

    #[test]
    fn who_wants_nothing_more_holds_nobody_up() {
        let mut members = Members::new(&[A, B], 100, true);
        members.on_pull(A, &pull(1, true));
        members.on_pull(B, &pull(3, false));
        assert!(members.all_ask() && !members.is_last());
        members.on_sent();
        assert!(members.all_ask());
        members.on_sent();
        members.on_pull(B, &pull(0, true));
        assert!(members.is_last());
        members.on_sent();
        assert!(!members.all_ask(), "nobody wants anything");
    }

    #[test]
    fn only_who_has_not_asked_is_detached() {
        let mut members = Members::new(&[A, B], 100, true);
        members.on_held(Time::ZERO);
        assert_eq!(members.held_since(), None, "nobody waits");
        members.on_pull(A, &pull(1, false));
        members.on_held(Time::ZERO);
        members.on_held(Time::ZERO + Duration::from_millis(1));
        assert_eq!(members.held_since(), Some(Time::ZERO));
        let mut detached = Vec::new();
        members.detach_stragglers(&mut detached);
        assert_eq!(detached, [B]);
        assert!(members.all_ask());
        assert!(!members.on_leave(A) && members.on_leave(B), "the detached one still belongs to it");
    }

    #[test]
    fn who_has_not_spoken_is_awaited_and_then_left_behind() {
        let mut members = Members::new(&[A, B], 100, false);
        members.on_held(Time::ZERO);
        assert_eq!(members.held_since(), None, "nobody waits who is there");
        members.on_pull(A, &pull(0, false));
        members.on_held(Time::ZERO);
        assert!(!members.are_here() && members.held_since() == Some(Time::ZERO));
        let mut detached = Vec::new();
        members.detach_stragglers(&mut detached);
        assert_eq!(detached, [B], "A has asked for nothing, and need not");
        assert!(members.are_here());
        members.detach(A);
        assert!(!members.are_here(), "there is nobody");
    }

    #[test]
    fn absurd_pulls_are_cut() {
        let mut members = Members::new(&[A], 100, true);
        members.on_pull(A, &pull(u32::MAX, false));
        members.on_pull(A, &pull(u32::MAX, false));
        (0..100).for_each(|_| members.on_sent());
        assert!(!members.all_ask());
    }
}
