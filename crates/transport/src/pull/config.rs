//! Configuration of the source of pulled flows.

use headwater_units::{Bytes, Duration};
use serde::{Deserialize, Serialize};

use headwater_flow::paths::Unanswered;

/// Configuration of the source of pulled flows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullFlowConfig {
    /// Bytes of payload after which a flow of the class [`Bulk`](headwater_wire::Class::Bulk) drops a level
    /// ([`headwater_wire::Class::LEVELS`]). 10 KB, 100 KB, 1 MB and 10 MB: SCDP §IV. `None`, and for flows of any other
    /// class: no levels.
    pub demotion: Option<[Bytes; 4]>,
    /// Before its address has echoed a nonce, a receiver gets little (docs/decisions/0030). Off where addresses cannot be forged, as in a
    /// simulation.
    pub validates_paths: bool,
    /// How little: `None`, the first window; drivers of real sockets set three times the bytes that came from there.
    /// Pulls are short, so that is nothing but the challenge.
    pub unanswered: Option<Unanswered>,
    /// Time for which a flow is kept after its last symbol was asked for, for what may yet go wrong: that symbol, the
    /// decoding, the hash ("a time period that ensures that the last prioritised symbol packet was not trimmed", SCDP
    /// §III-D). 10 s.
    pub release_after: Duration,
    /// Silence of a receiver after which its flow is released, whatever it may still lack: its farewells are lost, or
    /// it is gone, and nobody has told this source to stop. Of n sources only the one that is pulled last hears of the
    /// end by a pull; of an object that first windows cover none does, unless a pull has opened the flow. Counted from
    /// the moment when it is known where the receiver is. 40 s: a receiver that waits for something asks every 4 s at
    /// least, and gives up after 30 ([`source_patience`](crate::pull::SessionConfig::source_patience)); one that is
    /// held up by its decoder or disk is silent meanwhile.
    pub silent_release: Duration,
    /// Time after which a member that holds its group up is detached (SCDP §III-E leaves it to the application).
    /// 500 ms.
    pub detach_after: Duration,
    /// Time for which a group waits for members that have not said a word, once one has. 1 s: they have the object's
    /// hashes to learn, and to look at what is there of it; members that take longer are served alone. Of no matter
    /// where nobody need say where he is.
    pub assemble_for: Duration,
    /// Interval at which a detached member is told so again, until it has understood. 50 ms, doubled each time up to 32
    /// times.
    pub retell: Duration,
    /// Blocks per flow that a receiver may want symbols of at the same time; what it wants of older ones is forgotten. 256: the
    /// blocks that a receiver opens.
    pub open_blocks: usize,
    /// Blocks prepared ahead of the newest that is wanted. 4, as for pushed flows.
    pub prepare_ahead: u32,
}

impl Default for PullFlowConfig {
    fn default() -> Self {
        let kb = |n: u64| Bytes::new(1000 * n);
        PullFlowConfig {
            demotion: Some([kb(10), kb(100), kb(1000), kb(10_000)]),
            validates_paths: true,
            unanswered: None,
            release_after: Duration::from_secs(10),
            silent_release: Duration::from_secs(40),
            detach_after: Duration::from_millis(500),
            assemble_for: Duration::from_secs(1),
            retell: Duration::from_millis(50),
            open_blocks: 256,
            prepare_ahead: 4,
        }
    }
}

impl PullFlowConfig {
    /// Configuration for a simulated data centre, in which nobody forges addresses.
    pub fn data_centre() -> Self {
        PullFlowConfig { validates_paths: false, ..PullFlowConfig::default() }
    }
}
