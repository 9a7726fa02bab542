//! The fuzz targets as ordinary tests: each check runs a bounded count of inputs in every test run.
//!
//! A fuzzer finds inputs by coverage (`make fuzz`); here they are the files of the target's corpus, its seeds, which are in git,
//! noise of every length, and samples with bytes changed, cut and repeated, all drawn from a number. Promises: a target that
//! no longer compiles, that has no seeds, or whose check fails on such an input, fails here, with the number and the input. It
//! does not measure coverage.
//!
//! `AZEKURA_WRITE_SEEDS=1 cargo test -p azekura-cli --test fuzz_targets seeds` has the engines make the seeds anew.

#[expect(
    unreachable_pub,
    reason = "a crate of its own under the fuzzer, where these are public"
)]
#[path = "../../../fuzz/src/lib.rs"]
mod checks;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use azekura::testkit::suite::{share, tried_at_least};
use azekura::testkit::{Random, round_seed};

/// Longer inputs only repeat what shorter ones reach.
const LEN_MAX: u64 = 2000;

/// Noise, or a sample with a few changes.
fn input(random: &mut Random, samples: &[&[u8]]) -> Vec<u8> {
    if samples.is_empty() || random.one_in(4) {
        let bits = random.below(12);
        let len = random.below((1 << bits).min(LEN_MAX));
        return random.bytes(len as usize);
    }
    let mut bytes = random.choose(samples).to_vec();
    for _ in 0..random.below(6) {
        if bytes.is_empty() {
            break;
        }
        let at = random.index(bytes.len());
        match random.below(6) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.u64() as u8,
            2 => bytes.truncate(at),
            3 => drop(bytes.remove(at)),
            4 => {
                let end = at + random.index(bytes.len() - at);
                bytes.extend_from_within(at..end);
            }
            _ => bytes
                .splice(at..at, random.choose(samples).to_vec())
                .for_each(drop),
        }
    }
    bytes
}

/// What a fuzzer left for this target, if it ran here.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let Ok(files) = std::fs::read_dir(folder.join(target)) else {
        return Vec::new();
    };
    let files = files.filter_map(|file| std::fs::read(file.ok()?.path()).ok());
    files.take(share(2000) as usize).collect()
}

/// Longest seed.
const SEED_LEN_MAX: usize = 8192;

fn folder_of_seeds(target: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    folder.join(target)
}

/// The inputs in git with which a fuzzer begins, in order of their names.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = folder_of_seeds(target);
    let files = std::fs::read_dir(&folder);
    let files = files.unwrap_or_else(|error| panic!("no seeds in {}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = files.map(|file| file.expect("a file").path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "no seeds in {}", folder.display());
    let read = |path: &PathBuf| {
        let bytes = std::fs::read(path).expect("a seed");
        let len = bytes.len();
        let path = path.display();
        assert!((1..=SEED_LEN_MAX).contains(&len), "{path} has {len} bytes");
        bytes
    };
    paths.iter().map(read).collect()
}

fn write_seeds(target: &str, made: &[Vec<u8>]) {
    let folder = folder_of_seeds(target);
    let _gone = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    for (number, bytes) in made.iter().enumerate() {
        std::fs::write(folder.join(format!("{number:02}")), bytes).expect("a seed");
    }
}

fn run(target: &str, check: fn(&[u8]), full: u64, samples: &[&[u8]]) {
    let seed = round_seed() + 1;
    let mut random = Random::new(seed);
    let mut count = 0;
    let made = (0..share(full)).map(|_| input(&mut random, samples));
    let whole = samples.iter().map(|sample| sample.to_vec());
    let known = corpus(target).into_iter().chain(seeds(target));
    for bytes in known.chain(whole).chain(made) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(&bytes))) {
            let shown = bytes.escape_ascii().to_string();
            panic!("{target}, seed {seed}, input {count} fails: {panic:?}, b\"{shown}\"");
        }
        count += 1;
    }
    tried_at_least(count, full, &format!("inputs of fuzz target {target}"));
}

const TEXT: &[&[u8]] = &[
    b"get a\r\n",
    b"gets a bb ccc\r\n",
    b"set key 1 0 5\r\nhello\r\n",
    b"cas key 1 -1 2 77 noreply\r\nab\r\n",
    b"incr n 18446744073709551615\r\n",
    b"delete a 0\r\n",
    b"touch a 100\r\ngat 100 a\r\n",
    b"flush_all 10 noreply\r\nstats slabs\r\nverbosity 1\r\nversion\r\n",
    b"mg a t f v s k O123\r\nmn\r\n",
    b"ms a 2 T60 F3 I MA\r\nhi\r\nmd a q\r\nma a D2 N5 J9\r\nme a\r\n",
    b"lru_crawler metadump all\r\nwatch fetchers\r\ncache_memlimit 64\r\nquit\r\n",
];

const BINARY: &[&[u8]] = &[
    &[
        0x80, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, b'a',
    ],
    &[
        0x80, 1, 0, 1, 8, 0, 0, 0, 0, 0, 0, 11, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0,
        0, 0, 2, b'a', b'h', b'i',
    ],
    &[
        0x80, 0x0b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ],
];

macro_rules! targets {
    ($($name:ident: $full:expr, $samples:expr;)*) => {
        $(
            #[test]
            fn $name() {
                run(stringify!($name), checks::$name::check, $full, $samples);
            }
        )*

        const TARGETS: &[&str] = &[$(stringify!($name)),*];

        /// What makes the seeds of each target.
        const MAKERS: &[fn() -> Vec<Vec<u8>>] = &[$(checks::$name::seeds),*];
    };
}

targets! {
    frame: 20_000, &[];
    hash_layout: 3_000, &[];
    hash_model: 1_000, &[];
    hash_open: 2_000, &[];
    http_head: 10_000, &[b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", b"POST / HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc"];
    import_formats: 10_000, &[b"a\tb\nc\\t\\x00\td\n", b"{\"key\":\"a\",\"value\":\"b\"}\n", b"\x01\0\0\0a\x01\0\0\0b"];
    log_layout: 20_000, &[];
    memcached_binary: 20_000, BINARY;
    memcached_datagram: 5_000, &[b"\0\x01\0\0\0\x01\0\0get a\r\n"];
    memcached_meta: 20_000, &[b"mg a t f v s k O123", b"ms key 2 T60 F3 I MA", b"ma a D2 N5 J9 b"];
    memcached_session: 3_000, TEXT;
    memcached_text: 20_000, TEXT;
    object_layout: 3_000, &[];
    object_model: 5_000, &[];
    object_open: 1_500, &[];
    server_config: 5_000, &[b"listen = \"127.0.0.1:0\"\nthreads = 2\n[store]\nengine = \"hash\"\npath = \"a\"\n"];
    shard_names: 1_500, &[];
    skip_open: 1_500, &[];
    snapshot: 2_000, &[];
    superblock: 20_000, &[];
    tree_changes: 1_500, &[];
    tree_open: 1_500, &[];
}

#[test]
fn every_fuzz_target_is_an_ordinary_test() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/fuzz_targets");
    let files = std::fs::read_dir(folder).expect("the folder of the fuzz targets");
    let mut names: Vec<String> = files
        .map(|file| file.expect("a file").path())
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_string()))
        .filter(|name| name != "fuzz_canary")
        .collect();
    names.sort();
    assert_eq!(names, TARGETS);
}

#[test]
fn every_target_has_the_seeds_in_git_that_the_engines_make() {
    let writes = std::env::var_os("AZEKURA_WRITE_SEEDS").is_some();
    let mut all = 0;
    for (target, make) in TARGETS.iter().zip(MAKERS) {
        let made = make();
        if writes {
            write_seeds(target, &made);
        }
        let found = seeds(target);
        // Their bytes differ from store to store: each has a salt of its own.
        assert_eq!(
            found.len(),
            made.len(),
            "seeds of {target}: AZEKURA_WRITE_SEEDS=1 makes them anew"
        );
        all += found.len();
    }
    let mut names: Vec<_> = std::fs::read_dir(folder_of_seeds(""))
        .expect("the folder of the seeds")
        .map(|of| {
            of.expect("a folder")
                .file_name()
                .into_string()
                .expect("text")
        })
        .collect();
    names.sort();
    assert_eq!(names, TARGETS);
    azekura::testkit::tried(&format!("{all} seeds of fuzz targets"));
}
