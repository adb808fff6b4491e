//! Reading what processes wrote about their flows (`--timeline`): `t_ns,object,flow,quantity,value`, ascending by time.

use std::collections::BTreeMap;
use std::path::Path;

use headwater_units::Time;

use super::Trouble;

/// Time series of one process: by object and flow, by quantity, values with their times since the beginning of the run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Timeline {
    pub(super) flows: BTreeMap<(String, String), Series>,
}

/// Of one flow.
pub(super) type Series = BTreeMap<String, Vec<(Time, f64)>>;

impl Timeline {
    /// Reads a file. Rows that a process had not finished writing when it was killed are left out; one that never wrote
    /// has no flows.
    pub(super) fn read(path: &Path, begin_ns: u64) -> Result<Timeline, Trouble> {
        match std::fs::read_to_string(path) {
            Ok(text) => Timeline::parse(&text, begin_ns)
                .map_err(|line| Trouble::Failed(format!("{}: line {line} is no sample", path.display()))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Timeline::default()),
            Err(error) => Err(Trouble::Failed(format!("cannot read {}: {error}", path.display()))),
        }
    }

    /// The number of the first bad line if there is one.
    fn parse(text: &str, begin_ns: u64) -> Result<Timeline, usize> {
        let mut timeline = Timeline::default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        for (number, line) in whole.lines().enumerate().skip(1) {
            let mut fields = line.split(',');
            let mut next = || fields.next().ok_or(number + 1);
            let (at, object, flow, quantity) = (next()?, next()?, next()?, next()?);
            let value: f64 = next()?.parse().map_err(|_| number + 1)?;
            let at: u64 = at.parse().map_err(|_| number + 1)?;
            // Before the beginning everybody only waited.
            let at = Time::from_nanos(at.saturating_sub(begin_ns));
            let series = timeline.flows.entry((object.to_owned(), flow.to_owned())).or_default();
            series.entry(quantity.to_owned()).or_default().push((at, value));
        }
        Ok(timeline)
    }
}

/// The last value of a quantity that is counted up.
pub(super) fn total(series: &Series, quantity: &str) -> f64 {
    series.get(quantity).and_then(|values| values.last()).map_or(0.0, |(_, value)| *value)
}

/// The value in force at a time: the last one not after it.
pub(super) fn value_at(values: &[(Time, f64)], at: Time) -> Option<f64> {
    let after = values.partition_point(|(t, _)| *t <= at);
    after.checked_sub(1).map(|last| values[last].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "t_ns,object,flow,quantity,value\n\
                        1000,ab,f,window,1.5\n\
                        1000,ab,f,sent,3\n\
                        2000,ab,f,window,2.5\n\
                        2000,ab,g,window,9\n\
                        3000,ab,f,win";

    #[test]
    fn values_are_found_by_flow_quantity_and_time_and_a_broken_last_line_is_left_out() {
        let timeline = Timeline::parse(TEXT, 500).unwrap();
        let series = &timeline.flows[&("ab".to_owned(), "f".to_owned())];
        let at = Time::from_nanos;
        assert_eq!(series["window"], [(at(500), 1.5), (at(1500), 2.5)]);
        assert_eq!(total(series, "sent"), 3.0);
        assert_eq!(total(series, "lost"), 0.0);
        assert_eq!(value_at(&series["window"], at(499)), None);
        assert_eq!(value_at(&series["window"], at(1499)), Some(1.5));
        assert_eq!(value_at(&series["window"], at(9999)), Some(2.5));
        assert_eq!(timeline.flows.len(), 2);
    }

    #[test]
    fn a_whole_line_that_makes_no_sense_is_an_error_with_its_number() {
        for bad in ["x,ab,f,window,1", "1,ab,f,window", "1,ab,f,window,much"] {
            assert_eq!(Timeline::parse(&format!("head\n1,a,f,q,1\n{bad}\n"), 0), Err(3), "{bad}");
        }
        assert_eq!(Timeline::parse("", 0), Ok(Timeline::default()));
    }
}
