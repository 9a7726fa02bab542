//! Values from bytes: the rules of every file.
