//! `demo`: what goes wrong meanwhile, and when.

use clap::Args;
use headwater_units::Bytes;

use super::flags::SendingFlags;
use crate::settings::Layer;
use crate::values::demo::{DemoRate, Join, Kill, Loss, Rerate};
use crate::values::size;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater demo
  headwater demo --rates 100,100,300 --loss 1%
  headwater demo --kill 2@2s            the third source vanishes after 2 s, without a goodbye
  headwater demo --join 300@2s          a further source appears
  headwater demo --rerate 2@2s=20       the third source's uplink drops to 20 Mbit/s
  headwater demo --json                 one object at the end

Sources count from 0, those of --rates first, then those of --join. Times run from the first request. As root the
network is built from namespaces with limited links; otherwise it is this machine's loopback with capped sources, and the
demo says so.")]
pub(crate) struct DemoArgs {
    /// Uplink of each source; bare numbers are Mbit/s
    #[arg(long, value_name = "RATE,...", value_delimiter = ',', default_value = "100,100,300")]
    pub(crate) rates: Vec<DemoRate>,
    /// Size of the object, random bytes
    #[arg(long, default_value = "256MiB", value_parser = size)]
    pub(crate) size: Bytes,
    /// Share of data packets lost at random, as in 1% or 0.01
    #[arg(long, value_name = "SHARE", default_value = "0")]
    pub(crate) loss: Loss,
    /// Source I vanishes after T, as in 2@2s; may be repeated
    #[arg(long, value_name = "I@T")]
    pub(crate) kill: Vec<Kill>,
    /// A further source with this uplink appears after T, as in 200@2s; may be repeated
    #[arg(long, value_name = "RATE@T")]
    pub(crate) join: Vec<Join>,
    /// The uplink of source I becomes RATE after T, as in 2@2s=20; may be repeated
    #[arg(long, value_name = "I@T=RATE")]
    pub(crate) rerate: Vec<Rerate>,
    /// Where everything random comes from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Keep the files and logs, and say where they are
    #[arg(long)]
    pub(crate) keep: bool,
    #[command(flatten)]
    sending: SendingFlags,
}

impl DemoArgs {
    pub(super) fn fill(&self, layer: &mut Layer) {
        self.sending.fill(layer);
    }
}
