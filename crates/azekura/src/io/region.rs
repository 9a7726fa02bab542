//! A bounded window of a storage.
