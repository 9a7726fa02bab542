//! The system's time in whole seconds since 1970, as items keep it.
//!
//! A service asks once and shows the same second to all its connections until the next tick; what has no service (the
//! cache that drops a record, a watcher's event) asks here. It knows no items.

use std::time::{SystemTime, UNIX_EPOCH};

/// The system's time, in seconds since 1970.
pub(crate) fn system_time() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(1, |since| {
        u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
    })
}
