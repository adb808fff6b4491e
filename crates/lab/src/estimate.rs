//! How far a set of runs is, and how long the rest will take, when runs differ a hundredfold in length.
//!
//! Runs of one kind (experiment, engine, point and scheme; only the seed differs) take about the same time, so what is
//! left is weighed by what its kind took: in this process, or in an earlier one that left its times. A kind of which
//! nothing is known counts as its experiment's mean, then as the mean of all. Pure arithmetic: time comes in as seconds.

/// State of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Waiting,
    /// Since when, and which part is done.
    Running {
        since: f64,
        part: f64,
    },
    /// How long it took, where that is known.
    Done(Option<f64>),
}

/// Runs that a run is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    /// Number of the experiment.
    pub(super) experiment: usize,
    /// Number of the kind, over all experiments.
    pub(super) kind: usize,
}

/// The whole set.
#[derive(Debug)]
pub(super) struct Estimate {
    kinds: Vec<Kind>,
    states: Vec<State>,
    /// Durations of runs in an earlier process.
    known: Vec<Option<f64>>,
    threads: usize,
    /// A bar never goes back, though estimates do.
    shown: f64,
}

/// How far, and how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Outlook {
    /// 0..=1, never less than before.
    pub(super) part: f64,
    /// Seconds that are left, once anything is known.
    pub(super) left: Option<f64>,
    /// Runs that are done.
    pub(super) done: usize,
    /// The run that has been at work longest.
    pub(super) oldest: Option<usize>,
}

/// Sums for a mean.
#[derive(Clone, Copy, Default)]
struct Mean {
    sum: f64,
    count: f64,
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1.0;
    }

    fn get(self) -> Option<f64> {
        (self.count > 0.0).then(|| self.sum / self.count)
    }
}

/// A run that has shown less than this of itself says nothing about its length yet.
const ENOUGH: f64 = 0.02;
/// A run that takes longer than its kind did still needs at least this part of what it took so far.
const AT_LEAST: f64 = 0.25;

impl Estimate {
    /// Nothing done yet; `known` are seconds of each run in an earlier process.
    pub(super) fn new(kinds: Vec<Kind>, known: Vec<Option<f64>>, threads: usize) -> Self {
        assert!(kinds.len() == known.len() && threads > 0, "every run has a kind, and somebody runs it");
        Estimate { states: vec![State::Waiting; kinds.len()], kinds, known, threads, shown: 0.0 }
    }

    /// A run began.
    pub(super) fn begun(&mut self, run: usize, now: f64) {
        self.states[run] = State::Running { since: now, part: 0.0 };
    }

    /// A run is that far.
    pub(super) fn reached(&mut self, run: usize, to: f64) {
        if let State::Running { part, .. } = &mut self.states[run] {
            *part = to.clamp(0.0, 1.0);
        }
    }

    /// A run is done, by this process in `seconds` or by an earlier one.
    pub(super) fn done(&mut self, run: usize, seconds: Option<f64>) {
        self.states[run] = State::Done(seconds);
    }

    /// How it looks now.
    pub(super) fn outlook(&mut self, now: f64) -> Outlook {
        let kinds = self.kinds.iter().map(|k| k.kind + 1).max().unwrap_or(0);
        let experiments = self.kinds.iter().map(|k| k.experiment + 1).max().unwrap_or(0);
        let mut of_kind = vec![Mean::default(); kinds];
        let mut of_experiment = vec![Mean::default(); experiments];
        let mut of_all = Mean::default();
        for (run, kind) in self.kinds.iter().enumerate() {
            if let Some(seconds) = self.measured(run, now) {
                of_kind[kind.kind].add(seconds);
                of_experiment[kind.experiment].add(seconds);
                of_all.add(seconds);
            }
        }
        let guess = |run: usize| {
            let kind = &self.kinds[run];
            of_kind[kind.kind].get().or(of_experiment[kind.experiment].get()).or(of_all.get())
        };
        let (mut spent, mut left, mut longest) = (0.0, 0.0, 0.0_f64);
        let mut done = 0;
        let mut oldest: Option<(f64, usize)> = None;
        for (run, state) in self.states.iter().enumerate() {
            let whole = self.measured(run, now).or_else(|| guess(run));
            let rest = match *state {
                State::Done(_) => {
                    done += 1;
                    0.0
                }
                State::Waiting => whole.unwrap_or(0.0),
                State::Running { since, part } => {
                    if oldest.is_none_or(|(begun, _)| since < begun) {
                        oldest = Some((since, run));
                    }
                    let elapsed = now - since;
                    let least = if part < ENOUGH { elapsed * AT_LEAST } else { 0.0 };
                    (whole.unwrap_or(0.0) - elapsed).max(least)
                }
            };
            spent += match *state {
                State::Running { since, .. } => now - since,
                _ => whole.unwrap_or(0.0) - rest,
            };
            left += rest;
            longest = longest.max(rest);
        }
        let part = match of_all.get() {
            Some(_) if spent + left > 0.0 => spent / (spent + left),
            _ => done as f64 / self.states.len().max(1) as f64,
        };
        self.shown = self.shown.max(part);
        // No way of dealing the rest to threads is faster than its longest run or an even split.
        let left = of_all.get().map(|_| (left / self.threads as f64).max(longest));
        let part = if done == self.states.len() { 1.0 } else { self.shown };
        Outlook { part, left, done, oldest: oldest.map(|(_, run)| run) }
    }

    /// Whole duration of a run, where its own progress shows it.
    fn measured(&self, run: usize, now: f64) -> Option<f64> {
        match self.states[run] {
            State::Done(seconds) => seconds.or(self.known[run]),
            State::Waiting => self.known[run],
            State::Running { since, part } => {
                let elapsed = now - since;
                let by_part = (part >= ENOUGH).then(|| elapsed / part);
                by_part.or(self.known[run].map(|known| known.max(elapsed)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(list: &[(usize, usize)]) -> Vec<Kind> {
        list.iter().map(|&(experiment, kind)| Kind { experiment, kind }).collect()
    }

    #[test]
    fn nothing_is_said_before_anything_is_known() {
        let mut estimate = Estimate::new(kinds(&[(0, 0), (0, 0)]), vec![None; 2], 1);
        estimate.begun(0, 0.0);
        assert_eq!(estimate.outlook(5.0), Outlook { part: 0.0, left: None, done: 0, oldest: Some(0) });
    }

    #[test]
    fn runs_of_a_kind_are_weighed_by_what_their_kind_took() {
        // Two seeds of a long kind, two of a short one; one of each is done.
        let mut estimate = Estimate::new(kinds(&[(0, 0), (0, 0), (0, 1), (0, 1)]), vec![None; 4], 1);
        estimate.done(0, Some(90.0));
        estimate.done(2, Some(10.0));
        assert_eq!(estimate.outlook(100.0), Outlook { part: 0.5, left: Some(100.0), done: 2, oldest: None });
        estimate.done(1, Some(90.0));
        let outlook = estimate.outlook(190.0);
        assert!((outlook.part - 0.95).abs() < 1e-9 && outlook.left == Some(10.0), "{outlook:?}");
    }

    #[test]
    fn a_run_that_says_how_far_it_is_tells_the_length_of_its_kind() {
        let mut estimate = Estimate::new(kinds(&[(0, 0), (0, 0)]), vec![None; 2], 2);
        estimate.begun(0, 0.0);
        estimate.reached(0, 0.25);
        // 10 s for a quarter: 30 s are left of it, and 40 s of the other, which runs beside it.
        assert_eq!(estimate.outlook(10.0).left, Some(40.0));
    }

    #[test]
    fn a_run_that_is_longer_than_its_kind_and_says_nothing_is_not_about_to_end() {
        let mut estimate = Estimate::new(kinds(&[(0, 0), (0, 0)]), vec![None; 2], 1);
        estimate.done(0, Some(1.0));
        estimate.begun(1, 1.0);
        let outlook = estimate.outlook(401.0);
        assert_eq!((outlook.left, outlook.oldest), (Some(100.0), Some(1)));
        assert!(outlook.part < 0.81, "{outlook:?}");
    }

    #[test]
    fn the_rest_takes_as_long_as_its_longest_run_however_many_threads() {
        let known = vec![Some(100.0), Some(1.0), Some(1.0)];
        let mut estimate = Estimate::new(kinds(&[(0, 0), (0, 1), (0, 1)]), known, 8);
        assert_eq!(estimate.outlook(0.0).left, Some(100.0));
    }

    #[test]
    fn unknown_kinds_count_as_their_experiment_then_as_everything() {
        let runs = kinds(&[(0, 0), (0, 1), (1, 2)]);
        let mut estimate = Estimate::new(runs, vec![None; 3], 1);
        estimate.done(0, Some(8.0));
        assert_eq!(estimate.outlook(8.0).left, Some(16.0));
    }

    #[test]
    fn the_part_never_goes_back_and_ends_at_one() {
        let mut estimate = Estimate::new(kinds(&[(0, 0), (0, 1)]), vec![None; 2], 1);
        estimate.done(0, Some(10.0));
        assert_eq!(estimate.outlook(10.0).part, 0.5);
        estimate.begun(1, 10.0);
        estimate.reached(1, 0.02);
        // The second turns out to be much longer.
        assert_eq!(estimate.outlook(30.0).part, 0.5);
        estimate.done(1, Some(1000.0));
        assert_eq!(estimate.outlook(1010.0), Outlook { part: 1.0, left: Some(0.0), done: 2, oldest: None });
    }

    #[test]
    fn runs_of_an_earlier_process_without_times_count_as_their_kind() {
        let mut estimate = Estimate::new(kinds(&[(0, 0), (0, 0), (0, 0), (0, 0)]), vec![None; 4], 1);
        estimate.done(0, None);
        estimate.done(1, None);
        estimate.done(2, Some(5.0));
        assert_eq!(estimate.outlook(5.0), Outlook { part: 0.75, left: Some(5.0), done: 3, oldest: None });
    }
}
