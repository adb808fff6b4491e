//! The experiments there are: those in this binary, or those of a folder or a file.

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};

use headwater_experiment::claim::Claim;
use headwater_experiment::experiment::{Experiment, Scale};

use super::{LabError, Rows, Variation};

/// Ids and texts of the shipped experiments.
static SHIPPED: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/experiments.rs"));
/// The papers' rows.
const ROWS: &str = include_str!("../../../experiments/catalogue.toml");
/// The file of rows beside experiments.
const ROWS_FILE: &str = "catalogue.toml";
/// Where stored results are, beside the experiments.
const RESULTS: &str = "results";
/// How the ids of drills begin: they are about the user's machine, not about what a paper says, so they are left out where
/// nobody asks for one by name.
const DRILLS: &str = "drill/";
/// Names that are proposed for a misspelt one.
const PROPOSED: usize = 4;

/// Experiments by id, sorted as people sort them: `fig2` before `fig10`.
#[derive(Debug)]
pub struct Catalogue {
    entries: Vec<(String, Cow<'static, str>)>,
    rows: Option<Rows>,
    variation: Option<(Variation, Scale)>,
}

/// Something to run, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// Experiment to run.
    pub experiment: Experiment,
    /// The claim it was chosen for, if it was.
    pub claim: Option<String>,
}

impl Catalogue {
    /// The catalogue that this binary brings along.
    pub fn shipped() -> Self {
        let entries = SHIPPED.iter().map(|(id, text)| ((*id).to_owned(), Cow::Borrowed(*text))).collect();
        Catalogue {
            rows: Some(Rows::parse(ROWS).expect("a test reads what is shipped")),
            ..Self::of(entries)
        }
    }

    /// The experiment files below a folder, with its rows (`catalogue.toml`) if it has some, or one file.
    ///
    /// # Errors
    /// [`LabError::Read`] and [`LabError::Rows`].
    pub fn at(path: &Path) -> Result<Self, LabError> {
        if path.is_file() {
            return Ok(Self::of(vec![(id_of_file(path), read(path)?)]));
        }
        let mut entries = Vec::new();
        gather(path, path, &mut entries)?;
        let rows = path.join(ROWS_FILE);
        let rows = if rows.exists() { Some(Rows::parse(&read(&rows)?)?) } else { None };
        Ok(Catalogue { rows, ..Self::of(entries) })
    }

    fn of(mut entries: Vec<(String, Cow<'static, str>)>) -> Self {
        entries.sort_by_key(|(id, _)| natural(id));
        Catalogue { entries, rows: None, variation: None }
    }

    /// The same experiments with other values at a scale.
    #[must_use]
    pub fn varied(self, variation: Variation, scale: Scale) -> Self {
        Catalogue { variation: (!variation.is_empty()).then_some((variation, scale)), ..self }
    }

    /// The rows of the papers' evaluations that the experiments are about, if somebody wrote them down.
    pub fn rows(&self) -> Option<&Rows> {
        self.rows.as_ref()
    }

    /// All experiments but the drills, or what is wrong with their files.
    pub fn all(&self) -> Vec<Result<Experiment, LabError>> {
        self.parsed(|id| !id.starts_with(DRILLS))
    }

    /// The drills, in their order, or what is wrong with their files.
    pub fn drills(&self) -> Vec<Result<Experiment, LabError>> {
        self.parsed(|id| id.starts_with(DRILLS))
    }

    fn parsed(&self, wanted: impl Fn(&str) -> bool) -> Vec<Result<Experiment, LabError>> {
        let wanted = self.entries.iter().filter(|(id, _)| wanted(id));
        wanted.map(|(id, text)| self.parse(id, text)).collect()
    }

    fn parse(&self, id: &str, text: &str) -> Result<Experiment, LabError> {
        let plain = Experiment::parse(id, text)?;
        let Some((variation, scale)) = &self.variation else { return Ok(plain) };
        Ok(Experiment::parse(id, &variation.applied_to(id, text, *scale)?)?)
    }

    /// Experiments that a word means: a file, an experiment's id or its last part, or a claim's id.
    ///
    /// # Errors
    /// [`LabError::Unknown`] with what looks like it, [`LabError::Ambiguous`], or what is wrong with the file.
    pub fn find(&self, word: &str) -> Result<Vec<Chosen>, LabError> {
        let path = Path::new(word);
        if path.extension().is_some_and(|it| it == "toml") {
            let experiment = self.parse(&id_of_file(path), &read(path)?)?;
            return Ok(vec![Chosen { experiment, claim: None }]);
        }
        let exact: Vec<_> = self.entries.iter().filter(|(id, _)| id == word).collect();
        let by_part: Vec<_> = self.entries.iter().filter(|(id, _)| last_part(id) == word).collect();
        match (&exact[..], &by_part[..]) {
            ([(id, text)], _) | ([], [(id, text)]) => {
                return Ok(vec![Chosen { experiment: self.parse(id, text)?, claim: None }]);
            }
            ([], [_, _, ..]) => {
                let candidates = by_part.iter().map(|(id, _)| id.clone()).collect();
                return Err(LabError::Ambiguous { name: word.to_owned(), candidates });
            }
            _ => {}
        }
        // As they are: one that cannot have other values is no reason not to find a claim.
        let entries = self.entries.iter().filter(|(id, _)| !id.starts_with(DRILLS));
        let plain: Vec<_> =
            entries.filter_map(|(id, text)| Some((text, Experiment::parse(id, text).ok()?))).collect();
        let mut having = Vec::new();
        for (text, experiment) in &plain {
            if let Some(claim) = experiment.claims.iter().find(|claim| is_called(claim, word)) {
                let experiment = self.parse(&experiment.id, text)?;
                having.push(Chosen { experiment, claim: Some(claim.id.clone()) });
            }
        }
        if having.is_empty() {
            return Err(LabError::Unknown {
                name: word.to_owned(),
                near: self.near(word, plain.iter().map(|(_, it)| it)),
            });
        }
        Ok(having)
    }

    /// Ids of experiments and claims that look like `word`, the nearest first.
    fn near<'a>(&'a self, word: &str, all: impl Iterator<Item = &'a Experiment>) -> Vec<String> {
        let claims = all.flat_map(|e| e.claims.iter().map(|claim| claim.id.as_str()));
        let names = self.entries.iter().map(|(id, _)| id.as_str()).chain(claims);
        let written = word.to_ascii_lowercase();
        let distance = |name: &str| {
            let name = name.to_ascii_lowercase();
            edits(&written, &name).min(edits(&written, last_part(&name)))
        };
        let mut near: Vec<(usize, &str)> = names.map(|name| (distance(name), name)).collect();
        near.sort();
        near.dedup();
        // More than half of it wrong is another word.
        let limit = word.chars().count().div_ceil(2);
        near.into_iter()
            .filter(|(d, _)| *d <= limit)
            .take(PROPOSED)
            .map(|(_, name)| name.to_owned())
            .collect()
    }
}

/// Whether `word` names the claim, or the row of which it is one part: `P-8f` for `P-8f/dctcp`.
fn is_called(claim: &Claim, word: &str) -> bool {
    let row = claim.id.split('/').next().unwrap_or_default();
    claim.id.eq_ignore_ascii_case(word) || row.eq_ignore_ascii_case(word)
}

fn last_part(id: &str) -> &str {
    id.rsplit('/').next().unwrap_or(id)
}

/// An id of a file that stands alone: its place below a folder `experiments`, else its name.
fn id_of_file(path: &Path) -> String {
    let parts: Vec<String> = path
        .with_extension("")
        .components()
        .map(|part| part.as_os_str().to_string_lossy().into_owned())
        .collect();
    let below = parts.iter().rposition(|part| part == "experiments").map_or(parts.len() - 1, |at| at + 1);
    parts[below.min(parts.len() - 1)..].join("/")
}

fn read(path: &Path) -> Result<Cow<'static, str>, LabError> {
    fs::read_to_string(path).map(Cow::Owned).map_err(|source| LabError::read(path, source))
}

fn gather(
    root: &Path,
    folder: &Path,
    entries: &mut Vec<(String, Cow<'static, str>)>,
) -> Result<(), LabError> {
    let failed = |source| LabError::read(folder, source);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path: PathBuf = entry.map_err(failed)?.path();
        if path.is_dir() {
            if path != root.join(RESULTS) {
                gather(root, &path, entries)?;
            }
        } else if path.extension().is_some_and(|it| it == "toml") && path != root.join(ROWS_FILE) {
            let within = path.strip_prefix(root).unwrap_or(&path).with_extension("");
            entries.push((within.display().to_string(), read(&path)?));
        }
    }
    Ok(())
}

/// A key that sorts numbers within names by their value.
pub(super) fn natural(name: &str) -> Vec<(u64, String)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let words = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (word, tail) = rest.split_at(words);
        let digits = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
        let (number, tail) = tail.split_at(digits);
        // The word comes first in the text, so the number decides only among equal words.
        parts.push((0, word.to_owned()));
        parts.push((number.parse().map_or(0, |n: u64| n.saturating_add(1)), String::new()));
        rest = tail;
    }
    parts
}

/// How many letters must be added, removed or changed to turn one word into the other (Levenshtein).
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let changed = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    fn catalogue() -> Catalogue {
        let entry = |id: &str| (id.to_owned(), Cow::Borrowed(fixture::EXPERIMENT));
        Catalogue::of(vec![entry("ppush/fig10"), entry("ppush/fig2"), entry("scdp/fig2")])
    }

    fn ids(word: &str) -> Vec<String> {
        catalogue().find(word).unwrap().into_iter().map(|chosen| chosen.experiment.id).collect()
    }

    #[test]
    fn an_experiment_is_found_by_id_by_its_last_part_and_by_its_claims() {
        assert_eq!(ids("ppush/fig2"), ["ppush/fig2"]);
        assert_eq!(ids("fig10"), ["ppush/fig10"]);
        assert_eq!(ids("t-1"), ["ppush/fig2", "ppush/fig10", "scdp/fig2"]);
        let chosen = catalogue().find("T-2").unwrap();
        assert_eq!(chosen[0].claim.as_deref(), Some("T-2/small"), "a row stands for its parts");
    }

    #[test]
    fn a_claim_of_an_experiment_that_cannot_have_other_values_is_found_and_told() {
        let set = vec![("colour".to_owned(), "red".to_owned())];
        let varied = catalogue().varied(Variation { set, ..Variation::default() }, Scale::Small);
        assert!(varied.find("T-1").unwrap_err().to_string().contains("colour"));
    }

    #[test]
    fn a_part_that_several_end_in_is_ambiguous() {
        let error = catalogue().find("fig2").unwrap_err().to_string();
        assert!(error.contains("ppush/fig2, scdp/fig2"), "{error}");
    }

    #[test]
    fn a_misspelt_name_is_told_what_is_near() {
        let error = catalogue().find("fig1O").unwrap_err().to_string();
        assert!(error.contains("did you mean ppush/fig10"), "{error}");
        let error = catalogue().find("T-9").unwrap_err().to_string();
        assert!(error.contains("T-1"), "{error}");
        let error = catalogue().find("weather").unwrap_err().to_string();
        assert!(!error.contains("did you mean") && error.contains("lab list"), "{error}");
    }

    #[test]
    fn numbers_in_names_sort_by_value() {
        let mut names = ["fig10", "fig2", "fig11a", "bench/a", "fig2-obs", "fig"];
        names.sort_by_key(|name| natural(name));
        assert_eq!(names, ["bench/a", "fig", "fig2", "fig2-obs", "fig10", "fig11a"]);
    }

    #[test]
    fn a_folder_gives_its_files_but_not_the_stored_results() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["mine/a.toml", "results/mine/a.toml", "mine/readme.md"] {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, fixture::EXPERIMENT).unwrap();
        }
        let catalogue = Catalogue::at(folder.path()).unwrap();
        assert_eq!(catalogue.entries.len(), 1);
        assert_eq!(catalogue.find("a").unwrap()[0].experiment.id, "mine/a");
        let file = folder.path().join("mine/a.toml");
        assert_eq!(catalogue.find(file.to_str().unwrap()).unwrap()[0].experiment.id, "a");
        assert!(matches!(catalogue.find("none.toml"), Err(LabError::Read { .. })));
    }

    #[test]
    fn a_file_below_experiments_keeps_its_id() {
        assert_eq!(id_of_file(Path::new("/x/experiments/ppush/fig2.toml")), "ppush/fig2");
        assert_eq!(id_of_file(Path::new("./mine.toml")), "mine");
        assert_eq!(id_of_file(Path::new("experiments.toml")), "experiments");
    }

    #[test]
    fn every_shipped_experiment_can_be_read() {
        assert!(!SHIPPED.is_empty(), "the build found no experiments");
        let shipped = Catalogue::shipped();
        assert_eq!(shipped.all().len() + shipped.drills().len(), SHIPPED.len());
        for parsed in shipped.all().into_iter().chain(shipped.drills()) {
            parsed.unwrap_or_else(|error| panic!("{error}"));
        }
    }
}
