//! What operators learn of commands: events for watchers, and counts by key prefix.
//!
//! A note costs one load while no client watches and `stats detail` is off. It decides nothing, and knows no grammar: the
//! command's word comes with the note.

use azekura::error::{Error, Kind};

use super::executor::Executor;
use super::store::Stored;
use crate::memcached::operate::key_stats::Done;
use crate::memcached::operate::watchers::{DETAIL, Lookup, MUTATIONS};
use crate::memcached::protocol::text::Mode;

impl Executor {
    /// Counts a read that an update did, which reported it to watchers.
    #[inline]
    pub(crate) fn note_read(&mut self, key: &[u8], is_there: bool, is_live: bool) {
        if self.service.watchers.want(DETAIL) {
            let done = Done::Get { hit: is_live };
            self.service.key_stats.note(key, done);
        }
        self.tally.read(is_there, is_live);
    }

    /// Keys were set.
    #[inline]
    pub(crate) fn note_sets<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        if self.service.watchers.want(DETAIL) {
            keys.for_each(|key| self.service.key_stats.note(key, Done::Set));
        }
    }

    /// Reports the outcome of storing to watchers.
    #[inline]
    pub(crate) fn note_stored(
        &self,
        (mode, key): (Mode, &[u8]),
        expires: u32,
        len: usize,
        stored: std::result::Result<&Stored, &Error>,
    ) {
        if !self.service.watchers.want(MUTATIONS) {
            return;
        }
        let status = match stored {
            Ok(Stored::Done { .. }) => "stored",
            Ok(Stored::Exists) => "exists",
            Ok(Stored::NotFound) => "not_found",
            Err(error) if error.kind() == Kind::Full => "no_memory",
            Err(error) if error.kind() == Kind::TooLarge => "too_large",
            Ok(Stored::Refused) | Err(_) => "not_stored",
        };
        let what = (status, mode.word());
        let size = (expires.saturating_sub(self.now), len);
        let watchers = &self.service.watchers;
        watchers.stored(key, what, size, self.number);
    }

    /// Reports a deletion to watchers.
    pub(crate) fn note_deleted(&self, key: &[u8], sight: Lookup, command: &str) {
        if let Lookup::Found(len) = sight {
            self.service.watchers.deleted(key, command, len);
        }
    }
}
