//! What a drive is: its mechanics, its cache and its queue, as numbers, and three named sets of them.
//!
//! Places are bytes from the outer edge. A seek takes a time that grows with the square root of the distance up
//! to a third of the stroke and linearly after (Ruemmler and Wilkes, "An introduction to disk drive modeling",
//! 1994); the distance is taken as the share of the capacity that lies between. The angle of a place is how long
//! after the start of its track it passes the head. Rates are sustained ones, so that the skew between tracks is
//! in them. All is integers, so that every machine computes the same.
//!
//! It knows what a movement costs, and neither when nor in which order they happen.

const MIB: u64 = 1 << 20;
const SECOND_NS: u64 = 1_000_000_000;

/// How long the arm takes, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seek {
    /// To the next track.
    pub track_ns: u64,
    /// The mean over two random places of the whole drive, as data sheets state it.
    pub average_ns: u64,
    /// From edge to edge.
    pub full_ns: u64,
}

impl Seek {
    /// The time for a third of the stroke, where the square root ends. With it, the mean over the density
    /// `2 (1 - u)` of distances of random places is `average_ns`: `27/135 track + 88/135 knee + 20/135 full`.
    fn knee_ns(self) -> u64 {
        (self.average_ns * 135).saturating_sub(self.track_ns * 27 + self.full_ns * 20) / 88
    }

    /// The time for a distance of `distance` of `stroke`, which are in the same unit; 0 for 0.
    fn time_ns(self, distance: u64, stroke: u64) -> u64 {
        if distance == 0 {
            return 0;
        }
        let (distance, stroke) = (u128::from(distance.min(stroke)), u128::from(stroke.max(1)));
        let (near, far) = (self.knee_ns(), self.full_ns);
        let time = if distance * 3 <= stroke {
            let root = ((distance * 3) << 40).div_euclid(stroke).isqrt();
            u128::from(self.track_ns)
                + ((u128::from(near.saturating_sub(self.track_ns)) * root) >> 20)
        } else {
            let beyond =
                u128::from(far.saturating_sub(near)) * (distance * 3 - stroke) / (stroke * 2);
            u128::from(near) + beyond
        };
        time as u64
    }
}

/// What a drive promises for what it has taken and not yet put on its platters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteCache {
    /// Most bytes it holds; 0 is a drive that answers when the platters have it. A longer write goes past it.
    pub bytes: u64,
    /// Loss of power loses it: a flush waits until it is empty. Otherwise a flush costs `flush_ns` and no more.
    pub volatile: bool,
}

/// A drive. [`Parameters::published`], [`Parameters::nominal_15k`] and [`Parameters::sata_7200`] are some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Bytes.
    pub capacity: u64,
    /// Accesses are widened to multiples of it.
    pub sector_size: u64,
    /// The arm.
    pub seek: Seek,
    /// Nanoseconds for one turn.
    pub turn_ns: u64,
    /// Bytes a second that pass the head, from the outer zone to the inner; zones are equal shares of the capacity.
    pub zones: Vec<u64>,
    /// How much faster the platters take writes than they give reads, in thousandths: 1000 for one disk.
    pub write_gain: u64,
    /// Bytes a second between host and drive.
    pub bus_rate: u64,
    /// Bytes a drive reads on, after a read, while it has nothing else to do.
    pub ahead_bytes: u64,
    /// The write cache.
    pub cache: WriteCache,
    /// Requests the drive sees at once; later ones wait in order of arrival.
    pub depth: usize,
    /// A request that waits longer than this is served before any nearer one.
    pub age_max_ns: u64,
    /// What each command costs in addition to all else.
    pub command_ns: u64,
    /// What a flush of an empty or safe cache costs.
    pub flush_ns: u64,
}

impl Parameters {
    /// The disk of the published `CannyLS` benchmark, as its medians show it.
    ///
    /// | fitted to | gives |
    /// |---|---|
    /// | GET medians of 1 and 10 MiB: 9.47 ms + 6.31 ms/MiB | 158.5 MiB/s; at 7,200 rpm half a turn is 4.17 ms, a command 0.04 ms, the tool's polling 0.08 ms, which leaves 5.18 ms of seeks |
    /// | 1.05 TB was used of the 3 TB | seeks stay within a third of the stroke: their mean there is `track + 8/15 (knee - track)`, so `average_ns` is 8.7 ms with 0.7 and 18 ms at the ends |
    /// | PUT (new) of 100 KiB: 249 MiB/s | `write_gain` 1.57: the machine had an array or a controller before its disks |
    /// | PUT (update) of 10 MiB: median 10.54 ms | `bus_rate` 950 MiB/s into the cache |
    /// | DELETE with a sync each: a sector and a flush within 0.17 to 0.2 ms | the cache is not volatile, a flush is 0.11 ms with its command |
    ///
    /// The size of the cache, 1 GiB, is a guess: a usual one. The inner zones were not measured.
    pub fn published() -> Self {
        Self {
            capacity: 3_000_000_000_000,
            sector_size: 512,
            seek: Seek {
                track_ns: 700_000,
                average_ns: 8_690_000,
                full_ns: 18_000_000,
            },
            turn_ns: SECOND_NS * 60 / 7_200,
            zones: {
                let fitted = MIB * 1_000_000 / 6_310;
                let inner = [148, 131, 120, 108, 95].map(|rate| rate * MIB);
                [[fitted; 3].as_slice(), &inner].concat()
            },
            write_gain: 1_571,
            bus_rate: 950 * MIB,
            ahead_bytes: 4 * MIB,
            cache: WriteCache {
                bytes: 1 << 30,
                volatile: false,
            },
            depth: 32,
            age_max_ns: SECOND_NS,
            command_ns: 40_000,
            flush_ns: 70_000,
        }
    }

    /// The disk the published benchmark names, without an array: 15,000 rpm, 5.5 ms for an access (half a turn is
    /// 2.0 ms, seeks 3.45 ms, command 0.05 ms), 200 MiB/s, a volatile cache of 128 MiB and flushes that are obeyed.
    pub fn nominal_15k() -> Self {
        Self {
            capacity: 3_000_000_000_000,
            sector_size: 512,
            seek: Seek {
                track_ns: 250_000,
                average_ns: 3_450_000,
                full_ns: 7_000_000,
            },
            turn_ns: SECOND_NS * 60 / 15_000,
            zones: vec![200 * MIB],
            bus_rate: 550 * MIB,
            cache: WriteCache {
                bytes: 128 * MIB,
                volatile: true,
            },
            command_ns: 50_000,
            ..Self::sata_7200()
        }
    }

    /// A usual disk of 4 TB: 7,200 rpm, average seek 8.5 ms, 200 MiB/s at the outer edge and 95 at the inner, a
    /// volatile cache of 64 MiB and flushes that are obeyed. Classes of data sheets, not one model's.
    pub fn sata_7200() -> Self {
        Self {
            capacity: 4_000_000_000_000,
            sector_size: 4096,
            seek: Seek {
                track_ns: 800_000,
                average_ns: 8_500_000,
                full_ns: 17_500_000,
            },
            turn_ns: SECOND_NS * 60 / 7_200,
            zones: [200, 190, 178, 164, 148, 131, 113, 95]
                .map(|rate| rate * MIB)
                .to_vec(),
            write_gain: 1_000,
            bus_rate: 520 * MIB,
            ahead_bytes: 4 * MIB,
            cache: WriteCache {
                bytes: 64 * MIB,
                volatile: true,
            },
            depth: 32,
            age_max_ns: SECOND_NS / 2,
            command_ns: 100_000,
            flush_ns: 50_000,
        }
    }

    /// The same drive with `bytes` instead: seeks take what the same share of the stroke took, so a small store on it
    /// sees the seeks of a large one. The cache keeps its size.
    #[must_use]
    pub fn with_capacity(mut self, bytes: u64) -> Self {
        self.capacity = bytes;
        self
    }

    /// The same drive with another write cache.
    #[must_use]
    pub fn with_cache(mut self, cache: WriteCache) -> Self {
        self.cache = cache;
        self
    }

    /// How long `bytes` take at `rate` bytes a second.
    pub(super) fn time_at(bytes: u64, rate: u64) -> u64 {
        (u128::from(bytes) * u128::from(SECOND_NS) / u128::from(rate.max(1))) as u64
    }

    /// Zone of a place: where it begins, where the next begins, and its rate.
    fn zone(&self, offset: u64) -> (u64, u64, u64) {
        let count = self.zones.len() as u64;
        let share = (self.capacity / count).max(1);
        let index = (offset / share).min(count - 1);
        let end = if index + 1 == count {
            u64::MAX
        } else {
            (index + 1) * share
        };
        (index * share, end, self.zones[index as usize].max(1))
    }

    /// Which track a place is on, and how long after the track's start it passes the head.
    fn track(&self, offset: u64) -> (u64, u64, u64) {
        let (start, _, rate) = self.zone(offset);
        let len =
            (u128::from(rate) * u128::from(self.turn_ns) / u128::from(SECOND_NS)).max(1) as u64;
        let within = offset - start;
        (start, within / len, Self::time_at(within % len, rate))
    }

    /// How long the platters take to pass `len` bytes from `offset` on.
    pub(super) fn transfer_ns(&self, offset: u64, len: u64, writes: bool) -> u64 {
        let (mut at, mut left, mut time) = (offset, len, 0);
        while left > 0 {
            let (_, end, rate) = self.zone(at);
            let part = left.min(end - at);
            time += Self::time_at(part, rate);
            at += part;
            left -= part;
        }
        if writes {
            time * 1000 / self.write_gain.max(1)
        } else {
            time
        }
    }

    /// How long after `now` the head, which is at `from`, has `to` under it: the seek, then the rest of a turn.
    pub(super) fn access_ns(&self, now: u64, from: u64, to: u64) -> u64 {
        let (old, new) = (self.track(from), self.track(to));
        let distance = if old.0 == new.0 && old.1 == new.1 {
            0
        } else {
            from.abs_diff(to).max(1)
        };
        let seek = self.seek.time_ns(distance, self.capacity);
        let angle = (now + seek) % self.turn_ns;
        let wait = (new.2 % self.turn_ns + self.turn_ns - angle) % self.turn_ns;
        seek + wait
    }
}
