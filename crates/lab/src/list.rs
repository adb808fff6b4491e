//! `lab list`: the experiments there are, what they claim, and what is stored of them.

use std::path::Path;

use headwater_experiment::claim::{Claim, Outcome, Published, Verdict};
use headwater_experiment::experiment::{Engine, Experiment, Scale};
use serde::Serialize;

use super::results::{self, Stored};
use super::{Catalogue, LabError};

/// An experiment in a list.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExperimentLine {
    /// Its id.
    pub experiment: String,
    /// Its title.
    pub title: String,
    /// The paper's section and figure.
    pub source: String,
    /// Engines that can run it, the main one first.
    pub engines: Vec<Engine>,
    /// Runs on the main engine, at each scale there is.
    pub jobs: Vec<JobCount>,
    /// Its claims.
    pub claims: Vec<ClaimLine>,
}

/// How many runs a scale has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct JobCount {
    /// The scale.
    pub scale: Scale,
    /// Points x schemes x seeds.
    pub jobs: usize,
}

/// A claim in a list.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClaimLine {
    /// Its id.
    pub claim: String,
    /// Quantity that is measured, in words.
    pub about: String,
    /// The published value.
    pub published: Option<Published>,
    /// How near we must come at paper scale.
    pub tolerance: String,
    /// Stored verdicts about it.
    pub stored: Vec<StoredVerdict>,
}

/// A stored verdict in a list.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StoredVerdict {
    /// Engine that computed the runs.
    pub engine: Engine,
    /// How large they were.
    pub scale: Scale,
    /// Ours.
    pub measured: Option<f64>,
    /// The verdict.
    pub verdict: Outcome,
}

/// All experiments of a catalogue, with the results stored in a folder, if there is one.
///
/// # Errors
/// A file that is wrong, or a stored result that cannot be read.
pub fn list(catalogue: &Catalogue, results: Option<&Path>) -> Result<Vec<ExperimentLine>, LabError> {
    let line = |parsed: Result<Experiment, _>| {
        let experiment: Experiment = parsed?;
        let stored = match results {
            Some(folder) => results::load(folder, &experiment.id)?,
            None => None,
        };
        line(&experiment, stored.as_ref())
    };
    catalogue.all().into_iter().map(line).collect()
}

fn line(experiment: &Experiment, stored: Option<&Stored>) -> Result<ExperimentLine, LabError> {
    let main = experiment.engines.first().copied().unwrap_or(Engine::Packet);
    let count = |scale: &Scale| -> Result<JobCount, LabError> {
        let seeds = experiment.seeds(main, *scale) as usize;
        // One seed is enough to count the rest.
        Ok(JobCount { scale: *scale, jobs: experiment.jobs(main, *scale, Some(1))?.len() * seeds })
    };
    let claim = |claim: &Claim| ClaimLine {
        claim: claim.id.clone(),
        about: claim.about.clone(),
        published: claim.published.clone(),
        tolerance: claim.within.to_string(),
        stored: stored.map(|stored| verdicts(stored, claim)).unwrap_or_default(),
    };
    Ok(ExperimentLine {
        experiment: experiment.id.clone(),
        title: experiment.title.clone(),
        source: experiment.source.clone(),
        engines: experiment.engines.clone(),
        jobs: experiment.scales.iter().map(count).collect::<Result<_, _>>()?,
        claims: experiment.claims.iter().map(claim).collect(),
    })
}

fn verdicts(stored: &Stored, claim: &Claim) -> Vec<StoredVerdict> {
    // One id may stand for several claims, each made of other engines.
    let is_of = |v: &&Verdict| v.claim == claim.id && claim.is_made_of(v.engine, v.scale);
    let of_claim = stored.runs.iter().flat_map(|run| &run.verdicts).filter(is_of);
    of_claim
        .map(|v| StoredVerdict { engine: v.engine, scale: v.scale, measured: v.measured, verdict: v.verdict })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    #[test]
    fn a_line_counts_runs_and_shows_claims_as_they_are_written() {
        let experiment = Experiment::parse("ppush/fig0", fixture::EXPERIMENT).unwrap();
        let line = line(&experiment, None).unwrap();
        let jobs: Vec<_> = line.jobs.iter().map(|count| (count.scale, count.jobs)).collect();
        assert_eq!(jobs, [(Scale::Small, 8), (Scale::Paper, 12)]);
        assert_eq!((line.claims[0].claim.as_str(), line.claims[0].tolerance.as_str()), ("T-1", "10 %"));
        let json = serde_json::to_value(&line).unwrap();
        assert_eq!(json["engines"], serde_json::json!(["packet", "fluid", "netns"]));
        assert_eq!(json["claims"][0]["published"], 2.0);
    }
}
