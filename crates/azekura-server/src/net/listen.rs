//! The listening sockets: made from an address or a path, or inherited from the service manager.
//!
//! They are bound before the data is opened, so that an address in use is an error before anything else happens; clients are
//! refused until the data is open (`begin`). A unix socket that a dead server left is replaced; one that answers belongs to
//! another server. At the end a unix socket is removed, unless another file is at its path by then. It knows no protocol.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use azekura::error::{Error, Kind as ErrorKind, Result};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

/// Clients that may wait to be accepted.
pub(crate) const BACKLOG: i32 = 1024;

/// What clients of a listener speak below the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Tcp,
    Unix,
}

/// A listening socket.
pub(super) struct Listener {
    pub(super) socket: OwnedFd,
    pub(super) kind: Kind,
    pub(super) encrypted: bool,
    /// Removed at the end.
    made: Option<Made>,
}

/// A unix socket that was made here.
struct Made {
    path: PathBuf,
    /// Device and inode. They are no other file's while the socket is open.
    id: (u64, u64),
}

impl Made {
    /// What was just bound at `path`. `None`: it is gone already.
    fn at(path: &Path) -> Option<Self> {
        Some(Self {
            path: path.to_path_buf(),
            id: socket_id(path)?,
        })
    }
}

/// Device and inode of the socket at `path`; `None`: something else is there, or nothing.
fn socket_id(path: &Path) -> Option<(u64, u64)> {
    let found = std::fs::symlink_metadata(path).ok()?;
    let is_socket = found.file_type().is_socket();
    is_socket.then(|| (found.dev(), found.ino()))
}

impl Drop for Listener {
    fn drop(&mut self) {
        // A file or another server's socket may have taken its place.
        if let Some(made) = &self.made
            && socket_id(&made.path) == Some(made.id)
        {
            let _ = std::fs::remove_file(&made.path);
        }
    }
}

/// All sockets of a server.
#[derive(Default)]
pub struct Listeners {
    pub(super) streams: Vec<Listener>,
    pub(super) datagrams: Vec<UdpSocket>,
    /// The HTTP address of the status page.
    metrics: Option<TcpListener>,
    described: Vec<String>,
    /// Sockets of `streams` from here on are bound, and no client can connect yet.
    bound: Option<usize>,
    /// Unix sockets that are still to be made, with their permissions.
    paths: Vec<(PathBuf, u32)>,
}

impl Listeners {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Listens on a TCP address; port 0 is any that is free. `encrypted`: with TLS. Returns the address.
    ///
    /// Errors: `Locked` (another process listens there), `Io`.
    pub fn tcp(&mut self, address: SocketAddr, encrypted: bool) -> Result<SocketAddr> {
        let bound = self.bind_tcp(address, encrypted)?;
        if let Some(listener) = self.streams.last() {
            begin(listener, &bound.to_string())?;
        }
        Ok(bound)
    }

    /// As [`tcp`](Self::tcp), but clients are refused until [`begin`](Self::begin).
    pub fn tcp_later(&mut self, address: SocketAddr, encrypted: bool) -> Result<SocketAddr> {
        self.bound.get_or_insert(self.streams.len());
        self.bind_tcp(address, encrypted)
    }

    /// As [`unix`](Self::unix), but the socket is made by [`begin`](Self::begin); it is only looked whether it can be.
    pub fn unix_later(&mut self, path: &Path, mode: u32) -> Result<()> {
        check_path(path)?;
        self.paths.push((path.to_path_buf(), mode));
        self.described.push(format!("unix:{}", path.display()));
        Ok(())
    }

    /// Begins to listen on the sockets that were only bound. Errors as for [`tcp`](Self::tcp) and [`unix`](Self::unix).
    pub fn begin(&mut self) -> Result<()> {
        if let Some(from) = self.bound.take() {
            for listener in self.streams.get(from..).unwrap_or_default() {
                let at = address(&listener.socket);
                begin(listener, &at.map_or(String::new(), |at| at.to_string()))?;
            }
        }
        for (path, mode) in std::mem::take(&mut self.paths) {
            self.make_unix(&path, mode)?;
        }
        Ok(())
    }

    /// A TCP socket that does not listen yet.
    fn bind_tcp(&mut self, address: SocketAddr, encrypted: bool) -> Result<SocketAddr> {
        let describe = |e: rustix::io::Errno| taken(&address.to_string(), "--listen", e);
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            rustix::net::socket_with(family, SocketType::STREAM, flags, None).map_err(describe)?;
        sockopt::set_socket_reuseaddr(&socket, true).map_err(describe)?;
        rustix::net::bind(&socket, &address).map_err(describe)?;
        let listener = TcpListener::from(socket);
        let bound = listener
            .local_addr()
            .map_err(|e| Error::io("cannot read the address of a listener", e))?;
        self.streams.push(Listener {
            socket: listener.into(),
            kind: Kind::Tcp,
            encrypted,
            made: None,
        });
        let cipher = if encrypted { " (TLS)" } else { "" };
        self.described.push(format!("{bound}{cipher}"));
        Ok(bound)
    }

    /// Listens on a unix socket with the permissions `mode`.
    ///
    /// Errors: `Locked` (another server answers there), `Invalid` (a file that is no socket is there), `Io`.
    pub fn unix(&mut self, path: &Path, mode: u32) -> Result<()> {
        self.make_unix(path, mode)?;
        self.described.push(format!("unix:{}", path.display()));
        Ok(())
    }

    fn make_unix(&mut self, path: &Path, mode: u32) -> Result<()> {
        let describe = |e| Error::io("cannot listen on the unix socket", e).at(path);
        if check_path(path)? {
            std::fs::remove_file(path).map_err(describe)?;
        }
        let listener = UnixListener::bind(path).map_err(describe)?;
        let made = Made::at(path);
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path, permissions).map_err(describe)?;
        listener.set_nonblocking(true).map_err(describe)?;
        self.streams.push(Listener {
            socket: listener.into(),
            kind: Kind::Unix,
            encrypted: false,
            made,
        });
        Ok(())
    }

    /// Receives datagrams at a UDP address. Returns the address. Errors as for [`tcp`](Self::tcp).
    pub fn udp(&mut self, address: SocketAddr) -> Result<SocketAddr> {
        let describe = |e: io::Error| taken(&address.to_string(), "--listen", e);
        let socket = UdpSocket::bind(address).map_err(describe)?;
        socket.set_nonblocking(true).map_err(describe)?;
        let bound = socket.local_addr().map_err(describe)?;
        self.datagrams.push(socket);
        self.described.push(format!("{bound} (UDP)"));
        Ok(bound)
    }

    /// Listens at the HTTP address of the status page; the last call counts. Returns the address. Errors as for
    /// [`tcp`](Self::tcp).
    pub fn metrics(&mut self, address: SocketAddr) -> Result<SocketAddr> {
        let describe = |e: io::Error| taken(&address.to_string(), "--metrics", e);
        let listener = TcpListener::bind(address).map_err(describe)?;
        let bound = listener.local_addr().map_err(describe)?;
        self.metrics = Some(listener);
        Ok(bound)
    }

    /// The HTTP address of the status page, if there is one.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref()?.local_addr().ok()
    }

    /// The HTTP address of the status page.
    pub(crate) fn door(&self) -> Option<&TcpListener> {
        self.metrics.as_ref()
    }

    /// Takes over a listening stream socket that another program made, as a service manager does.
    ///
    /// `Invalid` if it is none.
    pub fn adopt(&mut self, socket: OwnedFd) -> Result<()> {
        let wrong = || {
            Error::new(ErrorKind::Invalid, "an inherited socket does not listen")
                .remedy("only listening stream sockets of TCP and unix can be inherited")
        };
        if !sockopt::socket_acceptconn(&socket).unwrap_or(false) {
            return Err(wrong());
        }
        let kind = match sockopt::socket_domain(&socket) {
            Ok(AddressFamily::UNIX) => Kind::Unix,
            Ok(AddressFamily::INET | AddressFamily::INET6) => Kind::Tcp,
            _ => return Err(wrong()),
        };
        rustix::io::ioctl_fionbio(&socket, true)
            .and_then(|()| rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC))
            .map_err(|e| Error::io("cannot use an inherited socket", e))?;
        self.described.push(match address(&socket) {
            Some(at) => format!("{at} (inherited)"),
            None => "an inherited socket".into(),
        });
        self.streams.push(Listener {
            socket,
            kind,
            encrypted: false,
            made: None,
        });
        Ok(())
    }

    /// Whether clients of other machines may come unencrypted or, if `encrypted`, at all. It is read from the sockets, so it is true
    /// of those that were handed over, too.
    pub fn reach_beyond(&self, encrypted: bool) -> bool {
        let beyond =
            |at: Option<SocketAddr>| at.is_some_and(|at| !at.ip().to_canonical().is_loopback());
        let mut streams = self.streams.iter();
        streams.any(|of| (encrypted || !of.encrypted) && beyond(address(&of.socket)))
            || self.datagrams.iter().any(|of| beyond(address(of)))
    }

    /// The listen addresses, as text.
    pub fn described(&self) -> &[String] {
        &self.described
    }
}

/// Where a socket of TCP or UDP is bound; `None`: it is another.
fn address(socket: &impl AsFd) -> Option<SocketAddr> {
    let bound = rustix::net::getsockname(socket).ok()?;
    SocketAddr::try_from(bound).ok()
}

/// Begins to listen on a socket of TCP.
fn begin(listener: &Listener, at: &str) -> Result<()> {
    rustix::net::listen(&listener.socket, BACKLOG).map_err(|e| taken(at, "--listen", e))
}

/// Whether a socket that a dead server left is at `path`; an error if something else is.
fn check_path(path: &Path) -> Result<bool> {
    let Ok(meta) = std::fs::symlink_metadata(path) else {
        return Ok(false);
    };
    if !meta.file_type().is_socket() {
        return Err(
            Error::new(ErrorKind::Invalid, "a file is where the socket should be")
                .at(path)
                .remedy("remove it, or choose another path"),
        );
    }
    if UnixStream::connect(path).is_ok() {
        return Err(
            Error::new(ErrorKind::Locked, "another server listens there")
                .at(path)
                .remedy("stop it, or choose another path"),
        );
    }
    Ok(true)
}

fn taken(address: &str, by: &str, error: impl Into<io::Error>) -> Error {
    let error = error.into();
    let remedy = match error.kind() {
        io::ErrorKind::AddrInUse => {
            let what = format!("another process listens on {address}");
            let remedy = format!("stop it, or choose another address by {by}");
            return Error::new(ErrorKind::Locked, what).remedy(remedy);
        }
        io::ErrorKind::PermissionDenied => "a port below 1024 needs a privilege".to_owned(),
        io::ErrorKind::AddrNotAvailable => {
            "no interface of this machine has this address".to_owned()
        }
        _ => format!("choose another address by {by}"),
    };
    Error::io(format!("cannot listen on {address}"), error).remedy(remedy)
}
