//! Times and bounds of links.

use headwater_units::{Bytes, Duration};

/// Times and bounds of links. The defaults suit all but tests.
#[derive(Clone, Debug)]
pub struct ControlConfig {
    /// How often a link with nothing to say shows that it is alive. 2 s.
    pub keep_alive: Duration,
    /// Silence after which a peer counts as gone. 8 s: three lost keep-alives are no death.
    pub idle_timeout: Duration,
    /// How long dialling may take, and how long a dialler may take from its first packet on. 5 s.
    pub dial_timeout: Duration,
    /// The longest frame. 64 KiB.
    pub max_frame: Bytes,
    /// The longest request taken from a peer; replies are bounded by who asks. 4 KiB: questions are short.
    pub max_request: Bytes,
    /// How long a peer may take to say a request to its end. 5 s.
    pub request_timeout: Duration,
    /// Frames of a peer that nobody has dealt with take no more memory than this. 256 KiB.
    pub max_unread: Bytes,
    /// Frames that may wait in either direction before the sender has to. 256.
    pub queue: usize,
    /// Maximum number of concurrent requests in each direction; more wait. 16.
    pub requests_at_once: usize,
    /// Accepted links at once; more diallers are refused. 16,384; zero listens to nobody and only dials.
    pub max_links: usize,
    /// Handshakes of diallers at once; others wait for their turn. 256.
    pub handshakes_at_once: usize,
    /// Receive buffer to ask the kernel for where links are accepted. 8 MiB, as for data: with the usual 208 KiB a controller that is
    /// not scheduled for a tenth of a second loses what a thousand nodes say meanwhile.
    pub receive_buffer: Bytes,
}

impl Default for ControlConfig {
    fn default() -> Self {
        ControlConfig {
            keep_alive: Duration::from_secs(2),
            idle_timeout: Duration::from_secs(8),
            dial_timeout: Duration::from_secs(5),
            max_frame: Bytes::kib(64),
            max_request: Bytes::kib(4),
            request_timeout: Duration::from_secs(5),
            max_unread: Bytes::kib(256),
            queue: 256,
            requests_at_once: 16,
            max_links: 16_384,
            handshakes_at_once: 256,
            receive_buffer: Bytes::mib(8),
        }
    }
}
