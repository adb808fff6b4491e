//! The result for people.

use headwater_api::rate_in_words;
use headwater_units::{BitRate, Bytes};

use super::DemoResult;

impl DemoResult {
    /// Some lines that say how it went.
    pub fn table(&self) -> String {
        let get = &self.get;
        let percent = |share: f64| format!("{:.2} %", share * 100.0);
        let or_unknown = |value: Option<f64>, unit: &str| {
            value.map_or("unknown".to_owned(), |value| format!("{value:.3}{unit}"))
        };
        let verified = if get.verified { "yes, BLAKE3 of sources and receiver agree" } else { "no" };
        let mut rows = vec![
            ("network", self.network_text()),
            ("object", format!("{} of random bytes, seed {}", Bytes::new(get.bytes), self.seed)),
            (
                "time",
                format!("{:.3} s, {}", get.seconds, rate_in_words(BitRate::new((get.mb_per_s * 8e6) as u64))),
            ),
            ("ideal", or_unknown(get.ideal_seconds, " s, the size over the sum of the rates")),
            ("ratio", format!("{}; headers alone cost {:.3}", or_unknown(get.ratio, ""), get.wire_floor)),
        ];
        for (index, source) in get.sources.iter().enumerate() {
            let label = if index == 0 { "shares" } else { "" };
            let rate = self.source_rates.get(index).map_or(BitRate::ZERO, |rate| BitRate::new(*rate));
            let fate = self.fate(index);
            rows.push((
                label,
                format!("{index}  {:>13}  {:>8}{fate}", rate.to_string(), percent(source.share)),
            ));
        }
        rows.extend([
            ("repair", format!("{} of the source symbols", percent(get.repair_share))),
            ("duplicates", format!("{} of the arrivals", percent(get.duplicate_share))),
            (
                "lost",
                match self.loss_dropped {
                    Some(lost) => format!("{lost} packets on purpose, at {}", percent(self.loss)),
                    None if self.loss > 0.0 => format!("{} of the packets on purpose", percent(self.loss)),
                    None => "nothing on purpose".to_owned(),
                },
            ),
            ("processor", format!("{:.2} s in all processes", get.cpu_seconds)),
            ("memory", format!("{} at most in the receiver", Bytes::new(get.peak_rss_bytes))),
            ("verified", verified.to_owned()),
        ]);
        if let Some(kept) = &self.kept {
            rows.push(("kept", kept.clone()));
        }
        rows.iter().map(|(label, text)| format!("{label:<11} {text}\n")).collect()
    }

    fn network_text(&self) -> String {
        match self.network.as_str() {
            "namespaces" => "namespaces with links limited in the middle".to_owned(),
            _ => "loopback with sources that cap themselves".to_owned(),
        }
    }

    /// Events of a source.
    fn fate(&self, source: usize) -> String {
        let joined = self.joined.iter().filter(|joined| joined.source == source).map(|joined| {
            match joined.used_after_seconds {
                Some(after) => format!("  joined at {:.2} s, used {after:.2} s later", joined.at_seconds),
                None => format!("  joined at {:.2} s, not used", joined.at_seconds),
            }
        });
        let killed = self.killed.iter().filter(|killed| killed.source == source);
        let killed = killed.map(|killed| format!("  vanished at {:.2} s", killed.at_seconds));
        joined.chain(killed).collect()
    }
}
