//! Outputs whose files were deleted are let go of, and so are applications that nobody uses any more. Nobody waits for that: files are
//! asked and closed without the registry's lock.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::registry::{Named, Registry, Sweep};

/// How often. Until then the disk keeps their bytes.
const EVERY: Duration = Duration::from_secs(10);

/// Sweeps the registry now and then, and forgets applications that were not used for this long.
pub(crate) async fn run(registry: Arc<Mutex<Registry>>, keep_unused: headwater_units::Duration) {
    let every = EVERY.min(keep_unused.into());
    loop {
        tokio::time::sleep(every).await;
        let registry = registry.clone();
        // The next round begins when this one has ended, however slow the disk is.
        let sweeping = tokio::task::spawn_blocking(move || {
            round(&registry, Named::is_deleted);
            let unused = locked(&registry).forget_unused(every.into(), keep_unused);
            for (application, outputs) in unused {
                let outputs = outputs.len();
                tracing::info!(%application, outputs, "forgotten: no program, and nobody has asked for it for long");
            }
        });
        let _ = sweeping.await;
    }
}

fn locked(registry: &Mutex<Registry>) -> MutexGuard<'_, Registry> {
    registry.lock().unwrap_or_else(PoisonError::into_inner)
}

fn round(registry: &Mutex<Registry>, is_deleted: impl Fn(&Named) -> bool) {
    let mut sweep = Sweep::default();
    loop {
        let slice = locked(registry).next_slice(&mut sweep);
        let Some(mut slice) = slice else { return };
        slice.retain(&is_deleted);
        if !slice.is_empty() {
            locked(registry).forget(&slice);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::config::Quotas;
    use crate::fields::Name;
    use crate::registry::{Output, proof};

    #[test]
    fn flows_are_opened_while_a_sweep_waits_for_the_disk() {
        const COUNT: usize = 1_000;
        let token = proof(b"t");
        let name = |text: &str| Name::new(text).unwrap();
        let job = name("job");
        let mut registry = Registry::new(Quotas::default());
        registry.enter(1, &job, token).unwrap();
        // A file without a name, as all of them.
        let output = Arc::new(Output::new(tempfile::tempfile().unwrap(), Vec::new()).unwrap().while_named());
        for at in 0..COUNT {
            registry.register(&job, name(&at.to_string()), output.clone()).unwrap();
        }
        registry.leave(&job);
        let registry = Mutex::new(registry);
        let asked = Cell::new(0);
        round(&registry, |named| {
            asked.set(asked.get() + 1);
            let mut locked = registry.try_lock().expect("nobody holds the lock");
            assert!(locked.find(&job, token, &name("999")).is_ok(), "{named:?}");
            drop(locked);
            named.is_deleted()
        });
        assert_eq!(asked.get(), COUNT);
        assert_eq!(registry.lock().unwrap().count(), (0, 0));
        assert_eq!(Arc::strong_count(&output), 1, "what was let go of is closed");
    }
}
