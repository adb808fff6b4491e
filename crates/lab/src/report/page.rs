//! The page's text.

use std::fmt::Write;

use headwater_experiment::claim::{Outcome, Published, Verdict};
use headwater_experiment::experiment::Engine;

use super::{Counts, Note, Section, rank};
use crate::StoredRun;

mod overview;
pub(super) use overview::overview;

/// Of the page of one paper.
const HEAD_OF_PAPER: &str = "\
What the experiments claim, and what we get; [reproduction.md](../reproduction.md) has the whole. This page is made by
`headwater lab report` from the results in `experiments/results`; do not edit it.

A claim is a number or an order that a paper states. *Ours* is the mean over seeds with its 95 % interval (Student's t).
The verdict is `pass` within the stated tolerance, `miss` outside it, `undecided` where the interval crosses its line,
`report` where there is no pass line, `pending` where nothing was run yet. Where several engines ran, each has a column: the
mean with its interval, the lowest and the highest seed and how many there are, and the verdict.
";

/// Of the page of one folder of runs.
pub(super) const HEAD_OF_RUNS: &str = "\
# Results

What came of the runs in this folder. This page is made by `headwater lab report FOLDER` from their summaries.

A claim is a number or an order that a source states, or a goal. *Ours* is the mean over seeds with its 95 % interval
(Student's t). The verdict is `pass` within the stated tolerance, `miss` outside it, `undecided` where the interval crosses its
line at paper scale, `report` where there is no pass line, `pending` where there was no run. Where several engines ran, each
has a column: the mean with its interval, the lowest and the highest seed and how many there are, and the verdict.
";

/// The page of one folder of runs, whose pictures are in `pictures`.
pub(super) fn of_runs(sections: &[Section], pictures: &str) -> String {
    let mut page = HEAD_OF_RUNS.to_owned();
    summary(&mut page, sections);
    let mut paper = "";
    for section in sections {
        let of = paper_of(&section.heading.experiment);
        if of != paper {
            line(&mut page, format_args!("\n## {}", paper_name(of)));
            paper = of;
        }
        one(&mut page, section, &format!("{pictures}/"));
    }
    page
}

/// The page of each paper's experiments, by the paper's folder, in the order of the sections.
pub(super) fn papers(sections: &[Section]) -> Vec<(String, String)> {
    let mut pages: Vec<(String, String)> = Vec::new();
    for section in sections {
        let paper = paper_of(&section.heading.experiment);
        if pages.last().is_none_or(|(last, _)| last != paper) {
            let of_paper: Vec<&Section> =
                sections.iter().filter(|other| paper_of(&other.heading.experiment) == paper).collect();
            let mut page = format!("# {}\n\n{HEAD_OF_PAPER}", paper_name(paper));
            index(&mut page, &of_paper, "");
            pages.push((paper.to_owned(), page));
        }
        if let Some((_, page)) = pages.last_mut() {
            one(page, section, "");
        }
    }
    pages
}

fn line(page: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(page, "{text}");
}

fn paper_of(id: &str) -> &str {
    id.split('/').next().unwrap_or(id)
}

/// As the paper writes itself.
fn paper_name(folder: &str) -> String {
    match folder {
        "ppush" | "scdp" | "pam" => folder.to_uppercase(),
        _ => {
            let mut letters = folder.chars();
            letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
        }
    }
}

fn summary(page: &mut String, sections: &[Section]) {
    let mut papers: Vec<(&str, Counts)> = Vec::new();
    for section in sections {
        let paper = paper_of(&section.heading.experiment);
        match papers.last_mut() {
            Some((last, counts)) if *last == paper => *counts = counts.plus(section.counts()),
            _ => papers.push((paper, section.counts())),
        }
    }
    line(page, format_args!("\n## Summary\n"));
    line(page, format_args!("| Paper | {COLUMNS} |\n|---|{RULES}"));
    for (paper, counts) in &papers {
        line(page, format_args!("| {} | {} |", paper_name(paper), cells(counts)));
    }
    if papers.len() > 1 {
        let all = papers.iter().map(|(_, counts)| *counts).fold(Counts::default(), Counts::plus);
        line(page, format_args!("| all | {} |", cells(&all)));
    }
    let missed = sections.iter().flat_map(|section| {
        let missed = section.verdicts.iter().filter(|verdict| verdict.verdict == Outcome::Miss);
        missed.map(|verdict| format!("[{}](#{})", verdict.claim, section.anchor))
    });
    let missed: Vec<String> = missed.collect();
    if !missed.is_empty() {
        line(page, format_args!("\nMissed: {}.", missed.join(", ")));
    }
    index(page, &sections.iter().collect::<Vec<_>>(), "");
}

/// A line per experiment, with a link to it on the page `on`.
pub(super) fn index(page: &mut String, sections: &[&Section], on: &str) {
    line(page, format_args!("\n| Experiment | | {COLUMNS} |\n|---|---|{RULES}"));
    for section in sections {
        let (id, title) = (&section.heading.experiment, cell(&section.heading.title));
        line(
            page,
            format_args!("| [{id}]({on}#{}) | {title} | {} |", section.anchor, cells(&section.counts())),
        );
    }
}

/// The verdicts there are.
const COLUMNS: &str = "pass | miss | undecided | report | pending";
const RULES: &str = "---:|---:|---:|---:|---:|";

fn cells(counts: &Counts) -> String {
    let Counts { pass, miss, undecided, report, pending } = counts;
    format!("{pass} | {miss} | {undecided} | {report} | {pending}")
}

/// One experiment; `pictures` is how links to its pictures begin.
fn one(page: &mut String, section: &Section, pictures: &str) {
    let heading = &section.heading;
    line(page, format_args!("\n<a id=\"{}\"></a>\n", section.anchor));
    line(page, format_args!("### {}\n", heading.title));
    line(page, format_args!("{}; `{}`.", heading.source, heading.experiment));
    for sentence in &heading.about {
        line(page, format_args!("{sentence}"));
    }
    line(page, format_args!(""));
    if section.runs.is_empty() {
        let id = &heading.experiment;
        line(page, format_args!("Not run yet: `headwater lab run {id} --scale paper --store`."));
    }
    section.runs.iter().for_each(|run| ran(page, run, section.why_stale(run.engine)));
    for (title, file) in &section.plots {
        let alt = title.replace(['[', ']'], "");
        line(page, format_args!("\n![{alt}]({pictures}{file}.svg)\n\n[{alt}, as PNG]({pictures}{file}.png)"));
    }
    table(page, section);
    notes(page, section);
    if !heading.choices.is_empty() {
        line(page, format_args!("\nWhere the paper leaves it open, we chose:\n"));
        for choice in &heading.choices {
            line(page, format_args!("- {choice}"));
        }
    }
}

/// Description of a run: its code, and for real time its machine.
fn ran(page: &mut String, run: &StoredRun, stale: Option<&str>) {
    let seeds = if run.seeds == 1 { "1 seed".to_owned() } else { format!("{} seeds", run.seeds) };
    let commit = run
        .commit
        .as_deref()
        .map_or_else(String::new, |commit| format!(", commit `{}`", commit.get(..12).unwrap_or(commit)));
    let mut text =
        format!("{} engine at {} scale, {seeds}{commit}, code `{}`", run.engine, run.scale, run.code);
    if run.machine.is_some() || !run.skipped.is_empty() {
        text += &format!("; {}", run.amount());
    }
    if let Some(machine) = &run.machine {
        text += &format!("; {}", cell(&machine.to_string()));
    }
    if let Some(why) = stale {
        text += &format!("; **stale**: {why}");
    }
    line(page, format_args!("- {text}"));
    for skipped in &run.skipped {
        line(page, format_args!("  - skipped: {}", cell(&skipped.to_string())));
    }
}

fn table(page: &mut String, section: &Section) {
    let mut engines: Vec<Engine> = section.verdicts.iter().map(|verdict| verdict.engine).collect();
    engines.sort_by_key(|engine| rank(*engine));
    engines.dedup();
    match engines.len() {
        0 => {}
        1 => of_one_engine(page, &section.verdicts),
        _ => of_engines(page, &section.verdicts, &engines),
    }
}

fn of_one_engine(page: &mut String, verdicts: &[Verdict]) {
    line(page, format_args!("\n| Claim | What | Where | Published | Ours | Within | Verdict |"));
    line(page, format_args!("|---|---|---|---|---|---|---|"));
    for verdict in verdicts {
        line(
            page,
            format_args!(
                "| {} | {} | {} | {} | {} | {} | {} |",
                verdict.claim,
                cell(&verdict.about),
                cell(&verdict.source),
                published(verdict),
                ours(verdict),
                cell(&verdict.tolerance),
                word(verdict.verdict),
            ),
        );
    }
}

/// A row per claim, a column per engine.
fn of_engines(page: &mut String, verdicts: &[Verdict], engines: &[Engine]) {
    let names: Vec<&str> = engines.iter().map(|engine| engine.name()).collect();
    line(page, format_args!("\n| Claim | What | Where | Published | Within | {} |", names.join(" | ")));
    line(page, format_args!("|---|---|---|---|---|{}", "---|".repeat(engines.len())));
    let mut rows: Vec<Vec<&Verdict>> = Vec::new();
    for verdict in verdicts {
        // One id may stand for claims with several published values.
        let is_same = |row: &&mut Vec<&Verdict>| {
            row.iter().all(|other| {
                (&other.claim, &other.published) == (&verdict.claim, &verdict.published)
                    && other.engine != verdict.engine
            })
        };
        match rows.iter_mut().find(is_same) {
            Some(row) => row.push(verdict),
            None => rows.push(vec![verdict]),
        }
    }
    for row in rows {
        let first = row[0];
        let of_engine = |engine: &Engine| match row.iter().find(|verdict| verdict.engine == *engine) {
            Some(verdict) => in_cell(verdict),
            None => "-".to_owned(),
        };
        let columns: Vec<String> = engines.iter().map(of_engine).collect();
        line(
            page,
            format_args!(
                "| {} | {} | {} | {} | {} | {} |",
                first.claim,
                cell(&first.about),
                cell(&first.source),
                published(first),
                within(&row),
                columns.join(" | "),
            ),
        );
    }
}

/// `10 %`, or `3 % (fluid), 15 % (packet, netns)`.
fn within(row: &[&Verdict]) -> String {
    let mut all: Vec<(&str, Vec<&str>)> = Vec::new();
    for verdict in row {
        match all.iter_mut().find(|(tolerance, _)| *tolerance == verdict.tolerance) {
            Some((_, engines)) => engines.push(verdict.engine.name()),
            None => all.push((&verdict.tolerance, vec![verdict.engine.name()])),
        }
    }
    if let [(tolerance, _)] = &all[..] {
        return cell(tolerance);
    }
    let each = all.iter().map(|(tolerance, engines)| format!("{} ({})", cell(tolerance), engines.join(", ")));
    each.collect::<Vec<_>>().join(", ")
}

/// One engine's answer to a claim.
fn in_cell(verdict: &Verdict) -> String {
    let mut parts = Vec::new();
    if verdict.measured.is_some() {
        parts.push(ours(verdict));
    }
    let seeds = if verdict.seeds == 1 { "seed" } else { "seeds" };
    match (verdict.range, verdict.seeds) {
        (Some((low, high)), n) => parts.push(format!("{} to {}, {n} {seeds}", digits(low), digits(high))),
        (None, 0) => {}
        (None, n) => parts.push(format!("{n} {seeds}")),
    }
    parts.push(word(verdict.verdict).to_owned());
    parts.join("<br>")
}

fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Pass => "pass",
        Outcome::Miss => "**miss**",
        Outcome::Undecided => "undecided",
        Outcome::Report => "report",
        Outcome::Pending => "pending",
    }
}

/// Findings beside the numbers, and why a claim misses.
fn notes(page: &mut String, section: &Section) {
    let said: Vec<&Verdict> = section.verdicts.iter().filter(|verdict| !verdict.note.is_empty()).collect();
    // An experiment that was never run needs no line per claim.
    if !section.runs.is_empty() && !said.is_empty() {
        line(page, format_args!(""));
        for verdict in said {
            line(page, format_args!("- {} ({}): {}", verdict.claim, verdict.engine, verdict.note));
        }
    }
    let misses = section.counts().miss;
    match &section.note {
        Note::Written(note) if misses > 0 => line(page, format_args!("\n**On the misses.** {note}")),
        Note::Written(note) => line(page, format_args!("\n{note}")),
        Note::Missing(file) if misses > 0 => {
            line(page, format_args!("\n**On the misses.** Nothing is written about them yet (`{file}`)."));
        }
        Note::Missing(_) | Note::Nobody => {}
    }
}

fn published(verdict: &Verdict) -> String {
    match &verdict.published {
        None => "-".to_owned(),
        Some(Published::Number(value)) => value.to_string(),
        Some(Published::Words(words)) => cell(words),
    }
}

fn ours(verdict: &Verdict) -> String {
    let value = value(verdict.measured, &verdict.tolerance);
    match verdict.ci95.filter(|_| verdict.measured.is_some()) {
        None => value,
        Some((low, high)) => format!("{value} [{}, {}]", digits(low), digits(high)),
    }
}

/// A measured value, or what came of a claim that is true or false.
fn value(measured: Option<f64>, tolerance: &str) -> String {
    match measured {
        None => "-".to_owned(),
        Some(truth) if tolerance == "order" || tolerance == "shape" => {
            if truth == 1.0 { "holds" } else { "does not hold" }.to_owned()
        }
        Some(number) => digits(number),
    }
}

/// Four digits, or all of those before the point.
pub fn digits(value: f64) -> String {
    let size = if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 };
    if !(-4..7).contains(&size) {
        return format!("{value:.3e}");
    }
    let decimals = usize::try_from(3 - size).unwrap_or(0);
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// A text that stays within its cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_digits_and_no_idle_zeros() {
        for (value, text) in [
            (1.58649, "1.586"),
            (2.0, "2"),
            (0.0, "0"),
            (0.012345, "0.01235"),
            (12345.6, "12346"),
            (-0.5, "-0.5"),
            (1e9, "1.000e9"),
            (3.2e-7, "3.200e-7"),
        ] {
            assert_eq!(digits(value), text);
        }
    }

    #[test]
    fn papers_are_written_as_they_write_themselves() {
        assert_eq!(
            ["ppush", "pam", "datacast", "bench"].map(paper_name),
            ["PPUSH", "PAM", "Datacast", "Bench"]
        );
    }
}
