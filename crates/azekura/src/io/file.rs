//! Files through the page cache.
