//! What others may ask of a node about multicast groups.

use headwater_udp::GroupAddr;
use headwater_units::Duration;
pub use headwater_wire::FlowSecret;

/// The question whether datagrams to a group arrive at its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupProbe {
    /// The group.
    pub group: GroupAddr,
    /// What all members are asked on; see [`super::Node::answer_probes`].
    pub asked: FlowSecret,
    /// What each member answers on.
    pub members: Vec<FlowSecret>,
    /// How long the question is, above UDP: as those datagrams that are to follow.
    pub bytes: u16,
    /// How often it is asked, of all members each time, until all have answered.
    pub tries: u32,
    /// How long to wait after each time.
    pub every: Duration,
}
