//! Checks whether a set-up can be run.

use headwater_baseline as baseline;

use crate::packet::setup::{Flows, Setup, SetupError, TaskPlan, Transport};

/// Looks at every task.
pub(super) fn check(setup: &Setup) -> Result<(), SetupError> {
    let hosts = setup.topology.hosts().len() as u32;
    let scripted = setup.tasks.iter().any(|t| t.thetas.is_some());
    let (pull, trees, rates) = match &setup.transport {
        Transport::Coded(coded) => (coded.pull, coded.trees.is_some(), coded.rates.is_some()),
        Transport::Baseline { .. } => (None, false, false),
    };
    if setup.carry_bytes && !setup.tasks.iter().all(|plan| setup.is_coded(plan)) {
        return Err(SetupError::NothingToCarry);
    }
    let serves = |plan: &TaskPlan| (trees || rates) && plan.background.is_none() && !plan.relayed;
    for plan in &setup.tasks {
        let named = plan.sources.iter().chain([&plan.receiver]).chain(&plan.further);
        let strange = { named }.find(|&&h| h >= hosts);
        if let Some(&host) = strange {
            return Err(SetupError::NoSuchHost { task: plan.name.clone(), host, hosts });
        }
        let thetas = plan.thetas.as_ref().map_or(plan.sources.len(), Vec::len);
        if !(1..=128).contains(&plan.sources.len()) || thetas != plan.sources.len() {
            let (task, sources) = (plan.name.clone(), plan.sources.len());
            return Err(SetupError::Weights { task, sources, thetas });
        }
        let (task, sources, receivers) = (plan.name.clone(), plan.sources.len(), plan.further.len() + 1);
        match (setup.flows_of(plan), pull) {
            (Flows::Coded(_), _) if serves(plan) && sources != 1 => {
                return Err(SetupError::SeveralSources { task, sources });
            }
            (Flows::Coded(_), _) if serves(plan) && rates && !is_group(plan.receivers().collect()) => {
                return Err(SetupError::Group { task, receivers });
            }
            (Flows::Coded(_), _) if serves(plan) => {}
            (Flows::Coded(_), None) if plan.background.is_some() => {
                return Err(SetupError::NoMachines { task });
            }
            (Flows::Coded(_), None) if receivers > 1 => {
                return Err(SetupError::ManyReceivers { task, receivers });
            }
            (Flows::Coded(_), _) if plan.relayed => return Err(SetupError::RelayedSymbols { task }),
            (Flows::Coded(_), Some(_)) if sources == 1 && !is_group(plan.receivers().collect()) => {
                return Err(SetupError::Group { task, receivers });
            }
            (Flows::Baseline(sender), _)
                if plan.relayed && !(sources == 1 && matches!(sender.scheme, baseline::Scheme::Ndp(_))) =>
            {
                let scheme = sender.scheme;
                return Err(SetupError::Relay { task, sources, scheme });
            }
            // Flows of a task are numbered in eight bits.
            _ if sources * receivers > 256 => return Err(SetupError::ManyReceivers { task, receivers }),
            _ => {}
        }
        if scripted && plan.thetas.is_none() && plan.background.is_none() {
            return Err(SetupError::MixedWeights { task: plan.name.clone() });
        }
    }
    Ok(())
}

/// Whether these hosts can be a group, or are only one.
fn is_group(mut hosts: Vec<u32>) -> bool {
    let count = hosts.len();
    hosts.sort_unstable();
    hosts.dedup();
    hosts.len() == count && count <= 64
}
