//! The index against an ordered map.
//!
//! Random changes, snapshots, images, memory; every walk must show what the map has, in its order.
//! Images are kept in a list here, so a leaf that comes in is what a checkpoint made of it.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use super::*;
use crate::testkit::random::Random;

/// Leaves of images that are kept here.
struct Kept(Arc<RwLock<Vec<Vec<u8>>>>);

impl Source for Kept {
    fn load(&self, image: &Image, first: ObjectId, end: Option<ObjectId>) -> Result<Leaf> {
        let kept = self.0.read();
        Leaf::of_image(&kept[image.extent.offset as usize], first, end).unwrap()
    }
}

fn index() -> (Index, Arc<RwLock<Vec<Vec<u8>>>>) {
    let kept = Arc::new(RwLock::new(Vec::new()));
    let index = Index::new(Vec::new(), Box::new(Kept(Arc::clone(&kept))), u64::MAX);
    (index, kept)
}

fn entry(n: u64) -> Entry {
    Entry {
        place: n % (1 << 40),
        len: (n % (1 << 30)) as u32,
        kind: (n % 4) as u8,
    }
}

fn walk(index: &Index) -> Vec<(ObjectId, Entry)> {
    let mut all = Vec::new();
    let mut next = Some(ObjectId(0));
    while let Some(from) = next {
        let page = index.page(from).unwrap();
        all.extend(page.entries);
        next = page.next;
    }
    all
}

/// Images of a snapshot, as a checkpoint makes them.
fn store(index: &Index, kept: &RwLock<Vec<Vec<u8>>>) -> Vec<(ObjectId, Option<Image>)> {
    let shots = index.snapshot(true).unwrap();
    let images: Vec<_> = shots
        .iter()
        .map(|shot| {
            let image = match &shot.leaf {
                Some(leaf) if shot.dirty => {
                    let mut kept = kept.write();
                    kept.push(leaf.as_bytes().to_vec());
                    Some(Image {
                        count: leaf.len() as u32,
                        in_journal: false,
                        usage: 0,
                        extent: Extent {
                            offset: kept.len() as u64 - 1,
                            ..Extent::default()
                        },
                    })
                }
                _ => shot.image,
            };
            (shot.first, image)
        })
        .collect();
    index.set_images(&images);
    images
}

#[test]
fn random_changes_with_reopening_agree_with_an_ordered_map() {
    let mut random = Random::new(5);
    let (mut index, kept) = index();
    let mut model: BTreeMap<ObjectId, Entry> = BTreeMap::new();
    for round in 0..60_000u64 {
        let spread = if round < 30_000 { 20_000 } else { 5_000 };
        let id = ObjectId(u128::from(random.below(spread)) << 90);
        if random.below(3) == 0 {
            assert_eq!(index.set(id, None).unwrap(), model.remove(&id));
        } else {
            let new = entry(random.u64());
            assert_eq!(index.set(id, Some(new)).unwrap(), model.insert(id, new));
        }
        assert_eq!(index.get(id).unwrap(), model.get(&id).copied());
        assert_eq!(index.count(), model.len() as u64);
        if round % 9_000 == 0 {
            let images = store(&index, &kept);
            index = Index::new(images, Box::new(Kept(Arc::clone(&kept))), u64::MAX);
        }
    }
    assert!(index.leaves() > 10);
    assert_eq!(walk(&index), model.into_iter().collect::<Vec<_>>());
}

#[test]
fn a_snapshot_stays_what_it_was() {
    let (index, _kept) = index();
    for n in 0..3000u128 {
        index.set(ObjectId(n), Some(entry(1))).unwrap();
    }
    let shots = index.snapshot(false).unwrap();
    for n in 0..3000u128 {
        let stays = (n % 2 == 0).then(|| entry(2));
        index.set(ObjectId(n), stays).unwrap();
    }
    let mut seen = Vec::new();
    for shot in &shots {
        seen.extend(index.leaf_of(shot, None).unwrap().entries());
    }
    let wanted: Vec<_> = (0..3000u128).map(|n| (ObjectId(n), entry(1))).collect();
    assert_eq!(seen, wanted);
    assert_eq!(index.count(), 1500);
}

#[test]
fn an_object_takes_at_most_26_bytes_in_any_order_of_puts() {
    for spread in [1u128, 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835] {
        let (index, _kept) = index();
        for n in 0..200_000u128 {
            let id = ObjectId(n.wrapping_mul(spread));
            index.set(id, Some(entry(7))).unwrap();
        }
        let each = index.memory() as f64 / index.count() as f64;
        assert!(each <= 26.0, "{each} bytes");
    }
}

#[test]
fn what_is_no_image_of_the_leaf_is_refused() {
    let mut bytes = entry(5).encode(ObjectId(3)).to_vec();
    bytes.extend(entry(6).encode(ObjectId(9)));
    let is_image = |bytes: &[u8], first: u128, end: Option<u128>| {
        Leaf::of_image(bytes, ObjectId(first), end.map(ObjectId)).is_some()
    };
    assert!(is_image(&bytes, 3, Some(10)));
    assert!(is_image(&[], 3, None));
    assert!(!is_image(&bytes, 4, None), "an id of the leaf before");
    assert!(!is_image(&bytes, 0, Some(9)), "an id of the next leaf");
    assert!(!is_image(&bytes[..49], 0, None), "half an entry");
    bytes.rotate_left(25);
    assert!(!is_image(&bytes, 0, None), "out of order");
    assert!(
        !is_image(&[bytes.clone(), bytes].concat(), 0, None),
        "twice"
    );
}

#[test]
fn entries_come_back_from_their_bytes() {
    for n in [0, 1, (1 << 40) - 1, 0x12_3456_789a] {
        let whole = Entry {
            place: n,
            len: (1 << 30) - 1,
            kind: 3,
        };
        let id = ObjectId(u128::from(n) << 64 | 5);
        assert_eq!(Entry::decode(&whole.encode(id)), (id, whole));
    }
}

#[test]
fn ids_that_came_and_went_leave_no_leaves_behind() {
    let (index, kept) = index();
    for n in 0..100_000u128 {
        index.set(ObjectId(n), Some(entry(3))).unwrap();
        if n >= 2000 && n != 70_000 {
            let gone = n - 2000;
            let stays = (gone % 30_000 == 0).then(|| entry(4));
            index.set(ObjectId(gone), stays).unwrap();
        }
    }
    store(&index, &kept);
    let before = walk(&index);
    assert_eq!(before.len(), 2000 + 4 + 1);
    assert!(index.leaves() > 90);
    index.join();
    assert!(index.leaves() < 12, "{} leaves", index.leaves());
    assert_eq!(walk(&index), before);
    // What was joined is told anew, and comes back.
    let images = store(&index, &kept);
    let again = Index::new(images, Box::new(Kept(kept)), u64::MAX);
    assert_eq!(walk(&again), before);
    assert_eq!(again.count(), before.len() as u64);
    index.set(ObjectId(40_000), Some(entry(9))).unwrap();
    assert_eq!(index.get(ObjectId(40_000)).unwrap(), Some(entry(9)));
}
