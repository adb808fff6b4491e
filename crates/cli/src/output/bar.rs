//! Progress for people: a bar with a line per source on a terminal, a plain line now and then elsewhere.

use std::fmt::Write;
use std::time::Duration as StdDuration;

use headwater_api::{Phase, Progress, ProgressReceiver, ProgressSource, Watch};
use headwater_units::{Bytes, Duration};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::{Pace, Terminal, printable};

/// Lines of sources on the screen; more would scroll the bar away on a small terminal.
const SOURCE_LINES: usize = 8;
pub(crate) const WITH_END: &str = "{prefix} [{bar:30}] {percent:>3} %  {wide_msg}";
const WITHOUT_END: &str = "{prefix} {spinner} {wide_msg}";
/// How often a log file gets a line.
pub(crate) const LINE_INTERVAL: StdDuration = StdDuration::from_secs(2);

/// Word for the phase.
fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::Hashing => "hashing",
        Phase::Asking => "asking",
        Phase::Checking => "checking",
        Phase::Receiving => "receiving",
        Phase::Finishing => "finishing",
    }
}

/// A span for people: `9 s`, `1 m 05 s`, `2 h 03 m`.
pub(crate) fn span(span: Duration) -> String {
    let seconds = span.as_secs_f64().round() as u64;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} m {:02} s", seconds / 60, seconds % 60),
        3600..360_000 => format!("{} h {:02} m", seconds / 3600, seconds % 3600 / 60),
        _ => "days".to_owned(),
    }
}

/// `102.4 MiB of 256.0 MiB, 480.2 Mbit/s, 3 s left`.
fn amounts(progress: &Progress) -> String {
    let mut text = Bytes::new(progress.bytes_done).to_string();
    if progress.bytes_total > 0 {
        // Writing to a String cannot fail.
        let _ = write!(text, " of {}", Bytes::new(progress.bytes_total));
    }
    if progress.rate.get() > 0 {
        let _ = write!(text, ", {}", progress.rate);
    }
    if let Some(eta) = progress.eta {
        let _ = write!(text, ", {} left", span(eta));
    }
    text
}

/// `10.0.0.1:7001    98.2 Mbit/s   20 %  theta 1.25`.
fn source_line(source: &ProgressSource, width: usize) -> String {
    let rate = if source.live { source.rate.to_string() } else { "gone".to_owned() };
    let mut line = format!("  {:<width$}  {rate:>14}  {:>3.0} %", source.node, source.share * 100.0);
    if let Some(theta) = source.theta {
        let _ = write!(line, "  theta {theta:.2}");
    }
    line
}

/// `  10.0.0.1:7001     40 %  receiving`.
fn receiver_line(receiver: &ProgressReceiver, width: usize, bytes_total: u64) -> String {
    let percent = percent(receiver.bytes_done, bytes_total);
    format!("  {:<width$}  {percent:>3.0} %  {}", receiver.node, receiver.state)
}

fn percent(done: u64, total: u64) -> f64 {
    if total == 0 { 0.0 } else { done as f64 / total as f64 * 100.0 }
}

/// The lines below the bar: of sources, or of receivers.
fn lines_below(progress: &Progress) -> Vec<String> {
    let (sources, receivers, total) = (&progress.sources, &progress.receivers, progress.bytes_total);
    let width = |nodes: &mut dyn Iterator<Item = &String>| nodes.map(|node| node.chars().count()).max();
    if receivers.is_empty() {
        let width = width(&mut sources.iter().map(|it| &it.node)).unwrap_or_default();
        return some_of(sources, |source| source_line(source, width));
    }
    let width = width(&mut receivers.iter().map(|it| &it.node)).unwrap_or_default();
    // Those that are not through are what one waits for.
    let mut receivers: Vec<&ProgressReceiver> = receivers.iter().collect();
    receivers.sort_by_key(|it| it.bytes_done >= total);
    some_of(&receivers, |receiver| receiver_line(receiver, width, total))
}

fn some_of<T>(all: &[T], line: impl Fn(&T) -> String) -> Vec<String> {
    let shown = if all.len() > SOURCE_LINES { SOURCE_LINES - 1 } else { all.len() };
    let mut lines: Vec<_> = all[..shown].iter().map(line).collect();
    if shown < all.len() {
        lines.push(format!("  and {} more", all.len() - shown));
    }
    lines
}

/// The bar on a terminal. Nothing is drawn before there is progress, nor after what was hashed or checked is done.
pub(crate) struct Bar {
    terminal: Terminal,
    bars: MultiProgress,
    main: Option<ProgressBar>,
    below: Vec<ProgressBar>,
}

impl Bar {
    pub(crate) fn new(terminal: Terminal, bars: &MultiProgress) -> Self {
        Bar { terminal, bars: bars.clone(), main: None, below: Vec::new() }
    }

    /// A line at the end of the others.
    fn add(&self, template: &str) -> ProgressBar {
        let bar = self.bars.add(ProgressBar::no_length());
        restyle(&bar, template);
        bar
    }

    /// Leaves this many lines of sources.
    fn keep(&mut self, count: usize) {
        for gone in self.below.drain(count.min(self.below.len())..) {
            remove(&self.bars, &gone);
        }
    }

    fn clear(&mut self) {
        self.keep(0);
        if let Some(main) = self.main.take() {
            remove(&self.bars, &main);
        }
    }
}

pub(crate) fn restyle(bar: &ProgressBar, template: &str) {
    // The templates are ours; with a broken one the bar keeps its plain look.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
}

fn remove(bars: &MultiProgress, bar: &ProgressBar) {
    bar.finish_and_clear();
    bars.remove(bar);
}

impl Watch for Bar {
    fn progress(&mut self, progress: &Progress) {
        let bounded = progress.bytes_total > 0;
        let preparing = matches!(progress.phase, Phase::Hashing | Phase::Checking);
        if preparing && bounded && progress.bytes_done >= progress.bytes_total {
            return self.clear();
        }
        let main = self.main.take().unwrap_or_else(|| self.add(WITHOUT_END));
        if bounded && main.length().is_none() {
            restyle(&main, WITH_END);
        }
        if bounded {
            main.set_length(progress.bytes_total);
        }
        main.set_prefix(format!("{} {}", phase_word(progress.phase), printable(&progress.object)));
        main.set_message(amounts(progress));
        main.set_position(progress.bytes_done);
        self.main = Some(main);

        let lines = lines_below(progress);
        self.keep(lines.len());
        for (i, line) in lines.into_iter().enumerate() {
            if self.below.len() <= i {
                self.below.push(self.add("{wide_msg}"));
            }
            self.below[i].set_message(printable(&line));
        }
    }

    fn note(&mut self, line: &str) {
        self.terminal.note(line);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Plain lines, for a log file.
pub(crate) struct Lines {
    terminal: Terminal,
    pace: Pace,
    phase: Option<Phase>,
}

impl Lines {
    pub(crate) fn new(terminal: Terminal) -> Self {
        Lines { terminal, pace: Pace::new(LINE_INTERVAL), phase: None }
    }
}

/// `receiving model: 40 %, 102.4 MiB of ...; 10.0.0.1:7001 20 %, 10.0.0.2:7001 80 %`.
fn plain_line(progress: &Progress) -> String {
    let mut line = format!("{} {}: ", phase_word(progress.phase), progress.object);
    if progress.bytes_total > 0 {
        let _ = write!(line, "{:.0} %, ", percent(progress.bytes_done, progress.bytes_total));
    }
    line += &amounts(progress);
    for (i, source) in progress.sources.iter().enumerate() {
        let separator = if i == 0 { "; " } else { ", " };
        let gone = if source.live { "" } else { " (gone)" };
        let _ = write!(line, "{separator}{} {:.0} %{gone}", source.node, source.share * 100.0);
    }
    for (i, receiver) in progress.receivers.iter().enumerate() {
        let separator = if i == 0 { "; " } else { ", " };
        let percent = percent(receiver.bytes_done, progress.bytes_total);
        let _ = write!(line, "{separator}{} {percent:.0} %", receiver.node);
    }
    line
}

impl Watch for Lines {
    fn progress(&mut self, progress: &Progress) {
        let new_phase = self.phase.replace(progress.phase) != Some(progress.phase);
        if self.pace.due() || new_phase {
            self.terminal.err(&plain_line(progress));
        }
    }

    fn note(&mut self, line: &str) {
        self.terminal.note(line);
    }
}

#[cfg(test)]
mod tests {
    use headwater_units::BitRate;

    use super::*;

    fn source(node: &str, share: f64, live: bool) -> ProgressSource {
        ProgressSource { node: node.into(), rate: BitRate::new(98_200_000), share, theta: Some(1.25), live }
    }

    fn progress() -> Progress {
        Progress {
            object: "model".into(),
            bytes_done: 64 << 20,
            bytes_total: 256 << 20,
            rate: BitRate::new(480_000_000),
            eta: Some(Duration::from_millis(3300)),
            sources: vec![source("10.0.0.1:7001", 0.2, true), source("10.0.0.20:7001", 0.8, false)],
            receivers: Vec::new(),
            phase: Phase::Receiving,
        }
    }

    #[test]
    fn a_plain_line_says_how_far_how_fast_and_who() {
        assert_eq!(
            plain_line(&progress()),
            "receiving model: 25 %, 64.0 MiB of 256.0 MiB, 480.0 Mbit/s, 3 s left; 10.0.0.1:7001 20 %, \
             10.0.0.20:7001 80 % (gone)"
        );
        assert_eq!(plain_line(&Progress::default()), "asking : 0 B");
    }

    #[test]
    fn each_source_has_a_line_with_its_columns_aligned() {
        let lines = lines_below(&progress());
        assert_eq!(lines[0], "  10.0.0.1:7001      98.2 Mbit/s   20 %  theta 1.25");
        assert_eq!(lines[1], "  10.0.0.20:7001            gone   80 %  theta 1.25");
    }

    #[test]
    fn many_sources_do_not_push_the_bar_off_the_screen() {
        let sources = vec![source("a", 0.1, true); 20];
        let lines = lines_below(&Progress { sources, ..Progress::default() });
        assert_eq!(lines.len(), SOURCE_LINES);
        assert_eq!(lines.last().map(String::as_str), Some("  and 13 more"));
    }

    #[test]
    fn of_a_cast_the_receivers_that_are_behind_come_first() {
        let receiver = |node: &str, mib: u64, state: &str| ProgressReceiver {
            node: node.into(),
            bytes_done: mib << 20,
            state: state.into(),
        };
        let receivers = vec![receiver("a:7001", 256, "done"), receiver("bb:7001", 64, "receiving")];
        let progress = Progress { receivers, sources: Vec::new(), ..progress() };
        let lines = lines_below(&progress);
        assert_eq!(lines, ["  bb:7001   25 %  receiving", "  a:7001   100 %  done"]);
        assert!(plain_line(&progress).ends_with("; a:7001 100 %, bb:7001 25 %"));
    }

    #[test]
    fn spans_are_short() {
        assert_eq!(span(Duration::from_millis(9400)), "9 s");
        assert_eq!(span(Duration::from_secs(65)), "1 m 05 s");
        assert_eq!(span(Duration::from_secs(7380)), "2 h 03 m");
        assert_eq!(span(Duration::MAX), "days");
    }
}
