//! Whether a stored result is still what today's code computes.
//!
//! A result knows the hash of the code that computed it, of the runs that were asked for, and of its experiment's tables at
//! small scale by that code (`experiments/golden.txt`). It is fresh if the runs are still those, and the code is the same or
//! still computes the same small tables, bit by bit. Real packets have no such tables: theirs are fresh by the code alone.

use std::path::Path;

use headwater_experiment::claim::Claim;
use headwater_experiment::experiment::{Engine, Experiment, Scale};
use serde::Serialize;

use crate::results::{self, Provenance, StoredRun};
use crate::{Catalogue, LabError, Models};

/// Experiment, engine and hash of the tables at small scale that the repository remembers.
static SMALL_TABLES: &[(&str, &str, &str)] = include!(concat!(env!("OUT_DIR"), "/small_tables.rs"));

/// Provenance of an experiment's runs by this binary, beside its code.
pub(super) fn provenance(experiment: &Experiment, engine: Engine, scale: Scale, seeds: u32) -> Provenance {
    Provenance {
        runs: runs(experiment, engine, scale, seeds),
        tables: small_tables(&experiment.id, engine).map(str::to_owned),
    }
}

/// Why a result is no longer what today's code computes; `None` if it is.
pub(super) fn why_stale(
    run: &StoredRun,
    experiment: &Experiment,
    models: &dyn Models,
) -> Option<&'static str> {
    let then = &run.provenance;
    let now = provenance(experiment, run.engine, run.scale, run.seeds);
    if then.runs.is_some() && then.runs != now.runs {
        return Some("other runs are asked for now");
    }
    let is_same_code = run.code == models.code(run.engine);
    let has_same_tables = then.tables.is_some() && then.tables == now.tables;
    (!is_same_code && !has_same_tables).then_some(match then.tables.is_some() && now.tables.is_some() {
        true => "the code computes other tables now",
        false => "of other code",
    })
}

/// Why there is more to compute although nothing that is stored is stale.
fn why_thin(run: &StoredRun) -> Option<&'static str> {
    (!run.skipped.is_empty()).then_some("runs were skipped")
}

/// A result that is to be computed anew, completed, or computed for the first time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stale {
    /// The experiment.
    pub experiment: String,
    /// Engine that computes it.
    pub engine: Engine,
    /// The reason.
    pub reason: &'static str,
    /// Events of the stored runs, a measure of what it costs; `None` where nothing is stored.
    pub events: Option<u64>,
}

/// All results at paper scale that are not what today's code computes or lack runs, the cheapest first, those of unknown cost last.
/// `engine` picks one; without it, all that take no real time.
///
/// # Errors
/// A file that is wrong, a result that cannot be read.
pub fn stale(
    folder: &Path,
    catalogue: &Catalogue,
    engine: Option<Engine>,
    models: &dyn Models,
) -> Result<Vec<Stale>, LabError> {
    let mut all = Vec::new();
    for experiment in catalogue.all() {
        let experiment = experiment?;
        if !experiment.scales.contains(&Scale::Paper) {
            continue;
        }
        let stored = results::load(folder, &experiment.id)?;
        let wanted = |on: &&Engine| engine.map_or(!on.is_real_time(), |engine| engine == **on);
        for engine in experiment.engines.iter().filter(wanted) {
            let run = stored.iter().flat_map(|stored| &stored.runs).find(|run| run.engine == *engine);
            let reason = match run {
                None => Some("not run"),
                Some(run) if is_short_of_claims(run, &experiment) => Some("claims are newer than the result"),
                Some(run) => why_stale(run, &experiment, models).or_else(|| why_thin(run)),
            };
            all.extend(reason.map(|reason| Stale {
                experiment: experiment.id.clone(),
                engine: *engine,
                reason,
                events: run.map(events),
            }));
        }
    }
    all.sort_by_key(|stale| stale.events.unwrap_or(u64::MAX));
    Ok(all)
}

/// Whether a claim was written, or changed, after the result.
fn is_short_of_claims(run: &StoredRun, experiment: &Experiment) -> bool {
    let made = |claim: &&Claim| claim.is_made_of(run.engine, run.scale);
    let judged = |claim: &Claim| run.verdicts.iter().any(|it| claim.has_verdict(it));
    experiment.claims.iter().filter(made).any(|claim| !judged(claim))
}

fn events(run: &StoredRun) -> u64 {
    // A count, so there is nothing to lose.
    run.means.iter().filter_map(|means| means.measures.get("events")).sum::<f64>() as u64
}

fn small_tables(experiment: &str, engine: Engine) -> Option<&'static str> {
    let found = SMALL_TABLES.iter().find(|(id, on, _)| *id == experiment && *on == engine.name());
    found.map(|(.., hash)| *hash)
}

/// A hash of the keys of all runs, whatever their order; `None` for an experiment that cannot be expanded.
fn runs(experiment: &Experiment, engine: Engine, scale: Scale, seeds: u32) -> Option<String> {
    let jobs = experiment.jobs(engine, scale, Some(seeds)).ok()?;
    let mut keys: Vec<String> = jobs.iter().map(|job| job.key()).collect();
    keys.sort();
    Some(blake3::hash(keys.join("\n").as_bytes()).to_hex()[..16].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Catalogue, Shipped, SkippedRun, fixture};

    fn stored(experiment: &Experiment) -> StoredRun {
        let provenance = super::provenance(experiment, Engine::Packet, Scale::Paper, 2);
        StoredRun { seeds: 2, provenance, code: "another".into(), ..fixture::run(Engine::Packet) }
    }

    fn experiment() -> Experiment {
        Catalogue::shipped().find("ppush/fig8").unwrap().remove(0).experiment
    }

    #[test]
    fn a_result_is_fresh_while_runs_and_small_tables_stay() {
        let experiment = experiment();
        let run = stored(&experiment);
        assert!(run.provenance.runs.is_some() && run.provenance.tables.is_some(), "{run:?}");
        assert_eq!(why_stale(&run, &experiment, &Shipped), None);
        let mut other = run.clone();
        other.provenance.tables = Some("0".into());
        assert_eq!(why_stale(&other, &experiment, &Shipped), Some("the code computes other tables now"));
        other.code = Shipped.code(Engine::Packet).to_owned();
        assert_eq!(why_stale(&other, &experiment, &Shipped), None, "the very code");
        let mut longer = experiment.clone();
        longer.axes.pop();
        assert_eq!(why_stale(&run, &longer, &Shipped), Some("other runs are asked for now"));
        let old = StoredRun { provenance: Provenance::default(), ..run };
        assert_eq!(why_stale(&old, &experiment, &Shipped), Some("of other code"));
    }

    #[test]
    fn what_is_to_be_computed_anew_comes_cheapest_first() {
        let folder = tempfile::tempdir().unwrap();
        let catalogue = Catalogue::shipped();
        let all = stale(folder.path(), &catalogue, None, &Shipped).unwrap();
        assert!(all.iter().all(|it| it.reason == "not run" && !it.engine.is_real_time()), "{all:?}");
        let mut run = stored(&experiment());
        run.verdicts.clear();
        results::store(folder.path(), "ppush/fig8", run.clone()).unwrap();
        let first = stale(folder.path(), &catalogue, Some(Engine::Packet), &Shipped).unwrap().remove(0);
        assert_eq!(
            (first.experiment.as_str(), first.reason),
            ("ppush/fig8", "claims are newer than the result")
        );
        run.verdicts = experiment().pending(Engine::Packet, Scale::Paper, "");
        results::store(folder.path(), "ppush/fig8", run.clone()).unwrap();
        let left = stale(folder.path(), &catalogue, Some(Engine::Packet), &Shipped).unwrap();
        assert!(left.iter().all(|it| it.experiment != "ppush/fig8"), "it is fresh");
        run.verdicts[0].metric = Some("of another metric".into());
        results::store(folder.path(), "ppush/fig8", run).unwrap();
        let again = stale(folder.path(), &catalogue, Some(Engine::Packet), &Shipped).unwrap().remove(0);
        assert_eq!(again.reason, "claims are newer than the result", "it measures something else now");
    }

    #[test]
    fn a_result_that_lacks_runs_is_completed() {
        let folder = tempfile::tempdir().unwrap();
        let verdicts = experiment().pending(Engine::Packet, Scale::Paper, "");
        let skipped = vec![SkippedRun { run: "seed 2".into(), reason: "machine too busy".into() }];
        let run = StoredRun { verdicts, skipped, ..stored(&experiment()) };
        results::store(folder.path(), "ppush/fig8", run).unwrap();
        let left = stale(folder.path(), &Catalogue::shipped(), Some(Engine::Packet), &Shipped).unwrap();
        let first = left.iter().find(|it| it.experiment == "ppush/fig8").unwrap();
        assert_eq!(first.reason, "runs were skipped");
    }

    #[test]
    fn every_experiment_of_a_model_has_remembered_tables() {
        for experiment in Catalogue::shipped().all() {
            let experiment = experiment.unwrap();
            for engine in experiment.engines.iter().filter(|engine| !engine.is_real_time()) {
                assert!(small_tables(&experiment.id, *engine).is_some(), "{} {engine}", experiment.id);
            }
        }
    }
}
