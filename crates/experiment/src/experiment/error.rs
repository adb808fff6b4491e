//! Errors in an experiment file.

use thiserror::Error;

use super::{Engine, Scale};

/// Error in an experiment file, or in a request about it.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ExperimentError {
    /// The text is not TOML, or a field is unknown, missing or of the wrong kind. The message shows the line.
    #[error("{id}: {message}")]
    Syntax {
        /// The experiment.
        id: String,
        /// With line, column and what is expected.
        message: String,
    },
    /// A scenario that the axes, overrides and scheme give cannot be read.
    #[error("{id}: the scenario at {point} is wrong: {message}")]
    Scenario {
        /// The experiment.
        id: String,
        /// Axis values and scheme.
        point: String,
        /// With the line of the resolved scenario, and what is expected.
        message: String,
    },
    /// A dotted key leads nowhere.
    #[error("{id}: cannot set '{key}': {reason}")]
    Key {
        /// The experiment.
        id: String,
        /// As given.
        key: String,
        /// Where it fails.
        reason: String,
    },
    /// A claim or plot asks for what the experiment does not have.
    #[error("{id}: {place}: {reason}")]
    Reference {
        /// The experiment.
        id: String,
        /// Which claim or plot.
        place: String,
        /// The missing thing, and those that there are.
        reason: String,
    },
    /// A list is empty, a number is out of range, or a name occurs twice.
    #[error("{id}: {field}: {reason}")]
    Field {
        /// The experiment.
        id: String,
        /// The field.
        field: String,
        /// The problem, and what to write.
        reason: String,
    },
    /// The file does not list this engine.
    #[error("{id} does not run on the {engine} engine, only on: {there}")]
    NoEngine {
        /// The experiment.
        id: String,
        /// Asked for.
        engine: Engine,
        /// Values that the file lists.
        there: String,
    },
    /// The file does not list this scale.
    #[error("{id} does not run at {scale} scale, only at: {there}")]
    NoScale {
        /// The experiment.
        id: String,
        /// Asked for.
        scale: Scale,
        /// Values that the file lists.
        there: String,
    },
}
