//! A disk that remembers every write and sync, and forgets as real ones do.
