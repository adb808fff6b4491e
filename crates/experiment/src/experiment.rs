//! An experiment: one TOML file with a scenario, the axes along which it varies, the schemes that are compared, and the
//! claims that the results must bear out.
//!
//! [`Experiment::parse`] reads the text, [`Experiment::jobs`] gives every run (point x scheme x seed) with a fully typed
//! [`Scenario`], [`Experiment::judge`] turns the collected tables into verdicts. The code knows no figure: what is
//! particular to one stands in its file. No files or threads here.

pub use crate::axis::{Axis, AxisPoint};
use crate::claim::{Claim, Context, Verdict};
pub use crate::engine::{Engine, Scale};
use crate::scenario::{Scenario, Scheme};
use crate::table::{Cell, TableError, Tables};
use crate::text::fnv1a;

mod error;
mod expand;
mod file;
mod plot;

pub use error::ExperimentError;
pub use plot::{Figure, Plot, PlotKind, Point, Series};

/// An experiment, as its file says.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// The file's place under `experiments/`, without its ending: `ppush/fig8`.
    pub id: String,
    /// One line.
    pub title: String,
    /// The paper's section and figure.
    pub source: String,
    /// Statement of what it shows, in sentences.
    pub about: Vec<String>,
    /// Choices where the paper leaves something open, a sentence each.
    pub choices: Vec<String>,
    /// Engines that can run it, the main one first.
    pub engines: Vec<Engine>,
    /// Scales at which it runs.
    pub scales: Vec<Scale>,
    /// Axes that vary, outermost first; a job for every combination.
    pub axes: Vec<Axis>,
    /// Schemes to compare.
    pub schemes: Vec<Scheme>,
    /// Claims that the results must bear out.
    pub claims: Vec<Claim>,
    /// Plots to draw.
    pub plots: Vec<Plot>,
    /// The scenario before axes, overrides and scheme are filled in.
    pub template: toml::Table,
    overrides: file::Overrides,
}

/// One run: everything that decides it.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Axis and label, in the order of the axes.
    pub point: Vec<(String, String)>,
    /// The scheme, as it is written.
    pub scheme: String,
    /// From 1.
    pub seed: u64,
    /// Everything else.
    pub scenario: Scenario,
    engine: Engine,
    canonical: String,
}

impl Experiment {
    /// Reads an experiment. Every scenario that it can give is built once at every scale and engine, so that a file that
    /// parses can run.
    ///
    /// # Errors
    /// [`ExperimentError`] with the line or the field, and what to write instead.
    pub fn parse(id: &str, text: &str) -> Result<Experiment, ExperimentError> {
        file::parse(id, text)
    }

    /// All runs at that scale: the axes' points outermost, then schemes, then seeds 1 to n. `seeds` replaces the file's
    /// number of seeds.
    ///
    /// # Errors
    /// [`ExperimentError::NoEngine`] or [`ExperimentError::NoScale`] if the file does not list it.
    pub fn jobs(
        &self,
        engine: Engine,
        scale: Scale,
        seeds: Option<u32>,
    ) -> Result<Vec<Job>, ExperimentError> {
        expand::jobs(self, engine, scale, seeds)
    }

    /// How many seeds the file asks for.
    pub fn seeds(&self, engine: Engine, scale: Scale) -> u32 {
        self.overrides.seeds(engine, scale)
    }

    /// Judges every claim that is made of this engine at this scale, in the file's order.
    ///
    /// `tables` has the rows of all jobs with their coordinates: see [`Job::gather`]. Schemes and points that have no
    /// rows make a claim about them pending, not missed.
    pub fn judge(&self, engine: Engine, scale: Scale, tables: &Tables) -> Vec<Verdict> {
        let axes = self.axes_at(engine, scale);
        let context = Context { experiment: &self.id, engine, scale, tables, axes: &axes };
        self.claims.iter().filter(|c| c.is_made_of(engine, scale)).map(|c| c.judge(&context)).collect()
    }

    /// The claims that [`Experiment::judge`] would judge, each pending for that reason.
    pub fn pending(&self, engine: Engine, scale: Scale, reason: &str) -> Vec<Verdict> {
        let claims = self.claims.iter().filter(|c| c.is_made_of(engine, scale));
        claims.map(|c| c.pending(&self.id, engine, scale, reason.to_owned())).collect()
    }

    /// The axes with the values that are run at that scale.
    pub fn axes_at(&self, engine: Engine, scale: Scale) -> Vec<Axis> {
        self.axes.iter().map(|axis| self.overrides.restricted(axis, engine, scale)).collect()
    }
}

impl Job {
    /// A short name, safe for files, that changes whenever anything that decides the run changes: scheme and seed to
    /// read, and a hash of engine, canonical scenario and seed.
    pub fn key(&self) -> String {
        let scheme: String = self.scheme.chars().filter(char::is_ascii_alphanumeric).collect();
        let whole = format!("{}\n{}\n{}", self.engine, self.seed, self.canonical);
        format!("{scheme}-s{}-{:016x}", self.seed, fnv1a(whole.as_bytes()))
    }

    /// Engine that runs it.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// The resolved scenario as TOML, defaults and all, keys sorted: what [`Job::key`] hashes.
    pub fn canonical(&self) -> &str {
        &self.canonical
    }

    /// Adds this run's coordinates to its tables: `scheme`, `seed` and one column per axis.
    ///
    /// # Errors
    /// [`TableError::ColumnTwice`] if the tables have one of them already.
    pub fn coordinate(&self, tables: &mut Tables) -> Result<(), TableError> {
        tables.add_constant("scheme", &Cell::Text(self.scheme.clone()))?;
        tables.add_constant("seed", &Cell::U64(self.seed))?;
        for (axis, label) in &self.point {
            tables.add_constant(axis, &Cell::Text(label.clone()))?;
        }
        Ok(())
    }

    /// Adds this run's coordinates to its tables and puts them under those of other runs; start with
    /// [`Tables::gathering`].
    ///
    /// # Errors
    /// [`TableError`] if the run's tables have other columns.
    pub fn gather(&self, mut tables: Tables, into: &mut Tables) -> Result<(), TableError> {
        self.coordinate(&mut tables)?;
        into.append(tables)
    }
}
