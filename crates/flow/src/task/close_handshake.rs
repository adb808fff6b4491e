//! The closing of one flow: FIN is repeated until the source answers, or often enough.

use headwater_units::{Duration, PathId, Time};
use headwater_wire::FinReason;

/// Maximum number of FIN attempts.
const TRIES: u32 = 6;
/// Delay before the second attempt; each further attempt doubles it.
const RETRY: Duration = Duration::from_millis(40);

/// Repeats the FIN of a flow until its source answers or the attempts are used up.
#[derive(Debug)]
pub struct CloseHandshake {
    reason: FinReason,
    next: Time,
    tries: u32,
}

/// The next step for a flow that ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing now.
    Wait,
    /// Say this to its source, which is there.
    Say(PathId, FinReason),
    /// Forget it.
    Over,
}

/// How a flow stands at its receiver.
#[derive(Debug)]
pub enum Stand {
    /// It brings symbols.
    Live,
    /// Its source is told that it is over.
    Ending(CloseHandshake),
    /// Its source knows that it is over, or is not asked any more.
    Over,
}

impl Stand {
    /// Whether it brings symbols.
    pub fn is_live(&self) -> bool {
        matches!(self, Stand::Live)
    }

    /// Whether nothing is left to say to its source.
    pub fn is_over(&self) -> bool {
        matches!(self, Stand::Over)
    }

    /// The flow ends now.
    pub fn end(&mut self, now: Time, reason: FinReason) {
        *self = Stand::Ending(CloseHandshake { reason, next: now, tries: 0 });
    }

    /// When [`Stand::step`] is due, if it ends.
    pub fn next(&self) -> Option<Time> {
        match self {
            Stand::Ending(closing) => Some(closing.next),
            Stand::Live | Stand::Over => None,
        }
    }

    /// The step that is due now, if the flow is ending ([`CloseHandshake`]).
    pub fn step(&mut self, now: Time, path: Option<PathId>, silent: bool) -> Step {
        match self {
            Stand::Ending(closing) => closing.step(now, path, silent),
            Stand::Live | Stand::Over => Step::Wait,
        }
    }
}

impl CloseHandshake {
    /// The step that is due now; `path` leads to the source, if it is known. A source that has fallen silent gets one
    /// FIN and is not waited for: the controller stops its flow too.
    fn step(&mut self, now: Time, path: Option<PathId>, silent: bool) -> Step {
        if now < self.next {
            return Step::Wait;
        }
        let tries = if silent { 1 } else { TRIES };
        let Some(path) = path.filter(|_| self.tries < tries) else { return Step::Over };
        self.next = if silent { now } else { now + RETRY * (1 << self.tries) };
        self.tries += 1;
        Step::Say(path, self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of FIN attempts before giving up, and the time that they take.
    fn said(path: Option<PathId>, silent: bool) -> (u32, Duration) {
        let (mut stand, mut now, mut times) = (Stand::Live, Time::ZERO, 0);
        stand.end(now, FinReason::Done);
        loop {
            match stand.step(now, path, silent) {
                Step::Wait => now = stand.next().expect("it ends"),
                Step::Say(to, reason) => {
                    assert_eq!((Some(to), reason), (path, FinReason::Done));
                    times += 1;
                }
                Step::Over => return (times, now.since(Time::ZERO)),
            }
        }
    }

    #[test]
    fn the_end_is_said_for_two_and_a_half_seconds_to_whoever_may_still_hear_it() {
        assert_eq!(said(Some(PathId(3)), false), (6, Duration::from_millis(40 * 63)));
        assert_eq!(said(Some(PathId(3)), true), (1, Duration::ZERO), "a silent one is not waited for");
        assert_eq!(said(None, false), (0, Duration::ZERO), "nobody knows where it is");
    }
}
