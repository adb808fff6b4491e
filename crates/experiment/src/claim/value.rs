//! Value of a metric, or why there is none.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::stats;

/// Value of a metric.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number per seed.
    Seeds(BTreeMap<u64, f64>),
    /// One number, and the number of its seeds.
    Number(f64, u32),
    /// True or false, and the number of its seeds.
    Truth(bool, u32),
}

/// Why a metric comes to nothing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EvalError {
    /// There are no runs of it.
    #[error("not run: {0}")]
    NotRun(String),
    /// There are runs, but they lack what is measured.
    #[error("missing in the results: {0}")]
    Missing(String),
    /// The metric does not fit together; files are checked, so only one made in code can show this.
    #[error("this metric cannot be evaluated: {0}")]
    Nonsense(String),
}

impl EvalError {
    /// Whether running more could help.
    pub fn is_pending(&self) -> bool {
        matches!(self, EvalError::NotRun(_))
    }
}

/// Seed by seed; a number goes with every seed. Seeds that only one side has are left out.
pub(super) fn combine(a: Value, b: Value, f: impl Fn(f64, f64) -> f64) -> Result<Value, EvalError> {
    Ok(match (a, b) {
        (Value::Seeds(a), Value::Seeds(b)) => {
            let both: BTreeMap<u64, f64> =
                a.iter().filter_map(|(seed, x)| b.get(seed).map(|y| (*seed, f(*x, *y)))).collect();
            if both.is_empty() {
                return Err(EvalError::NotRun("no seed has both sides of a comparison".to_owned()));
            }
            Value::Seeds(both)
        }
        (Value::Seeds(a), Value::Number(y, _)) => {
            Value::Seeds(a.into_iter().map(|(s, x)| (s, f(x, y))).collect())
        }
        (Value::Number(x, _), Value::Seeds(b)) => {
            Value::Seeds(b.into_iter().map(|(s, y)| (s, f(x, y))).collect())
        }
        (Value::Number(x, m), Value::Number(y, n)) => Value::Number(f(x, y), m.max(n)),
        _ => return Err(EvalError::Nonsense("a truth where a number is needed".to_owned())),
    })
}

/// The mean over seeds, and how many there are.
pub(super) fn number(value: &Value) -> Result<(f64, u32), EvalError> {
    match value {
        Value::Number(number, seeds) => Ok((*number, *seeds)),
        Value::Seeds(by_seed) => {
            let values: Vec<f64> = by_seed.values().copied().collect();
            Ok((stats::mean(&values).unwrap_or(f64::NAN), values.len() as u32))
        }
        Value::Truth(..) => Err(EvalError::Nonsense("a truth where a number is needed".to_owned())),
    }
}
