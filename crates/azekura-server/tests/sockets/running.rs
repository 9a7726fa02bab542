//! A server that runs while a test does, and clients that talk to it.
//! It ends with the test, and a server that failed fails it.
//! It knows no test.

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use azekura::Result;
use azekura_server::Server;
use azekura_server::config::{Config, DurabilityLevel, Engine};
use azekura_server::net::{Control, Listeners};

/// Any free port of this machine.
pub(crate) const LOOPBACK: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// A running server, its folder, and where it listens.
pub(crate) struct Running {
    pub(crate) control: Arc<Control>,
    pub(crate) address: SocketAddr,
    thread: Option<JoinHandle<Result<()>>>,
    _alone: Option<MutexGuard<'static, ()>>,
}

/// Servers of the tests run one after another: what one takes of memory is no other's.
static ALONE: Mutex<()> = Mutex::new(());

thread_local! {
    /// Whether this test has a server already.
    static HERE: Cell<bool> = const { Cell::new(false) };
}

/// What most tests want: in memory, one thread.
pub(crate) fn small() -> Config {
    Config {
        engine: Engine::Tiny,
        durability: DurabilityLevel::None,
        threads: 1,
        ..Config::default()
    }
}

impl Running {
    pub(crate) fn start(config: &Config) -> Self {
        let mut listeners = Listeners::new();
        let address = listeners.tcp(LOOPBACK, false).unwrap();
        Self::over(config, listeners, address)
    }

    /// A server over these sockets, of which the first is TCP or `address` is not used.
    pub(crate) fn over(config: &Config, listeners: Listeners, address: SocketAddr) -> Self {
        let alone =
            (!HERE.replace(true)).then(|| ALONE.lock().unwrap_or_else(PoisonError::into_inner));
        let control = Control::new(config.limits.clone()).unwrap();
        let server = Server::open(config, &control).unwrap();
        let thread = std::thread::spawn(move || {
            server.serve(listeners)?;
            server.close()
        });
        Self {
            control,
            address,
            thread: Some(thread),
            _alone: alone,
        }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_nodelay(true).unwrap();
        // Longer than any test may take: a server that hangs fails it instead of the machine.
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        stream
    }

    /// Ends it, and returns when all is closed.
    pub(crate) fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        HERE.set(false);
        self.control.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap().unwrap();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.end();
        }
    }
}

/// Sends a request and reads an answer of known length.
pub(crate) fn ask(stream: &mut (impl Read + Write), request: &str, answer: &str) {
    stream.write_all(request.as_bytes()).unwrap();
    expect(stream, answer);
}

/// Reads an answer of known length.
pub(crate) fn expect(stream: &mut impl Read, answer: &str) {
    let mut found = vec![0; answer.len()];
    stream.read_exact(&mut found).unwrap();
    assert_eq!(String::from_utf8_lossy(&found), answer);
}

/// Whether the server has closed this connection; what it said before is returned.
pub(crate) fn rest(stream: &mut impl Read) -> String {
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all);
    String::from_utf8_lossy(&all).into_owned()
}

/// Resident bytes of this process.
pub(crate) fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1));
    kilobytes.unwrap().parse::<u64>().unwrap() * 1024
}

/// A folder that disappears with the test, and a name in it.
pub(crate) fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    (folder, path)
}

/// `count` texts, made from their numbers.
pub(crate) fn texts(count: u32, text: impl Fn(u32) -> String) -> String {
    (0..count).map(text).collect::<Vec<_>>().concat()
}
