//! Options of a process for experiments: time series, and the constants of a paper.

use std::path::PathBuf;

use headwater_controller::ControllerConfig;
use headwater_transport::push::receiver::ReceiverConfig;
use headwater_transport::source::SourceConfig;
use headwater_units::{Bytes, Duration, Theta};

use super::AppError;
use headwater_driver::TimelineFile;

/// Options that measure or change how flows are driven. Without any of them a process is the product as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Experiments {
    /// Write what every flow does.
    pub timeline: Option<TimelineOptions>,
    /// Constants for the machines, in place of the product's.
    pub tuning: Option<Box<Tuning>>,
}

/// Where the time series goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineOptions {
    /// The CSV file.
    pub path: PathBuf,
    /// From sample to sample; not zero.
    pub every: Duration,
}

/// Constants for the machines of a process, in place of the product's.
#[derive(Clone, Debug, PartialEq)]
pub struct Tuning {
    /// Of its source; what a pulled flow has sent when it drops a level is in `levels`.
    pub source: SourceConfig,
    /// Bytes that a pulled flow has sent when it drops a level, first level first.
    pub levels: [Sent; 4],
    /// Of its controller, if it runs one.
    pub controller: ControllerConfig,
    /// The longest that its receivers wait with an ACK.
    pub max_ack_delay: Duration,
    /// The shortest time after which its receivers take a pull for lost, and the first one.
    pub min_rto: Duration,
    /// Symbols that the only source of a task pushes before it is pulled from.
    pub window: u16,
    /// The same of each of several sources.
    pub many_window: u16,
    /// Bytes of its links that a receiver leaves free for each packet that it pulls.
    pub headroom: Bytes,
}

/// An amount that a flow has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// A number of packets.
    Packets(u32),
    /// Bytes of symbols, rounded up to whole symbols.
    Bytes(Bytes),
    /// More than it ever will.
    Unlimited,
}

impl Sent {
    /// In bytes of symbols, each of which has `symbol` bytes and a packet of its own.
    fn of_symbols(self, symbol: u16) -> Bytes {
        let symbols = match self {
            Sent::Packets(packets) => u64::from(packets),
            Sent::Bytes(bytes) => bytes.get().div_ceil(u64::from(symbol).max(1)),
            Sent::Unlimited => u64::from(u32::MAX),
        };
        Bytes::new(symbols * u64::from(symbol))
    }
}

impl Experiments {
    /// The file of the timeline, created.
    pub(super) fn timeline_file(&self) -> Result<Option<TimelineFile>, AppError> {
        let create = |options: &TimelineOptions| {
            TimelineFile::create(&options.path, options.every).map_err(|e| {
                AppError::io(format!("cannot write the timeline to {}", options.path.display()), e)
            })
        };
        self.timeline.as_ref().map(create).transpose()
    }

    /// A source whose packets carry symbols of `symbol` bytes.
    pub fn source_config(&self, symbol: u16) -> SourceConfig {
        let Some(tuning) = &self.tuning else { return SourceConfig::default() };
        let mut source = tuning.source.clone();
        source.pull.demotion = Some(tuning.levels.map(|level| level.of_symbols(symbol)));
        source
    }

    /// A controller's settings; `fixed_theta` is the weight of every flow instead of Algorithm 1.
    pub fn controller_config(&self, fixed_theta: Option<Theta>) -> ControllerConfig {
        let base = self.tuning.as_ref().map(|tuning| tuning.controller.clone());
        ControllerConfig { fixed_theta, ..base.unwrap_or_default() }
    }

    /// Applies the constants to what a receiver is given.
    pub fn tune_receiver(&self, config: &mut ReceiverConfig) {
        if let Some(tuning) = &self.tuning {
            config.max_ack_delay = tuning.max_ack_delay;
            let rtt = &mut config.pull.rtt;
            (rtt.min_rto, rtt.initial_rto) = (tuning.min_rto, tuning.min_rto);
        }
    }

    /// Symbols that each source pushes before it is asked for more; `single`: there is one only. `None`: as the product
    /// has it.
    pub fn pulled_window(&self, single: bool) -> Option<u16> {
        let tuning = self.tuning.as_ref()?;
        Some(if single { tuning.window } else { tuning.many_window })
    }

    /// Bytes of its links that a receiver leaves free for each packet that it pulls.
    pub fn headroom(&self) -> Bytes {
        self.tuning.as_ref().map_or(Bytes::ZERO, |tuning| tuning.headroom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_constants_a_process_is_the_product() {
        let none = Experiments::default();
        assert_eq!(none.source_config(1000), SourceConfig::default());
        assert_eq!((none.pulled_window(true), none.headroom()), (None, Bytes::ZERO));
    }

    #[test]
    fn what_was_sent_is_whole_symbols() {
        let sent = [Sent::Packets(3), Sent::Bytes(Bytes::new(1001)), Sent::Bytes(Bytes::ZERO)];
        assert_eq!(sent.map(|it| it.of_symbols(1000).get()), [3000, 2000, 0]);
        assert_eq!(Sent::Unlimited.of_symbols(2).get(), u64::from(u32::MAX) * 2);
    }
}
