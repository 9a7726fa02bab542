//! Requests and answers of Redis, for a load of the same records beside it: `SET`, `GET`, `MGET` and `DEL`.
//!
//! A request is a list of texts, each after its length. It knows as much of the protocol as the four answers need, and no
//! sockets.

use std::io::Write as _;

use azekura::error::Result;

use super::form::{Answer, Ask, Keys, Met, front, other_value, unexpected};
use crate::generate::Values;

/// Adds the request for the keys `numbers` to `out`: more than one for a get only.
pub(super) fn request(
    ask: Ask,
    numbers: &[u64],
    keys: &mut Keys,
    values: &Values,
    out: &mut Vec<u8>,
) {
    let word: &[u8] = match ask {
        Ask::Set => b"SET",
        Ask::Get if numbers.len() > 1 => b"MGET",
        Ask::Get => b"GET",
        Ask::Remove => b"DEL",
    };
    let count = 1 + numbers.len() + usize::from(ask == Ask::Set);
    let _ = write!(out, "*{count}\r\n");
    text(word, out);
    for number in numbers {
        text(keys.of(*number), out);
        if ask == Ask::Set {
            text(values.of(*number), out);
        }
    }
}

fn text(bytes: &[u8], out: &mut Vec<u8>) {
    let _ = write!(out, "${}\r\n", bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// The answer to that request at the front of `input`; `None` if it is not all there yet. Values are compared if `verify`.
pub(super) fn answer(
    ask: Ask,
    numbers: &[u64],
    values: &Values,
    verify: bool,
    input: &[u8],
) -> Result<Option<Answer>> {
    if ask != Ask::Get {
        let answers: &[(&[u8], u64)] = match ask {
            Ask::Set => &[(b"+OK\r\n", 1)],
            _ => &[(b":1\r\n", 1), (b":0\r\n", 0)],
        };
        return Answer::one_of(answers, input);
    }
    let (mut at, mut hits) = (0, 0);
    let mut expected = Vec::new();
    if numbers.len() > 1 {
        let _ = write!(expected, "*{}\r\n", numbers.len());
        match front(input, &expected) {
            Met::Whole => at = expected.len(),
            Met::Part => return Ok(None),
            Met::Other => return Err(unexpected(input)),
        }
    }
    for number in numbers {
        let value = values.of(*number);
        let rest = &input[at..];
        expected.clear();
        let _ = write!(expected, "${}\r\n", value.len());
        match (front(rest, &expected), front(rest, b"$-1\r\n")) {
            (Met::Whole, _) => {
                let start = expected.len();
                let Some(block) = rest.get(start..start + value.len() + 2) else {
                    return Ok(None);
                };
                let (found, end) = block.split_at(value.len());
                if end != b"\r\n" || (verify && found != value) {
                    return Err(other_value(&number.to_string().into_bytes()));
                }
                at += start + block.len();
                hits += 1;
            }
            (_, Met::Whole) => at += 5,
            (Met::Part, _) | (_, Met::Part) => return Ok(None),
            _ => return Err(unexpected(rest)),
        }
    }
    Ok(Some(Answer { len: at, hits }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(ask: Ask, numbers: &[u64], answer: &[u8]) -> Result<Answer> {
        let values = Values::new(3);
        for len in 0..answer.len() {
            let part = super::answer(ask, numbers, &values, true, &answer[..len])?;
            assert_eq!(part, None, "{len} bytes");
        }
        Ok(super::answer(ask, numbers, &values, true, answer)?.unwrap())
    }

    #[test]
    fn requests_are_lists_of_texts_and_answers_are_told_apart() {
        let values = Values::new(3);
        let of = |number| String::from_utf8_lossy(values.of(number)).into_owned();
        let mut out = Vec::new();
        let mut keys = Keys::new("k", 3);
        request(Ask::Set, &[7], &mut keys, &values, &mut out);
        request(Ask::Get, &[7, 8], &mut keys, &values, &mut out);
        let expected = format!(
            "*3\r\n$3\r\nSET\r\n$3\r\nk07\r\n$3\r\n{}\r\n*3\r\n$4\r\nMGET\r\n$3\r\nk07\r\n$3\r\nk08\r\n",
            of(7)
        );
        assert_eq!(String::from_utf8_lossy(&out), expected);

        assert_eq!(found(Ask::Set, &[7], b"+OK\r\n").unwrap().hits, 1);
        assert_eq!(found(Ask::Remove, &[7], b":0\r\n").unwrap().hits, 0);
        let one = format!("$3\r\n{}\r\n", of(7));
        assert_eq!(found(Ask::Get, &[7], one.as_bytes()).unwrap().hits, 1);
        assert_eq!(found(Ask::Get, &[7], b"$-1\r\n").unwrap().hits, 0);
        let two = format!("*2\r\n$-1\r\n$3\r\n{}\r\n", of(8));
        let answer = found(Ask::Get, &[7, 8], two.as_bytes()).unwrap();
        assert_eq!((answer.len, answer.hits), (two.len(), 1));
        assert!(found(Ask::Get, &[9], one.as_bytes()).is_err());
        assert!(found(Ask::Set, &[7], b"-ERR no\r\n").is_err());
    }
}
