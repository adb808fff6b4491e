//! Amounts of data and rates, each its own type.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};

use serde::{Deserialize, Serialize};

use crate::Duration;

macro_rules! amount {
    ($(#[$doc:meta])* $name:ident($raw:ty), $zero:expr, $plus:expr, $minus:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
        pub struct $name($raw);
        impl $name {
            /// None of it.
            pub const ZERO: $name = $name($zero);
            /// This many.
            pub const fn new(n: $raw) -> Self {
                $name(n)
            }
            /// The plain number.
            pub const fn get(self) -> $raw {
                self.0
            }
        }
        impl Add for $name {
            type Output = $name;
            /// Never above the largest: what others claim is added up too.
            fn add(self, o: $name) -> $name {
                let plus: fn($raw, $raw) -> $raw = $plus;
                $name(plus(self.0, o.0))
            }
        }
        impl AddAssign for $name {
            fn add_assign(&mut self, o: $name) {
                *self = *self + o;
            }
        }
        impl Sub for $name {
            type Output = $name;
            /// Never below zero.
            fn sub(self, o: $name) -> $name {
                let minus: fn($raw, $raw) -> $raw = $minus;
                $name(minus(self.0, o.0))
            }
        }
        impl SubAssign for $name {
            fn sub_assign(&mut self, o: $name) {
                *self = *self - o;
            }
        }
        impl Sum for $name {
            fn sum<I: Iterator<Item = $name>>(iter: I) -> $name {
                iter.fold($name::ZERO, Add::add)
            }
        }
    };
}

amount!(
    /// A number of bytes.
    #[derive(Eq, Ord, Hash)]
    Bytes(u64), 0, u64::saturating_add, u64::saturating_sub
);
amount!(
    /// A number of symbols.
    #[derive(Eq, Ord, Hash)]
    Symbols(u64), 0, u64::saturating_add, u64::saturating_sub
);
amount!(
    /// A number of packets; fractional, as windows are (PPUSH W).
    Packets(f64), 0.0, |a, b| a + b, |a, b| (a - b).max(0.0)
);
amount!(
    /// A rate in bits per second.
    #[derive(Eq, Ord, Hash)]
    BitRate(u64), 0, u64::saturating_add, u64::saturating_sub
);
amount!(
    /// A rate in bits per second; fractional, as a policy divides a port among many flows.
    FluidRate(f64), 0.0, |a, b| a + b, |a, b| (a - b).max(0.0)
);
amount!(
    /// The weight of a push flow (PPUSH §III-B): flows on one bottleneck get rates in proportion to it.
    Theta(f64), 0.0, |a, b| a + b, |a, b| (a - b).max(0.0)
);

impl Theta {
    /// The recommended lower bound, θ- (PPUSH Eq. 21).
    pub const FLOOR: Theta = Theta(0.5);
    /// A plain flow, as heavy as DCTCP.
    pub const ONE: Theta = Theta(1.0);
}

impl Bytes {
    /// `n` KiB.
    pub const fn kib(n: u64) -> Self {
        Bytes(n << 10)
    }
    /// `n` MiB.
    pub const fn mib(n: u64) -> Self {
        Bytes(n << 20)
    }
}

impl Mul<u64> for Bytes {
    type Output = Bytes;
    fn mul(self, n: u64) -> Bytes {
        Bytes(self.0.saturating_mul(n))
    }
}
impl Div<Duration> for Bytes {
    type Output = BitRate;
    /// The average rate; over no time at all, the largest rate there is.
    fn div(self, d: Duration) -> BitRate {
        match d.as_nanos() {
            0 => BitRate(u64::MAX),
            n => BitRate((self.0 as f64 * 8e9 / n as f64) as u64),
        }
    }
}
impl Div<BitRate> for Bytes {
    type Output = Duration;
    /// How long these bytes take at that rate; at rate zero, forever.
    fn div(self, r: BitRate) -> Duration {
        match r.0 {
            0 => Duration::MAX,
            n => Duration::from_nanos((self.0 as f64 * 8e9 / n as f64) as u64),
        }
    }
}
impl Mul<Duration> for BitRate {
    type Output = Bytes;
    fn mul(self, d: Duration) -> Bytes {
        Bytes((self.0 as f64 * d.as_nanos() as f64 / 8e9) as u64)
    }
}
impl BitRate {
    /// This rate scaled by `factor`; negative and NaN become zero.
    pub fn mul_f64(self, factor: f64) -> BitRate {
        BitRate((self.0 as f64 * factor) as u64)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n < 1 << 10 => write!(f, "{n} B"),
            n if n < 1 << 20 => write!(f, "{:.1} KiB", n as f64 / 1024.0),
            n if n < 1 << 30 => write!(f, "{:.1} MiB", n as f64 / 1048576.0),
            n => write!(f, "{:.2} GiB", n as f64 / 1073741824.0),
        }
    }
}
impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n < 1_000 => write!(f, "{n} bit/s"),
            n if n < 1_000_000 => write!(f, "{:.1} kbit/s", n as f64 / 1e3),
            n if n < 1_000_000_000 => write!(f, "{:.1} Mbit/s", n as f64 / 1e6),
            n => write!(f, "{:.2} Gbit/s", n as f64 / 1e9),
        }
    }
}
impl From<BitRate> for FluidRate {
    /// Exact up to 2^53 bit/s.
    fn from(rate: BitRate) -> FluidRate {
        FluidRate(rate.0 as f64)
    }
}

impl fmt::Display for Symbols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} symbols", self.0)
    }
}
impl fmt::Display for Packets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} packets", self.0)
    }
}
impl fmt::Display for Theta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_claim_is_added_up_to_the_largest_at_most() {
        let all = [BitRate::new(u64::MAX), BitRate::new(1)];
        assert_eq!(all.into_iter().sum::<BitRate>(), all[0]);
        assert_eq!(Bytes::new(u64::MAX - 1) + Bytes::kib(1), Bytes::new(u64::MAX));
        assert_eq!(Bytes::new(2) + Bytes::new(3) - Bytes::new(9), Bytes::ZERO);
    }
}
