//! Damaged files: bits flipped, sectors lost or swapped, ends cut, generations mixed.
//!
//! [`fuzz`] damages images of files, one seeded [`Mutation`] a case, and hands each to a verifier,
//! which opens it and states what it read. Right is the value a key has, or an error that states that
//! something is wrong. Everything else is a [`Failure`]: a wrong value, a record not found that was
//! there, one that never was, a panic, a hang.
//!
//! An [`Image`] knows each key's values over time. Where a mutation can restore an earlier state (a
//! splice of two generations, a cut end) the caller may allow an older value: one the key once had,
//! or its absence.
//!
//! It knows bytes and answers, and no format: checksums are not corrected after the damage.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use super::conformance::message;
use super::op::scanned;
use super::random::Random;
use crate::engine::Reader;
use crate::error::{Error, Result};
use crate::verbs::Verbs;

type Bytes = Vec<u8>;

/// A sound file, and what it holds.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// The file.
    pub bytes: Bytes,
    /// The same file at an earlier time, to mix with; may be empty.
    pub older: Bytes,
    /// The value of each key now; a key that is absent and should be asked for has `None`.
    pub now: BTreeMap<Bytes, Option<Bytes>>,
    /// Values that keys had before.
    pub once: BTreeMap<Bytes, BTreeSet<Bytes>>,
}

/// What was done to an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Bits, by their number in the file, were turned.
    Flip(Vec<u64>),
    /// The byte at this offset was given this value.
    Byte(usize, u8),
    /// The little-endian integer at this offset was overwritten with these bytes.
    Integer(usize, Bytes),
    /// This sector reads as zeros.
    Zero(Sector),
    /// The second sector has the bytes of the first: a misdirected write.
    Copy(Sector, Sector),
    /// Two sectors have each other's bytes.
    Swap(Sector, Sector),
    /// The file ends here.
    Truncate(usize),
    /// The file continues with these bytes.
    Extend(Bytes),
    /// This sector is that of the older generation: a write that was lost.
    Stale(Sector),
    /// From here on it is the older generation.
    Splice(usize),
}

/// A piece of a file: offset and length.
pub type Sector = (usize, usize);

impl Mutation {
    /// A mutation of `image`, chosen by `random`. It may leave the bytes as they are.
    pub fn choose(image: &Image, random: &mut Random) -> Self {
        let len = image.bytes.len();
        if len == 0 {
            return Self::Extend(random.bytes(512));
        }
        let at = random.index(len);
        match random.below(14) {
            0..=2 => {
                let count = 1 + random.below(8);
                Self::Flip((0..count).map(|_| random.below(8 * len as u64)).collect())
            }
            3 | 4 => Self::Byte(at, *random.choose(&[0, 1, 0xff])),
            5..=7 => Self::Integer(at, integer(&image.bytes, random)),
            8 => Self::Zero(sector(len, random)),
            9 => Self::Copy(sector(len, random), sector(len, random)),
            10 => Self::Swap(sector(len, random), sector(len, random)),
            11 => Self::Truncate(at),
            12 => {
                let more = 1 + random.index(8192);
                Self::Extend(if random.one_in(2) {
                    vec![0; more]
                } else {
                    random.bytes(more)
                })
            }
            _ if image.older.is_empty() => Self::Byte(at, random.below(256) as u8),
            _ if random.one_in(2) => Self::Stale(sector(len, random)),
            _ => Self::Splice(at),
        }
    }

    /// The damaged bytes.
    pub fn apply(&self, image: &Image) -> Bytes {
        let mut bytes = image.bytes.clone();
        let mut overwrite = |offset: usize, new: &[u8]| {
            let Some(rest) = bytes.get_mut(offset..) else {
                return;
            };
            let len = rest.len().min(new.len());
            rest[..len].copy_from_slice(&new[..len]);
        };
        let old = |(offset, len): Sector| {
            let end = (offset + len).min(image.bytes.len());
            image.bytes.get(offset..end).unwrap_or_default()
        };
        match self {
            Self::Flip(bits) => {
                for bit in bits {
                    bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
                }
            }
            Self::Byte(offset, value) => overwrite(*offset, &[*value]),
            Self::Integer(offset, value) => overwrite(*offset, value),
            Self::Zero((offset, len)) => overwrite(*offset, &vec![0; *len]),
            Self::Copy(from, to) => overwrite(to.0, old(*from)),
            Self::Swap(one, other) => {
                overwrite(other.0, old(*one));
                overwrite(one.0, old(*other));
            }
            Self::Truncate(len) => bytes.truncate(*len),
            Self::Extend(more) => bytes.extend_from_slice(more),
            Self::Stale((offset, len)) => {
                let end = (offset + len).min(image.older.len());
                overwrite(*offset, image.older.get(*offset..end).unwrap_or_default());
            }
            Self::Splice(offset) => {
                bytes.truncate(*offset);
                bytes.extend_from_slice(image.older.get(*offset..).unwrap_or_default());
            }
        }
        bytes
    }

    /// Whether what remains may be a state the file once had: an end is missing or old.
    pub fn can_restore(&self) -> bool {
        matches!(self, Self::Truncate(_) | Self::Stale(_) | Self::Splice(_))
    }
}

/// Where a device would begin a sector of 512 B or 4 KiB, and how much of it there is.
fn sector(len: usize, random: &mut Random) -> Sector {
    let size = *random.choose(&[512, 4096]);
    let offset = random.index(len.div_ceil(size)) * size;
    (offset, size.min(len - offset))
}

/// Four or eight bytes: a boundary, a small step, or a word from elsewhere in the file.
fn integer(bytes: &[u8], random: &mut Random) -> Bytes {
    let width = *random.choose(&[4, 8]);
    let value = match random.below(4) {
        0 => *random.choose(&[
            0,
            1,
            u64::MAX,
            1 << 31,
            1 << 63,
            i32::MAX as u64,
            u64::MAX >> 1,
        ]),
        1 => (bytes.len() as u64)
            .wrapping_add(random.below(17))
            .wrapping_sub(8),
        2 => random.below(bytes.len() as u64),
        _ => {
            let from = random.index(bytes.len());
            let word = bytes[from..].iter().take(width);
            return word.copied().collect();
        }
    };
    value.to_le_bytes()[..width].to_vec()
}

/// What a verifier read from a damaged file.
#[derive(Debug)]
pub enum Verdict {
    /// It could not be opened, and reported why.
    Refused(Error),
    /// It was opened, and read.
    Read {
        /// Each key asked for, and the answer.
        answers: Vec<(Bytes, Result<Option<Bytes>>)>,
        /// What a scan showed, and the error it ended with.
        scan: (Vec<(Bytes, Bytes)>, Option<Error>),
    },
}

/// Reads each of `keys` and scans: what a verifier does once the file is open.
pub fn read_all<'k, R: Reader + ?Sized>(
    reader: &R,
    keys: impl IntoIterator<Item = &'k Bytes>,
) -> Verdict {
    let answers = keys
        .into_iter()
        .map(|key| (key.clone(), reader.get(key)))
        .collect();
    let (shown, end) = scanned(reader, None, usize::MAX);
    Verdict::Read {
        answers,
        scan: (shown, end.err()),
    }
}

/// How much is tried, and what is allowed.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Damaged files; the images take turns.
    pub cases: u64,
    /// Decides every choice.
    pub seed: u64,
    /// After which mutations a value the key once had, or its absence, is right too.
    pub older_is_right: fn(&Mutation) -> bool,
    /// How long one case may take until it counts as a hang.
    pub deadline: Duration,
}

impl Effort {
    /// 2000 cases; older values are never right.
    pub const QUICK: Self = Self {
        cases: 2000,
        seed: 1,
        older_is_right: |_| false,
        deadline: Duration::from_secs(10),
    };
}

/// How the cases ended; `Display` is one line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Damaged files.
    pub cases: u64,
    /// Not opened.
    pub refused: u64,
    /// Opened, with an error for some record or for the scan.
    pub partly: u64,
    /// Opened, with nothing to be seen: the damage hit nothing that was asked for.
    pub unharmed: u64,
    /// Answers that were older than they might be, and allowed.
    pub older: u64,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} damaged files: {} refused, {} read in part, {} unharmed, {} older values",
            self.cases, self.refused, self.partly, self.unharmed, self.older
        )
    }
}

/// A case that went wrong. The seed and the number repeat it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which case.
    pub case: u64,
    /// Which image.
    pub image: usize,
    /// What was done to it.
    pub mutation: Mutation,
    /// What was wrong.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (case, image, mutation) = (self.case, self.image, &self.mutation);
        write!(f, "case {case}, image {image}, {mutation:?}: {}", self.what)
    }
}

/// Opens a damaged file and reads the keys of the image it was made from.
pub type Verify = dyn Fn(&Image, Bytes) -> Verdict + Send + Sync;

/// Damages `images` and judges what `verify` reads from them; the first case that is wrong ends it.
///
/// Panics if there is no image, or if one is not read rightly before it is damaged.
pub fn fuzz(
    images: Vec<Image>,
    verify: Arc<Verify>,
    effort: &Effort,
) -> std::result::Result<Counts, Failure> {
    assert!(!images.is_empty(), "there is nothing to damage");
    let mut counts = Counts::default();
    for image in &images {
        let verdict = verify(image, image.bytes.clone());
        let unharmed = judge(image, &verdict, false, &mut counts);
        assert_eq!(unharmed, Ok(()), "a sound image must be read rightly");
    }
    assert_eq!(
        counts.unharmed,
        images.len() as u64,
        "a sound image must be read without errors"
    );
    counts = Counts::default();
    let images = Arc::new(images);
    let (cases, verdicts) = worker(Arc::clone(&images), verify);
    for case in 0..effort.cases {
        let index = (case % images.len() as u64) as usize;
        let image = &images[index];
        let mut random = Random::new(effort.seed.wrapping_mul(0x9e3779b97f4a7c15) ^ case);
        let mutation = Mutation::choose(image, &mut random);
        cases
            .send((index, mutation.apply(image)))
            .expect("the worker outlives its cases");
        let older = (effort.older_is_right)(&mutation);
        let judged = match verdicts.recv_timeout(effort.deadline) {
            Err(_) => Err(format!("it hangs: no verdict after {:?}", effort.deadline)),
            Ok(Err(panic)) => Err(format!("a panic: {panic}")),
            Ok(Ok(verdict)) => judge(image, &verdict, older, &mut counts),
        };
        counts.cases += 1;
        judged.map_err(|what| Failure {
            case,
            image: index,
            mutation,
            what,
        })?;
    }
    Ok(counts)
}

type Cases = mpsc::Sender<(usize, Bytes)>;
type Verdicts = mpsc::Receiver<std::result::Result<Verdict, String>>;

/// A thread that verifies, so that a hang is seen; it ends with its cases.
fn worker(images: Arc<Vec<Image>>, verify: Arc<Verify>) -> (Cases, Verdicts) {
    let (cases, receiver) = mpsc::channel::<(usize, Bytes)>();
    let (sender, verdicts) = mpsc::channel();
    std::thread::spawn(move || {
        for (index, bytes) in receiver {
            let verdict = catch_unwind(AssertUnwindSafe(|| verify(&images[index], bytes)));
            let verdict = verdict.map_err(|panic| message(&*panic).to_owned());
            if sender.send(verdict).is_err() {
                break;
            }
        }
    });
    (cases, verdicts)
}

/// Whether all that was read is right, and how the case is counted.
fn judge(
    image: &Image,
    verdict: &Verdict,
    older_is_right: bool,
    counts: &mut Counts,
) -> std::result::Result<(), String> {
    let Verdict::Read {
        answers,
        scan: (shown, error),
    } = verdict
    else {
        counts.refused += 1;
        return Ok(());
    };
    let asked: BTreeSet<&Bytes> = answers.iter().map(|(key, _)| key).collect();
    if let Some(key) = image.now.keys().find(|key| !asked.contains(key)) {
        return Err(format!("the verifier did not ask for {key:?}"));
    }
    let mut older = 0;
    let mut right = |key: &Bytes, found: Option<&Bytes>| {
        let now = image.now.get(key).and_then(Option::as_ref);
        if found == now {
            return Ok(());
        }
        let once = image.once.get(key);
        let once = |value| once.is_some_and(|values| values.contains(value));
        if older_is_right && found.is_none_or(once) {
            older += 1;
            return Ok(());
        }
        Err(format!(
            "{key:?} gave {found:?}, expected {now:?} or an error"
        ))
    };
    let mut failed = error.is_some();
    for (key, answer) in answers {
        match answer {
            Ok(found) => right(key, found.as_ref())?,
            Err(_) => failed = true,
        }
    }
    let mut keys = BTreeSet::new();
    for (key, value) in shown {
        right(key, Some(value))?;
        if !keys.insert(key) {
            return Err(format!("a scan showed {key:?} twice"));
        }
    }
    // A scan that ends without an error states that there is no more.
    for key in image
        .now
        .keys()
        .filter(|key| error.is_none() && !keys.contains(*key))
    {
        right(key, None).map_err(|what| format!("a scan left out a record: {what}"))?;
    }
    counts.older += older;
    if failed {
        counts.partly += 1;
    } else {
        counts.unharmed += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
