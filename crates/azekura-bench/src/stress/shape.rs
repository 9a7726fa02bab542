//! What a store and a round are made of: drawn from the seed, unless flags fix it.
//!
//! A *shape* holds for the life of a store: population, value lengths, and what is fixed when a store is created. An
//! *opening* holds for one opening. Every option that changes what an engine does is drawn; `reads_doubtful` is not, since it
//! allows older values, nor are `fill` and `overwrite`, which concern devices. A seed repeats all of it. What threads do
//! meanwhile depends on the machine, too. It does not know engines.

use std::time::Duration;

use azekura::error::{Error, Kind, Result};
use azekura::object::extent::PACKED_LEN_MAX;
use azekura::record::hash::{Compression, HashDb};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::judge::Content;
use super::ledger::Population;
use crate::generate::{Choice, mix};
use crate::words::between;
use azekura::Durability;
use azekura::size::parse_size;

/// Bytes of all values of a store, about: more is never held, so that a round takes seconds.
const BUDGET: u64 = 48 << 20;

/// Flags that take the place of what the seed draws.
#[derive(Args, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Instead of what the seed draws")]
pub(super) struct Fixed {
    /// Different keys
    #[arg(long, value_name = "N")]
    pub(super) keys: Option<u64>,
    /// Bytes of the longest usual value; lengths at the edges of encodings are drawn besides
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(super) value_size: Option<u64>,
    /// Bytes of a segment; 0: as the library chooses (hash)
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(super) segment_size: Option<u64>,
    /// How large the store may become, in bytes (hash, object)
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(super) capacity: Option<u64>,
    /// How values are stored (hash)
    #[arg(long, value_parser = compression())]
    pub(super) compression: Option<Compression>,
    /// How many times the live bytes the log may take (hash)
    #[arg(long, value_name = "RATIO")]
    pub(super) space_ratio: Option<f64>,
    /// Whether the background worker runs (hash, object)
    #[arg(long, value_name = "BOOL")]
    pub(super) background: Option<bool>,
    /// What every acknowledged write survives (hash, object)
    #[arg(long, value_parser = azekura_wire::durability::parser(), value_name = "LEVEL")]
    pub(super) durability: Option<Durability>,
    /// Objects of so many bytes at most go to the journal first (object)
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(super) small_max: Option<u64>,
    /// Bytes of the journal (object)
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(super) journal_size: Option<u64>,
    /// 1: journal and values in one file; 2: in two (object)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=2))]
    pub(super) devices: Option<u64>,
}

const COMPRESSIONS: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];

fn compression() -> impl TypedValueParser<Value = Compression> {
    let words = PossibleValuesParser::new(COMPRESSIONS.map(Compression::word));
    let of = |word: &String| COMPRESSIONS.into_iter().find(|one| one.word() == word);
    words.try_map(move |word| of(&word).ok_or("no such compression"))
}

impl Fixed {
    /// `Invalid` for a flag that does nothing for the engine of this name, and for a length beyond the engine's limit.
    pub(super) fn check(&self, engine: &str) -> Result<()> {
        let (hash, files, objects): (&[&str], &[&str], &[&str]) =
            (&["hash"], &["hash", "object"], &["object"]);
        for (flag, is_there, engines) in [
            ("--segment-size", self.segment_size.is_some(), hash),
            ("--capacity", self.capacity.is_some(), files),
            ("--compression", self.compression.is_some(), hash),
            ("--space-ratio", self.space_ratio.is_some(), hash),
            ("--background", self.background.is_some(), files),
            ("--durability", self.durability.is_some(), files),
            ("--small-max", self.small_max.is_some(), objects),
            ("--journal-size", self.journal_size.is_some(), objects),
            ("--devices", self.devices.is_some(), objects),
        ] {
            if is_there && !engines.contains(&engine) {
                let what = format!("{flag} does nothing for the engine {engine}");
                let engines = engines.join(" or ");
                return Err(Error::new(Kind::Invalid, what)
                    .remedy(format!("leave it out, or choose --engine {engines}")));
            }
        }
        between(
            "--small-max",
            self.small_max.unwrap_or(0),
            0,
            PACKED_LEN_MAX,
        )
    }
}

/// What holds for the life of a store.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) population: Population,
    pub(super) content: Content,
    pub(super) segment_size: u64,
    pub(super) capacity: u64,
    pub(super) compression: Compression,
    pub(super) small_max: u64,
    pub(super) journal_size: Option<u64>,
    pub(super) group_size: Option<u64>,
    pub(super) devices: u64,
}

/// What holds for one opening.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an option of its own"
)]
pub(super) struct Opening {
    pub(super) background: bool,
    pub(super) space_ratio: f64,
    pub(super) syncs_often: bool,
    pub(super) direct: bool,
    pub(super) durability: Durability,
    pub(super) sync_interval: Option<Duration>,
    pub(super) sync_every: Option<u64>,
    /// Begin with a clear, while the index is being loaded.
    pub(super) clear_first: bool,
}

fn one_of<T: Copy>(choice: &mut Choice, of: &[T]) -> T {
    of[choice.below(of.len() as u64) as usize]
}

impl Shape {
    /// The shape of store number `store`.
    pub(super) fn draw(
        seed: u64,
        store: u64,
        threads: u64,
        of_objects: bool,
        fixed: &Fixed,
    ) -> Self {
        let choice = &mut Choice::new(mix(seed) ^ store);
        let most = if of_objects { 20_000 } else { 100_000 };
        let magnitude = one_of(choice, &[10, 100, 1_000, 1_000, 10_000, 10_000, most]);
        let drawn = magnitude / 2 + choice.below(magnitude / 2 + 1);
        let asked_len = fixed.value_size.unwrap_or(0);
        let keys = fixed
            .keys
            .unwrap_or(drawn.min(BUDGET / asked_len.max(1)))
            .max(threads * 2);
        let shared = (keys / 8).min(one_of(choice, &[1, 8, 64]));
        let population = Population {
            owned: keys - shared,
            shared,
            threads,
        };
        let segment_size = one_of(
            choice,
            &[0, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 1 << 20],
        );
        let segment_size = fixed.segment_size.unwrap_or(segment_size);
        // Where the library chooses one, it is this one but in a small capacity.
        let segment = if segment_size == 0 {
            1 << 20
        } else {
            segment_size
        };
        let usual_len = one_of(choice, &[20, 100, 300, 1_000, 4_000, 20_000, 100_000]);
        let usual_len = fixed.value_size.unwrap_or(usual_len.min(BUDGET / keys));
        let small_max = one_of(choice, &[0, 100, 2_048, 2_048, 4_096, (64 << 10) - 72]);
        let small_max = fixed.small_max.unwrap_or(small_max);
        let mut edges: Vec<u64> = [0, 1, 7, 8, 24, 127, 128, 4_095, 4_096, 4_097, small_max]
            .into_iter()
            .chain(254..=257)
            .chain([small_max + 1])
            .collect();
        let large: Vec<u64> = (65_480..=65_560)
            .step_by(7)
            .chain([70_000, segment / 2, segment])
            .chain([segment / 2 + 1, segment - 33, segment + 1])
            .collect();
        // So few that all of them fit.
        let edge_one_in = one_of(choice, &[0, 3, 10, 50]);
        let room = BUDGET * edge_one_in / keys;
        edges.extend(large.into_iter().filter(|len| *len <= room));
        let huge = [1 << 20, (1 << 20) + 1, 2 << 20, (2 << 20) + 1, 8 << 20];
        edges.extend(huge.into_iter().filter(|len| *len <= room / 4));
        let mut content = Content {
            seed: choice.bits(),
            usual_len,
            edge_one_in,
            edges,
        };
        let capacity = if of_objects {
            one_of(choice, &[24 << 20, 48 << 20, 96 << 20, 200 << 20])
        } else {
            // Every other store may become full, some at the least capacity.
            let is_small = one_of(choice, &[false, true]);
            let small = one_of(choice, &[0, 4 << 20, 16 << 20, 32 << 20, 64 << 20]);
            // Of a small capacity the library makes small segments.
            let least = HashDb::least_capacity(segment_size.max(4 << 10));
            if is_small { small.max(least) } else { 1 << 40 }
        };
        let journal_size = one_of(choice, &[None, None, Some(144 << 10), Some(1 << 20)]);
        // It has to hold the record of each object, and small ones whole.
        let needed = 4 * (keys * (250 + small_max.min(usual_len)));
        let journal_size = fixed
            .journal_size
            .or(journal_size.map(|size: u64| size.max(needed)))
            // One that does not fit in a requested capacity is left to the store.
            .filter(|size| fixed.capacity.is_none_or(|capacity| 4 * size <= capacity));
        let journal_part = if of_objects {
            4 * journal_size.unwrap_or(0)
        } else {
            0
        };
        let capacity = fixed.capacity.unwrap_or(capacity.max(journal_part));
        if of_objects {
            // A longer one is refused for its length alone.
            content.edges.retain(|len| *len <= capacity / 4);
            content.usual_len = content.usual_len.min(capacity / 4);
        }
        Self {
            population,
            content,
            segment_size,
            capacity,
            compression: fixed.compression.unwrap_or(one_of(
                choice,
                &[
                    Compression::None,
                    Compression::None,
                    Compression::Lz4,
                    Compression::Zstd,
                ],
            )),
            small_max,
            journal_size,
            group_size: one_of(choice, &[None, None, Some(16 << 20)]),
            devices: fixed.devices.unwrap_or(one_of(choice, &[1, 1, 2])),
        }
    }
}

impl Opening {
    /// The opening of round number `round`.
    pub(super) fn draw(seed: u64, round: u64, fixed: &Fixed) -> Self {
        let choice = &mut Choice::new(mix(seed ^ 0x0b5e) ^ round);
        let background = fixed.background.unwrap_or(choice.below(4) > 0);
        let survives = [
            Durability::Process,
            Durability::Process,
            Durability::Process,
            Durability::Power,
        ];
        Self {
            background,
            space_ratio: fixed
                .space_ratio
                .unwrap_or(one_of(choice, &[1.6, 1.6, 1.1, 1.3, 3.0])),
            syncs_often: choice.below(4) == 0,
            direct: choice.below(4) > 0,
            durability: fixed.durability.unwrap_or(one_of(choice, &survives)),
            sync_interval: (background && choice.below(4) == 0)
                .then(|| Duration::from_millis(1 + choice.below(50))),
            sync_every: (choice.below(4) == 0).then(|| choice.below(100)),
            clear_first: choice.below(8) == 0,
        }
    }
}
