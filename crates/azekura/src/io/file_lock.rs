//! One writer process per file.
