//! Records as streams of bytes for the outside world: what `export` writes and `import` reads.
//!
//! | name | a record is | for |
//! |---|---|---|
//! | `tsv` | a line: key, tab, value, with escapes | people, spreadsheets, line tools |
//! | `flat` | two length-prefixed blobs | Tkrzw and its tools, any bytes, speed |
//! | `jsonl` | a line: an object with key and value | programs |
//!
//! Promises: a stream of records is read back as the same records; memory is bounded by the longest
//! record allowed; readers are total, and a broken record is one error that names its place (line
//! or offset), what was found and what was expected. It does not know stores.

#![deny(clippy::indexing_slicing, clippy::unwrap_used)]

mod flat;
mod jsonl;
mod lines;
mod tsv;

use std::io::{self, BufRead, Write};
use std::path::Path;

use azekura::{Error, Kind, Result};

pub(crate) use jsonl::Line as JsonRecord;

/// A stream's shape.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// A line per record: key, tab, value; \\ \t \n \r \xHH stand for the bytes that would disturb
    Tsv,
    /// Tkrzw's flat records: key and value in turn, each with its length before it
    Flat,
    /// A JSON object per line: {"key":..,"value":..}, or base64 where the bytes are not UTF-8
    Jsonl,
}

/// The longest key and value a reader lets through.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Bytes of a key.
    pub(crate) key: u64,
    /// Bytes of a value.
    pub(crate) value: u64,
}

/// One record, reused from call to call.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    /// The key.
    pub(crate) key: Vec<u8>,
    /// The value.
    pub(crate) value: Vec<u8>,
}

/// Reads records one by one.
pub(crate) trait ReadRecords {
    /// Reads the next record; `false` at the end.
    fn read(&mut self, record: &mut Record) -> Result<bool>;
    /// Bytes of the stream already read.
    fn consumed(&self) -> u64;
}

impl Format {
    /// Reads records from `input`, which messages call `name`.
    pub(crate) fn reader<'i>(
        self,
        input: Box<dyn BufRead + 'i>,
        name: &Path,
        limits: Limits,
    ) -> Box<dyn ReadRecords + 'i> {
        let name = name.to_path_buf();
        match self {
            Self::Tsv => Box::new(tsv::Reader::new(input, name, limits)),
            Self::Flat => Box::new(flat::Reader::new(input, name, limits)),
            Self::Jsonl => Box::new(jsonl::Reader::new(input, name, limits)),
        }
    }

    /// Writes one record to `to`.
    pub(crate) fn write(self, to: &mut dyn Write, key: &[u8], value: &[u8]) -> io::Result<()> {
        match self {
            Self::Tsv => tsv::write(to, key, value),
            Self::Flat => flat::write(to, key, value),
            Self::Jsonl => jsonl::write(to, key, value),
        }
    }

    /// Writes what follows the last record.
    pub(crate) fn end(self, to: &mut dyn Write) -> io::Result<()> {
        match self {
            Self::Tsv | Self::Jsonl => Ok(()),
            Self::Flat => flat::end(to),
        }
    }
}

impl Limits {
    /// The limit of a "key" or a "value".
    fn of(self, what: &str) -> u64 {
        if what == "key" { self.key } else { self.value }
    }
}

/// Refuses a `what` of `len` bytes over its `limit`; `place` is "line 3" or the like.
fn check_len(what: &str, place: &str, len: u64, limit: u64) -> Result<()> {
    if len <= limit {
        return Ok(());
    }
    Err(Error::new(
        Kind::TooLarge,
        format!("the {what} of {place} is over the limit"),
    )
    .found(format!("{len} bytes"), format!("at most {limit} bytes")))
}

/// Reads `bytes` in each format; how many records there were. What is read is what is read again once written.
pub(crate) fn read_streams(bytes: &[u8]) -> u64 {
    const LIMITS: Limits = Limits {
        key: 1 << 16,
        value: 1 << 16,
    };
    let all = |format: Format, bytes: &[u8]| {
        let mut reader = format.reader(Box::new(bytes), Path::new("input"), LIMITS);
        let (mut records, mut record) = (Vec::new(), Record::default());
        while let Ok(true) = reader.read(&mut record) {
            records.push(std::mem::take(&mut record));
        }
        records
    };
    let mut count = 0;
    for format in [Format::Tsv, Format::Flat, Format::Jsonl] {
        let records = all(format, bytes);
        let mut written = Vec::new();
        for Record { key, value } in &records {
            let done = format.write(&mut written, key, value);
            assert!(done.is_ok(), "a vector takes what it is given");
        }
        assert_eq!(all(format, &written), records, "{format:?}");
        count += records.len() as u64;
    }
    count
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        key: 100_000,
        value: 100_000,
    };
    const ALL: [Format; 3] = [Format::Tsv, Format::Flat, Format::Jsonl];

    fn read(format: Format, bytes: &[u8]) -> Result<Vec<Record>> {
        let mut reader = format.reader(Box::new(bytes), Path::new("input"), LIMITS);
        let mut records = Vec::new();
        let mut record = Record::default();
        while reader.read(&mut record)? {
            records.push(std::mem::take(&mut record));
        }
        assert_eq!(
            reader.consumed(),
            bytes.len() as u64,
            "everything was looked at"
        );
        Ok(records)
    }

    #[test]
    fn streams_of_noise_end_and_what_they_hold_comes_back() {
        const PARTS: [&[u8]; 12] = [
            b"k\tv\n",
            b"\\x4",
            b"\\xff",
            b"\t",
            b"\n",
            b"{\"key\":\"a\",\"value\":\"b\"}\n",
            b"{\"key_base64\":\"/w==\",\"value\":\"\"}\n",
            b"{\"key\":",
            b"\x01k\x01v",
            b"\x81\x7f",
            b"\xff",
            b"\0",
        ];
        let (mut state, mut records) = (1u64, 0);
        for _ in 0..20_000 {
            let mut bytes = Vec::new();
            for _ in 0..6 {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                bytes.extend_from_slice(PARTS[(state >> 33) as usize % PARTS.len()]);
            }
            records += read_streams(&bytes);
        }
        assert!(records > 10_000, "{records}");
    }

    fn message(format: Format, bytes: &[u8]) -> String {
        read(format, bytes)
            .expect_err("broken input is refused")
            .to_string()
    }

    fn samples() -> Vec<Record> {
        let mut samples: Vec<Record> = (0..=255_u8)
            .map(|b| Record {
                key: vec![b'k', b],
                value: vec![b, b'\\', b'"', b],
            })
            .collect();
        for len in [0, 1, 127, 128, 129, 16_383, 16_384, 70_000] {
            samples.push(Record {
                key: vec![b'x'; len],
                value: vec![0xfe; len],
            });
        }
        let (key, value) = (
            "\u{6821}\u{5009}".into(),
            "\u{0}\u{7f}\u{2028}\u{e9}".into(),
        );
        samples.push(Record { key, value });
        samples
    }

    #[test]
    fn any_records_are_read_back_from_every_format() {
        for format in ALL {
            let mut bytes = Vec::new();
            for Record { key, value } in &samples() {
                format.write(&mut bytes, key, value).unwrap();
            }
            assert_eq!(read(format, &bytes).unwrap(), samples(), "{format:?}");
            assert!(read(format, b"").unwrap().is_empty());
        }
    }

    #[test]
    fn every_reader_answers_to_every_cut_and_every_changed_byte() {
        for format in ALL {
            let mut bytes = Vec::new();
            for (key, value) in [
                (&b"a\tb"[..], &b"\xff\x00"[..]),
                (b"", b"x"),
                (b"key", b"\"\\"),
            ] {
                format.write(&mut bytes, key, value).unwrap();
            }
            let mut refused = 0;
            for cut in 0..bytes.len() {
                refused += u32::from(read_any(format, &bytes[..cut]));
                for byte in [0, 1, b'\\', b'\n', b'"', 0x7f, 0xfe, 0xff, bytes[cut] ^ 1] {
                    let mut changed = bytes.clone();
                    changed[cut] = byte;
                    refused += u32::from(read_any(format, &changed));
                }
            }
            assert!(refused > 20, "{format:?} refused {refused}");
        }
    }

    /// Reads to the end or the first error; whether there was one. The point is that it returns.
    fn read_any(format: Format, bytes: &[u8]) -> bool {
        let mut reader = format.reader(Box::new(bytes), Path::new("input"), LIMITS);
        let mut record = Record::default();
        loop {
            match reader.read(&mut record) {
                Ok(true) => {}
                Ok(false) => return false,
                Err(_) => return true,
            }
        }
    }

    /// A format, an input with escapes, and its error: a row each.
    const BROKEN: &str = r#"
tsv a\tb\nsolo\n -> invalid: line 2 has no tab at input (found "solo", expected key, tab, value)
tsv a\tb\tc\n -> invalid: line 1 has a second tab at input (found column 4, expected key, tab, value); write tabs inside a value as \t
tsv a\tx\\q\n -> invalid: line 1 has an unknown escape in the value at input (found "\\q", expected \\ \t \n \r or \xHH)
jsonl {"key":"a","value":"b"}\n{"key":"a"}\n -> invalid: line 2 has no value at input (found {"key":"a"}, expected {"key":..,"value":..})
jsonl nonsense\n -> invalid: line 1 is not a JSON record at input (expected ident at column 2)
jsonl  ["a",null,"b",null]\n -> invalid: line 1 is not a JSON record at input (found an array, expected {"key":..,"value":..})
jsonl {"key":"a","key":"a","value":"b"}\n -> invalid: line 1 is not a JSON record at input (duplicate field `key` at column 16)
jsonl {"key":"a","key_base64":"YQ==","value":"b"}\n -> invalid: line 1 has two keys at input (found {"key":"a","key_base64":"YQ==","value":"b"}, expected {"key":..,"value":..})
jsonl {"key_base64":"@","value":"b"}\n -> invalid: line 1 has a key_base64 that is not base64 at input (found "@", expected padded base64)
flat key=value -> invalid: no flat record at input offset 0x0 (found byte 0x6b, expected 0xff or 0xfe)
flat \xff\x01a\xff\x05abc -> invalid: the stream ends inside a flat record's value at input offset 0x3 (found 3 bytes, expected 5 bytes)
flat \xff\x01a\xff\x00\xff\x01b -> invalid: the stream ends between a key and its value at input offset 0x8 (found the end, expected a value)
flat \xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f -> invalid: a length does not end at input offset 0x0 (found more than 64 bits, expected a 64-bit number)
flat \xff\x86\x8d\x21a -> too large: the key of a flat record is over the limit at input offset 0x0 (found 100001 bytes, expected at most 100000 bytes)
"#;

    #[test]
    fn broken_records_are_reported_with_place_found_and_expected() {
        for row in BROKEN.trim().lines() {
            let (input, expected) = row.split_once(" -> ").unwrap();
            let (format, bytes) = input.split_once(' ').unwrap();
            let format = <Format as clap::ValueEnum>::from_str(format, false).unwrap();
            let bytes = crate::text::unescape(bytes.as_bytes()).unwrap();
            assert_eq!(message(format, &bytes), expected);
        }
    }

    #[test]
    fn a_byte_order_mark_at_the_head_is_skipped_and_one_in_a_record_comes_back() {
        let record = |key: &str| Record {
            key: key.into(),
            value: b"v".to_vec(),
        };
        assert_eq!(
            read(Format::Tsv, b"\xef\xbb\xbfk\tv\n\xef\xbb\xbfk\tv\n").unwrap(),
            [record("k"), record("\u{feff}k")],
            "only at the head"
        );
        let lines = b"\xef\xbb\xbf{\"key\":\"k\",\"value\":\"v\"}\r\n";
        assert_eq!(read(Format::Jsonl, lines).unwrap(), [record("k")]);
        assert!(read(Format::Tsv, b"\xef\xbb\xbf").unwrap().is_empty());
        for format in ALL {
            let mut bytes = Vec::new();
            format
                .write(&mut bytes, "\u{feff}k".as_bytes(), b"v")
                .unwrap();
            assert_eq!(read(format, &bytes).unwrap(), [record("\u{feff}k")]);
        }
    }

    #[test]
    fn records_over_the_limit_are_refused_before_they_fill_the_memory() {
        let mut long = vec![b'k'; 3_000_000];
        long[100_001] = b'\t';
        for (format, bytes) in [
            (Format::Tsv, long.clone()),
            (Format::Tsv, b"\\x41".repeat(300_000)),
            (Format::Jsonl, long),
            (Format::Flat, b"\xff\xff\xff\xff\xff\x7fa".to_vec()),
        ] {
            let mut reader = format.reader(Box::new(&bytes[..]), Path::new("input"), LIMITS);
            let mut record = Record::default();
            let error = reader.read(&mut record).expect_err("too long");
            assert_eq!(error.kind(), Kind::TooLarge, "{error}");
            assert!(record.key.capacity() + record.value.capacity() < 2_000_000);
        }
    }

    #[test]
    fn metadata_of_flat_records_is_skipped_and_lines_may_end_as_on_windows() {
        let one = [Record {
            key: b"k".to_vec(),
            value: b"v".to_vec(),
        }];
        assert_eq!(
            read(Format::Flat, b"\xfe\x02me\xff\x01k\xff\x01v\xfe\x00").unwrap(),
            one
        );
        assert_eq!(
            read(Format::Flat, b"\xff\x01k\xfe\x02me\xff\x01v").unwrap(),
            one
        );
        assert_eq!(read(Format::Tsv, b"k\tv\r\n\n").unwrap(), one);
        assert_eq!(read(Format::Tsv, b"k\tv").unwrap(), one);
        assert_eq!(
            read(Format::Jsonl, b"\r\n {\"value\":\"v\",\"key\":\"k\"} \r\n").unwrap(),
            one
        );
    }
}
