//! An experiment with other values at one scale, as a user asks for them on the command line.

use headwater_experiment::experiment::Scale;
use toml::{Table, Value};

use super::LabError;

/// Values and points in the place of those that an experiment file has for a scale.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Variation {
    /// Keys of the scenario, each with its value as TOML has it. Text that is no value of TOML means itself: `64 MiB`.
    pub set: Vec<(String, String)>,
    /// Axes, each with the labels of the points to run.
    pub only: Vec<(String, Vec<String>)>,
}

impl Variation {
    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.only.is_empty()
    }

    /// The text of an experiment file with these values at `scale`. Text that is no TOML, or has no such scale, stays what it is:
    /// whoever reads it says so.
    ///
    /// # Errors
    /// [`LabError::Variation`]: an axis varies the key.
    pub(super) fn applied_to(&self, id: &str, text: &str, scale: Scale) -> Result<String, LabError> {
        let Ok(mut file) = toml::from_str::<Table>(text) else { return Ok(text.to_owned()) };
        for (key, _) in &self.set {
            if let Some(axis) = axis_over(&file, key) {
                let reason =
                    format!("the axis `{axis}` varies `{key}`; choose its points with --only {axis}=...");
                return Err(LabError::Variation { experiment: id.to_owned(), reason });
            }
            // What engines and schemes set would win over what the scale sets.
            for kind in ["engine", "scheme"] {
                let groups = file.get_mut(kind).and_then(Value::as_table_mut);
                for (_, group) in groups.into_iter().flatten() {
                    group.get_mut("set").and_then(Value::as_table_mut).map(|set| set.remove(key));
                }
            }
        }
        let of_scale = file.get_mut("scale").and_then(|scales| scales.get_mut(scale.to_string()));
        let Some(of_scale) = of_scale.and_then(Value::as_table_mut) else { return Ok(text.to_owned()) };
        put(of_scale, "set", self.set.iter().map(|(key, value)| (key.clone(), value_of(value))));
        let labels = |labels: &[String]| labels.iter().cloned().map(Value::String).collect();
        put(
            of_scale,
            "only",
            self.only.iter().map(|(axis, only)| (axis.clone(), Value::Array(labels(only)))),
        );
        if let Some(choices) =
            file.entry("choices").or_insert_with(|| Value::Array(Vec::new())).as_array_mut()
        {
            choices.push(Value::String(format!("Asked for in the place of what the file says: {self}.")));
        }
        toml::to_string(&file)
            .map_err(|error| LabError::Variation { experiment: id.to_owned(), reason: error.to_string() })
    }
}

impl std::fmt::Display for Variation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let set = self.set.iter().map(|(key, value)| format!("{key} = {value}"));
        let only = self.only.iter().map(|(axis, labels)| format!("only {axis} = {}", labels.join(", ")));
        f.write_str(&set.chain(only).collect::<Vec<_>>().join("; "))
    }
}

/// The axis whose points set `key`.
fn axis_over(file: &Table, key: &str) -> Option<String> {
    let axes = file.get("vary").and_then(Value::as_array).into_iter().flatten();
    axes.filter_map(Value::as_table).enumerate().find_map(|(number, axis)| {
        let text = |of: &str| axis.get(of).and_then(Value::as_str);
        let points = axis.get("points").and_then(Value::as_array).into_iter().flatten();
        let sets = |point: &Value| point.get("set").is_some_and(|set| set.get(key).is_some());
        let varies = text("key") == Some(key) || points.into_iter().any(sets);
        varies.then(|| text("name").or(text("key")).map_or_else(|| number.to_string(), str::to_owned))
    })
}

/// Puts entries into a table within a table.
fn put(of: &mut Table, name: &str, entries: impl Iterator<Item = (String, Value)>) {
    let within = of.entry(name).or_insert_with(|| Value::Table(Table::new()));
    if let Some(within) = within.as_table_mut() {
        within.extend(entries);
    }
}

fn value_of(text: &str) -> Value {
    let parsed = toml::from_str::<Table>(&format!("it = {text}")).ok();
    let value = parsed.filter(|table| table.len() == 1).and_then(|mut table| table.remove("it"));
    value.unwrap_or_else(|| Value::String(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use headwater_experiment::experiment::{Engine, Experiment, ExperimentError};

    use super::super::fixture::EXPERIMENT;
    use super::*;

    fn varied(
        set: &[(&str, &str)],
        only: &[(&str, &[&str])],
    ) -> Result<Result<Experiment, ExperimentError>, LabError> {
        let own = |text: &&str| (*text).to_owned();
        let variation = Variation {
            set: set.iter().map(|(key, value)| (own(key), own(value))).collect(),
            only: only.iter().map(|(axis, labels)| (own(axis), labels.iter().map(own).collect())).collect(),
        };
        let text = variation.applied_to("t", EXPERIMENT, Scale::Small)?;
        Ok(Experiment::parse("t", &text))
    }

    #[test]
    fn values_and_points_replace_those_of_one_scale() {
        let varied = varied(&[("fabric.rate", "50 Mbit/s"), ("fabric.left", "2")], &[("load", &["0.9"])]);
        let (varied, plain) = (varied.unwrap().unwrap(), Experiment::parse("t", EXPERIMENT).unwrap());
        let jobs = |of: &Experiment, scale| of.jobs(Engine::Packet, scale, None).unwrap();
        let small = jobs(&varied, Scale::Small);
        assert_eq!(small.len(), jobs(&plain, Scale::Small).len() / 2);
        assert!(small.iter().all(|job| job.scenario.fabric != jobs(&plain, Scale::Small)[0].scenario.fabric));
        assert_eq!(
            jobs(&varied, Scale::Paper),
            jobs(&plain, Scale::Paper),
            "other scales stay what they are"
        );
        assert!(
            varied
                .choices
                .last()
                .unwrap()
                .contains("fabric.rate = 50 Mbit/s; fabric.left = 2; only load = 0.9")
        );
    }

    #[test]
    fn what_an_axis_varies_is_chosen_by_its_points() {
        let error = varied(&[("until", "1 s")], &[]).unwrap_err().to_string();
        assert!(error.contains("--only load="), "{error}");
    }

    #[test]
    fn keys_and_points_that_do_not_exist_are_told() {
        assert!(
            varied(&[("fabric.colour", "red")], &[]).unwrap().unwrap_err().to_string().contains("colour")
        );
        assert!(varied(&[], &[("load", &["0.7"])]).unwrap().unwrap_err().to_string().contains("0.7"));
        assert!(varied(&[], &[("weather", &["0.7"])]).unwrap().unwrap_err().to_string().contains("weather"));
    }

    #[test]
    fn a_value_wins_over_that_of_a_scheme() {
        let text = EXPERIMENT
            .replace("[scenario]", "[scheme.dctcp]\nset = { \"fabric.rate\" = \"1 Mbit/s\" }\n[scenario]");
        let set = vec![("fabric.rate".to_owned(), "50 Mbit/s".to_owned())];
        let varied = Variation { set, only: Vec::new() }.applied_to("t", &text, Scale::Small).unwrap();
        let jobs = Experiment::parse("t", &varied).unwrap().jobs(Engine::Packet, Scale::Small, None).unwrap();
        assert!(jobs.iter().all(|job| job.scenario.fabric == jobs[0].scenario.fabric));
    }
}
