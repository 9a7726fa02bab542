//! Later. One. Two.
