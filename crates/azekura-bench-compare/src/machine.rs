//! What a result was measured on: date, processor, memory, kernel, file system, load.
//!
//! Read from the files a Linux kernel offers; what it does not offer is `unknown`. The commit is that
//! of the sources this program was built from, as they are when it runs. It measures nothing.

use std::fs::read_to_string;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// The heading of a recorded result, one `name: value` a line. `folder` is where stores are made.
pub(crate) fn describe(folder: &Path) -> Vec<(&'static str, String)> {
    let read = |path: &str| read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        let value = line
            .and_then(|line| line.split_once(':'))
            .map(|(_, value)| value.trim());
        value.unwrap_or("unknown").to_owned()
    };
    let or_unknown = |text: &str| {
        let text = text.trim();
        if text.is_empty() {
            "unknown".to_owned()
        } else {
            text.to_owned()
        }
    };
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    vec![
        ("date", date(SystemTime::now())),
        ("processor", field(&read("/proc/cpuinfo"), "model name")),
        ("cores", cores.to_string()),
        ("memory", field(&read("/proc/meminfo"), "MemTotal")),
        ("kernel", or_unknown(&read("/proc/sys/kernel/osrelease"))),
        (
            "file system",
            file_system(&read("/proc/self/mounts"), folder),
        ),
        ("load", or_unknown(&read("/proc/loadavg"))),
        ("commit", commit()),
    ]
}

fn commit() -> String {
    let output = Command::new("git")
        .args(["describe", "--always", "--dirty", "--abbrev=12"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output();
    match output {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        }
        _ => "unknown".to_owned(),
    }
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

/// `2026-11-21` for a time, by the civil calendar of years that begin in March.
fn date(time: SystemTime) -> String {
    let seconds = time
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let day = seconds / 86_400 + 719_468;
    let (era, day_of_era) = (day / 146_097, day % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (days, text) in [
            (0, "1970-01-01"),
            (11_016, "2000-02-29"),
            (20_778, "2026-11-21"),
        ] {
            assert_eq!(date(UNIX_EPOCH + Duration::from_secs(days * 86_400)), text);
        }
    }

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
