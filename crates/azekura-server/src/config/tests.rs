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
        (Engine::Hash, Survives::Process)
    );
    assert_eq!(
        config.store().unwrap(),
        Path::new("azekura-data/records.azh")
    );
}

#[test]
fn what_is_wrong_is_named_by_line_key_and_what_is_allowed() {
    for (text, expected) in [
        (
            "threads = 1\nthread = 2\n",
            ["line 2", "thread", "`threads`"],
        ),
        ("\nengine = \"has\"\n", ["line 2", "engine", "`tiny`"]),
        (
            "threads = \"many\"\n",
            [
                "line 1",
                "threads",
                "found the text \"many\", expected a number",
            ],
        ),
        ("\n\nthreads = 0\n", ["line 3", "threads", "from 1 to 1024"]),
        ("item-max = 5\n", ["line 1", "item-max", "1KiB"]),
        (
            "capacity = 65537\n",
            ["line 1", "capacity", "expected at least 159744"],
        ),
        (
            "capacity = 200001\n",
            [
                "line 1",
                "capacity",
                "(found 200001, expected a multiple of 4KiB)",
            ],
        ),
        (
            "capacity = \"16TiB\"\n",
            [
                "line 1",
                "capacity",
                "(found 17592186044416, expected at most 8TiB)",
            ],
        ),
        (
            "engine = \"tiny\"\ncapacity = \"1GiB\"\n",
            ["line 2", "capacity", "in memory: see memory-max"],
        ),
        (
            "engine = \"cache\"\nitem-max = \"65MiB\"\n",
            ["line 2", "item-max", "at most 67108864, the memory"],
        ),
        (
            "connections-per-address = 0\n",
            ["line 1", "connections-per-address", "at least 1"],
        ),
        ("operator = [\"here\"]\n", ["line 1", "operator", "IP"]),
        (
            "operator = \"10.1.2.3\"\n",
            [
                "line 1: operator: found the text",
                "expected a list in brackets: ",
                "operator = [\"10.0.0.7\"]",
            ],
        ),
        (
            "listen = 11211\n",
            [
                "line 1: listen: found the number",
                "expected a list in brackets: ",
                "listen = [\"127.0.0.1:11211\"]",
            ],
        ),
        (
            "listen = [\"127.0.0.1:70000\"]\n",
            [
                "line 1",
                "listen",
                "the port of `127.0.0.1:70000` is not from 0 to 65535",
            ],
        ),
        (
            "metrics = \"nowhere.invalid:80\"\n",
            [
                "line 1",
                "metrics",
                "the host of `nowhere.invalid:80` is not found: ",
            ],
        ),
        ("item-max = \"5 MB\"\n", ["line 1", "item-max", "KiB"]),
        (
            "threads = 2\nitem-max = \"64MiB\"\nbuffers-max = \"128MiB\"\n",
            [
                "line 3",
                "buffers-max",
                "at least 136314880: for each thread",
            ],
        ),
        (
            "engine = \"cache\"\nthreads = 48\n",
            [
                "line 2",
                "threads",
                "found 48, expected at most 4, so that the process stays below one and a quarter of memory-max and \
                 32MiB; or a smaller item-max (1048576) or a larger memory-max (67108864)",
            ],
        ),
        (
            "engine = \"cache\"\nthreads = 2\nbuffers-max = \"96MiB\"\n",
            [
                "line 3",
                "buffers-max",
                "found 100663296, expected at most 15728640, so that the process stays below",
            ],
        ),
        (
            "engine = \"cache\"\nitem-max = \"7MiB\"\n",
            [
                "line 2",
                "item-max",
                "expected at most 6466218, so that the process stays below",
            ],
        ),
        (
            "listen = [\n  \"127.0.0.1:0\",\n\"nowhere\",\n]\n",
            ["line 1", "listen: `nowhere`", "unix:PATH"],
        ),
        (
            "\nengine = hash\n",
            ["line 2", "engine", "must stand in quotes"],
        ),
        (
            "idle-s = 99999999999\n",
            ["line 1", "idle-s", "expected a number from 0 to 4294967295"],
        ),
        (
            "connections-max = 0\n",
            ["line 1", "connections-max", "at least 1"],
        ),
        (
            "listen = [\"nowhere\"]\n",
            ["line 1", "listen", "unix:PATH"],
        ),
        (
            "engine = \"tiny\"\ndurability = \"power\"\n",
            ["line 2", "durability", "none"],
        ),
        (
            "listen = [\"tls:127.0.0.1:0\"]\n",
            ["missing --certificate", "tls: address", "--key"],
        ),
        (
            "durability = \"none\"\n",
            ["line 1", "durability", "process or power"],
        ),
        ("metrics = \"80\"\n", ["line 1", "metrics", "HOST:PORT"]),
        (
            "idle-s = -1\n",
            [
                "line 1",
                "idle-s",
                "found the number `-1`, expected a number",
            ],
        ),
        (
            "flush = 1\n",
            [
                "line 1",
                "flush",
                "found the number `1`, expected true or false",
            ],
        ),
        (
            "listen = 1\n",
            ["line 1", "listen", "expected a list in brackets"],
        ),
        (
            "data = [1]\n",
            ["line 1", "data", "found a list, expected a text in quotes"],
        ),
        (
            "engine = \"cache\"\ndata = \"x\"\n",
            ["line 2", "data", "as the engine is in memory"],
        ),
        (
            "engine = \"cache\"\nsync-interval = 5\n",
            ["line 2", "sync-interval", "as the engine is in memory"],
        ),
        ("unix-mode = 999\n", ["line 1", "unix-mode", "0 to 7"]),
        ("data = \"\"\n", ["line 1", "data", "the path of a folder"]),
        (
            "listen = [\"127.0.0.1:7\", \"tls:127.0.0.1:7\"]\n",
            ["line 1", "listen", "found tls:127.0.0.1:7, expected each"],
        ),
        (
            "listen = [\"unix:a\", \"unix:a\"]\n",
            ["line 1", "listen", "unix:a"],
        ),
        (
            "metrics = \"127.0.0.1:11211\"\n",
            ["line 1", "metrics", "none of `listen`"],
        ),
        (
            "\nkey = \"k\"\n",
            ["line 2", "key", "tls:HOST:PORT of `listen`"],
        ),
        ("threads = = 1\n", ["line 1", "threads", ""]),
    ] {
        let error = read(text, RawConfig::default()).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{text}");
        for part in expected {
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
