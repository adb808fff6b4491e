//! A network in a few lines of text, and the topology it stands for.
//!
//! ```toml
//! kind = "fat-tree"
//! k = 8
//! rate = "200000 pps"
//! delay = "6666 ns"
//! ```
//!
//! Rates and delays hold for both directions of a cable; delays are propagation, one way, per link. Numbers that make no
//! sense give a [`FabricError`] that says what would.

mod b4;
mod builder;
mod explicit;
mod server_centric;
mod switched;
mod text;
mod trees;

use headwater_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::{FabricError, Topology};

pub use b4::{B4Delays, B4Form, B4Spec};
pub use explicit::{GraphHost, GraphLink, GraphSpec};
pub use server_centric::{BCubeSpec, TorusSpec};
pub use switched::{BigSwitchSpec, ChainSpec, DumbbellSpec};
pub use text::{LinkDelay, LinkRate};
pub use trees::{FatTreeSpec, LeafSpineSpec};

/// The most hosts and switches of a fabric.
pub const MAX_POINTS: u128 = 1_000_000;
/// The most cables of a fabric: leaf-spine shapes have far more of them than points.
pub const MAX_CABLES: u128 = 4_000_000;

/// Description of a network to build. In text the shape stands under `kind`; unknown fields are errors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum FabricSpec {
    /// Every host on one switch (OBS: PPUSH §V, PAM, Courier).
    BigSwitch(BigSwitchSpec),
    /// Two switches and the bottleneck between them (PPUSH Fig. 2).
    Dumbbell(DumbbellSpec),
    /// Switches in a row (PPUSH Fig. 3).
    Chain(ChainSpec),
    /// Whatever is listed (PPUSH Fig. 6: disjoint paths).
    Graph(GraphSpec),
    /// Two layers, every leaf on every spine (PPUSH §V).
    LeafSpine(LeafSpineSpec),
    /// Three layers of switches with k ports (PPUSH §V, SCDP §V, Datacast §VI).
    FatTree(FatTreeSpec),
    /// Hosts with several ports that forward, joined by small switches (Datacast §VI).
    #[serde(rename = "bcube")]
    BCube(BCubeSpec),
    /// Hosts that forward, joined to their neighbours in every dimension (Datacast §VI).
    Torus(TorusSpec),
    /// A wide-area network between datacenters (PPUSH §V).
    B4(B4Spec),
}

impl FabricSpec {
    /// Builds it. `packet` is the size on the line that rates in packets per second are meant for.
    ///
    /// # Errors
    /// A [`FabricError`] that names the field and what it should be. Nothing is built before its size is known to be within
    /// [`MAX_POINTS`] and [`MAX_CABLES`].
    pub fn build(&self, packet: Bytes) -> Result<Topology, FabricError> {
        match self {
            FabricSpec::BigSwitch(spec) => spec.build(packet),
            FabricSpec::Dumbbell(spec) => spec.build(packet),
            FabricSpec::Chain(spec) => spec.build(packet),
            FabricSpec::Graph(spec) => spec.build(packet),
            FabricSpec::LeafSpine(spec) => spec.build(packet),
            FabricSpec::FatTree(spec) => spec.build(packet),
            FabricSpec::BCube(spec) => spec.build(packet),
            FabricSpec::Torus(spec) => spec.build(packet),
            FabricSpec::B4(spec) => spec.build(packet),
        }
    }
}

fn at_least(least: u32, what: &'static str, given: u32) -> Result<(), FabricError> {
    if given < least {
        return Err(FabricError::TooSmall { what, given: given.into(), least: least.into() });
    }
    Ok(())
}
