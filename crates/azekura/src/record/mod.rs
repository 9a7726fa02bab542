//! What every record engine promises.
