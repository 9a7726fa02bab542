//! Files past the page cache (O_DIRECT), with aligned buffers.
