//! The allocation groups against a map of units.
//!
//! Nothing is given twice, nothing is lost, and what was freed comes back after a sync only.
//! There are no images: groups that come in from storage are the store's tests to see.

#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::error::Kind;
use crate::testkit::random::Random;

/// There are no images.
struct Nothing;

impl Source for Nothing {
    fn runs(&self, _group: u32, image: Extent, _limit: u32) -> Result<Runs> {
        Err(crate::error::Error::new(Kind::Corrupted, "there is no image").offset(image.offset))
    }
}

fn space(units: u64, group: u32) -> Space {
    Space::new(units, group, None, Box::new(Nothing)).0
}

#[test]
fn a_new_store_is_filled_from_front_to_back() {
    let mut space = space(1000, 256);
    let mut at = 0;
    for sequence in 0..100 {
        let found = space.take(10, sequence).unwrap().unwrap();
        if found.opened {
            // A group's last units may be too few.
            at = u64::from(found.span.unit >= at) * found.span.unit;
        }
        assert_eq!(found.span.unit, at);
        at += 10;
        if at + 10 > 1000 {
            break;
        }
    }
    assert!(
        space.free() < 4 * 10 + 10,
        "{} units are left",
        space.free()
    );
}

#[test]
fn room_is_given_once_and_comes_back_after_a_sync_only() {
    let mut random = Random::new(11);
    let mut space = space(4096, 512);
    let mut owned: Vec<Span> = Vec::new();
    let mut taken = vec![false; 4096];
    for sequence in 0..20_000u64 {
        if random.below(5) < 3 {
            let units = 1 + random.below(if sequence % 7 == 0 { 200 } else { 8 }) as u32;
            let Some(found) = space.take(units, sequence).unwrap() else {
                continue;
            };
            for unit in found.span.unit..found.span.end() {
                assert!(!std::mem::replace(&mut taken[unit as usize], true));
            }
            owned.push(found.span);
        } else if !owned.is_empty() {
            // Not free before a sync: it stays taken here, too.
            space.retire(owned.swap_remove(random.index(owned.len())), FreedBy::Sync);
        }
        if random.one_in(20) {
            for span in space.limbo.spans() {
                taken[span.unit as usize..span.end() as usize].fill(false);
            }
            let sync = space.begin_sync();
            space.end_sync(sync).unwrap();
            assert_eq!(space.limbo.units(), 0);
        }
        let free = taken.iter().filter(|taken| !**taken).count() as u64;
        assert_eq!(space.free(), free);
    }
}

#[test]
fn a_sync_frees_what_was_in_limbo_when_it_began_and_no_more() {
    let mut space = space(64, 64);
    let spans: Vec<Span> = (0..3)
        .map(|n| space.take(4, n).unwrap().unwrap().span)
        .collect();
    space.retire(spans[0], FreedBy::Sync);
    let sync = space.begin_sync();
    space.retire(spans[1], FreedBy::Sync);
    space.end_sync(sync).unwrap();
    assert_eq!((space.limbo.units(), space.free()), (4, 64 - 8));
    let sync = space.begin_sync();
    space.end_sync(sync).unwrap();
    assert_eq!((space.limbo.units(), space.free()), (0, 64 - 4));
}

#[test]
fn what_a_move_left_is_free_after_a_checkpoint_and_no_sync() {
    let mut space = space(64, 64);
    let span = space.take(4, 1).unwrap().unwrap().span;
    let (states, _, early) = space.checkpoint_state();
    space.retire(span, FreedBy::Checkpoint);
    let sync = space.begin_sync();
    space.end_sync(sync).unwrap();
    space.end_checkpoint(&states, early).unwrap();
    assert_eq!((space.limbo.units(), space.free()), (4, 64 - 4));
    let (states, _, moment) = space.checkpoint_state();
    space.end_checkpoint(&states, moment).unwrap();
    assert_eq!((space.limbo.units(), space.free()), (0, 64));
}

#[test]
fn strides_are_scanned_until_what_is_in_them_is_settled() {
    let mut space = space(1024, 128);
    for sequence in 0..10 {
        space.take(100, 10 * sequence).unwrap();
    }
    let sequences = |space: &Space| {
        space
            .allocation_extents()
            .map(|allocation_extent| allocation_extent.sequence)
            .collect::<Vec<_>>()
    };
    assert_eq!(sequences(&space), [0, 10, 20, 30, 40, 50, 60, 70]);
    space.advance_low_water(35);
    assert_eq!(sequences(&space), [30, 40, 50, 60, 70]);
    space.advance_low_water(1000);
    assert_eq!(sequences(&space), [70], "the open one stays");
}

#[test]
fn a_group_is_filled_before_the_next_one_is_begun() {
    let mut space = space(1 << 18, 1 << 16);
    let of_allocation_extent = 1 << 14;
    for n in 0..16 {
        let found = space.take(of_allocation_extent, n).unwrap().unwrap();
        assert_eq!(found.span.unit, n * u64::from(of_allocation_extent));
        assert!(found.opened);
    }
}

#[test]
fn the_emptiest_group_comes_next_and_what_does_not_fit_is_refused() {
    let mut space = space(512, 128);
    let all: Vec<Span> = (0..4)
        .map(|n| space.take(128, n).unwrap().unwrap().span)
        .collect();
    assert!(space.take(1, 9).unwrap().is_none());
    space
        .add(Span {
            unit: all[1].unit,
            units: 40,
        })
        .unwrap();
    space
        .add(Span {
            unit: all[3].unit + 8,
            units: 100,
        })
        .unwrap();
    let found = space.take(30, 10).unwrap().unwrap();
    assert_eq!((found.span.unit, found.opened), (all[3].unit + 8, true));
    assert!(space.take(101, 11).unwrap().is_none());
    let found = space.take(40, 12).unwrap().unwrap();
    assert_eq!(
        found.span.unit,
        all[3].unit + 38,
        "goes forward in the allocation extent"
    );
}

#[test]
fn a_store_that_is_opened_again_goes_on_where_it_was() {
    let mut first = space(4096, 1024);
    let taken = first.take(100, 1).unwrap().unwrap().span;
    let mut again = space(4096, 1024);
    // Of equally empty groups the first would be next, of others the emptiest.
    again.claim(taken).unwrap();
    again.resume_in(first.open().unwrap());
    let next = again.take(100, 2).unwrap().unwrap().span;
    assert_eq!(next.unit, taken.end());
}
