//! Every engine of this binary behind one door: the models, and real processes.

use headwater_sim::experiment::{Engine, Job};
use headwater_sim::table::Tables;

use crate::lab::{ModelError, Models, RunContext, Shipped};
use crate::netns_engine;

/// Every engine of this binary.
#[derive(Clone, Copy, Debug)]
pub(super) struct AllEngines;

impl Models for AllEngines {
    fn run(&self, job: &Job, context: &RunContext, watch: &mut dyn FnMut(f64)) -> Result<Tables, ModelError> {
        match job.engine() {
            Engine::Netns => netns_engine::run(job, context, watch),
            Engine::Packet | Engine::Flow | Engine::Fluid | Engine::Trees => Shipped.run(job, context, watch),
        }
    }

    fn code(&self, engine: Engine) -> &str {
        Shipped.code(engine)
    }
}
