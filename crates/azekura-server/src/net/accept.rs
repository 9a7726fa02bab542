//! The thread that accepts: it waits for every listener, and deals connections to the workers in turn.
//!
//! Accepting is rare compared with serving, so one thread does it, and the workers get equally many connections. Over the
//! limit a client gets an error and is closed, as memcached does. It knows no protocol but that line.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use azekura::error::{Error, Result};
use azekura_wire::Stream;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::{
    SendFlags, SocketAddrAny, SocketAddrUnix, SocketFlags, accept_with, getpeername, getsockname,
    send,
};

use crate::memcached::{ClientEntry, ClientInfo, Service, Session, Transport};

use super::control::{Control, Counted};
use super::listen::{Kind, Listener};
use super::worker::{Arrival, Inbox};

/// The answer to a client over the limit.
const TOO_MANY: &[u8] = b"ERROR Too many open connections\r\n";

/// How long is waited when the system has no room for another connection.
const PAUSE: Duration = Duration::from_millis(20);

/// The epoll key of the waker.
const WAKER: u64 = u64::MAX;

/// Accepts until the server stops.
pub(super) fn accept(
    listeners: &[Listener],
    inboxes: &[Inbox],
    service: &Arc<Service>,
    control: &Arc<Control>,
) -> Result<()> {
    let describe = |e| Error::io("cannot wait for connections", e);
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(describe)?;
    epoll::add(
        &epoll,
        &control.waker,
        EventData::new_u64(WAKER),
        EventFlags::IN,
    )
    .map_err(describe)?;
    for (index, listener) in listeners.iter().enumerate() {
        let data = EventData::new_u64(index as u64);
        epoll::add(&epoll, &listener.socket, data, EventFlags::IN).map_err(describe)?;
    }
    let _shown: Vec<ClientEntry> = listeners
        .iter()
        .map(|listener| service.listener(listens(&listener.socket)))
        .collect();
    let mut events: Vec<epoll::Event> = Vec::with_capacity(64);
    let mut turn = 0;
    while !control.is_stopping() {
        events.clear();
        match epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(describe(e)),
        }
        for event in &events {
            let Some(listener) = listeners.get(event.data.u64() as usize) else {
                control.waker.clear();
                continue;
            };
            match accept_with(
                &listener.socket,
                SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            ) {
                Ok(socket) => {
                    if let Some(arrival) = admit(socket, listener, service, control) {
                        inboxes[turn % inboxes.len()].send(arrival);
                        turn += 1;
                    }
                }
                // The client has left already, or another process of the same listener has it.
                Err(
                    rustix::io::Errno::AGAIN
                    | rustix::io::Errno::INTR
                    | rustix::io::Errno::CONNABORTED,
                ) => {}
                Err(_) => {
                    // Clients wait in the queue of the system.
                    control.refuse("no descriptor or memory is left");
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }
    Ok(())
}

fn admit(
    socket: OwnedFd,
    listener: &Listener,
    service: &Arc<Service>,
    control: &Arc<Control>,
) -> Option<Arrival> {
    let place = arrives(&socket);
    let counted = Counted::admit(control, place.ip)
        .inspect_err(|why| {
            let _ = send(&socket, TOO_MANY, SendFlags::NOSIGNAL);
            control.refuse(why);
        })
        .ok()?;
    let (stream, transport) = match listener.kind {
        Kind::Unix => (Stream::Unix(UnixStream::from(socket)), Transport::Unix),
        Kind::Tcp => {
            let stream = TcpStream::from(socket);
            let _ = stream.set_nodelay(true);
            if listener.encrypted {
                let tls = Stream::accept_tls(stream, control.identity()?).ok()?;
                (tls, Transport::Tls)
            } else {
                (Stream::Tcp(stream), Transport::Tcp)
            }
        }
    };
    Some(Arrival {
        stream,
        session: Session::new(Arc::clone(service), transport).from(place),
        counted,
    })
}

/// Where a listener is, for `stats conns`.
fn listens(socket: &OwnedFd) -> ClientInfo {
    ClientInfo {
        number: socket.as_raw_fd(),
        address: getsockname(socket).map_or(String::new(), |at| named(&at)),
        ..ClientInfo::default()
    }
}

/// Where a client is, and where it came.
fn arrives(socket: &OwnedFd) -> ClientInfo {
    let peer = getpeername(socket).ok().flatten();
    let ip = peer.as_ref().and_then(|at| {
        let at = SocketAddr::try_from(at.clone()).ok()?;
        Some(at.ip())
    });
    ClientInfo {
        listener: listens(socket).address,
        address: peer.map_or(String::new(), |at| named(&at)),
        ip,
        number: socket.as_raw_fd(),
    }
}

fn named(at: &SocketAddrAny) -> String {
    if let Ok(unix) = SocketAddrUnix::try_from(at.clone()) {
        let path = unix.path_bytes().unwrap_or_default();
        return format!("unix:{}", String::from_utf8_lossy(path));
    }
    let Ok(at) = SocketAddr::try_from(at.clone()) else {
        return String::new();
    };
    let family = if at.is_ipv6() { "tcp6" } else { "tcp" };
    format!("{family}:{at}")
}
