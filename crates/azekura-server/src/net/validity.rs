//! When a certificate expires: the one field of X.509 that operators need and the TLS library does not report.
//!
//! The certificate is a tree of tags, lengths and contents (DER); what precedes the field is skipped. Decoding is total: the
//! result is a time or none. It verifies nothing.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// When the first certificate of a PEM file expires, in seconds since 1970.
pub(crate) fn expiry_of(path: &Path) -> Option<u64> {
    expiry(&CertificateDer::from_pem_file(path).ok()?)
}

/// When a certificate expires, in seconds since 1970.
fn expiry(certificate: &[u8]) -> Option<u64> {
    let (_, certificate, _) = element(certificate)?;
    let (_, mut rest, _) = element(certificate)?;
    if rest.first() == Some(&VERSION) {
        rest = element(rest)?.2;
    }
    // The serial number, the algorithm, the issuer.
    for _ in 0..3 {
        rest = element(rest)?.2;
    }
    let (tag, validity, _) = element(rest)?;
    let (_, _, end) = element(validity)?;
    let (form, end, _) = element(end)?;
    (tag == SEQUENCE).then_some(())?;
    time(form, std::str::from_utf8(end).ok()?)
}

/// The first element: its tag, its content, and what follows it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (len, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        0x81..=0x84 => {
            let (len, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let len = len
                .iter()
                .fold(0, |len, byte| len << 8 | usize::from(*byte));
            (len, rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(len)?;
    Some((*tag, content, rest))
}

/// A time as `YYMMDDHHMMSSZ` or, with four digits for the year, as the other form has it.
fn time(form: u8, text: &str) -> Option<u64> {
    let text = text.strip_suffix('Z')?;
    let (year, rest) = match form {
        UTC_TIME => {
            let (year, rest) = text.split_at_checked(2)?;
            let year: u64 = year.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = text.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    let part = |at: usize| rest.get(at..at + 2)?.parse::<u64>().ok();
    let (month, day) = (part(0)?, part(2)?);
    let (hour, minute, second) = (part(4)?, part(6)?, part(8)?);
    if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Years begin in March, so that a leap day is the last of one.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day;
    let days = days.checked_sub(719_469)?;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

#[cfg(test)]
#[expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test may fail by a panic"
)]
mod tests {
    use super::*;

    #[test]
    fn times_of_both_forms_are_seconds_since_1970() {
        for (form, text, expected) in [
            (UTC_TIME, "700101000000Z", Some(0)),
            (UTC_TIME, "000301000000Z", Some(951_868_800)),
            (UTC_TIME, "240229235959Z", Some(1_709_251_199)),
            (GENERALIZED_TIME, "21000101000000Z", Some(4_102_444_800)),
            (UTC_TIME, "240229235959", None),
            (UTC_TIME, "241329235959Z", None),
            (UTC_TIME, "24", None),
            (0, "240229235959Z", None),
        ] {
            assert_eq!(time(form, text), expected, "{text}");
        }
    }

    #[test]
    fn the_expiry_of_a_certificate_is_found_and_no_cut_or_flip_panics() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sockets/certificates");
        let path = folder.join("server.pem");
        assert!(expiry_of(&path).unwrap() > 1_700_000_000);
        assert_eq!(expiry_of(&folder.join("server-key.pem")), None);
        let whole = CertificateDer::from_pem_file(&path).unwrap();
        for len in 0..whole.len() {
            let _ = expiry(&whole[..len]);
        }
        for at in 0..whole.len().min(400) {
            for bit in 0..8 {
                let mut bytes = whole.to_vec();
                bytes[at] ^= 1 << bit;
                let _ = expiry(&bytes);
            }
        }
    }
}
