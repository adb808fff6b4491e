//! Whether a metric fits an experiment: names that exist, axes and schemes that are fixed, numbers where numbers belong.

use std::collections::{BTreeMap, BTreeSet};

use super::metric::{Metric, Selector};
use super::rows::Condition;
use super::{Claim, Tolerance, formula};
use crate::axis::{self, Axis};
use crate::scenario::Scheme;

/// Type of a metric's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A number.
    Number,
    /// True or false.
    Truth,
}

/// Names that an experiment has.
pub(crate) struct Names<'a> {
    pub(crate) axes: &'a [Axis],
    pub(crate) schemes: &'a [Scheme],
}

/// Scheme and axes that are fixed where an expression stands.
#[derive(Clone, Default)]
struct Fixed {
    scheme: bool,
    axes: BTreeSet<String>,
}

impl Names<'_> {
    /// Whether a claim can be judged; the reason and a hint if not.
    pub(crate) fn check_claim(&self, claim: &Claim) -> Result<(), String> {
        let shape = self.check(&claim.metric, &claim.on)?;
        let tolerances = [Some(&claim.within), claim.within_small.as_ref()];
        for tolerance in tolerances.into_iter().flatten() {
            match shape {
                _ if *tolerance == Tolerance::Report => {}
                Shape::Truth if !tolerance.needs_truth() => {
                    let hint = "the metric is true or false: write within = \"shape\"";
                    return Err(format!("{hint}, not {tolerance}"));
                }
                Shape::Number if tolerance.needs_truth() => {
                    return Err(format!("the metric is a number and cannot be judged by '{tolerance}'"));
                }
                _ => {}
            }
            if tolerance.needs_published() && claim.published_number().is_none() {
                return Err(format!("'{tolerance}' needs a number in `published`"));
            }
        }
        Ok(())
    }

    /// Whether a metric can be evaluated under a selector, with some axes and the scheme open that a plot fixes.
    pub(crate) fn check_open(&self, metric: &Metric, on: &Selector, open: &[&str]) -> Result<Shape, String> {
        let mut fixed = self.narrowed(&Fixed::default(), on)?;
        for name in open {
            if *name == "scheme" {
                fixed.scheme = true;
            } else {
                self.axis(name)?;
                fixed.axes.insert((*name).to_owned());
            }
        }
        self.shape(metric, &fixed)
    }

    fn check(&self, metric: &Metric, on: &Selector) -> Result<Shape, String> {
        self.check_open(metric, on, &[])
    }

    #[expect(clippy::too_many_lines, reason = "one flat match")]
    fn shape(&self, metric: &Metric, fixed: &Fixed) -> Result<Shape, String> {
        match metric {
            Metric::Column { filter, on, .. } | Metric::ShareAtLeast { filter, on, .. } => {
                conditions(filter)?;
                self.leaf(fixed, on)
            }
            Metric::QuantilesBelow { of, than, filter, on, .. } => {
                conditions(filter)?;
                self.scheme(of)?;
                self.scheme(than)?;
                self.leaf(&Fixed { scheme: true, ..fixed.clone() }, on)
            }
            Metric::Measure { on, .. } | Metric::FirstEntity { on, .. } => self.leaf(fixed, on),
            Metric::Samples { entities, from_s, to_s, on, .. } => {
                if entities.is_empty() {
                    return Err("`entities` is empty: name at least one flow or link".to_owned());
                }
                if to_s.is_some_and(|to| to.is_nan() || to <= *from_s) || from_s.is_nan() {
                    return Err(format!("the window from {from_s} s to {to_s:?} s is empty"));
                }
                self.leaf(fixed, on)
            }
            Metric::Settle { from_s, to_s, band, unit_s, on, .. } => {
                if !(to_s > from_s && *band > 0.0 && *unit_s > 0.0) {
                    return Err("settle needs from_s < to_s, band > 0 and unit_s > 0".to_owned());
                }
                self.leaf(fixed, on)
            }
            Metric::RatioOfMeans { of, over, on } => {
                self.scheme(of)?;
                self.scheme(over)?;
                self.leaf(&Fixed { scheme: true, ..fixed.clone() }, on)
            }
            Metric::Finished { schemes, on } => {
                self.schemes(schemes)?;
                self.leaf(&Fixed { scheme: true, ..fixed.clone() }, on)?;
                Ok(Shape::Truth)
            }
            Metric::Ratio { of, over: other } | Metric::Difference { of, less: other } => {
                self.number(of, fixed)?;
                self.number(other, fixed)
            }
            Metric::Product { of } => {
                for factor in of {
                    self.number(factor, fixed)?;
                }
                Ok(Shape::Number)
            }
            Metric::OverSeeds { of, .. } => self.number(of, fixed),
            Metric::Constant { value } if value.is_finite() => Ok(Shape::Number),
            Metric::Constant { value } => Err(format!("a constant of {value}")),
            Metric::Axis { name } => {
                let axis = self.axis(name)?;
                if !fixed.axes.contains(name) && axis.points.len() > 1 {
                    return Err(format!("which value of axis '{name}'? Fix it, or run over it"));
                }
                self.numeric(axis)
            }
            Metric::BestOf { schemes, of } => {
                self.schemes(schemes)?;
                self.number(of, &Fixed { scheme: true, ..fixed.clone() })
            }
            Metric::Formula { name, args } => {
                formula::value(name, args).map(|_| Shape::Number).map_err(|error| error.to_string())
            }
            Metric::OverPoints { axis, from, to, of, .. } => {
                self.run_over(axis, fixed, of, from.is_some() || to.is_some())
            }
            Metric::FirstWhere { axis, below, at_least, of, .. } => {
                if below.is_some() == at_least.is_some() {
                    return Err("first_where needs either `below` or `at_least`".to_owned());
                }
                self.run_over(axis, fixed, of, true)
            }
            Metric::Crossing { axis, of, .. } => self.run_over(axis, fixed, of, true),
            Metric::Trend { axis, of, .. } => {
                self.run_over(axis, fixed, of, true)?;
                Ok(Shape::Truth)
            }
            Metric::Ordering { schemes, of, .. } => {
                self.schemes(schemes)?;
                if schemes.len() < 2 {
                    return Err("an ordering needs two schemes".to_owned());
                }
                self.number(of, &Fixed { scheme: true, ..fixed.clone() })?;
                Ok(Shape::Truth)
            }
            Metric::Holds { of, published, within } => {
                self.number(of, fixed)?;
                if within.needs_truth() || (within.needs_published() && published.is_none()) {
                    return Err(format!("holds: '{within}' needs a number to compare with"));
                }
                Ok(Shape::Truth)
            }
            Metric::All { of } => {
                if of.is_empty() {
                    return Err("`all` of nothing is always true".to_owned());
                }
                for part in of {
                    if self.shape(part, fixed)? != Shape::Truth {
                        return Err(
                            "every part of `all` must be true or false; wrap numbers in holds".to_owned()
                        );
                    }
                }
                Ok(Shape::Truth)
            }
        }
    }

    fn number(&self, metric: &Metric, fixed: &Fixed) -> Result<Shape, String> {
        match self.shape(metric, fixed)? {
            Shape::Number => Ok(Shape::Number),
            Shape::Truth => Err("a number is needed where the metric is true or false".to_owned()),
        }
    }

    fn run_over(&self, axis: &str, fixed: &Fixed, of: &Metric, numeric: bool) -> Result<Shape, String> {
        let found = self.axis(axis)?;
        if numeric {
            self.numeric(found)?;
        }
        let mut inner = fixed.clone();
        inner.axes.insert(axis.to_owned());
        self.number(of, &inner)
    }

    /// A leaf reads rows: it must be plain of which runs.
    fn leaf(&self, fixed: &Fixed, on: &Selector) -> Result<Shape, String> {
        let fixed = self.narrowed(fixed, on)?;
        if !fixed.scheme && self.schemes.len() > 1 {
            return Err("of which scheme? Write on = { scheme = ... }".to_owned());
        }
        let open = self.axes.iter().find(|a| a.points.len() > 1 && !fixed.axes.contains(&a.name));
        match open {
            Some(axis) => Err(format!(
                "of which {}? Write on = {{ at = {{ {} = ... }} }}, or run over it",
                axis.name, axis.name
            )),
            None => Ok(Shape::Number),
        }
    }

    fn narrowed(&self, fixed: &Fixed, on: &Selector) -> Result<Fixed, String> {
        let mut inner = fixed.clone();
        if let Some(scheme) = &on.scheme {
            self.scheme(scheme)?;
            inner.scheme = true;
        }
        for (name, value) in &on.at {
            let axis = self.axis(name)?;
            let label = axis::label(value);
            if axis.point(&label).is_none() {
                return Err(format!("axis '{name}' has no value {label}; it has {}", axis.labels()));
            }
            inner.axes.insert(name.clone());
        }
        Ok(inner)
    }

    fn axis(&self, name: &str) -> Result<&Axis, String> {
        self.axes.iter().find(|axis| axis.name == name).ok_or_else(|| {
            let names: Vec<&str> = self.axes.iter().map(|axis| axis.name.as_str()).collect();
            format!("there is no axis '{name}'; there are: {}", names.join(", "))
        })
    }

    fn numeric(&self, axis: &Axis) -> Result<Shape, String> {
        match axis.points.iter().find(|p| p.number.is_none()) {
            None => Ok(Shape::Number),
            Some(p) => {
                Err(format!("axis '{}' has the value '{}', which is not a number", axis.name, p.label))
            }
        }
    }

    fn scheme(&self, scheme: &Scheme) -> Result<(), String> {
        if self.schemes.contains(scheme) {
            return Ok(());
        }
        let names: Vec<String> = self.schemes.iter().map(Scheme::to_string).collect();
        Err(format!("{scheme} is not among the schemes: {}", names.join(", ")))
    }

    fn schemes(&self, schemes: &[Scheme]) -> Result<(), String> {
        if schemes.is_empty() {
            return Err("`schemes` is empty".to_owned());
        }
        schemes.iter().try_for_each(|scheme| self.scheme(scheme))
    }
}

fn conditions(filter: &BTreeMap<String, toml::Value>) -> Result<(), String> {
    filter.iter().try_for_each(|(name, value)| match Condition::of(value) {
        Ok(_) => Ok(()),
        Err(why) => Err(format!("`where.{name}` {why}")),
    })
}
