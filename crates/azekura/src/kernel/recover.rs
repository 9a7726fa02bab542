//! Opening a store: the first log of a new one, and again, what comes before and after the recovery of its log, whatever its
//! records mean.
//!
//! With F the superblock that was found and N the one that is written:
//!
//! | what must be durable | before | why | how |
//! |---|---|---|---|
//! | what F names: root, images, the log they point to | F | else F could not be opened | the checkpoint synced it; F adds nothing |
//! | F | anything is written over, or cut off | F may be in the cache only, with its older slot, where N goes, the one the device has; and what F does not need any more is free to F alone | [`SuperblockPair::write_again`] |
//! | the cleared link past the end, if the cache is not coherent | the end frame | `log::recover` | durably |
//! | N, in both slots, one after the other | anything appended | its epoch's sequences are never used again; damage of either slot costs that slot | durably |
//! | what the log has past F's checkpoint | nothing | N does not name it: replay begins where it did. A cut leaves a prefix of it, as before the open | not waited for |
//! | the mark | nothing | it states what was synced before it was stored | not waited for |
//!
//! N names nothing that F did not: it has F's root and start, and a durable end that was durable already.
//!
//! It does not know what a replay does with records.

use super::superblock::{Payload, SuperblockPair};
use crate::error::Result;
use crate::log::Log;
use crate::log::manifest::{FIRST_SEQUENCE, Manifest};
use crate::log::recover::{Prior, Recovered};

/// Begins the log of a new store, whose storage has room for one segment; what its first superblock states of it.
pub fn begin(log: &Log) -> Result<Manifest> {
    log.segments().finish_adoption()?;
    log.begin(FIRST_SEQUENCE)?;
    Ok(Manifest::first(log))
}

/// How far the storage is to be believed. Where its cache is not, what it holds of the storage is dropped, so that the
/// recovery sees what the device has.
pub fn prior<P: Payload>(last: &P, log: &Log) -> Result<Prior> {
    let prior = last.prior(log);
    if last.open && !prior.coherent {
        log.storage().drop_cache()?;
    }
    Ok(prior)
}

/// Has the log resume after what recovery found, and `last` state it. `keep`: sets the reserve, and changes what it likes of
/// the log, when all segments in use are known and before any is taken. `last` is not written yet: N is.
pub fn resume<P: Payload>(
    found_super: &SuperblockPair<P>,
    log: &Log,
    (prior, found): (Prior, &Recovered),
    keep: impl FnOnce() -> Result<()>,
) -> Result<P> {
    found_super.write_again(log)?;
    keep()?;
    let mut next = found_super.payload.clone();
    next.resume_append(log, prior, found)?;
    next.open = true;
    next.boot_id = log.storage().boot_id();
    next.durable = prior.durable;
    next.next_sequence = log.next_sequence();
    log.set_durable(prior.durable);
    Ok(next)
}
