//! What connections and threads may take under a memory limit, in addition to the records.
//!
//! The limit of the whole process is one and a quarter of `memory-max` and 32 MiB (`docs/serving.md`). Of that, `memory-max`
//! and an eighth of it are records, the index, partly used blocks and replaced records not yet reclaimed; 20 MiB are the
//! program and watchers' buffers. The rest, an eighth of `memory-max` and 12 MiB, is divided here: each thread needs a share
//! of the buffers, and takes more than its share in a turn. `tests/memory.rs` measures processes that use all of it.

pub(super) const MIB: u64 = 1 << 20;

/// Bytes that connections and threads may take.
pub(super) struct MemoryBudget(u64);

impl MemoryBudget {
    pub(super) fn of(memory_max: u64) -> Self {
        Self(memory_max / 8 + 12 * MIB)
    }

    /// What each thread must be able to hold for its connections: an item on its way in or out, and small requests.
    pub(super) const fn share(item_max: u64) -> u64 {
        item_max + MIB
    }

    /// What a thread takes in a turn beyond its share: an item that is built or answered, another for which its connections
    /// exceed their share until one of them is dropped, and its own buffers.
    pub(super) const fn turn(item_max: u64) -> u64 {
        2 * item_max + MIB / 2
    }

    /// The most threads.
    pub(super) fn threads(&self, item_max: u64) -> u64 {
        self.0 / (Self::share(item_max) + Self::turn(item_max))
    }

    /// The longest item that one thread can serve.
    pub(super) fn item(&self) -> u64 {
        (self.0 - MIB - MIB / 2) / 3
    }

    /// The most that connections may hold, of so many threads.
    pub(super) fn buffers(&self, threads: u64, item_max: u64) -> u64 {
        self.0.saturating_sub(threads * Self::turn(item_max))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use azekura::error::Result;

    use super::super::{Config, RawConfig};
    use super::*;

    fn read(text: &str) -> Result<Config> {
        Config::of_text(Path::new("server.toml"), text, RawConfig::default())
    }

    #[test]
    fn threads_buffers_and_items_fit_with_the_records_of_a_limit_of_memory() {
        let mut judged = 0;
        for memory in [1, 4, 32, 64, 1 << 10, 1 << 16].map(|mebibytes| mebibytes * MIB) {
            let budget = MemoryBudget::of(memory);
            for item_max in [1 << 10, 100 << 10, MIB, budget.item().min(1 << 30)] {
                if item_max > memory {
                    continue;
                }
                // Whatever the machine has, no more threads serve than fit, and at least one does.
                let most = budget.threads(item_max).min(1024) as usize;
                let text =
                    format!("engine = \"cache\"\nmemory-max = {memory}\nitem-max = {item_max}\n");
                let usual = read(&text).unwrap();
                assert!((1..=most).contains(&usual.threads), "{text}{most}");
                for threads in [1, most.div_ceil(2), most] {
                    let text = format!("{text}threads = {threads}\n");
                    let config = read(&text).unwrap();
                    let threads = threads as u64;
                    let buffers = config.limits.buffers_max as u64;
                    assert!(buffers >= threads * (item_max + MIB), "{text}");
                    // Buffers, and what is there in addition in a turn of each thread.
                    let most = buffers + threads * (2 * item_max + MIB / 2);
                    assert!(most <= memory / 8 + 12 * MIB, "{text}");
                    judged += 1;
                }
                if most < 1024 {
                    let text = format!("{text}threads = {}\n", most + 1);
                    let error = read(&text).unwrap_err().to_string();
                    assert!(
                        error.contains("threads") && error.contains("at most"),
                        "{error}"
                    );
                }
            }
        }
        assert!(judged >= 60, "{judged}");
    }

    #[test]
    fn a_reload_with_another_limit_of_memory_changes_no_buffers() {
        let small = read("engine = \"cache\"\nthreads = 2\n").unwrap();
        let text = "engine = \"cache\"\nthreads = 2\nmemory-max = \"4GiB\"\nitem-max = \"9MiB\"\nidle-s = 7\n";
        let large = read(text).unwrap();
        let mut running = small.clone();
        let reloaded = running.take_over(&large, false, false);
        assert_eq!(reloaded.taken_over, ["idle-s"]);
        assert_eq!(
            reloaded.needs_restart,
            ["buffers-max", "item-max", "memory-max"]
        );
        let kept = |config: &Config| (config.limits.buffers_max, config.item_max);
        assert_eq!(kept(&running), kept(&small));
    }
}
