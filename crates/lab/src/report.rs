//! `lab report`: a page of every claim with the published value beside ours, and the plots, from what is stored beside the
//! experiments, or from what one folder of `lab run` has.
//!
//! The page of all experiments begins with a row per figure, table or number of the papers (`experiments/catalogue.toml`); each
//! paper's experiments are on a page of their own. An experiment that ran on several engines has one table, with a column for each, and one picture per plot. Nothing is
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
use super::rows::{Known, RowCounts, RowResult};
use super::{Catalogue, Judged, LabError, Models, freshness};

mod html;
pub(super) mod page;

/// The name of the page and of the folder beside it.
const NAME: &str = "reproduction";
/// The text about what was changed after a result was seen, among the notes.
const CHANGED: &str = "changed.md";

/// Where the results are, and where the page goes.
#[derive(Clone, Debug)]
pub struct ReportOptions {
    /// The folder of stored results; `notes/<experiment>.md` in it explains misses.
    pub results: PathBuf,
    /// The folder of `reproduction.md` and `reproduction/`.
    pub out: PathBuf,
    /// Whether to write `reproduction.html` too: the same in one page that needs nothing beside it.
    pub html: bool,
}

/// Summary of a written report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The page.
    pub page: PathBuf,
    /// The pictures, each as SVG and PNG.
    pub plots: usize,
    /// Verdicts on it.
    pub counts: Counts,
    /// Rows of the papers on it.
    pub rows: RowCounts,
}

/// How the stored results stand.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// All stored verdicts of claims that there are.
    pub verdicts: Vec<Judged>,
    /// The papers' rows.
    pub rows: Vec<RowResult>,
    /// How many of them are what.
    pub counts: RowCounts,
}

/// How many claims have which verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Within the tolerance.
    pub pass: usize,
    /// Not.
    pub miss: usize,
    /// The interval crosses the line.
    pub undecided: usize,
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
            Outcome::Undecided => self.undecided += 1,
            Outcome::Report => self.report += 1,
            Outcome::Pending => self.pending += 1,
        }
    }

    fn plus(self, other: Counts) -> Counts {
        Counts {
            pass: self.pass + other.pass,
            miss: self.miss + other.miss,
            undecided: self.undecided + other.undecided,
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
    /// Engines whose runs are of other code than today's, and why.
    stale: Vec<(Engine, &'static str)>,
    /// Every claim in the file's order, stored or pending.
    verdicts: Vec<Verdict>,
    /// Title and file name without ending of each plot.
    plots: Vec<(String, String)>,
    note: Note,
}

/// Note that somebody wrote about an experiment's misses.
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

    /// Why an engine's run is of other code than today's, if it is.
    fn why_stale(&self, engine: Engine) -> Option<&'static str> {
        self.stale.iter().find(|(on, _)| *on == engine).map(|(_, why)| *why)
    }
}

/// Writes the page of all experiments, one per paper, and their pictures.
///
/// # Errors
/// A file that is wrong, a result that cannot be read, a folder that cannot be written.
pub fn report(
    options: &ReportOptions,
    catalogue: &Catalogue,
    models: &dyn Models,
) -> Result<Report, LabError> {
    let mut sections = sections(&options.results, catalogue, models)?;
    let rows = decided(&sections, catalogue);
    let pictures = options.out.join(NAME);
    let plots = draw(&mut sections, &pictures)?;
    let changed = text_of(&options.results.join("notes").join(CHANGED))?;
    let overview = page::overview(&sections, catalogue.rows(), &rows, changed.as_deref());
    let page = options.out.join(format!("{NAME}.md"));
    write(&page, overview.as_bytes())?;
    let papers = page::papers(&sections);
    for (paper, text) in &papers {
        write(&pictures.join(format!("{paper}.md")), text.as_bytes())?;
    }
    if options.html {
        let page = html::page(&overview, &papers, &drawings(&sections, &pictures)?);
        write(&options.out.join(format!("{NAME}.html")), page.as_bytes())?;
    }
    Ok(Report { page, plots, counts: counts_of(&sections), rows: RowCounts::of(&rows) })
}

/// How the stored results stand: what [`report`] writes, without writing.
///
/// # Errors
/// As [`report`].
pub fn standing(results: &Path, catalogue: &Catalogue, models: &dyn Models) -> Result<Standing, LabError> {
    let sections = sections(results, catalogue, models)?;
    let rows = decided(&sections, catalogue);
    let counts = RowCounts::of(&rows);
    let judged = |section: Section| {
        let runs = section.runs;
        let commit =
            move |engine| runs.iter().find(|run| run.engine == engine).and_then(|run| run.commit.clone());
        let stored = section.verdicts.into_iter().filter(|verdict| verdict.verdict != Outcome::Pending);
        stored.map(|verdict| Judged { commit: commit(verdict.engine), verdict }).collect::<Vec<_>>()
    };
    Ok(Standing { verdicts: sections.into_iter().flat_map(judged).collect(), rows, counts })
}

/// Every experiment with what is stored of it.
fn sections(results: &Path, catalogue: &Catalogue, models: &dyn Models) -> Result<Vec<Section>, LabError> {
    let mut sections = Vec::new();
    for experiment in catalogue.all() {
        let experiment = experiment?;
        let stored = results::load(results, &experiment.id)?;
        let verdicts = verdicts(&experiment, stored.as_ref());
        let runs = stored.map(|stored| ordered(stored.runs)).unwrap_or_default();
        let stale = |run: &StoredRun| Some((run.engine, freshness::why_stale(run, &experiment, models)?));
        sections.push(Section {
            heading: Heading::of(&experiment),
            anchor: experiment.id.replace('/', "-"),
            stale: runs.iter().filter_map(stale).collect(),
            runs,
            verdicts,
            plots: Vec::new(),
            note: note(results, &experiment.id)?,
        });
    }
    Ok(sections)
}

/// The papers' rows by the verdicts of all sections.
fn decided(sections: &[Section], catalogue: &Catalogue) -> Vec<RowResult> {
    let known = sections.iter().flat_map(|section| {
        section.verdicts.iter().map(|verdict| {
            let of_engine = section.runs.iter().find(|run| run.engine == verdict.engine);
            Known {
                verdict,
                size: of_engine.and_then(|run| run.means.iter().map(|means| means.tasks).max()),
                stale: section.why_stale(verdict.engine).is_some(),
            }
        })
    });
    let known: Vec<Known<'_>> = known.collect();
    catalogue.rows().map(|rows| rows.decide(&known)).unwrap_or_default()
}

fn counts_of(sections: &[Section]) -> Counts {
    sections.iter().map(Section::counts).fold(Counts::default(), Counts::plus)
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
        stale: Vec::new(),
        plots: Vec::new(),
        note: Note::Nobody,
    };
    let mut sections: Vec<Section> = runs_in(folder)?.into_iter().map(section).collect();
    let plots = draw(&mut sections, &out.join("report"))?;
    let page = out.join("report.md");
    write(&page, page::of_runs(&sections, "report").as_bytes())?;
    Ok(Report { page, plots, counts: counts_of(&sections), rows: RowCounts::default() })
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
        Engine::Timed => 4,
        Engine::Netns => 5,
    }
}

/// Draws the plots of all sections; says how many there are.
fn draw(sections: &mut [Section], pictures: &Path) -> Result<usize, LabError> {
    fs::create_dir_all(pictures).map_err(|source| LabError::write(pictures, "--out", source))?;
    let mut plots = 0;
    for section in sections {
        for (number, (title, figures)) in figures(&section.runs).into_iter().enumerate() {
            let Some(chart) = Chart::new(&figures) else { continue };
            let file = format!("{}-{}", section.anchor, number + 1);
            write(&pictures.join(format!("{file}.svg")), chart.svg()?.as_bytes())?;
            write(&pictures.join(format!("{file}.png")), &chart.png()?)?;
            section.plots.push((title.to_owned(), file));
            plots += 1;
        }
    }
    Ok(plots)
}

/// The pictures of all sections as SVG, by file name without ending.
fn drawings(sections: &[Section], pictures: &Path) -> Result<BTreeMap<String, String>, LabError> {
    let files = sections.iter().flat_map(|section| &section.plots).map(|(_, file)| file);
    let read = |file: &String| {
        let path = pictures.join(format!("{file}.svg"));
        let svg = fs::read_to_string(&path).map_err(|source| LabError::read(&path, source))?;
        Ok((file.clone(), svg))
    };
    files.map(read).collect()
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
    let missing = || Note::Missing(format!("experiments/results/notes/{experiment}.md"));
    Ok(text_of(&path)?.map_or_else(missing, Note::Written))
}

/// Text of a note, if somebody wrote one.
fn text_of(path: &Path) -> Result<Option<String>, LabError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(LabError::read(path, source)),
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

/// A stored verdict by today's rules, unless the claim has become another since.
fn current(claim: &Claim, experiment: &Experiment, verdict: &Verdict) -> Verdict {
    if !claim.has_verdict(verdict) {
        let reason = "the claim has changed since it was run".to_owned();
        return claim.pending(&experiment.id, verdict.engine, verdict.scale, reason);
    }
    let outcome = match verdict.verdict {
        Outcome::Pending => Outcome::Pending,
        _ => claim.outcome(verdict.scale, verdict.measured.unwrap_or(f64::NAN), verdict.ci95),
    };
    Verdict { verdict: outcome, ..verdict.clone() }
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
