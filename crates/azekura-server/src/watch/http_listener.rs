//! The HTTP listener: one thread with a port of its own, for which no worker waits.
//!
//! A client sends a request, reads the answer and is closed; each step has a timeout. The number of clients is bounded: one
//! more replaces the one that has been connected longest. So no client keeps others out or makes memory grow. It knows
//! neither HTTP nor statistics: its handler answers bytes with bytes.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use azekura::error::{Error, Result};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Timespec;

use super::http::HEAD_LEN_MAX;

/// Guests at once.
const CLIENTS_MAX: usize = 32;

/// How often the thread checks whether to stop.
const TICK: Duration = Duration::from_millis(250);

/// Bytes of a client that are read and discarded after its answer.
const LEFT_OVER_MAX: usize = 64 << 10;

/// Timeouts of a client, by step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    /// To send a request.
    pub(super) request: Duration,
    /// To read the answer.
    pub(super) response: Duration,
    /// To close after it.
    pub(super) close: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            request: Duration::from_secs(5),
            response: Duration::from_secs(10),
            close: Duration::from_secs(1),
        }
    }
}

/// What answers requests.
pub(super) trait Handler {
    /// The answer to what a client has sent; `None`: more must come.
    fn answer(&self, request: &[u8]) -> Option<Vec<u8>>;

    /// The answer to a client whose request was incomplete at its timeout.
    fn timed_out(&self) -> Vec<u8>;
}

/// What a client does.
enum Step {
    Request(Vec<u8>),
    Response {
        answer: Vec<u8>,
        sent: usize,
    },
    /// It has its answer, and what it still sends is discarded away: closing at once could take the answer from it.
    Close {
        discarded: usize,
    },
}

struct HttpClient {
    stream: TcpStream,
    step: Step,
    /// When this step must be over.
    until: Instant,
}

/// Whether the connection to a client stays.
#[derive(PartialEq, Eq)]
enum Stay {
    Yes,
    No,
}

impl HttpClient {
    fn new(stream: TcpStream, now: Instant, timeouts: &Timeouts) -> Self {
        Self {
            stream,
            step: Step::Request(Vec::new()),
            until: now + timeouts.request,
        }
    }

    /// What it is waited for.
    fn interest(&self) -> PollFlags {
        match self.step {
            Step::Response { .. } => PollFlags::OUT,
            Step::Request(_) | Step::Close { .. } => PollFlags::IN,
        }
    }

    /// Continues as far as the socket permits.
    fn go(&mut self, handler: &dyn Handler, now: Instant, timeouts: &Timeouts) -> Stay {
        let mut buffer = [0; 2048];
        loop {
            match &mut self.step {
                Step::Request(request) => {
                    let answer = match self.stream.read(&mut buffer) {
                        Ok(0) => return Stay::No,
                        Ok(len) => {
                            let room = HEAD_LEN_MAX.saturating_sub(request.len()).min(len);
                            request.extend_from_slice(&buffer[..room]);
                            handler.answer(request)
                        }
                        Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                        Err(e) if e.kind() == ErrorKind::WouldBlock => {
                            if now < self.until {
                                return Stay::Yes;
                            }
                            Some(handler.timed_out())
                        }
                        Err(_) => return Stay::No,
                    };
                    if let Some(answer) = answer {
                        self.step = Step::Response { answer, sent: 0 };
                        self.until = now + timeouts.response;
                    }
                }
                Step::Response { answer, sent } => match self.stream.write(&answer[*sent..]) {
                    Ok(len) => {
                        *sent += len;
                        if *sent == answer.len() {
                            if self.stream.shutdown(Shutdown::Write).is_err() {
                                return Stay::No;
                            }
                            self.step = Step::Close { discarded: 0 };
                            self.until = now + timeouts.close;
                        }
                    }
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    Err(e) if e.kind() == ErrorKind::WouldBlock && now < self.until => {
                        return Stay::Yes;
                    }
                    Err(_) => return Stay::No,
                },
                Step::Close { discarded } => match self.stream.read(&mut buffer) {
                    Ok(0) => return Stay::No,
                    Ok(len) => {
                        *discarded += len;
                        if *discarded > LEFT_OVER_MAX {
                            return Stay::No;
                        }
                    }
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    Err(e) if e.kind() == ErrorKind::WouldBlock && now < self.until => {
                        return Stay::Yes;
                    }
                    Err(_) => return Stay::No,
                },
            }
        }
    }
}

/// Serves clients until `closed`. Errors: `Io` (waiting failed).
pub(super) fn serve(
    listener: &TcpListener,
    handler: &dyn Handler,
    timeouts: &Timeouts,
    closed: &AtomicBool,
) -> Result<()> {
    listener
        .set_nonblocking(true)
        .map_err(|e| Error::io("cannot wait for clients", e))?;
    let tick = Timespec {
        tv_sec: 0,
        tv_nsec: i64::from(TICK.subsec_nanos()),
    };
    let mut clients: Vec<HttpClient> = Vec::new();
    while !closed.load(Ordering::Acquire) {
        let mut waits = vec![PollFd::new(listener, PollFlags::IN)];
        waits.extend(
            clients
                .iter()
                .map(|client| PollFd::new(&client.stream, client.interest())),
        );
        match poll(&mut waits, Some(&tick)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(Error::io("cannot wait for clients", e)),
        }
        let ready: Vec<bool> = waits
            .iter()
            .map(|wait| !wait.revents().is_empty())
            .collect();
        let now = Instant::now();
        let mut index = 0;
        clients.retain_mut(|client| {
            index += 1;
            let is_ready = ready.get(index).copied().unwrap_or(false);
            !(is_ready || now >= client.until) || client.go(handler, now, timeouts) == Stay::Yes
        });
        if ready.first() == Some(&true) {
            accept(listener, &mut clients, now, timeouts);
        }
    }
    Ok(())
}

/// Accepts the clients that have arrived.
fn accept(
    listener: &TcpListener,
    clients: &mut Vec<HttpClient>,
    now: Instant,
    timeouts: &Timeouts,
) {
    for _ in 0..CLIENTS_MAX {
        match listener.accept() {
            Ok((stream, _)) => {
                if clients.len() == CLIENTS_MAX {
                    // They stand in the order in which they came.
                    clients.remove(0);
                }
                if stream.set_nonblocking(true).is_ok() {
                    clients.push(HttpClient::new(stream, now, timeouts));
                }
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => return,
            Err(e)
                if matches!(
                    e.kind(),
                    ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                ) => {}
            Err(_) => {
                // No descriptor is left: clients wait in the queue of the system.
                std::thread::sleep(TICK);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Answers a line with a line, thrice as long as the socket's buffers if it is `long`.
    struct Echo;

    const LONG: usize = 16 << 20;

    impl Handler for Echo {
        fn answer(&self, request: &[u8]) -> Option<Vec<u8>> {
            if request.len() >= HEAD_LEN_MAX {
                return Some(b"too long".to_vec());
            }
            match request {
                b"long\n" => Some(vec![b'x'; LONG]),
                _ => request.ends_with(b"\n").then(|| request.to_vec()),
            }
        }

        fn timed_out(&self) -> Vec<u8> {
            b"timed_out".to_vec()
        }
    }

    struct Open {
        address: std::net::SocketAddr,
        closed: Arc<AtomicBool>,
        thread: Option<std::thread::JoinHandle<Result<()>>>,
    }

    impl Open {
        fn new(timeouts: Timeouts) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let closed = Arc::new(AtomicBool::new(false));
            let thread = std::thread::spawn({
                let closed = Arc::clone(&closed);
                move || serve(&listener, &Echo, &timeouts, &closed)
            });
            Self {
                address,
                closed,
                thread: Some(thread),
            }
        }

        fn client(&self) -> TcpStream {
            let stream = TcpStream::connect(self.address).unwrap();
            // Longer than any test may take.
            stream
                .set_read_timeout(Some(Duration::from_secs(60)))
                .unwrap();
            stream
        }
    }

    impl Drop for Open {
        fn drop(&mut self) {
            self.closed.store(true, Ordering::Release);
            let outcome = self.thread.take().unwrap().join();
            if !std::thread::panicking() {
                outcome.unwrap().unwrap();
            }
        }
    }

    fn rest(stream: &mut TcpStream) -> Vec<u8> {
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
        all
    }

    /// Timeouts that never pass.
    fn endless() -> Timeouts {
        let long = Duration::from_secs(3600);
        Timeouts {
            request: long,
            response: long,
            close: long,
        }
    }

    #[test]
    fn a_guest_is_answered_and_let_go_though_it_says_more() {
        let open = Open::new(endless());
        let mut client = open.client();
        client.write_all(b"a").unwrap();
        client.write_all(b"b\n").unwrap();
        assert_eq!(rest(&mut client), b"ab\n");
        let mut client = open.client();
        client.write_all(&vec![b'x'; 60_000]).unwrap();
        assert_eq!(rest(&mut client), b"too long");
    }

    #[test]
    fn a_long_answer_arrives_whole() {
        let open = Open::new(endless());
        let mut client = open.client();
        client.write_all(b"long\n").unwrap();
        assert_eq!(rest(&mut client).len(), LONG);
    }

    #[test]
    fn guests_that_say_nothing_keep_nobody_out() {
        let open = Open::new(endless());
        let mut silent: Vec<_> = (0..3 * CLIENTS_MAX).map(|_| open.client()).collect();
        for _ in 0..3 {
            let mut client = open.client();
            client.write_all(b"a\n").unwrap();
            assert_eq!(rest(&mut client), b"a\n");
        }
        // The first were let go without a word.
        assert_eq!(rest(&mut silent[0]), b"");
    }

    #[test]
    fn a_guest_is_told_that_it_is_late_and_one_that_does_not_read_is_let_go() {
        let open = Open::new(Timeouts {
            request: Duration::from_millis(50),
            response: Duration::from_millis(50),
            close: Duration::from_millis(50),
        });
        let mut timed_out = open.client();
        timed_out.write_all(b"a").unwrap();
        assert_eq!(rest(&mut timed_out), b"timed_out");
        let mut deaf = open.client();
        deaf.write_all(b"long\n").unwrap();
        // Wait until it was let go: then its other end cannot be written to.
        while deaf.write_all(b"x").is_ok() {
            std::thread::yield_now();
        }
        assert!(rest(&mut deaf).len() < LONG);
    }
}
