//! The machines of a scenario whose switches compute what sources send at (PAM), and what these are measured by.

use headwater_controller::ControllerConfig;
use headwater_units::{Duration, Time};
use headwater_wire::Delivery;

use super::super::RunError;
use super::{NEVER, pulled, unprotect, unsupported};
use crate::scenario::{Machines, Scenario};
use crate::stats;
use crate::workload::{self, Deadline, TaskFlows};
use headwater_sim::packet::{CodedSetup, Negotiation, Records, Setup, TaskPlan};

/// The machines of PAM. As with SCDP nothing is planned; there is one packet to a symbol.
pub(super) fn setup(scenario: &Scenario) -> Result<CodedSetup, RunError> {
    let grants = scenario.port.allocator.is_some();
    if !grants {
        return Err(unsupported("pam without `port.allocator`: the ports of its switches grant no rates"));
    }
    let spec = &scenario.transport;
    let mut setup = CodedSetup {
        source: spec.scheduled_source_config(scenario.packet.data),
        delivery: Delivery::Rate { receivers: 1, deadline: None, terms: None },
        controller: ControllerConfig::default(),
        rates: Some(spec.rate_receiver_config()),
        pull: None,
        ..pulled::setup(scenario)
    };
    setup.controller.feedback_every = NEVER;
    if spec.machines == Machines::Paper {
        unprotect(&mut setup);
    }
    Ok(setup)
}

/// Gives each task the deadline that its plan has, if it has one; `unloaded` is what tasks take in an empty network, seconds.
pub(super) fn set_deadlines(setup: &mut Setup, plans: &[workload::TaskPlan], unloaded: &[f64]) {
    for ((task, plan), unloaded) in setup.tasks.iter_mut().zip(plans).zip(unloaded) {
        task.deadline = plan.deadline.map(|deadline| match deadline {
            Deadline::After(span) => span,
            Deadline::TimesUnloaded(times) => Duration::from_secs_f64(times * unloaded),
        });
    }
}

/// When each task is late, if ever; nothing where no task has a deadline.
pub(super) fn deadlines(tasks: &[TaskPlan]) -> Vec<Option<Time>> {
    let deadline = |task: &TaskPlan| Some(task.at + task.deadline?);
    let deadlines: Vec<Option<Time>> = tasks.iter().map(deadline).collect();
    if deadlines.iter().any(Option::is_some) { deadlines } else { Vec::new() }
}

/// `missed_ratio` is the part of the tasks with a deadline that were not complete by then.
pub(super) fn missed(deadlines: &[Option<Time>], records: &Records, note: &mut impl FnMut(String, f64)) {
    let of_task = |task: u32| deadlines.get(task as usize).copied().flatten();
    let with = records.tasks.iter().filter_map(|row| Some((of_task(row.task)?, row.finish)));
    let (all, late) = with.fold((0u32, 0u32), |(all, late), (deadline, finish)| {
        (all + 1, late + u32::from(finish.is_none_or(|at| at > deadline)))
    });
    if all > 0 {
        note("missed_ratio".to_owned(), f64::from(late) / f64::from(all));
    }
}

/// `tct_mean_s reno` is the mean completion time of the tasks whose flows run that instead of the scenario's scheme, until their receivers have
/// all.
pub(super) fn replaced(plans: &[workload::TaskPlan], records: &Records, note: &mut impl FnMut(String, f64)) {
    let of = |row: &headwater_sim::packet::TaskRow| {
        plans.get(row.task as usize).filter(|plan| plan.flows == TaskFlows::Reno)?;
        Some(row.finish.map_or(f64::NAN, |at| at.since(row.arrival).as_secs_f64()))
    };
    let times: Vec<f64> = records.tasks.iter().filter_map(of).collect();
    if let Some(mean) = stats::mean(&times) {
        note("tct_mean_s reno".to_owned(), mean);
    }
}

/// `saved_feedback` is the part of the datagrams that receivers did not answer (PAM Alg. 1), `saved_of_probes` and `saved_of_data` the same
/// of those without and with a symbol.
pub(super) fn feedback(said: &Negotiation, note: &mut impl FnMut(String, f64)) {
    let saved = |answers: u64, datagrams: u64| 1.0 - answers as f64 / datagrams as f64;
    let answers = said.probe_answers + said.symbol_answers;
    for (name, value) in [
        ("saved_of_probes", saved(said.probe_answers, said.probes)),
        ("saved_of_data", saved(said.symbol_answers, said.symbols)),
        ("saved_feedback", saved(answers, said.probes + said.symbols)),
        ("probes", said.probes as f64),
    ] {
        note(name.to_owned(), value);
    }
}
