//! The test bench for engines.
