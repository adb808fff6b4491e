//! Names: the object that a name stands for, and the node that may change it. A name carries a generation that only
//! rises.

use headwater_units::{NodeId, ObjectId};
use serde::{Deserialize, Serialize};

use super::limits::MAX_NAME;

/// A name, the object that it stands for, and since when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Naming {
    /// The name.
    pub name: String,
    /// Object that it stands for.
    pub object: ObjectId,
    /// How often it has been given to another object, from 1: of two, the higher one holds.
    pub generation: u64,
    /// Node that gave the name to the object. Others do not take it while that node is there and holds it.
    pub owner: NodeId,
}

impl Naming {
    /// Whether it holds against another one of the same name. Of two that were given at the same time by two controllers, all
    /// choose the same.
    pub fn is_newer_than(&self, other: &Naming) -> bool {
        (self.generation, self.owner, self.object) > (other.generation, other.owner, other.object)
    }
}

/// How much a node insists on a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClaimRule {
    /// It has a copy that came by this name, and takes the name only where it stands for that object.
    Copy,
    /// It gives the name to an object: refused while somebody else holds what the name stands for.
    Give,
    /// The same although others hold copies of what the name stands for; only its owner, if it is there, is not overruled.
    Replace,
}

/// Node to controller: the name shall stand for this object, which the node holds. Said until it is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Tells the answer from others.
    pub number: u64,
    /// The name.
    pub name: String,
    /// The object.
    pub object: ObjectId,
    /// The generation is at least this: one more than what the node knows of.
    pub at_least: u64,
    /// How much it insists.
    pub rule: ClaimRule,
}

/// Controller to node: what a name stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameStands {
    /// The claim that this answers; `None`: the node said something older.
    pub claim: Option<u64>,
    /// Object and owner of the name now. The claim was granted if it is the claimed object.
    pub naming: Naming,
    /// The owner for people: its name and where it listens, as far as it is known.
    pub owner_is: String,
    /// Whether the owner can be reached.
    pub owner_is_here: bool,
}

/// Why a claim is not granted although nobody else has the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WhyUnnamed {
    /// The object has [`MAX_NAMES`](super::limits::MAX_NAMES) names of the node already.
    TooMany,
    /// The controller has no room for another name, or for another one of the node.
    Full,
}

impl Naming {
    pub(crate) fn within_bounds(&self) -> Result<(), &'static str> {
        check(&self.name)?;
        if self.generation == 0 { Err("a generation of zero") } else { Ok(()) }
    }
}

impl Claim {
    pub(crate) fn within_bounds(&self) -> Result<(), &'static str> {
        check(&self.name)
    }
}

impl NameStands {
    pub(crate) fn within_bounds(&self) -> Result<(), &'static str> {
        self.naming.within_bounds()?;
        if self.owner_is.len() > MAX_NAME { Err("a name that is too long") } else { Ok(()) }
    }
}

fn check(name: &str) -> Result<(), &'static str> {
    match name.len() {
        0 => Err("an empty name"),
        1..=MAX_NAME => Ok(()),
        _ => Err("a name that is too long"),
    }
}
