//! The network as a graph: points joined by directed links, paths through it, and the shapes networks come in.
//!
//! A point is a host or a switch; a link is one direction of one cable (Datacast G(V, E)). Algorithms that plan
//! (PPUSH Alg. 1 first) see only paths: the links of a flow, in order. Where nothing better is known the network is one
//! big switch: hosts [attached](Fabric::attach) to a core by an uplink and a downlink, or to a rack that is attached to
//! the core likewise.
//!
//! * [`Fabric`]: the bare graph, with link faults;
//! * [`Topology`]: a fabric whose points have names and places (host, rack, pod);
//! * [`FabricSpec`]: a topology in a few lines of text;
//! * [`Routes`]: for every point and destination the links that are on a shortest path, all of them (ECMP) or one (D-mod-k).
//! * [`trees`]: disjoint trees from a source to all receivers of a group.
//!
//! No I/O, no time, no traffic: who sends what is the demand's business, and which of several equal links a packet
//! takes is that of the forwarding device.

mod error;
mod graph;
mod routes;
mod shortest_paths;
mod spec;
mod topology;
pub mod trees;

pub use error::FabricError;
pub use graph::{Attachment, Fabric, HostId, Link, LinkId, Path, PointId};
pub use routes::{Routes, Towards};
pub use shortest_paths::Metric;
pub use spec::{
    B4Delays, B4Form, B4Spec, BCubeSpec, BigSwitchSpec, ChainSpec, DumbbellSpec, FabricSpec, FatTreeSpec,
    GraphHost, GraphLink, GraphSpec, LeafSpineSpec, LinkDelay, LinkRate, MAX_CABLES, MAX_POINTS, TorusSpec,
};
pub use topology::{Place, PointKind, Topology};
