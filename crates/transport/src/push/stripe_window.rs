//! The window of a flow of an overlay: what its receiver has room for, and more where the path is longer than that (docs/decisions/0037).
//!
//! All links of an overlay are full: each node sends as much as it receives. A flow crosses the uplink of one node and
//! the downlink of another. A flow that goes by the congestion of both gets less than flows that cross one; its blocks
//! come late, and all below it wait. So each receiver has about as much in flight as any other, divided equally among
//! its sources, as in SCDP, where what was pulled is in flight. It begins with less, and doubles each round. Where queues cannot take it,
//! losses take a quarter of it, and it grows again by a packet each round.
//!
//! A long or fast path holds more than what is granted. There the flow never sees a queue: a round whose round-trip times are all those
//! of the empty path lets the window grow, a round that shows a queue takes some of the growth back. Where queues stand, all windows are
//! what was granted.

use headwater_units::{Duration, PacketNumber, Packets, Theta};

use super::feedback::Feedback;

/// The driver of either end may come late by what this part of the window lasts: both together keep an eighth of it.
pub(super) const LATE_PARTS: u64 = 16;

/// A receiver of an overlay holds an ACK back for so long. Each node of an overlay sends as much as it receives, so that its ACKs cost what
/// its uplink could pass on. Of slow links they would each name one packet if they waited no longer than others do. 20 ms: some packets of a
/// flow of a megabit, and well below the smallest timeout.
pub(super) const MAX_ACK_DELAY: Duration = Duration::from_millis(20);

/// Timeout before the first sample. 250 ms: what is lost at first is sent again before the receiver looks for another source, which takes
/// it for silent.
pub(super) const INITIAL_RTO: Duration = Duration::from_millis(250);

/// At first: all flows of a source begin at the same time, and their packets meet in one queue that nobody knows yet.
const FIRST: f64 = 4.0;
/// After a timeout, and before the first assignment.
const FEW: f64 = 2.0;
/// Up to here it grows with each acknowledged packet, and at first up to what is granted. 4: with 8, queues of 17 packets lost a tenth of
/// all, since what the children of one node are sent at once was never less than twice such a queue.
const FLOOR: f64 = 4.0;

/// What losses leave of the window. Not half: of six packets that would be three, which a round trip or two bring back, and the stripe is
/// late meanwhile. 16 receivers whose queues take 30 packets need 1.100 times one copy's time instead of 1.123 (docs/decisions/0037).
const LEFT: f64 = 0.75;

/// More packets are never in flight by one flow: 4 blocks of 256 KiB are not many more.
const MOST: f64 = 1024.0;
/// Factor by which the window grows in a round that shows no queue, until the first loss, and after it.
const GROWTH: [f64; 2] = [1.5, 1.05];
/// Round-trip times up to this many times the smallest show no queue; beyond the second, they show one.
const QUEUED: [f64; 2] = [1.25, 1.5];
/// A round that shows a queue takes back this part of what was grown.
const BACK: f64 = 0.5;
/// Number of rounds in a row without one before the window grows: at first there is none anywhere.
const PATIENCE: u32 = 4;

/// The window of one flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct StripeWindow {
    theta: Theta,
    granted: f64,
    /// Room of the path, at least what is granted.
    room: f64,
    /// No more than this since the last loss.
    most: f64,
    /// Losses below this packet were answered.
    reduced_until: PacketNumber,
    has_lost: bool,
    /// Nothing was lost yet, and no answer has been missing for long.
    is_beginning: bool,
    round: Round,
    /// Rounds without a queue, in a row.
    quiet: u32,
}

/// Findings about a window of packets.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// It is over with this packet.
    until: PacketNumber,
    /// Its smallest and its largest round-trip time.
    between: Option<(Duration, Duration)>,
    /// The window held the flow back.
    limited: bool,
}

impl Round {
    fn new(until: PacketNumber) -> Self {
        Round { until, between: None, limited: false }
    }
}

impl StripeWindow {
    pub(super) fn new(theta: Theta) -> Self {
        let none = PacketNumber(0);
        StripeWindow {
            theta,
            granted: FEW,
            room: FEW,
            most: FIRST,
            reduced_until: none,
            has_lost: false,
            is_beginning: true,
            round: Round::new(none),
            quiet: 0,
        }
    }

    /// The receiver has room for `packets` packets, if the path is short.
    pub(super) fn grant(&mut self, packets: u32) {
        let granted = f64::from(packets.max(1));
        self.room = (self.room * granted / self.granted).clamp(granted, MOST.max(granted));
        self.granted = granted;
    }

    /// Takes an ACK, with its sample of the round-trip time and the smallest known. It is made smaller at most once for what was in flight
    /// together.
    pub(super) fn on_ack(&mut self, feedback: &Feedback, rtt: Option<(Duration, Duration)>) {
        if let Some((sample, _)) = rtt {
            let (least, largest) = self.round.between.unwrap_or((sample, sample));
            self.round.between = Some((least.min(sample), largest.max(sample)));
        }
        self.round.limited |= feedback.limited;
        if feedback.lost > 0 && feedback.largest >= self.reduced_until {
            self.most = (self.window().get() * LEFT).max(FEW);
            self.room = (self.room / 2.0).max(self.granted);
            self.has_lost = true;
            self.is_beginning = false;
            self.reduced_until = feedback.next;
            self.round = Round::new(feedback.next);
        } else if self.most < self.room {
            self.most +=
                feedback.acked as f64 / if self.is_beginning || self.most < FLOOR { 1.0 } else { self.most };
        }
        if feedback.largest >= self.round.until {
            self.end_round(rtt.map(|(_, empty)| empty));
            self.round = Round::new(feedback.next);
        }
    }

    fn end_round(&mut self, empty: Option<Duration>) {
        let Some(((least, largest), empty)) = self.round.between.zip(empty) else { return };
        let [without, with] = QUEUED;
        self.quiet = if largest <= empty.mul_f64(without) { self.quiet + 1 } else { 0 };
        if least > empty.mul_f64(with) {
            self.room -= (self.room - self.granted) * BACK;
        } else if self.quiet > PATIENCE && self.round.limited && self.most >= self.room {
            self.room = (self.room * GROWTH[usize::from(self.has_lost)]).min(MOST.max(self.granted));
            self.most = f64::INFINITY;
        }
    }

    pub(super) fn on_rto(&mut self) {
        self.most = FEW;
        self.is_beginning = false;
        self.room = self.granted;
    }

    #[inline]
    pub(super) fn window(&self) -> Packets {
        Packets::new(self.room.min(self.most))
    }

    pub(super) fn theta(&self) -> Theta {
        self.theta
    }

    pub(super) fn set_theta(&mut self, theta: Theta) {
        self.theta = theta;
    }

    /// Nothing is searched for.
    #[inline]
    pub(super) fn in_slow_start(&self) -> bool {
        false
    }

    #[inline]
    pub(super) fn allows(&self, in_flight: usize) -> bool {
        (in_flight as f64) < self.room.min(self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ack(acked: u64, lost: u64, largest: u64, next: u64) -> Feedback {
        Feedback {
            acked,
            marked: 0,
            lost,
            largest: PacketNumber(largest),
            next: PacketNumber(next),
            limited: true,
            by_routers: false,
        }
    }

    #[test]
    fn it_is_what_is_granted_but_at_first_and_after_a_timeout() {
        let mut window = StripeWindow::new(Theta::ONE);
        window.grant(16);
        assert!(window.allows(3) && !window.allows(4));
        window.on_ack(&ack(4, 0, 4, 8), None);
        window.on_ack(&ack(5, 0, 9, 16), None);
        assert_eq!(window.window(), Packets::new(13.0));
        window.on_ack(&ack(5, 0, 14, 20), None);
        assert!(window.allows(15) && !window.allows(16));
        window.on_rto();
        assert!(window.allows(1) && !window.allows(2));
        window.on_ack(&ack(6, 0, 20, 20), None);
        assert_eq!(window.window(), Packets::new(8.0));
        window.on_ack(&ack(8, 0, 21, 30), None);
        assert_eq!(window.window(), Packets::new(9.0));
        window.on_ack(&ack(1, 3, 22, 30), None);
        assert_eq!(window.window(), Packets::new(6.75));
        window.on_ack(&ack(1, 3, 23, 30), None);
        assert_eq!(window.window(), Packets::new(6.75 + 1.0 / 6.75), "they were lost in the same flight");
        (0..100).for_each(|n| window.on_ack(&ack(9, 0, 30 + n, 31 + n), None));
        assert_eq!(window.window(), Packets::new(16.0));
    }

    #[test]
    fn it_grows_on_a_path_that_never_shows_a_queue_and_goes_back_where_one_stands() {
        let mut window = StripeWindow::new(Theta::ONE);
        window.grant(12);
        window.on_ack(&ack(12, 0, 0, 0), None);
        let mut number = 1;
        let mut round = |window: &mut StripeWindow, ms: u64, limited: bool, lost: u64| {
            let rtt = Some((Duration::from_millis(ms), Duration::from_millis(20)));
            window.on_ack(&Feedback { limited, ..ack(1, lost, number, number + 1) }, rtt);
            number += 1;
        };
        round(&mut window, 20, false, 0);
        assert_eq!(window.window(), Packets::new(12.0), "there was too little to send");
        (0..PATIENCE + 2).for_each(|_| round(&mut window, 24, true, 0));
        assert_eq!(window.window(), Packets::new(40.5));
        round(&mut window, 28, true, 0);
        assert_eq!(window.window(), Packets::new(40.5), "a little queue");
        round(&mut window, 20, true, 1);
        assert_eq!(window.window(), Packets::new(20.25));
        round(&mut window, 20, true, 0);
        assert!((20.25..21.5).contains(&window.window().get()), "slowly, once something was lost");
        (0..60).for_each(|_| round(&mut window, 40, true, 0));
        assert!(window.window().get() < 12.1, "{window:?}");
        window.grant(6);
        assert!(window.window().get() < 6.1, "{window:?}");
        (0..1000).for_each(|_| round(&mut window, 20, true, 0));
        assert_eq!(window.window(), Packets::new(MOST));
        window.on_rto();
        assert_eq!(window.window(), Packets::new(FEW));
    }
}
