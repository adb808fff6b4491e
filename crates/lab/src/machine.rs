//! Machine and time of a run in real time: kept beside its results, since other machines give other numbers.

use std::fmt;
use std::fs;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// A machine, and a day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Name of the processor.
    pub cpu: String,
    /// Processors that this process may use.
    pub cores: usize,
    /// The kernel's release.
    pub kernel: String,
    /// The day, UTC: `2026-11-22`.
    pub date: String,
}

impl Machine {
    /// This machine, today.
    #[allow(clippy::disallowed_methods, reason = "the date of a measurement is for people")]
    pub(super) fn of_now() -> Machine {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Machine {
            cpu: cpu_in(&read("/proc/cpuinfo")).unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            date: date(since.map_or(0, |since| since.as_secs() / SECONDS_OF_A_DAY)),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cores = if self.cores == 1 { "core" } else { "cores" };
        write!(f, "{}, {} {cores}, Linux {}, {}", self.cpu, self.cores, self.kernel, self.date)
    }
}

const SECONDS_OF_A_DAY: u64 = 24 * 60 * 60;

/// The first processor's name, where there is one: ARM has none.
fn cpu_in(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find_map(|line| line.strip_prefix("model name"))?;
    let name = line.split_once(':')?.1;
    Some(name.split_whitespace().collect::<Vec<_>>().join(" ")).filter(|name| !name.is_empty())
}

/// The day of the Gregorian calendar that is `days` after 1970-01-01.
fn date(mut days: u64) -> String {
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates_over_leap_years_and_centuries() {
        for (days, written) in [
            (0, "1970-01-01"),
            (59, "1970-03-01"),
            (789, "1972-02-29"),
            (11_016, "2000-02-29"),
            (20_779, "2026-11-22"),
        ] {
            assert_eq!(date(days), written);
        }
        assert_eq!((date(364), date(365)), ("1970-12-31".to_owned(), "1971-01-01".to_owned()));
    }

    #[test]
    fn a_processor_is_named_as_it_names_itself() {
        let text = "processor\t: 0\nmodel name\t: Some  CPU @ 2.00GHz\nmodel name\t: Other\n";
        assert_eq!(cpu_in(text).as_deref(), Some("Some CPU @ 2.00GHz"));
        assert_eq!(cpu_in("processor\t: 0\nmodel name\t:\n"), None);
        let here = Machine::of_now();
        assert!(here.cores > 0 && !here.kernel.is_empty() && here.date.as_str() > "2025", "{here}");
    }
}
