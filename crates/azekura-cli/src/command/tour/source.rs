//! Where the tour's text comes from: a file that was named, else something real on this machine.
//!
//! ```text
//!   1. the argument                                     2. the table of Unicode characters
//!   3. a list of words                                  4. the text files below this directory
//! ```
//!
//! A record's key is what stands before the first tab or semicolon of a line, or else the line's number
//! (for files below a directory: name and number). A key that comes again replaces the earlier.
//! Promises: it fetches nothing, and takes a bounded part of whatever it finds.

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use azekura::{Error, Kind, Result};

use crate::whole::unreadable;

/// Lines taken at most.
const LINES_MAX: u64 = 1_000_000;
/// Bytes taken at most.
const BYTES_MAX: u64 = 128 << 20;
/// Bytes of a line taken at most.
const LINE_LEN_MAX: usize = 64 << 10;
/// Bytes of a key taken at most.
const KEY_LEN_MAX: usize = 256;

/// Keys and values.
pub(super) type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// A text.
pub(super) enum Source {
    /// Lines of a file.
    Lines(PathBuf),
    /// Perl's table of character names: a code and a name on two lines, then an empty one.
    Names(PathBuf),
    /// Lines of every text file below a directory.
    Files(PathBuf),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lines(path) => write!(f, "{}", path.display()),
            Self::Names(path) => write!(f, "{} (names of characters)", path.display()),
            Self::Files(path) => write!(f, "the files below {}", path.display()),
        }
    }
}

impl Source {
    /// The text that was named, or the best this machine has.
    pub(super) fn choose(named: Option<&Path>) -> Result<Self> {
        if let Some(path) = named {
            let is_dir = fs::metadata(path)
                .map_err(|error| unreadable("cannot read the text", error, path))?
                .is_dir();
            let path = path.to_path_buf();
            return Ok(if is_dir {
                Self::Files(path)
            } else {
                Self::Lines(path)
            });
        }
        let perl = fs::read_dir("/usr/share/perl")
            .into_iter()
            .flatten()
            .flatten();
        let mut perl: Vec<PathBuf> = perl.map(|entry| entry.path().join("unicore")).collect();
        perl.sort();
        let mut tables = vec![PathBuf::from("/usr/share/unicode/UnicodeData.txt")];
        tables.extend(perl.iter().map(|dir| dir.join("UnicodeData.txt")));
        if let Some(path) = tables.into_iter().find(|path| path.is_file()) {
            return Ok(Self::Lines(path));
        }
        if let Some(path) = perl
            .into_iter()
            .map(|dir| dir.join("Name.pl"))
            .find(|p| p.is_file())
        {
            return Ok(Self::Names(path));
        }
        let words = PathBuf::from("/usr/share/dict/words");
        Ok(if words.is_file() {
            Self::Lines(words)
        } else {
            Self::Files(PathBuf::from("."))
        })
    }

    /// The lines read and the records they make; each key once, with its last value.
    pub(super) fn records(&self) -> Result<(u64, Records)> {
        let mut taker = Taker::default();
        match self {
            Self::Lines(path) => taker.lines(path, "")?,
            Self::Names(path) => taker.names(path)?,
            Self::Files(path) => taker.files(path, path)?,
        }
        if taker.records.is_empty() {
            return Err(
                Error::new(Kind::Invalid, format!("there is no text in {self}"))
                    .remedy("name a text file: `azekura tour FILE`"),
            );
        }
        Ok((taker.lines, taker.records))
    }
}

/// Collects records within the bounds.
#[derive(Default)]
struct Taker {
    lines: u64,
    bytes: u64,
    records: Records,
    places: HashMap<Vec<u8>, usize>,
}

impl Taker {
    fn is_full(&self) -> bool {
        self.lines >= LINES_MAX || self.bytes >= BYTES_MAX
    }

    fn take(&mut self, key: Vec<u8>, value: &[u8]) {
        self.bytes += (key.len() + value.len()) as u64;
        if let Some(place) = self.places.get(&key) {
            self.records[*place].1 = value.to_vec();
        } else {
            self.places.insert(key.clone(), self.records.len());
            self.records.push((key, value.to_vec()));
        }
    }

    /// Every line of a file; keys without a field of their own are `prefix` and the line's number.
    fn lines(&mut self, path: &Path, prefix: &str) -> Result<()> {
        let mut number = 0_u64;
        self.each_line(path, |taker, line| {
            number += 1;
            let field = line.iter().position(|b| matches!(b, b'\t' | b';'));
            let key = match field {
                Some(len) if prefix.is_empty() && (1..=KEY_LEN_MAX).contains(&len) => {
                    line[..len].to_vec()
                }
                _ => format!("{prefix}{number}").into_bytes(),
            };
            taker.take(key, line);
        })
    }

    fn names(&mut self, path: &Path) -> Result<()> {
        let mut code = Vec::new();
        self.each_line(path, |taker, line| {
            let is_code = (4..=6).contains(&line.len()) && line.iter().all(u8::is_ascii_hexdigit);
            if is_code {
                code = line.to_vec();
            } else if !code.is_empty() && !line.is_empty() {
                taker.take(std::mem::take(&mut code), line);
            }
        })
    }

    /// Every text file below `dir`, but not what programs keep for themselves (`.git`, `target`).
    fn files(&mut self, root: &Path, dir: &Path) -> Result<()> {
        let mut entries: Vec<PathBuf> = fs::read_dir(dir)
            .map_err(|error| unreadable("cannot list the folder", error, dir))?
            .flatten()
            .map(|entry| entry.path())
            .collect();
        entries.sort();
        for path in entries {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if self.is_full() || name.starts_with('.') || name == "target" || path.is_symlink() {
                continue;
            }
            if path.is_dir() {
                self.files(root, &path)?;
            } else if is_text(&path) {
                let relative = path.strip_prefix(root).unwrap_or(&path);
                let prefix = format!("{}:", relative.display());
                // A file that vanished or may not be read is not part of the tour.
                let _ = self.lines(&path, &prefix);
            }
        }
        Ok(())
    }

    fn each_line(&mut self, path: &Path, mut visit: impl FnMut(&mut Self, &[u8])) -> Result<()> {
        let failed = |error| unreadable("cannot read the text", error, path);
        let mut reader = BufReader::new(File::open(path).map_err(failed)?);
        let mut line = Vec::new();
        while !self.is_full() {
            line.clear();
            let read = (&mut reader)
                .take(LINE_LEN_MAX as u64)
                .read_until(b'\n', &mut line)
                .map_err(failed)?;
            if read == 0 {
                break;
            }
            self.lines += 1;
            let end = line.trim_ascii_end().len();
            visit(self, &line[..end]);
        }
        Ok(())
    }
}

/// Whether the beginning of a file looks like text.
fn is_text(path: &Path) -> bool {
    let mut head = Vec::new();
    File::open(path)
        .and_then(|file| file.take(4096).read_to_end(&mut head))
        .is_ok()
        && !head.is_empty()
        && !head.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(text: &str) -> Vec<(String, String)> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("text");
        fs::write(&path, text).unwrap();
        let (_, records) = Source::choose(Some(&path)).unwrap().records().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        records
            .into_iter()
            .map(|(key, value)| (text(key), text(value)))
            .collect()
    }

    #[test]
    fn the_key_is_the_first_field_or_the_number_of_the_line() {
        let found = records("0041;LETTER A\nplain words\n\nx\ty\n");
        let expected = [
            ("0041", "0041;LETTER A"),
            ("2", "plain words"),
            ("3", ""),
            ("x", "x\ty"),
        ];
        assert_eq!(
            found,
            expected.map(|(key, value)| (key.to_string(), value.to_string()))
        );
    }

    #[test]
    fn a_key_that_comes_again_replaces_the_earlier() {
        assert_eq!(
            records("a;1\na;2\n"),
            [("a".to_string(), "a;2".to_string())]
        );
    }

    #[test]
    fn a_directory_gives_the_lines_of_its_text_files() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("sub/target")).unwrap();
        fs::write(dir.path().join("sub/a.txt"), "one\ntwo\n").unwrap();
        fs::write(dir.path().join("sub/target/b.txt"), "skipped\n").unwrap();
        fs::write(dir.path().join("binary"), "\0").unwrap();
        let (lines, records) = Source::choose(Some(dir.path())).unwrap().records().unwrap();
        assert_eq!(lines, 2);
        assert_eq!(records[1], (b"sub/a.txt:2".to_vec(), b"two".to_vec()));
    }

    #[test]
    fn no_text_is_an_error_with_a_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let Err(error) = Source::choose(Some(dir.path())).unwrap().records() else {
            panic!("an empty directory has no text")
        };
        assert!(
            error
                .to_string()
                .ends_with("name a text file: `azekura tour FILE`"),
            "{error}"
        );
    }
}
