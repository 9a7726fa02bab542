//! Requests by UDP: one datagram in, the answer in as many as it needs.
//!
//! Each begins with eight bytes: the client's number of the request, the number of this datagram, how many there are, and
//! zero; all big-endian. A request must fit one datagram, and each is served by a session of its own. An answer that is
//! longer than a stated bound is replaced by an error, so that a forged sender cannot make the server flood
//! anybody. Off unless asked for. It knows no grammar.

#![expect(
    clippy::big_endian_bytes,
    reason = "the header is of big-endian numbers"
)]

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

use azekura::error::{Error, Result};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Timespec;

use crate::memcached::latency::Did;
use crate::memcached::{Next, Service, Session, Transport};

use super::control::Control;
use super::meter::{Meter, Turned};

const HEADER_LEN: usize = 8;

/// Bytes of an answer that one datagram carries, with its header.
const DATAGRAM_LEN: usize = 1400;

/// Longest answer.
const ANSWER_MAX: usize = 64 << 10;

/// How often it is asked whether the server ends.
const TICK: Duration = Duration::from_millis(200);

/// Requests of one socket before the other sockets have their turn.
const REQUESTS_MAX: usize = 64;

/// Serves datagrams until the server is told to stop.
pub(super) fn serve(
    sockets: &[UdpSocket],
    service: &Arc<Service>,
    control: &Control,
) -> Result<()> {
    let mut request = vec![0; 64 << 10];
    let mut answer = Vec::new();
    let mut meter = Meter::new(service, Arc::clone(&control.told));
    let tick = Timespec {
        tv_sec: 0,
        tv_nsec: i64::from(TICK.subsec_nanos()),
    };
    while !control.is_stopping() {
        let mut waits: Vec<_> = sockets
            .iter()
            .map(|socket| PollFd::new(socket, PollFlags::IN))
            .collect();
        match poll(&mut waits, Some(&tick)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(Error::io("cannot wait for datagrams", e)),
        }
        meter.slow = control.limits().slow();
        meter.wake();
        let mut from = meter.woke();
        for socket in sockets {
            for _ in 0..REQUESTS_MAX {
                let (len, client) = match socket.recv_from(&mut request) {
                    Ok(received) => received,
                    Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                    // An answer that could not be delivered is told of here: it was another client's.
                    Err(_) => continue,
                };
                let Some((number, body)) = open(&request[..len]) else {
                    continue;
                };
                let (must_sync, did) = respond(service, body, &mut answer);
                if must_sync && service.sync().is_err() {
                    continue;
                }
                for datagram in split(number, &answer) {
                    // Datagrams may be lost; so may answers.
                    let _ = socket.send_to(&datagram, client);
                }
                let turned = Turned {
                    did,
                    front: body,
                    bytes_in: body.len(),
                    bytes_out: answer.len(),
                };
                from = meter.note(from, &turned);
            }
        }
    }
    Ok(())
}

/// The number and the body of a request that is one datagram.
fn open(datagram: &[u8]) -> Option<([u8; 2], &[u8])> {
    let (header, body) = datagram.split_at_checked(HEADER_LEN)?;
    // The second of several is a request this server does not take.
    let one = header[2..4] == [0, 0] && header[4..6] == [0, 1];
    one.then_some(([header[0], header[1]], body))
}

/// Serves a request. Returns whether the answer must wait for a sync, and what was done.
fn respond(service: &Arc<Service>, body: &[u8], answer: &mut Vec<u8>) -> (bool, Did) {
    answer.clear();
    let mut must_sync = false;
    let mut did = Did::default();
    let mut session = Session::new(Arc::clone(service), Transport::Udp);
    let mut at = 0;
    loop {
        let served = session.serve(&body[at..], answer);
        at += served.consumed;
        must_sync |= served.must_sync;
        did.add(&served.did);
        if answer.len() > ANSWER_MAX {
            answer.clear();
            answer.extend_from_slice(b"SERVER_ERROR the answer is too long for datagrams\r\n");
            return (must_sync, did);
        }
        if !matches!(served.next, Next::Yield | Next::Pause { millis: 0 }) {
            return (must_sync, did);
        }
    }
}

/// The datagrams of an answer.
fn split(number: [u8; 2], answer: &[u8]) -> impl Iterator<Item = Vec<u8>> {
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
