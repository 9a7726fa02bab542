//! Lists of a repair's report, which are bounded: the first entries are listed, all are counted.
//!
//! A report of a large file stays readable, and takes little memory. What the lists hold is the engine's: records of keys, objects
//! of ids. It does not know what an entry states.

/// Most entries of one list.
const LISTED_MAX: usize = 1000;

/// Counts `item`, and lists it if there is room; whether it is listed.
pub(crate) fn list<T>(item: T, listed: &mut Vec<T>, count: &mut u64) -> bool {
    *count += 1;
    let has_room = listed.len() < LISTED_MAX;
    if has_room {
        listed.push(item);
    }
    has_room
}
