//! Claims of nodes on names, and the answers: a name goes back to nothing older, and to nobody else while its owner is
//! here.

use headwater_units::{NodeId, ObjectId};
use headwater_wire::{Claim, MAX_NAME, NameStands, Naming, ToNode, WhyUnnamed};

use super::Catalog;
use super::names::{NameChange, Verdict};
use crate::turn::Turn;
use crate::{ControllerEvent, NameRecord};

impl Catalog {
    /// A node holds an object by a name that was granted once.
    pub(crate) fn named(&mut self, turn: &mut Turn<'_>, node: NodeId, naming: Naming) {
        match self.note_named(node, naming, turn.config) {
            Verdict::Known => {}
            Verdict::Otherwise(there) => self.tell_name(turn, node, None, there),
            Verdict::Changed(change) => self.name_changed(turn, change),
            Verdict::Full(_) => turn.stats.names_refused += 1,
        }
    }

    /// A node wants a name for an object that it holds.
    pub(crate) fn claim(&mut self, turn: &mut Turn<'_>, node: NodeId, claim: &Claim) {
        let stands = match self.note_claim(node, claim, turn.config) {
            Verdict::Known => self.naming(&claim.name),
            Verdict::Otherwise(there) => {
                turn.stats.names_refused += 1;
                // A name that was only supposed has no generation to tell.
                Some(Naming { generation: there.generation.max(1), ..there })
            }
            Verdict::Changed(change) => {
                let naming = change.record.naming.clone();
                self.name_changed(turn, change);
                Some(naming)
            }
            Verdict::Full(why) => {
                self.refuse_claim(turn, node, claim, why);
                None
            }
        };
        if let Some(naming) = stands {
            self.tell_name(turn, node, Some(claim.number), naming);
        }
    }

    /// There is no room for what a claim asks for.
    pub(crate) fn refuse_claim(&self, turn: &mut Turn<'_>, node: NodeId, claim: &Claim, why: WhyUnnamed) {
        turn.stats.names_refused += 1;
        turn.tell(node, ToNode::NameRefused { claim: claim.number, why });
    }

    /// A node holds an object by this name no longer.
    pub(crate) fn unname(&mut self, turn: &mut Turn<'_>, node: NodeId, object: ObjectId, name: &str) {
        if let Some(record) = self.note_unnamed(node, object, name) {
            turn.event(ControllerEvent::NameChanged(Box::new(record)));
        }
    }

    /// A name from before a restart.
    pub(crate) fn restore_name(&mut self, turn: &mut Turn<'_>, record: NameRecord) {
        self.note_restored(record, turn.config);
        self.forget_names(turn);
    }

    fn name_changed(&mut self, turn: &mut Turn<'_>, change: NameChange) {
        let naming = change.record.naming.clone();
        turn.event(ControllerEvent::NameChanged(Box::new(change.record)));
        self.forget_names(turn);
        for node in change.outdated {
            self.tell_name(turn, node, None, naming.clone());
        }
    }

    /// Names that had to make room need not be kept.
    pub(crate) fn forget_names(&mut self, turn: &mut Turn<'_>) {
        for name in self.take_forgotten() {
            turn.event(ControllerEvent::NameForgotten { name });
        }
    }

    fn tell_name(&self, turn: &mut Turn<'_>, node: NodeId, claim: Option<u64>, naming: Naming) {
        let owner = self.node(naming.owner).map(|node| &node.info);
        let mut owner_is = owner.map_or_else(String::new, |info| match info.listen {
            Some(listen) => format!("{} ({listen})", info.name),
            None => info.name.clone(),
        });
        if owner_is.len() > MAX_NAME {
            owner_is.clear();
        }
        let owner_is_here = self.path_of(naming.owner).is_some();
        let stands = NameStands { claim, naming, owner_is, owner_is_here };
        turn.tell(node, ToNode::NameStands(Box::new(stands)));
    }
}
