//! `lab report`: a page of every claim with the published value beside ours, and the plots, from what is stored beside the
//! experiments, or from what one folder of `lab run` has.
//!
//! An experiment that ran on several engines has one table, with a column for each, and one picture per plot. Nothing is
//! computed here: the same results give the same page and pictures, byte for byte.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use headwater_experiment::claim::{Claim, Outcome, Verdict};
use headwater_experiment::experiment::{Engine, Experiment, Scale};
use serde::Serialize;

use super::catalogue::natural;
use super::chart::Chart;
use super::files::write_whole;
use super::results::{self, Drawn, Heading, Stored, StoredRun, Summary};
use super::{Catalogue, Judged, LabError};

pub(super) mod page;

/// Where the results are, and where the page goes.
#[derive(Clone, Debug)]
pub struct ReportOptions {
    /// The folder of stored results; `notes/<experiment>.md` in it explains misses.
    pub results: PathBuf,
    /// The folder of `reproduction.md` and `reproduction/`.
    pub out: PathBuf,
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The page.
    pub page: PathBuf,
    /// The pictures, each as SVG and PNG.
    pub plots: usize,
    /// Verdicts on it.
    pub counts: Counts,
}

/// How many claims have which verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Within the tolerance.
    pub pass: usize,
    /// Not.
    pub miss: usize,
    /// Without a pass line.
    pub report: usize,
    /// Not run, or not runnable yet.
    pub pending: usize,
}

impl Counts {
    fn add(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Pass => self.pass += 1,
            Outcome::Miss => self.miss += 1,
            Outcome::Report => self.report += 1,
            Outcome::Pending => self.pending += 1,
        }
    }

    fn plus(self, other: Counts) -> Counts {
        Counts {
            pass: self.pass + other.pass,
            miss: self.miss + other.miss,
            report: self.report + other.report,
            pending: self.pending + other.pending,
        }
    }
}

/// An experiment on the page.
#[derive(Debug)]
struct Section {
    heading: Heading,
    /// Its name among the sections, fit for links and files.
    anchor: String,
    /// The engines that ran it, from equations to real packets.
    runs: Vec<StoredRun>,
    /// Every claim in the file's order, stored or pending.
    verdicts: Vec<Verdict>,
    /// Title and file name without ending of each plot.
    plots: Vec<(String, String)>,
    note: Note,
}

/// What somebody wrote about an experiment's misses.
#[derive(Debug)]
enum Note {
    Written(String),
    /// Nothing yet, in this file.
    Missing(String),
    /// Nobody is expected to.
    Nobody,
}

impl Section {
    fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        self.verdicts.iter().for_each(|verdict| counts.add(verdict.verdict));
        counts
    }
}

/// Writes the page of all experiments and its pictures.
///
/// # Errors
/// A file that is wrong, a result that cannot be read, a folder that cannot be written.
pub fn report(options: &ReportOptions, catalogue: &Catalogue) -> Result<Report, LabError> {
    let mut sections = Vec::new();
    for experiment in catalogue.all() {
        let experiment = experiment?;
        let stored = results::load(&options.results, &experiment.id)?;
        let verdicts = verdicts(&experiment, stored.as_ref());
        sections.push(Section {
            heading: Heading::of(&experiment),
            anchor: experiment.id.replace('/', "-"),
            runs: stored.map(|stored| ordered(stored.runs)).unwrap_or_default(),
            verdicts,
            plots: Vec::new(),
            note: note(&options.results, &experiment.id)?,
        });
    }
    publish(sections, page::HEAD, &options.out, "reproduction")
}

/// Writes the page of what is in a folder of `lab run` and its pictures: `report.md` and `report/` in `out`.
///
/// # Errors
/// As [`report`], and [`LabError::NoRuns`].
pub fn report_runs(folder: &Path, out: &Path) -> Result<Report, LabError> {
    let section = |(heading, runs): (Heading, Vec<StoredRun>)| Section {
        anchor: runs
            .iter()
            .take(1)
            .fold(heading.experiment.replace('/', "-"), |id, run| format!("{id}-{}", run.scale)),
        heading,
        verdicts: by_claim(&runs),
        runs,
        plots: Vec::new(),
        note: Note::Nobody,
    };
    publish(runs_in(folder)?.into_iter().map(section).collect(), page::HEAD_OF_RUNS, out, "report")
}

/// All verdicts of a folder of `lab run`, each with its commit.
///
/// # Errors
/// As [`report_runs`].
pub fn verdicts_of_runs(folder: &Path) -> Result<Vec<Judged>, LabError> {
    Ok(runs_in(folder)?.into_iter().flat_map(|(_, runs)| runs).flat_map(judged).collect())
}

/// The runs of each experiment at each scale, as people sort them.
fn runs_in(folder: &Path) -> Result<Vec<(Heading, Vec<StoredRun>)>, LabError> {
    let mut all: BTreeMap<_, (Heading, Vec<StoredRun>)> = BTreeMap::new();
    for Summary { heading, run } in results::summaries(folder)? {
        let place = (natural(&heading.experiment), run.scale);
        all.entry(place).or_insert_with(|| (heading, Vec::new())).1.push(run);
    }
    if all.is_empty() {
        return Err(LabError::NoRuns { path: folder.to_owned() });
    }
    Ok(all.into_values().map(|(heading, runs)| (heading, ordered(runs))).collect())
}

/// The verdicts of all engines, claim by claim in the order of the file, as far as the engines show it.
fn by_claim(runs: &[StoredRun]) -> Vec<Verdict> {
    let mut claims: Vec<&str> = Vec::new();
    for run in runs {
        let mut next = 0;
        for verdict in &run.verdicts {
            // One that no other engine has comes behind the one before it.
            let known = claims.iter().position(|claim| *claim == verdict.claim);
            let place = known.unwrap_or(next);
            if known.is_none() {
                claims.insert(place, &verdict.claim);
            }
            next = place + 1;
        }
    }
    let of = |claim: &str| {
        let all = runs.iter().flat_map(|run| &run.verdicts);
        all.filter(|verdict| verdict.claim == claim).cloned().collect::<Vec<_>>()
    };
    claims.into_iter().flat_map(of).collect()
}

/// From equations to real packets.
fn ordered(mut runs: Vec<StoredRun>) -> Vec<StoredRun> {
    runs.sort_by_key(|run| rank(run.engine));
    runs
}

fn rank(engine: Engine) -> usize {
    match engine {
        Engine::Trees => 0,
        Engine::Fluid => 1,
        Engine::Flow => 2,
        Engine::Packet => 3,
        Engine::Netns => 4,
    }
}

/// Draws the plots and writes the page.
fn publish(mut sections: Vec<Section>, head: &str, out: &Path, name: &str) -> Result<Report, LabError> {
    let pictures = out.join(name);
    fs::create_dir_all(&pictures).map_err(|source| LabError::write(&pictures, "--out", source))?;
    let mut plots = 0;
    for section in &mut sections {
        for (number, (title, figures)) in figures(&section.runs).into_iter().enumerate() {
            let Some(chart) = Chart::new(&figures) else { continue };
            let file = format!("{}-{}", section.anchor, number + 1);
            write(&pictures.join(format!("{file}.svg")), chart.svg()?.as_bytes())?;
            write(&pictures.join(format!("{file}.png")), &chart.png()?)?;
            section.plots.push((title.to_owned(), format!("{name}/{file}")));
            plots += 1;
        }
    }
    let page = out.join(format!("{name}.md"));
    write(&page, page::written(&sections, head).as_bytes())?;
    let counts = sections.iter().map(Section::counts).fold(Counts::default(), Counts::plus);
    Ok(Report { page, plots, counts })
}

/// All stored verdicts of the experiments there are, each with its commit.
///
/// # Errors
/// As [`report`].
pub fn stored_verdicts(results: &Path, catalogue: &Catalogue) -> Result<Vec<Judged>, LabError> {
    let mut all = Vec::new();
    for experiment in catalogue.all() {
        let stored = results::load(results, &experiment?.id)?;
        all.extend(stored.into_iter().flat_map(|stored| stored.runs).flat_map(judged));
    }
    Ok(all)
}

fn judged(run: StoredRun) -> impl Iterator<Item = Judged> {
    let commit = run.commit;
    run.verdicts.into_iter().map(move |verdict| Judged { verdict, commit: commit.clone() })
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), LabError> {
    write_whole(path, |file| file.write_all(bytes)).map_err(|source| LabError::write(path, "--out", source))
}

fn note(results: &Path, experiment: &str) -> Result<Note, LabError> {
    let path = results.join("notes").join(format!("{experiment}.md"));
    let missing = Note::Missing(format!("experiments/results/notes/{experiment}.md"));
    match fs::read_to_string(&path) {
        Ok(text) if text.trim().is_empty() => Ok(missing),
        Ok(text) => Ok(Note::Written(text.trim().to_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(missing),
        Err(source) => Err(LabError::Read { path, source }),
    }
}

/// The plots in their order, each with what every engine gives of it.
fn figures(runs: &[StoredRun]) -> Vec<(&str, Vec<(&str, &Drawn)>)> {
    let mut all: Vec<(&str, Vec<(&str, &Drawn)>)> = Vec::new();
    for run in runs {
        // Titles may come twice in a file; then their order tells them apart.
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        for figure in &run.figures {
            let count = seen.entry(&figure.title).or_default();
            let same = all.iter().enumerate().filter(|(_, (title, _))| *title == figure.title);
            let place = same.map(|(place, _)| place).nth(*count);
            *count += 1;
            match place {
                Some(place) => all[place].1.push((run.engine.name(), figure)),
                None => all.push((&figure.title, vec![(run.engine.name(), figure)])),
            }
        }
    }
    all
}

/// Every claim that is made at the scale of the page, with what is stored of it, or pending.
fn verdicts(experiment: &Experiment, stored: Option<&Stored>) -> Vec<Verdict> {
    let runs = || stored.iter().flat_map(|stored| &stored.runs);
    let mut taken = BTreeSet::new();
    let mut all = Vec::new();
    let scale = scale_of(experiment);
    let made = |claim: &&Claim| claim.scales.as_ref().is_none_or(|scales| scales.contains(&scale));
    for claim in experiment.claims.iter().filter(made) {
        let of_claim = runs().flat_map(|run| &run.verdicts).filter(|verdict| {
            verdict.claim == claim.id
                && claim.is_made_of(verdict.engine, verdict.scale)
                // One id may stand for several claims, each made of other engines.
                && taken.insert((verdict.claim.as_str(), verdict.engine))
        });
        let of_claim: Vec<Verdict> = of_claim.map(|verdict| current(claim, experiment, verdict)).collect();
        if of_claim.is_empty() {
            let run: Vec<Engine> = runs().map(|run| run.engine).collect();
            all.push(never_run(claim, experiment, &run));
        }
        all.extend(of_claim);
    }
    all
}

/// A stored verdict, unless the claim has become another since.
fn current(claim: &Claim, experiment: &Experiment, verdict: &Verdict) -> Verdict {
    let same = verdict.published == claim.published
        && verdict.tolerance == claim.tolerance(verdict.scale).to_string();
    if same {
        return verdict.clone();
    }
    let reason = "the claim has changed since it was run".to_owned();
    claim.pending(&experiment.id, verdict.engine, verdict.scale, reason)
}

/// The paper's, where the experiment has it.
fn scale_of(experiment: &Experiment) -> Scale {
    if experiment.scales.contains(&Scale::Paper) { Scale::Paper } else { Scale::Small }
}

fn never_run(claim: &Claim, experiment: &Experiment, run: &[Engine]) -> Verdict {
    let scale = scale_of(experiment);
    let able = experiment.engines.iter().filter(|engine| claim.is_made_of(**engine, scale));
    let engine = able.copied().next().unwrap_or(Engine::Packet);
    let reason = if run.contains(&engine) { "the claim is newer than the stored run" } else { "not run" };
    claim.pending(&experiment.id, engine, scale, reason.to_owned())
}

#[cfg(test)]
mod tests;
