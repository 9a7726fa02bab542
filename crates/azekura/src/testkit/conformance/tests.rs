//! The suite on the obvious engine, which passes, and on engines with one bug each, which must not.
//!
//! Each bug must be caught by the suite, and each check must catch some bug by itself: what only
//! another check catches would be lost with it.

use std::panic::resume_unwind;

use super::*;
use crate::testkit::broken::{Broken, Bug};
use crate::testkit::{ModelDb, Outcome};

#[test]
fn the_obvious_engine_keeps_every_promise() {
    let report = conformance(
        &|| Box::new(ModelDb::with_limits(500, 150_000)),
        None,
        &Effort::QUICK,
    )
    .unwrap();
    assert_eq!(report.counts.len(), 1 + CHECKS.len());
    assert!(
        report
            .counts
            .contains(&("operations in sequences", 200 * 200))
    );
    let counted = |(name, count): &(&str, u64)| *count > 0 || *name == "files checked";
    assert!(report.counts.iter().all(counted), "{report}");
}

#[test]
fn every_bug_is_caught_by_the_suite() {
    let mut uncaught = Vec::new();
    for bug in Bug::ALL {
        let deadline = match bug {
            Bug::PanicLocks => Duration::from_secs(2),
            _ => Effort::QUICK.deadline,
        };
        let effort = Effort {
            deadline,
            ..Effort::QUICK
        };
        if conformance(&|| Box::new(Broken::new(*bug)), None, &effort).is_ok() {
            uncaught.push(bug);
        }
    }
    assert!(uncaught.is_empty(), "not caught: {uncaught:?}");
}

/// The sequences catch most bugs; each check must catch one by itself.
#[test]
fn every_check_catches_a_bug_by_itself() {
    const LENGTHS: &str = "values over values of other lengths";
    let effort = Effort {
        deadline: Duration::from_secs(20),
        ..Effort::QUICK
    };
    for bug in [
        Bug::DroppedWrite,
        Bug::KeysCut,
        Bug::ZerosCut,
        Bug::CountDrifts,
        Bug::StaleRead,
    ] {
        let caught = sequences(&|| Box::new(Broken::new(bug)), None, &effort);
        assert!(caught.is_err(), "sequences: {bug:?}");
    }
    for (name, bug) in [
        ("updates asked once and kept", Bug::AsksTwice),
        ("updates asked once and kept", Bug::KeepTouches),
        ("updates asked once and kept", Bug::EmptyIsAbsent),
        ("updates asked once and kept", Bug::ZerosCut),
        ("panics in updates survived", Bug::PanicRemoves),
        ("reads", Bug::VisitsTwice),
        ("reads", Bug::WrongAbsent),
        ("records scanned", Bug::ScanSkips),
        ("records scanned", Bug::ScanRepeats),
        ("records scanned", Bug::ScanGoesOn),
        ("records scanned", Bug::BookmarkBehind),
        ("records scanned", Bug::BookmarkForgotten),
        ("records scanned between changes", Bug::ScanSkips),
        ("records scanned between changes", Bug::ScanRepeats),
        ("records put and read many at once", Bug::ReadManyShifted),
        ("records put and read many at once", Bug::PutManyBackward),
        ("records put and read many at once", Bug::PutManyShort),
        ("updates of many at once", Bug::HalfUpdateMany),
        ("updates of many at once", Bug::FirstEditCounts),
        ("limits", Bug::OverLimitCut),
        ("limits", Bug::OverLimitHalf),
        (LENGTHS, Bug::EmptyIsAbsent),
        (lengths::LONG_CHECK, Bug::LongTailStays),
        ("clearings", Bug::ClearLeaves),
        ("updates by threads", Bug::RacyUpdate),
        ("updates by threads", Bug::RacyUpdateMany),
        ("updates by threads", Bug::StaleRead),
        ("updates by threads", Bug::TornRead),
        ("records scanned during writes", Bug::ScanSkips),
        ("steps of cursors in order", Bug::SeekBehind),
        ("steps of cursors in order", Bug::CursorForgets),
        ("steps of cursors in order", Bug::ScanSkips),
        ("histories", Bug::RacyUpdate),
        ("histories", Bug::RacyUpdateMany),
        ("histories", Bug::StaleRead),
    ] {
        let caught = check(name, Box::new(Broken::new(bug)), &effort);
        assert!(caught.is_err(), "{name}: {bug:?}");
    }
    let shorter = Box::new(Broken::new(Bug::LongTailStays));
    let seen = check(LENGTHS, shorter, &effort);
    assert!(seen.is_ok(), "only the check of long values is to see it");
}

/// A store in memory, "reopened" by copying it; the copier may have a bug.
fn copied(engine: &dyn Engine, lose: usize) -> Boxed {
    let copy = ModelDb::with_limits(500, 150_000);
    let Outcome::Records(records) = Op::Scan.run(engine).unwrap() else {
        unreachable!()
    };
    for (key, value) in &records[..records.len().saturating_sub(lose)] {
        copy.put(key, value).unwrap();
    }
    Box::new(copy)
}

#[test]
fn what_is_lost_by_a_reopening_is_caught() {
    let make: &dyn Fn() -> Boxed = &|| Box::new(ModelDb::with_limits(500, 150_000));
    let effort = Effort {
        sequences: 20,
        ..Effort::QUICK
    };
    let report = conformance(make, Some(&|engine| copied(&*engine, 0)), &effort).unwrap();
    assert_eq!(report.counts.len(), 2 + CHECKS.len());
    let lossy = conformance(make, Some(&|engine| copied(&*engine, 1)), &effort);
    assert!(lossy.unwrap_err().to_string().contains("all of it"));
    let bookmarks = bookmarks_over_reopening(make(), &|engine| copied(&*engine, 1), &effort);
    assert!(bookmarks.is_err());
}

#[test]
fn a_hang_and_a_panic_are_failures() {
    let deadline = Duration::from_millis(50);
    let hang = guarded(Box::new(ModelDb::new()), deadline, |_| {
        loop {
            std::thread::park();
        }
    });
    let hang: Outcomes<(Boxed, ())> = hang;
    assert!(hang.err().unwrap().to_string().contains("it hangs"));
    let panic: Outcomes<(Boxed, ())> =
        guarded(Box::new(ModelDb::new()), Duration::from_secs(60), |_| {
            resume_unwind(Box::new("why"))
        });
    assert_eq!(panic.err().unwrap().to_string(), "a panic: why");
}
