//! The hash index.
