//! Plots: what an experiment draws, and the numbers to draw.
//!
//! [`Plot`] is the declaration in the file; [`Plot::figure`] gives the points. Lines, bars and boxes evaluate a metric at
//! every point of an axis for every scheme, just as claims do; distributions and time series read raw rows.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Axis, Engine, Scale};
use crate::claim::{Context, EvalError, Metric, Names, Selector, Shape, Value, evaluate};
use crate::scenario::Scheme;
use crate::stats;
use crate::table::{Tables, Which};

/// More points than this in a line cannot be told apart; a longer series is thinned.
const MOST_POINTS: usize = 2000;

/// A plot to draw.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    /// Above it.
    pub title: String,
    /// Its kind.
    pub kind: PlotKind,
    /// Lines, bars and boxes: the axis; one place for all if absent.
    #[serde(default)]
    pub x: Option<String>,
    /// A line, or a colour, for each of these: `scheme` or an axis.
    #[serde(default = "Plot::by_scheme")]
    pub by: String,
    /// Lines, bars and boxes: what is drawn.
    #[serde(default)]
    pub metric: Option<Metric>,
    /// Distributions: of which table; flows if absent.
    #[serde(default)]
    pub table: Option<Which>,
    /// Distributions: of which column.
    #[serde(default)]
    pub column: Option<String>,
    /// Time series: of what.
    #[serde(default)]
    pub quantity: Option<String>,
    /// Time series: whose; a line each.
    #[serde(default)]
    pub entities: Vec<String>,
    /// Only these schemes; all if absent.
    #[serde(default)]
    pub schemes: Option<Vec<Scheme>>,
    /// Only these runs.
    #[serde(default)]
    pub on: Selector,
    /// Whether the horizontal scale is logarithmic.
    #[serde(default)]
    pub log_x: bool,
    /// Whether the vertical scale is logarithmic.
    #[serde(default)]
    pub log_y: bool,
    /// With unit.
    #[serde(default)]
    pub x_label: String,
    /// With unit.
    #[serde(default)]
    pub y_label: String,
}

/// How something is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlotKind {
    /// A line with a 95 % band, along an axis.
    Lines,
    /// Bars with 95 % whiskers.
    Bars,
    /// Quartiles over seeds, with the mean.
    Box,
    /// A cumulative distribution of rows.
    Cdf,
    /// A value over time, of the first seed.
    Series,
}

/// Data of a plot.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Above it.
    pub title: String,
    /// Its kind.
    pub kind: PlotKind,
    /// With unit.
    pub x_label: String,
    /// With unit.
    pub y_label: String,
    /// Whether the horizontal scale is logarithmic.
    pub log_x: bool,
    /// Whether the vertical scale is logarithmic.
    pub log_y: bool,
    /// Names of the places 0, 1, ... on the horizontal scale, where it has no numbers.
    pub categories: Vec<String>,
    /// A line, or the bars of one colour, each.
    pub series: Vec<Series>,
}

/// One line, or the bars of one colour.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// In the legend.
    pub name: String,
    /// From left to right.
    pub points: Vec<Point>,
}

/// One point of a [`Series`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Across.
    pub x: f64,
    /// Up; the mean over seeds where there are several.
    pub y: f64,
    /// The 95 % interval of `y`.
    pub interval: Option<(f64, f64)>,
    /// The lower and the upper quartile over seeds.
    pub quartiles: Option<(f64, f64)>,
}

impl Plot {
    fn by_scheme() -> String {
        "scheme".to_owned()
    }

    pub(crate) fn check(&self, names: &Names<'_>) -> Result<(), String> {
        for scheme in self.schemes.iter().flatten() {
            if !names.schemes.contains(scheme) {
                return Err(format!("{scheme} is not among the schemes"));
            }
        }
        match self.kind {
            PlotKind::Lines | PlotKind::Bars | PlotKind::Box => {
                let metric = self.metric.as_ref().ok_or("it needs a `metric`")?;
                let mut open = vec![self.by.as_str()];
                open.extend(self.x.as_deref());
                match names.check_open(metric, &self.on, &open)? {
                    Shape::Number => Ok(()),
                    Shape::Truth => Err("its metric is true or false".to_owned()),
                }
            }
            PlotKind::Cdf if self.column.is_none() => Err("it needs a `column`".to_owned()),
            PlotKind::Series if self.quantity.is_none() || self.entities.is_empty() => {
                Err("it needs a `quantity` and `entities`".to_owned())
            }
            // A metric of a constant has any shape; what is checked is the selector and `by`.
            PlotKind::Cdf | PlotKind::Series => {
                let nothing = Metric::Constant { value: 0.0 };
                names.check_open(&nothing, &self.on, &[&self.by]).map(|_| ())
            }
        }
    }

    /// The points to draw; what was not run, or has no finite value, is left out.
    pub fn figure(
        &self,
        engine: Engine,
        scale: Scale,
        tables: &Tables,
        axes: &[Axis],
        schemes: &[Scheme],
    ) -> Figure {
        let context = Context { experiment: "", engine, scale, tables, axes };
        let x_axis = self.x.as_ref().and_then(|name| axes.iter().find(|axis| axis.name == *name));
        let numeric = x_axis.is_some_and(|axis| axis.points.iter().all(|p| p.number.is_some()));
        let categories = match (numeric || matches!(self.kind, PlotKind::Cdf | PlotKind::Series), x_axis) {
            (true, _) => Vec::new(),
            (false, Some(axis)) => axis.points.iter().map(|p| p.label.clone()).collect(),
            (false, None) => vec![String::new()],
        };
        let mut series = Vec::new();
        for (name, selector) in self.groups(axes, self.schemes.as_deref().unwrap_or(schemes)) {
            match self.kind {
                PlotKind::Lines | PlotKind::Bars | PlotKind::Box => {
                    series.push(Series { name, points: self.along(&context, x_axis, numeric, &selector) });
                }
                PlotKind::Cdf => series.push(Series { name, points: self.distribution(&context, &selector) }),
                PlotKind::Series => {
                    let several = schemes.len() > 1 || self.by != "scheme";
                    for entity in &self.entities {
                        let label = if several { format!("{name} {entity}") } else { entity.clone() };
                        let points = self.over_time(&context, entity, &selector);
                        series.push(Series { name: label, points });
                    }
                }
            }
        }
        series.retain(|s| !s.points.is_empty());
        Figure {
            title: self.title.clone(),
            kind: self.kind,
            x_label: self.x_label.clone(),
            y_label: self.y_label.clone(),
            log_x: self.log_x,
            log_y: self.log_y,
            categories,
            series,
        }
    }

    /// A name and a selector for each line or colour.
    fn groups(&self, axes: &[Axis], schemes: &[Scheme]) -> Vec<(String, Selector)> {
        if self.by == "scheme" {
            let of = |scheme: &Scheme| Selector { scheme: Some(*scheme), ..self.on.clone() };
            let only = self.on.scheme;
            let kept = schemes.iter().filter(|scheme| only.is_none_or(|only| only == **scheme));
            return kept.map(|scheme| (scheme.to_string(), of(scheme))).collect();
        }
        let points = axes.iter().filter(|axis| axis.name == self.by).flat_map(|axis| &axis.points);
        let of = |label: &str| {
            let mut selector = self.on.clone();
            selector.at.insert(self.by.clone(), toml::Value::from(label));
            selector
        };
        points.map(|point| (point.label.clone(), of(&point.label))).collect()
    }

    fn along(
        &self,
        context: &Context<'_>,
        x_axis: Option<&Axis>,
        numeric: bool,
        selector: &Selector,
    ) -> Vec<Point> {
        let Some(metric) = &self.metric else { return Vec::new() };
        let places: Vec<(f64, Selector)> = match x_axis {
            None => vec![(0.0, selector.clone())],
            Some(axis) => axis
                .points
                .iter()
                .enumerate()
                .map(|(place, point)| {
                    let mut at = selector.clone();
                    at.at.insert(axis.name.clone(), toml::Value::from(point.label.as_str()));
                    (point.number.filter(|_| numeric).unwrap_or(place as f64), at)
                })
                .collect(),
        };
        let point = |(x, at): (f64, Selector)| {
            let (value, _) = evaluate(metric, &at, context).ok()?;
            point_of(x, &value).filter(|point| point.y.is_finite())
        };
        places.into_iter().filter_map(point).collect()
    }

    fn distribution(&self, context: &Context<'_>, selector: &Selector) -> Vec<Point> {
        let Some(column) = &self.column else { return Vec::new() };
        let which = self.table.unwrap_or(Which::Flows);
        let rows = crate::claim::rows(context, which, column, &BTreeMap::new(), selector);
        let mut values: Vec<f64> =
            rows.unwrap_or_default().into_values().flatten().filter(|v| v.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let count = values.len();
        let points = values.into_iter().enumerate().map(|(i, x)| bare(x, (i + 1) as f64 / count as f64));
        thinned(points.collect())
    }

    fn over_time(&self, context: &Context<'_>, entity: &str, selector: &Selector) -> Vec<Point> {
        let Some(quantity) = &self.quantity else { return Vec::new() };
        let found: Result<_, EvalError> = crate::claim::time_series(context, entity, quantity, selector);
        let first = found.unwrap_or_default().into_iter().find(|(_, points)| !points.is_empty());
        let points = first.map(|(_, points)| points).unwrap_or_default();
        thinned(points.into_iter().filter(|p| p.1.is_finite()).map(|(t, y)| bare(t, y)).collect())
    }
}

impl Figure {
    /// Several figures of one plot in one, each line named for the figure it is from: engines side by side.
    pub fn beside(figures: Vec<(String, Figure)>) -> Option<Figure> {
        let mut figures = figures.into_iter();
        let (name, mut all) = figures.next()?;
        let renamed = |name: &str, series: Vec<Series>| {
            let named = |s: Series| Series { name: format!("{} ({name})", s.name), points: s.points };
            series.into_iter().map(named).collect::<Vec<_>>()
        };
        all.series = renamed(&name, all.series);
        for (name, figure) in figures {
            all.series.extend(renamed(&name, figure.series));
        }
        Some(all)
    }
}

fn bare(x: f64, y: f64) -> Point {
    Point { x, y, interval: None, quartiles: None }
}

fn point_of(x: f64, value: &Value) -> Option<Point> {
    match value {
        Value::Number(y, _) => Some(bare(x, *y)),
        Value::Truth(..) => None,
        Value::Seeds(by_seed) => {
            let values: Vec<f64> = by_seed.values().copied().collect();
            let quartiles = stats::quantile(&values, 0.25).zip(stats::quantile(&values, 0.75));
            Some(Point { x, y: stats::mean(&values)?, interval: stats::interval95(&values), quartiles })
        }
    }
}

/// Evenly spaced points of a long line, its last one among them.
fn thinned(points: Vec<Point>) -> Vec<Point> {
    let count = points.len();
    if count <= MOST_POINTS {
        return points;
    }
    (0..MOST_POINTS).map(|i| points[i * (count - 1) / (MOST_POINTS - 1)]).collect()
}
