//! The flags of `headwater debug tcp`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use headwater_testbed::tcp::{Amount, ReceiveOptions, SendOptions, TimelineOptions};
use headwater_units::{Bytes, Duration};

pub(super) const EXAMPLE: &str = "Example, in two hosts of `headwater emulate`:
  headwater debug tcp receive --listen 10.0.0.2:5001 --json --timeline received.csv
  headwater debug tcp send --to 10.0.0.2:5001 --for 10s --congestion cubic --name tcp --timeline sent.csv

Timelines are lines t_ns,object,flow,quantity,value; t_ns is CLOCK_MONOTONIC, which all processes of a machine share, and
object is the connection's name. The sender has window (packets), rtt (s), and sent, lost (sent again), marked and
timeouts, all counted from the beginning; the receiver has goodput (packets/s) and useful (packets).";

/// Send and receive by the kernel's TCP.
#[derive(Debug, Subcommand)]
pub(crate) enum TcpCommand {
    /// Take any number of connections, and say of each what became of it, until interrupted
    Receive(TcpReceiveArgs),
    /// Make one connection and send
    Send(TcpSendArgs),
}

#[derive(Debug, Args)]
pub(crate) struct TcpReceiveArgs {
    /// Address and port to listen on; port 0 is any free one, and is printed
    #[arg(long, value_name = "ADDR")]
    listen: SocketAddr,
    /// The kernel's congestion control at this end: dctcp echoes marks exactly only if both ends run it
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Bytes of data of a packet, in which the timeline counts
    #[arg(long, value_name = "N", default_value = "1448", value_parser = packet)]
    packet_bytes: Bytes,
    #[command(flatten)]
    timeline: TimelineFlags,
}

#[derive(Debug, Args)]
pub(crate) struct TcpSendArgs {
    /// Address and port of the receiver
    #[arg(long, value_name = "ADDR")]
    to: SocketAddr,
    #[command(flatten)]
    amount: AmountFlags,
    /// The kernel's congestion control: reno, cubic, bbr, dctcp or another that it has [default: the system's]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Name of the connection in results and timelines
    #[arg(long, value_name = "TEXT", default_value = "tcp")]
    name: String,
    /// Connect, say that it is ready, and begin with the first line on standard input
    #[arg(long)]
    pub(crate) wait_for_start: bool,
    #[command(flatten)]
    timeline: TimelineFlags,
}

/// How much is sent.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct AmountFlags {
    /// How much to send, as in 100MB
    #[arg(long, value_name = "N")]
    bytes: Option<Bytes>,
    /// How long to send, as in 10s
    #[arg(long = "for", value_name = "TIME")]
    time: Option<Duration>,
}

/// A time series.
#[derive(Debug, Args)]
struct TimelineFlags {
    /// Write a time series into this file
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    timeline: Option<PathBuf>,
    /// The interval of the time series
    #[arg(long, value_name = "TIME", default_value = "10ms", requires = "timeline")]
    timeline_every: Duration,
}

/// A packet that has room for something.
fn packet(text: &str) -> Result<Bytes, String> {
    match text.parse::<Bytes>() {
        Ok(bytes) if (1..=65_535).contains(&bytes.get()) => Ok(bytes),
        Ok(bytes) => Err(format!("a packet of {bytes}; write 1 to 65535 bytes")),
        Err(error) => Err(error.to_string()),
    }
}

impl TimelineFlags {
    fn options(&self) -> Option<TimelineOptions> {
        let file = self.timeline.clone()?;
        Some(TimelineOptions { file, every: self.timeline_every })
    }
}

impl TcpReceiveArgs {
    /// Options of the receiver.
    pub(crate) fn options(&self) -> ReceiveOptions {
        ReceiveOptions {
            listen: self.listen,
            congestion: self.congestion.clone(),
            packet: self.packet_bytes,
            timeline: self.timeline.options(),
        }
    }
}

impl TcpSendArgs {
    /// Options of the sender.
    pub(crate) fn options(&self) -> SendOptions {
        let amount = match (self.amount.bytes, self.amount.time) {
            (Some(bytes), _) => Amount::Bytes(bytes),
            (None, time) => Amount::For(time.expect("clap asks for one of the two")),
        };
        SendOptions {
            to: self.to,
            amount,
            congestion: self.congestion.clone(),
            name: self.name.clone(),
            timeline: self.timeline.options(),
        }
    }
}
