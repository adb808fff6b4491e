//! Evaluates a [`Metric`] on the collected tables, seed by seed.
//!
//! A run that was not made is told apart from a run that was made and does not show the claim: the first makes a claim
//! pending, the second makes it a miss.

use std::collections::BTreeMap;

use super::metric::{Across, Metric, Selector, Stat};
use super::rows::{Evaluator, Scope};
use super::value::{EvalError, Value, combine, number};
use super::{Context, formula, points, series};
use crate::scenario::Scheme;
use crate::stats;
use crate::table::Which;

/// The value of a metric and the numbers behind it, in words.
///
/// # Errors
/// [`EvalError`].
pub(crate) fn evaluate(
    metric: &Metric,
    base: &Selector,
    context: &Context<'_>,
) -> Result<(Value, String), EvalError> {
    let scope = Scope::default().narrowed(base);
    let mut evaluator = Evaluator { context, notes: Vec::new() };
    let value = evaluator.value(metric, &scope)?;
    Ok((value, evaluator.notes.join("; ")))
}

/// The values of a column in the rows that a selector means, by seed.
///
/// # Errors
/// [`EvalError`].
pub(crate) fn rows(
    context: &Context<'_>,
    which: Which,
    column: &str,
    filter: &BTreeMap<String, toml::Value>,
    on: &Selector,
) -> Result<BTreeMap<u64, Vec<f64>>, EvalError> {
    Evaluator { context, notes: Vec::new() }.rows(which, column, filter, &Scope::default().narrowed(on))
}

/// A time series of the runs that a selector means, by seed: seconds and values.
///
/// # Errors
/// [`EvalError`].
pub(crate) fn time_series(
    context: &Context<'_>,
    entity: &str,
    quantity: &str,
    on: &Selector,
) -> Result<BTreeMap<u64, Vec<(f64, f64)>>, EvalError> {
    let evaluator = Evaluator { context, notes: Vec::new() };
    let always = (f64::NEG_INFINITY, f64::INFINITY);
    series::of(&evaluator, entity, quantity, always, &Scope::default().narrowed(on))
}

impl Evaluator<'_> {
    #[expect(clippy::too_many_lines, reason = "one flat match")]
    pub(super) fn value(&mut self, metric: &Metric, scope: &Scope) -> Result<Value, EvalError> {
        match metric {
            Metric::Column { table, column, stat, filter, on } => {
                let rows = self.rows(*table, column, filter, &scope.narrowed(on))?;
                Ok(Value::Seeds(rows.into_iter().map(|(seed, values)| (seed, stat.of(&values))).collect()))
            }
            Metric::ShareAtLeast { table, column, x, filter, on } => {
                let rows = self.rows(*table, column, filter, &scope.narrowed(on))?;
                let share = |values: Vec<f64>| {
                    // A row without a value is no evidence either way: the whole seed has none.
                    if values.iter().any(|v| v.is_nan()) {
                        return f64::NAN;
                    }
                    values.iter().filter(|v| **v >= *x).count() as f64 / values.len() as f64
                };
                Ok(Value::Seeds(rows.into_iter().map(|(seed, values)| (seed, share(values))).collect()))
            }
            Metric::QuantilesBelow { table, column, of, than, filter, on } => {
                let scope = scope.narrowed(on);
                let rows = |scheme: Scheme| self.rows(*table, column, filter, &scope.with_scheme(scheme));
                let (of, than) = (rows(*of)?, rows(*than)?);
                let both = of.iter().filter_map(|(seed, values)| Some((*seed, (values, than.get(seed)?))));
                Ok(Value::Seeds(both.map(|(seed, (of, than))| (seed, quantiles_below(of, than))).collect()))
            }
            Metric::Measure { name, on } => {
                let filter = BTreeMap::from([("name".to_owned(), toml::Value::from(name.as_str()))]);
                let rows = self.rows(Which::Measures, "value", &filter, &scope.narrowed(on))?;
                Ok(Value::Seeds(rows.into_iter().map(|(s, values)| (s, Stat::Last.of(&values))).collect()))
            }
            Metric::Samples { entities, quantity, from_s, to_s, stat, across, on } => {
                let window = (*from_s, to_s.unwrap_or(f64::INFINITY));
                let scope = scope.narrowed(on);
                let mut parts: Vec<BTreeMap<u64, f64>> = Vec::new();
                for entity in entities {
                    let found = series::of(self, entity, quantity, window, &scope)?;
                    let stat_of = |points: Vec<(f64, f64)>| {
                        stat.of(&points.into_iter().map(|(_, value)| value).collect::<Vec<_>>())
                    };
                    parts.push(found.into_iter().map(|(seed, points)| (seed, stat_of(points))).collect());
                }
                Ok(Value::Seeds(put_together(&parts, *across)))
            }
            Metric::Settle { entity, over, quantity, from_s, to_s, band, smooth, stay, unit_s, on } => {
                let window = (*from_s, *to_s);
                let scope = scope.narrowed(on);
                let mut found = series::of(self, entity, quantity, window, &scope)?;
                if let Some(over) = over {
                    let below = series::of(self, over, quantity, window, &scope)?;
                    found = series::divided(found, &below);
                }
                let settle = |points: Vec<(f64, f64)>| {
                    series::settled(&points, *smooth, *band, *stay)
                        .map_or(f64::NAN, |t| (t - from_s) / unit_s)
                };
                Ok(Value::Seeds(found.into_iter().map(|(seed, points)| (seed, settle(points))).collect()))
            }
            Metric::FirstEntity { quantity, at_least, on } => {
                series::first_entity(self, quantity, *at_least, &scope.narrowed(on)).map(Value::Seeds)
            }
            Metric::RatioOfMeans { of, over, on } => {
                let scope = scope.narrowed(on);
                let mean = |scheme: Scheme| {
                    let rows =
                        self.rows(Which::Tasks, "tct_s", &BTreeMap::new(), &scope.with_scheme(scheme))?;
                    let means = rows.into_iter().map(|(s, values)| (s, Stat::Mean.of(&values)));
                    Ok::<_, EvalError>(Value::Seeds(means.collect()))
                };
                let (of, over) = (mean(*of)?, mean(*over)?);
                combine(of, over, |a, b| a / b)
            }
            Metric::Ratio { of, over } => {
                combine(self.value(of, scope)?, self.value(over, scope)?, |a, b| a / b)
            }
            Metric::Difference { of, less } => {
                combine(self.value(of, scope)?, self.value(less, scope)?, |a, b| a - b)
            }
            Metric::Product { of } => {
                let mut product = Value::Number(1.0, 0);
                for factor in of {
                    product = combine(product, self.value(factor, scope)?, |a, b| a * b)?;
                }
                Ok(product)
            }
            Metric::Constant { value } => Ok(Value::Number(*value, 0)),
            Metric::Axis { name } => {
                let point = self.point(name, scope)?;
                let number = point.number.ok_or_else(|| {
                    EvalError::Nonsense(format!("{name} = {} is not a number", point.label))
                })?;
                Ok(Value::Number(number, 0))
            }
            Metric::BestOf { schemes, of } => {
                let mut best: Option<Value> = None;
                for scheme in schemes {
                    let value = self.value(of, &scope.with_scheme(*scheme))?;
                    best = Some(match best {
                        // f64::min would pass over a NaN, that is over a scheme that did not finish.
                        Some(so_far) => combine(so_far, value, |a, b| if a <= b { a } else { b })?,
                        None => value,
                    });
                }
                best.ok_or_else(|| EvalError::Nonsense("the best of no schemes".to_owned()))
            }
            Metric::Formula { name, args } => formula::value(name, args)
                .map(|number| Value::Number(number, 0))
                .map_err(|error| EvalError::Nonsense(error.to_string())),
            Metric::OverPoints { .. }
            | Metric::FirstWhere { .. }
            | Metric::Crossing { .. }
            | Metric::Trend { .. } => points::value(self, metric, scope),
            Metric::OverSeeds { stat, of } => match self.value(of, scope)? {
                Value::Seeds(by_seed) => {
                    let values: Vec<f64> = by_seed.into_values().collect();
                    Ok(Value::Number(stat.of(&values), values.len() as u32))
                }
                // The same for every seed.
                value => Ok(value),
            },
            Metric::Ordering { schemes, best, margin, of } => {
                points::ordering(self, schemes, *best, *margin, of, scope)
            }
            Metric::Holds { of, published, within } => {
                let value = self.value(of, scope)?;
                let (number, seeds) = number(&value)?;
                let truth = within.holds(number, *published);
                self.notes.push(format!("{number:.4} {} {within}", if truth { "is" } else { "is not" }));
                Ok(Value::Truth(truth, seeds))
            }
            Metric::All { of } => {
                // All are evaluated, so that the note has every number.
                let mut all = (true, 0);
                for part in of {
                    match self.value(part, scope)? {
                        Value::Truth(truth, seeds) => all = (all.0 && truth, all.1.max(seeds)),
                        _ => return Err(EvalError::Nonsense("a number where a truth is needed".to_owned())),
                    }
                }
                Ok(Value::Truth(all.0, all.1))
            }
            Metric::Finished { schemes, on } => self.finished(schemes, &scope.narrowed(on)),
        }
    }

    fn finished(&mut self, schemes: &[Scheme], scope: &Scope) -> Result<Value, EvalError> {
        let (mut truth, mut seeds) = (true, 0);
        for scheme in schemes {
            let rows = self.rows(Which::Tasks, "tct_s", &BTreeMap::new(), &scope.with_scheme(*scheme))?;
            let all: Vec<f64> = rows.values().flatten().copied().collect();
            let done = all.iter().filter(|tct| tct.is_finite()).count();
            truth &= done == all.len() && done > 0;
            seeds = seeds.max(rows.len() as u32);
            self.notes.push(format!("{scheme}: {done} of {} tasks", all.len()));
        }
        Ok(Value::Truth(truth, seeds))
    }
}

/// The part of the quantiles, 1 % to 99 %, at which the first values are below the others; NaN if any value is.
fn quantiles_below(of: &[f64], than: &[f64]) -> f64 {
    let quantiles = |values: &[f64]| -> Option<Vec<f64>> {
        (1..100).map(|percent| stats::quantile(values, f64::from(percent) / 100.0)).collect()
    };
    let (Some(of), Some(than)) = (quantiles(of), quantiles(than)) else { return f64::NAN };
    of.iter().zip(&than).filter(|(of, than)| of < than).count() as f64 / 99.0
}

fn put_together(parts: &[BTreeMap<u64, f64>], across: Across) -> BTreeMap<u64, f64> {
    let mut all: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for (seed, value) in parts.iter().flatten() {
        all.entry(*seed).or_default().push(*value);
    }
    let stat = match across {
        Across::Sum => Stat::Sum,
        Across::Mean => Stat::Mean,
        Across::Max => Stat::Max,
        Across::Min => Stat::Min,
        Across::Jain => return all.into_iter().map(|(seed, values)| (seed, stats::jain(&values))).collect(),
    };
    // An entity that a seed lacks has NaN in its part, which every statistic passes on.
    all.into_iter().map(|(seed, values)| (seed, stat.of(&values))).collect()
}
