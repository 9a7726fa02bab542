//! Servers to compare: ours, memcached and Redis, each a process of its own on a free port.
//!
//! A server is started where nothing is stored yet, and killed: what it kept is thrown away with its folder. It knows
//! their command lines, and nothing of what they answer.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use azekura::error::{Error, Kind, Result};
use azekura_wire::Address;

use super::wire::Protocol;
use crate::unfinished::{self, Listed, Unfinished, fresh_name};

/// How long a server may take to listen.
const PATIENCE: Duration = Duration::from_secs(30);

/// A program that can be loaded.
#[derive(Clone, Debug)]
pub(super) struct Program {
    /// Its name in results.
    pub(super) name: &'static str,
    pub(super) protocol: Protocol,
    path: String,
    flags: Vec<String>,
}

impl Program {
    /// Our server, by this program; `flags` are those of `serve`.
    pub(super) fn ours(flags: &str) -> Result<Self> {
        let path = std::env::current_exe().map_err(|e| Error::io("cannot find this program", e))?;
        let flags = format!(
            "serve --data {{folder}} --listen 127.0.0.1:{{port}} --threads {{threads}} {flags}"
        );
        let program = path.to_string_lossy().into_owned();
        Ok(Self::new("azekura", Protocol::Text, program, &flags))
    }

    /// memcached, with room for all that a suite stores.
    pub(super) fn memcached(program: String) -> Self {
        let mut flags = "-l 127.0.0.1 -p {port} -U 0 -m 8192 -c 4096 -t {threads}".to_owned();
        // It refuses to run as the superuser without this flag.
        if rustix::process::geteuid().is_root() {
            flags.push_str(" -u root");
        }
        Self::new("memcached", Protocol::Text, program, &flags)
    }

    /// Redis, which keeps nothing in files here.
    pub(super) fn redis(program: String) -> Self {
        let flags = "--bind 127.0.0.1 --port {port} --dir {folder} --save --appendonly no --io-threads {threads}";
        Self::new("redis", Protocol::Redis, program, flags)
    }

    fn new(name: &'static str, protocol: Protocol, path: String, flags: &str) -> Self {
        Self {
            name,
            protocol,
            path,
            flags: flags.split_whitespace().map(str::to_owned).collect(),
        }
    }

    /// Whether it can be run at all.
    pub(super) fn exists(&self) -> bool {
        let mut command = Command::new(&self.path);
        let version = command
            .arg("--version")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        version.status().is_ok()
    }

    /// Starts it, and returns when it listens.
    ///
    /// Errors: `Io` (it cannot be started, ends at once, or does not listen within half a minute).
    pub(super) fn start(&self, threads: u64) -> Result<Server> {
        let failed = |e| Error::io(format!("cannot start {}", self.path), e);
        let folder = Unfinished::folder(&std::env::temp_dir().join(fresh_name("bench")))?;
        let at = free_address().map_err(failed)?;
        let flags = self.flags.iter().map(|flag| {
            flag.replace("{folder}", &folder.path().to_string_lossy())
                .replace("{port}", &at.port().to_string())
                .replace("{threads}", &threads.to_string())
        });
        let mut command = Command::new(&self.path);
        command.args(flags).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let (child, listed) = unfinished::spawn(&mut command)?;
        let mut server = Server {
            address: Address::Tcp(at.into()),
            child,
            _listed: listed,
            _folder: folder,
        };
        let start = Instant::now();
        while TcpStream::connect(at).is_err() {
            let ended = server.child.try_wait().map_err(failed)?;
            if ended.is_some() || start.elapsed() > PATIENCE {
                return Err(
                    Error::new(Kind::Io, format!("{} does not listen", self.path))
                        .detail(self.flags.join(" ")),
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }
}

/// A running server, killed when dropped, or when this process is interrupted.
pub(super) struct Server {
    pub(super) address: Address,
    child: Child,
    _listed: Listed,
    _folder: Unfinished,
}

impl Server {
    /// Its process.
    pub(super) fn process(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address of the loopback that was free a moment ago.
fn free_address() -> std::io::Result<SocketAddr> {
    TcpListener::bind(("127.0.0.1", 0))?.local_addr()
}
