//! How large tasks are: tables of published distributions, rescaled, or plain numbers.

use headwater_units::Bytes;
use serde::{Deserialize, Serialize};

use super::WorkloadError;
use crate::text;

/// A published distribution of flow sizes; `data/SOURCES.md` says where each is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SizeTable {
    /// Web search (DCTCP, pFabric), in packets of 1460 B.
    Websearch,
    /// Web search, a second public table, in bytes.
    WebsearchBytesAlt,
    /// Data mining (VL2, pFabric), in packets of 1460 B.
    Datamining,
    /// Data mining, a second public table, in bytes.
    DataminingBytesAlt,
}

/// How large tasks are, in packets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Sizes {
    /// Drawn from a table that is stretched linearly, so that its smallest size becomes `from` and its largest `to`
    /// (PPUSH §V-B: [2, 200] * 1024 packets).
    Table {
        /// The table.
        table: SizeTable,
        /// The smallest size.
        from: u64,
        /// The largest size.
        to: u64,
        /// Multiplies every size; 1 if absent.
        #[serde(default = "once")]
        times: f64,
    },
    /// Drawn from a table as it was published, in packets of this payload; part of a packet is one (SCDP Table I).
    Published {
        /// The table.
        table: SizeTable,
        /// Payload of a packet.
        #[serde(with = "text::one")]
        payload: Bytes,
    },
    /// All alike.
    Fixed {
        /// This size.
        packets: u64,
    },
    /// Evenly between two sizes, both included.
    Uniform {
        /// The smallest size.
        from: u64,
        /// The largest size.
        to: u64,
    },
}

fn once() -> f64 {
    1.0
}

impl SizeTable {
    fn text(self) -> &'static str {
        match self {
            SizeTable::Websearch => include_str!("../../data/websearch.cdf"),
            SizeTable::WebsearchBytesAlt => include_str!("../../data/websearch-bytes-alt.cdf"),
            SizeTable::Datamining => include_str!("../../data/datamining.cdf"),
            SizeTable::DataminingBytesAlt => include_str!("../../data/datamining-bytes-alt.cdf"),
        }
    }

    /// Size in bytes and cumulative probability, increasing in both; the first row is the left end. Between rows the
    /// size is linear in the probability.
    pub fn rows(self) -> Vec<(f64, f64)> {
        let row = |line: &str| {
            let numbers: Option<Vec<f64>> = line.split_whitespace().map(|word| word.parse().ok()).collect();
            match numbers.as_deref() {
                Some([bytes, probability] | [_, bytes, probability]) => (*bytes, *probability),
                _ => panic!("a row of our own table of sizes is not two or three numbers: {line}"),
            }
        };
        self.text()
            .lines()
            .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
            .map(row)
            .collect()
    }

    /// The part of all flows that is larger than `from` and at most `to` bytes.
    pub fn share(self, from: f64, to: f64) -> f64 {
        self.up_to(to) - self.up_to(from)
    }

    /// The part of all flows that is at most so large: linear between rows, all of a row's where its size is reached.
    fn up_to(self, bytes: f64) -> f64 {
        let rows = self.rows();
        let above = rows.partition_point(|(size, _)| *size <= bytes);
        match (above.checked_sub(1).map(|at| rows[at]), rows.get(above)) {
            (None, _) => 0.0,
            (Some((_, p)), None) => p,
            (Some((x0, p0)), Some((x1, p1))) => p0 + (bytes - x0) / (x1 - x0) * (p1 - p0),
        }
    }

    /// The mean of the distribution.
    pub fn mean(self) -> Bytes {
        Bytes::new(mean(&self.rows()) as u64)
    }
}

/// A ready distribution: sizes in packets.
#[derive(Clone, Debug)]
pub(super) struct Drawn {
    rows: Vec<(f64, f64)>,
    /// Part of a packet is one; else to the nearest.
    up: bool,
}

impl Sizes {
    /// The mean size, packets, before rounding to whole ones.
    ///
    /// # Errors
    /// [`WorkloadError::OutOfRange`] for sizes that are no range.
    pub fn mean(&self) -> Result<f64, WorkloadError> {
        Ok(mean(&self.drawn()?.rows))
    }

    pub(super) fn drawn(&self) -> Result<Drawn, WorkloadError> {
        let must = "from 1 to 10^12 packets, the smaller first";
        let bad = |value: f64| WorkloadError::OutOfRange { what: "a size", value, must };
        let check = |least: f64, most: f64| {
            if !(least >= 1.0 && least.is_finite()) {
                return Err(bad(least));
            }
            if !(most >= least && most <= 1e12) {
                return Err(bad(most));
            }
            Ok(())
        };
        let rows = match self {
            Sizes::Fixed { packets } => vec![(*packets as f64, 0.0), (*packets as f64, 1.0)],
            Sizes::Uniform { from, to } => vec![(*from as f64, 0.0), (*to as f64, 1.0)],
            Sizes::Table { table, from, to, times } => {
                let rows = table.rows();
                let (least, most) = (rows[0].0, rows[rows.len() - 1].0);
                let (from, to) = (*from as f64, *to as f64);
                let stretched = |bytes: f64| (from + (bytes - least) / (most - least) * (to - from)) * times;
                rows.into_iter().map(|(bytes, probability)| (stretched(bytes), probability)).collect()
            }
            Sizes::Published { table, payload } => {
                let payload = payload.get() as f64;
                if !(1.0..=65_536.0).contains(&payload) {
                    let must = "1 to 65536 bytes";
                    return Err(WorkloadError::OutOfRange { what: "payload", value: payload, must });
                }
                table.rows().into_iter().map(|(bytes, probability)| (bytes / payload, probability)).collect()
            }
        };
        let up = matches!(self, Sizes::Published { .. });
        check(if up { 1.0 } else { rows[0].0 }, rows[rows.len() - 1].0)?;
        Ok(Drawn { rows, up })
    }
}

impl Drawn {
    /// The size at that probability in [0, 1), a whole number of packets.
    pub(super) fn at(&self, probability: f64) -> u64 {
        let above = self.rows.partition_point(|(_, p)| *p <= probability).clamp(1, self.rows.len() - 1);
        let ((x0, p0), (x1, p1)) = (self.rows[above - 1], self.rows[above]);
        let part = if p1 > p0 { ((probability - p0) / (p1 - p0)).clamp(0.0, 1.0) } else { 0.0 };
        let size = x0 + part * (x1 - x0);
        if self.up { size.ceil().max(1.0) as u64 } else { size.round() as u64 }
    }
}

fn mean(rows: &[(f64, f64)]) -> f64 {
    rows.windows(2).map(|pair| (pair[1].1 - pair[0].1) * 0.5 * (pair[0].0 + pair[1].0)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAPER: Sizes = Sizes::Table { table: SizeTable::Websearch, from: 2048, to: 204_800, times: 1.0 };

    #[test]
    fn tables_have_the_means_that_their_sources_state() {
        let near = |table: SizeTable, mb: f64| {
            let mean = table.mean().get() as f64 / 1e6;
            assert!((mean - mb).abs() < 0.001, "{table:?}: {mean} MB is not {mb}");
        };
        near(SizeTable::Websearch, 1.666);
        near(SizeTable::WebsearchBytesAlt, 1.711);
        near(SizeTable::Datamining, 7.470);
        near(SizeTable::DataminingBytesAlt, 12.658);
    }

    #[test]
    fn the_rescaled_table_spans_the_papers_range_with_the_mean_that_follows() {
        let drawn = PAPER.drawn().unwrap();
        assert_eq!(drawn.at(0.0), 2048);
        assert_eq!(drawn.at(0.149), 2048, "15 % of the tasks have the smallest size");
        assert_eq!(drawn.at(1.0 - 1e-12), 204_800);
        // By hand: rescaling is linear, so the mean is that of the table's packets, rescaled: 1141.07 packets of
        // 6..20000.
        let by_hand =
            2048.0 + (SizeTable::Websearch.mean().get() as f64 / 1460.0 - 6.0) / 19_994.0 * 202_752.0;
        assert!((PAPER.mean().unwrap() - by_hand).abs() < 1.0, "{} {by_hand}", PAPER.mean().unwrap());
    }

    #[test]
    fn drawn_sizes_have_the_mean_of_the_table() {
        let drawn = PAPER.drawn().unwrap();
        let many = 200_000;
        let sum: u64 = (0..many).map(|i| drawn.at((i as f64 + 0.5) / many as f64)).sum();
        let mean = sum as f64 / many as f64;
        assert!((mean / PAPER.mean().unwrap() - 1.0).abs() < 1e-4, "{mean}");
    }

    /// SOURCES.md of the shared data: 15.6, 38.7, 15.9 and 29.7 % of web search, 79.6, 2.7, 8.8 and 8.9 % of data mining.
    #[test]
    fn shares_of_small_and_large_flows_are_those_of_the_tables() {
        let bins = [(0.0, 1e4), (1e4, 1e5), (1e5, 1e6), (1e6, f64::MAX)];
        for (table, published) in [
            (SizeTable::Websearch, [0.156, 0.387, 0.159, 0.297]),
            (SizeTable::Datamining, [0.796, 0.027, 0.088, 0.089]),
        ] {
            for ((from, to), share) in bins.into_iter().zip(published) {
                let found = table.share(from, to);
                assert!((found - share).abs() < 0.0006, "{table:?} {from} to {to}: {found}");
            }
        }
    }

    #[test]
    fn published_sizes_fill_whole_packets_and_keep_their_mean() {
        for table in [SizeTable::Websearch, SizeTable::Datamining, SizeTable::DataminingBytesAlt] {
            let sizes = Sizes::Published { table, payload: Bytes::new(1436) };
            let drawn = sizes.drawn().unwrap();
            assert!(drawn.at(0.0) >= 1, "{table:?}");
            let many = 200_000;
            let sum: u64 = (0..many).map(|i| drawn.at((f64::from(i) + 0.5) / f64::from(many))).sum();
            let mean = sum as f64 / f64::from(many) * 1436.0;
            // Half a packet is added on average.
            let off = mean - table.mean().get() as f64;
            assert!((0.0..1436.0).contains(&off), "{table:?}: {off} bytes");
        }
        let no_payload = Sizes::Published { table: SizeTable::Websearch, payload: Bytes::ZERO };
        assert!(no_payload.mean().is_err());
    }

    #[test]
    fn sizes_that_are_no_range_are_refused() {
        assert!(Sizes::Uniform { from: 9, to: 3 }.mean().is_err());
        assert!(Sizes::Fixed { packets: 0 }.mean().is_err());
        let stretched = |times| Sizes::Table { table: SizeTable::Websearch, from: 1, to: 2, times }.mean();
        for times in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(stretched(times).is_err(), "{times}");
        }
        assert_eq!(Sizes::Uniform { from: 1, to: 3 }.mean(), Ok(2.0));
    }
}
