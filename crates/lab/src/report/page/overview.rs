//! The first page: a row per figure, table or number of the papers, what misses and why, and what was changed after a result
//! was seen.

use std::collections::BTreeMap;

use headwater_experiment::claim::Outcome;

use super::super::Section;
use super::{Note, cell, index, line, paper_name, paper_of, value};
use crate::{Row, RowCounts, RowOutcome, RowResult, Rows};

const HEAD: &str = "\
# Reproduction

What the papers say, and what we get. This page is made by `headwater lab report` from the results in
`experiments/results`; do not edit it. To run an experiment again and keep its results, or all whose results are of other
code than today's:

    headwater lab run ppush/fig8 --scale paper --store
    headwater lab rerun --stale
    headwater lab report

A row is a figure, a table or a number of a paper, as `experiments/catalogue.toml` has it; those in bold are what a system
is about. It passes if each claim that decides it does: the mean over seeds is near enough, and its whole 95 % interval too.
`undecided`: an interval crosses its line. `report`: there is no pass line. `absent`: nothing was run for a part of it.
`stale`: other code computes other tables than those of the result. `reduced`: fewer seeds or tasks than the paper has.
";

/// The first page.
pub(in super::super) fn overview(
    sections: &[Section],
    rows: Option<&Rows>,
    results: &[RowResult],
    changed: Option<&str>,
) -> String {
    let mut page = HEAD.to_owned();
    if let Some(rows) = rows {
        totals(&mut page, results);
        tables(&mut page, sections, rows, results);
        misses(&mut page, sections, rows, results);
    }
    if let Some(changed) = changed {
        line(&mut page, format_args!("\n## Changed after a result was seen\n\n{changed}"));
    }
    line(
        &mut page,
        format_args!("\n## Experiments\n\nOne page per paper, with all claims, plots and choices."),
    );
    let mut papers: Vec<&str> =
        sections.iter().map(|section| paper_of(&section.heading.experiment)).collect();
    papers.dedup();
    for paper in papers {
        let of_paper: Vec<&Section> =
            sections.iter().filter(|section| paper_of(&section.heading.experiment) == paper).collect();
        line(&mut page, format_args!("\n### [{}](reproduction/{paper}.md)", paper_name(paper)));
        index(&mut page, &of_paper, &format!("reproduction/{paper}.md"));
    }
    page
}

/// The paper of a row, by its letter.
fn paper(row: &str) -> &'static str {
    match row.as_bytes().first() {
        Some(b'P') => "PPUSH",
        Some(b'S') => "SCDP",
        Some(b'A') => "PAM",
        Some(b'C') => "Courier",
        Some(b'D') => "Datacast",
        _ => "Others",
    }
}

fn totals(page: &mut String, results: &[RowResult]) {
    let mut papers: Vec<(&str, Vec<&RowResult>)> = Vec::new();
    for result in results {
        match papers.last_mut() {
            Some((last, all)) if *last == paper(&result.row) => all.push(result),
            _ => papers.push((paper(&result.row), vec![result])),
        }
    }
    line(page, format_args!("\n## Rows\n"));
    line(page, format_args!("| Paper | rows | pass | miss | undecided | report | absent | stale |"));
    line(page, format_args!("|---|---:|---:|---:|---:|---:|---:|---:|"));
    let mut total = |name: &str, counts: RowCounts| {
        let RowCounts { rows, pass, miss, undecided, report, absent, stale } = counts;
        let cells = format!("{rows} | {pass} | {miss} | {undecided} | {report} | {absent} | {stale}");
        line(page, format_args!("| {name} | {cells} |"));
    };
    for (name, of_paper) in papers {
        total(name, RowCounts::of(of_paper));
    }
    total("all", RowCounts::of(results));
}

fn tables(page: &mut String, sections: &[Section], rows: &Rows, results: &[RowResult]) {
    let homes = homes(sections);
    let mut before = "";
    for (row, result) in rows.rows.iter().zip(results) {
        if paper(&row.id) != before {
            before = paper(&row.id);
            line(page, format_args!("\n### {before}\n"));
            line(
                page,
                format_args!("| Row | What | Published | Ours | Of | Verdict |\n|---|---|---|---|---|---|"),
            );
        }
        let id = if row.heart { format!("**{}**", row.id) } else { row.id.clone() };
        let id = match result.measured.first().and_then(|(claim, ..)| homes.get(claim.split(' ').next()?)) {
            Some(home) => format!("[{id}]({home})"),
            None => id,
        };
        let cells =
            [id, cell(&row.metric), cell(&row.published), ours(row, result), of(result), verdict(result)];
        line(page, format_args!("| {} |", cells.join(" | ")));
    }
}

/// The section of each claim.
fn homes(sections: &[Section]) -> BTreeMap<&str, String> {
    let of = |section: &'_ Section| {
        let paper = paper_of(&section.heading.experiment);
        format!("reproduction/{paper}.md#{}", section.anchor)
    };
    let claims = sections.iter().flat_map(|section| {
        section.verdicts.iter().map(move |verdict| (verdict.claim.as_str(), of(section)))
    });
    claims.collect()
}

/// More values than these are not listed.
const MOST_VALUES: usize = 3;

fn ours(row: &Row, result: &RowResult) -> String {
    let values: Vec<String> =
        result.measured.iter().map(|(_, measured, tolerance)| value(*measured, tolerance)).collect();
    match (&row.without, values.len()) {
        (Some(reason), _) => cell(reason),
        (None, 0) => "-".to_owned(),
        (None, 1..=MOST_VALUES) => values.join(", "),
        (None, _) => format!("{} of {} claims pass", result.passed, result.claims),
    }
}

/// `5 of 20 seeds, 200 tasks`.
fn of(result: &RowResult) -> String {
    let amount = |ours: u64, wanted: Option<u64>, what: &str| match (ours, wanted) {
        (0, _) => None,
        (ours, Some(wanted)) if ours < wanted => Some(format!("{ours} of {wanted} {what}")),
        (1, _) => Some(format!("1 {}", what.trim_end_matches('s'))),
        (ours, _) => Some(format!("{ours} {what}")),
    };
    let seeds = amount(result.seeds.into(), result.seeds_wanted.map(u64::from), "seeds");
    let tasks = result.size_wanted.and_then(|wanted| amount(result.size.unwrap_or(0), Some(wanted), "tasks"));
    let all: Vec<String> = [seeds, tasks].into_iter().flatten().collect();
    if all.is_empty() { "-".to_owned() } else { all.join(", ") }
}

fn word(outcome: RowOutcome) -> &'static str {
    match outcome {
        RowOutcome::Pass => "pass",
        RowOutcome::Report => "report",
        RowOutcome::Undecided => "undecided",
        RowOutcome::Absent => "absent",
        RowOutcome::Miss => "**miss**",
    }
}

fn verdict(result: &RowResult) -> String {
    let mut words = vec![word(result.verdict)];
    if result.is_reduced() {
        words.push("reduced");
    }
    if result.stale {
        words.push("stale");
    }
    words.join(", ")
}

/// Rows that miss, the heart first, each claim with the sentence that somebody wrote about it.
fn misses(page: &mut String, sections: &[Section], rows: &Rows, results: &[RowResult]) {
    let mut missed: Vec<(&Row, &RowResult)> =
        rows.rows.iter().zip(results).filter(|(_, result)| result.verdict == RowOutcome::Miss).collect();
    // The more of a row misses, the more it weighs.
    missed.sort_by_key(|(row, result)| (!row.heart, result.passed * 100 / result.claims.max(1)));
    if missed.is_empty() {
        return;
    }
    line(page, format_args!("\n## Misses, the weightiest first\n"));
    for (row, result) in missed {
        let heart = if row.heart { ", what the system is about" } else { "" };
        line(page, format_args!("- **{}**{heart}: {} ({}).", row.id, row.metric, row.published));
        for (section, verdict) in sections.iter().flat_map(|section| {
            section.verdicts.iter().filter(|it| it.verdict == Outcome::Miss).map(move |it| (section, it))
        }) {
            if !result.failed.contains(&verdict.claim) {
                continue;
            }
            let why = match &section.note {
                Note::Written(note) => sentence(note, &verdict.claim),
                _ => None,
            };
            let ours = value(verdict.measured, &verdict.tolerance);
            let why = why.map(|why| format!(" {why}")).unwrap_or_default();
            line(
                page,
                format_args!(
                    "  - {} ({}): {}: {ours}, wanted within {}.{why}",
                    verdict.claim, verdict.engine, verdict.about, verdict.tolerance
                ),
            );
        }
    }
}

/// The first sentence of what a note says of a claim, whose id stands there in bold; the figures that stand first, in parentheses, are
/// on the page already.
fn sentence(note: &str, claim: &str) -> Option<String> {
    let paragraph = note.split("\n- ").find(|paragraph| {
        let bold = paragraph.split("**").skip(1).step_by(2);
        bold.into_iter().any(|ids| ids.split([',', ' ']).any(|id| id == claim))
    })?;
    let text = paragraph.rsplit("**").next()?.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = text.trim_start_matches([':', '.', ' ']);
    let behind = match text.starts_with('(') {
        true => text.find(").").map_or("", |end| text[end + 2..].trim_start()),
        false => text,
    };
    let text = if behind.is_empty() { text } else { behind };
    let end = text.find(". ").map_or(text.len(), |end| end + 1);
    Some(text[..end].to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_about_a_claim_is_found_in_a_note() {
        let note = "- **P-1/a** (24 % instead of all). Flows are\n  not paced. More.\n- **P-2**, **P-3**: too few seeds.";
        assert_eq!(sentence(note, "P-1/a").as_deref(), Some("Flows are not paced."));
        assert_eq!(sentence(note, "P-3").as_deref(), Some("too few seeds."));
        assert_eq!(sentence(note, "P-4"), None);
    }
}
