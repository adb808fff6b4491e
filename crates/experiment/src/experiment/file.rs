//! From the text of an experiment file to an [`Experiment`], with every reference checked.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::{Engine, Experiment, ExperimentError, Plot, Scale, expand};
use crate::axis::{self, Axis, AxisPoint};
use crate::claim::{Claim, Names};
use crate::scenario::Scheme;
use crate::table::{FlowRow, MeasureRow, SampleRow, TaskRow};

/// More runs than this are a mistake in the axes.
const MOST_JOBS: usize = 100_000;
/// More seeds than this are a mistake.
const MOST_SEEDS: u32 = 10_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: String,
    source: String,
    #[serde(default)]
    about: Vec<String>,
    #[serde(default)]
    choices: Vec<String>,
    engines: Vec<Engine>,
    schemes: Vec<Scheme>,
    scale: BTreeMap<Scale, ForScale>,
    #[serde(default)]
    engine: BTreeMap<Engine, ForEngine>,
    #[serde(default)]
    scheme: BTreeMap<Scheme, ForScheme>,
    #[serde(default)]
    vary: Vec<Vary>,
    scenario: toml::Table,
    #[serde(default)]
    claim: Vec<Claim>,
    #[serde(default)]
    plot: Vec<Plot>,
}

/// Settings for one scale.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct ForScale {
    seeds: u32,
    #[serde(default)]
    set: toml::Table,
    #[serde(default)]
    only: BTreeMap<String, Vec<toml::Value>>,
}

/// How many seeds an engine runs, where that is not as at the scale.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged, expecting = "write a number of seeds, or one for some scales, as in { paper = 20 }")]
enum Seeds {
    Always(u32),
    At(BTreeMap<Scale, u32>),
}

impl Default for Seeds {
    fn default() -> Self {
        Seeds::At(BTreeMap::new())
    }
}

impl Seeds {
    fn at(&self, scale: Scale) -> Option<u32> {
        match self {
            Seeds::Always(seeds) => Some(*seeds),
            Seeds::At(scales) => scales.get(&scale).copied(),
        }
    }
}

/// Settings for one engine.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct ForEngine {
    #[serde(default)]
    seeds: Seeds,
    #[serde(default)]
    set: toml::Table,
    #[serde(default)]
    only: BTreeMap<String, Vec<toml::Value>>,
    #[serde(default)]
    schemes: Option<Vec<Scheme>>,
}

/// Settings for one scheme: TCP takes one path where others spray, and not every scheme has a chain of relays.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct ForScheme {
    #[serde(default)]
    set: toml::Table,
    #[serde(default)]
    only: BTreeMap<String, Vec<toml::Value>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vary {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    key: Option<String>,
    #[serde(default)]
    values: Vec<toml::Value>,
    #[serde(default)]
    points: Vec<VaryPoint>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VaryPoint {
    /// Text or number.
    label: toml::Value,
    set: toml::Table,
}

/// Changes by scales, engines and schemes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Overrides {
    scale: BTreeMap<Scale, ForScale>,
    engine: BTreeMap<Engine, ForEngine>,
    scheme: BTreeMap<Scheme, ForScheme>,
}

impl Overrides {
    pub(super) fn seeds(&self, engine: Engine, scale: Scale) -> u32 {
        let of_engine = self.engine.get(&engine).and_then(|e| e.seeds.at(scale));
        of_engine.or(self.scale.get(&scale).map(|s| s.seeds)).unwrap_or(0)
    }

    /// Settings of engine and scale, those of the scale first.
    pub(super) fn set(&self, engine: Engine, scale: Scale) -> Vec<(&String, &toml::Value)> {
        let of_scale = self.scale.get(&scale).into_iter().flat_map(|s| &s.set);
        of_scale.chain(self.engine.get(&engine).into_iter().flat_map(|e| &e.set)).collect()
    }

    /// Settings of a scheme.
    pub(super) fn set_by_scheme(&self, scheme: Scheme) -> impl Iterator<Item = (&String, &toml::Value)> {
        self.scheme.get(&scheme).into_iter().flat_map(|s| &s.set)
    }

    /// Whether a scheme runs at a point of an axis.
    pub(super) fn runs_at(&self, scheme: Scheme, axis: &str, label: &str) -> bool {
        let only = self.scheme.get(&scheme).and_then(|s| s.only.get(axis));
        only.is_none_or(|values| values.iter().any(|value| axis::label(value) == label))
    }

    pub(super) fn schemes<'a>(&'a self, engine: Engine, all: &'a [Scheme]) -> &'a [Scheme] {
        self.engine.get(&engine).and_then(|e| e.schemes.as_deref()).unwrap_or(all)
    }

    pub(super) fn restricted(&self, axis: &Axis, engine: Engine, scale: Scale) -> Axis {
        let of_scale = self.scale.get(&scale).and_then(|s| s.only.get(&axis.name));
        let of_engine = self.engine.get(&engine).and_then(|e| e.only.get(&axis.name));
        let listed = |list: Option<&Vec<toml::Value>>, label: &str| {
            list.is_none_or(|values| values.iter().any(|value| axis::label(value) == label))
        };
        let points = axis.points.iter().filter(|p| listed(of_scale, &p.label) && listed(of_engine, &p.label));
        Axis { name: axis.name.clone(), points: points.cloned().collect() }
    }
}

/// Reads an experiment file and checks that everything in it fits together.
pub(super) fn parse(id: &str, text: &str) -> Result<Experiment, ExperimentError> {
    let file: File = toml::from_str(text)
        .map_err(|e| ExperimentError::Syntax { id: id.to_owned(), message: e.to_string() })?;
    let axes = file.vary.into_iter().enumerate().map(|(i, vary)| axis_of(id, i, vary));
    let experiment = Experiment {
        id: id.to_owned(),
        title: file.title,
        source: file.source,
        about: file.about,
        choices: file.choices,
        engines: file.engines,
        scales: file.scale.keys().copied().collect(),
        axes: axes.collect::<Result<_, _>>()?,
        schemes: file.schemes,
        claims: file.claim,
        plots: file.plot,
        template: file.scenario,
        overrides: Overrides { scale: file.scale, engine: file.engine, scheme: file.scheme },
    };
    check_lists(&experiment)?;
    check_overrides(&experiment)?;
    check_references(&experiment)?;
    for engine in &experiment.engines {
        for scale in &experiment.scales {
            for job in expand::jobs(&experiment, *engine, *scale, Some(1))? {
                let coordinates = job.point.iter().map(|(axis, label)| format!("{axis} = {label}, "));
                job.scenario.check().map_err(|error| ExperimentError::Scenario {
                    id: id.to_owned(),
                    point: format!("{}{}, {engine}, {scale}", coordinates.collect::<String>(), job.scheme),
                    message: error.to_string(),
                })?;
            }
        }
    }
    Ok(experiment)
}

fn field(id: &str, field: impl Into<String>, reason: impl Into<String>) -> ExperimentError {
    ExperimentError::Field { id: id.to_owned(), field: field.into(), reason: reason.into() }
}

fn axis_of(id: &str, index: usize, vary: Vary) -> Result<Axis, ExperimentError> {
    let place = format!("vary {}", index + 1);
    let last = vary.key.as_ref().and_then(|key| key.rsplit('.').next()).map(str::to_owned);
    let name = vary.name.or(last).ok_or_else(|| field(id, &place, "give it a name or a key"))?;
    let value_point = |key: &String, value: toml::Value| AxisPoint {
        label: axis::label(&value),
        number: axis::number(&value),
        set: vec![(key.clone(), value)],
    };
    let points: Vec<AxisPoint> = match (vary.key, vary.values.is_empty(), vary.points.is_empty()) {
        (Some(key), false, true) => vary.values.into_iter().map(|value| value_point(&key, value)).collect(),
        (None, true, false) => vary
            .points
            .into_iter()
            .map(|point| AxisPoint {
                label: axis::label(&point.label),
                number: axis::number(&point.label),
                set: point.set.into_iter().collect(),
            })
            .collect(),
        _ => return Err(field(id, place, "give either `key` with `values`, or `name` with `points`")),
    };
    let mut labels = BTreeSet::new();
    if let Some(twice) = points.iter().find(|p| !labels.insert(p.label.clone())) {
        return Err(field(id, format!("axis {name}"), format!("value {} is listed twice", twice.label)));
    }
    Ok(Axis { name, points })
}

fn check_lists(experiment: &Experiment) -> Result<(), ExperimentError> {
    let id = &experiment.id;
    if experiment.engines.is_empty() {
        return Err(field(id, "engines", "list at least one of packet, flow, fluid, trees, timed, netns"));
    }
    if experiment.schemes.is_empty() {
        return Err(field(id, "schemes", "list at least one, for example \"ppush(1,1)\""));
    }
    if experiment.scales.is_empty() {
        return Err(field(id, "scale", "write [scale.paper] and [scale.small] with their seeds"));
    }
    let mut names: BTreeSet<&str> = ["scheme", "seed"].into();
    let reserved = [TaskRow::COLUMNS, FlowRow::COLUMNS, SampleRow::COLUMNS, MeasureRow::COLUMNS];
    names.extend(reserved.into_iter().flatten());
    for axis in &experiment.axes {
        if !names.insert(&axis.name) {
            let reason = "the name is taken by a column of the tables or another axis; give another `name`";
            return Err(field(id, format!("axis {}", axis.name), reason));
        }
    }
    let twice = |list: &[String]| {
        let mut seen = BTreeSet::new();
        list.iter().find(|item| !seen.insert((*item).clone())).cloned()
    };
    if let Some(scheme) = twice(&experiment.schemes.iter().map(Scheme::to_string).collect::<Vec<_>>()) {
        return Err(field(id, "schemes", format!("{scheme} is listed twice")));
    }
    if let Some(engine) = twice(&experiment.engines.iter().map(Engine::to_string).collect::<Vec<_>>()) {
        return Err(field(id, "engines", format!("{engine} is listed twice")));
    }
    Ok(())
}

fn check_overrides(experiment: &Experiment) -> Result<(), ExperimentError> {
    let id = &experiment.id;
    let overrides = &experiment.overrides;
    if let Some(engine) = overrides.engine.keys().find(|e| !experiment.engines.contains(e)) {
        return Err(field(id, format!("engine.{engine}"), "this engine is not listed in `engines`"));
    }
    let of_scale = overrides.scale.iter().map(|(s, f)| (format!("scale.{s}"), vec![f.seeds], &f.only));
    let all = |seeds: &Seeds| Scale::ALL.into_iter().filter_map(|scale| seeds.at(scale)).collect();
    let of_engine = overrides.engine.iter().map(|(e, f)| (format!("engine.{e}"), all(&f.seeds), &f.only));
    if let Some(scheme) = overrides.scheme.keys().find(|s| !experiment.schemes.contains(s)) {
        return Err(field(id, format!("scheme.{scheme}"), "this scheme is not listed in `schemes`"));
    }
    let of_scheme = overrides.scheme.iter().map(|(s, f)| (format!("scheme.{s}"), Vec::new(), &f.only));
    for (place, seeds, only) in of_scale.chain(of_engine).chain(of_scheme) {
        if seeds.iter().any(|n| *n == 0 || *n > MOST_SEEDS) {
            return Err(field(id, format!("{place}.seeds"), format!("write 1 to {MOST_SEEDS}")));
        }
        for (name, values) in only {
            let Some(axis) = experiment.axes.iter().find(|axis| axis.name == *name) else {
                return Err(field(id, format!("{place}.only.{name}"), "there is no axis of that name"));
            };
            if let Some(value) = values.iter().find(|value| axis.point(&axis::label(value)).is_none()) {
                let reason =
                    format!("{} is not among the axis' values: {}", axis::label(value), axis.labels());
                return Err(field(id, format!("{place}.only.{name}"), reason));
            }
        }
    }
    for (engine, only) in &overrides.engine {
        let schemes = only.schemes.iter().flatten();
        if let Some(scheme) = schemes.into_iter().find(|s| !experiment.schemes.contains(s)) {
            let reason = format!("{scheme} is not listed in `schemes`");
            return Err(field(id, format!("engine.{engine}.schemes"), reason));
        }
    }
    for engine in &experiment.engines {
        for scale in &experiment.scales {
            check_size(experiment, *engine, *scale)?;
        }
    }
    Ok(())
}

fn check_size(experiment: &Experiment, engine: Engine, scale: Scale) -> Result<(), ExperimentError> {
    let id = &experiment.id;
    let mut jobs = experiment.overrides.schemes(engine, &experiment.schemes).len();
    if jobs == 0 {
        return Err(field(id, format!("engine.{engine}.schemes"), "the list is empty"));
    }
    for axis in experiment.axes_at(engine, scale) {
        if axis.points.is_empty() {
            let reason = format!("no value is left on the {engine} engine at {scale} scale");
            return Err(field(id, format!("axis {}", axis.name), reason));
        }
        jobs = jobs.saturating_mul(axis.points.len());
    }
    jobs = jobs.saturating_mul(experiment.overrides.seeds(engine, scale) as usize);
    if jobs > MOST_JOBS {
        return Err(field(id, "vary", format!("{jobs} runs at {scale} scale; at most {MOST_JOBS}")));
    }
    Ok(())
}

fn check_references(experiment: &Experiment) -> Result<(), ExperimentError> {
    let id = &experiment.id;
    let names = Names { axes: &experiment.axes, schemes: &experiment.schemes };
    let reference =
        |place: String, reason: String| ExperimentError::Reference { id: id.clone(), place, reason };
    let mut judged = BTreeSet::new();
    for claim in &experiment.claims {
        let place = || format!("claim {}", claim.id);
        if claim.id.trim().is_empty() {
            return Err(reference("claim".to_owned(), "the id is empty".to_owned()));
        }
        let of_claim = claim.engines.as_ref().unwrap_or(&experiment.engines);
        if let Some(engine) = of_claim.iter().find(|e| !experiment.engines.contains(e)) {
            return Err(reference(place(), format!("the {engine} engine is not listed in `engines`")));
        }
        let at_scales = claim.scales.as_ref().unwrap_or(&experiment.scales);
        if let Some(scale) = at_scales.iter().find(|s| !experiment.scales.contains(s)) {
            return Err(reference(place(), format!("there is no [scale.{scale}]")));
        }
        for engine in of_claim {
            for scale in at_scales {
                if !judged.insert((&claim.id, *engine, *scale)) {
                    let reason = format!("it is made twice of the {engine} engine at {scale} scale");
                    return Err(reference(place(), reason));
                }
            }
        }
        names.check_claim(claim).map_err(|reason| reference(place(), reason))?;
    }
    for plot in &experiment.plots {
        plot.check(&names).map_err(|reason| reference(format!("plot '{}'", plot.title), reason))?;
    }
    Ok(())
}
