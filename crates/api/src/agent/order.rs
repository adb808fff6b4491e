//! The order of an agent's coflows, from a controller: totals go there five times a second, and each report is answered with ranks.

use std::sync::Arc;
use std::time::Duration;

use headwater_agent::{Agent, CoflowDemand, Name, Peers};
use headwater_units::PathId;
use headwater_wire::{
    CoflowName, CoflowRank, CoflowTotal, CoflowTotals, Control, MAX_COFLOWS, MAX_CONTROL, MAX_PAIRS,
    PairTotal, ToController,
};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use crate::host::{Host, HostConfig};
use crate::{AppError, Common};

/// An agent waits a second for a word before it goes on without order, so four reports may be lost.
const REPORT_EVERY: Duration = Duration::from_millis(200);

/// Host and task that run for it.
pub(super) struct Following {
    host: Host,
    task: JoinHandle<()>,
}

impl Following {
    pub(super) async fn end(self) {
        self.task.abort();
        let _ = self.task.await;
        self.host.close().await;
    }
}

/// Joins a controller, also one that comes later, and does as it says.
///
/// # Errors
/// It is not the controller that it should be.
pub(super) async fn follow(
    common: &Common,
    at: &str,
    agent: Arc<Agent>,
    peers: Peers,
) -> Result<Following, AppError> {
    let host =
        Host::start(HostConfig { common, listen: None, controller: None, node: None, passes_on: false })?;
    let path = host.new_path();
    let ranks = host.hear_ranks();
    host.keep_dialled(path, at, true).await?;
    let task = tokio::spawn(run((host.clone(), path), agent, peers, ranks));
    Ok(Following { host, task })
}

async fn run(
    (host, path): (Host, PathId),
    agent: Arc<Agent>,
    peers: Peers,
    mut ranks: UnboundedReceiver<Vec<CoflowRank>>,
) {
    let mut ticks = tokio::time::interval(REPORT_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // An agent that has nothing more to fetch reports that once.
    let mut was_empty = true;
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                let demand = agent.demand().await;
                if demand.is_empty() && was_empty {
                    continue;
                }
                was_empty = demand.is_empty();
                let name = peers.name_of(agent.node()).map_or_else(|| agent.node().to_string(), |it| it.to_string());
                host.say(path, ToController::Coflows(totals(name, demand)));
            }
            Some(ranks) = ranks.recv() => {
                let rank = |it: CoflowRank| Some(((Name::new(it.name.application)?, it.name.number), it.rank));
                agent.order(ranks.into_iter().filter_map(rank)).await;
            }
        }
    }
}

/// A report that fits one message; what does not fit has no rank.
fn totals(host: String, demand: Vec<CoflowDemand>) -> CoflowTotals {
    let mut totals = CoflowTotals { host, coflows: Vec::new() };
    let mut pairs = 0;
    for it in demand.into_iter().take(MAX_COFLOWS) {
        pairs += it.from.len();
        if pairs > MAX_PAIRS {
            break;
        }
        let pair = |(from, left): (Name, _)| PairTotal { from: from.to_string(), left };
        totals.coflows.push(CoflowTotal {
            name: CoflowName { application: it.application.to_string(), number: it.coflow },
            here: it.here,
            pairs: it.from.into_iter().map(pair).collect(),
        });
    }
    while Control::from(ToController::Coflows(totals.clone())).encoded_len() > MAX_CONTROL {
        totals.coflows.truncate(totals.coflows.len() / 2);
    }
    totals
}

#[cfg(test)]
mod tests {
    use headwater_units::Bytes;

    use super::*;

    #[test]
    fn a_report_of_many_coflows_with_long_names_still_fits_a_message() {
        let name = |at: usize| Name::new(format!("{at:->250}")).unwrap();
        let demand = (0..300).map(|at| CoflowDemand {
            application: name(at),
            coflow: at as u64,
            here: Bytes::new(1),
            from: (0..3).map(|host| (name(host), None)).collect(),
        });
        let report = totals("h".into(), demand.collect());
        assert!(report.coflows.len() > 30, "{}", report.coflows.len());
        let control = Control::from(ToController::Coflows(report));
        assert_eq!(Control::parse(&control.to_bytes()), Ok(control));
    }
}
