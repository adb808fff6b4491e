//! Casts that go on: nodes that join later are sent an object too, if they carry its labels.
//!
//! ```text
//!   a node says that it keeps objects --> it has come --for a second--> of each standing cast: whoever has come, carries its labels and
//!                                                                      does not have the object is served by a cast of its own
//! ```
//! A name that nobody holds at that moment is tried again as long as somebody waits for it. Nodes that come together are served together.
//! After a restart of the controller all nodes come; most have what they should have.

use std::collections::{BTreeMap, BTreeSet};

use headwater_machine::{Shares, Taker};
use headwater_units::{Duration, NodeId};
use headwater_wire::{Cast, CastWish, Class, Refusal, StandingCast};

use crate::catalog::Catalog;
use crate::timers::Subject;
use crate::turn::Turn;
use crate::{ControllerEvent, StandingRecord};

/// Time for a node to say what it holds, and for others to come with it.
const SETTLE: Duration = Duration::from_secs(1);
/// Interval between searches for an object that nobody holds.
const AGAIN: Duration = Duration::from_secs(10);
/// Maximum number of standing casts. One owner has a quarter at most, those of one network half.
const MOST: usize = 1024;

/// All of them.
#[derive(Default)]
pub(crate) struct StandingCasts {
    owners: BTreeMap<StandingCast, Taker>,
    shares: Shares,
    /// Nodes that have come and may lack something.
    come: BTreeSet<NodeId>,
}

impl StandingCasts {
    /// One that stood when the controller stopped.
    pub(crate) fn restore(&mut self, record: StandingRecord) {
        self.begin(record.cast, Taker::of_key(record.owner));
    }

    fn begin(&mut self, cast: StandingCast, owner: Taker) {
        self.shares.take(&owner, 1);
        if let Some(before) = self.owners.insert(cast, owner) {
            self.shares.give_back(&before, 1);
        }
    }

    /// Somebody wants one to begin, or to end. The same again changes nothing.
    ///
    /// # Errors
    /// There are too many, of all or of this owner, or it is another's.
    pub(crate) fn change(
        &mut self,
        turn: &mut Turn<'_>,
        by: Taker,
        cast: StandingCast,
        stands: bool,
    ) -> Result<(), Refusal> {
        match (self.owners.get(&cast), stands) {
            (Some(_), true) | (None, false) => Ok(()),
            (Some(owner), false) if owner.node != by.node => Err(Refusal::NotYours),
            (Some(owner), false) => {
                self.shares.give_back(owner, 1);
                self.owners.remove(&cast);
                turn.event(ControllerEvent::StandingEnded(Box::new(cast)));
                Ok(())
            }
            (None, true) if !self.shares.has_room(&by, 1, MOST) => Err(Refusal::Full),
            (None, true) => {
                self.begin(cast.clone(), by);
                let record = StandingRecord { cast, owner: by.node };
                turn.event(ControllerEvent::StandingBegun(Box::new(record)));
                Ok(())
            }
        }
    }

    /// A node has said that it keeps objects.
    pub(crate) fn came(&mut self, turn: &mut Turn<'_>, node: NodeId) {
        if self.owners.is_empty() {
            return;
        }
        if self.come.is_empty() {
            turn.wake(Subject::Standing, Some(turn.now + SETTLE));
        }
        self.come.insert(node);
    }

    /// There was no room for a cast to these nodes: they are served later.
    pub(crate) fn wait(&mut self, turn: &mut Turn<'_>, nodes: Vec<NodeId>) {
        if !nodes.is_empty() {
            self.come.extend(nodes);
            turn.wake(Subject::Standing, Some(turn.now + AGAIN));
        }
    }

    /// The casts that those who have come need now.
    pub(crate) fn due(&mut self, turn: &mut Turn<'_>, catalog: &Catalog) -> Vec<(NodeId, Cast)> {
        let come = std::mem::take(&mut self.come);
        let mut casts = Vec::new();
        for (standing, owner) in &self.owners {
            let object = catalog.resolve(&standing.name);
            let lacks_it = |node: &&NodeId| {
                let Some(known) = catalog.node(**node) else { return false };
                known.keeps
                    && known.path.is_some()
                    && standing.is_for(&known.info)
                    && !object.is_some_and(|object| catalog.holds(**node, object))
            };
            let to: Vec<NodeId> = come.iter().filter(lacks_it).copied().collect();
            let has_source = object.is_some_and(|object| {
                let mut holders = catalog.object(object).into_iter().flat_map(|known| &known.holders);
                holders.any(|node| catalog.path_of(*node).is_some())
            });
            if !has_source {
                self.come.extend(to);
            } else if !to.is_empty() {
                let of = to.len() as u32;
                let cast = turn.draws.request();
                let name = standing.name.clone();
                casts.push((
                    owner.node,
                    Cast { cast, name, to, first: 0, of, class: Class::Bulk, wish: CastWish::Best },
                ));
            }
        }
        if !self.come.is_empty() {
            turn.wake(Subject::Standing, Some(turn.now + AGAIN));
        }
        casts
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &StandingCast> {
        self.owners.keys()
    }
}
