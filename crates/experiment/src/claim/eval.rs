//! Evaluates a [`Metric`] on the collected tables, seed by seed.
//!
//! What was not run is told apart from what was run and does not show: the first makes a claim pending, the second
//! makes it a miss.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use super::metric::{Across, Metric, Selector, Stat};
use super::{Context, formula, points, series};
use crate::axis::{self, Axis, AxisPoint};
use crate::scenario::Scheme;
use crate::stats;
use crate::table::{Column, Table, Which};

/// What a metric comes to.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number per seed.
    Seeds(BTreeMap<u64, f64>),
    /// One number, from so many seeds.
    Number(f64, u32),
    /// True or false, from so many seeds.
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

/// Which runs are meant where an expression stands.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    pub(super) scheme: Option<Scheme>,
    /// Axis and label.
    pub(super) at: BTreeMap<String, String>,
}

impl Scope {
    /// With what an inner selector says; it wins.
    pub(super) fn narrowed(&self, selector: &Selector) -> Scope {
        let mut inner = self.clone();
        inner.scheme = selector.scheme.or(inner.scheme);
        inner.at.extend(selector.at.iter().map(|(axis, value)| (axis.clone(), axis::label(value))));
        inner
    }

    pub(super) fn with_scheme(&self, scheme: Scheme) -> Scope {
        Scope { scheme: Some(scheme), ..self.clone() }
    }

    pub(super) fn with_point(&self, axis: &str, label: &str) -> Scope {
        let mut inner = self.clone();
        inner.at.insert(axis.to_owned(), label.to_owned());
        inner
    }

    fn words(&self) -> String {
        let scheme = self.scheme.iter().map(Scheme::to_string);
        let at = self.at.iter().map(|(axis, label)| format!("{axis} = {label}"));
        let words: Vec<String> = scheme.chain(at).collect();
        if words.is_empty() { "any run".to_owned() } else { words.join(", ") }
    }
}

pub(super) struct Evaluator<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) notes: Vec<String>,
}

impl Evaluator<'_> {
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

    /// The axis value at hand.
    fn point(&self, axis: &str, scope: &Scope) -> Result<&AxisPoint, EvalError> {
        let axis = self.axis(axis)?;
        match (scope.at.get(&axis.name), axis.points.as_slice()) {
            (Some(label), _) => axis.point(label),
            (None, [only]) => Some(only),
            (None, _) => None,
        }
        .ok_or_else(|| EvalError::NotRun(format!("no such value of {} at this scale", axis.name)))
    }

    pub(super) fn axis(&self, name: &str) -> Result<&Axis, EvalError> {
        let axis = self.context.axes.iter().find(|axis| axis.name == name);
        axis.ok_or_else(|| EvalError::Nonsense(format!("there is no axis '{name}'")))
    }

    /// The values of a column in the rows that are meant, by seed. Seeds that ran but have no such row have an empty
    /// list.
    pub(super) fn rows(
        &self,
        which: Which,
        column: &str,
        filter: &BTreeMap<String, toml::Value>,
        scope: &Scope,
    ) -> Result<BTreeMap<u64, Vec<f64>>, EvalError> {
        let mut by_seed: BTreeMap<u64, Vec<f64>> =
            self.seeds(scope)?.into_iter().map(|seed| (seed, Vec::new())).collect();
        let table = self.context.tables.get(which);
        let missing = |what: &str| EvalError::Missing(format!("{what} ({})", scope.words()));
        let Some(values) = table.column(column) else {
            return Err(missing(&format!("a column '{column}'")));
        };
        let mut conditions: Vec<(&Column, Condition)> = Vec::new();
        for (name, value) in filter {
            let column =
                table.column(name).ok_or_else(|| missing(&format!("a column '{name}' to filter by")))?;
            conditions.push((column, Condition::of(value).map_err(EvalError::Nonsense)?));
        }
        let Some(picked) = picked(table, scope) else { return Err(missing("any row")) };
        let mut found = false;
        for (row, seed) in picked {
            if conditions.iter().all(|(column, condition)| condition.holds(column, row)) {
                let value = values
                    .number(row)
                    .ok_or_else(|| EvalError::Nonsense(format!("column '{column}' holds no numbers")))?;
                by_seed.entry(seed).or_default().push(value);
                found = true;
            }
        }
        if !found {
            let with: Vec<String> =
                filter.iter().map(|(name, value)| format!("{name} = {}", axis::label(value))).collect();
            return Err(missing(&format!("rows with {}", with.join(", "))));
        }
        Ok(by_seed)
    }

    /// The seeds that ran under a scope: those with a row in any table.
    pub(super) fn seeds(&self, scope: &Scope) -> Result<BTreeSet<u64>, EvalError> {
        for (name, label) in &scope.at {
            if self.axis(name)?.point(label).is_none() {
                return Err(EvalError::NotRun(format!("{name} = {label} is not part of this scale")));
            }
        }
        let mut seeds = BTreeSet::new();
        // The short tables first: the samples are looked through only if nothing else is there.
        for which in [Which::Measures, Which::Tasks, Which::Flows, Which::Samples] {
            if which != Which::Samples || seeds.is_empty() {
                let rows = picked(self.context.tables.get(which), scope);
                seeds.extend(rows.into_iter().flatten().map(|(_, seed)| seed));
            }
        }
        match seeds.is_empty() {
            true => Err(EvalError::NotRun(scope.words())),
            false => Ok(seeds),
        }
    }
}

/// What a column must read in a row that counts.
pub(super) enum Condition {
    Is(String),
    /// Both included.
    Within(f64, f64),
}

impl Condition {
    /// From a file: a text or a number, or `{ from = .., to = .. }` with either or both.
    pub(super) fn of(value: &toml::Value) -> Result<Condition, String> {
        let number = |value: &toml::Value| value.as_float().or(value.as_integer().map(|n| n as f64));
        match value {
            toml::Value::Array(_) => Err("must be a text, a number or { from = .., to = .. }".to_owned()),
            toml::Value::Table(ends) => {
                let (mut from, mut to) = (f64::NEG_INFINITY, f64::INFINITY);
                for (name, value) in ends {
                    let end = match name.as_str() {
                        "from" => &mut from,
                        "to" => &mut to,
                        other => return Err(format!("has '{other}'; a range has from and to")),
                    };
                    *end = number(value).ok_or_else(|| format!("{name} is {value}; it must be a number"))?;
                }
                if from <= to { Ok(Condition::Within(from, to)) } else { Err("is an empty range".to_owned()) }
            }
            other => Ok(Condition::Is(axis::label(other))),
        }
    }

    fn holds(&self, column: &Column, row: usize) -> bool {
        match self {
            Condition::Is(label) => column.is(row, label),
            Condition::Within(from, to) => column.number(row).is_some_and(|x| (*from..=*to).contains(&x)),
        }
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

/// The rows of a table that a scope means, with their seeds; nothing if the table lacks a coordinate.
pub(super) fn picked<'t>(
    table: &'t Table,
    scope: &'t Scope,
) -> Option<impl Iterator<Item = (usize, u64)> + 't> {
    let Some(Column::U64(seeds)) = table.column("seed") else { return None };
    let mut conditions: Vec<(&Column, String)> = Vec::new();
    if let Some(scheme) = scope.scheme {
        conditions.push((table.column("scheme")?, scheme.to_string()));
    }
    for (axis, label) in &scope.at {
        conditions.push((table.column(axis)?, label.clone()));
    }
    let rows = seeds.iter().copied().enumerate();
    Some(rows.filter(move |(row, _)| conditions.iter().all(|(column, label)| column.is(*row, label))))
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
