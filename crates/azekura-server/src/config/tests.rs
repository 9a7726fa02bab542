//! The configuration: what a file and flags give together, and what each error states.
//!
//! Every row of the long table is a text, and words that its one-line error has: the line, the key, and what is allowed. The
//! budget under a memory limit is tested next to it.

use super::*;

fn read(text: &str, flags: RawConfig) -> Result<Config> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("server.toml");
    std::fs::write(&path, text).unwrap();
    Config::read(Some(&path), flags)
}

#[test]
fn a_file_says_what_flags_say_and_a_flag_replaces_it() {
    let text = "listen = [\"127.0.0.1:0\", \"udp:127.0.0.1:0\", \"unix:/x/y\"]\nthreads = 3\ncapacity = \"2TiB\"\n\
                item-max = \"2MiB\"\nbuffers-max = 20000000\nidle-s = 60\nunix-mode = 660\n";
    let flags = RawConfig {
        threads: Some(5),
        ..RawConfig::default()
    };
    let config = read(text, flags).unwrap();
    assert_eq!(
        (config.threads, config.item_max, config.unix_mode),
        (5, 2 << 20, 0o660)
    );
    assert_eq!(config.capacity, Some(2 << 40));
    assert_eq!(
        (config.limits.idle_s, config.limits.buffers_max),
        (60, 20_000_000)
    );
    let words: Vec<_> = config.listen.iter().map(ToString::to_string).collect();
    assert_eq!(words, ["127.0.0.1:0", "udp:127.0.0.1:0", "unix:/x/y"]);
}

#[test]
fn buffers_grow_with_the_longest_item_unless_that_is_said() {
    let text = "threads = 4\nitem-max = \"1GiB\"\n";
    let config = read(text, RawConfig::default()).unwrap();
    assert_eq!(config.limits.buffers_max, 4 * (1025 << 20));
    let usual = read("threads = 4\n", RawConfig::default()).unwrap();
    assert_eq!(usual.limits.buffers_max, 256 << 20);
    // Where memory is bounded, so are they.
    let cache = read("threads = 2\nengine = \"cache\"\n", RawConfig::default()).unwrap();
    assert_eq!(cache.limits.buffers_max, 15 << 20);
}

#[test]
fn without_a_word_it_is_a_file_on_the_loopback_that_survives_a_kill() {
    let config = Config::default();
    assert_eq!(config.listen[0].to_string(), "127.0.0.1:11211");
    assert_eq!(
        (config.engine, config.durability),
        (Engine::Hash, DurabilityLevel::Process)
    );
    assert_eq!(
        config.store().unwrap(),
        Path::new("azekura-data/records.azh")
    );
}

#[test]
fn a_reload_takes_over_no_item_that_is_longer_than_the_file_may_become() {
    let of = |text| read(text, RawConfig::default()).unwrap();
    let mut running = of("capacity = \"2MiB\"\n");
    let new = of("capacity = \"8MiB\"\nitem-max = \"4MiB\"\n");
    let reloaded = running.take_over(&new, false, false);
    assert_eq!(reloaded.needs_restart, ["item-max", "capacity"]);
    assert_eq!(running.item_max, 1 << 20);
}

/// Texts of a file, a row each with `\n` for the ends of lines, and parts of their errors.
const WRONG: &str = r#"
threads = 1\nthread = 2 -> line 2 | thread | `threads`
\nengine = "has" -> line 2 | engine | `tiny`
threads = "many" -> line 1 | threads | found the text "many", expected a number
\n\nthreads = 0 -> line 3 | threads | from 1 to 1024
item-max = 5 -> line 1 | item-max | 1KiB
capacity = 65537 -> line 1 | capacity | found 65537 B, expected at least 156 KiB
capacity = 200001 -> line 1 | capacity | (found 200001 B, expected a multiple of 4KiB)
capacity = "16TiB" -> line 1 | capacity | (found 16 TiB, expected at most 8TiB)
engine = "tiny"\ncapacity = "1GiB" -> line 2 | capacity | in memory: see memory-max
engine = "cache"\nitem-max = "65MiB" -> line 2 | item-max | at most 64 MiB, the memory
capacity = "2MiB"\nitem-max = "3MiB" -> line 2 | item-max | (found 3 MiB, expected at most 2 MiB, the size of the data file (capacity))
connections-per-address = 0 -> line 1 | connections-per-address | at least 1
operator = ["here"] -> line 1 | operator | IP
operator = "10.1.2.3" -> line 1: operator: found the text | expected a list in brackets: | operator = ["10.0.0.7"]
listen = 11211 -> line 1: listen: found the number | expected a list in brackets: | listen = ["127.0.0.1:11211"]
listen = ["127.0.0.1:70000"] -> line 1 | listen | the port of `127.0.0.1:70000` is not from 0 to 65535
metrics = "nowhere.invalid:80" -> line 1 | metrics | the host of `nowhere.invalid:80` is not found:
item-max = "5 MB" -> line 1 | item-max | KiB
threads = 2\nitem-max = "64MiB"\nbuffers-max = "128MiB" -> line 3 | buffers-max | at least 130 MiB: for each thread
engine = "cache"\nthreads = 48 -> line 2 | threads | found 48, expected at most 4, so that the process stays below one and a quarter of memory-max and 32MiB; or a smaller item-max (1 MiB) or a larger memory-max (64 MiB)
engine = "cache"\nthreads = 2\nbuffers-max = "96MiB" -> line 3 | buffers-max | found 96 MiB, expected at most 15 MiB, so that the process stays below
engine = "cache"\nitem-max = "7MiB" -> line 2 | item-max | expected at most 6466218 B, so that the process stays below
listen = [\n  "127.0.0.1:0",\n"nowhere",\n] -> line 1 | listen: `nowhere` | unix:PATH
\nengine = hash -> line 2 | engine | must stand in quotes
idle-s = 99999999999 -> line 1 | idle-s | expected a number from 0 to 4294967295
connections-max = 0 -> line 1 | connections-max | at least 1
listen = ["nowhere"] -> line 1 | listen | unix:PATH
engine = "tiny"\ndurability = "power" -> line 2 | durability | none
listen = ["tls:127.0.0.1:0"] -> missing --certificate | tls: address | --key
durability = "none" -> line 1 | durability | process or power
metrics = "80" -> line 1 | metrics | HOST:PORT
idle-s = -1 -> line 1 | idle-s | found the number `-1`, expected a number
flush = 1 -> line 1 | flush | found the number `1`, expected true or false
listen = 1 -> line 1 | listen | expected a list in brackets
data = [1] -> line 1 | data | found a list, expected a text in quotes
engine = "cache"\ndata = "x" -> line 2 | data | as the engine is in memory
engine = "cache"\nsync-interval = 5 -> line 2 | sync-interval | as the engine is in memory
unix-mode = 999 -> line 1 | unix-mode | 0 to 7
data = "" -> line 1 | data | the path of a folder
listen = ["127.0.0.1:7", "tls:127.0.0.1:7"] -> line 1 | listen | found tls:127.0.0.1:7, expected each
listen = ["unix:a", "unix:a"] -> line 1 | listen | unix:a
metrics = "127.0.0.1:11211" -> line 1 | metrics | none of `listen`
\nkey = "k" -> line 2 | key | tls:HOST:PORT of `listen`
threads = = 1 -> line 1 | threads
"#;

#[test]
fn what_is_wrong_is_named_by_line_key_and_what_is_allowed() {
    for row in WRONG.trim().lines() {
        let (text, expected) = row.split_once(" -> ").unwrap();
        let text = &format!("{}\n", text.replace(r"\n", "\n"));
        let error = read(text, RawConfig::default()).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{text}");
        for part in expected.split(" | ") {
            assert!(error.to_string().contains(part), "{text}: {error}");
        }
        assert!(!error.to_string().contains('\n'), "{error}");
    }
    let flags = RawConfig {
        threads: Some(0),
        ..RawConfig::default()
    };
    let error = Config::read(None, flags).unwrap_err().to_string();
    assert!(error.contains("--threads"), "{error}");
}
