//! What a running server takes over of a changed configuration, and what needs a restart.
//!
//! Limits, the log, passwords and the certificate change at once; addresses, the engine and its memory do not. It opens
//! nothing: whether the contents of files differ is the caller's to know.

use super::Config;

/// What a running server did with another configuration, by the keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// What differed and is in effect from now on. Passwords and a certificate differ if the contents of their files do.
    pub taken_over: Vec<&'static str>,
    /// What differs from what the server was started with, and is in effect after a restart.
    pub needs_restart: Vec<&'static str>,
}

/// The keys of fields that differ in two configurations.
macro_rules! differing {
    ($ours:expr, $theirs:expr; $($key:literal => $($field:ident).+,)+) => {{
        let keys = [$(($key, $ours.$($field).+ != $theirs.$($field).+)),+];
        keys.into_iter().filter_map(|(key, differs)| differs.then_some(key))
    }};
}

impl Config {
    /// Becomes `new` as far as a running server can, and returns how far that is. `has_other_passwords`, `has_other_certificate`:
    /// whether the contents of the files differ, which may be where their names do not.
    pub(crate) fn take_over(
        &mut self,
        new: &Self,
        has_other_passwords: bool,
        has_other_certificate: bool,
    ) -> Reloaded {
        let mut reloaded = Reloaded::default();
        let mut new = new.clone();
        // What connections may take was checked against another limit of memory, or for other threads.
        let is_other_memory = self.memory_max.is_some()
            && (self.memory_max, self.threads) != (new.memory_max, new.threads);
        let is_too_long = self.capacity.is_some_and(|room| new.item_max > room);
        if is_other_memory && self.limits.buffers_max != new.limits.buffers_max {
            reloaded.needs_restart.push("buffers-max");
            new.limits.buffers_max = self.limits.buffers_max;
        }
        if (is_other_memory || is_too_long) && self.item_max != new.item_max {
            reloaded.needs_restart.push("item-max");
            new.item_max = self.item_max;
        }
        reloaded.taken_over.extend(differing!(self, new;
            "connections-max" => limits.connections_max,
            "connections-per-address" => limits.per_address_max,
            "operator" => limits.operators,
            "operator-connections" => limits.operator_connections,
            "idle-s" => limits.idle_s,
            "stall-s" => limits.stall_s,
            "grace-s" => limits.grace_s,
            "buffers-max" => limits.buffers_max,
            "slow-ms" => limits.slow_ms,
            "item-max" => item_max,
            "log" => log,
            "log-level" => log_level,
        ));
        if has_other_passwords || self.passwords != new.passwords {
            reloaded.taken_over.push("passwords");
        }
        if has_other_certificate || self.certificate != new.certificate {
            reloaded.taken_over.push("certificate");
        }
        reloaded.needs_restart.extend(differing!(self, new;
            "data" => data,
            "listen" => listen,
            "engine" => engine,
            "threads" => threads,
            "durability" => durability,
            "sync-interval" => sync_interval_ms,
            "memory-max" => memory_max,
            "capacity" => capacity,
            "metrics" => metrics,
            "unix-mode" => unix_mode,
            "shutdown" => shutdown,
            "flush" => flush,
            "dump" => dump,
        ));
        (self.limits, self.item_max) = (new.limits, new.item_max);
        (self.log, self.log_level) = (new.log, new.log_level);
        (self.passwords, self.certificate) = (new.passwords, new.certificate);
        reloaded
    }
}
