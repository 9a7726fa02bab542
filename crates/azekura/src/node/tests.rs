//! Nodes against a sorted list, in every order and several sizes: insertion, replacement, removal.
//! Division and joining keep every entry; and reading comes to an end whatever bytes the memory has,
//! as a reader may find it concurrently with a writer.

use std::sync::atomic::Ordering::Relaxed;

use super::*;
use crate::testkit::Random;

fn words(count: usize) -> Vec<AtomicU64> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

/// The entries, by every way to look at them.
fn entries(node: Node<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut key = Key::default();
    (0..node.count())
        .map(|at| {
            node.key(at, &mut key);
            assert_eq!(node.find(key.bytes()), (at, true));
            let value = match node.value(at) {
                Found::Inside(len, offset) => {
                    let mut value = vec![0; len];
                    node.copy(offset, &mut value);
                    value
                }
                Found::Outside(word) => vec![word as u8; 600],
            };
            (key.bytes().to_vec(), value)
        })
        .collect()
}

fn value(bytes: &[u8]) -> Value<'_> {
    match bytes.len() {
        600 => Value::Outside(u64::from(bytes[0]) | 0xabcd_ef00_0000_0000),
        _ => Value::Inside(bytes),
    }
}

#[test]
fn a_node_agrees_with_a_sorted_list_until_it_is_full() {
    let mut random = Random::new(5);
    for order in Order::ALL {
        for size in [510, 1022, 2046] {
            let words = words(size);
            let node = Node::new(&words, order);
            let (lower, upper) = (&b"common 1"[..], &b"common 3"[..]);
            if order == Order::Lexical {
                node.init(0, Some(lower), Some(upper));
            } else {
                node.init(0, None, None);
            }
            let mut list: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
            let mut refused = 0;
            for _ in 0..6000 {
                let mut key = b"common 2".to_vec();
                let len = random.index(7);
                key.extend((0..len).map(|_| b"01\0\xff"[random.index(4)]));
                let (at, is_present) = node.find(&key);
                let place = list.partition_point(|(other, _)| order.compare(other, &key).is_lt());
                let expected = list.get(place).is_some_and(|(other, _)| *other == key);
                assert_eq!((at, is_present), (place, expected));
                if is_present && random.below(3) == 0 {
                    node.remove(at);
                    list.remove(at);
                    continue;
                }
                let len = [0, 1, 8, 13, 100, 510, 600][random.index(7)];
                let bytes = vec![random.below(256) as u8; len];
                let is_done = if is_present {
                    node.replace(at, &key, value(&bytes))
                } else {
                    let fits = node.fits(key.len(), len.min(if len == 600 { 8 } else { 510 }));
                    let is_done = node.insert(at, &key, value(&bytes));
                    assert_eq!(fits, is_done);
                    is_done
                };
                match (is_done, is_present) {
                    (true, true) => list[at].1 = bytes,
                    (true, false) => list.insert(at, (key, bytes)),
                    (false, _) => refused += 1,
                }
                assert_eq!(node.count(), list.len());
            }
            assert!(refused > 0, "it was never full");
            assert_eq!(entries(node), list);
            let bytes: usize = list
                .iter()
                .map(|(_, bytes)| if bytes.len() == 600 { 8 } else { bytes.len() })
                .sum();
            assert!(node.used() <= node.room() && node.used() >= bytes + 8 * list.len());
        }
    }
}

#[test]
fn a_division_and_a_joining_keep_every_entry() {
    let mut random = Random::new(6);
    for order in [Order::Lexical, Order::Decimal] {
        for _ in 0..200 {
            let words = [words(510), words(510)];
            let [node, right] = [&words[0], &words[1]].map(|words| Node::new(words, order));
            node.init(0, None, None);
            loop {
                let key = format!("{:05}", random.below(20_000)).into_bytes();
                let bytes = random.bytes(20);
                let (at, is_present) = node.find(&key);
                if is_present {
                    continue;
                }
                if !node.insert(at, &key, Value::Inside(&bytes)) {
                    break;
                }
            }
            let before = entries(node);
            let at = node.division(random.index(node.count()));
            let mut separator = Key::default();
            node.separator(at, &mut separator);
            let fence = separator.bytes();
            assert!(order.compare(&before[at - 1].0, fence).is_lt());
            assert!(order.compare(&before[at].0, fence).is_ge());
            assert!(fence.len() <= before[at].0.len());
            node.divide(right, at, fence);
            assert_eq!(entries(node), before[..at]);
            assert_eq!(entries(right), before[at..]);
            assert!(!node.covers(fence) && right.covers(fence));
            assert!(
                !node.could_take(right),
                "there was too little room for both"
            );
            while !node.could_take(right) {
                node.remove(random.index(node.count()));
                right.remove(random.index(right.count()));
            }
            let both = [entries(node), entries(right)].concat();
            node.take(right);
            assert_eq!(entries(node), both);
            assert!(node.covers(b"") && node.covers(b"\xff\xff"));
        }
    }
}

/// Runs of insertions at any place, next to short keys: what one half loses may be shorter than the fence that it gets.
#[test]
fn a_division_in_a_run_has_room_for_its_fence() {
    let mut random = Random::new(7);
    let mut divided = 0;
    for _ in 0..2000 {
        let order = *random.choose(&[Order::Lexical, Order::CaseFolded, Order::Decimal]);
        let words = [words(510), words(510)];
        let [node, right] = [&words[0], &words[1]].map(|words| Node::new(words, order));
        let fences: Vec<Vec<u8>> = [b'0', b'z']
            .map(|digit| vec![digit; random.below(511) as usize])
            .into();
        let fence = |random: &mut Random, at: usize| random.one_in(2).then(|| fences[at].clone());
        let (lower, upper) = (fence(&mut random, 0), fence(&mut random, 1));
        let level = random.below(2) as u8;
        node.init(level, lower.as_deref(), upper.as_deref());
        let (len, value_len) = (4 + random.below(507) as usize, random.below(511) as usize);
        let value_len = if level > 0 { 4 } else { value_len };
        let key = |n: u64, len: usize| {
            let mut key = format!("{}", 1000 + n).into_bytes();
            key.resize(len.max(key.len()), b'k');
            key
        };
        // Short ones below and above; then a run between them.
        let short = random.below(3);
        for n in (0..short).chain(500..500 + random.below(3)) {
            let key = key(n, 0);
            node.insert(node.find(&key).0, &key, Value::Inside(&[0; 4]));
        }
        let is_rising = random.one_in(2);
        let mut at = 0;
        for n in 100..400 {
            let key = key(if is_rising { n } else { 500 - n }, len);
            at = node.find(&key).0;
            if !node.insert(at, &key, Value::Inside(&vec![1; value_len])) {
                break;
            }
        }
        if node.count() < 2 {
            continue;
        }
        divided += 1;
        let before = entries(node);
        let at = node.division(at);
        let mut separator = Key::default();
        node.separator(at, &mut separator);
        node.divide(right, at, separator.bytes());
        assert_eq!(entries(node), before[..at]);
        assert_eq!(entries(right), before[at..]);
        assert!(node.is_sound() && right.is_sound());
    }
    assert!(divided > 1500, "{divided} divisions");
}

#[test]
fn reading_any_bytes_gives_some_answer() {
    let mut random = Random::new(8);
    let words = words(510);
    for round in 0..3000 {
        for word in &words {
            let bits = random.below(u64::MAX);
            // Now and then a header that is nearly right.
            word.store(bits >> (random.below(4) * 16), Relaxed);
        }
        let order = Order::ALL[round % Order::ALL.len()];
        let node = Node::new(&words, order);
        let mut key = Key::default();
        for sought in [&b""[..], b"a", b"a longer key", &[0xff; 600]] {
            let (at, _) = node.find(sought);
            assert!(at <= node.count());
            let child = node.child_of(sought);
            assert!(child <= node.count());
            let _ = (node.child(child), node.value(at), node.covers(sought));
            node.key(at, &mut key);
            assert!(key.bytes().len() <= KEY_LEN_MAX + 2);
            if let Found::Inside(len, offset) = node.value(at) {
                assert!(len <= VALUE_LEN_MAX);
                let mut into = vec![0; len];
                node.copy(offset, &mut into);
            }
        }
        let _ = (node.child_before(None), node.used(), node.room());
    }
}

/// A fence that a page states without having one, or a longer one than a key, would leave no room for a record.
#[test]
fn lengths_of_fences_that_no_node_has_are_not_sound() {
    let words = words(508);
    let node = Node::new(&words, Order::Lexical);
    node.init(0, Some(b"a"), None);
    assert!(node.is_sound());
    let forge = |lens: [u64; 3], flags: u64| {
        let end = 508 * 8 - lens[1] - lens[2];
        words[0].store(end << 16 | flags << 56, Relaxed);
        words[1].store(lens[0] | lens[1] << 16 | lens[2] << 32, Relaxed);
        node.is_sound()
    };
    assert!(forge([0, 0, 0], 0) && forge([0, 100, 0], HAS_LOWER));
    assert!(!forge([0, 100, 0], 0) && !forge([0, 0, 7], HAS_LOWER));
    assert!(!forge([0, 3900, 0], HAS_LOWER) && !forge([0, 0, 600], HAS_UPPER));
}
