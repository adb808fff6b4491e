//! Puts a topology together, after its size was found bearable.

use headwater_units::{BitRate, Bytes, Duration};

use super::{LinkDelay, LinkRate, MAX_CABLES, MAX_POINTS};
use crate::topology::{FatTreeShape, Shape};
use crate::{Fabric, FabricError, HostId, Place, PointId, PointKind, Topology};

/// Beyond this a byte lasts less than a tenth of a picosecond, and what a line counts time in gets too coarse.
const MAX_RATE: BitRate = BitRate::new(100_000_000_000_000);
/// A hundred times the way to the moon; delays can still be added up without care.
const MAX_DELAY: Duration = Duration::from_secs(130);

pub(super) struct Builder {
    fabric: Fabric,
    names: Vec<String>,
    places: Vec<Place>,
    hosts: u32,
    packet: Bytes,
}

impl Builder {
    /// Refuses what is too large before anything of it exists.
    pub(super) fn new(packet: Bytes, points: u128, cables: u128) -> Result<Self, FabricError> {
        if points > MAX_POINTS || cables > MAX_CABLES {
            let (most_points, most_cables) = (MAX_POINTS, MAX_CABLES);
            return Err(FabricError::TooLarge { points, cables, most_points, most_cables });
        }
        let (fabric, names, places) = Default::default();
        Ok(Builder { fabric, names, places, hosts: 0, packet })
    }

    /// The next host, named by its number.
    pub(super) fn host(&mut self, rack: Option<u32>, pod: Option<u32>) -> PointId {
        self.host_named(format!("h{}", self.hosts), rack, pod)
    }

    pub(super) fn host_named(&mut self, name: String, rack: Option<u32>, pod: Option<u32>) -> PointId {
        let kind = PointKind::Host(HostId(self.hosts));
        self.hosts += 1;
        self.point(name, Place { kind, tier: 0, rack, pod })
    }

    pub(super) fn switch(&mut self, name: String, tier: u32, rack: Option<u32>, pod: Option<u32>) -> PointId {
        self.point(name, Place { kind: PointKind::Switch, tier, rack, pod })
    }

    pub(super) fn cable(&mut self, a: PointId, b: PointId, rate: BitRate, delay: Duration) {
        self.fabric.add_cable(a, b, Some(rate), delay);
    }

    /// A cable whose directions differ.
    pub(super) fn uneven_cable(
        &mut self,
        a: PointId,
        b: PointId,
        (there, back): (BitRate, BitRate),
        delay: Duration,
    ) {
        let (_, link) = self.fabric.add_cable(a, b, Some(there), delay);
        self.fabric.set_capacity(link, Some(back));
    }

    pub(super) fn rate(&self, what: &str, rate: LinkRate) -> Result<BitRate, FabricError> {
        self.bits(what, rate.resolve(self.packet))
    }

    /// Ten times the rate of what shall be the bottleneck, unless stated otherwise.
    pub(super) fn edge_rate(
        &self,
        given: Option<LinkRate>,
        bottleneck: BitRate,
    ) -> Result<BitRate, FabricError> {
        match given {
            Some(rate) => self.rate("edge_rate", rate),
            None => self.bits("edge_rate (10 times rate)", BitRate::new(bottleneck.get().saturating_mul(10))),
        }
    }

    pub(super) fn delay(&self, what: &str, delay: LinkDelay) -> Result<Duration, FabricError> {
        if delay.0 > MAX_DELAY {
            let what = what.to_owned();
            return Err(FabricError::DelayOutOfRange { what, given: delay.0, most: MAX_DELAY });
        }
        Ok(delay.0)
    }

    /// The topology in which only switches forward.
    pub(super) fn finish(self) -> Result<Topology, FabricError> {
        Topology::new(self.fabric, self.names, self.places, false, Shape::Other)
    }

    pub(super) fn finish_forwarding_hosts(self, shape: Shape) -> Result<Topology, FabricError> {
        Topology::new(self.fabric, self.names, self.places, true, shape)
    }

    pub(super) fn finish_fat_tree(self, shape: FatTreeShape) -> Result<Topology, FabricError> {
        Topology::new(self.fabric, self.names, self.places, false, Shape::FatTree(shape))
    }

    fn bits(&self, what: &str, given: BitRate) -> Result<BitRate, FabricError> {
        if given == BitRate::ZERO || given > MAX_RATE {
            return Err(FabricError::RateOutOfRange { what: what.to_owned(), given, most: MAX_RATE });
        }
        Ok(given)
    }

    fn point(&mut self, name: String, place: Place) -> PointId {
        self.names.push(name);
        self.places.push(place);
        self.fabric.add_point()
    }
}
