//! Every engine of this binary behind one door: the models, and real processes.

use headwater_experiment::experiment::{Engine, Job};
use headwater_experiment::table::Tables;
use headwater_lab::{ModelError, Models, RunContext, Shipped};

use crate::{netns_engine, timed_engine};

/// Every engine of this binary.
#[derive(Clone, Copy, Debug)]
pub struct AllEngines;

impl Models for AllEngines {
    fn run(&self, job: &Job, context: &RunContext, watch: &mut dyn FnMut(f64)) -> Result<Tables, ModelError> {
        match job.engine() {
            Engine::Netns => netns_engine::run(job, context, watch),
            Engine::Timed => timed_engine::run(job, context, watch),
            Engine::Packet | Engine::Flow | Engine::Fluid | Engine::Trees => Shipped.run(job, context, watch),
        }
    }

    fn code(&self, engine: Engine) -> &str {
        match engine {
            // Real processes run more of the product than the models do.
            Engine::Netns => env!("HEADWATER_CODE_REAL"),
            // What is timed is a small part of it.
            Engine::Timed => env!("HEADWATER_CODE_TIMED"),
            _ => Shipped.code(engine),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_processes_and_timed_computations_are_other_code_than_models() {
        assert_ne!(AllEngines.code(Engine::Netns), AllEngines.code(Engine::Packet));
        assert_ne!(AllEngines.code(Engine::Timed), AllEngines.code(Engine::Packet));
        assert_eq!(AllEngines.code(Engine::Fluid), AllEngines.code(Engine::Packet));
    }
}
