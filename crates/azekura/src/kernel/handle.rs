//! The handle of an open store: its end, once, however it comes.
//!
//! | what ends it | the background worker | the store | an error |
//! |---|---|---|---|
//! | `close` | stopped first: its last step has ended | closed | returned |
//! | a drop | the same | the same, unless it is closed | traced: the next open recovers |
//!
//! It does not know what closing does.

use std::ops::Deref;
use std::sync::Arc;

use crate::error::Result;
use crate::worker::Worker;

/// What the handle of a store ends.
pub(crate) trait Closing {
    /// Makes everything durable and marks the store as closed; nothing if it may not be written.
    fn close(&self) -> Result<()>;

    /// Whether it is not closed yet.
    fn is_open(&self) -> bool;
}

/// A store, and its background worker.
#[derive(Debug)]
pub(crate) struct Handle<C: Closing> {
    core: Arc<C>,
    worker: Option<Worker>,
}

impl<C: Closing> Handle<C> {
    /// A store with the worker that `start` gives it, if it `has_worker`.
    pub(crate) fn start(
        core: C,
        has_worker: bool,
        start: impl FnOnce(&Arc<C>) -> Result<Worker>,
    ) -> Result<Self> {
        let core = Arc::new(core);
        let worker = has_worker.then(|| start(&core)).transpose()?;
        Ok(Self { core, worker })
    }

    /// A store without a worker.
    pub(crate) fn idle(core: C) -> Self {
        Self {
            core: Arc::new(core),
            worker: None,
        }
    }

    /// Stops the worker and closes the store.
    pub(crate) fn close(&mut self) -> Result<()> {
        if let Some(worker) = self.worker.take() {
            worker.stop();
        }
        self.core.close()
    }
}

impl<C: Closing> Deref for Handle<C> {
    type Target = Arc<C>;

    #[inline(always)]
    fn deref(&self) -> &Arc<C> {
        &self.core
    }
}

impl<C: Closing> Drop for Handle<C> {
    fn drop(&mut self) {
        if self.core.is_open()
            && let Err(error) = self.close()
        {
            tracing::error!(%error, "closing failed; the next open recovers");
        }
    }
}
