//! The rows that an expression means: of which scheme, where on the axes, of which seeds.

use std::collections::{BTreeMap, BTreeSet};

use super::Context;
use super::metric::Selector;
use super::value::EvalError;
use crate::axis::{self, Axis, AxisPoint};
use crate::scenario::Scheme;
use crate::table::{Column, Table, Which};

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

/// Context in which a metric is evaluated, and the notes so far.
pub(super) struct Evaluator<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) notes: Vec<String>,
}

impl Evaluator<'_> {
    /// The axis value at hand.
    pub(super) fn point(&self, axis: &str, scope: &Scope) -> Result<&AxisPoint, EvalError> {
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

/// Condition on a column in a row that counts.
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
