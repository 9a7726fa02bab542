//! Choose an engine from the superblock.
