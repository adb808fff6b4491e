//! The page's text.

use std::fmt::Write;

use headwater_sim::claim::{Outcome, Published, Verdict};
use headwater_sim::experiment::Engine;

use super::{Counts, Section};

const HEAD: &str = "\
# Reproduction

What the papers say, and what we get. This page is made by `headwater lab report` from the results in
`experiments/results`; do not edit it. To run an experiment again and keep its results:

    headwater lab run fig8 --scale paper --store
    headwater lab report

A claim is a number or an order that a paper states. *Ours* is the mean over seeds with its 95 % interval (Student's t).
The verdict is `pass` within the stated tolerance, `miss` outside it, `report` where there is no pass line or our interval
does not decide, `pending` where nothing was run yet.
";

/// The whole page.
pub(super) fn written(sections: &[Section]) -> String {
    let mut page = HEAD.to_owned();
    summary(&mut page, sections);
    let mut paper = "";
    for section in sections {
        let of = paper_of(&section.experiment.id);
        if of != paper {
            line(&mut page, format_args!("\n## {}", paper_name(of)));
            paper = of;
        }
        one(&mut page, section);
    }
    page
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

fn anchor(id: &str) -> String {
    id.replace('/', "-")
}

fn summary(page: &mut String, sections: &[Section]) {
    let mut papers: Vec<(&str, Counts)> = Vec::new();
    for section in sections {
        let paper = paper_of(&section.experiment.id);
        match papers.last_mut() {
            Some((last, counts)) if *last == paper => *counts = counts.plus(section.counts()),
            _ => papers.push((paper, section.counts())),
        }
    }
    line(page, format_args!("\n## Summary\n"));
    line(page, format_args!("| Paper | pass | miss | report | pending |\n|---|---:|---:|---:|---:|"));
    for (paper, counts) in &papers {
        line(page, format_args!("| {} | {} |", paper_name(paper), cells(counts)));
    }
    if papers.len() > 1 {
        let all = papers.iter().map(|(_, counts)| *counts).fold(Counts::default(), Counts::plus);
        line(page, format_args!("| all | {} |", cells(&all)));
    }
    let missed = sections.iter().flat_map(|section| {
        let missed = section.verdicts.iter().filter(|verdict| verdict.verdict == Outcome::Miss);
        missed.map(|verdict| format!("[{}](#{})", verdict.claim, anchor(&section.experiment.id)))
    });
    let missed: Vec<String> = missed.collect();
    if !missed.is_empty() {
        line(page, format_args!("\nMissed: {}.", missed.join(", ")));
    }
    line(page, format_args!("\n| Experiment | | pass | miss | report | pending |"));
    line(page, format_args!("|---|---|---:|---:|---:|---:|"));
    for section in sections {
        let (id, title) = (&section.experiment.id, cell(&section.experiment.title));
        line(page, format_args!("| [{id}](#{}) | {title} | {} |", anchor(id), cells(&section.counts())));
    }
}

fn cells(counts: &Counts) -> String {
    format!("{} | {} | {} | {}", counts.pass, counts.miss, counts.report, counts.pending)
}

fn one(page: &mut String, section: &Section) {
    let experiment = &section.experiment;
    line(page, format_args!("\n<a id=\"{}\"></a>\n", anchor(&experiment.id)));
    line(page, format_args!("### {}\n", experiment.title));
    line(page, format_args!("{}; `{}`.", experiment.source, experiment.id));
    for sentence in &experiment.about {
        line(page, format_args!("{sentence}"));
    }
    line(page, format_args!(""));
    match &section.stored {
        None => line(
            page,
            format_args!("Not run yet: `headwater lab run {} --scale paper --store`.", experiment.id),
        ),
        Some(stored) => {
            for run in &stored.runs {
                let seeds = if run.seeds == 1 { "1 seed".to_owned() } else { format!("{} seeds", run.seeds) };
                let commit = run.commit.as_deref().map_or_else(String::new, |commit| {
                    format!(", commit `{}`", commit.get(..12).unwrap_or(commit))
                });
                line(
                    page,
                    format_args!(
                        "- {} engine at {} scale, {seeds}{commit}, code `{}`",
                        run.engine, run.scale, run.code
                    ),
                );
            }
        }
    }
    for (title, file) in &section.plots {
        let alt = title.replace(['[', ']'], "");
        line(
            page,
            format_args!("\n![{alt}](reproduction/{file}.svg)\n\n[{alt}, as PNG](reproduction/{file}.png)"),
        );
    }
    table(page, section);
    notes(page, section);
    if !experiment.choices.is_empty() {
        line(page, format_args!("\nWhere the paper leaves it open, we chose:\n"));
        for choice in &experiment.choices {
            line(page, format_args!("- {choice}"));
        }
    }
}

fn table(page: &mut String, section: &Section) {
    if section.verdicts.is_empty() {
        return;
    }
    let engines: Vec<Engine> = section.verdicts.iter().map(|verdict| verdict.engine).collect();
    let several = engines.iter().any(|engine| *engine != engines[0]);
    let (head, rule) = if several { (" Engine |", "---|") } else { ("", "") };
    line(
        page,
        format_args!(
            "\n| Claim | What | Where |{head} Published | Ours | Within | Verdict |\n|---|---|---|{rule}---|---|---|---|"
        ),
    );
    for verdict in &section.verdicts {
        let engine = if several { format!(" {} |", verdict.engine) } else { String::new() };
        let word = match verdict.verdict {
            Outcome::Pass => "pass",
            Outcome::Miss => "**miss**",
            Outcome::Report => "report",
            Outcome::Pending => "pending",
        };
        line(
            page,
            format_args!(
                "| {} | {} | {} |{engine} {} | {} | {} | {word} |",
                verdict.claim,
                cell(&verdict.about),
                cell(&verdict.source),
                published(verdict),
                ours(verdict),
                cell(&verdict.tolerance),
            ),
        );
    }
}

/// What was found beside the numbers, and why a claim misses.
fn notes(page: &mut String, section: &Section) {
    let said: Vec<&Verdict> = section.verdicts.iter().filter(|verdict| !verdict.note.is_empty()).collect();
    // What was never run needs no line per claim.
    if section.stored.is_some() && !said.is_empty() {
        line(page, format_args!(""));
        for verdict in said {
            line(page, format_args!("- {} ({}): {}", verdict.claim, verdict.engine, verdict.note));
        }
    }
    let misses = section.counts().miss;
    match &section.note {
        Some(note) if misses > 0 => line(page, format_args!("\n**On the misses.** {note}")),
        Some(note) => line(page, format_args!("\n{note}")),
        None if misses > 0 => line(
            page,
            format_args!(
                "\n**On the misses.** Nothing is written about them yet \
                 (`experiments/results/notes/{}.md`).",
                section.experiment.id
            ),
        ),
        None => {}
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
    let Some(measured) = verdict.measured else { return "-".to_owned() };
    if verdict.tolerance == "order" || verdict.tolerance == "shape" {
        return if measured == 1.0 { "holds" } else { "does not hold" }.to_owned();
    }
    match verdict.ci95 {
        None => digits(measured),
        Some((low, high)) => format!("{} [{}, {}]", digits(measured), digits(low), digits(high)),
    }
}

/// Four digits, or all of those before the point.
pub(crate) fn digits(value: f64) -> String {
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
