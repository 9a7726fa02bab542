//! The tree file keeps its promises: a model, threads, cuts of the power, kills, damage, full stores.
//!
//! Each suite draws its configuration and its population from a seed, and prints both if it fails. Lines beginning `tried:` state
//! how much was tried.

mod ahead;
mod beyond;
mod buffered;
mod buffered_bounds;
mod buffered_edges;
mod buffered_whole;
mod compact;
mod contract;
mod copies;
mod copies_refused;
mod count;
mod crowded;
mod damage;
mod defects;
mod formats;
mod last_leaf;
mod load;
mod model;
mod pops;
mod power;
mod queue;
mod range_damage;
mod ranges;
mod resize;
mod salvage;
mod snapshots;
mod threads;
mod transactions;

use std::ops::Bound;
use std::process::Child;
use std::time::Duration;

use azekura::Durability;
use azekura::order::Order;
use azekura::record::tree::{Compression, CreateOptions, OpenOptions, TreeDb};
use azekura::testkit::Random;

/// Kills a process after a while, which must not have ended by itself.
fn kill_after(mut child: Child, while_running: Duration) {
    std::thread::sleep(while_running);
    child.kill().unwrap();
    let ended = child.wait_with_output().unwrap();
    assert!(
        ended.status.code().is_none(),
        "the child failed: {}",
        String::from_utf8_lossy(&ended.stderr)
    );
}

/// Options of a small tree: little cache, so that pages give way; small segments; a worker or none.
fn options(random: &mut Random, background: bool) -> CreateOptions {
    let order = if random.one_in(4) {
        *random.choose(&Order::ALL)
    } else {
        Order::Lexical
    };
    shaped(random)
        .order(order)
        .segment_size(*random.choose(&[64 << 10, 64 << 10, 128 << 10, 1 << 20]))
        .opening(opening(random, background))
}

/// Options with some pages: plain ones of 4 KiB in more than a third of the cases.
fn shaped(random: &mut Random) -> CreateOptions {
    let compression = *random.choose(&[
        Compression::None,
        Compression::None,
        Compression::None,
        Compression::Lz4,
        Compression::Zstd,
    ]);
    let page_size = match compression {
        Compression::None => *random.choose(&[0, 0, 0, 8 << 10, 16 << 10]),
        _ => *random.choose(&[0, 0, 8 << 10]),
    };
    CreateOptions::new()
        .compression(compression)
        .page_size(page_size)
}

/// What holds for one opening.
fn opening(random: &mut Random, background: bool) -> OpenOptions {
    let cache = *random.choose(&[256 << 10, 256 << 10, 512 << 10, 4 << 20]);
    OpenOptions::new().cache(cache).background(background)
}

/// Options on a simulated disk, where a seed decides every step.
fn simulated(random: &mut Random) -> CreateOptions {
    let options = options(random, false);
    let durability = if random.one_in(6) {
        Durability::Power
    } else {
        Durability::Process
    };
    let opening = options.opening.clone();
    let opening = opening
        .capacity(azekura::io::sim::SimDisk::FILE_SIZE_MAX)
        .durability(durability);
    options.opening(opening).segment_size(64 << 10)
}

/// How many puts have waited for their leaf since an open.
fn buffered_puts(db: &TreeDb) -> u64 {
    beyond::property(db, "buffered_puts")
}

/// A number as keys of eight bytes state it.
#[expect(
    clippy::big_endian_bytes,
    reason = "keys whose order is that of numbers"
)]
fn eight(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// What keys look like.
#[derive(Clone, Copy, Debug)]
struct Keys {
    order: Order,
    style: u64,
}

impl Keys {
    /// All of them longer than a node takes.
    fn long() -> Self {
        Self {
            order: Order::Lexical,
            style: 7,
        }
    }

    fn draw(random: &mut Random, order: Order) -> Self {
        let style = random.below(10);
        Self { order, style }
    }

    /// The key of this number.
    fn key(self, number: u64) -> Vec<u8> {
        let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        let mut first = format!("{number:07}").into_bytes();
        match self.style {
            _ if self.order.name().ends_with("big-endian") => first = eight(number).to_vec(),
            // Of all lengths.
            0 => first.resize(7 + (spread % 504) as usize, b'k'),
            // That begin alike, for almost all of a key.
            1 => first.splice(..0, [b'p'; 500]).for_each(drop),
            // Of the greatest length, spread.
            2 => {
                first = format!("{spread:016x}").into_bytes();
                first.resize(510, b'z');
            }
            3 => first = Random::new(number).bytes((spread % 40) as usize + 5),
            // A few long ones between short ones, and the empty one.
            4 if number.is_multiple_of(31) => first.resize((number % 480) as usize, b'k'),
            5 => first = eight(number).to_vec(),
            7 if self.order == Order::Lexical => return long(number),
            // All of some lists, between others.
            8 if self.order == Order::Lexical && (number / 8).is_multiple_of(9) => {
                return long(number);
            }
            _ => {}
        }
        match self.order {
            Order::Pair(_) if self.style == 6 => azekura::order::pair(&first, b"1"),
            _ => first,
        }
    }
}

/// A key that is longer than a node takes; eight of them begin alike, as far as a node looks, and some for longer.
fn long(number: u64) -> Vec<u8> {
    let mut key = format!("{:07}", number / 8).into_bytes();
    key.resize(510, b'k');
    match number % 8 {
        0 => {}
        1 => key.push(b'a'),
        2 => key.resize(510 + 1023, b'a'),
        3 => key.resize(510 + 1024, b'a'),
        4 => key.resize(510 + 1025, b'a'),
        5 => key.resize(510 + 9000, b'a'),
        6 => key.extend([&[b'a'; 1024][..], b"b"].concat()),
        _ => key.extend(Random::new(number).bytes((number % 1500) as usize + 9)),
    }
    key
}

/// A value: mostly short, at times outside of its leaf.
fn value(random: &mut Random, usual: u64) -> Vec<u8> {
    let len = match random.below(40) {
        0 => random.below(20_000),
        1 => 500 + random.below(30),
        _ => random.below(usual),
    };
    if random.one_in(4) {
        // One that does not compress.
        return random.bytes(len as usize);
    }
    let byte = random.below(256) as u8;
    let mut value = vec![byte; len as usize];
    for (at, stamp) in random.bytes(8).into_iter().enumerate() {
        if let Some(byte) = value.get_mut(at) {
            *byte = stamp;
        }
    }
    value
}

/// Both ends of a range of keys.
type Ends = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Two ends in order, at keys that may be absent, or none.
fn draw_ends(
    random: &mut Random,
    order: Order,
    mut key: impl FnMut(&mut Random) -> Vec<u8>,
) -> Ends {
    let (mut first, mut last) = (key(random), key(random));
    if order.compare(&first, &last).is_gt() {
        std::mem::swap(&mut first, &mut last);
    }
    let end = |random: &mut Random, key| match random.below(9) {
        0 => Bound::Unbounded,
        1..5 => Bound::Included(key),
        _ => Bound::Excluded(key),
    };
    (end(random, first), end(random, last))
}

/// Whether a key is in a range.
fn is_in(order: Order, (from, to): &Ends, key: &[u8]) -> bool {
    let is_from = match from {
        Bound::Unbounded => true,
        Bound::Included(from) => order.compare(key, from).is_ge(),
        Bound::Excluded(from) => order.compare(key, from).is_gt(),
    };
    is_from
        && match to {
            Bound::Unbounded => true,
            Bound::Included(to) => order.compare(key, to).is_le(),
            Bound::Excluded(to) => order.compare(key, to).is_lt(),
        }
}
