//! The product's command line: everything behind the `headwater` binary. The commands that try it come with the feature `laboratory`.

pub mod cli;
