//! Benchmarks: how fast parts of the product are on this machine, as figures.
//!
//! Things to compare are measured in turn in the same run, and the median counts: the same machine is up to twice as
//! fast from one minute to the next, so figures of different runs say little about each other.

pub mod agent;
pub mod carriers;
pub mod codec;
pub mod delivery;
pub mod memory;
pub mod sim;
pub mod store;
pub mod wire;

use headwater_testbed::netns::{Net, Spec};
use headwater_testbed::soft_switch::{in_namespace, segmentation_off};

use headwater_api::AppError;

/// Listener to the progress of a bench.
pub trait BenchWatch {
    /// The next of `of` measurements begins; `number` counts from 1.
    fn begun(&mut self, what: &str, number: usize, of: usize);
    /// A line for the user.
    fn note(&mut self, line: &str);
}

/// The middle of what was measured; NaN of nothing.
fn median_of(values: impl IntoIterator<Item = f64>) -> f64 {
    headwater_experiment::stats::median(&values.into_iter().collect::<Vec<_>>()).unwrap_or(f64::NAN)
}

/// A share, or a ratio, of what may be nothing.
fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

/// A network in which the kernel carries large buffers from end to end, or cuts them as they leave their host, for TCP as for
/// UDP: [`Spec::cut`] would make TCP handle each packet by itself, which no host does whose card cannot segment.
fn network(spec: &Spec, cut: bool) -> Result<Net, AppError> {
    let failed = |error: &dyn std::fmt::Display| AppError::Failed(format!("the bench's network: {error}"));
    let net = Net::build(&Spec { cut: false, ..spec.clone() }).map_err(|error| failed(&error))?;
    for host in (0..net.hosts()).filter(|_| cut) {
        let namespace = net.namespace(host).map_err(|error| failed(&error))?;
        let done = in_namespace(namespace, || segmentation_off("eth0")).flatten();
        done.map_err(|error| failed(&error))?;
    }
    Ok(net)
}
