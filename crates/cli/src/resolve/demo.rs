//! Options of a demo.

use headwater_bench::demo::DemoOptions;
use headwater_units::{BitRate, Bytes};

use super::{UsageError, wrong};
use crate::args::DemoArgs;
use crate::settings::Settings;

impl Settings {
    pub(crate) fn demo(&self, args: &DemoArgs) -> Result<DemoOptions, UsageError> {
        let sources = args.rates.len() + args.join.len();
        let events = args.kill.iter().map(|kill| ("--kill", kill.source));
        for (flag, source) in events.chain(args.rerate.iter().map(|rerate| ("--rerate", rerate.source))) {
            if source >= sources {
                return wrong(format!(
                    "{flag}: there is no source {source}; sources are 0 to {}",
                    sources - 1
                ));
            }
        }
        if args.size == Bytes::ZERO {
            return wrong("--size: an empty object needs no demo");
        }
        Ok(DemoOptions {
            common: self.common()?,
            rates: args.rates.iter().map(|rate| rate.0).collect::<Vec<BitRate>>(),
            size: args.size,
            loss: args.loss.0,
            kills: args.kill.iter().map(|kill| (kill.source, kill.at)).collect(),
            joins: args.join.iter().map(|join| (join.rate, join.at)).collect(),
            rerates: args.rerate.iter().map(|rerate| (rerate.source, rerate.at, rerate.rate)).collect(),
            seed: args.seed,
            keep: args.keep,
        })
    }
}

#[cfg(test)]
mod tests {
    use headwater_units::Duration;

    use super::super::tests::settings;
    use super::*;
    use crate::args::Command;

    fn demo(line: &str) -> Result<DemoOptions, UsageError> {
        match settings(line) {
            (settings, Command::Demo(args)) => settings.demo(&args),
            _ => panic!("not a demo"),
        }
    }

    #[test]
    fn events_of_a_demo_name_sources_that_exist_or_will() {
        assert_eq!(demo("demo --kill 2@2s").unwrap().kills, [(2, Duration::from_secs(2))]);
        assert!(demo("demo --kill 3@2s").unwrap_err().to_string().contains("0 to 2"));
        assert!(demo("demo --kill 3@2s --join 100@1s").is_ok());
        assert!(demo("demo --rates 1,2 --rerate 2@1s=3").is_err());
        assert!(demo("demo --size 0").is_err());
    }
}
