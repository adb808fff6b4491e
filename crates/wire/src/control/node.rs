//! Messages of a node about itself when it connects, and about the objects that it holds.

use core::net::{IpAddr, SocketAddr};
use std::collections::BTreeMap;

use headwater_units::{BitRate, Bytes, Duration, NodeId, ObjectId};
use serde::{Deserialize, Serialize};

use super::address::resolve_address;
use super::limits::{MAX_ADDRESSES, MAX_NAME, check};

/// Most labels of a node.
pub const MAX_LABELS: usize = 32;
/// Most bytes of a label's key, and of its value.
pub const MAX_LABEL: usize = 128;

/// Identity and addresses of a node; sent once per connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeInfo {
    /// The hash of its public key, checked by the connection below.
    pub node: NodeId,
    /// For people.
    pub name: String,
    /// Where its control endpoint listens, if it does; as in `data`.
    pub listen: Option<SocketAddr>,
    /// Where its data socket receives. An unspecified address stands for the one at which its hearer reaches the speaker
    /// ([`Control::resolve`](crate::Control::resolve)): of a node beside its controller, where the controller is reached.
    pub data: Vec<SocketAddr>,
    /// Capacity of its uplink, as the operator states it.
    pub uplink: Option<BitRate>,
    /// Capacity of its downlink, as the operator states it.
    pub downlink: Option<BitRate>,
    /// The rack it stands in, where racks have an uplink of their own: name and capacity.
    pub rack: Option<(String, Option<BitRate>)>,
    /// Bytes of symbol that a datagram on its smallest interface carries.
    pub room: u16,
    /// Drawn at start: tells a restarted node from a reconnected one.
    pub incarnation: u64,
    /// Round trip of the connection that carries this message, as the node measured it.
    pub rtt: Option<Duration>,
    /// The address that the connection comes from, as the accepting side sees it; a node's own word for it counts
    /// nothing.
    pub seen: Option<IpAddr>,
    /// Labels that the operator gave it, key and value; its rack is not among them. At most [`MAX_LABELS`].
    pub labels: BTreeMap<String, String>,
}

impl NodeInfo {
    /// Of a node in its first life that says of itself no more than this; `room` in bytes.
    pub fn new(node: NodeId, name: impl Into<String>, room: u16) -> Self {
        NodeInfo {
            node,
            name: name.into(),
            listen: None,
            data: Vec::new(),
            uplink: None,
            downlink: None,
            rack: None,
            room,
            incarnation: 1,
            rtt: None,
            seen: None,
            labels: BTreeMap::new(),
        }
    }

    /// Where its data socket may be reached at the address that its connection has proved to be its own: symbols sent
    /// there hit nobody else. An unspecified one becomes an address from which the hearer got the word.
    pub fn proven(&self) -> Vec<SocketAddr> {
        let own = |at: &&SocketAddr| at.ip().is_unspecified() || self.seen == Some(at.ip());
        self.data.iter().filter(own).copied().collect()
    }

    /// Puts its address into the place of every unspecified one, as [`Control::resolve`](crate::Control::resolve).
    pub fn resolve(&mut self, sender: SocketAddr) {
        for at in self.data.iter_mut().chain(&mut self.listen) {
            *at = resolve_address(*at, sender);
        }
    }

    /// The value of one of its labels; `rack` is the name of its rack.
    pub fn label(&self, key: &str) -> Option<&str> {
        let rack = self.rack_name().filter(|_| key == "rack");
        rack.or_else(|| self.labels.get(key).map(String::as_str))
    }

    /// The name of its rack.
    pub fn rack_name(&self) -> Option<&str> {
        self.rack.as_ref().map(|(name, _)| name.as_str())
    }
}

/// One object that a node can send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    /// The object.
    pub object: ObjectId,
    /// Its size.
    pub bytes: Bytes,
    /// A name that points at it, if any. It stands for the object only where nothing else is known of the name:
    /// [`crate::Naming`] and [`crate::Claim`] say more.
    pub name: Option<String>,
}

impl NodeInfo {
    pub(crate) fn within_bounds(&self) -> Result<(), &'static str> {
        check(self.name.len() <= MAX_NAME, "too long a name")?;
        check(self.data.len() <= MAX_ADDRESSES, "too many addresses")?;
        check(self.rack_name().is_none_or(|rack| rack.len() <= MAX_NAME), "too long a rack")?;
        check(self.labels.len() <= MAX_LABELS, "too many labels")?;
        let fits = |(key, value): (&String, &String)| key.len().max(value.len()) <= MAX_LABEL;
        check(self.labels.iter().all(fits), "too long a label")
    }
}
