//! Engines that lie, each in one way: the stress must see every one of them, and pass the engine that does not lie.
//!
//! The lies stand between the stress and a right engine in memory, which plays one that survives: it stays as it is from one
//! round to the next. Kills of real processes are tested with the program.

use std::sync::atomic::{AtomicU64, Ordering};

use super::subject::{Show, Wish};
use super::*;

/// What goes wrong with one call in so many.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Lie {
    None,
    /// A put is acknowledged and not done.
    LostPut,
    /// A removal is acknowledged and not done.
    LostRemoval,
    /// A put stores all but the last byte.
    Torn,
    /// The value before comes back: a put stores another version's bytes.
    Stale,
    /// A batch stores its first half.
    HalfBatch,
    /// A put returns `Full` and happens all the same.
    FullButDone,
    /// A removal is refused as `Full`.
    FullRemoval,
    /// Clear leaves a part of the keys.
    HalfClear,
    /// A scan leaves a record out.
    ScanSkips,
    /// A scan shows a record twice.
    ScanRepeats,
    /// `count` is one too high.
    Miscounts,
    /// An exchange does not compare.
    BlindExchange,
    /// `put_new` replaces.
    PutNewReplaces,
    /// A read of a present record answers that there is none.
    Absent,
}

struct Liar {
    right: OfRecords<StdHashDb>,
    lie: Lie,
    calls: AtomicU64,
}

impl Liar {
    fn new(lie: Lie) -> Self {
        let (right, calls) = (OfRecords(StdHashDb::new()), AtomicU64::new(0));
        Self { right, lie, calls }
    }

    fn lies(&self, lie: Lie) -> bool {
        lie == self.lie && self.calls.fetch_add(1, Ordering::Relaxed) % 8 == 7
    }
}

fn full() -> Error {
    Error::new(Kind::Full, "a lie")
}

impl Subject for Liar {
    fn open(_: &Shape, _: &Opening, _: &Path) -> Result<Self> {
        Ok(Self::new(Lie::None))
    }
    fn close(self) -> Result<()> {
        Ok(())
    }
    fn read(&self, key: u64, way: u64, visit: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        if self.lies(Lie::Absent) {
            visit(None);
            return Ok(());
        }
        self.right.read(key, way, visit)
    }
    fn put(&self, key: u64, value: &[u8], way: u64) -> Result<()> {
        if self.lies(Lie::LostPut) {
            return Ok(());
        }
        if self.lies(Lie::Torn) {
            return self
                .right
                .put(key, &value[..value.len().saturating_sub(1)], way);
        }
        if self.lies(Lie::Stale) {
            let mut before = None;
            self.right
                .read(key, 0, &mut |value| before = value.map(<[u8]>::to_vec))?;
            return self.right.put(key, before.as_deref().unwrap_or(value), way);
        }
        self.right.put(key, value, way)?;
        if self.lies(Lie::FullButDone) {
            Err(full())
        } else {
            Ok(())
        }
    }
    fn put_new(&self, key: u64, value: &[u8]) -> Result<bool> {
        if self.lies(Lie::PutNewReplaces) {
            return self.right.put(key, value, 0).map(|()| true);
        }
        self.right.put_new(key, value)
    }
    fn append(&self, key: u64, suffix: &[u8], way: u64) -> Result<bool> {
        self.right.append(key, suffix, way)
    }
    fn remove(&self, key: u64, way: u64) -> Result<bool> {
        if self.lies(Lie::LostRemoval) {
            let mut found = false;
            self.right
                .read(key, 0, &mut |value| found = value.is_some())?;
            return Ok(found);
        }
        if self.lies(Lie::FullRemoval) {
            return Err(full());
        }
        self.right.remove(key, way)
    }
    fn exchange(&self, key: u64, expected: &[u8], desired: Option<&[u8]>) -> Result<bool> {
        if self.lie == Lie::BlindExchange {
            return match desired {
                Some(value) => self.right.put(key, value, 0).map(|()| true),
                None => self.right.remove(key, 0).map(|_| true),
            };
        }
        self.right.exchange(key, expected, desired)
    }
    fn batch(&self, wishes: &[Wish]) -> Result<()> {
        let len = if self.lies(Lie::HalfBatch) {
            wishes.len() / 2
        } else {
            wishes.len()
        };
        self.right.batch(&wishes[..len])
    }
    fn many(&self, wishes: &[Wish]) -> Result<()> {
        self.right.many(wishes)
    }
    fn sweep(&self, range: Option<(u64, u64)>) -> Result<()> {
        if self.lie == Lie::HalfClear {
            return (0..100)
                .step_by(2)
                .try_for_each(|key| self.right.remove(key, 0).map(|_| ()));
        }
        self.right.sweep(range)
    }
    fn view(&self, chore: Chore, scratch: &Path, show: Show<'_>) -> Result<()> {
        let mut count = 0;
        self.right.view(chore, scratch, &mut |key, value| {
            count += 1;
            let times = match self.lie {
                Lie::ScanSkips if count == 5 => 0,
                Lie::ScanRepeats if count == 5 => 2,
                _ => 1,
            };
            (0..times).try_for_each(|_| show(key, value))
        })
    }
    fn count(&self) -> u64 {
        self.right.count() + u64::from(self.lie == Lie::Miscounts)
    }
}

/// What the flags fix of a store of so many keys.
fn fixed(keys: u64) -> Fixed {
    Fixed {
        keys: Some(keys),
        value_size: Some(60),
        ..Fixed::default()
    }
}

/// Does `act` where `subject` and an empty ledger are.
fn on_site(
    subject: &Liar,
    shape: &Shape,
    opening: &Opening,
    act: impl FnOnce(&Site<'_, Liar>) -> Result<()>,
) -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger");
    Ledger::create(&path, shape.population)?;
    act(&Site {
        subject,
        ledger: &Ledger::open(&path, shape.population, Access::Write)?,
        shape,
        opening,
        folder: folder.path(),
    })
}

/// Works on a store with `lie`, then verifies it; keys of `shape` by the seed.
fn try_lie(lie: Lie, seed: u64) -> Result<()> {
    let fixed = fixed(200);
    let shape = Shape::draw(seed, 0, 3, false, &fixed);
    let opening = Opening::draw(seed, 0, &fixed);
    on_site(&Liar::new(lie), &shape, &opening, |site| {
        site.work(seed, Duration::from_millis(400))?;
        site.verify()
    })
}

#[test]
fn a_right_engine_passes_and_every_lie_is_caught() {
    for seed in 0..3 {
        try_lie(Lie::None, seed).unwrap();
    }
    for &lie in Lie::value_variants()
        .iter()
        .filter(|lie| **lie != Lie::None)
    {
        // Where clears are seldom or sizes small, one run may not meet a lie.
        let seen = (0..5).find_map(|seed| try_lie(lie, seed).err());
        let error = seen.unwrap_or_else(|| panic!("{lie:?} was not seen"));
        assert_eq!(error.kind(), Kind::Corrupted, "{lie:?}: {error}");
    }
}

/// A store as a killed process leaves it: five keys put twice, a batch of the last two begun and not acknowledged. `left`: which
/// version of each is there. `is_equal`: in the batch, the first key's value is the one it had before.
fn killed(left: [Option<u32>; 5], is_equal: bool) -> Result<()> {
    let fixed = fixed(20);
    let mut shape = Shape::draw(1, 0, 1, false, &fixed);
    // No two values of 24 bytes are equal, and all that are empty.
    shape.content.edge_one_in = 1;
    shape.content.edges = if is_equal { vec![0, 24] } else { vec![24] };
    while is_equal
        && ![(3, 2, 0), (3, 3, 0), (4, 2, 24), (4, 3, 24)]
            .into_iter()
            .all(|(key, version, len)| shape.content.len(key, 0, version) == len)
    {
        shape.content.seed += 1;
    }
    let subject = Liar::new(Lie::None);
    on_site(&subject, &shape, &Opening::draw(1, 0, &fixed), |site| {
        let ledger = site.ledger;
        for key in 0..5 {
            for _ in 0..2 {
                let begun = ledger.begin_key(key, 0, ledger.tick(), |version| version);
                ledger.end(begun, ledger.tick());
            }
        }
        let start = ledger.tick();
        for key in 3..5 {
            ledger.begin_key(key, 0, start, |version| version);
        }
        for (key, version) in (0..).zip(left) {
            if let Some(version) = version {
                subject.put(key, &shape.content.value(key, 0, version, version), 0)?;
            }
        }
        site.verify()?;
        // What was found is the truth from here on.
        site.verify()
    })
}

#[test]
fn what_a_kill_may_leave_passes_and_what_it_must_not_is_caught() {
    let old = Some(2);
    for left in [[old; 5], [old, old, old, Some(3), Some(3)]] {
        killed(left, false).unwrap();
    }
    // An empty value was put in place of an empty one: this key does not state whether the batch happened.
    for last in [old, Some(3)] {
        killed([old, old, old, old, last], true).unwrap();
    }
    let left = |key: usize, version| {
        let mut left = [old; 5];
        left[key] = version;
        left
    };
    for (left, what) in [
        (left(1, Some(1)), "an acknowledged change came back"),
        (left(1, None), "an acknowledged record is gone"),
        (left(2, Some(3)), "a change that was never begun"),
        (left(3, Some(3)), "half a batch"),
    ] {
        let error = killed(left, false).expect_err(what);
        assert_eq!(error.kind(), Kind::Corrupted, "{what}: {error}");
    }
}
