//! A processor for the switch alone.
//!
//! A spinning thread and forty others on the same processors: the kernel takes turns of milliseconds, and a switch that
//! waits for its turn is late by them, whatever its niceness. Where the others keep off one processor it is never late, and
//! they have as much time as they would have had beside a thread that spins anyway.

use std::marker::PhantomData;

use rustix::io::{Errno, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Keeps the thread that took it, and all threads and processes which that starts meanwhile, off one processor. Dropping it
/// lets the thread run everywhere again; what it has started stays where it is.
#[derive(Debug)]
pub struct Reserved {
    processor: usize,
    before: CpuSet,
    /// The settings to restore are those of the thread that took it.
    of_this_thread: PhantomData<*const ()>,
}

impl Reserved {
    /// Takes the last of the processors that this thread may run on. None if that is the only one, or if the kernel does not
    /// let threads choose.
    pub fn take() -> Option<Reserved> {
        let before = sched_getaffinity(None).ok()?;
        let processor = (0..CpuSet::MAX_CPU).rev().find(|processor| before.is_set(*processor))?;
        let mut others = before;
        others.unset(processor);
        if others.count() == 0 {
            return None;
        }
        sched_setaffinity(None, &others).ok()?;
        Some(Reserved { processor, before, of_this_thread: PhantomData })
    }

    /// Its number.
    pub fn processor(&self) -> usize {
        self.processor
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // If it is refused now, the processor is gone meanwhile and nothing is lost.
        let _ = sched_setaffinity(None, &self.before);
    }
}

/// Lets this thread run on that processor only.
pub(super) fn move_to(processor: usize) -> Result<()> {
    if processor >= CpuSet::MAX_CPU {
        return Err(Errno::INVAL);
    }
    let mut only = CpuSet::new();
    only.set(processor);
    sched_setaffinity(None, &only)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed() -> CpuSet {
        sched_getaffinity(None).unwrap()
    }

    #[test]
    fn others_keep_off_until_it_is_dropped() {
        let before = allowed();
        let Some(reserved) = Reserved::take() else {
            assert_eq!(before.count(), 1);
            headwater_skips::cannot("one processor only");
            return;
        };
        let processor = reserved.processor();
        assert!(before.is_set(processor));
        // A thread that is started now, as one that is not.
        for seen in [allowed(), std::thread::spawn(allowed).join().unwrap()] {
            assert!(!seen.is_set(processor));
            assert_eq!(seen.count(), before.count() - 1);
        }
        let alone =
            std::thread::spawn(move || move_to(processor).map(|()| allowed())).join().unwrap().unwrap();
        assert!(alone.is_set(processor));
        assert_eq!(alone.count(), 1);
        drop(reserved);
        assert!(allowed() == before);
    }

    #[test]
    fn processor_beyond_all_is_an_error() {
        assert_eq!(move_to(usize::MAX), Err(Errno::INVAL));
    }
}
