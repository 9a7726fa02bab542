//! Requests by UDP: one datagram in, the answer in as many as it needs.
//!
//! One thread polls all sockets. A client that cannot be reached is forgotten, and any answer may be lost, as datagrams may.
//! Off unless configured. It knows no grammar, and no format of a datagram.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

use azekura::error::{Error, Result};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Timespec;

use crate::memcached::Service;
use crate::memcached::datagram::{open, respond, split};

use super::control::Control;
use super::meter::{Meter, Turned};

/// How often the thread checks whether the server stops.
const TICK: Duration = Duration::from_millis(200);

/// Requests of one socket before the other sockets have their turn.
const REQUESTS_MAX: usize = 64;

/// Serves datagrams until the server stops.
pub(super) fn serve(
    sockets: &[UdpSocket],
    service: &Arc<Service>,
    control: &Control,
) -> Result<()> {
    let mut request = vec![0; 64 << 10];
    let mut answer = Vec::new();
    let mut meter = Meter::new(service, Arc::clone(&control.slow_requests));
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
                    // An earlier answer could not be delivered, to another client.
                    Err(_) => continue,
                };
                let Some((number, body)) = open(&request[..len]) else {
                    continue;
                };
                let (must_sync, did) = respond(service, body, &mut answer);
                if must_sync && service.sync().and(service.verify_path()).is_err() {
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
