//! A storage in memory.
