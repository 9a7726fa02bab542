//! Numbers as memcached's protocols write them: decimal digits, and base64 for keys that are no text.
//!
//! Reading is total and allocates nothing; what is not wholly a number is none, nor is one beyond its type. Base64 is read as
//! memcached reads it, which skips foreign bytes and takes padding for zeros; no library does, and a key must mean the same
//! to both servers. It knows no commands.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

/// Longest words of numbers of 64 and of 32 bits: beyond, memcached does not look at them.
const LONG_LEN_MAX: usize = 22;
const SHORT_LEN_MAX: usize = 11;

/// Digits only, up to 2^64 - 1.
#[inline]
fn digits(token: &[u8]) -> Option<u64> {
    if token.is_empty() {
        return None;
    }
    let mut number = 0u64;
    for byte in token {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(number)
}

/// A number of 64 bits: digits only.
#[inline]
pub(crate) fn unsigned(token: &[u8]) -> Option<u64> {
    digits(token).filter(|_| token.len() <= LONG_LEN_MAX)
}

/// A number of 32 bits: digits only.
#[inline]
pub(crate) fn short(token: &[u8]) -> Option<u32> {
    let number = digits(token).filter(|_| token.len() <= SHORT_LEN_MAX)?;
    u32::try_from(number).ok()
}

/// A number of 31 bits and a minus, which alone is 0.
#[inline]
pub(crate) fn int(token: &[u8]) -> Option<i32> {
    let number = match token {
        _ if token.len() > SHORT_LEN_MAX => return None,
        b"-" => 0,
        [b'-', rest @ ..] => 0i64.checked_sub_unsigned(digits(rest)?)?,
        _ => i64::try_from(digits(token)?).ok()?,
    };
    i32::try_from(number).ok()
}

/// A number of 63 bits as C reads it: it may begin with a sign, and with any number of zeros.
#[inline]
pub(crate) fn signed(token: &[u8]) -> Option<i64> {
    match token {
        [b'-', rest @ ..] => 0i64.checked_sub_unsigned(digits(rest)?),
        [b'+', rest @ ..] => i64::try_from(digits(rest)?).ok(),
        _ => i64::try_from(digits(token)?).ok(),
    }
}

/// A number of 64 bits as C reads it, below zero none.
#[inline]
pub(crate) fn loose(token: &[u8]) -> Option<u64> {
    match token {
        [b'-', rest @ ..] => digits(rest).filter(|number| *number == 0),
        [b'+', rest @ ..] => digits(rest),
        _ => digits(token),
    }
}

/// What C takes for space.
pub(crate) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Appends the digits of a number.
#[inline]
pub(crate) fn push(output: &mut Vec<u8>, number: u64) {
    if number < 10 {
        output.push(b'0' + number as u8);
        return;
    }
    let mut digits = [0u8; 20];
    let mut rest = number;
    let mut count = 0;
    for place in digits.iter_mut().rev() {
        *place = b'0' + (rest % 10) as u8;
        rest /= 10;
        count += 1;
        if rest == 0 {
            break;
        }
    }
    output.extend_from_slice(digits.get(20 - count..).unwrap_or_default());
}

/// Appends a key as a word of a line: what is no printable ASCII, a space and `%` are a `%` and two hexadecimal digits, so
/// that no key ends its line, and each can be read back.
pub(crate) fn push_key(output: &mut Vec<u8>, key: &[u8]) {
    push_safe(output, key, |byte| byte.is_ascii_graphic() && byte != b'%');
}

/// Appends a key as a part of an address of the web: but for letters, digits and `-._~`, each byte is a `%` and two
/// hexadecimal digits.
pub(crate) fn push_uri(output: &mut Vec<u8>, key: &[u8]) {
    let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    push_safe(output, key, is_safe);
}

fn push_safe(output: &mut Vec<u8>, key: &[u8], is_safe: impl Fn(u8) -> bool) {
    for byte in key {
        if is_safe(*byte) {
            output.push(*byte);
        } else {
            let digit = |of: u8| of + if of > 9 { b'A' - 10 } else { b'0' };
            output.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The value of a base64 digit.
const fn sextet(byte: u8) -> Option<u32> {
    Some(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    } as u32)
}

/// Decodes padded base64 into `room`; returns how many bytes it is. `None` if it is no base64, or longer than the room.
///
/// What is no digit of base64 is passed over; what counts, padding too, must be of groups of four. Padding is a zero
/// wherever it stands in its group, which is the last and is shorter by as much, one byte or two. So does memcached, and
/// keys must mean the same to both.
pub(crate) fn from_base64(text: &[u8], room: &mut [u8]) -> Option<usize> {
    let digits = || {
        text.iter().filter_map(|byte| match byte {
            b'=' => Some(None),
            digit => sextet(*digit).map(Some),
        })
    };
    let count = digits().count();
    if count == 0 || !count.is_multiple_of(4) {
        return None;
    }
    let mut filled = 0;
    let mut digits = digits();
    for _ in 0..count / 4 {
        let (mut bits, mut padding) = (0, 0);
        for digit in digits.by_ref().take(4) {
            padding += usize::from(digit.is_none());
            bits = bits << 6 | digit.unwrap_or(0);
        }
        let len = 3_usize.checked_sub(padding).filter(|len| *len > 0)?;
        for place in 0..len {
            *room.get_mut(filled)? = (bits >> (16 - 8 * place)) as u8;
            filled += 1;
        }
        if padding > 0 {
            break;
        }
    }
    Some(filled)
}

/// Appends padded base64.
pub(crate) fn push_base64(output: &mut Vec<u8>, bytes: &[u8]) {
    for group in bytes.chunks(3) {
        let mut bits = 0u32;
        for place in 0..3 {
            bits = bits << 8 | group.get(place).map_or(0, |byte| u32::from(*byte));
        }
        for place in 0..4 {
            let digit = (bits >> (18 - 6 * place)) & 63;
            output.push(if place <= group.len() {
                BASE64.get(digit as usize).copied().unwrap_or(b'=')
            } else {
                b'='
            });
        }
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may fail by a panic")]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_what_is_none_is_refused() {
        for number in [0, 9, 10, 99, 100, 12345, u64::MAX] {
            let mut digits = Vec::new();
            push(&mut digits, number);
            assert_eq!(digits, number.to_string().as_bytes());
            assert_eq!(unsigned(&digits), Some(number));
        }
        for bad in [
            "",
            "+",
            "+1",
            "-",
            "-1",
            "1a",
            "a",
            "18446744073709551616",
            "1 ",
        ] {
            assert_eq!(unsigned(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(signed(b"-5"), Some(-5));
        assert_eq!(signed(b"+5"), Some(5));
        assert_eq!(signed(b"-+5"), None);
        assert_eq!(signed(b"9223372036854775808"), None);
        assert_eq!(signed(b"-9223372036854775808"), Some(i64::MIN));
    }

    #[test]
    fn what_is_odd_about_numbers_is_so_in_memcached() {
        let zeros = |count: usize| "0".repeat(count);
        for (text, number) in [("-", 0), ("-0", 0), ("-5", -5), ("2147483647", i32::MAX)] {
            assert_eq!(int(text.as_bytes()), Some(number), "{text}");
        }
        for bad in ["", "+5", "--5", "2147483648", "-2147483649", "5-"] {
            assert_eq!(int(bad.as_bytes()), None, "{bad}");
        }
        // Of digits, the word may have so many.
        assert_eq!(int(zeros(11).as_bytes()), Some(0));
        assert_eq!(int(zeros(12).as_bytes()), None);
        assert_eq!(int(format!("-{}", zeros(11)).as_bytes()), None);
        assert_eq!(short(b"4294967295"), Some(u32::MAX));
        assert_eq!(short(b"4294967296"), None);
        assert_eq!(short(zeros(12).as_bytes()), None);
        assert_eq!(unsigned(zeros(22).as_bytes()), Some(0));
        assert_eq!(unsigned(zeros(23).as_bytes()), None);
        assert_eq!(loose(format!("+{}7", zeros(30)).as_bytes()), Some(7));
        assert_eq!(
            (loose(b"-00"), loose(b"-1"), loose(b"-")),
            (Some(0), None, None)
        );
        assert!(is_space(0x0b) && is_space(b' ') && !is_space(0x0e) && !is_space(8));
    }

    #[test]
    fn base64_comes_back_and_what_is_none_is_refused() {
        for len in 0..=7 {
            let bytes: Vec<u8> = (0..len).map(|i| 249 + i).collect();
            let mut text = Vec::new();
            push_base64(&mut text, &bytes);
            let mut room = [0; 7];
            let filled = from_base64(&text, &mut room);
            assert_eq!(
                filled.map(|n| &room[..n]),
                (len > 0).then_some(&bytes[..]),
                "{len}"
            );
        }
        let mut text = Vec::new();
        push_base64(&mut text, b"azekura");
        assert_eq!(text, b"YXpla3VyYQ==");
        for bad in ["", "a", "a===", "====", "####", "YXpla3VyYQ="] {
            assert_eq!(from_base64(bad.as_bytes(), &mut [0; 9]), None, "{bad}");
        }
        // As memcached reads what is not as it should be.
        for (text, bytes) in [
            ("a#zQ=", "k4"),
            ("az=Q", "k0"),
            ("azQ=YXpl", "k4"),
            ("YR==", "a"),
        ] {
            let mut room = [0; 9];
            let filled = from_base64(text.as_bytes(), &mut room);
            assert_eq!(filled.map(|n| &room[..n]), Some(bytes.as_bytes()), "{text}");
        }
        assert_eq!(from_base64(b"YXpla3VyYQ==", &mut [0; 6]), None);
    }
}
