//! `lab report`: a page of every claim with the published value beside ours, and the plots, from what is stored.
//!
//! Nothing is computed here: the same stored results give the same page and pictures, byte for byte.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use headwater_sim::claim::{Claim, Outcome, Verdict};
use headwater_sim::experiment::{Engine, Experiment, Scale};
use serde::Serialize;

use super::chart::Chart;
use super::files::write_whole;
use super::results::{self, Drawn, Stored};
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
    experiment: Experiment,
    stored: Option<Stored>,
    /// Every claim in the file's order, stored or pending.
    verdicts: Vec<Verdict>,
    /// Title and file name without ending of each plot.
    plots: Vec<(String, String)>,
    /// What somebody wrote about its misses.
    note: Option<String>,
}

impl Section {
    fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        self.verdicts.iter().for_each(|verdict| counts.add(verdict.verdict));
        counts
    }
}

/// Writes the page and the pictures.
///
/// # Errors
/// A file that is wrong, a result that cannot be read, a folder that cannot be written.
pub fn report(options: &ReportOptions, catalogue: &Catalogue) -> Result<Report, LabError> {
    let pictures = options.out.join("reproduction");
    fs::create_dir_all(&pictures).map_err(|source| LabError::write(&pictures, "--out", source))?;
    let mut sections = Vec::new();
    let mut plots = 0;
    for experiment in catalogue.all() {
        let experiment = experiment?;
        let stored = results::load(&options.results, &experiment.id)?;
        let drawn = stored.as_ref().map(figures).unwrap_or_default();
        let mut names = Vec::new();
        for (number, (title, figures)) in drawn.into_iter().enumerate() {
            let Some(chart) = Chart::new(&figures) else { continue };
            let name = format!("{}-{}", experiment.id.replace('/', "-"), number + 1);
            write(&pictures.join(format!("{name}.svg")), chart.svg()?.as_bytes())?;
            write(&pictures.join(format!("{name}.png")), &chart.png()?)?;
            names.push((title.to_owned(), name));
            plots += 1;
        }
        sections.push(Section {
            verdicts: verdicts(&experiment, stored.as_ref()),
            note: note(&options.results, &experiment.id)?,
            experiment,
            stored,
            plots: names,
        });
    }
    let page = options.out.join("reproduction.md");
    write(&page, page::written(&sections).as_bytes())?;
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
        for run in stored.into_iter().flat_map(|stored| stored.runs) {
            let commit = run.commit;
            all.extend(run.verdicts.into_iter().map(|verdict| Judged { verdict, commit: commit.clone() }));
        }
    }
    Ok(all)
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), LabError> {
    write_whole(path, |file| file.write_all(bytes)).map_err(|source| LabError::write(path, "--out", source))
}

fn note(results: &Path, experiment: &str) -> Result<Option<String>, LabError> {
    let path = results.join("notes").join(format!("{experiment}.md"));
    match fs::read_to_string(&path) {
        Ok(text) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(LabError::Read { path, source }),
    }
}

/// The plots in their order, each with what every engine gives of it.
fn figures(stored: &Stored) -> Vec<(&str, Vec<(&str, &Drawn)>)> {
    let mut all: Vec<(&str, Vec<(&str, &Drawn)>)> = Vec::new();
    for run in &stored.runs {
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
