//! The damage suite on a toy file, sound and with one bug each.
//!
//! The toy: frames of checksum (4 bytes), key length, value length (1 byte each), key and value,
//! the last frame of a key counting, and a trailer with the number of frames and its checksum. Each
//! frame's checksum begins with its offset, so that a misplaced frame does not pass.

use super::*;
use crate::error::Kind;

/// What the toy's reader leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaves {
    Nothing,
    Checksums,
    Places,
    Trailer,
    Bounds,
    Progress,
    SkipsTheDamaged,
}

fn checksum(start: u64, bytes: &[u8]) -> [u8; 4] {
    let hash = bytes.iter().fold(start ^ 0xcbf29ce484222325, |hash, byte| {
        (hash ^ u64::from(*byte))
            .wrapping_mul(0x100000001b3)
            .rotate_left(29)
    });
    (hash as u32).to_le_bytes()
}

fn write(records: &[(Bytes, Bytes)]) -> Bytes {
    let mut file = Vec::new();
    for (key, value) in records {
        let body = [&[key.len() as u8, value.len() as u8], &key[..], &value[..]].concat();
        file.extend(checksum(file.len() as u64, &body));
        file.extend(body);
    }
    let count = (records.len() as u32).to_le_bytes();
    file.extend(checksum(u64::MAX, &count));
    file.extend(count);
    file
}

fn read(file: &[u8], leaves: Leaves) -> Result<BTreeMap<Bytes, Bytes>> {
    let damaged = || Error::new(Kind::Corrupted, "toy file");
    let (frames, trailer) = file
        .split_at_checked(file.len().wrapping_sub(8))
        .ok_or_else(damaged)?;
    if leaves != Leaves::Trailer && trailer[..4] != checksum(u64::MAX, &trailer[4..]) {
        return Err(damaged());
    }
    let mut count = u32::from_le_bytes(trailer[4..].try_into().unwrap());
    let (mut records, mut at) = (BTreeMap::new(), 0);
    while at < frames.len() {
        let head = frames.get(at..at + 6).ok_or_else(damaged)?;
        let (key_len, value_len) = (usize::from(head[4]), usize::from(head[5]));
        let end = at + 6 + key_len + value_len;
        if leaves == Leaves::Progress && key_len == 0 {
            continue;
        }
        let body = match leaves {
            Leaves::Bounds => &frames[at + 4..end],
            _ => frames.get(at + 4..end).ok_or_else(damaged)?,
        };
        let is_sound = match leaves {
            Leaves::Checksums | Leaves::Bounds | Leaves::Progress => true,
            Leaves::Places => {
                (0..frames.len() as u64).any(|place| head[..4] == checksum(place, body))
            }
            _ => head[..4] == checksum(at as u64, body),
        };
        if is_sound {
            records.insert(body[2..2 + key_len].to_vec(), body[2 + key_len..].to_vec());
        } else if leaves != Leaves::SkipsTheDamaged {
            return Err(damaged());
        }
        count = count.wrapping_sub(1);
        at = end;
    }
    if leaves != Leaves::Trailer && count != 0 {
        return Err(damaged());
    }
    Ok(records)
}

/// Frames of equal length on sector bounds, so that swapped sectors are swapped frames.
fn image() -> Image {
    let record = |number: u8, generation: u8| {
        let key = format!("key-{:03}", number % 40).into_bytes();
        let len = 64 - 6 - key.len();
        (key, vec![number ^ generation; len])
    };
    let older: Vec<_> = (0..60).map(|number| record(number, 0)).collect();
    let newer: Vec<_> = older
        .iter()
        .cloned()
        .chain((60..90).map(|number| record(number, 7)))
        .collect();
    let mut image = Image {
        bytes: write(&newer),
        older: write(&older),
        ..Image::default()
    };
    for (key, value) in &newer {
        image
            .once
            .entry(key.clone())
            .or_default()
            .insert(value.clone());
        image.now.insert(key.clone(), Some(value.clone()));
    }
    image.now.insert(b"absent".to_vec(), None);
    image
}

/// What a reader of `records` answers.
fn verdict(image: &Image, records: BTreeMap<Bytes, Bytes>) -> Verdict {
    let answer = |key: &Bytes| (key.clone(), Ok(records.get(key).cloned()));
    Verdict::Read {
        answers: image.now.keys().map(answer).collect(),
        scan: (records.into_iter().collect(), None),
    }
}

fn run(leaves: Leaves, effort: &Effort) -> std::result::Result<Counts, Failure> {
    let verify = move |image: &Image, bytes: Bytes| match read(&bytes, leaves) {
        Err(error) => Verdict::Refused(error),
        Ok(records) => verdict(image, records),
    };
    fuzz(vec![image()], Arc::new(verify), effort)
}

/// The toy cannot tell a file, or a sector of one, from an older one; where it ends it can tell.
const EFFORT: Effort = Effort {
    cases: 10_000,
    older_is_right: |mutation| matches!(mutation, Mutation::Stale(_) | Mutation::Splice(_)),
    ..Effort::QUICK
};

#[test]
fn a_toy_with_checksums_stands_every_damage() {
    let counts = run(Leaves::Nothing, &EFFORT).unwrap();
    assert_eq!(counts.cases, 10_000);
    assert_eq!(counts.refused + counts.partly + counts.unharmed, 10_000);
    assert!(counts.refused > 5000, "{counts}");
    assert_eq!(
        counts,
        run(Leaves::Nothing, &EFFORT).unwrap(),
        "a seed decides everything"
    );
}

#[test]
fn each_missing_defence_of_the_toy_is_caught() {
    let what = |leaves| {
        let effort = Effort {
            deadline: Duration::from_secs(1),
            ..EFFORT
        };
        run(leaves, &effort)
            .expect_err(&format!("{leaves:?} was not caught"))
            .what
    };
    assert!(what(Leaves::Checksums).contains("gave"));
    assert!(what(Leaves::Places).contains("gave"));
    assert!(what(Leaves::Trailer).contains("gave"));
    assert!(what(Leaves::SkipsTheDamaged).contains("expected Some"));
    assert!(what(Leaves::Bounds).len() > 10);
    assert!(what(Leaves::Progress).len() > 10);
}

#[test]
fn panics_and_hangs_are_failures() {
    let sound = image().bytes;
    let fuzz_with = |damaged: fn() -> Verdict| {
        let sound = sound.clone();
        let verify = move |image: &Image, bytes: Bytes| {
            if bytes != sound {
                return damaged();
            }
            let records = image.now.iter();
            let there = records.filter_map(|(key, value)| Some((key.clone(), value.clone()?)));
            verdict(image, there.collect())
        };
        let effort = Effort {
            deadline: Duration::from_millis(100),
            ..EFFORT
        };
        fuzz(vec![image()], Arc::new(verify), &effort)
            .unwrap_err()
            .what
    };
    let panic = fuzz_with(|| std::panic::resume_unwind(Box::new("out of bounds")));
    assert_eq!(panic, "a panic: out of bounds");
    let hang = fuzz_with(|| {
        loop {
            std::thread::park();
        }
    });
    assert!(hang.contains("it hangs"), "{hang}");
}

#[test]
fn an_older_value_is_right_only_where_it_is_allowed() {
    let (key, old, new) = (b"k".to_vec(), b"old".to_vec(), b"new".to_vec());
    let mut image = Image::default();
    image.now.insert(key.clone(), Some(new));
    image.once.insert(key.clone(), [old.clone()].into());
    let is_right = |value: Option<Bytes>, older| {
        let records = value.map(|value| (key.clone(), value)).into_iter();
        let verdict = verdict(&image, records.collect());
        judge(&image, &verdict, older, &mut Counts::default()).is_ok()
    };
    assert!(is_right(Some(old.clone()), true));
    assert!(!is_right(Some(old), false));
    assert!(is_right(None, true));
    assert!(!is_right(None, false), "a wrong absence is wrong data");
    assert!(!is_right(Some(b"never".to_vec()), true));
}

#[test]
fn all_kinds_of_damage_are_done_and_change_the_file() {
    let image = image();
    let mut kinds = BTreeSet::new();
    let mut changed = 0;
    for case in 0..500 {
        let mutation = Mutation::choose(&image, &mut Random::new(case));
        changed += u32::from(mutation.apply(&image) != image.bytes);
        kinds.insert(format!("{mutation:?}").split('(').next().map(str::to_owned));
    }
    assert_eq!(kinds.len(), 10, "{kinds:?}");
    assert!(changed > 400, "{changed}");
}
