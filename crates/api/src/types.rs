//! Plain data between the command line and the commands: options in, results and progress out.
//!
//! Everything that is printed with `--json` is serialized from here, so field names are an interface: rates are bits
//! per second, sizes bytes, times seconds (`_seconds`), shares 0..=1, ids 64 hex digits.

mod addresses;
mod error;
mod options;
mod progress;
mod reload;
mod results;
mod shutdown;
mod status;
mod written;

pub use addresses::{CONTROLLER_PORT, NODE_PORT, remember_controller, remembered_controller, wildcard};
pub use error::AppError;
pub use options::{
    Common, ControllerOptions, ControllerSettings, ForgetOptions, GcOptions, Output, QueryOptions, RmOptions,
    ServeOptions, Where,
};
pub use progress::{Phase, Progress, ProgressReceiver, ProgressSource, Watch};
pub use reload::{Reload, ReloadTrigger, Reloads};
pub use results::{
    AgentListening, ForgetResult, GcResult, GetResult, LeftOut, Listening, PutResult, ReplayResult, RmResult,
    SourceShare,
};
pub use shutdown::{Shutdown, ShutdownTrigger};
pub use status::{
    CastLine, CoflowLine, DataPath, NodeLine, ObjectLine, StandingLine, StatusReport, TaskLine, TaskSource,
};
