//! Everything that measures azekura.
