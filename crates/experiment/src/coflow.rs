//! Coflow policies on a trace: which there are by name, one run, and what it shows.

use std::fmt;
use std::str::FromStr;

use headwater_policy::Policy;
use headwater_policy::coflow::courier::{Courier, Limits};
use headwater_policy::coflow::{
    Aalo, AaloOrder, DjangoLike, Fair, Fifo, PortDemand, PortPlan, Ports, Scf, Sincronia, Varys,
};
use headwater_sim::coflow::{Clock, CoflowError, Sizes, run};
use headwater_units::{BitRate, Bytes};

use crate::stats::{mean, quantile};
use crate::workload::coflow_trace::CoflowTrace;

/// A policy by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyName {
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
    /// `django-like:N`: Varys with at most N flows per host.
    DjangoLike(u32),
}

/// Every policy that a name alone stands for.
pub const NAMES: [&str; 7] = ["fair", "fifo", "scf", "varys", "aalo", "aalo-order", "sincronia"];

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            PolicyName::Fair => "fair",
            PolicyName::Fifo => "fifo",
            PolicyName::Scf => "scf",
            PolicyName::Varys => "varys",
            PolicyName::Aalo => "aalo",
            PolicyName::AaloOrder => "aalo-order",
            PolicyName::Sincronia => "sincronia",
            PolicyName::DjangoLike(flows) => return write!(f, "django-like:{flows}"),
        };
        f.write_str(name)
    }
}

impl FromStr for PolicyName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "fair" => PolicyName::Fair,
            "fifo" => PolicyName::Fifo,
            "scf" => PolicyName::Scf,
            "varys" => PolicyName::Varys,
            "aalo" => PolicyName::Aalo,
            "aalo-order" => PolicyName::AaloOrder,
            "sincronia" => PolicyName::Sincronia,
            _ => {
                let flows = text.strip_prefix("django-like:").and_then(|flows| flows.parse().ok());
                let unknown = || {
                    format!("there is no policy '{text}'; take any of {}, django-like:N", NAMES.join(", "))
                };
                match flows.ok_or_else(unknown)? {
                    0 => return Err(format!("'{text}' lets no flow start; set N to 1 or more")),
                    flows => PolicyName::DjangoLike(flows),
                }
            }
        })
    }
}

impl PolicyName {
    /// The policy on these ports, and whether it is told sizes.
    ///
    /// # Errors
    /// [`CoflowError`] if a limit is 0.
    fn policy(self, ports: &Ports) -> Result<(Box<dyn Policy<PortDemand, PortPlan>>, Sizes), CoflowError> {
        let ports = ports.clone();
        Ok(match self {
            PolicyName::Fair => (Box::new(Fair), Sizes::Hidden),
            PolicyName::Fifo => (Box::new(Fifo), Sizes::Hidden),
            PolicyName::Scf => (Box::new(Scf), Sizes::Known),
            PolicyName::Varys => (Box::new(Varys::new(ports)), Sizes::Known),
            PolicyName::Aalo => (Box::new(Aalo::new(ports)), Sizes::Hidden),
            PolicyName::AaloOrder => (Box::new(AaloOrder::default()), Sizes::Hidden),
            PolicyName::Sincronia => (Box::new(Sincronia), Sizes::Known),
            PolicyName::DjangoLike(flows) => (Box::new(DjangoLike::new(ports, flows)?), Sizes::Known),
        })
    }
}

/// The switch, and when things can happen on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// How many hosts. Ports of the trace beyond are folded onto these.
    pub ports: u16,
    /// What each can send, and receive.
    pub rate: BitRate,
    /// Exact, or by epochs.
    pub clock: Clock,
}

/// How long each coflow took.
#[derive(Clone, Debug, PartialEq)]
pub struct Completions {
    /// By which policy.
    pub policy: PolicyName,
    /// Seconds, in the order of the trace.
    pub seconds: Vec<f64>,
}

/// Runs a trace by one policy.
///
/// # Errors
/// [`CoflowError`] if a port has no rate, or epochs are not whole steps.
pub fn complete(trace: &CoflowTrace, setup: &Setup, policy: PolicyName) -> Result<Completions, CoflowError> {
    let ports = Ports::even(setup.ports, setup.rate);
    let (rule, sizes) = policy.policy(&ports)?;
    let done = run(&ports, &trace.specs(setup.ports), &*rule, sizes, setup.clock)?;
    let seconds = done.iter().map(|done| done.completion_time().as_secs_f64()).collect();
    Ok(Completions { policy, seconds })
}
