//! The product's library: everything behind the `headwater` binary. What is there to try it (`bench`, `netns_engine`, the demo and
//! the commands of experiments) comes with the feature `laboratory`.

#[cfg(feature = "laboratory")]
pub mod bench;
#[cfg(feature = "laboratory")]
pub(crate) mod children;
pub mod cli;
#[cfg(feature = "laboratory")]
pub mod demo;
#[cfg(feature = "laboratory")]
pub mod netns_engine;
