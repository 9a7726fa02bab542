//! Datagrams: a request that is one, and the answer in as many as it needs.
//!
//! Each begins with eight bytes: the client's number of the request, the number of this datagram, how many there are, and
//! zero; all big-endian. A request must fit one datagram, and each is served by a session of its own. An answer that is
//! longer than 64 KiB is replaced by an error, so that a forged sender cannot make the server flood a victim. It knows no
//! sockets.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]
#![expect(
    clippy::big_endian_bytes,
    reason = "the header is of big-endian numbers"
)]

use std::sync::Arc;

use super::{Next, Service, Session, Transport};
use crate::memcached::operate::latency::WorkCounts;

const HEADER_LEN: usize = 8;

/// Bytes of an answer that one datagram carries, with its header.
const DATAGRAM_LEN: usize = 1400;

/// Longest answer.
const ANSWER_MAX: usize = 64 << 10;

/// The number and the body of a request that is one datagram; `None`: it is none, or one of several.
pub fn open(datagram: &[u8]) -> Option<([u8; 2], &[u8])> {
    let (header, body) = datagram.split_at_checked(HEADER_LEN)?;
    // The second of several is a request this server does not take.
    match *header {
        [high, low, 0, 0, 0, 1, _, _] => Some(([high, low], body)),
        _ => None,
    }
}

/// Serves a request by a session of its own, and replaces what stands in `answer` by the answer, of 64 KiB at most.
/// Returns whether it must wait for a sync, and what was done.
pub fn respond(service: &Arc<Service>, body: &[u8], answer: &mut Vec<u8>) -> (bool, WorkCounts) {
    answer.clear();
    let mut must_sync = false;
    let mut did = WorkCounts::default();
    let mut session = Session::new(Arc::clone(service), Transport::Udp);
    let mut at = 0;
    loop {
        let served = session.serve(body.get(at..).unwrap_or_default(), answer);
        at += served.consumed;
        must_sync |= served.must_sync;
        did.add(&served.did);
        if answer.len() > ANSWER_MAX {
            // Not in the room of the long one, which is as large as an item may be.
            *answer = b"SERVER_ERROR the answer is too long for datagrams\r\n".to_vec();
            return (must_sync, did);
        }
        if !matches!(served.next, Next::Yield | Next::Pause { millis: 0 }) {
            return (must_sync, did);
        }
    }
}

/// The datagrams of an answer to the request of this number: of 1,400 bytes at most, none if there is no answer.
pub fn split(number: [u8; 2], answer: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let parts = answer.chunks(DATAGRAM_LEN - HEADER_LEN);
    let count = parts.len() as u16;
    parts.zip(0_u16..).map(move |(part, index)| {
        let mut datagram = Vec::with_capacity(HEADER_LEN + part.len());
        datagram.extend_from_slice(&number);
        datagram.extend_from_slice(&index.to_be_bytes());
        datagram.extend_from_slice(&count.to_be_bytes());
        datagram.extend_from_slice(&[0, 0]);
        datagram.extend_from_slice(part);
        datagram
    })
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may fail by a panic")]
mod tests {
    use super::*;

    #[test]
    fn a_request_of_one_datagram_is_taken_and_others_are_not() {
        let datagram = b"\x01\x02\0\0\0\x01\0\0get a\r\n";
        assert_eq!(open(datagram), Some(([1, 2], b"get a\r\n".as_slice())));
        assert_eq!(open(b"\x01\x02\0\0\0\x02\0\0get a\r\n"), None);
        assert_eq!(open(b"\x01\x02\0\x01\0\x01\0\0get a\r\n"), None);
        assert_eq!(open(b"\x01\x02"), None);
    }

    #[test]
    fn an_answer_is_split_and_each_part_says_which_it_is() {
        let answer: Vec<u8> = (0..3000_u32).map(|n| n as u8).collect();
        let parts: Vec<_> = split([7, 8], &answer).collect();
        assert_eq!(parts.len(), 3);
        let joined: Vec<u8> = parts.iter().flat_map(|part| part[8..].to_vec()).collect();
        assert_eq!(joined, answer);
        for (part, index) in parts.iter().zip(0..) {
            assert!(part.len() <= DATAGRAM_LEN);
            assert_eq!(part[..8], [7, 8, 0, index, 0, 3, 0, 0]);
        }
    }
}
