//! Facts that a store keeps of a name beside the object that it points at: which of all its holdings is the newest, and
//! who agreed.

use headwater_units::{NodeId, ObjectId};
use serde::{Deserialize, Serialize};

/// How a name came to point at an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum NameStanding {
    /// A controller has granted it.
    Granted,
    /// It was given here, and no controller was asked yet.
    #[default]
    Given,
    /// The same, and it is to be taken from others that hold copies of what it stood for.
    Replacing,
    /// The object was fetched by this name; whether it is still the newest no controller was asked yet.
    Copied,
}

/// One name in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameFacts {
    /// Object that it points at.
    pub object: ObjectId,
    /// How often it was given to another object, from 1, as far as this store knows; it only rises.
    pub generation: u64,
    /// Owner of the name, if a controller has said so.
    pub owner: Option<NodeId>,
    /// How it came to point there.
    pub standing: NameStanding,
}

impl NameFacts {
    /// New facts of a name that is pointed at an object, given the facts before.
    pub(crate) fn pointed(before: Option<NameFacts>, object: ObjectId, standing: NameStanding) -> NameFacts {
        let fresh = |generation| NameFacts { object, generation, owner: None, standing };
        match before {
            // Put again under its name: that counts for more than a copy.
            Some(old) if old.object == object => match (old.standing, standing) {
                (NameStanding::Copied, NameStanding::Given)
                | (NameStanding::Copied | NameStanding::Given, NameStanding::Replacing) => {
                    NameFacts { standing, ..old }
                }
                _ => old,
            },
            Some(old) if standing != NameStanding::Copied => fresh(old.generation.saturating_add(1)),
            _ => fresh(1),
        }
    }
}
