//! What this process asked the system for: calls that read and write files, and the bytes it moved from and to devices.
//!
//! The kernel counts it for every process, so it can be told of any store, whatever it counts itself. Of each phase it is
//! the difference, some calls of the harness among them (less than ten, and one for every 8 KiB of results). Accesses through a
//! map are no calls, and what is handed to the kernel by a ring is none either; a sync is neither read nor write. It does not
//! know stores.

use serde::{Deserialize, Serialize};

/// Calls so far, or since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calls {
    /// Calls that read.
    pub reads: u64,
    /// Calls that write.
    pub writes: u64,
    /// Bytes that came from devices.
    pub bytes_read: u64,
    /// Bytes that went to devices, or will: a page counts when it gets dirty.
    pub bytes_written: u64,
}

impl Calls {
    /// As of now; `None` where the system does not tell.
    pub fn now() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/self/io").ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| {
            let value = |line: &str| line.strip_prefix(name)?.strip_prefix(": ")?.parse().ok();
            text.lines().find_map(value)
        };
        Some(Self {
            reads: field("syscr")?,
            writes: field("syscw")?,
            bytes_read: field("read_bytes")?,
            bytes_written: field("write_bytes")?,
        })
    }

    /// What came since `before`.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        Self {
            reads: self.reads.saturating_sub(before.reads),
            writes: self.writes.saturating_sub(before.writes),
            bytes_read: self.bytes_read.saturating_sub(before.bytes_read),
            bytes_written: self.bytes_written.saturating_sub(before.bytes_written),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read_from_the_fields_of_the_kernel() {
        let text = "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\n\
                    cancelled_write_bytes: 7\n";
        let found = Calls::parse(text).unwrap();
        let of = |reads, writes, bytes_read, bytes_written| Calls {
            reads,
            writes,
            bytes_read,
            bytes_written,
        };
        assert_eq!(found, of(3, 4, 5, 6));
        assert_eq!(of(10, 10, 10, 10).since(found), of(7, 6, 5, 4));
        assert!(Calls::parse("syscr: 3\n").is_none());
    }
}
