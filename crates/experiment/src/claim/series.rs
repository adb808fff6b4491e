//! Metrics of time series: windows of time, settling, and the first entity that reaches a value.

use std::collections::BTreeMap;

use super::rows::{Evaluator, Scope, picked};
use super::value::EvalError;
use crate::table::{Column, Which};

type Points = Vec<(f64, f64)>;

/// A series within a window of time (both ends included), by seed. Seeds that ran but have none of it have an empty one.
pub(super) fn of(
    evaluator: &Evaluator<'_>,
    entity: &str,
    quantity: &str,
    (from, to): (f64, f64),
    scope: &Scope,
) -> Result<BTreeMap<u64, Points>, EvalError> {
    let mut by_seed: BTreeMap<u64, Points> =
        evaluator.seeds(scope)?.into_iter().map(|seed| (seed, Vec::new())).collect();
    let missing = || EvalError::Missing(format!("samples of {quantity} of '{entity}' in {from} s to {to} s"));
    let table = evaluator.context.tables.get(Which::Samples);
    let columns =
        (table.column("t_s"), table.column("entity"), table.column("quantity"), table.column("value"));
    let (Some(Column::F64(times)), Some(entities), Some(quantities), Some(Column::F64(values))) = columns
    else {
        return Err(missing());
    };
    let mut found = false;
    for (row, seed) in picked(table, scope).into_iter().flatten() {
        let t = times[row];
        // Times are sums of decimal intervals: a nanosecond of room at the edges.
        if t >= from - 1e-9 && t <= to + 1e-9 && quantities.is(row, quantity) && entities.is(row, entity) {
            by_seed.entry(seed).or_default().push((t, values[row]));
            found = true;
        }
    }
    if !found {
        return Err(missing());
    }
    for points in by_seed.values_mut() {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    Ok(by_seed)
}

/// One series over another, where both have a value at the same time.
pub(super) fn divided(above: BTreeMap<u64, Points>, below: &BTreeMap<u64, Points>) -> BTreeMap<u64, Points> {
    let nanos = |t: f64| (t * 1e9).round() as i64;
    above
        .into_iter()
        .map(|(seed, points)| {
            let others: BTreeMap<i64, f64> =
                below.get(&seed).into_iter().flatten().map(|(t, value)| (nanos(*t), *value)).collect();
            let ratio = |(t, value): (f64, f64)| others.get(&nanos(t)).map(|other| (t, value / other));
            (seed, points.into_iter().filter_map(ratio).collect())
        })
        .collect()
}

/// When the series, averaged over `smooth` samples, comes within `band` of its final value, to `stay` or for the first time. The final value is
/// the mean of the last quarter of the samples; with fewer than 8 samples there is no saying.
pub(super) fn settled(points: &[(f64, f64)], smooth: usize, band: f64, stay: bool) -> Option<f64> {
    if points.len() < 8 {
        return None;
    }
    let mean = |part: &[(f64, f64)]| part.iter().map(|p| p.1).sum::<f64>() / part.len() as f64;
    let last = mean(&points[points.len() * 3 / 4..]);
    let inside = |i: usize| {
        let value = mean(&points[(i + 1).saturating_sub(smooth.max(1))..=i]);
        (value - last).abs() <= band * last.abs()
    };
    if !stay {
        return (smooth.max(1) - 1..points.len()).find(|i| inside(*i)).map(|i| points[i].0);
    }
    // Backwards from the end; a series that leaves the band at its very end has not settled.
    let start = (0..points.len()).rev().take_while(|i| inside(*i)).last()?;
    Some(points[start].0)
}

/// By seed: the smallest number among entities that are numbers whose value reaches a limit; NaN if none does.
pub(super) fn first_entity(
    evaluator: &Evaluator<'_>,
    quantity: &str,
    at_least: f64,
    scope: &Scope,
) -> Result<BTreeMap<u64, f64>, EvalError> {
    let seeds = evaluator.seeds(scope)?;
    let table = evaluator.context.tables.get(Which::Samples);
    let columns = (table.column("entity"), table.column("quantity"), table.column("value"));
    let (Some(Column::Text(entities)), Some(quantities), Some(Column::F64(values))) = columns else {
        return Err(EvalError::Missing("samples".to_owned()));
    };
    let mut found = false;
    let mut first: BTreeMap<u64, f64> = seeds.into_iter().map(|seed| (seed, f64::NAN)).collect();
    for (row, seed) in picked(table, scope).into_iter().flatten() {
        if !quantities.is(row, quantity) {
            continue;
        }
        found = true;
        if let (true, Ok(number)) = (values[row] >= at_least, entities[row].parse::<f64>()) {
            let best = first.entry(seed).or_insert(f64::NAN);
            // f64::min takes the number where the other is NaN.
            *best = best.min(number);
        }
    }
    if !found {
        return Err(EvalError::Missing(format!("samples of {quantity}")));
    }
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_settles_when_it_enters_the_band_for_good() {
        let decay: Points = (0..40).map(|i| (i as f64, 10.0 + 8.0 * 0.5f64.powi(i))).collect();
        // 8 / 2^i <= 1 from i = 3 on.
        assert_eq!(settled(&decay, 1, 0.1, true), Some(3.0));
        let mut late = decay.clone();
        late[20].1 = 20.0;
        assert_eq!(settled(&late, 1, 0.1, true), Some(21.0), "an excursion starts the count anew");
        let mut never = decay.clone();
        never[39].1 = 30.0;
        assert_eq!(settled(&never, 1, 0.1, true), None);
        assert_eq!(settled(&decay[..7], 1, 0.1, true), None);
        assert_eq!(settled(&late, 1, 0.1, false), Some(3.0), "noise later on is another question");
    }

    #[test]
    fn smoothing_averages_a_sawtooth() {
        let saw: Points = (0..64).map(|i| (i as f64, if i % 4 == 0 { 6.0 } else { 10.0 })).collect();
        assert_eq!(settled(&saw, 1, 0.1, true), None, "single samples are 11 % above or 33 % below the mean");
        assert_eq!(settled(&saw, 4, 0.1, true), Some(2.0), "(6 + 10 + 10) / 3 is within a tenth of 9");
    }

    #[test]
    fn series_are_divided_where_both_have_a_value() {
        let above = BTreeMap::from([(1, vec![(0.1, 8.0), (0.2, 4.0)])]);
        let below = BTreeMap::from([(1, vec![(0.1 + 1e-12, 2.0), (0.3, 4.0)])]);
        assert_eq!(divided(above, &below)[&1], vec![(0.1, 4.0)]);
    }
}
