//! The door by which figures are asked for: one thread, its own port, nothing that a worker waits for.
//!
//! A guest sends a head, gets an answer and is let go; each step has its time, and a guest that is slower loses. There are
//! so many guests at once; if one more comes, the one that is here longest goes. So no guest, and no heap of guests, keeps
//! others out or makes memory grow. It knows neither HTTP nor figures: what it is given answers bytes with bytes.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use azekura::error::{Error, Result};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Timespec;

use super::http::HEAD_LEN_MAX;

/// Guests at once.
const GUESTS_MAX: usize = 32;

/// How often it is asked whether to close.
const TICK: Duration = Duration::from_millis(250);

/// Bytes of a guest that are read and thrown away after its answer.
const LEFT_OVER_MAX: usize = 64 << 10;

/// How long a guest may take for its steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// To send a head.
    pub(super) asking: Duration,
    /// To read the answer.
    pub(super) reading: Duration,
    /// To close after it.
    pub(super) leaving: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            asking: Duration::from_secs(5),
            reading: Duration::from_secs(10),
            leaving: Duration::from_secs(1),
        }
    }
}

/// What is said to guests.
pub(super) trait Host {
    /// The answer to what a guest has sent; `None`: more must come.
    fn answer(&self, said: &[u8]) -> Option<Vec<u8>>;

    /// The answer to a guest that said too little in its time.
    fn late(&self) -> Vec<u8>;
}

/// What a guest does.
enum Step {
    Asking(Vec<u8>),
    Reading {
        answer: Vec<u8>,
        sent: usize,
    },
    /// It has its answer, and what it still sends is thrown away: closing at once could take the answer from it.
    Leaving {
        thrown: usize,
    },
}

struct Guest {
    stream: TcpStream,
    step: Step,
    /// When this step must be over.
    until: Instant,
}

/// Whether a guest stays.
#[derive(PartialEq, Eq)]
enum Stay {
    Yes,
    No,
}

impl Guest {
    fn new(stream: TcpStream, now: Instant, patience: &Patience) -> Self {
        Self {
            stream,
            step: Step::Asking(Vec::new()),
            until: now + patience.asking,
        }
    }

    /// What it is waited for.
    fn interest(&self) -> PollFlags {
        match self.step {
            Step::Reading { .. } => PollFlags::OUT,
            Step::Asking(_) | Step::Leaving { .. } => PollFlags::IN,
        }
    }

    /// Goes as far as the socket lets it.
    fn go(&mut self, host: &dyn Host, now: Instant, patience: &Patience) -> Stay {
        let mut buffer = [0; 2048];
        loop {
            match &mut self.step {
                Step::Asking(said) => {
                    let answer = match self.stream.read(&mut buffer) {
                        Ok(0) => return Stay::No,
                        Ok(len) => {
                            let room = HEAD_LEN_MAX.saturating_sub(said.len()).min(len);
                            said.extend_from_slice(&buffer[..room]);
                            host.answer(said)
                        }
                        Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                        Err(e) if e.kind() == ErrorKind::WouldBlock => {
                            if now < self.until {
                                return Stay::Yes;
                            }
                            Some(host.late())
                        }
                        Err(_) => return Stay::No,
                    };
                    if let Some(answer) = answer {
                        self.step = Step::Reading { answer, sent: 0 };
                        self.until = now + patience.reading;
                    }
                }
                Step::Reading { answer, sent } => match self.stream.write(&answer[*sent..]) {
                    Ok(len) => {
                        *sent += len;
                        if *sent == answer.len() {
                            if self.stream.shutdown(Shutdown::Write).is_err() {
                                return Stay::No;
                            }
                            self.step = Step::Leaving { thrown: 0 };
                            self.until = now + patience.leaving;
                        }
                    }
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    Err(e) if e.kind() == ErrorKind::WouldBlock && now < self.until => {
                        return Stay::Yes;
                    }
                    Err(_) => return Stay::No,
                },
                Step::Leaving { thrown } => match self.stream.read(&mut buffer) {
                    Ok(0) => return Stay::No,
                    Ok(len) => {
                        *thrown += len;
                        if *thrown > LEFT_OVER_MAX {
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

/// Lets guests in until `closed`. Errors: `Io` (the system does not let it wait).
pub(super) fn serve(
    listener: &TcpListener,
    host: &dyn Host,
    patience: &Patience,
    closed: &AtomicBool,
) -> Result<()> {
    listener
        .set_nonblocking(true)
        .map_err(|e| Error::io("cannot wait for guests", e))?;
    let tick = Timespec {
        tv_sec: 0,
        tv_nsec: i64::from(TICK.subsec_nanos()),
    };
    let mut guests: Vec<Guest> = Vec::new();
    while !closed.load(Ordering::Acquire) {
        let mut waits = vec![PollFd::new(listener, PollFlags::IN)];
        waits.extend(
            guests
                .iter()
                .map(|guest| PollFd::new(&guest.stream, guest.interest())),
        );
        match poll(&mut waits, Some(&tick)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(Error::io("cannot wait for guests", e)),
        }
        let ready: Vec<bool> = waits
            .iter()
            .map(|wait| !wait.revents().is_empty())
            .collect();
        let now = Instant::now();
        let mut index = 0;
        guests.retain_mut(|guest| {
            index += 1;
            let is_ready = ready.get(index).copied().unwrap_or(false);
            !(is_ready || now >= guest.until) || guest.go(host, now, patience) == Stay::Yes
        });
        if ready.first() == Some(&true) {
            welcome(listener, &mut guests, now, patience);
        }
    }
    Ok(())
}

/// Takes in who has come.
fn welcome(listener: &TcpListener, guests: &mut Vec<Guest>, now: Instant, patience: &Patience) {
    for _ in 0..GUESTS_MAX {
        match listener.accept() {
            Ok((stream, _)) => {
                if guests.len() == GUESTS_MAX {
                    // They stand in the order in which they came.
                    guests.remove(0);
                }
                if stream.set_nonblocking(true).is_ok() {
                    guests.push(Guest::new(stream, now, patience));
                }
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => return,
            Err(e)
                if matches!(
                    e.kind(),
                    ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                ) => {}
            Err(_) => {
                // No descriptor is left: guests wait in the queue of the system.
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

    impl Host for Echo {
        fn answer(&self, said: &[u8]) -> Option<Vec<u8>> {
            if said.len() >= HEAD_LEN_MAX {
                return Some(b"too long".to_vec());
            }
            match said {
                b"long\n" => Some(vec![b'x'; LONG]),
                _ => said.ends_with(b"\n").then(|| said.to_vec()),
            }
        }

        fn late(&self) -> Vec<u8> {
            b"late".to_vec()
        }
    }

    struct Open {
        address: std::net::SocketAddr,
        closed: Arc<AtomicBool>,
        thread: Option<std::thread::JoinHandle<Result<()>>>,
    }

    impl Open {
        fn new(patience: Patience) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let closed = Arc::new(AtomicBool::new(false));
            let thread = std::thread::spawn({
                let closed = Arc::clone(&closed);
                move || serve(&listener, &Echo, &patience, &closed)
            });
            Self {
                address,
                closed,
                thread: Some(thread),
            }
        }

        fn guest(&self) -> TcpStream {
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

    /// Never out of patience.
    fn endless() -> Patience {
        let long = Duration::from_secs(3600);
        Patience {
            asking: long,
            reading: long,
            leaving: long,
        }
    }

    #[test]
    fn a_guest_is_answered_and_let_go_though_it_says_more() {
        let open = Open::new(endless());
        let mut guest = open.guest();
        guest.write_all(b"a").unwrap();
        guest.write_all(b"b\n").unwrap();
        assert_eq!(rest(&mut guest), b"ab\n");
        let mut guest = open.guest();
        guest.write_all(&vec![b'x'; 60_000]).unwrap();
        assert_eq!(rest(&mut guest), b"too long");
    }

    #[test]
    fn a_long_answer_arrives_whole() {
        let open = Open::new(endless());
        let mut guest = open.guest();
        guest.write_all(b"long\n").unwrap();
        assert_eq!(rest(&mut guest).len(), LONG);
    }

    #[test]
    fn guests_that_say_nothing_keep_nobody_out() {
        let open = Open::new(endless());
        let mut silent: Vec<_> = (0..3 * GUESTS_MAX).map(|_| open.guest()).collect();
        for _ in 0..3 {
            let mut guest = open.guest();
            guest.write_all(b"a\n").unwrap();
            assert_eq!(rest(&mut guest), b"a\n");
        }
        // The first were let go without a word.
        assert_eq!(rest(&mut silent[0]), b"");
    }

    #[test]
    fn a_guest_is_told_that_it_is_late_and_one_that_does_not_read_is_let_go() {
        let open = Open::new(Patience {
            asking: Duration::from_millis(50),
            reading: Duration::from_millis(50),
            leaving: Duration::from_millis(50),
        });
        let mut late = open.guest();
        late.write_all(b"a").unwrap();
        assert_eq!(rest(&mut late), b"late");
        let mut deaf = open.guest();
        deaf.write_all(b"long\n").unwrap();
        // Wait until it was let go: then its other end cannot be written to.
        while deaf.write_all(b"x").is_ok() {
            std::thread::yield_now();
        }
        assert!(rest(&mut deaf).len() < LONG);
    }
}
