//! Faults of hosts that the seed draws ([`DrawnFaults`]): which hosts, and when.

use headwater_units::Duration;

use super::draw::{Draw, Stream};
use crate::scenario::{DrawnFaults, Fault, Target};

/// Faults of one seed. `spared` hosts have none; the share is of all hosts.
pub(crate) fn drawn_faults(drawn: &[DrawnFaults], hosts: u32, spared: &[u32], seed: u64) -> Vec<Fault> {
    let others: Vec<u32> = (0..hosts).filter(|host| !spared.contains(host)).collect();
    let one = |(number, it): (u32, &DrawnFaults)| {
        let mut draw = Draw::new(seed, Stream::Faults(number));
        let many = (it.share * f64::from(hosts)).ceil() as u32;
        let chosen = draw.several(others.len() as u32, many);
        let span = it.to.saturating_sub(it.from).as_nanos() as f64;
        let fault = |place: u32| Fault {
            at: it.from + Duration::from_nanos((draw.unit() * span) as u64),
            until: None,
            on: Target::Host(others[place as usize]),
            what: it.what.clone(),
        };
        chosen.into_iter().map(fault).collect::<Vec<_>>()
    };
    (0..).zip(drawn).flat_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Action;

    #[test]
    fn a_share_of_the_hosts_fails_each_at_a_time_of_its_own_and_the_spared_do_not() {
        let (from, to) = (Duration::from_secs(1), Duration::from_secs(3));
        let drawn = [DrawnFaults { share: 0.1, from, to, what: Action::HostKill }];
        let faults = drawn_faults(&drawn, 101, &[0, 50], 1);
        assert_eq!(faults.len(), 11);
        let mut hosts: Vec<String> = faults.iter().map(|fault| fault.on.clone().into()).collect();
        assert!(faults.iter().all(|fault| (from..=to).contains(&fault.at) && fault.until.is_none()));
        assert!(faults.windows(2).any(|two| two[0].at != two[1].at));
        hosts.sort();
        hosts.dedup();
        assert_eq!(hosts.len(), 11);
        assert!(!hosts.iter().any(|host| host == "host 0" || host == "host 50"));
        assert_eq!(faults, drawn_faults(&drawn, 101, &[0, 50], 1));
        assert_ne!(faults, drawn_faults(&drawn, 101, &[0, 50], 2));
    }
}
