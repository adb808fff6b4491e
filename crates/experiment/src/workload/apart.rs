//! Tasks that keep off hosts which have other things to do: 30 % of SCDP's hosts run long flows beside its requests (§IV-A).
//!
//! Drawn are places among the hosts that are left. They keep their pods and racks; of a rack there may be nothing left.

use super::{Network, TaskPlan, Workload, WorkloadError};

impl Workload {
    /// Whether the seed says who sends and who receives, so that it can say so of some of the hosts.
    pub(crate) fn draws_hosts(&self) -> bool {
        matches!(
            self,
            Workload::Requests { .. } | Workload::Sessions { .. } | Workload::Incast { drawn: true, .. }
        )
    }

    /// The tasks of one seed as [`Workload::plan`] has them, of hosts that are not busy. Where a host is stated it is the n-th of
    /// those.
    ///
    /// # Errors
    /// [`WorkloadError`], as of a network of the hosts that are not busy.
    pub(crate) fn plan_apart(
        &self,
        network: &Network,
        busy: &[u32],
        seed: u64,
    ) -> Result<Vec<TaskPlan>, WorkloadError> {
        let free: Vec<u32> = (0..network.hosts).filter(|host| !busy.contains(host)).collect();
        let mut tasks = self.plan(&network.with_only(&free), seed)?;
        for task in &mut tasks {
            let named = task.sources.iter_mut().chain([&mut task.receiver]).chain(&mut task.further);
            named.for_each(|host| *host = free[*host as usize]);
        }
        Ok(tasks)
    }
}

impl Network {
    /// The network with these hosts alone.
    fn with_only(&self, hosts: &[u32]) -> Network {
        let of = |all: &[u32]| hosts.iter().filter_map(|host| all.get(*host as usize).copied()).collect();
        Network {
            hosts: hosts.len() as u32,
            host_rate: self.host_rate,
            pods: of(&self.pods),
            racks: of(&self.racks),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Access;

    fn network() -> Network {
        let by = |n: u32| (0..54).map(|host| host / n).collect();
        Network { hosts: 54, host_rate: 1e5, pods: by(9), racks: by(3) }
    }

    #[test]
    fn with_nobody_busy_the_tasks_are_the_usual_ones() {
        let (packets, access) = (10, Access::Write);
        let requests = Workload::Requests { count: 50, per_second: 100.0, packets, replicas: 3, access };
        let usual = requests.plan(&network(), 3).unwrap();
        assert_eq!(requests.plan_apart(&network(), &[], 3).unwrap(), usual);
    }

    #[test]
    fn nothing_is_placed_on_a_busy_host_nor_two_copies_in_the_rack_of_the_first() {
        // A rack without anybody, and one with a single host.
        let mut busy: Vec<u32> = vec![0, 1, 2, 3, 4];
        busy.extend((6..54).step_by(5));
        for access in [Access::Write, Access::ReadAll, Access::Read, Access::ReadAhead] {
            let requests =
                Workload::Requests { count: 300, per_second: 100.0, packets: 10, replicas: 2, access };
            for task in requests.plan_apart(&network(), &busy, 7).unwrap() {
                let named: Vec<u32> =
                    task.sources.iter().chain([&task.receiver]).chain(&task.further).copied().collect();
                assert!(named.iter().all(|host| !busy.contains(host) && *host < 54), "{named:?}");
                if access == Access::Write {
                    assert_ne!(task.receiver / 3, task.further[0] / 3, "{named:?}");
                }
            }
        }
    }

    #[test]
    fn an_incast_goes_to_the_first_host_that_is_free() {
        let incast = Workload::Incast { senders: 5, drawn: true, receiver: 0, packets: 1 };
        let tasks = incast.plan_apart(&network(), &[0, 1, 9], 1).unwrap();
        assert!(tasks.iter().all(|task| task.receiver == 2 && ![0, 1, 2, 9].contains(&task.sources[0])));
        let all: Vec<u32> = (0..49).collect();
        assert!(matches!(
            incast.plan_apart(&network(), &all, 1),
            Err(WorkloadError::TooFewHosts { needed: 6, there: 5, .. })
        ));
    }

    #[test]
    fn copies_that_find_no_rack_are_refused() {
        let (packets, access) = (10, Access::Write);
        let requests = Workload::Requests { count: 9, per_second: 100.0, packets, replicas: 3, access };
        // Two hosts are left of every rack: with the client in it, a rack has room for one copy.
        let busy: Vec<u32> = (0..54).step_by(3).collect();
        assert!(matches!(
            requests.plan_apart(&network(), &busy, 1),
            Err(WorkloadError::TooFewHosts { needed: 4, there: 3, .. })
        ));
        // Two racks that are whole are enough: the others have room for both copies of somebody else's block.
        let busy: Vec<u32> = (6..54).step_by(3).collect();
        for task in requests.plan_apart(&network(), &busy, 1).unwrap() {
            let racks: Vec<u32> = task.further.iter().map(|host| host / 3).collect();
            assert!(racks.len() == 2 && racks[0] == racks[1] && racks[0] != task.receiver / 3, "{task:?}");
        }
    }
}
