//! A workload from a file or a pipe: read to its end and checked before any store is made, then run.
//!
//! What is wrong with it is found while nothing has been done. What is no regular file (a pipe, standard input) is copied to a
//! file without a name in the system's folder for temporary ones, since it is read twice. While it runs it takes no memory.
//! It does not know stores.
//!
//! Afterwards it knows which object must have been there: one that a put of the same workload had stored, and
//! no removal before the place where it was looked for. That holds where operations follow one another; with several
//! outstanding at once one may overtake another.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{BufReader, Seek};
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;

use azekura::error::{Error, Kind, Result, size};

use super::draw::id_of;
use super::operation::{Operation, Operations, VALUE_SIZE_MAX, read_array};
use crate::threads;
use crate::unfinished::fresh_name;

/// So many operations are read ahead of the run.
const READ_AHEAD: usize = 1 << 10;

/// A workload that was checked.
#[derive(Debug)]
pub(super) struct Workload {
    file: File,
    name: PathBuf,
    count: u64,
    /// Whether the first operation is a put.
    begins_with_put: bool,
}

impl Workload {
    /// Reads and checks the workload at `path`, `-` for standard input. Errors: `Invalid` for what is no array of
    /// operations, with the line, and for a key that is none; `TooLarge` for a value over the limit; `Io`.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let failed = |error| Error::io("cannot open the workload", error).at(path);
        let (file, name) = if path == Path::new("-") {
            let name = PathBuf::from("standard input");
            (spooled(&mut std::io::stdin().lock(), &name)?, name)
        } else {
            let mut file = File::open(path).map_err(failed)?;
            let regular = file.metadata().map_err(failed)?.is_file();
            let file = if regular {
                file
            } else {
                spooled(&mut file, path)?
            };
            (file, path.to_path_buf())
        };
        let mut workload = Self {
            file,
            name,
            count: 0,
            begins_with_put: false,
        };
        let (mut count, mut begins_with_put) = (0, false);
        workload.each(&mut |operation| {
            workload.check(count, &operation)?;
            begins_with_put |= count == 0 && matches!(operation, Operation::Put { .. });
            count += 1;
            Ok(())
        })?;
        (workload.count, workload.begins_with_put) = (count, begins_with_put);
        Ok(workload)
    }

    /// The file, at its beginning. One reader at a time: they share the place in the file.
    fn reader(&self) -> Result<BufReader<File>> {
        let failed = |error| Error::io("cannot read the workload", error).at(&self.name);
        let mut file = self.file.try_clone().map_err(failed)?;
        file.rewind().map_err(failed)?;
        Ok(BufReader::with_capacity(1 << 16, file))
    }

    fn each(&self, each: &mut dyn FnMut(Operation) -> Result<()>) -> Result<()> {
        read_array(self.reader()?, &self.name, each)
    }

    fn check(&self, count: u64, operation: &Operation) -> Result<()> {
        let what = |what: &str| format!("operation {count}: {what}");
        if id_of(operation.key()).is_err() {
            let error = Error::new(Kind::Invalid, what("a key has at most 16 bytes"));
            return Err(error.at(&self.name).key(operation.key().as_bytes()));
        }
        match operation {
            Operation::Put { value, .. } if value.size > VALUE_SIZE_MAX => Err(Error::new(
                Kind::TooLarge,
                what("a value has at most 512 MiB"),
            )
            .at(&self.name)
            .found(size(value.size), size(VALUE_SIZE_MAX))),
            _ => Ok(()),
        }
    }

    /// Refuses to make a store for a workload that looks for objects before it put any: `Invalid`.
    pub(super) fn fits_a_new_store(&self, store: &Path) -> Result<()> {
        if self.begins_with_put {
            return Ok(());
        }
        let what = "the workload begins with no put, and there is no store yet";
        let error = Error::new(Kind::Invalid, what).at(store);
        Err(error.remedy("put objects first, as `azekura bench object workload put` prints them"))
    }

    /// Operations.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// The operations, from the first, which a thread reads ahead.
    pub(super) fn operations(&self) -> Result<Operations> {
        let (reader, name) = (self.reader()?, self.name.clone());
        let (to, from) = sync_channel(READ_AHEAD);
        threads::start(move || {
            let read = read_array(reader, &name, &mut |operation| {
                let ended = |_| Error::new(Kind::Invalid, "the run has ended");
                to.send(Ok(operation)).map_err(ended)
            });
            if let Err(error) = read {
                // A run that has ended does not need it.
                let _ = to.send(Err(error));
            }
        })?;
        Ok(Box::new(from.into_iter()))
    }

    /// The first of the operations `missed`, by number, whose object the workload had put and not removed before.
    pub(super) fn first_lost(&self, missed: &[(u64, String)]) -> Result<Option<String>> {
        let mut there: HashMap<&str, bool> = HashMap::new();
        let mut missed_at = HashMap::new();
        for (number, key) in missed {
            there.insert(key, false);
            missed_at.insert(number, key);
        }
        let (mut lost, mut number) = (None, 0);
        self.each(&mut |operation| {
            if let Some(key) = missed_at.get(&number)
                && there[key.as_str()]
            {
                lost.get_or_insert_with(|| (*key).clone());
            }
            number += 1;
            if let Some(there) = there.get_mut(operation.key()) {
                match operation {
                    Operation::Put { .. } => *there = true,
                    Operation::Get { .. } => {}
                    Operation::Delete { .. } => *there = false,
                }
            }
            Ok(())
        })?;
        Ok(lost)
    }
}

/// A file without a name that holds what `from` gives.
fn spooled(from: &mut dyn std::io::Read, name: &Path) -> Result<File> {
    let path = std::env::temp_dir().join(fresh_name("workload"));
    let failed = |error| Error::io("cannot keep the workload in a file", error).at(&path);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .map_err(failed)?;
    std::fs::remove_file(&path).map_err(failed)?;
    std::io::copy(from, &mut file)
        .map_err(|error| Error::io("cannot copy the workload", error).at(name))?;
    Ok(file)
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
        // More than once.
        for _ in 0..2 {
            assert_eq!(found.operations().unwrap().count(), 2);
        }
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
            found.first_lost(&missed).unwrap()
        };
        assert_eq!(lost(&[(0, "a"), (4, "a"), (5, "b")]), None);
        assert_eq!(lost(&[(0, "a"), (2, "a")]), Some("a".into()));
        assert_eq!(lost(&[(3, "a")]), Some("a".into()));
    }

    #[test]
    fn a_pipe_is_read_as_a_file_is() {
        let mut text = &b"[{\"GET\":{\"key\":\"a\"}}]"[..];
        let file = spooled(&mut text, Path::new("pipe")).unwrap();
        let found = Workload {
            file,
            name: "pipe".into(),
            count: 0,
            begins_with_put: false,
        };
        assert_eq!(found.operations().unwrap().count(), 1);
        let error = found.fits_a_new_store(Path::new("s")).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
    }
}
