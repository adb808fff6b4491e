use std::collections::BTreeSet;

use headwater_experiment::claim::{Claim, Outcome, Tolerance};
use headwater_experiment::experiment::{Engine, Scale};

use super::*;
use crate::{Catalogue, fixture};

fn row(parts: &str) -> Row {
    let text = format!(
        "[[row]]\nid = 'P-8a'\nsetup = 's'\nmetric = 'm'\npublished = 'p'\ntolerance = 't'\nseeds = 20\nsize = 200\nparts = [{parts}]"
    );
    Rows::parse(&text).unwrap().rows.remove(0)
}

fn verdict(claim: &str, outcome: Outcome, measured: f64) -> Verdict {
    let mut verdict = fixture::verdicts("ppush/fig8", Engine::Packet).remove(0);
    (verdict.claim, verdict.verdict, verdict.measured) = (claim.to_owned(), outcome, Some(measured));
    verdict.seeds = 5;
    verdict
}

fn decided(row: &Row, verdicts: &[Verdict]) -> RowResult {
    let known: Vec<Known<'_>> =
        verdicts.iter().map(|verdict| Known { verdict, size: Some(100), stale: false }).collect();
    row.decide(&known)
}

#[test]
fn a_row_is_as_good_as_its_worst_part() {
    let row = row("{ claim = 'P-8a', within = '10 %' }, { claim = 'P-8a/b', within = 'order' }");
    let of = |a: Outcome, b: Outcome| {
        decided(
            &row,
            &[verdict("P-8a", a, 1.6), verdict("P-8a/b", b, 1.0), verdict("P-8a/c", Outcome::Miss, 0.0)],
        )
    };
    let both = of(Outcome::Pass, Outcome::Pass);
    assert_eq!(
        (both.verdict, both.passed, both.claims),
        (RowOutcome::Pass, 2, 2),
        "a claim that no part names decides nothing"
    );
    assert_eq!((both.seeds, both.size, both.is_reduced()), (5, Some(100), true));
    assert_eq!(of(Outcome::Pass, Outcome::Undecided).verdict, RowOutcome::Undecided);
    assert_eq!(of(Outcome::Pending, Outcome::Undecided).verdict, RowOutcome::Absent);
    assert_eq!(of(Outcome::Pending, Outcome::Miss).verdict, RowOutcome::Miss);
    assert_eq!(
        decided(&row, &[verdict("P-8a", Outcome::Pass, 1.6)]).verdict,
        RowOutcome::Absent,
        "a part without a claim"
    );
}

#[test]
fn one_of_several_values_may_be_picked() {
    let row = row("{ claim = 'A-max/gain-*', pick = 'max', within = 'at least 4' }");
    let of = |values: &[f64]| {
        let all: Vec<Verdict> = values.iter().map(|x| verdict("A-max/gain-1", Outcome::Report, *x)).collect();
        decided(&row, &all).verdict
    };
    assert_eq!(of(&[1.0, 4.5]), RowOutcome::Pass);
    assert_eq!(of(&[1.0, 3.5]), RowOutcome::Miss);
    assert_eq!(of(&[]), RowOutcome::Absent);
}

#[test]
fn an_engine_narrows_a_part_and_stale_claims_are_told() {
    let row = row("{ claim = 'P-8a', engines = ['packet'], within = '10 %' }");
    let flow = Verdict { engine: Engine::Flow, ..verdict("P-8a", Outcome::Miss, 9.0) };
    let packet = verdict("P-8a", Outcome::Pass, 1.6);
    let known = [
        Known { verdict: &flow, size: None, stale: false },
        Known { verdict: &packet, size: Some(200), stale: true },
    ];
    let result = row.decide(&known);
    assert_eq!((result.verdict, result.stale, result.size), (RowOutcome::Pass, true, Some(200)));
    let counts = RowCounts::of([&result]);
    assert_eq!((counts.rows, counts.pass, counts.stale), (1, 1, 1));
}

#[test]
fn a_damaged_catalogue_names_its_line() {
    let error = Rows::parse("[[row]]\nid = 1").unwrap_err().to_string();
    assert!(error.contains("line 2") && error.contains("catalogue"), "{error}");
}

/// The claims at the papers' scale.
fn claims() -> Vec<(Vec<Engine>, Claim)> {
    let all = Catalogue::shipped().all().into_iter().map(|experiment| experiment.unwrap());
    let at_paper = |claim: &Claim| claim.scales.as_ref().is_none_or(|scales| scales.contains(&Scale::Paper));
    all.flat_map(|experiment| {
        let engines = experiment.engines.clone();
        experiment
            .claims
            .into_iter()
            .filter(at_paper)
            .map(move |claim| (engines.clone(), claim))
            .collect::<Vec<_>>()
    })
    .collect()
}

#[test]
fn no_claim_is_looser_than_its_part_and_every_part_has_one() {
    let catalogue = Catalogue::shipped();
    let rows = &catalogue.rows().expect("the shipped catalogue has rows").rows;
    assert_eq!(rows.len(), 112);
    assert_eq!(
        rows.iter().map(|row| &row.id).collect::<BTreeSet<_>>().len(),
        rows.len(),
        "an id stands twice"
    );
    let claims = claims();
    for row in rows {
        assert_eq!(row.parts.is_empty(), row.without.is_some(), "{} has parts or a reason", row.id);
        for part in &row.parts {
            let fits = |engines: &[Engine], claim: &Claim| {
                let able =
                    |engine: &Engine| engines.contains(engine) && claim.is_made_of(*engine, Scale::Paper);
                part.names(&claim.id) && part.engines.as_ref().is_none_or(|wanted| wanted.iter().any(able))
            };
            let found: Vec<&Claim> = claims
                .iter()
                .filter(|(engines, claim)| fits(engines, claim))
                .map(|(_, claim)| claim)
                .collect();
            assert!(!found.is_empty(), "{} {}", row.id, part.claim);
            for claim in found.into_iter().filter(|_| part.pick.is_none()) {
                let tolerance = claim.tolerance(Scale::Paper);
                let is_tight =
                    tolerance.is_as_tight_as(claim.published_number(), &part.within, part.published);
                assert!(
                    is_tight,
                    "{}: {} is judged within {tolerance}, the row wants {}",
                    row.id, claim.id, part.within
                );
                assert!(*tolerance != Tolerance::Report || part.within == Tolerance::Report, "{}", claim.id);
            }
        }
    }
}

#[test]
fn every_claim_of_a_paper_belongs_to_a_row() {
    let catalogue = Catalogue::shipped();
    let rows = &catalogue.rows().unwrap().rows;
    let is_known = |claim: &str| {
        let row = claim.split('/').next().unwrap();
        rows.iter().any(|it| it.id == row || it.id.starts_with(&format!("{row}/")))
            || rows.iter().flat_map(|it| &it.parts).any(|part| part.claim.split('/').next() == Some(row))
    };
    let own = |claim: &str| {
        ["S-small", "S-untrimmed", "scale-", "bench-", "E-"].iter().any(|start| claim.starts_with(start))
    };
    for (_, claim) in claims() {
        assert!(is_known(&claim.id) || own(&claim.id), "{}", claim.id);
    }
}
