//! The first window of a flow whose end links are known (SCDP §III-D pushes an initial window at line rate; IW of about one
//! bandwidth-delay product: SCDP §IV).
//!
//! PPUSH does not say how a flow begins. From a window of 10 packets, slow start needs four round trips for an object of 100 KB at
//! 1 Gbit/s and 1 ms. Where nodes have stated what their links carry, there is nothing to find out: a flow begins with what its part
//! of them carries in a round trip, paced at that rate, and without slow start. From the first ACK on it reacts to the network as
//! always.

use headwater_units::{BitRate, Bytes, Duration, Packets};

/// Beyond what the round trip carries: hosts and ACKs are late by a packet now and then.
const SPARE: f64 = 4.0;
/// No first window is larger, 360 KB in packets of Ethernet: a rate that was stated and is not there costs that much at most.
pub(crate) const MOST: f64 = 256.0;

/// Packets that this rate carries in a round trip and a little more, at most [`MOST`].
pub(crate) fn first_window(rate: BitRate, rtt: Duration, packet: Bytes) -> Packets {
    let carried = (rate * rtt).get() as f64 / packet.get().max(1) as f64;
    Packets::new((carried.ceil() + SPARE).min(MOST))
}

#[cfg(test)]
mod tests {
    use headwater_wire::on_the_wire;

    use super::*;

    fn window(mbit: u64, rtt_us: u64) -> f64 {
        first_window(BitRate::new(mbit * 1_000_000), Duration::from_micros(rtt_us), on_the_wire(1424)).get()
    }

    #[test]
    fn it_is_what_a_round_trip_carries_and_four_packets() {
        assert_eq!([window(1000, 1000), window(100, 1000), window(20, 2300)], [88.0, 13.0, 8.0]);
    }

    #[test]
    fn it_is_bounded_whatever_was_stated() {
        assert_eq!([window(100_000, 100_000), window(u64::MAX / 2_000_000, u64::MAX / 2000)], [MOST; 2]);
        assert_eq!([window(0, 1000), window(1000, 0)], [4.0; 2]);
    }
}
