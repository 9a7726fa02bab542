//! Bytes as text and back: what a key or value looks like on a terminal and in an argument.
//!
//! ```text
//!   (default)   printable UTF-8 as it is; \\ \t \n \r and \xHH for the rest
//!   --hex       two digits per byte
//!   --base64    the standard alphabet, padded
//! ```
//!
//! Promises: what is shown is one line and can be read back exactly (`--escape` for the default
//! form; without it an argument means its bytes as they are). Reading is total: every byte sequence
//! is either understood or refused with its place. It does not know records or files.

#![deny(clippy::indexing_slicing, clippy::unwrap_used)]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use azekura::{Error, Kind, Result};
use data_encoding::{BASE64, HEXLOWER, HEXLOWER_PERMISSIVE};

/// How keys and values are written in arguments and shown in results.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(crate) struct Coding {
    /// Keys and values are hexadecimal digits, in arguments and results
    #[arg(long, global = true, help_heading = "Text", conflicts_with_all = ["base64", "escape"])]
    hex: bool,
    /// Keys and values are base64, in arguments and results
    #[arg(long, global = true, help_heading = "Text", conflicts_with = "escape")]
    base64: bool,
    /// Arguments hold escapes (\\ \t \n \r \xHH), as results always do
    #[arg(long, global = true, help_heading = "Text")]
    escape: bool,
}

impl Coding {
    /// The bytes an argument stands for.
    pub(crate) fn read(self, argument: &OsStr) -> Result<Vec<u8>> {
        let bytes = argument.as_bytes();
        let decoded = if self.hex {
            HEXLOWER_PERMISSIVE
                .decode(bytes)
                .map_err(|error| (error.position, "hexadecimal"))
        } else if self.base64 {
            BASE64
                .decode(bytes)
                .map_err(|error| (error.position, "base64"))
        } else if self.escape {
            unescape(bytes).map_err(|position| (position, "escaped text"))
        } else {
            Ok(bytes.to_vec())
        };
        decoded.map_err(|(position, form)| {
            Error::new(
                Kind::Invalid,
                format!("an argument is not {form} from byte {} on", position + 1),
            )
            .detail(format!("found {}", azekura::error::quote(bytes)))
        })
    }

    /// The bytes several arguments stand for.
    pub(crate) fn read_all(self, arguments: &[impl AsRef<OsStr>]) -> Result<Vec<Vec<u8>>> {
        arguments
            .iter()
            .map(|argument| self.read(argument.as_ref()))
            .collect()
    }

    /// `bytes` as one line of text.
    pub(crate) fn show(self, bytes: &[u8]) -> String {
        if self.hex {
            HEXLOWER.encode(bytes)
        } else if self.base64 {
            BASE64.encode(bytes)
        } else {
            escape(bytes)
        }
    }
}

/// `bytes` as one line of printable text without tabs.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                '\t' => text.push_str("\\t"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                // A byte-order mark is invisible, and at the head of a file it would be taken for one.
                c if c.is_control() || c == '\u{feff}' => {
                    let mut buf = [0; 4];
                    c.encode_utf8(&mut buf)
                        .bytes()
                        .for_each(|b| push_hex(&mut text, b));
                }
                c => text.push(c),
            }
        }
        chunk.invalid().iter().for_each(|b| push_hex(&mut text, *b));
    }
    text
}

fn push_hex(text: &mut String, byte: u8) {
    text.push_str("\\x");
    HEXLOWER.encode_append(&[byte], text);
}

/// The bytes that escaped text stands for, or the position of the escape that means nothing.
///
/// Beyond what [`escape`] writes it knows the other escapes of C: `\a \b \f \v \e`, a backslash before
/// a quote, and up to three octal digits.
pub(crate) fn unescape(text: &[u8]) -> std::result::Result<Vec<u8>, usize> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, tail)) = rest.split_first() {
        if first != b'\\' {
            bytes.push(first);
            rest = tail;
            continue;
        }
        let position = text.len() - rest.len();
        let (&letter, tail) = tail.split_first().ok_or(position)?;
        rest = tail;
        bytes.push(match letter {
            b'\\' | b'"' | b'\'' => letter,
            b't' => b'\t',
            b'n' => b'\n',
            b'r' => b'\r',
            b'a' => 0x07,
            b'b' => 0x08,
            b'f' => 0x0c,
            b'v' => 0x0b,
            b'e' => 0x1b,
            b'x' => {
                let (digits, tail) = rest.split_at_checked(2).ok_or(position)?;
                rest = tail;
                let byte = HEXLOWER_PERMISSIVE.decode(digits).map_err(|_| position)?;
                *byte.first().ok_or(position)?
            }
            b'0'..=b'7' => {
                let mut value = u16::from(letter - b'0');
                for _ in 0..2 {
                    let Some((&digit @ b'0'..=b'7', tail)) = rest.split_first() else {
                        break;
                    };
                    value = value * 8 + u16::from(digit - b'0');
                    rest = tail;
                }
                u8::try_from(value).map_err(|_| position)?
            }
            _ => return Err(position),
        });
    }
    Ok(bytes)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn every_byte_pair_survives_being_escaped_and_read_back() {
        for first in 0..=255 {
            for second in 0..=255 {
                let bytes = [first, second, b'7'];
                let text = escape(&bytes);
                assert!(!text.contains(['\t', '\n', '\r', '\0']), "{text:?}");
                assert_eq!(unescape(text.as_bytes()), Ok(bytes.to_vec()), "{text}");
            }
        }
    }

    #[test]
    fn printable_text_is_shown_as_it_is() {
        assert_eq!(
            escape("\u{6821}\u{5009} azekura".as_bytes()),
            "\u{6821}\u{5009} azekura"
        );
        assert_eq!(escape(b"a\tb\\c\n\xff\x7f"), "a\\tb\\\\c\\n\\xff\\x7f");
    }

    #[test]
    fn escapes_of_c_are_read_and_unknown_ones_are_refused_with_their_place() {
        assert_eq!(
            unescape(b"\\a\\018\\e\\x41"),
            Ok(b"\x07\x018\x1bA".to_vec())
        );
        for (text, position) in [
            (&b"ab\\q"[..], 2),
            (b"\\", 0),
            (b"x\\x4", 1),
            (b"\\xzz", 0),
            (b"\\777", 0),
        ] {
            assert_eq!(unescape(text), Err(position), "{}", text.escape_ascii());
        }
    }

    #[test]
    fn arguments_in_hex_and_base64_are_decoded_or_refused() {
        let hex = Coding {
            hex: true,
            ..Coding::default()
        };
        assert_eq!(hex.read(OsStr::new("00fF")).unwrap(), [0, 255]);
        assert_eq!(hex.show(&[0, 255]), "00ff");
        assert_eq!(
            hex.read(OsStr::new("00g0")).unwrap_err().to_string(),
            "invalid: an argument is not hexadecimal from byte 3 on (found \"00g0\")"
        );
        let base64 = Coding {
            base64: true,
            ..Coding::default()
        };
        assert_eq!(
            base64.read(OsStr::new(&base64.show(b"\xff\x00"))).unwrap(),
            b"\xff\x00"
        );
    }
}
