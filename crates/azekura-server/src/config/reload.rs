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
        if self.memory_max.is_some()
            && (self.memory_max, self.threads) != (new.memory_max, new.threads)
        {
            // What connections may take was checked against another limit of memory, or for other threads.
            for (name, differs) in [
                (
                    "buffers-max",
                    self.limits.buffers_max != new.limits.buffers_max,
                ),
                ("item-max", self.item_max != new.item_max),
            ] {
                if differs {
                    reloaded.needs_restart.push(name);
                }
            }
            (new.limits.buffers_max, new.item_max) = (self.limits.buffers_max, self.item_max);
        }
        let new = &new;
        let (ours, theirs) = (&self.limits, &new.limits);
        for (name, differs) in [
            (
                "connections-max",
                ours.connections_max != theirs.connections_max,
            ),
            (
                "connections-per-address",
                ours.per_address_max != theirs.per_address_max,
            ),
            ("operator", ours.operators != theirs.operators),
            (
                "operator-connections",
                ours.operator_connections != theirs.operator_connections,
            ),
            ("idle-s", ours.idle_s != theirs.idle_s),
            ("stall-s", ours.stall_s != theirs.stall_s),
            ("grace-s", ours.grace_s != theirs.grace_s),
            ("buffers-max", ours.buffers_max != theirs.buffers_max),
            ("slow-ms", ours.slow_ms != theirs.slow_ms),
            ("item-max", self.item_max != new.item_max),
            ("log", self.log != new.log),
            ("log-level", self.log_level != new.log_level),
            (
                "passwords",
                has_other_passwords || self.passwords != new.passwords,
            ),
            (
                "certificate",
                has_other_certificate || self.certificate != new.certificate,
            ),
        ] {
            if differs {
                reloaded.taken_over.push(name);
            }
        }
        for (name, differs) in [
            ("data", self.data != new.data),
            ("listen", self.listen != new.listen),
            ("engine", self.engine != new.engine),
            ("threads", self.threads != new.threads),
            ("durability", self.durability != new.durability),
            (
                "sync-interval",
                self.sync_interval_ms != new.sync_interval_ms,
            ),
            ("memory-max", self.memory_max != new.memory_max),
            ("capacity", self.capacity != new.capacity),
            ("metrics", self.metrics != new.metrics),
            ("unix-mode", self.unix_mode != new.unix_mode),
            ("shutdown", self.shutdown != new.shutdown),
            ("flush", self.flush != new.flush),
            ("dump", self.dump != new.dump),
        ] {
            if differs {
                reloaded.needs_restart.push(name);
            }
        }
        self.limits.clone_from(&new.limits);
        (self.item_max, self.log, self.log_level) = (new.item_max, new.log, new.log_level);
        self.passwords.clone_from(&new.passwords);
        self.certificate.clone_from(&new.certificate);
        reloaded
    }
}
