//! Rates for the transfers that leave by a port (PAM §III-C, Alg. 2).
//!
//! Every scheduled datagram says who it belongs to, its rank, its rate, and what the path so far would grant; the allocator of each port on
//! the way lowers that offer. The transfer of the smallest rank is *critical*: it is offered all that is available, and the others share
//! what its rate leaves. The allocator knows no bytes: it takes a [`Claim`] and returns an offer.
//!
//! ```text
//!  frame offered -> Control: due ticks (loads, C(t), expiry) -> DataPlane: count it, Algorithm 2 -> offer
//! ```
//!
//! Two halves, as in the paper's prototype (§IV-A). The [`Control`] program runs on a grid of ticks and does what needs arithmetic: it
//! decays the measured loads, computes what is available (Eq. 2-4), swaps the tables of active transfers and removes an idle critical transfer.
//! The data plane does what each packet needs, in one of three variants ([`AllocatorVariant`]): [`Simple`], Algorithm 2 in floating
//! point; [`Optimal`], the exact order of all active transfers, which the paper's figures compare with; and [`Hardware`], Algorithm 2
//! by the means of a programmable switch.
//!
//! Differs from the paper:
//! * It acts when a frame is offered to the port, before the queue; P4's egress acts behind it. So a plain port stays plain, but
//!   loads are of what is offered, and an offer waits in the queue before it travels.
//! * Ticks that are due run when the next frame comes. Their effect depends on the tick's time alone, so asking late
//!   changes nothing.
//! * The last rank is never critical, and the divisor is the number of active transfers that are not critical, plus this one if it is
//!   not counted. Taken literally, Algorithm 2 favours the first of several transfers that are to share fairly.
//! * What is offered to a probe that would go first is kept from other probes that rank behind it (docs/decisions/0039).
//! * A symbol of the kind [`Last`](headwater_wire::SchedulingKind::Last) takes no share and gives none back: its transfer has sent its
//!   FIN (footnote 3).
//!
//! Not here: the header's bytes, and what sources make of an offer.

mod capacity;
mod claim;
mod config;
mod control;
mod hardware;
mod optimal;
mod reservation;
mod simple;

use headwater_units::{BitRate, Bytes, FlowId, Time};

pub use claim::Claim;
pub use config::{AllocatorVariant, RateAllocatorConfig, RateAllocatorError};
use control::{Control, DataPlane};
use hardware::Hardware;
pub use hardware::{HardwareState, HardwareTables, accuracy};
use optimal::Optimal;
use simple::Simple;

/// An allocator's view of its port, as of the last tick or claim.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AllocatorView {
    /// Capacity that transfers may use together (PAM C(t)).
    pub available: BitRate,
    /// The factor by which that exceeds the room on the line (PAM α).
    pub alpha: f64,
    /// Transfers that count as active (PAM N).
    pub active: u64,
    /// The critical transfer, if there is one (PAM k).
    pub critical: Option<FlowId>,
    /// Claims of transfers that found no place in the table and were not counted as active.
    pub untracked: u64,
}

/// The allocator of one port.
#[derive(Clone, Debug)]
pub struct RateAllocator {
    control: Control,
    plane: Plane,
}

#[derive(Clone, Debug)]
enum Plane {
    Simple(Simple),
    Optimal(Optimal),
    Hardware(Box<Hardware>),
}

impl RateAllocator {
    /// An allocator that knows of no transfer, before a line of this rate.
    ///
    /// # Errors
    /// [`RateAllocatorError`]
    pub fn new(config: &RateAllocatorConfig, line: BitRate) -> Result<Self, RateAllocatorError> {
        config.check()?;
        Ok(RateAllocator { control: Control::new(config, line), plane: Plane::new(config, line) })
    }

    /// A frame of `len` bytes is offered to the port, which holds `queued` bytes. Returns the offer of what it claims, if it claims
    /// anything: at most the claim's own.
    pub fn pass(&mut self, now: Time, len: Bytes, queued: Bytes, claim: Option<&Claim>) -> Option<BitRate> {
        let RateAllocator { control, plane } = self;
        match plane {
            Plane::Simple(plane) => pass(control, plane, now, len, queued, claim),
            Plane::Optimal(plane) => pass(control, plane, now, len, queued, claim),
            Plane::Hardware(plane) => pass(control, &mut **plane, now, len, queued, claim),
        }
    }

    /// Runs all ticks that are due. Nobody needs to call this: the next frame does.
    pub fn catch_up(&mut self, now: Time) {
        match &mut self.plane {
            Plane::Simple(plane) => self.control.catch_up(now, plane),
            Plane::Optimal(plane) => self.control.catch_up(now, plane),
            Plane::Hardware(plane) => self.control.catch_up(now, &mut **plane),
        }
    }

    /// The line goes on at another rate. The available rate follows at the next update.
    pub fn set_line(&mut self, now: Time, line: BitRate) {
        self.catch_up(now);
        self.control.set_line(now, line);
        self.plane.as_data_plane().set_line(line);
    }

    /// The port has lost what it held, and its queue is empty.
    pub fn queue_cleared(&mut self, now: Time) {
        self.catch_up(now);
        self.control.queue_is(now, Bytes::ZERO);
    }

    /// Tables and registers of the variant that runs on programmable switches; `None` of others.
    pub fn hardware(&self) -> Option<(HardwareTables, HardwareState)> {
        match &self.plane {
            Plane::Hardware(plane) => Some((plane.tables(), plane.state())),
            Plane::Simple(_) | Plane::Optimal(_) => None,
        }
    }

    /// Its view of the port.
    pub fn view(&self) -> AllocatorView {
        let plane = match &self.plane {
            Plane::Simple(plane) => plane as &dyn DataPlane,
            Plane::Optimal(plane) => plane,
            Plane::Hardware(plane) => &**plane,
        };
        AllocatorView {
            available: self.control.available(),
            alpha: self.control.alpha(),
            active: plane.active(),
            critical: plane.critical(),
            untracked: plane.untracked(),
        }
    }
}

impl Plane {
    fn new(config: &RateAllocatorConfig, line: BitRate) -> Self {
        match config.variant {
            AllocatorVariant::Simple => Plane::Simple(Simple::new(config, line)),
            AllocatorVariant::Optimal => Plane::Optimal(Optimal::new(config, line)),
            AllocatorVariant::Hardware { shifts, filter_cells } => {
                Plane::Hardware(Box::new(Hardware::new(config, shifts, filter_cells, line)))
            }
        }
    }

    fn as_data_plane(&mut self) -> &mut dyn DataPlane {
        match self {
            Plane::Simple(plane) => plane,
            Plane::Optimal(plane) => plane,
            Plane::Hardware(plane) => &mut **plane,
        }
    }
}

// Each variant's own way as one function: what a frame costs is mostly calls and saved registers otherwise.
#[inline(never)]
fn pass<P: DataPlane>(
    control: &mut Control,
    plane: &mut P,
    now: Time,
    len: Bytes,
    queued: Bytes,
    claim: Option<&Claim>,
) -> Option<BitRate> {
    control.catch_up(now, plane);
    control.queue_is(now, queued + len);
    plane.packet(now, len, claim)
}
