//! The checks of the fuzz targets, one function each: from any bytes to a verdict.
//!
//! `fuzz_targets/` runs them on the inputs of a fuzzer, `crates/azekura-cli/tests/fuzz_targets.rs` on seeded ones, so that
//! each compiles and holds in every test run. It does not know who makes the inputs.

pub mod frame;
pub mod hash_layout;
pub mod hash_model;
pub mod hash_open;
pub mod http_head;
pub mod import_formats;
pub mod log_layout;
pub mod memcached_binary;
pub mod memcached_datagram;
pub mod memcached_meta;
pub mod memcached_session;
pub mod memcached_text;
pub mod object_layout;
pub mod object_open;
pub mod server_config;
pub mod snapshot;
pub mod superblock;
