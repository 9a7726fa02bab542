//! Which keys a search shows: text inside, at the start or end, regular expressions, edit distance.
//!
//! A [`Search`] is made once and used for many stores. Every pattern becomes one regular expression
//! over bytes, searched in linear time whatever the pattern is; edit distance is a table of its own,
//! cut short where a key is already farther than the worst that is kept.
//!
//! Letters: in `ignore_case` and `whole_words` they are those of Unicode if the texts are UTF-8, and
//! those of ASCII if not. Keys need not be UTF-8.
//!
//! It knows readers, and nothing of how they find records.

use std::collections::BinaryHeap;
use std::fmt::Write;
use std::ops::ControlFlow;

use regex::bytes::{Regex, RegexBuilder};

use crate::engine::{Reader, Visit};
use crate::error::{Error, Kind, Result};

/// Where in a key a text must stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Somewhere.
    Anywhere,
    /// At its start.
    Start,
    /// At its end.
    End,
    /// From its start to its end.
    Whole,
}

/// A way to choose keys.
///
/// ```
/// use std::ops::ControlFlow;
/// use azekura::Verbs;
/// use azekura::verbs::{Place, Search};
///
/// let db = azekura::testkit::ModelDb::new(); // any engine
/// db.put_all(&[(b"apple", b""), (b"apply", b""), (b"maple", b""), (b"Snapple", b"")])?;
///
/// let texts = Search::text(&[b"apple", b"maple"], Place::Anywhere, false, false)?;
/// let mut keys = Vec::new();
/// let shown = db.search(&texts, 2, &mut |key, _value| {
///     keys.push(key.to_vec());
///     ControlFlow::Continue(())
/// })?;
/// assert_eq!(shown, 2);
/// assert_eq!(keys, [&b"Snapple"[..], b"apple"]);
///
/// let near = Search::nearest_text("appla");
/// db.search(&near, 1, &mut |key, _| {
///     assert_eq!(key, b"apple");
///     ControlFlow::Continue(())
/// })?;
/// # azekura::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
pub struct Search(How);

#[derive(Clone, Debug)]
enum How {
    Pattern(Regex),
    NearestBytes(Vec<u8>),
    NearestChars(Vec<char>),
}

impl Search {
    /// The names `named` understands.
    pub const MODES: &[&str] = &[
        "contain",
        "begin",
        "end",
        "equal",
        "containcase",
        "begincase",
        "endcase",
        "equalcase",
        "containword",
        "containcaseword",
        "regex",
        "edit",
        "editbin",
    ];

    /// Keys in which one of `texts` stands at `place`.
    ///
    /// With `whole_words`, no letter, digit or underscore touches it from outside where it has one
    /// itself. No text: no key. `Invalid` if the texts are too long together (about 1 MiB).
    pub fn text(
        texts: &[&[u8]],
        place: Place,
        ignore_case: bool,
        whole_words: bool,
    ) -> Result<Self> {
        let unicode = texts.iter().all(|text| std::str::from_utf8(text).is_ok());
        let alternatives: Vec<String> = texts
            .iter()
            .map(|text| alternative(text, unicode, whole_words))
            .collect();
        let (start, end) = match place {
            Place::Anywhere => ("", ""),
            Place::Start => (r"\A", ""),
            Place::End => ("", r"\z"),
            Place::Whole => (r"\A", r"\z"),
        };
        // An empty class is what never matches: an empty alternation would match everywhere.
        let body = if texts.is_empty() {
            "[^\\s\\S]".into()
        } else {
            alternatives.join("|")
        };
        compile(&format!("{start}(?:{body}){end}"), unicode, ignore_case)
    }

    /// Keys in which the regular expression matches somewhere.
    ///
    /// The syntax is that of the crate `regex`: `(?i)` ignores case, `(?-u)` leaves Unicode, and
    /// there are no back references. `Invalid` if it is not one, with the place of the mistake.
    pub fn regex(pattern: &str) -> Result<Self> {
        compile(pattern, true, false)
    }

    /// Keys by the number of characters to insert, remove or replace until they are `text`.
    /// Bytes of a key that are not UTF-8 count as one replacement character each run.
    pub fn nearest_text(text: &str) -> Self {
        Self(How::NearestChars(text.chars().collect()))
    }

    /// Keys by the number of bytes to insert, remove or replace until they are `bytes`.
    pub fn nearest_bytes(bytes: &[u8]) -> Self {
        Self(How::NearestBytes(bytes.to_vec()))
    }

    /// A search by the name of its mode, for command lines; [`MODES`](Self::MODES) lists them.
    ///
    /// `case` ignores case, `word` takes whole words. A name that ends in `*` reads `pattern` as
    /// alternatives, one a line. `Invalid`: an unknown name, or a pattern that is none.
    pub fn named(mode: &str, pattern: &[u8]) -> Result<Self> {
        let utf8 = || {
            std::str::from_utf8(pattern)
                .map_err(|_| Error::new(Kind::Invalid, format!("{mode} takes a text in UTF-8")))
        };
        match mode {
            "regex" => return Self::regex(utf8()?),
            "edit" => return Ok(Self::nearest_text(utf8()?)),
            "editbin" => return Ok(Self::nearest_bytes(pattern)),
            _ => {}
        }
        let (name, several) = cut(mode, "*");
        let (name, words) = cut(name, "word");
        let (name, case) = cut(name, "case");
        let place = match name {
            "contain" | "contains" => Place::Anywhere,
            "begin" | "begins" => Place::Start,
            "end" | "ends" => Place::End,
            "equal" | "equals" => Place::Whole,
            _ => {
                return Err(
                    Error::new(Kind::Invalid, format!("no search mode is called {mode}"))
                        .remedy(format!("choose one of {}", Self::MODES.join(", "))),
                );
            }
        };
        let texts: Vec<&[u8]> = if several {
            pattern.split(|byte| *byte == b'\n').collect()
        } else {
            vec![pattern]
        };
        Self::text(&texts, place, case, words)
    }

    /// Shows the records of `reader` that are chosen; see `Verbs::search`.
    pub(super) fn run<R: Reader + ?Sized>(
        &self,
        reader: &R,
        limit: usize,
        visit: &mut Visit<'_>,
    ) -> Result<u64> {
        let limit = if limit == 0 { usize::MAX } else { limit };
        match &self.0 {
            How::Pattern(regex) => {
                let mut count = 0;
                reader.scan(None, &mut |key, value| {
                    if !regex.is_match(key) {
                        return ControlFlow::Continue(());
                    }
                    count += 1;
                    visit(key, value)?;
                    if count as usize == limit {
                        ControlFlow::Break(())
                    } else {
                        ControlFlow::Continue(())
                    }
                })?;
                Ok(count)
            }
            How::NearestBytes(text) => nearest(reader, limit, visit, &mut |key, max| {
                distance(text, key, max)
            }),
            How::NearestChars(text) => nearest(reader, limit, visit, &mut |key, max| {
                let key: Vec<char> = String::from_utf8_lossy(key).chars().collect();
                distance(text, &key, max)
            }),
        }
    }
}

/// The name without this end, and whether it had it.
fn cut<'n>(name: &'n str, end: &str) -> (&'n str, bool) {
    let rest = name.strip_suffix(end);
    rest.map_or((name, false), |name| (name, true))
}

/// The regular expression of one text; `unicode`: all texts are UTF-8.
fn alternative(text: &[u8], unicode: bool, whole_words: bool) -> String {
    let mut escaped = String::new();
    let (first, last);
    if let (true, Ok(text)) = (unicode, std::str::from_utf8(text)) {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        (first, last) = (text.starts_with(is_word), text.ends_with(is_word));
        escaped.push_str(&regex::escape(text));
    } else {
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        (first, last) = (
            text.first().is_some_and(is_word),
            text.last().is_some_and(is_word),
        );
        for byte in text {
            write!(escaped, "\\x{byte:02x}").expect("a string takes every write");
        }
    }
    if whole_words && first {
        escaped.insert_str(0, r"\b{start-half}");
    }
    if whole_words && last {
        escaped.push_str(r"\b{end-half}");
    }
    escaped
}

fn compile(pattern: &str, unicode: bool, ignore_case: bool) -> Result<Search> {
    RegexBuilder::new(pattern)
        .unicode(unicode)
        .case_insensitive(ignore_case)
        .build()
        .map(|regex| Search(How::Pattern(regex)))
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(limit) => {
                Error::new(Kind::Invalid, "search pattern is too large")
                    .detail(format!(
                        "it takes more than {}",
                        crate::error::size(limit as u64)
                    ))
                    .remedy("search for less at once")
            }
            // The crate draws the mistake over several lines; the last one names it.
            error => {
                let text = error.to_string();
                let last = text.lines().last().unwrap_or_default();
                Error::new(Kind::Invalid, "not a regular expression")
                    .detail(last.trim_start_matches("error: ").to_owned())
            }
        })
}

/// Collects the `limit` records with the smallest distance, then shows them, nearest first.
fn nearest<R: Reader + ?Sized>(
    reader: &R,
    limit: usize,
    visit: &mut Visit<'_>,
    distance_to: &mut dyn FnMut(&[u8], usize) -> Option<usize>,
) -> Result<u64> {
    // The worst is on top; equals are ordered by key, so that the outcome is the same every time.
    let mut kept: BinaryHeap<(usize, Vec<u8>, Vec<u8>)> = BinaryHeap::new();
    reader.scan(None, &mut |key, value| {
        let full = kept.len() == limit;
        let max = if full {
            kept.peek().map_or(0, |worst| worst.0)
        } else {
            usize::MAX
        };
        if let Some(distance) = distance_to(key, max) {
            let nearer = |worst: &(usize, Vec<u8>, Vec<u8>)| (distance, key) < (worst.0, &worst.1);
            if !full || kept.peek().is_some_and(nearer) {
                if full {
                    kept.pop();
                }
                kept.push((distance, key.to_vec(), value.to_vec()));
            }
        }
        ControlFlow::Continue(())
    })?;
    let mut count = 0;
    for (_, key, value) in kept.into_sorted_vec() {
        count += 1;
        if visit(&key, &value).is_break() {
            break;
        }
    }
    Ok(count)
}

/// The Levenshtein distance, or `None` if it is more than `max`. Time: the product of the lengths.
fn distance<T: PartialEq>(a: &[T], b: &[T], max: usize) -> Option<usize> {
    if a.len().abs_diff(b.len()) > max {
        return None;
    }
    // row[j]: distance between the part of `a` read so far and the first j of `b`.
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        let mut least = row[0];
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
            least = least.min(row[j + 1]);
        }
        if least > max {
            return None;
        }
    }
    (row[b.len()] <= max).then_some(row[b.len()])
}
