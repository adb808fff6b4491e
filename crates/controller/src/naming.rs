//! What nodes say of names, and what they are told: a name goes back to nothing older, and to nobody else while its owner is here.

use headwater_units::{NodeId, ObjectId, PathId, Time};
use headwater_wire::{Claim, ClaimRule, MAX_NAME, NameStands, Naming, ToController, ToNode};

use super::Controller;
use super::registry::{NameChange, Verdict};
use crate::{ControllerEvent, NameRecord};

impl Controller {
    /// A node holds an object by a name that was granted once.
    pub(super) fn named(&mut self, now: Time, node: NodeId, naming: Naming) {
        if !self.registry.holds(node, naming.object) {
            self.stats.names_refused += 1;
            return;
        }
        match self.registry.named(node, naming, &self.config) {
            Verdict::Known => {}
            Verdict::Otherwise(there) => self.tell_name(node, None, there),
            Verdict::Changed(change) => self.name_changed(change),
            Verdict::Full => self.stats.names_refused += 1,
        }
        self.answer_early(now);
    }

    /// A node wants a name for an object that it holds.
    pub(super) fn claim(&mut self, now: Time, path: PathId, node: NodeId, claim: Claim) {
        if !self.registry.holds(node, claim.object) {
            self.stats.names_refused += 1;
            return;
        }
        if claim.rule != ClaimRule::Copy
            && self.awaits_nodes(now)
            && self.registry.owner_is_missing(node, &claim)
        {
            return self.hold_back(path, claim.name.clone(), ToController::Claim(claim));
        }
        let verdict = self.registry.claim(node, &claim, &self.config);
        let stands = match verdict {
            Verdict::Known => self.registry.naming(&claim.name),
            Verdict::Otherwise(there) => {
                self.stats.names_refused += 1;
                // What was only supposed has no generation to tell.
                Some(Naming { generation: there.generation.max(1), ..there })
            }
            Verdict::Changed(change) => {
                let naming = change.record.naming.clone();
                self.name_changed(change);
                Some(naming)
            }
            Verdict::Full => {
                self.stats.names_refused += 1;
                None
            }
        };
        if let Some(naming) = stands {
            self.tell_name(node, Some(claim.number), naming);
        }
        self.answer_early(now);
    }

    /// A node holds an object by this name no longer.
    pub(super) fn unname(&mut self, node: NodeId, object: ObjectId, name: &str) {
        if let Some(record) = self.registry.unname(node, object, name) {
            self.event(ControllerEvent::NameChanged(Box::new(record)));
        }
    }

    /// A name from before a restart.
    pub(super) fn restore_name(&mut self, record: NameRecord) {
        self.registry.restore_name(record, &self.config);
        self.forget_names();
    }

    fn name_changed(&mut self, change: NameChange) {
        let naming = change.record.naming.clone();
        self.event(ControllerEvent::NameChanged(Box::new(change.record)));
        self.forget_names();
        for node in change.outdated {
            self.tell_name(node, None, naming.clone());
        }
    }

    /// Names that had to make room need not be kept.
    pub(super) fn forget_names(&mut self) {
        for name in self.registry.take_forgotten() {
            self.event(ControllerEvent::NameForgotten { name });
        }
    }

    fn tell_name(&mut self, node: NodeId, claim: Option<u64>, naming: Naming) {
        let owner = self.registry.node(naming.owner).map(|node| &node.info);
        let mut owner_is = owner.map_or_else(String::new, |info| match info.listen {
            Some(listen) => format!("{} ({listen})", info.name),
            None => info.name.clone(),
        });
        if owner_is.len() > MAX_NAME {
            owner_is.clear();
        }
        let owner_is_here = self.registry.path_of(naming.owner).is_some();
        let stands = NameStands { claim, naming, owner_is, owner_is_here };
        self.send_to(node, ToNode::NameStands(Box::new(stands)));
    }
}
