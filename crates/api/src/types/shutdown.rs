//! The request to stop.

use std::future::pending;

use tokio::sync::watch;

/// Whether the user asked the process to stop. Clones see the same request.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Receiver<bool>);

/// The other end of a [`Shutdown`].
#[derive(Debug)]
pub struct ShutdownTrigger(watch::Sender<bool>);

impl Shutdown {
    /// A request not made yet, and the means to make it.
    pub fn channel() -> (ShutdownTrigger, Shutdown) {
        let (sender, receiver) = watch::channel(false);
        (ShutdownTrigger(sender), Shutdown(receiver))
    }

    /// Returns once the process should stop; never if the trigger is gone without having been used.
    pub async fn wait(&self) {
        if self.0.clone().wait_for(|&stop| stop).await.is_err() {
            pending::<()>().await;
        }
    }

    /// Whether the process should stop.
    pub fn is_set(&self) -> bool {
        *self.0.borrow()
    }
}

impl ShutdownTrigger {
    /// Asks everyone to stop; again does nothing.
    pub fn set(&self) {
        self.0.send_replace(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_clone_learns_of_the_request_to_stop() {
        let (trigger, shutdown) = Shutdown::channel();
        let other = shutdown.clone();
        assert!(!other.is_set());
        trigger.set();
        other.wait().await;
        assert!(shutdown.is_set());
    }
}
