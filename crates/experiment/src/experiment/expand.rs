//! From an experiment to its jobs: every point of the axes, every scheme, every seed, with a typed scenario.

use super::{Engine, Experiment, ExperimentError, Job, Scale};
use crate::axis::AxisPoint;
use crate::scenario::{Scenario, Scheme};

/// All runs on an engine at a scale.
pub(super) fn jobs(
    experiment: &Experiment,
    engine: Engine,
    scale: Scale,
    seeds: Option<u32>,
) -> Result<Vec<Job>, ExperimentError> {
    let id = experiment.id.clone();
    if !experiment.engines.contains(&engine) {
        let there = experiment.engines.iter().map(|e| e.name()).collect::<Vec<_>>().join(", ");
        return Err(ExperimentError::NoEngine { id, engine, there });
    }
    if !experiment.scales.contains(&scale) {
        let there = experiment.scales.iter().map(|s| s.name()).collect::<Vec<_>>().join(", ");
        return Err(ExperimentError::NoScale { id, scale, there });
    }
    let axes = experiment.axes_at(engine, scale);
    let mut points: Vec<Vec<(&str, &AxisPoint)>> = vec![Vec::new()];
    for axis in &axes {
        let longer = points.iter().flat_map(|point| {
            axis.points.iter().map(move |next| {
                let mut point = point.clone();
                point.push((axis.name.as_str(), next));
                point
            })
        });
        points = longer.collect();
    }
    let seeds = seeds.unwrap_or_else(|| experiment.seeds(engine, scale));
    let mut jobs = Vec::new();
    for point in &points {
        for scheme in experiment.overrides.schemes(engine, &experiment.schemes) {
            if !point.iter().all(|(axis, at)| experiment.overrides.runs_at(*scheme, axis, &at.label)) {
                continue;
            }
            let (scenario, canonical) = resolve(experiment, engine, scale, point, *scheme)?;
            for seed in 1..=u64::from(seeds) {
                jobs.push(Job {
                    point: point.iter().map(|(name, p)| ((*name).to_owned(), p.label.clone())).collect(),
                    scheme: scheme.to_string(),
                    seed,
                    scenario: scenario.clone(),
                    engine,
                    canonical: canonical.clone(),
                });
            }
        }
    }
    Ok(jobs)
}

/// The scenario at a point, and its canonical text. What is set later wins: scale, engine, axes, scheme.
fn resolve(
    experiment: &Experiment,
    engine: Engine,
    scale: Scale,
    point: &[(&str, &AxisPoint)],
    scheme: Scheme,
) -> Result<(Scenario, String), ExperimentError> {
    let mut table = experiment.template.clone();
    let of_axes = point.iter().flat_map(|(_, point)| point.set.iter().map(|(key, value)| (key, value)));
    let of_scheme = experiment.overrides.set_by_scheme(scheme);
    for (key, value) in experiment.overrides.set(engine, scale).into_iter().chain(of_axes).chain(of_scheme) {
        set(&mut table, key, value.clone()).map_err(|reason| ExperimentError::Key {
            id: experiment.id.clone(),
            key: key.clone(),
            reason,
        })?;
    }
    if table.contains_key("scheme") {
        return Err(ExperimentError::Key {
            id: experiment.id.clone(),
            key: "scheme".to_owned(),
            reason: "the scheme of a scenario comes from the list `schemes`".to_owned(),
        });
    }
    table.insert("scheme".to_owned(), toml::Value::String(scheme.to_string()));
    let wrong = |message: String| {
        let labels = point.iter().map(|(name, p)| format!("{name} = {}, ", p.label)).collect::<String>();
        let point = format!("{labels}{scheme}, {engine}, {scale}");
        ExperimentError::Scenario { id: experiment.id.clone(), point, message }
    };
    // Through text, so that an error shows the line that is wrong after everything is filled in.
    let text = toml::to_string(&table).map_err(|error| wrong(error.to_string()))?;
    let scenario: Scenario = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let canonical = toml::Table::try_from(&scenario)
        .and_then(|table| toml::to_string(&table))
        .map_err(|error| wrong(error.to_string()))?;
    Ok((scenario, canonical))
}

/// Deeper keys are a mistake; tables are written and dropped by recursion.
const DEEPEST_KEY: usize = 16;

/// Sets a dotted key. Tables on the way are made; an index must be within its list.
fn set(table: &mut toml::Table, key: &str, value: toml::Value) -> Result<(), String> {
    let mut parts: Vec<&str> = key.split('.').collect();
    if parts.len() > DEEPEST_KEY {
        return Err(format!("{} parts; at most {DEEPEST_KEY}", parts.len()));
    }
    let last = parts.pop().filter(|last| !last.is_empty()).ok_or("the key is empty")?;
    let Some((first, middle)) = parts.split_first() else {
        table.insert(last.to_owned(), value);
        return Ok(());
    };
    let empty = || toml::Value::Table(toml::Table::new());
    let mut here = table.entry((*first).to_owned()).or_insert_with(empty);
    for part in middle {
        here = match here {
            toml::Value::Table(table) => table.entry((*part).to_owned()).or_insert_with(empty),
            other => element(other, part)?,
        };
    }
    match here {
        toml::Value::Table(table) => {
            table.insert(last.to_owned(), value);
        }
        other => *element(other, last)? = value,
    }
    Ok(())
}

fn element<'a>(value: &'a mut toml::Value, part: &str) -> Result<&'a mut toml::Value, String> {
    let toml::Value::Array(list) = value else {
        return Err(format!("'{part}' would be inside a {}", value.type_str()));
    };
    let length = list.len();
    let index: usize =
        part.parse().map_err(|_| format!("'{part}' is not an index into a list of {length}"))?;
    list.get_mut(index).ok_or_else(|| format!("index {index} is beyond a list of {length}, counted from 0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dotted_keys_reach_into_tables_and_lists() {
        let mut table: toml::Table = toml::from_str("a = { b = 1 }\nl = [{ x = 1 }, { x = 2 }]").unwrap();
        set(&mut table, "a.c.d", 7.into()).unwrap();
        set(&mut table, "l.1.x", 9.into()).unwrap();
        set(&mut table, "top", true.into()).unwrap();
        assert_eq!(table["a"]["c"]["d"].as_integer(), Some(7));
        assert_eq!(table["l"][1]["x"].as_integer(), Some(9));
        assert_eq!(table["top"].as_bool(), Some(true));
    }

    #[test]
    fn keys_that_lead_nowhere_are_refused_with_the_reason() {
        let mut table: toml::Table = toml::from_str("n = 1\nl = [1]").unwrap();
        for (key, part) in
            [("", "empty"), ("n.x", "integer"), ("l.1", "beyond"), ("l.x", "index"), ("a.", "empty")]
        {
            let error = set(&mut table, key, 1.into()).unwrap_err();
            assert!(error.contains(part), "{key}: {error}");
        }
        assert!(set(&mut table, &"a.".repeat(100_000), 1.into()).unwrap_err().contains("at most 16"));
    }
}
