//! A workload from a file or a pipe: read to its end and checked before any store is made, then run.
//!
//! What is wrong with it is found while nothing has been done, and no JSON is read while the clock runs. It is held in memory,
//! less than 100 bytes an operation. It does not know stores.
//!
//! Afterwards it knows which object must have been there: one that a put of the same workload had stored, and
//! no removal before the place where it was looked for. That holds where operations follow one another; with several
//! outstanding at once one may overtake another.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use azekura::error::{Error, Kind, Result, size};

use super::draw::id_of;
use super::operation::{Operation, Operations, VALUE_SIZE_MAX, WORKLOAD, read_array};

/// A workload that was checked.
#[derive(Debug)]
pub(super) struct Workload(Arc<[Operation]>);

impl Workload {
    /// Reads and checks the workload at `path`, `-` for standard input. Errors: `Invalid` for what is no array of
    /// operations, with the line, and for a key that is none; `TooLarge` for a value over the limit; `Io`.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let (from, name): (Box<dyn Read>, _) = if path == Path::new("-") {
            (Box::new(std::io::stdin()), Path::new("standard input"))
        } else {
            let failed = |error| Error::io("cannot open the workload", error).at(path);
            (Box::new(File::open(path).map_err(failed)?), path)
        };
        let mut operations = Vec::new();
        read_array(BufReader::new(from), name, WORKLOAD, &mut |operation| {
            check(operations.len(), &operation).map_err(|error| error.at(name))?;
            operations.push(operation);
            Ok(())
        })?;
        Ok(Self(operations.into()))
    }

    /// Refuses to make a store for a workload that looks for objects before it put any: `Invalid`.
    pub(super) fn fits_a_new_store(&self, store: &Path) -> Result<()> {
        if matches!(self.0.first(), Some(Operation::Put { .. })) {
            return Ok(());
        }
        let what = "the workload begins with no put, and there is no store yet";
        let error = Error::new(Kind::Invalid, what).at(store);
        Err(error.remedy("put objects first, as `azekura bench object workload put` prints them"))
    }

    /// Operations.
    pub(super) fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// The operations, from the first.
    pub(super) fn operations(&self) -> Operations {
        let all = Arc::clone(&self.0);
        Box::new((0..all.len()).map(move |number| all[number].clone()))
    }

    /// The first of the operations `missed`, by number, whose object the workload had put and not removed before.
    pub(super) fn first_lost(&self, missed: &[(u64, String)]) -> Option<String> {
        let keys = missed.iter().map(|(_, key)| (key.as_str(), false));
        let mut there: HashMap<&str, bool> = keys.collect();
        let missed: HashSet<u64> = missed.iter().map(|(number, _)| *number).collect();
        for (number, operation) in (0..).zip(&*self.0) {
            let Some(there) = there.get_mut(operation.key()) else {
                continue;
            };
            if *there && missed.contains(&number) {
                return Some(operation.key().to_owned());
            }
            match operation {
                Operation::Put { .. } => *there = true,
                Operation::Get { .. } => {}
                Operation::Delete { .. } => *there = false,
            }
        }
        None
    }
}

/// Refuses keys and values beyond the limits.
fn check(number: usize, operation: &Operation) -> Result<()> {
    let what = |what: &str| format!("operation {number}: {what}");
    if id_of(operation.key()).is_err() {
        let error = Error::new(Kind::Invalid, what("a key has at most 16 bytes"));
        return Err(error.key(operation.key().as_bytes()));
    }
    match operation {
        Operation::Put { value, .. } if value.size > VALUE_SIZE_MAX => {
            let error = Error::new(Kind::TooLarge, what("a value has at most 512 MiB"));
            Err(error.found(size(value.size), size(VALUE_SIZE_MAX)))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(text: &str) -> Result<Workload> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Workload::open(file.path())
    }

    #[test]
    fn a_workload_is_checked_whole_before_its_first_operation() {
        let put = "{\"PUT\":{\"key\":\"a\",\"value\":{\"size\":1}}}";
        let found = workload(&format!("[{put},{put}]")).unwrap();
        assert_eq!(found.count(), 2);
        assert_eq!(found.operations().count(), 2);
        for (text, kind, part) in [
            (format!("[{put},\n{put},\n7]"), Kind::Invalid, "line 3"),
            (format!("[{put},\n{put}"), Kind::Invalid, "line 2"),
            (
                "[{\"GET\":{\"key\":\"seventeen letters\"}}]".into(),
                Kind::Invalid,
                "operation 0: a key has at most 16 bytes",
            ),
            (
                format!("[{put},{}]", put.replace(":1}", ":536870913}")),
                Kind::TooLarge,
                "operation 1: a value has at most 512 MiB",
            ),
        ] {
            let error = workload(&text).unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(part), "{error}");
            assert!(error.path().is_some(), "{error}");
        }
    }

    #[test]
    fn what_was_put_and_not_removed_is_known_to_be_lost() {
        let (put, get) = (
            |key: &str| format!("{{\"PUT\":{{\"key\":\"{key}\",\"value\":{{\"size\":1}}}}}}"),
            |key: &str| format!("{{\"GET\":{{\"key\":\"{key}\"}}}}"),
        );
        let delete = |key: &str| get(key).replace("GET", "DELETE");
        let operations = [
            get("a"),
            put("a"),
            get("a"),
            delete("a"),
            get("a"),
            get("b"),
        ];
        let found = workload(&format!("[{}]", operations.join(","))).unwrap();
        let lost = |missed: &[(u64, &str)]| {
            let missed: Vec<_> = missed
                .iter()
                .map(|(n, key)| (*n, (*key).to_owned()))
                .collect();
            found.first_lost(&missed)
        };
        assert_eq!(lost(&[(0, "a"), (4, "a"), (5, "b")]), None);
        assert_eq!(lost(&[(0, "a"), (2, "a")]), Some("a".into()));
        assert_eq!(lost(&[(3, "a")]), Some("a".into()));
    }
}
