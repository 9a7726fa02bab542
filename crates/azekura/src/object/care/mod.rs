//! Care of a store: checks, scrubbing, repair, copies and growth.
//!
//! | file | what it holds |
//! |---|---|
//! | `check` | verifies all of a store and changes nothing |
//! | `scrub` | verifies objects in the background, in steps |
//! | `repair` | makes a damaged store usable again |
//! | `salvage` | what a repair finds in the journal and in the data |
//! | `free_space` | the free space of a repaired store |
//! | `correct` | single flipped bits, corrected by their checksums |
//! | `lost` | places of the journal whose contents a repair could not know |
//! | `report` | what a repair did |
//! | `copy`, `grow` | a copy of a store; more space for one |
//!
//! Nothing here runs in the ordinary life of a store.

pub(crate) mod check;
pub(crate) mod copy;
pub(crate) mod correct;
pub(crate) mod free_space;
pub(crate) mod grow;
pub(crate) mod lost;
pub(crate) mod repair;
pub(crate) mod report;
pub(crate) mod salvage;
pub(crate) mod scrub;
