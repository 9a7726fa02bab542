//! Fixtures: where the files lie that older versions wrote, and ways in which a format may differ.
//!
//! Each file has a listing next to it, whose bytes are in hexadecimal. A fixture is never written again: only one that there is not is
//! made, where `AZEKURA_WRITE_FIXTURES` is set. What a release that reads version 1 in another way makes of a file is what this one
//! makes of a file that differs in the same way. It knows no engine.

use std::fs;
use std::path::{Path, PathBuf};

use super::tried;

/// The fixtures of an engine, whose files end with this.
#[derive(Clone, Copy, Debug)]
pub struct Fixtures {
    /// Its folder.
    pub engine: &'static str,
    /// Without the dot.
    pub extension: &'static str,
}

impl Fixtures {
    /// Their folder.
    pub fn folder(self) -> PathBuf {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
        let root = root.expect("the library lies two folders below the root");
        root.join("fixtures").join(self.engine)
    }

    /// A file.
    pub fn file(self, name: &str) -> PathBuf {
        self.folder().join(format!("{name}-1.{}", self.extension))
    }

    /// The listing of a file.
    pub fn listing(self, name: &str) -> PathBuf {
        self.folder().join(format!("{name}-1.txt"))
    }

    /// The bytes of a file, and its listing.
    pub fn read(self, name: &str) -> (Vec<u8>, String) {
        let bytes = fs::read(self.file(name)).expect("a fixture");
        let list = fs::read_to_string(self.listing(name));
        (bytes, list.expect("the listing of a fixture"))
    }

    /// Makes those of these names that there are not, where that is wanted: `make` writes the file, and answers its listing.
    pub fn write(self, names: &[&str], make: impl Fn(&str, &Path) -> String) {
        if std::env::var_os("AZEKURA_WRITE_FIXTURES").is_none() {
            return;
        }
        fs::create_dir_all(self.folder()).expect("the folder");
        for name in names {
            let file = self.file(name);
            if !file.exists() {
                let list = make(name, &file);
                fs::write(self.listing(name), list).expect("a listing");
            }
        }
    }
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
    digits.collect()
}

/// One way in which a format may differ: what it is, and what it does to a file.
pub type Difference = (&'static str, fn(&mut Vec<u8>));

/// A version that is not known yet.
pub const NEWER: Difference = ("a newer version", |bytes| {
    bytes[12] += 1;
    bytes[4096 + 12] += 1;
});

/// Superblocks whose fields stand in another order.
pub const REORDERED: Difference = ("a superblock of other order", |bytes| {
    bytes[32..64].reverse();
    bytes[4096 + 32..4096 + 64].reverse();
});

/// Demands that each difference in a fixture is seen by `holds`, which is content without it.
pub fn demand_seen(
    differences: &[Difference],
    (bytes, list): &(Vec<u8>, String),
    holds: impl Fn(&[u8], &str) -> Result<(), String>,
) {
    for (what, change) in differences {
        holds(bytes, list).expect("the control");
        let mut changed = bytes.clone();
        change(&mut changed);
        let seen = holds(&changed, list).expect_err(what);
        tried(&format!("{what}: seen: {seen}"));
    }
}
