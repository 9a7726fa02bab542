//! What users call, written once above `read`, `update` and `scan`.

use crate::engine::Engine;

/// The verbs.
pub trait Verbs: Engine {}

impl<E: Engine + ?Sized> Verbs for E {}
