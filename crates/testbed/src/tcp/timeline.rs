//! Time series of connections as lines of text: `t_ns,object,flow,quantity,value`.
//!
//! Rows ascend in time and stand at exact multiples of the interval on CLOCK_MONOTONIC, but for the last ones of each
//! connection, which have its totals. An interval that was slept through gets no row of its own: the next row is about both.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use headwater_units::Duration;

use super::TcpError;

/// Lines are in the file after this at the latest, so that a killed process leaves whole ones.
const FLUSH_EVERY: u64 = 100_000_000;
/// The shortest interval that makes sense beside the kernel's own clock ticks.
const SHORTEST: Duration = Duration::from_micros(100);

/// Where a time series goes, and how often it has a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineOptions {
    /// The file; an old one is replaced.
    pub file: PathBuf,
    /// The interval.
    pub every: Duration,
}

/// A file that is being written, or none: then every call does nothing.
pub(super) struct Timeline(Option<Open>);

struct Open {
    out: BufWriter<File>,
    path: PathBuf,
    every: u64,
    /// The next row's time.
    next: u64,
    flushed: u64,
}

/// A moment to take samples at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    /// Nanoseconds.
    pub(super) at: u64,
    /// Since the last such moment, nanoseconds.
    pub(super) span: u64,
}

impl Timeline {
    /// Creates the file.
    pub(super) fn create(options: Option<&TimelineOptions>, now: u64) -> Result<Timeline, TcpError> {
        let Some(TimelineOptions { file: path, every }) = options else { return Ok(Timeline(None)) };
        if *every < SHORTEST {
            return Err(TcpError::Interval { every: *every });
        }
        let failed = |source| TcpError::Timeline { path: path.clone(), source };
        let mut out = BufWriter::new(File::create(path).map_err(failed)?);
        out.write_all(b"t_ns,object,flow,quantity,value\n").and_then(|()| out.flush()).map_err(failed)?;
        let every = every.as_nanos();
        let next = (now / every + 1) * every;
        Ok(Timeline(Some(Open { out, path: path.clone(), every, next, flushed: now })))
    }

    /// When the next row is due; never without a file.
    pub(super) fn next(&self) -> u64 {
        self.0.as_ref().map_or(u64::MAX, |open| open.next)
    }

    /// The latest moment for a row that has come and was not told yet.
    pub(super) fn due(&mut self, now: u64) -> Option<Due> {
        let open = self.0.as_mut().filter(|open| open.next <= now)?;
        let at = now / open.every * open.every;
        let span = at - open.next + open.every;
        open.next = at + open.every;
        Some(Due { at, span })
    }

    /// Adds a row.
    pub(super) fn row(&mut self, at: u64, name: &str, quantity: &str, value: f64) -> Result<(), TcpError> {
        let Some(open) = &mut self.0 else { return Ok(()) };
        let written = writeln!(open.out, "{at},{name},0,{quantity},{value}").and_then(|()| {
            if at.saturating_sub(open.flushed) < FLUSH_EVERY {
                return Ok(());
            }
            open.flushed = at;
            open.out.flush()
        });
        written.map_err(|source| TcpError::Timeline { path: open.path.clone(), source })
    }

    /// Puts all rows into the file.
    pub(super) fn flush(&mut self) -> Result<(), TcpError> {
        let Some(open) = &mut self.0 else { return Ok(()) };
        open.out.flush().map_err(|source| TcpError::Timeline { path: open.path.clone(), source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline(every: Duration) -> (tempfile::TempDir, PathBuf, Timeline) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("t.csv");
        let options = TimelineOptions { file: file.clone(), every };
        (folder, file, Timeline::create(Some(&options), 25_000_000).unwrap())
    }

    #[test]
    fn rows_are_due_at_multiples_and_an_interval_slept_through_has_none() {
        let (_folder, _, mut timeline) = timeline(Duration::from_millis(10));
        assert_eq!((timeline.next(), timeline.due(29_999_999)), (30_000_000, None));
        assert_eq!(timeline.due(30_000_001), Some(Due { at: 30_000_000, span: 10_000_000 }));
        assert_eq!(timeline.due(30_000_002), None);
        assert_eq!(timeline.due(61_000_000), Some(Due { at: 60_000_000, span: 30_000_000 }));
        assert_eq!(timeline.next(), 70_000_000);
    }

    #[test]
    fn lines_are_in_the_file_before_the_end() {
        let (_folder, file, mut timeline) = timeline(Duration::from_millis(10));
        timeline.row(30_000_000, "tcp", "window", 10.0).unwrap();
        timeline.row(130_000_000, "tcp", "rtt", 0.0125).unwrap();
        let text = std::fs::read_to_string(file).unwrap();
        assert_eq!(
            text,
            "t_ns,object,flow,quantity,value\n30000000,tcp,0,window,10\n130000000,tcp,0,rtt,0.0125\n"
        );
    }

    #[test]
    fn no_file_costs_nothing_and_no_interval_is_an_error() {
        let mut none = Timeline::create(None, 0).unwrap();
        assert_eq!((none.next(), none.due(u64::MAX)), (u64::MAX, None));
        let options = TimelineOptions { file: "t.csv".into(), every: Duration::ZERO };
        assert!(matches!(Timeline::create(Some(&options), 0), Err(TcpError::Interval { .. })));
        let options =
            TimelineOptions { file: "/no/such/folder/t.csv".into(), every: Duration::from_millis(1) };
        let error = Timeline::create(Some(&options), 0).err().unwrap().to_string();
        assert!(error.contains("/no/such/folder/t.csv"), "{error}");
    }
}
