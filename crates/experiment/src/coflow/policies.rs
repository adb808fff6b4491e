//! Coflow policies by name.

use std::fmt;
use std::str::FromStr;

use headwater_policy::Policy;
use headwater_policy::coflow::courier::{Courier, Limits};
use headwater_policy::coflow::{
    Aalo, AaloOrder, DjangoLike, Fair, Fifo, PortCoflow, PortDemand, PortFlow, PortPlan, Ports, Scf,
    Sincronia, SincroniaOffline, Varys,
};
use headwater_sim::coflow::{CoflowError, CoflowSpec, Sizes};
use headwater_units::{Bytes, FlowId};

/// A policy for the ports of a switch.
type Boxed = Box<dyn Policy<PortDemand, PortPlan>>;

/// A scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// `fair`: all flows alike.
    Fair,
    /// `fifo`: coflows by arrival.
    Fifo,
    /// `scf`: the coflow with the least left first.
    Scf,
    /// `varys`: SEBF and MADD.
    Varys,
    /// `aalo`: D-CLAS as rates.
    Aalo,
    /// `aalo-order`: D-CLAS as an order.
    AaloOrder,
    /// `sincronia`: BSSI at each arrival and end.
    Sincronia,
    /// `sincronia-offline`: BSSI once, over all coflows of the trace.
    SincroniaOffline,
}

/// A policy that can be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyName {
    /// A scheduler by itself.
    Alone(Scheduler),
    /// `SCHEDULER+courier`: with Courier's agents on all hosts, by their defaults.
    Courier(Scheduler),
    /// `django-like:N`: Varys with at most N flows per host.
    DjangoLike(u32),
}

/// Every scheduler's name.
pub const NAMES: [(&str, Scheduler); 8] = [
    ("fair", Scheduler::Fair),
    ("fifo", Scheduler::Fifo),
    ("scf", Scheduler::Scf),
    ("varys", Scheduler::Varys),
    ("aalo", Scheduler::Aalo),
    ("aalo-order", Scheduler::AaloOrder),
    ("sincronia", Scheduler::Sincronia),
    ("sincronia-offline", Scheduler::SincroniaOffline),
];

/// Suffix of a scheduler's name where Courier carries its flows.
const WITH_COURIER: &str = "+courier";

impl Scheduler {
    fn name(self) -> &'static str {
        NAMES.iter().find(|(_, own)| *own == self).map_or("", |(name, _)| name)
    }

    /// Whether it goes by sizes.
    fn sizes(self) -> Sizes {
        match self {
            Scheduler::Scf | Scheduler::Varys | Scheduler::Sincronia => Sizes::Known,
            Scheduler::Fair | Scheduler::Fifo | Scheduler::Aalo | Scheduler::AaloOrder => Sizes::Hidden,
            // It was told all sizes before the run.
            Scheduler::SincroniaOffline => Sizes::Hidden,
        }
    }
}

impl PolicyName {
    /// The policy on these ports for these coflows, and whether it is told sizes.
    ///
    /// # Errors
    /// [`CoflowError`] if a limit is 0.
    pub(super) fn policy(self, ports: &Ports, specs: &[CoflowSpec]) -> Result<(Boxed, Sizes), CoflowError> {
        let ports = ports.clone();
        let offline = || SincroniaOffline::new(&all_at_once(specs));
        Ok(match self {
            PolicyName::DjangoLike(flows) => (Box::new(DjangoLike::new(ports, flows)?), Sizes::Known),
            PolicyName::Alone(scheduler) => {
                let policy: Boxed = match scheduler {
                    Scheduler::Fair => Box::new(Fair),
                    Scheduler::Fifo => Box::new(Fifo),
                    Scheduler::Scf => Box::new(Scf),
                    Scheduler::Varys => Box::new(Varys::new(ports)),
                    Scheduler::Aalo => Box::new(Aalo::new(ports)),
                    Scheduler::AaloOrder => Box::new(AaloOrder::default()),
                    Scheduler::Sincronia => Box::new(Sincronia),
                    Scheduler::SincroniaOffline => Box::new(offline()?),
                };
                (policy, scheduler.sizes())
            }
            PolicyName::Courier(scheduler) => {
                let limits = Limits::default();
                let policy: Boxed = match scheduler {
                    Scheduler::Fair => Box::new(Courier::new(Fair, limits)?),
                    Scheduler::Fifo => Box::new(Courier::new(Fifo, limits)?),
                    Scheduler::Scf => Box::new(Courier::new(Scf, limits)?),
                    Scheduler::Varys => Box::new(Courier::new(Varys::new(ports), limits)?),
                    Scheduler::Aalo => Box::new(Courier::new(Aalo::new(ports), limits)?),
                    Scheduler::AaloOrder => Box::new(Courier::new(AaloOrder::default(), limits)?),
                    Scheduler::Sincronia => Box::new(Courier::new(Sincronia, limits)?),
                    Scheduler::SincroniaOffline => Box::new(Courier::new(offline()?, limits)?),
                };
                // The agents must know what they carry, whatever the scheduler knows.
                (policy, Sizes::Known)
            }
        })
    }
}

/// All coflows of a run as if they were here at once.
fn all_at_once(specs: &[CoflowSpec]) -> PortDemand {
    let coflow = |spec: &CoflowSpec| {
        let travels = spec.flows.iter().filter(|it| it.source != it.receiver && it.bytes > Bytes::ZERO);
        let flow = |it: &headwater_sim::coflow::FlowSpec| PortFlow {
            flow: FlowId(0),
            remaining: Some(it.bytes),
            source: it.source,
            receiver: it.receiver,
        };
        let (task, arrival, weight) = (spec.task, spec.arrival, spec.weight);
        PortCoflow { task, arrival, weight, sent: Bytes::ZERO, flows: travels.map(flow).collect() }
    };
    let mut coflows: Vec<PortCoflow> = specs.iter().map(coflow).collect();
    coflows.sort_by_key(|coflow| (coflow.arrival, coflow.task));
    PortDemand { coflows }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyName::Alone(scheduler) => f.write_str(scheduler.name()),
            PolicyName::Courier(scheduler) => write!(f, "{}{WITH_COURIER}", scheduler.name()),
            PolicyName::DjangoLike(flows) => write!(f, "django-like:{flows}"),
        }
    }
}

impl FromStr for PolicyName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(flows) = text.strip_prefix("django-like:") {
            return match flows.parse() {
                Ok(0) => Err(format!("'{text}' lets no flow start; write a number from 1")),
                Ok(flows) => Ok(PolicyName::DjangoLike(flows)),
                Err(_) => Err(format!("'{flows}' is not a number of flows per host; write django-like:10")),
            };
        }
        let (name, courier) = match text.strip_suffix(WITH_COURIER) {
            Some(name) => (name, true),
            None => (text, false),
        };
        let known = NAMES.iter().find(|(other, _)| *other == name).ok_or_else(|| {
            let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
            format!(
                "there is no policy '{text}'; take any of {}, any of them with {WITH_COURIER}, or django-like:N",
                names.join(", ")
            )
        });
        known.map(|(_, own)| if courier { PolicyName::Courier(*own) } else { PolicyName::Alone(*own) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back_as_itself() {
        for (name, _) in NAMES {
            for text in [name.to_owned(), format!("{name}{WITH_COURIER}")] {
                assert_eq!(text.parse::<PolicyName>().unwrap().to_string(), text);
            }
        }
        assert_eq!("django-like:7".parse(), Ok(PolicyName::DjangoLike(7)));
    }

    #[test]
    fn other_names_are_refused_with_those_that_there_are() {
        for (text, must_say) in [
            ("varis", "fair, fifo, scf, varys"),
            ("django-like", "django-like:N"),
            ("django-like:0", "a number from 1"),
            ("django-like:x", "'x' is not a number"),
            ("+courier", "take any of"),
        ] {
            let error = text.parse::<PolicyName>().unwrap_err();
            assert!(error.contains(must_say), "{text}: {error}");
        }
    }
}
