//! Metrics along an axis and across schemes: extremes, knees, crossings, trends, orders.

use super::metric::{Best, Direction, Metric, Pick, Stat};
use super::rows::{Evaluator, Scope};
use super::value::{EvalError, Value, combine, number};
use crate::scenario::Scheme;
use crate::stats;

/// A value at a point of an axis.
struct At {
    label: String,
    number: Option<f64>,
    value: Value,
    mean: f64,
    seeds: u32,
}

/// The metrics that run along an axis.
pub(super) fn value(
    evaluator: &mut Evaluator<'_>,
    metric: &Metric,
    scope: &Scope,
) -> Result<Value, EvalError> {
    match metric {
        Metric::OverPoints { axis, from, to, pick, target, of } => {
            let points = along(evaluator, axis, (*from, *to), of, scope)?;
            picked_point(evaluator, axis, points, *pick, target.unwrap_or(0.0))
        }
        Metric::FirstWhere { axis, below, at_least, stat, of } => {
            let points = along(evaluator, axis, (None, None), of, scope)?;
            first_where(evaluator, axis, points, (*below, *at_least), *stat)
        }
        Metric::Crossing { axis, level, of } => {
            let points = along(evaluator, axis, (None, None), of, scope)?;
            crossing(evaluator, axis, &points, *level)
        }
        Metric::Trend { axis, from, to, direction, slack, least, of } => {
            let points = along(evaluator, axis, (*from, *to), of, scope)?;
            trend(evaluator, axis, &points, *direction, *slack, *least)
        }
        _ => Err(EvalError::Nonsense("this metric does not run along an axis".to_owned())),
    }
}

/// Whether the schemes stand in that order by their means over seeds.
pub(super) fn ordering(
    evaluator: &mut Evaluator<'_>,
    schemes: &[Scheme],
    best: Best,
    margin: f64,
    of: &Metric,
    scope: &Scope,
) -> Result<Value, EvalError> {
    let mut means: Vec<f64> = Vec::new();
    let mut seeds = u32::MAX;
    for scheme in schemes {
        let (mean, count) = number(&evaluator.value(of, &scope.with_scheme(*scheme))?)?;
        means.push(mean);
        seeds = seeds.min(count);
    }
    let beats = |better: f64, worse: f64| match best {
        Best::Low => worse > better * (1.0 + margin),
        Best::High => better > worse * (1.0 + margin),
    };
    // NaN compares false: a scheme without a finite mean stands in no order.
    let truth = means.windows(2).all(|pair| beats(pair[0], pair[1]));
    let words: Vec<String> = schemes.iter().zip(&means).map(|(s, mean)| format!("{s} {mean:.4}")).collect();
    evaluator.notes.push(words.join(", "));
    Ok(Value::Truth(truth, if schemes.is_empty() { 0 } else { seeds }))
}

/// The values along an axis, in its order.
fn along(
    evaluator: &mut Evaluator<'_>,
    axis: &str,
    (from, to): (Option<f64>, Option<f64>),
    of: &Metric,
    scope: &Scope,
) -> Result<Vec<At>, EvalError> {
    let inside = |number: Option<f64>| match (from, to, number) {
        (None, None, _) => true,
        (_, _, None) => false,
        (from, to, Some(x)) => from.is_none_or(|from| x >= from) && to.is_none_or(|to| x <= to),
    };
    let points: Vec<_> = evaluator.axis(axis)?.points.iter().filter(|p| inside(p.number)).cloned().collect();
    if points.is_empty() {
        return Err(EvalError::NotRun(format!("no value of {axis} in that range at this scale")));
    }
    let mut values = Vec::new();
    for point in points {
        let value = evaluator.value(of, &scope.with_point(axis, &point.label))?;
        let (mean, seeds) = number(&value)?;
        values.push(At { label: point.label, number: point.number, value, mean, seeds });
    }
    Ok(values)
}

fn picked_point(
    evaluator: &mut Evaluator<'_>,
    axis: &str,
    points: Vec<At>,
    pick: Pick,
    target: f64,
) -> Result<Value, EvalError> {
    let seeds = points.iter().map(|p| p.seeds).max().unwrap_or(0);
    // A point without a value must not be passed over: whatever is picked, it is that one.
    if let Some(hole) = points.iter().find(|p| p.mean.is_nan()) {
        evaluator.notes.push(format!("no finite value at {axis} = {}", hole.label));
        return Ok(Value::Number(f64::NAN, seeds));
    }
    evaluator.notes.push(listed(&points));
    let rank = |p: &At| match pick {
        Pick::Max | Pick::Spread => p.mean,
        Pick::Min => -p.mean,
        Pick::Farthest => (p.mean - target).abs(),
        Pick::Mean => 0.0,
    };
    if let Pick::Mean = pick {
        let count = points.len() as f64;
        let values = points.into_iter().map(|p| Ok(p.value));
        let sum = values.reduce(|a, b| combine(a?, b?, |a, b| a + b));
        let sum = sum.ok_or_else(|| EvalError::Nonsense(format!("axis {axis} has no values")))??;
        return combine(sum, Value::Number(count, 0), |sum, count| sum / count);
    }
    if let Pick::Spread = pick {
        let means: Vec<f64> = points.iter().map(|p| p.mean).collect();
        return Ok(Value::Number(Stat::Max.of(&means) / Stat::Min.of(&means) - 1.0, seeds));
    }
    let chosen = points.into_iter().max_by(|a, b| rank(a).total_cmp(&rank(b)));
    let chosen = chosen.ok_or_else(|| EvalError::Nonsense(format!("axis {axis} has no values")))?;
    evaluator.notes.push(format!("taken at {axis} = {}", chosen.label));
    Ok(chosen.value)
}

fn first_where(
    evaluator: &mut Evaluator<'_>,
    axis: &str,
    points: Vec<At>,
    (below, at_least): (Option<f64>, Option<f64>),
    stat: Stat,
) -> Result<Value, EvalError> {
    evaluator.notes.push(listed(&points));
    let seeds = points.iter().map(|p| p.seeds).max().unwrap_or(0);
    for point in points {
        let value = match &point.value {
            Value::Seeds(by_seed) => stat.of(&by_seed.values().copied().collect::<Vec<_>>()),
            _ => point.mean,
        };
        if below.is_some_and(|limit| value < limit) || at_least.is_some_and(|limit| value >= limit) {
            return match point.number {
                Some(number) => Ok(Value::Number(number, seeds)),
                None => Err(EvalError::Nonsense(format!("{axis} = {} is not a number", point.label))),
            };
        }
    }
    evaluator.notes.push(format!("nowhere along {axis}"));
    Ok(Value::Number(f64::NAN, seeds))
}

fn crossing(
    evaluator: &mut Evaluator<'_>,
    axis: &str,
    points: &[At],
    level: f64,
) -> Result<Value, EvalError> {
    evaluator.notes.push(listed(points));
    let seeds = points.iter().map(|p| p.seeds).max().unwrap_or(0);
    let line: Option<Vec<(f64, f64)>> = points.iter().map(|p| p.number.map(|x| (x, p.mean))).collect();
    let line = line.ok_or_else(|| EvalError::Nonsense(format!("{axis} is not an axis of numbers")))?;
    let logarithmic = line.iter().all(|(x, _)| *x > 0.0);
    for pair in line.windows(2) {
        let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
        if y0 <= level && y1 > level {
            let part = (level - y0) / (y1 - y0);
            let x = match logarithmic {
                true => (x0.ln() + part * (x1.ln() - x0.ln())).exp(),
                false => x0 + part * (x1 - x0),
            };
            return Ok(Value::Number(x, seeds));
        }
    }
    evaluator.notes.push(format!("never passes {level} from below along {axis}"));
    Ok(Value::Number(f64::NAN, seeds))
}

fn trend(
    evaluator: &mut Evaluator<'_>,
    axis: &str,
    points: &[At],
    direction: Direction,
    slack: f64,
    least: f64,
) -> Result<Value, EvalError> {
    evaluator.notes.push(listed(points));
    let seeds = points.iter().map(|p| p.seeds).max().unwrap_or(0);
    if points.len() < 2 {
        return Err(EvalError::NotRun(format!("a trend needs two values of {axis}")));
    }
    let means: Vec<f64> = points.iter().map(|p| p.mean).collect();
    let (first, last) = (means[0], means[means.len() - 1]);
    let steps = |wrong: fn(f64, f64) -> f64| {
        means.windows(2).all(|pair| wrong(pair[0], pair[1]) <= slack * pair[0].abs())
    };
    let truth = match direction {
        Direction::Rising => steps(|a, b| a - b) && last - first > least * first.abs(),
        Direction::Falling => steps(|a, b| b - a) && first - last > least * first.abs(),
        Direction::Linear => {
            let line: Option<Vec<(f64, f64)>> =
                points.iter().map(|p| p.number.map(|x| (x, p.mean))).collect();
            let line =
                line.ok_or_else(|| EvalError::Nonsense(format!("{axis} is not an axis of numbers")))?;
            let fit = stats::line_fit(&line);
            if let Some((slope, explained)) = fit {
                evaluator.notes.push(format!("slope {slope:.4}, r squared {explained:.4}"));
            }
            fit.is_some_and(|(_, explained)| explained >= 1.0 - slack)
                && (last - first).abs() > least * first.abs()
        }
    };
    Ok(Value::Truth(truth, seeds))
}

fn listed(points: &[At]) -> String {
    points.iter().map(|p| format!("{}: {:.4}", p.label, p.mean)).collect::<Vec<_>>().join(", ")
}
