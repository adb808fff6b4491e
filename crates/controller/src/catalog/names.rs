//! Objects that names stand for: the highest generation seen of each name, and its owner.
//!
//! ```text
//!              Hold, where nothing is known            Named, or a Claim that is granted
//!   (unknown) ------------------------> supposed (0) --------------------------> standing (1, 2, ...)
//!                                                                                 |  ^ the same object, or a higher generation
//!                                                    Unname by its last holder    v  |
//!                                                                                removed
//! ```
//! A name that was removed is remembered with its generation: a copy of something older does not bring it back.

use std::collections::{BTreeMap, BTreeSet};

use headwater_units::{NodeId, ObjectId};
use headwater_wire::{Claim, ClaimRule, MAX_NAMES, Naming, WhyUnnamed};

use super::{Catalog, NAME_BYTES};
use crate::{ControllerConfig, NameRecord};

/// Object that a name stands for.
#[derive(Clone, Copy)]
struct Standing {
    object: ObjectId,
    /// 0: somebody holds an object by this name, and nobody has claimed it.
    generation: u64,
    owner: NodeId,
    removed: bool,
    /// This controller has granted it, now or before a restart: while its owner is here with it, no other word counts.
    granted_here: bool,
}

impl Standing {
    fn naming(&self, name: &str) -> Naming {
        let Standing { object, generation, owner, .. } = *self;
        Naming { name: name.to_owned(), object, generation, owner }
    }
}

/// All names.
#[derive(Default)]
pub(super) struct Names {
    table: BTreeMap<String, Standing>,
    /// Bytes of all names, and of those that belong to each node.
    bytes: usize,
    bytes_of: BTreeMap<NodeId, usize>,
    /// Names that were removed: the first to make room.
    removed: BTreeSet<String>,
    /// Names of objects that nobody holds: the next.
    unheld: BTreeSet<String>,
}

/// A change of a name.
pub(super) struct NameChange {
    /// To be kept.
    pub(super) record: NameRecord,
    /// Nodes that are here and hold what it stood for before.
    pub(super) outdated: Vec<NodeId>,
}

/// The effect of a node's message about a name.
pub(super) enum Verdict {
    /// Nothing new.
    Known,
    /// It stands for something else, or is of a newer generation.
    Otherwise(Naming),
    /// It stands so from now on.
    Changed(NameChange),
    /// There is no room for it.
    Full(WhyUnnamed),
}

impl Names {
    /// Object that it stands for, unless the name was removed.
    pub(super) fn get(&self, name: &str) -> Option<ObjectId> {
        self.table.get(name).filter(|it| !it.removed).map(|it| it.object)
    }
    fn insert(&mut self, name: String, standing: Standing) -> Option<Standing> {
        let (len, owner) = (name.len(), standing.owner);
        let before = self.table.insert(name, standing);
        if let Some(before) = before {
            self.count_out(len, before.owner);
        }
        self.bytes += len;
        *self.bytes_of.entry(owner).or_default() += len;
        before
    }
    fn remove(&mut self, name: &str) -> Option<Standing> {
        let gone = self.table.remove(name)?;
        self.removed.remove(name);
        self.unheld.remove(name);
        self.count_out(name.len(), gone.owner);
        Some(gone)
    }
    fn count_out(&mut self, len: usize, owner: NodeId) {
        self.bytes -= len;
        let of_it = self.bytes_of.get_mut(&owner).map(|bytes| {
            *bytes -= len;
            *bytes
        });
        if of_it == Some(0) {
            self.bytes_of.remove(&owner);
        }
    }
    /// The name that is the first to make room: of this owner, if one is given.
    fn first_to_go(&self, owner: Option<NodeId>) -> Option<String> {
        let may_go = |name: &&String| {
            owner.is_none_or(|owner| self.table.get(*name).is_some_and(|it| it.owner == owner))
        };
        self.removed.iter().chain(&self.unheld).find(may_go).cloned()
    }
    /// Nobody holds any more what these stand for.
    pub(super) fn unheld<'a>(&mut self, names: impl Iterator<Item = &'a String>) {
        self.unheld.extend(names.cloned());
    }
    /// Somebody holds again what these stand for.
    pub(super) fn held<'a>(&mut self, names: impl Iterator<Item = &'a String>) {
        names.for_each(|name| {
            self.unheld.remove(name);
        });
    }
}

impl Catalog {
    /// Object and owner of a name; `None` also if it was never claimed.
    pub(super) fn naming(&self, name: &str) -> Option<Naming> {
        let it = self.names.table.get(name).filter(|it| !it.removed && it.generation > 0)?;
        Some(it.naming(name))
    }

    /// Names that had to make room since the last look.
    pub(super) fn take_forgotten(&mut self) -> Vec<String> {
        std::mem::take(&mut self.forgotten_names)
    }

    /// A name from before a restart: its holders are still to come.
    pub(super) fn note_restored(&mut self, record: NameRecord, config: &ControllerConfig) {
        let NameRecord { naming: Naming { name, object, generation, owner }, removed } = record;
        if !self.room_for_name(&name, owner, config) {
            return;
        }
        let place = if removed { &mut self.names.removed } else { &mut self.names.unheld };
        place.insert(name.clone());
        self.names.insert(name, Standing { object, generation, owner, removed, granted_here: true });
    }

    /// Makes room for a name, if need be at the cost of some that nobody holds. No node has more than its part of the room.
    fn room_for_name(&mut self, name: &str, owner: NodeId, config: &ControllerConfig) -> bool {
        if self.names.table.get(name).is_some_and(|it| it.owner == owner) {
            return true;
        }
        let (most, part) = (config.max_name_bytes.get() as usize, config.max_name_bytes.get() as usize / 8);
        loop {
            let names = &self.names;
            let own = names.bytes_of.get(&owner).copied().unwrap_or(0);
            let oldest = if own + name.len() > part {
                names.first_to_go(Some(owner))
            } else if names.table.len() >= config.max_names || names.bytes + name.len() > most {
                names.first_to_go(None)
            } else {
                return true;
            };
            let Some(oldest) = oldest else { return false };
            self.forget_name(oldest);
        }
    }

    fn forget_name(&mut self, name: String) {
        let Some(gone) = self.names.remove(&name) else { return };
        if let Some(known) = self.objects.get_mut(&gone.object) {
            known.names.remove(&name);
        }
        if gone.generation > 0 {
            self.forgotten_names.push(name);
        }
    }

    /// A node says a name of an object that it holds, without more. It stands if nothing else is known of the name, or if nobody is here
    /// any more with what was only supposed. False if there is no room for it.
    pub(super) fn suppose(
        &mut self,
        node: NodeId,
        object: ObjectId,
        name: String,
        config: &ControllerConfig,
    ) -> bool {
        // What finds no room is not remembered anywhere.
        if !self.room_for_name(&name, node, config) || self.say(node, object, &name, config).is_err() {
            return false;
        }
        match self.names.table.get(&name).copied() {
            Some(it) if it.object == object => {
                if !it.removed {
                    self.show(object, &name);
                }
            }
            Some(it) if it.generation > 0 || self.is_said_here(&name, it.object) => {}
            _ => drop(self.stand(Naming { name, object, generation: 0, owner: node }, false)),
        }
        true
    }

    /// A node holds an object by a name that some controller has granted.
    pub(super) fn note_named(&mut self, node: NodeId, naming: Naming, config: &ControllerConfig) -> Verdict {
        if !self.room_for_name(&naming.name, node, config) {
            return Verdict::Full(WhyUnnamed::Full);
        }
        if let Err(why) = self.say(node, naming.object, &naming.name, config) {
            return Verdict::Full(why);
        }
        let Some(it) = self.names.table.get(&naming.name).copied() else {
            return self.changed(naming, false, config);
        };
        let there = it.naming(&naming.name);
        let stands = it.granted_here
            && !it.removed
            && it.owner != naming.owner
            && self.path_of(it.owner).is_some()
            && self.says(it.owner, &naming.name, it.object);
        if stands && (it.object, it.generation) != (naming.object, naming.generation) {
            return Verdict::Otherwise(there);
        }
        if it.object != naming.object {
            return match naming.is_newer_than(&there) {
                true => self.changed(naming, false, config),
                false => Verdict::Otherwise(there),
            };
        }
        if naming.generation > it.generation {
            return self.changed(naming, false, config);
        }
        if it.removed {
            // A node that comes back with the object that was removed last brings it back: copies stay.
            return self.changed(there, it.granted_here, config);
        }
        self.show(naming.object, &naming.name);
        match naming.generation < it.generation {
            true => Verdict::Otherwise(there),
            false => Verdict::Known,
        }
    }

    /// Whether a node that could object to a claim has yet to come back and say so.
    pub(crate) fn owner_is_missing(&self, node: NodeId, claim: &Claim) -> bool {
        self.names.table.get(&claim.name).is_some_and(|it| {
            let is_another = it.generation > 0 && !it.removed && it.object != claim.object;
            is_another && it.owner != node && !self.says(it.owner, &claim.name, it.object)
        })
    }

    /// A node wants a name for an object that it holds.
    pub(super) fn note_claim(&mut self, node: NodeId, claim: &Claim, config: &ControllerConfig) -> Verdict {
        let Claim { name, object, at_least, rule, .. } = claim;
        let granted = |generation: u64, owner| Naming {
            name: name.clone(),
            object: *object,
            generation: generation.max(*at_least).max(1),
            owner,
        };
        if !self.room_for_name(name, node, config) {
            return Verdict::Full(WhyUnnamed::Full);
        }
        let Some(it) = self.names.table.get(name).copied() else {
            if let Err(why) = self.say(node, *object, name, config) {
                return Verdict::Full(why);
            }
            return self.changed(granted(1, node), true, config);
        };
        let owner_holds = !it.removed && self.says(it.owner, name, it.object);
        if it.object == *object {
            let owner = if owner_holds || *rule == ClaimRule::Copy { it.owner } else { node };
            let naming = granted(it.generation, owner);
            if let Err(why) = self.say(node, *object, name, config) {
                return Verdict::Full(why);
            }
            self.show(*object, name);
            let same = naming == it.naming(name) && !it.removed;
            return if same { Verdict::Known } else { self.changed(naming, true, config) };
        }
        let free = it.removed || it.owner == node || !self.is_said_here(name, it.object);
        let grants = match rule {
            ClaimRule::Copy => false,
            ClaimRule::Give => free,
            ClaimRule::Replace => free || !(owner_holds && self.path_of(it.owner).is_some()),
        };
        if !grants {
            return Verdict::Otherwise(it.naming(name));
        }
        if let Err(why) = self.say(node, *object, name, config) {
            return Verdict::Full(why);
        }
        self.changed(granted(it.generation.saturating_add(1), node), true, config)
    }

    /// A node holds the object by this name no longer. What there is to keep, if it was the last one.
    pub(super) fn note_unnamed(&mut self, node: NodeId, object: ObjectId, name: &str) -> Option<NameRecord> {
        let node = self.nodes.get_mut(&node)?;
        for held in [&mut node.holds, &mut node.formerly] {
            if held.get_mut(&object).is_some_and(|names| names.remove(name)) {
                self.said.give_back(&node.taker, NAME_BYTES + name.len());
            }
        }
        let known = self.objects.get(&object);
        let said = known.is_some_and(|it| it.holders.iter().any(|node| self.says(*node, name, object)));
        let it = self.names.table.get_mut(name).filter(|it| it.object == object && !it.removed && !said)?;
        it.removed = true;
        let it = *it;
        self.names.unheld.remove(name);
        self.names.removed.insert(name.to_owned());
        if let Some(known) = self.objects.get_mut(&object) {
            known.names.remove(name);
        }
        (it.generation > 0).then(|| NameRecord { naming: it.naming(name), removed: true })
    }

    /// Whether a node, here or away, holds an object by this name.
    pub(crate) fn says(&self, node: NodeId, name: &str, object: ObjectId) -> bool {
        let held = self.nodes.get(&node).and_then(|node| node.holds.get(&object));
        held.is_some_and(|names| names.contains(name))
    }

    /// Whether anybody who is here holds it by this name.
    fn is_said_here(&self, name: &str, object: ObjectId) -> bool {
        self.sayers(name, object).next().is_some()
    }

    fn sayers<'a>(&'a self, name: &'a str, object: ObjectId) -> impl Iterator<Item = NodeId> + 'a {
        let holders = self.objects.get(&object).into_iter().flat_map(|known| known.holders.iter().copied());
        holders.filter(move |node| self.path_of(*node).is_some() && self.says(*node, name, object))
    }

    /// Notes that a node says a name of an object that it holds. A name that finds no room must not be granted: anybody may take what its
    /// owner does not say.
    fn say(
        &mut self,
        id: NodeId,
        object: ObjectId,
        name: &str,
        config: &ControllerConfig,
    ) -> Result<(), WhyUnnamed> {
        let held = self.nodes.get(&id).and_then(|node| node.holds.get(&object));
        let names = held.ok_or(WhyUnnamed::Full)?;
        if names.contains(name) {
            return Ok(());
        }
        let bytes = NAME_BYTES + name.len();
        if names.len() >= MAX_NAMES {
            return Err(WhyUnnamed::TooMany);
        }
        if !self.has_room_of(id, bytes, config) {
            return Err(WhyUnnamed::Full);
        }
        if let Some(node) = self.nodes.get_mut(&id) {
            self.said.take(&node.taker, bytes);
            node.holds.entry(object).or_default().insert(name.to_owned());
        }
        Ok(())
    }

    /// The name is one of those that stand for a known object.
    fn show(&mut self, object: ObjectId, name: &str) {
        if let Some(known) = self.objects.get_mut(&object) {
            known.names.insert(name.to_owned());
            self.names.unheld.remove(name);
        }
    }

    fn changed(&mut self, naming: Naming, granted_here: bool, config: &ControllerConfig) -> Verdict {
        if !self.room_for_name(&naming.name, naming.owner, config) {
            return Verdict::Full(WhyUnnamed::Full);
        }
        let outdated = self.stand(naming.clone(), granted_here);
        Verdict::Changed(NameChange { record: NameRecord { naming, removed: false }, outdated })
    }

    /// From now on it stands so. Who is here and holds what it stood for before.
    fn stand(&mut self, naming: Naming, granted_here: bool) -> Vec<NodeId> {
        let Naming { name, object, generation, owner } = naming;
        self.names.removed.remove(&name);
        let standing = Standing { object, generation, owner, removed: false, granted_here };
        let before = self.names.insert(name.clone(), standing).map(|it| it.object);
        let mut outdated = Vec::new();
        if let Some(before) = before.filter(|before| *before != object) {
            if let Some(known) = self.objects.get_mut(&before) {
                known.names.remove(&name);
            }
            outdated = self.sayers(&name, before).collect();
        }
        self.show(object, &name);
        outdated
    }
}
