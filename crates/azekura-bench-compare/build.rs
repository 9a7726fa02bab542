//! Finds the rivals' libraries and compiles the shim over the one that is written in C++.
//!
//! A library is looked for where the system has it and in the folders of `CPATH`, which the compiler, too, looks through
//! (and the linker through those of `LIBRARY_PATH`). One that is missing is named together with the package that holds it and the feature that
//! leaves it out, instead of an error of a compiler or linker. It knows no rival's calls.

use std::path::{Path, PathBuf};

const FOLDERS: [&str; 2] = ["/usr/include", "/usr/local/include"];

fn main() {
    println!("cargo::rerun-if-changed=shim/tkrzw.cc");
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "tkrzw")]
    tkrzw();
    if std::env::var_os("CARGO_FEATURE_ROCKSDB").is_some() {
        let version = header("rocksdb/version.h", "librocksdb-dev", "rocksdb");
        println!(
            "cargo::rustc-env=ROCKSDB_VERSION={}",
            rocksdb_version(&version)
        );
        println!("cargo::rustc-link-lib=dylib=rocksdb");
    }
    if std::env::var_os("CARGO_FEATURE_SQLITE").is_some() {
        header("sqlite3.h", "libsqlite3-dev", "sqlite");
    }
}

/// The header, or an end with a message that helps.
fn header(name: &str, package: &str, feature: &str) -> PathBuf {
    println!("cargo::rerun-if-env-changed=CPATH");
    let others = std::env::var_os("CPATH").unwrap_or_default();
    let found = std::env::split_paths(&others)
        .chain(FOLDERS.map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|path| path.exists());
    let Some(path) = found else {
        println!(
            "cargo::error=the header {name} is missing: install Debian's package {package}, or build \
             without the feature `{feature}` (--no-default-features --features ...)"
        );
        std::process::exit(1);
    };
    path
}

#[cfg(feature = "tkrzw")]
fn tkrzw() {
    header("tkrzw_dbm_hash.h", "libtkrzw-dev", "tkrzw");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .opt_level(2)
        .file("shim/tkrzw.cc")
        .compile("tkrzw_shim");
    println!("cargo::rustc-link-lib=dylib=tkrzw");
}

/// `7.8.3` from the three definitions in `RocksDB`'s version header.
fn rocksdb_version(header: &Path) -> String {
    let text = std::fs::read_to_string(header).unwrap_or_default();
    let part = |name: &str| {
        let mut words = text.lines().filter_map(|line| {
            line.strip_prefix("#define ")?
                .trim()
                .strip_prefix(name)
                .map(str::trim)
        });
        words.next().unwrap_or("?").to_owned()
    };
    [
        part("ROCKSDB_MAJOR"),
        part("ROCKSDB_MINOR"),
        part("ROCKSDB_PATCH"),
    ]
    .join(".")
}
