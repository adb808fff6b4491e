//! Results at paper scale, kept beside the experiments: one small JSON file per experiment that a change can be read in.
//!
//! A file holds, per engine: what was run, the verdicts, a line of means per run, and the points of every plot. Raw rows
//! are not kept; they come again from the same file, seeds and code. The same summary of one engine, of whatever scale, is
//! beside the rows in the folder that `lab run` writes.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::{fmt, fs};

use headwater_experiment::claim::{Outcome, Verdict};
use headwater_experiment::experiment::{Engine, Experiment, Figure, Job, PlotKind, Point, Scale};
use headwater_experiment::stats;
use headwater_experiment::table::{Column, Tables};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::files::write_whole;
use super::{LabError, Machine};

/// The summary of an engine's runs beside their rows.
const SUMMARY: &str = "summary.json";
/// A line per attempt to store something, in the folder of results.
const ATTEMPTS: &str = "attempts.jsonl";
/// The measure of a run in real time that counts the tries before it whose timing was invalid.
const INVALID_TRIES: &str = "invalid_tries";
/// More points than this in a line are thinned before they are kept.
const MOST_POINTS: usize = 600;

/// Stored record of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stored {
    /// Its id.
    pub experiment: String,
    /// The latest run of each engine.
    pub runs: Vec<StoredRun>,
}

/// Stored record of one engine's runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredRun {
    /// Engine that computed them.
    pub engine: Engine,
    /// How large they were.
    pub scale: Scale,
    /// Seeds 1 to this, for every point and scheme.
    pub seeds: u32,
    /// The commit that was checked out.
    pub commit: Option<String>,
    /// The code that computed them, as a hash of its sources.
    pub code: String,
    /// Facts that tell whether it is still what today's code computes.
    #[serde(default, skip_serializing_if = "Provenance::is_unknown")]
    pub provenance: Provenance,
    /// Where and when, if they took the time that they measure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
    /// Runs that could not be made, and why; they count for nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<SkippedRun>,
    /// The claims, judged.
    pub verdicts: Vec<Verdict>,
    /// A line per run.
    pub means: Vec<Means>,
    /// Figures that are drawn.
    pub figures: Vec<Drawn>,
}

/// Origin of a result, beside its code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// Hash of the keys of all runs.
    pub runs: Option<String>,
    /// Hash of the experiment's tables at small scale.
    pub tables: Option<String>,
}

impl Provenance {
    /// Whether nothing is known.
    fn is_unknown(&self) -> bool {
        *self == Provenance::default()
    }
}

/// A run that could not be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedRun {
    /// Experiment, point, scheme, seed and key.
    pub run: String,
    /// The reason.
    pub reason: String,
}

impl fmt::Display for SkippedRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.run, self.reason)
    }
}

/// Heading of an experiment in a report, before its results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heading {
    /// Its id.
    pub experiment: String,
    /// Its title.
    pub title: String,
    /// The paper's section and figure.
    pub source: String,
    /// Statement of what it shows, in sentences.
    pub about: Vec<String>,
    /// Choices where the paper leaves something open, a sentence each.
    pub choices: Vec<String>,
}

/// One engine's runs with what a report needs to know of the experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Summary {
    #[serde(flatten)]
    pub(super) heading: Heading,
    pub(super) run: StoredRun,
}

/// One run in a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Means {
    /// Axis and value.
    pub point: BTreeMap<String, String>,
    /// The scheme.
    pub scheme: String,
    /// The seed.
    pub seed: u64,
    /// Tasks in all.
    pub tasks: u64,
    /// Tasks that were done.
    pub finished: u64,
    /// Mean completion time of those, seconds.
    pub tct_s: Option<f64>,
    /// The same over the workload's normaliser.
    pub normalised: Option<f64>,
    /// The run's scalars, without those of single links.
    pub measures: BTreeMap<String, f64>,
}

/// The points of a plot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Drawn {
    /// Above it.
    pub title: String,
    /// Its kind.
    pub kind: Kind,
    /// With unit.
    pub x_label: String,
    /// With unit.
    pub y_label: String,
    /// Whether the horizontal scale is logarithmic.
    #[serde(default)]
    pub log_x: bool,
    /// Whether the vertical scale is logarithmic.
    #[serde(default)]
    pub log_y: bool,
    /// Names of the places 0, 1, ... on the horizontal scale, where it has no numbers.
    pub categories: Vec<String>,
    /// Lines, or the bars of one colour.
    pub series: Vec<Line>,
}

/// How a plot is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A line with a 95 % band, along an axis.
    Lines,
    /// Bars with 95 % whiskers.
    Bars,
    /// Quartiles over seeds, with the mean.
    Box,
    /// A cumulative distribution.
    Cdf,
    /// A value over time.
    Series,
}

/// A line, or the bars of one colour.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// In the legend.
    pub name: String,
    /// From left to right: x, y; where there is an interval, its ends; where there are quartiles, these behind them.
    pub points: Vec<Vec<Option<f64>>>,
}

impl Heading {
    /// Of an experiment.
    pub(super) fn of(experiment: &Experiment) -> Heading {
        Heading {
            experiment: experiment.id.clone(),
            title: experiment.title.clone(),
            source: experiment.source.clone(),
            about: experiment.about.clone(),
            choices: experiment.choices.clone(),
        }
    }
}

impl Means {
    /// Tries before this run whose timing was invalid.
    pub(super) fn invalid_tries(&self) -> u64 {
        // A count, so there is nothing to lose.
        self.measures.get(INVALID_TRIES).map_or(0, |tries| *tries as u64)
    }

    /// Of a run's tables, before coordinates are added.
    pub(super) fn of(job: &Job, tables: &Tables) -> Means {
        let numbers = |name: &str| match tables.tasks.column(name) {
            Some(Column::F64(values)) => values.iter().copied().filter(|x| x.is_finite()).collect(),
            _ => Vec::new(),
        };
        let done: Vec<f64> = numbers("tct_s");
        let names = tables.measures.column("name");
        let values = tables.measures.column("value");
        let measures = names.zip(values).into_iter().flat_map(|(names, values)| {
            (0..names.len()).filter_map(|row| Some((names.text(row), values.number(row)?)))
        });
        Means {
            point: job.point.iter().cloned().collect(),
            scheme: job.scheme.clone(),
            seed: job.seed,
            tasks: tables.tasks.rows() as u64,
            finished: done.len() as u64,
            tct_s: stats::mean(&done).map(short),
            normalised: stats::mean(&numbers("normalised")).map(short),
            // `utilisation a-b` and its like are about one link.
            measures: measures
                .filter(|(name, value)| !name.contains(' ') && value.is_finite())
                .map(|(name, value)| (name, short(value)))
                .collect(),
        }
    }
}

impl Drawn {
    /// Of a figure, its numbers cut to what can be seen.
    pub(super) fn of(figure: &Figure) -> Drawn {
        let kind = match figure.kind {
            PlotKind::Lines => Kind::Lines,
            PlotKind::Bars => Kind::Bars,
            PlotKind::Box => Kind::Box,
            PlotKind::Cdf => Kind::Cdf,
            PlotKind::Series => Kind::Series,
        };
        let point = |p: &Point| {
            let mut row = vec![Some(short(p.x)), Some(short(p.y))];
            let quartiles = p.quartiles.filter(|_| kind == Kind::Box);
            if p.interval.is_some() || quartiles.is_some() {
                let ends = p.interval.filter(|(low, high)| low.is_finite() && high.is_finite());
                row.extend([ends.map(|e| short(e.0)), ends.map(|e| short(e.1))]);
            }
            row.extend(quartiles.into_iter().flat_map(|(low, high)| [Some(short(low)), Some(short(high))]));
            row
        };
        let line = |series: &headwater_experiment::experiment::Series| {
            let points = match kind {
                Kind::Series | Kind::Cdf => thinned(&series.points),
                _ => series.points.clone(),
            };
            Line { name: series.name.clone(), points: points.iter().map(point).collect() }
        };
        Drawn {
            title: figure.title.clone(),
            kind,
            x_label: figure.x_label.clone(),
            y_label: figure.y_label.clone(),
            log_x: figure.log_x,
            log_y: figure.log_y,
            categories: figure.categories.clone(),
            series: figure.series.iter().map(line).collect(),
        }
    }
}

/// Six digits: more cannot be seen, and changes nobody would understand stay out of the file.
fn short(x: f64) -> f64 {
    format!("{x:.5e}").parse().unwrap_or(x)
}

/// The lowest and the highest point of each stretch, so that peaks survive.
fn thinned(points: &[Point]) -> Vec<Point> {
    if points.len() <= MOST_POINTS {
        return points.to_vec();
    }
    let stretch = points.len().div_ceil(MOST_POINTS / 2);
    let extremes = points.chunks(stretch).flat_map(|part| {
        let by_height = |a: &&(usize, &Point), b: &&(usize, &Point)| a.1.y.total_cmp(&b.1.y);
        let numbered: Vec<(usize, &Point)> = part.iter().enumerate().collect();
        let low = numbered.iter().min_by(by_height).map_or(0, |p| p.0);
        let high = numbered.iter().max_by(by_height).map_or(0, |p| p.0);
        let mut both = vec![low.min(high), low.max(high)];
        both.dedup();
        both.into_iter().map(|at| part[at]).collect::<Vec<_>>()
    });
    extremes.collect()
}

impl StoredRun {
    /// How many of its verdicts are that.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.verdicts.iter().filter(|v| v.verdict == outcome).count()
    }

    /// `20 runs, 3 tries invalid, 1 run skipped`.
    pub fn amount(&self) -> String {
        amount(self.means.len(), self.means.iter().map(Means::invalid_tries).sum(), self.skipped.len())
    }
}

/// `20 runs, 3 tries invalid, 1 run skipped`.
pub(crate) fn amount(runs: usize, invalid_tries: u64, skipped: usize) -> String {
    let of = |count: u64, one: &str, more: &str| format!("{count} {}", if count == 1 { one } else { more });
    let mut text = of(runs as u64, "run", "runs");
    if invalid_tries > 0 {
        text += &format!(", {} invalid", of(invalid_tries, "try", "tries"));
    }
    if skipped > 0 {
        text += &format!(", {} skipped", of(skipped as u64, "run", "runs"));
    }
    text
}

/// Where an experiment's results are.
pub(super) fn path(folder: &Path, experiment: &str) -> PathBuf {
    folder.join(format!("{experiment}.json"))
}

/// The stored record of an experiment, if there is one.
///
/// # Errors
/// [`LabError::Read`] and [`LabError::Results`].
pub fn load(folder: &Path, experiment: &str) -> Result<Option<Stored>, LabError> {
    let path = path(folder, experiment);
    let Some(stored) = read::<Stored>(&path)? else { return Ok(None) };
    if stored.experiment != experiment {
        let reason = format!("it is about {}", stored.experiment);
        return Err(LabError::Results { path, reason });
    }
    Ok(Some(stored))
}

/// A JSON file, if it is there.
fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, LabError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(LabError::read(path, source)),
    };
    let wrong =
        |error: serde_json::Error| LabError::Results { path: path.to_owned(), reason: error.to_string() };
    serde_json::from_str(&text).map(Some).map_err(wrong)
}

/// Puts an engine's results beside their rows.
///
/// # Errors
/// [`LabError::Write`].
pub(super) fn summarise(folder: &Path, heading: Heading, run: &StoredRun) -> Result<(), LabError> {
    let path = folder.join(SUMMARY);
    let failed = |source| LabError::write(&path, "--out", source);
    let head = serde_json::to_string(&heading).map_err(|e| failed(e.into()))?;
    let head = head.strip_suffix('}').unwrap_or(&head);
    let run = written_run(run).map_err(|e| failed(e.into()))?;
    let text = format!("{head},\n  \"run\": {run}\n}}\n");
    write_whole(&path, |file| file.write_all(text.as_bytes())).map_err(failed)
}

/// All summaries below a folder that `lab run` wrote, ordered by path.
///
/// # Errors
/// [`LabError::Read`] and [`LabError::Results`].
pub(super) fn summaries(folder: &Path) -> Result<Vec<Summary>, LabError> {
    let failed = |source| LabError::read(folder, source);
    let mut below = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // Not through links, which may lead round in a circle.
        if entry.file_type().map_err(failed)?.is_dir() {
            below.push(entry.path());
        }
    }
    below.sort();
    let mut all: Vec<Summary> = read(&folder.join(SUMMARY))?.into_iter().collect();
    for folder in below {
        all.extend(summaries(&folder)?);
    }
    Ok(all)
}

/// Keeps an engine's results in place of its earlier ones; those of other engines stay, and so does a line about every attempt.
///
/// # Errors
/// As [`load`], and [`LabError::Write`].
pub(super) fn store(folder: &Path, experiment: &str, run: StoredRun) -> Result<PathBuf, LabError> {
    attempted(folder, experiment, &run)?;
    let earlier = load(folder, experiment)?.map(|stored| stored.runs).unwrap_or_default();
    let mut runs: Vec<StoredRun> = earlier.into_iter().filter(|other| other.engine != run.engine).collect();
    runs.push(run);
    runs.sort_by_key(|run| run.engine);
    let path = path(folder, experiment);
    let parent = path.parent().unwrap_or(folder);
    let failed = |source| LabError::write(&path, "--results", source);
    fs::create_dir_all(parent).map_err(failed)?;
    let text = written(&Stored { experiment: experiment.to_owned(), runs }).map_err(|e| failed(e.into()))?;
    write_whole(&path, |file| file.write_all(text.as_bytes())).map_err(failed)?;
    Ok(path)
}

/// A line about an attempt, so that none is forgotten for a better one.
#[derive(Serialize)]
struct Attempt<'a> {
    experiment: &'a str,
    engine: Engine,
    seeds: u32,
    commit: Option<&'a str>,
    code: &'a str,
    /// Runs that were made, tries before them that were invalid, and runs that could not be made.
    runs: usize,
    invalid_tries: u64,
    skipped: usize,
    /// Claim, what was measured, and the verdict.
    claims: Vec<(&'a str, Option<f64>, Outcome)>,
}

/// Appends a line to the log of attempts.
fn attempted(folder: &Path, experiment: &str, run: &StoredRun) -> Result<(), LabError> {
    let path = folder.join(ATTEMPTS);
    let failed = |source| LabError::write(&path, "--results", source);
    let attempt = Attempt {
        experiment,
        engine: run.engine,
        seeds: run.seeds,
        commit: run.commit.as_deref(),
        code: &run.code,
        runs: run.means.len(),
        invalid_tries: run.means.iter().map(Means::invalid_tries).sum(),
        skipped: run.skipped.len(),
        claims: run
            .verdicts
            .iter()
            .map(|it| (it.claim.as_str(), it.measured.map(short), it.verdict))
            .collect(),
    };
    let line = serde_json::to_string(&attempt).map_err(|error| failed(error.into()))? + "\n";
    fs::create_dir_all(folder).map_err(failed)?;
    let mut file = fs::OpenOptions::new().create(true).append(true).open(&path).map_err(failed)?;
    file.write_all(line.as_bytes()).map_err(failed)
}

/// JSON with a verdict, a run's means or a line of a plot per line of text.
fn written(stored: &Stored) -> Result<String, serde_json::Error> {
    let runs = stored.runs.iter().map(written_run).collect::<Result<Vec<_>, _>>()?;
    let id = serde_json::to_string(&stored.experiment)?;
    Ok(format!("{{\n  \"experiment\": {id},\n  \"runs\": {}\n}}\n", list(&runs, "  ")))
}

fn written_run(run: &StoredRun) -> Result<String, serde_json::Error> {
    let mut figures = Vec::new();
    for figure in &run.figures {
        let bare = serde_json::to_string(&Drawn { series: Vec::new(), ..figure.clone() })?;
        // The list of lines is the last field.
        let head = bare.strip_suffix("[]}").unwrap_or(&bare);
        figures.push(format!("{head}{}}}", list(&each(&figure.series)?, "      ")));
    }
    let mut head = format!(
        "\"engine\": {}, \"scale\": {}, \"seeds\": {}, \"commit\": {}, \"code\": {}",
        serde_json::to_string(&run.engine)?,
        serde_json::to_string(&run.scale)?,
        run.seeds,
        serde_json::to_string(&run.commit)?,
        serde_json::to_string(&run.code)?,
    );
    if !run.provenance.is_unknown() {
        head += &format!(",\n      \"provenance\": {}", serde_json::to_string(&run.provenance)?);
    }
    if let Some(machine) = &run.machine {
        head += &format!(",\n      \"machine\": {}", serde_json::to_string(machine)?);
    }
    if !run.skipped.is_empty() {
        head += &format!(",\n      \"skipped\": {}", list(&each(&run.skipped)?, "      "));
    }
    Ok(format!(
        "{{\n      {head},\n      \"verdicts\": {},\n      \"means\": {},\n      \"figures\": {}\n    }}",
        list(&each(&run.verdicts)?, "      "),
        list(&each(&run.means)?, "      "),
        list(&figures, "      "),
    ))
}

fn each(values: &[impl Serialize]) -> Result<Vec<String>, serde_json::Error> {
    values.iter().map(serde_json::to_string).collect()
}

fn list(items: &[String], indent: &str) -> String {
    match items.is_empty() {
        true => "[]".to_owned(),
        false => format!("[\n{indent}  {}\n{indent}]", items.join(&format!(",\n{indent}  "))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    fn figure(points: usize, kind: PlotKind) -> Figure {
        let at = |i: usize| {
            // A lone peak that thinning by steps would lose.
            let y = if i == 777 { 9.0 } else { (i % 2) as f64 / 3.0 };
            Point { x: i as f64, y, interval: Some((y - 1.0, y + 1.0)), quartiles: Some((y, y)) }
        };
        let series = headwater_experiment::experiment::Series {
            name: "ppush(1,1)".into(),
            points: (0..points).map(at).collect(),
        };
        Figure {
            title: "Window".into(),
            kind,
            x_label: "time (s)".into(),
            y_label: "window (packets)".into(),
            log_x: false,
            log_y: true,
            categories: Vec::new(),
            series: vec![series],
        }
    }

    fn run(engine: Engine) -> StoredRun {
        StoredRun {
            engine,
            scale: Scale::Paper,
            seeds: 5,
            commit: Some("c0ffee".into()),
            code: "c0de".into(),
            provenance: Provenance { runs: Some("0123".into()), tables: None },
            machine: None,
            skipped: Vec::new(),
            verdicts: fixture::verdicts("ppush/fig8", engine),
            means: vec![Means {
                point: [("load".to_owned(), "0.9".to_owned())].into(),
                scheme: "ppush(1,1)".into(),
                seed: 1,
                tasks: 3,
                finished: 2,
                tct_s: Some(0.125),
                normalised: None,
                measures: [("drops".to_owned(), 0.0)].into(),
            }],
            figures: vec![Drawn::of(&figure(3, PlotKind::Box)), Drawn::of(&figure(2, PlotKind::Lines))],
        }
    }

    #[test]
    fn what_is_stored_is_loaded_again_and_other_engines_stay() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(load(folder.path(), "ppush/fig8").unwrap(), None);
        store(folder.path(), "ppush/fig8", run(Engine::Packet)).unwrap();
        store(folder.path(), "ppush/fig8", run(Engine::Fluid)).unwrap();
        let newer = StoredRun { seeds: 20, ..run(Engine::Packet) };
        store(folder.path(), "ppush/fig8", newer.clone()).unwrap();
        let stored = load(folder.path(), "ppush/fig8").unwrap().unwrap();
        assert_eq!(stored.runs, [newer, run(Engine::Fluid)]);
        let attempts = fs::read_to_string(folder.path().join(ATTEMPTS)).unwrap();
        let seeds: Vec<_> = attempts
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["seeds"].as_u64().unwrap())
            .collect();
        assert_eq!(seeds, [5, 5, 20], "an attempt is not forgotten for a later one");
    }

    #[test]
    fn a_file_has_a_line_per_verdict_and_run_so_that_changes_can_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = store(folder.path(), "ppush/fig8", run(Engine::Packet)).unwrap();
        let text = fs::read_to_string(path).unwrap();
        let verdicts = fixture::verdicts("ppush/fig8", Engine::Packet).len();
        assert_eq!(text.lines().filter(|l| l.trim_start().starts_with("{\"experiment\"")).count(), verdicts);
        assert_eq!(text.lines().filter(|l| l.trim_start().starts_with("{\"point\"")).count(), 1);
    }

    #[test]
    fn what_was_made_in_real_time_says_where_and_what_was_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let mut real = StoredRun {
            machine: Some(Machine::of_now()),
            skipped: vec![SkippedRun { run: "seed 2".into(), reason: "invalid: machine too busy".into() }],
            ..run(Engine::Netns)
        };
        real.means[0].measures.insert("invalid_tries".into(), 2.0);
        assert_eq!(real.amount(), "1 run, 2 tries invalid, 1 run skipped");
        store(folder.path(), "ppush/fig8", real.clone()).unwrap();
        assert_eq!(load(folder.path(), "ppush/fig8").unwrap().unwrap().runs, [real.clone()]);
        let heading = Heading {
            experiment: "ppush/fig8".into(),
            title: "Gain".into(),
            source: "Fig. 8".into(),
            about: Vec::new(),
            choices: vec!["One.".into()],
        };
        let below = folder.path().join("ppush/fig8/netns-small");
        fs::create_dir_all(&below).unwrap();
        summarise(&below, heading.clone(), &real).unwrap();
        let found = summaries(folder.path()).unwrap();
        assert_eq!(found, [Summary { heading, run: real }]);
    }

    #[test]
    fn a_damaged_file_says_which_and_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.json"), "{").unwrap();
        let error = load(folder.path(), "a").unwrap_err().to_string();
        assert!(error.contains("a.json") && error.contains("--store"), "{error}");
    }

    #[test]
    fn long_lines_are_thinned_and_keep_their_peaks() {
        let drawn = Drawn::of(&figure(10_000, PlotKind::Series));
        let points = &drawn.series[0].points;
        assert!((MOST_POINTS / 2..=MOST_POINTS).contains(&points.len()), "{}", points.len());
        assert!(points.iter().any(|p| p[1] == Some(9.0)));
        assert!(points.is_sorted_by(|a, b| a[0] < b[0]));
    }

    #[test]
    fn numbers_keep_six_digits() {
        assert_eq!(short(1.0 / 3.0), 0.333333);
        assert_eq!(short(123_456_789.0), 123_457_000.0);
        assert_eq!(short(0.0), 0.0);
    }
}
