//! What stands where in a sound file, and so which keys a range of it may cost that can no longer be read.
//!
//! The table of `record/hash/recover.rs`, said in keys:
//!
//! | what the range holds | what it may cost |
//! |---|---|
//! | a frame | its record, if it is the newest of its key; a record that was removed after the checkpoint, if it was that then |
//! | the image of a part of the index | the keys of the part |
//! | a frame after the checkpoint, or where the log continues if it is not closed, or the frame right before that | all keys but those of records that stand after the first frame that can be read after it, and what a *clear* came after |
//! | the header of a segment after the checkpoint | nothing; all keys if a recovery came since, or the header before it is lost, too: then it is unknown which segment follows |
//! | a piece of the root | of the parts that the pieces before it do not state, keys that were last written before what is consecutive history |
//! | the rest | nothing |
//!
//! It reads the file before the damage, by what the library offers for that, and asks the damaged one only for its
//! superblock and the first pieces of its root.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use azekura::format::frame::FrameKind;
use azekura::format::superblock::{SIZE, Superblock};
use azekura::index::hash::{Hash, PARTITIONS};
use azekura::kernel::Payload;
use azekura::log::layout::{FIRST_FRAME, Link};
use azekura::log::manifest::FIRST_SEQUENCE;
use azekura::log::{LogPosition, Segment, Use, root};
use azekura::record::hash::HashDb;
use azekura::record::hash::layout;
use azekura::record::hash::layout::{ENGINE, ROOT_SEED, Root, Super};
use rapidhash::v3::RapidSecrets;

use super::{Key, Made, storage};

/// All of the log.
const ALL: LogPosition = LogPosition {
    sequence: u64::MAX,
    offset: u32::MAX,
};

/// A frame, or a record of a batch.
struct Stand {
    at: LogPosition,
    bytes: Range<u64>,
    kind: FrameKind,
    key: Key,
    /// Whether it is a frame that stands by itself, so that reading can continue with it.
    is_top: bool,
}

/// See the module's text.
pub(super) struct Stands<'m> {
    made: &'m Made,
    db: HashDb,
    /// In the order of the log.
    frames: Vec<Stand>,
    /// In the order of the log.
    segments: Vec<Segment>,
}

/// What a range may cost.
#[derive(Debug)]
pub(super) struct May {
    pub(super) fail: BTreeSet<Key>,
    /// Whether writes may be refused.
    pub(super) be_read_only: bool,
}

fn meet(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

impl<'m> Stands<'m> {
    pub(super) fn of(made: &'m Made) -> Self {
        let db = made.open(&made.bytes, None).expect("a sound file opens");
        let log = db.log();
        let size = made.bytes.len() as u64;
        let mut segments = log.segments().in_use(Use::Log);
        // Without those that were opened just now.
        segments.retain(|of| {
            let at = log.geometry().offset_of(of.index) as usize;
            (at as u64) < size && made.bytes[at..].starts_with(b"azsg")
        });
        segments.sort_by_key(|of| of.sequence);
        let mut frames = Vec::new();
        for of in &segments {
            let from = log.geometry().offset_of(of.index);
            let mut show = |at: u32, frame: &azekura::format::frame::Frame<'_>, is_top| {
                frames.push(Stand {
                    at: LogPosition {
                        sequence: of.sequence,
                        offset: at,
                    },
                    bytes: from + u64::from(at)..from + u64::from(at) + frame.len() as u64,
                    kind: frame.header.kind,
                    key: frame.key.to_vec(),
                    is_top,
                });
            };
            let stop = log.walk(of.index, FIRST_FRAME, &mut |at, frame| {
                show(at, &frame, true);
                if frame.header.kind == FrameKind::BATCH {
                    log.each_record(of.index, at, frame, &mut |address, inner| {
                        show((address.offset() - from) as u32, &inner, false);
                        Ok(())
                    })?;
                }
                Ok(())
            });
            stop.expect("a walk");
        }
        Self {
            made,
            db,
            frames,
            segments,
        }
    }

    /// The superblock that counts without the range.
    pub(super) fn superblock(&self, range: &Range<u64>) -> Super {
        let mut head = self.made.bytes[..SIZE as usize].to_vec();
        let end = range.end.min(SIZE) as usize;
        if let Some(lost) = head.get_mut(range.start as usize..end) {
            lost.fill(0);
        }
        let found = Superblock::current(&head, &ENGINE).expect("a superblock");
        Super::decode(&found.payload).expect("its payload")
    }

    /// Which keys a range may cost.
    pub(super) fn may_cost(&self, range: (u64, u64)) -> May {
        let range = range.0..range.1;
        let last = self.superblock(&range);
        let start = last.start.position();
        let (doubt, clear) = self.after(&last, &range);
        let newest = self.newest(ALL);
        let before = self.newest(start);
        let pieces = self.root(&last);
        let has_root = !pieces.iter().any(|piece| meet(piece, &range));
        let root = self.root_of(&last, &range);
        let unlisted = (!has_root).then(|| self.history(&last, &range)).flatten();
        let headless = |at: LogPosition| {
            let of = self.segments.iter().find(|of| of.sequence == at.sequence);
            of.is_some_and(|of| meet(&self.header(of), &range))
        };
        let secrets = RapidSecrets::seed(last.hash_seed);
        let hit = |stand: Option<&&Stand>| {
            stand.is_some_and(|of| meet(&of.bytes, &range) || !has_root && headless(of.at))
        };
        let fails = |key: &Key, is_there: bool| {
            let partition = Hash::of_key(key, &secrets).partition();
            let image = root.0.images[partition].extent;
            let is_unlisted = partition >= root.1;
            let newest = newest.get(&key[..]);
            let at = newest.filter(|_| is_there).map(|stand| stand.at);
            let is_before = |doubt: LogPosition| at.is_none_or(|at| at < doubt);
            doubt.is_some_and(is_before)
                || hit(newest.filter(|_| is_there))
                || !clear
                    && (!is_there && hit(before.get(&key[..]))
                        || !is_unlisted && meet(&(image.offset..image.offset + image.len), &range)
                        || is_unlisted && unlisted.is_some_and(is_before))
        };
        let keys = self.made.now.iter();
        let fail = keys.filter(|(key, value)| fails(key, value.is_some()));
        May {
            fail: fail.map(|(key, _)| key.clone()).collect(),
            be_read_only: doubt.is_some() || !has_root,
        }
    }

    /// The newest frame of each record that was there at this moment.
    fn newest(&self, until: LogPosition) -> BTreeMap<&[u8], &Stand> {
        let mut newest: BTreeMap<&[u8], &Stand> = BTreeMap::new();
        for stand in self.frames.iter().filter(|stand| stand.at < until) {
            match stand.kind {
                layout::PUT | layout::INSERT => _ = newest.insert(&stand.key, stand),
                layout::REMOVE => _ = newest.remove(&stand.key[..]),
                layout::CLEAR => newest.clear(),
                _ => {}
            }
        }
        newest
    }

    fn header(&self, of: &Segment) -> Range<u64> {
        let from = self.db.log().geometry().offset_of(of.index);
        from..from + u64::from(FIRST_FRAME)
    }

    /// After the checkpoint: before where the range puts all in doubt, and whether a *clear* that can be read stands there.
    fn after(&self, last: &Super, range: &Range<u64>) -> (Option<LogPosition>, bool) {
        let start = last.start;
        let geometry = self.db.log().geometry();
        let chain = self.segments.iter();
        let chain: Vec<&Segment> = chain.filter(|of| of.sequence >= start.sequence()).collect();
        let mut doubt = None;
        let mut hit_before = false;
        for (n, of) in chain.iter().enumerate() {
            let begin = geometry.offset_of(of.index);
            let size = u64::from(of.units) * geometry.segment_size();
            let from = match start.offset() {
                _ if of.sequence > start.sequence() => u64::from(FIRST_FRAME),
                Some(offset) => u64::from(offset),
                None => size,
            };
            let is_last = n + 1 == chain.len();
            let goes_on_here = is_last && !self.made.is_closed && begin + from == self.made.end;
            let before = self
                .frames
                .iter()
                .find(|stand| stand.is_top && stand.bytes.end == begin + from);
            let from = match before {
                Some(before) if goes_on_here => before.bytes.start - begin,
                _ => from,
            };
            let to = match is_last {
                // The next frame would stand there; a log that ends with a segment has none.
                true if self.made.end > begin => {
                    self.made.end - begin + if self.made.is_closed { 0 } else { 8 }
                }
                true => size,
                false => {
                    let within = |stand: &&Stand| stand.at.sequence == of.sequence;
                    let end = self.frames.iter().rfind(within);
                    // An end frame stands after the last one, if there is room.
                    end.map_or(size, |stand| (stand.bytes.end - begin + 8).min(size))
                }
            };
            if from < to && meet(&(begin + from..begin + to), range) {
                let goes_on = self.frames.iter().find(|stand| {
                    let is_after =
                        stand.at.sequence > of.sequence || stand.bytes.start >= range.end;
                    let starts = stand.at.sequence >= of.sequence && stand.is_top;
                    starts && is_after && !meet(&stand.bytes, range)
                });
                doubt = doubt.max(Some(goes_on.map_or(ALL, |stand| stand.at)));
            }
            let header = meet(&self.header(of), range);
            let is_recovered = u64::from(last.epoch) > of.sequence >> 32;
            let may_go_on = !is_last || !self.made.is_closed;
            if header && (hit_before || is_recovered && may_go_on) {
                doubt = Some(ALL);
            }
            hit_before = header;
        }
        let clears = self.frames.iter().filter(|stand| {
            let is_readable = stand.kind == layout::CLEAR && !meet(&stand.bytes, range);
            is_readable && stand.at >= start.position()
        });
        let clear = clears.map(|stand| stand.at).max();
        // What was before a clear does not matter.
        let doubt = doubt.filter(|doubt| clear.is_none_or(|clear| clear < *doubt));
        (doubt, clear.is_some() && doubt.is_none_or(|of| of < ALL))
    }

    /// Where the pieces of the root stand.
    fn root(&self, last: &Super) -> Vec<Range<u64>> {
        let mut read = last.root.map(root::Read::from).unwrap_or_default();
        let sound = storage(&self.made.bytes, None);
        read.read(sound.as_ref(), last.geometry.salt ^ ROOT_SEED, false)
            .expect("a sound root");
        let pieces = read.pieces.iter();
        pieces
            .map(|piece| piece.offset..piece.offset + piece.len)
            .collect()
    }

    /// What the pieces before the range state, and of how many parts.
    fn root_of(&self, last: &Super, range: &Range<u64>) -> (Root, usize) {
        let mut read = last.root.map(root::Read::from).unwrap_or_default();
        if read.pieces.is_empty() && last.root.is_none() {
            return (Root::new(), PARTITIONS);
        }
        let damaged = storage(&self.made.bytes, Some((range.start, range.end)));
        let _error = read.read(damaged.as_ref(), last.geometry.salt ^ ROOT_SEED, false);
        Root::decode_first(&read.bytes)
    }

    /// Where the history begins that leads without a gap to where replay begins; `None`: with the log, or a *clear*.
    fn history(&self, last: &Super, range: &Range<u64>) -> Option<LogPosition> {
        let log = self.db.log();
        let start = last.start.position();
        let count = (self.made.bytes.len() as u64 - 16384).div_ceil(log.geometry().segment_size());
        let mut headed = BTreeMap::new();
        for index in 0..count as u32 {
            let from = log.geometry().offset_of(index);
            if from + 64 <= self.made.bytes.len() as u64
                && !meet(&(from..from + 64), range)
                && let Some(header) = log.header(index)
                && let Link::To(next) = log.link(index, header.sequence)
                && header.sequence < start.sequence
            {
                headed.insert(next.sequence, (index, header));
            }
        }
        let mut begin = start.sequence;
        let first = self.segments.iter().find(|of| of.sequence == begin);
        if first.is_none_or(|of| meet(&self.header(of), range)) {
            return Some(start);
        }
        let is_hit = |index, units: u32| {
            let from = log.geometry().offset_of(index);
            let to = from + u64::from(units) * log.geometry().segment_size();
            meet(&(from..to), range)
        };
        let clear_of = |sequence| {
            let clears = self.frames.iter().filter(|stand| {
                let is_clear = stand.kind == layout::CLEAR && stand.at < start;
                is_clear && stand.at.sequence == sequence
            });
            clears.map(|stand| stand.at).max()
        };
        if first.is_some_and(|of| is_hit(of.index, of.units)) {
            return Some(LogPosition::past(begin).min(start));
        }
        while begin != FIRST_SEQUENCE {
            if clear_of(begin).is_some() {
                return None;
            }
            match headed.get(&begin) {
                Some((index, header)) if is_hit(*index, header.units) => {
                    return Some(LogPosition::past(header.sequence).min(start));
                }
                Some((_, header)) => begin = header.sequence,
                None => {
                    return Some(LogPosition {
                        sequence: begin,
                        offset: 0,
                    });
                }
            }
        }
        None
    }
}
