//! What a result was measured on: date, processor, memory, kernel, file system, load.
//!
//! Read from the files a Linux kernel offers; what it does not offer is `unknown`. The commit is that
//! of the sources this program was built from, as they are when it runs. It measures nothing.

use std::fs::read_to_string;
use std::path::Path;
use std::process::Command;

/// How git names the commit of the sources.
const COMMIT: [&str; 4] = ["describe", "--always", "--dirty", "--abbrev=12"];

/// The heading of a recorded result, one `name: value` a line. `folder` is where stores are made.
pub(crate) fn describe(folder: &Path) -> Vec<(&'static str, String)> {
    let read = |path: &str| read_to_string(path).unwrap_or_default();
    let or_unknown = |text: &str| match text.trim() {
        "" => "unknown".to_owned(),
        text => text.to_owned(),
    };
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.split_once(':'));
        or_unknown(value.map_or("", |(_, value)| value))
    };
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    vec![
        ("date", or_unknown(&printed("date", &["-u", "+%Y-%m-%d"]))),
        ("processor", field(&read("/proc/cpuinfo"), "model name")),
        ("cores", cores.to_string()),
        ("memory", field(&read("/proc/meminfo"), "MemTotal")),
        ("kernel", or_unknown(&read("/proc/sys/kernel/osrelease"))),
        (
            "file system",
            file_system(&read("/proc/self/mounts"), folder),
        ),
        ("load", or_unknown(&read("/proc/loadavg"))),
        ("commit", or_unknown(&printed("git", &COMMIT))),
    ]
}

/// What a program prints in the folder of the sources.
fn printed(program: &str, words: &[&str]) -> String {
    let output = Command::new(program)
        .args(words)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output();
    let output = output.ok().filter(|output| output.status.success());
    output.map_or_else(String::new, |output| {
        String::from_utf8_lossy(&output.stdout).into_owned()
    })
}

/// The type of the mount that holds `folder`: the longest mount point that is a prefix of it.
fn file_system(mounts: &str, folder: &Path) -> String {
    let folder = folder
        .canonicalize()
        .unwrap_or_else(|_| folder.to_path_buf());
    let parsed = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?, words.next()?))
    });
    let best = parsed
        .filter(|(point, _)| folder.starts_with(point))
        .max_by_key(|(p, _)| p.len());
    best.map_or("unknown", |(_, kind)| kind).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_system_is_the_one_mounted_nearest() {
        let mounts = "a / ext4 rw 0 0\nb /data xfs rw 0 0\nc /database btrfs rw 0 0\n";
        assert_eq!(file_system(mounts, Path::new("/data/x")), "xfs");
        assert_eq!(file_system(mounts, Path::new("/dat")), "ext4");
        assert_eq!(file_system("", Path::new("/dat")), "unknown");
    }

    #[test]
    fn every_line_of_the_heading_says_something() {
        for (name, value) in describe(Path::new(".")) {
            assert!(!value.is_empty(), "{name}");
        }
    }
}
