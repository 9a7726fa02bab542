//! A store in doubt: a part of its journal is lost, where any object may have been changed.
//!
//! Every public method that reads objects, of `Store`, `StoreReader` and `Served`, refuses an object in doubt and an absence in
//! doubt as `Corrupted`, names the repair, and gives what is certain; a snapshot and a copy are refused as wholes. The list of
//! these methods is compared with the sources, so a method that is added must be placed here. What a check, a scrub and `damage`
//! report is looked at, too: each line names its place once.

use std::collections::BTreeSet;
use std::path::Path;

use azekura::io::sim::SimDisk;
use azekura::object::served::{self, Served};
use azekura::object::{Change, CheckReport, Step, StoreReader};
use azekura::{Error, Kind, Result};

use super::*;

/// Put before the lost place, at it, and after it.
const BEFORE: u64 = 1;
const LOST: u64 = 2;
const AFTER: u64 = 3;
const ABSENT: u64 = 9;

/// The bytes of a killed store: one of three small objects, all of them in the journal, is lost. Two bits are flipped: of one the
/// checksum would state which.
fn damaged() -> Vec<u8> {
    let (memory, store) = store_with(&options());
    for n in [BEFORE, LOST, AFTER] {
        store.put(id(n), &value(n, 400)).unwrap();
    }
    store.sync().unwrap();
    let mut bytes = memory.to_vec();
    let lost = value(LOST, 400);
    let at = bytes.windows(400).position(|found| found == lost);
    bytes[at.expect("values are stored as they are")] ^= 3;
    bytes
}

/// One store, open in each way.
struct Opened {
    store: Arc<Store>,
    served: Served,
    reader: StoreReader,
}

impl Opened {
    fn new(bytes: &[u8]) -> Self {
        let store = Arc::new(opened(bytes));
        let served = Served::start(Arc::clone(&store), &served::Options::default()).unwrap();
        Self {
            store,
            served,
            reader: StoreReader::open_on(storage_of(bytes), None).unwrap(),
        }
    }
}

/// What a method gives of an object that is certain, among others in doubt.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Certain {
    Given,
    /// It reads more than this object, or changes it.
    Refused,
}
use Certain::{Given, Refused};

type Call = fn(&Opened, ObjectId) -> Result<()>;

/// Every method that gives objects, lengths, sequences, sums, or whether an object is there.
const READS: [(&str, Certain, Call); 39] = [
    ("Store::get", Given, |of, id| of.store.get(id).map(drop)),
    ("Store::get_with_sequence", Given, |of, id| {
        of.store.get_with_sequence(id).map(drop)
    }),
    ("Store::get_range", Given, |of, id| {
        of.store.get_range(id, 1..2).map(drop)
    }),
    ("Store::head", Given, |of, id| of.store.head(id).map(drop)),
    ("Store::sequence", Given, |of, id| {
        of.store.sequence(id).map(drop)
    }),
    ("Store::list", Refused, |of, id| {
        of.store
            .list(id..=id)
            .try_for_each(|object| object.map(drop))
    }),
    ("Store::usage", Refused, |of, id| {
        of.store.usage(id..=id).map(drop)
    }),
    ("Store::snapshot", Refused, |of, _| {
        of.store.snapshot().map(drop)
    }),
    ("Store::copy_in", Refused, |of, _| {
        let disk = SimDisk::new(1);
        of.store
            .copy_in(&disk.directory(), Path::new("copy.azo"), &mut |_, _| {})
    }),
    ("Store::copy_to", Refused, |of, _| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("copy.azo");
        let copied = of.store.copy_to(path, &mut |_, _| {});
        let left = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, usize::from(copied.is_ok()), "a part of a copy");
        copied
    }),
    ("Store::compare_and_put", Given, |of, id| {
        of.store.compare_and_put(id, Some(u64::MAX), b"x").map(drop)
    }),
    ("Store::compare_and_put_with", Given, |of, id| {
        let of = &of.store;
        // There is one, or it is in doubt whether there is.
        let put = of.compare_and_put_with(id, None, b"x", azekura::Durability::Process);
        put.map(|put| assert_eq!(put, None))
    }),
    ("Store::compare_and_remove", Refused, |of, id| {
        let sequence = of.store.sequence(id)?;
        let expected = sequence.unwrap_or(u64::MAX);
        of.store.compare_and_remove(id, expected).map(drop)
    }),
    ("Store::compare_and_remove_with", Given, |of, id| {
        let durability = azekura::Durability::Process;
        let removed = of.store.compare_and_remove_with(id, u64::MAX, durability);
        removed.map(|removed| assert!(!removed))
    }),
    ("Store::remove", Refused, |of, id| {
        of.store.remove(id).map(drop)
    }),
    ("Store::remove_with", Refused, |of, id| {
        let durability = azekura::Durability::Process;
        of.store.remove_with(id, durability).map(drop)
    }),
    ("Store::remove_range", Refused, |of, id| {
        of.store.remove_range(id..=id).map(drop)
    }),
    ("Store::remove_range_with", Refused, |of, id| {
        let durability = azekura::Durability::Process;
        let removed = of.store.remove_range_with(id..=id, durability);
        removed.map(drop)
    }),
    ("Store::apply", Refused, |of, id| {
        of.store.apply(&[Change::Remove(id)]).map(drop)
    }),
    ("Store::apply_with", Refused, |of, id| {
        let changes = [Change::Remove(id)];
        let durability = azekura::Durability::Process;
        of.store.apply_with(&changes, durability).map(drop)
    }),
    ("Served::get", Given, |of, id| {
        of.served.get(id).wait().map(drop)
    }),
    ("Served::get_range", Given, |of, id| {
        of.served.get_range(id, 1..2).wait().map(drop)
    }),
    ("Served::head", Given, |of, id| {
        of.served.head(id).wait().map(drop)
    }),
    ("Served::sequence", Given, |of, id| {
        of.served.sequence(id).wait().map(drop)
    }),
    ("Served::list", Refused, |of, id| {
        of.served.list(id..=id, 9).wait().map(drop)
    }),
    ("Served::usage", Refused, |of, id| {
        of.served.usage(id..=id).wait().map(drop)
    }),
    ("Served::compare_and_put", Given, |of, id| {
        let expected = of.served.compare_and_put(id, Some(u64::MAX), *b"x").wait();
        let absent = of.served.compare_and_put(id, None, *b"x").wait();
        assert_eq!(expected.is_ok(), absent.is_ok());
        absent.map(|put| assert_eq!(put, None))
    }),
    ("Served::get_with_sequence", Given, |of, id| {
        of.served.get_with_sequence(id).wait().map(drop)
    }),
    ("Served::compare_and_remove", Given, |of, id| {
        let removed = of.served.compare_and_remove(id, u64::MAX).wait();
        removed.map(|removed| assert!(!removed))
    }),
    ("Served::remove", Refused, |of, id| {
        of.served.remove(id).wait().map(drop)
    }),
    ("Served::remove_range", Refused, |of, id| {
        of.served.remove_range(id..=id).wait().map(drop)
    }),
    ("Served::apply", Refused, |of, id| {
        of.served.apply(vec![(id, None)]).wait().map(drop)
    }),
    ("StoreReader::get", Given, |of, id| {
        of.reader.get(id).map(drop)
    }),
    ("StoreReader::get_range", Given, |of, id| {
        of.reader.get_range(id, 1..2).map(drop)
    }),
    ("StoreReader::head", Given, |of, id| {
        of.reader.head(id).map(drop)
    }),
    ("StoreReader::sequence", Given, |of, id| {
        of.reader.sequence(id).map(drop)
    }),
    ("StoreReader::get_with_sequence", Given, |of, id| {
        of.reader.get_with_sequence(id).map(drop)
    }),
    ("StoreReader::list", Refused, |of, id| {
        of.reader
            .list(id..=id)
            .try_for_each(|object| object.map(drop))
    }),
    ("StoreReader::usage", Refused, |of, id| {
        of.reader.usage(id..=id).map(drop)
    }),
];

/// Every other method: those that give what is in doubt by their name, those that report damage, and those that give no object.
const OTHERS: [&str; 52] = [
    "Store::is_doubtful",
    "Store::last_known",
    "StoreReader::is_doubtful",
    "StoreReader::last_known",
    // Reports of damage, and figures.
    "Store::check",
    "Store::check_room",
    "Store::damage",
    "Store::is_read_only",
    "Store::scrub",
    "Store::journal",
    "Store::count",
    "Store::free",
    "Store::len_max",
    "Store::stats",
    "Store::accesses",
    "Store::times",
    "StoreReader::check",
    "StoreReader::check_room",
    "StoreReader::damage",
    "StoreReader::is_degraded",
    "StoreReader::scrub",
    "StoreReader::journal",
    "StoreReader::count",
    "StoreReader::len_max",
    "StoreReader::stats",
    "Served::metrics",
    "Served::means",
    "Served::is_stopped",
    // Puts and upkeep, which a store in doubt refuses.
    "Store::put",
    "Store::put_with",
    "Store::put_draft",
    "Store::put_draft_with",
    "Store::draft",
    "Store::sync",
    "Store::checkpoint",
    "Store::grow",
    "Served::put",
    "Served::put_draft",
    "Served::sync",
    "Served::checkpoint",
    // Handles.
    "Store::close",
    "Served::store",
    "Served::stop",
    // Of a snapshot, which there is of a store without doubt alone.
    "Snapshot::count",
    "Snapshot::get",
    "Snapshot::get_range",
    "Snapshot::get_with_sequence",
    "Snapshot::head",
    "Snapshot::sequence",
    "Snapshot::list",
    "Snapshot::values",
    "Snapshot::usage",
];

/// The public methods with a receiver of these types, as the sources have them.
fn methods() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src/object")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let mut of = None;
            // Each block ends with a brace in the first column, each signature with one at the end of a line.
            let mut signature = String::new();
            for line in text.lines() {
                let types = ["Store", "StoreReader", "Served", "Snapshot"];
                let begun = types
                    .into_iter()
                    .find(|name| line == format!("impl {name} {{"));
                of = begun.or(of).filter(|_| line != "}");
                let Some(of) = of else { continue };
                if line.starts_with("    pub fn ") {
                    signature.clear();
                }
                signature.push_str(line);
                let Some((_, after)) = signature.split_once("    pub fn ") else {
                    continue;
                };
                if line.ends_with('{') {
                    let end = after.find(['(', '<']).unwrap();
                    let has_receiver = after.contains("&self") || after.contains("mut self");
                    if has_receiver {
                        found.insert(format!("{of}::{}", &after[..end]));
                    }
                    signature.clear();
                }
            }
        }
    }
    found
}

#[test]
fn every_public_method_is_a_read_that_refuses_doubt_or_gives_no_object() {
    let reads = READS.iter().map(|(name, ..)| *name);
    let listed: Vec<&str> = reads.chain(OTHERS).collect();
    let known: BTreeSet<String> = listed.iter().map(ToString::to_string).collect();
    assert_eq!(known.len(), listed.len(), "one is listed twice");
    assert_eq!(methods(), known);
}

fn is_refused(error: &Error) -> bool {
    let text = error.to_string();
    error.kind() == Kind::Corrupted && text.contains("run `azekura object repair memory`")
}

#[test]
fn no_method_gives_what_is_in_doubt_as_certain() {
    let of = Opened::new(&damaged());
    assert!(of.store.is_read_only() && of.reader.is_degraded());
    for n in [BEFORE, LOST, ABSENT] {
        assert!(of.store.is_doubtful(id(n)).unwrap(), "{n}");
    }
    assert!(!of.store.is_doubtful(id(AFTER)).unwrap());
    let mut tried = 0;
    for (name, certain, call) in READS {
        for n in [BEFORE, LOST, ABSENT] {
            match call(&of, id(n)) {
                Err(error) if is_refused(&error) => tried += 1,
                other => panic!("{name} of object {n}: {other:?}"),
            }
        }
        match call(&of, id(AFTER)) {
            Ok(()) if certain == Given => {}
            Err(error) if certain == Refused && is_refused(&error) => {}
            other => panic!("{name} of a certain object: {other:?}"),
        }
    }
    assert_eq!(tried, 3 * READS.len());
    let left = of.store.last_known(id(BEFORE), 0..u64::MAX).unwrap();
    assert_eq!(left, Some(value(BEFORE, 400).into()));
}

#[test]
fn lists_and_scrubs_of_a_store_in_doubt_show_what_is_known_and_report_the_doubt() {
    let of = Opened::new(&damaged());
    // The error comes before what it concerns: a list that ends early reports it, too.
    let mut listed = of.store.list(..);
    assert!(is_refused(&listed.next().unwrap().unwrap_err()));
    let known: Vec<_> = listed.map(|listed| listed.unwrap().id).collect();
    assert_eq!(known, [id(BEFORE), id(AFTER)]);
    let mut doubtful = Vec::new();
    let mut whole = Vec::new();
    let scrubbed = of.store.scrub(.., None, &mut |step| {
        match step {
            Step::Doubtful(id) => doubtful.push(id),
            Step::Whole(id) => whole.push(id),
            Step::Damaged(finding) => panic!("{}", finding.what),
        }
        true
    });
    let scrubbed = scrubbed.unwrap();
    assert_eq!((doubtful, whole), (vec![id(BEFORE)], vec![id(AFTER)]));
    assert_eq!(
        (scrubbed.objects, scrubbed.damaged, scrubbed.doubtful),
        (2, 0, 1)
    );
}

/// Each line names the device once, with one offset, which is that of the finding.
fn names_its_place_once(report: &CheckReport) {
    assert!(report.found > 0);
    for finding in &report.findings {
        let offset = finding.offset.expect("it has a place");
        let place = format!("at memory offset {offset:#x}");
        let what = &finding.what;
        assert_eq!(what.matches("offset").count(), 1, "{what}");
        let (_, after) = what.split_once(&place).unwrap_or_else(|| panic!("{what}"));
        assert!(
            !after.starts_with(|c: char| c.is_ascii_hexdigit()),
            "{what}"
        );
    }
}

#[test]
fn each_finding_of_a_store_in_doubt_names_its_place_once() {
    // The journal of a killed store, and all images of a closed one.
    let journal = damaged();
    let (memory, store) = store_with(&options());
    for n in 0..40 {
        store.put(id(n), &value(n, 3000)).unwrap();
    }
    store.close().unwrap();
    let mut images = memory.to_vec();
    let size = options().journal_size.unwrap() as usize;
    images[16 << 10..size].fill(0x5a);
    for bytes in [journal, images] {
        let store = opened(&bytes);
        names_its_place_once(&store.check(true, &mut |_, _| {}).unwrap());
        for damage in store.damage() {
            let line = damage.to_string();
            assert_eq!(line.matches("offset").count(), 1, "{line}");
            assert!(damage.offset >= 16 << 10, "{line}");
        }
        let report = Store::repair_on(&storage_of(&bytes), None, &mut |_, _| {}).unwrap();
        assert!(!report.lost.is_empty());
        for line in &report.lost {
            assert_eq!(line.matches("offset").count(), 1, "{line}");
        }
    }
}
