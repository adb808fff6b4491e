//! Statistics of the data socket, in numbers and in words.

use super::DataPath;
use headwater_driver::Snapshot;

/// Below this many datagrams per buffer at a high rate nothing is merged.
const MERGED: f64 = 2.0;

impl DataPath {
    /// Counters of the data thread.
    pub(crate) fn of(snapshot: &Snapshot) -> Self {
        let Snapshot { socket, offload, merging, waits, strays, trimmed, sees_trimmed, pulls, .. } = snapshot;
        let mut path = DataPath {
            segmentation: offload.segmentation,
            merging: offload.merging,
            datagrams_sent: socket.datagrams_sent,
            messages_sent: socket.messages_sent,
            datagrams_received: socket.datagrams_received,
            buffers_received: socket.buffers_received,
            datagrams_per_buffer: socket.datagrams_per_buffer(),
            datagrams_per_buffer_at_speed: merging.datagrams_per_buffer(),
            send_calls: socket.send_calls,
            receive_calls: socket.receive_calls,
            waits: *waits,
            dropped_by_kernel: socket.kernel_dropped,
            sends_blocked: socket.sends_blocked,
            sends_failed: socket.sends_dropped + socket.sends_refused,
            control_truncated: socket.control_truncated,
            strays: *strays,
            trimmed: *trimmed,
            sees_trimmed: *sees_trimmed,
            warnings: Vec::new(),
        };
        path.warnings = path.look(merging.datagrams());
        if *pulls && !sees_trimmed {
            path.warnings.push(
                "trimmed packets are not seen (that needs CAP_NET_RAW), unless switches repair their UDP headers: what is \
                 trimmed is asked for again only after a while"
                    .to_owned(),
            );
        }
        path
    }

    fn look(&self, at_speed: u64) -> Vec<String> {
        let mut warnings = Vec::new();
        let sockets_used = self.datagrams_sent + self.datagrams_received > 0;
        if sockets_used && !self.merging {
            warnings.push(
                "this kernel does not merge datagrams (UDP GRO), which costs a receiver 3.5 times the CPU"
                    .to_owned(),
            );
        } else if let Some(ratio) = self.datagrams_per_buffer_at_speed.filter(|&ratio| ratio < MERGED) {
            warnings.push(format!(
                "{at_speed} datagrams came at a high rate and {ratio:.1} in a buffer: nothing merges them, which costs 3.5 \
                 times the CPU; try `ethtool -K DEVICE gro on rx-udp-gro-forwarding on`"
            ));
        }
        if sockets_used && !self.segmentation {
            warnings.push(
                "this kernel or device does not cut up datagrams (UDP GSO), which costs a source 4 times the CPU".to_owned(),
            );
        }
        if self.control_truncated > 0 {
            warnings.push(format!(
                "control messages of {} buffers were cut off and their marks lost: a fault of this program, please report it",
                self.control_truncated
            ));
        }
        warnings
    }
}

#[cfg(test)]
mod tests {
    use headwater_udp::{Merging, Offload, SocketStats};
    use headwater_units::Duration;

    use super::*;

    /// After 5,000 datagrams of 1,400 bytes within 100 ms.
    fn after(buffers: u64, offload: Offload, control_truncated: u64) -> DataPath {
        let socket = SocketStats {
            datagrams_received: 5_000,
            bytes_received: 7_000_000,
            buffers_received: buffers,
            control_truncated,
            ..SocketStats::default()
        };
        let mut merging = Merging::default();
        merging.look(Duration::from_millis(100), &socket);
        DataPath::of(&Snapshot { socket, offload, merging, ..Snapshot::default() })
    }

    #[test]
    fn a_socket_that_nothing_is_merged_for_is_warned_of() {
        let all = Offload { segmentation: true, merging: true };
        let good = after(120, all, 0);
        assert_eq!((good.datagrams_per_buffer_at_speed, good.warnings), (Some(5_000.0 / 120.0), vec![]));
        let idle = after(5_000, all, 0);
        assert!(idle.warnings[0].contains("5000 datagrams") && idle.warnings[0].contains("1.0 in a buffer"));
        let off = after(5_000, Offload { merging: false, ..all }, 0);
        assert!(off.warnings.len() == 1 && off.warnings[0].contains("GRO"), "{:?}", off.warnings);
        let whole = after(120, Offload { segmentation: false, ..all }, 0);
        assert!(whole.warnings.len() == 1 && whole.warnings[0].contains("GSO"), "{:?}", whole.warnings);
    }

    #[test]
    fn lost_marks_are_a_fault_that_is_told() {
        let cut = after(120, Offload { segmentation: true, merging: true }, 3);
        assert!(cut.warnings.len() == 1 && cut.warnings[0].contains("3 buffers"), "{:?}", cut.warnings);
    }

    #[test]
    fn whoever_pulls_and_cannot_see_trimmed_packets_is_told() {
        let path = |pulls, sees_trimmed| {
            DataPath::of(&Snapshot { pulls, sees_trimmed, ..Snapshot::default() }).warnings
        };
        assert!(path(true, false)[0].contains("CAP_NET_RAW"));
        for (pulls, sees) in [(false, false), (false, true), (true, true)] {
            assert!(path(pulls, sees).is_empty());
        }
    }

    #[test]
    fn a_node_that_has_done_nothing_yet_is_not_warned_of() {
        assert!(DataPath::of(&Snapshot::default()).warnings.is_empty());
    }
}
