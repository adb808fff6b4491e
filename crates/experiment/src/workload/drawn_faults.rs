//! Which hosts fail, and when, where the seed draws that.

use headwater_units::Duration;

use super::draw::{Draw, Stream};

/// So `many` of these hosts, each with a time within the span, for the faults of this number.
pub(crate) fn who_fails_when(
    (seed, number): (u64, u32),
    hosts: &[u32],
    many: u32,
    (from, to): (Duration, Duration),
) -> Vec<(u32, Duration)> {
    let mut draw = Draw::new(seed, Stream::Faults(number));
    let chosen = draw.several(hosts.len() as u32, many);
    let span = to.saturating_sub(from).as_nanos() as f64;
    let mut fault =
        |place: u32| (hosts[place as usize], from + Duration::from_nanos((draw.unit() * span) as u64));
    chosen.into_iter().map(&mut fault).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_fails_once_at_a_time_of_its_own_and_none_but_these() {
        let span = (Duration::from_secs(1), Duration::from_secs(3));
        let hosts: Vec<u32> = (0..101).filter(|host| *host != 0 && *host != 50).collect();
        let draw = |seed| who_fails_when((seed, 0), &hosts, 11, span);
        let drawn = draw(1);
        assert!(drawn.iter().all(|(_, at)| (span.0..=span.1).contains(at)));
        assert!(drawn.windows(2).any(|two| two[0].1 != two[1].1));
        let failing: BTreeSet<u32> = drawn.iter().map(|(host, _)| *host).collect();
        assert_eq!((drawn.len(), failing.len()), (11, 11));
        assert!(failing.iter().all(|host| hosts.contains(host)));
        assert_eq!(drawn, draw(1));
        assert_ne!(drawn, draw(2));
    }
}
