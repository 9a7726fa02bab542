//! What a running server shows of itself over HTTP, on a port of its own: read only, off unless asked for.
//!
//! ```text
//!   /             a page that draws the last minutes, live       /health   200, or 503 with the reason
//!   /metrics      for Prometheus                                 /stats.json?since=N
//!
//!   door (sockets) -> http (heads) -> prometheus  json  page     forms
//!                                         figures  history  health
//! ```
//!
//! It shows counts, times and sizes, never a key or a value, so nobody is asked who he is; who should not see that much
//! should not reach the port. It runs beside the workers, and takes from them but what the engine's own figures take: a
//! lock or two for a moment, once a second and for each guest, one guest at a time.

mod door;
mod figures;
mod health;
mod history;
pub mod http;
mod json;
mod prometheus;

use std::net::TcpListener;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use azekura::error::Result;

use crate::config::Config;
use crate::memcached::Service;
use crate::net::Control;

use door::{Host, Patience};
use figures::Figures;
pub(crate) use figures::processor_seconds;
use health::{Health, Unfit};
pub(crate) use history::History;
use history::Sampler;
use http::{Head, Request, Status};

/// The page: it asks for `/stats.json` and draws.
const PAGE: &str = include_str!("page.html");

/// What is seen of a server.
pub(crate) struct Watch<'s> {
    service: &'s Service,
    control: &'s Control,
    config: &'s Config,
    history: &'s History,
    health: Health,
}

/// What the forms are made of.
struct Shown<'s> {
    figures: Figures,
    verdict: std::result::Result<(), Unfit>,
    engine: &'static str,
    durability: &'s str,
    slow_ms: u32,
}

impl<'s> Watch<'s> {
    /// Nothing was seen yet.
    pub(crate) fn new(
        service: &'s Service,
        control: &'s Control,
        config: &'s Config,
        history: &'s History,
    ) -> Self {
        Self {
            service,
            control,
            config,
            history,
            health: Health::default(),
        }
    }

    /// Whoever looks once a second keeps what it needs in between.
    pub(crate) fn eye(&self) -> Eye<'_> {
        Eye {
            watch: self,
            sampler: Sampler::default(),
        }
    }

    /// Answers guests until `closed`.
    pub(crate) fn serve(&self, listener: &TcpListener, closed: &AtomicBool) -> Result<()> {
        door::serve(listener, self, &Patience::default(), closed)
    }

    fn figures(&self) -> Figures {
        let has_file = self.config.store().is_some();
        let data = has_file.then_some(self.config.data.as_path());
        Figures::gather(self.service, self.control, data)
    }

    fn shown(&self) -> Shown<'_> {
        Shown {
            figures: self.figures(),
            verdict: self.health.verdict(self.service, self.control),
            engine: self.service.engine().promise().engine,
            durability: self.config.durability.word(),
            slow_ms: self.control.limits().slow_ms,
        }
    }

    fn page(&self, request: &Request<'_>) -> Vec<u8> {
        let (status, kind, body) = match request.path {
            "/" => (Status::Fine, "text/html; charset=utf-8", PAGE.to_owned()),
            "/metrics" => (
                Status::Fine,
                prometheus::KIND,
                prometheus::render(&self.shown()),
            ),
            "/stats.json" => {
                let since = request.query.strip_prefix("since=");
                let since = since.and_then(|number| number.parse().ok()).unwrap_or(0);
                let rows = self.history.since(since);
                let body = json::render(&self.shown(), &rows);
                (Status::Fine, "application/json", body)
            }
            "/health" => {
                let (status, word) = match self.health.verdict(self.service, self.control) {
                    Ok(()) => match Health::degraded(self.service) {
                        degraded if degraded.is_empty() => (Status::Fine, "ok\n".to_owned()),
                        degraded => (Status::Fine, degraded),
                    },
                    Err(unfit) => (
                        Status::Unavailable,
                        format!("{}: {}\n", unfit.word, unfit.more),
                    ),
                };
                (status, "text/plain; charset=utf-8", word)
            }
            _ => return http::bare(Status::NotFound),
        };
        http::answer(status, kind, &body, request.is_head)
    }
}

impl Host for Watch<'_> {
    fn answer(&self, said: &[u8]) -> Option<Vec<u8>> {
        match http::read(said) {
            Head::Open => None,
            Head::Whole(request) => Some(self.page(&request)),
            Head::Refused(status) => Some(http::bare(status)),
        }
    }

    fn late(&self) -> Vec<u8> {
        http::bare(Status::TimedOut)
    }
}

/// What looks at a server once a second.
pub(crate) struct Eye<'w> {
    watch: &'w Watch<'w>,
    sampler: Sampler,
}

impl Eye<'_> {
    /// Adds what happened since the last look to the history.
    pub(crate) fn look(&mut self) {
        let watch = self.watch;
        watch.health.look(watch.service);
        self.sampler
            .take(Instant::now(), watch.figures(), watch.history);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use azekura::engine::{
        Bookmark, Damaged, DecideMany, Edit, Engine, Promise, Reader, Stats, Visit,
    };
    use azekura::error::{Error, Kind};

    use super::*;
    use crate::memcached::{Session, Settings, Transport};

    /// An engine whose every write fails.
    struct Broken(Kind);

    impl Reader for Broken {
        fn read(&self, _: &[u8], visit: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
            visit(None);
            Ok(())
        }
        fn scan_past(
            &self,
            _: Option<&Bookmark>,
            _: &mut Visit<'_>,
            _: &mut Damaged<'_>,
        ) -> Result<Option<Bookmark>> {
            Ok(None)
        }
        fn bookmark_at(&self, key: &[u8]) -> Bookmark {
            Bookmark::from_bytes(key)
        }
        fn count(&self) -> u64 {
            0
        }
        fn stats(&self) -> Stats {
            Stats::default()
        }
        fn promise(&self) -> Promise {
            Promise {
                engine: "broken",
                evicts: false,
                durability: None,
                update_many_is_crash_atomic: false,
                key_len_max: 1 << 10,
                value_len_max: 1 << 20,
            }
        }
    }

    impl Engine for Broken {
        fn update<'a>(&self, _: &[u8], _: &mut dyn FnMut(Option<&[u8]>) -> Edit<'a>) -> Result<()> {
            Err(Error::new(self.0, "the disk went up in smoke"))
        }
        fn update_many(&self, _: &[&[u8]], _: DecideMany<'_, '_>) -> Result<()> {
            Err(Error::new(self.0, "the disk went up in smoke"))
        }
        fn clear(&self) -> Result<()> {
            Err(Error::new(self.0, "the disk went up in smoke"))
        }
    }

    #[test]
    fn a_flush_that_fails_is_tried_again_and_noted() {
        let service = Arc::new(Service::new(
            Arc::new(Broken(Kind::Full)),
            Settings::default(),
        ));
        service.set_time(100).unwrap();
        let mut session = Session::new(Arc::clone(&service), Transport::Tcp);
        let mut output = Vec::new();
        session.serve(b"flush_all 10\r\n", &mut output);
        assert_eq!(output, b"OK\r\n");
        for count in 1..4 {
            assert!(service.set_time(110).is_err());
            assert_eq!(service.errors().count(Kind::Full), count);
        }
        output.clear();
        session.serve(b"flush_all\r\n", &mut output);
        assert!(output.starts_with(b"SERVER_ERROR"), "{output:?}");
        assert!(service.set_time(110).is_err(), "the appointment stands");
    }

    fn health(watch: &Watch<'_>) -> String {
        let said = watch.answer(b"GET /health HTTP/1.0\r\n\r\n").unwrap();
        let text = String::from_utf8(said).unwrap();
        let (line, rest) = text.split_once("\r\n").unwrap();
        format!("{line} {}", rest.rsplit("\r\n").next().unwrap_or_default())
    }

    fn after_a_failed_set(kind: Kind, stop: bool) -> (String, String) {
        let service = Arc::new(Service::new(Arc::new(Broken(kind)), Settings::default()));
        let config = Config::default();
        let control = Control::new(config.limits.clone()).unwrap();
        let history = History::default();
        let watch = Watch::new(&service, &control, &config, &history);
        let before = health(&watch);
        assert_eq!(before, "HTTP/1.1 200 OK ok\n");
        let mut session = Session::new(Arc::clone(&service), Transport::Tcp);
        let mut output = Vec::new();
        session.serve(b"set a 0 0 1\r\nb\r\n", &mut output);
        assert!(output.starts_with(b"SERVER_ERROR"), "{output:?}");
        if stop {
            control.stop();
        }
        let at_once = health(&watch);
        watch.eye().look();
        (at_once, health(&watch))
    }

    #[test]
    fn a_poisoned_a_full_and_an_ending_server_say_so() {
        let (at_once, later) = after_a_failed_set(Kind::Poisoned, false);
        assert!(
            at_once.starts_with("HTTP/1.1 503 Service Unavailable poisoned: "),
            "{at_once}"
        );
        assert!(at_once.contains("went up in smoke"), "{at_once}");
        assert_eq!(at_once, later);
        let (at_once, later) = after_a_failed_set(Kind::Full, false);
        assert!(
            at_once.contains(" 503 ") && at_once.contains("full: "),
            "{at_once}"
        );
        assert_eq!(at_once, later);
        // A request that was wrong is no reason.
        let (_, later) = after_a_failed_set(Kind::Invalid, false);
        assert!(later.contains(" 200 "), "{later}");
        let (at_once, _) = after_a_failed_set(Kind::Invalid, true);
        assert!(
            at_once.contains(" 503 ") && at_once.contains("draining: "),
            "{at_once}"
        );
    }
}
