//! The status page, metrics and health of a running server over HTTP, on a port of its own: read only, off by default.
//!
//! ```text
//!   /             a page that draws the last minutes, live       /health   200, or 503 with the reason
//!   /metrics      for Prometheus                                 /stats.json?since=N
//!
//!   http_listener (sockets) -> http (heads) -> prometheus  json  page     formats
//!                                              metrics  history  health
//! ```
//!
//! It shows counts, times and sizes, never a key or a value, so it needs no authentication; clients that should not see
//! these should not reach the port. It runs concurrently with the workers, and costs them what the engine's own statistics cost: a
//! lock or two for a moment, once a second and for each request, one request at a time.

mod health;
mod history;
pub mod http;
mod http_listener;
mod json;
mod metrics;
mod prometheus;

use std::net::TcpListener;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use azekura::error::Result;

use crate::config::Config;
use crate::memcached::Service;
use crate::net::Control;

use health::{Health, Unfit};
pub(crate) use history::History;
use history::Sampler;
use http::{Head, Request, Status};
use http_listener::{Handler, Timeouts};
use metrics::Metrics;
pub(crate) use metrics::processor_seconds;

/// The status page: it fetches `/stats.json` and draws.
const PAGE: &str = include_str!("page.html");

/// What the status page shows of a server.
pub(crate) struct Monitor<'s> {
    service: &'s Service,
    control: &'s Control,
    config: &'s Config,
    history: &'s History,
    health: Health,
}

/// What is shown at one moment.
struct Snapshot<'s> {
    figures: Metrics,
    verdict: std::result::Result<(), Unfit>,
    engine: &'static str,
    durability: &'s str,
    slow_ms: u32,
}

impl<'s> Monitor<'s> {
    /// A monitor with nothing collected yet.
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

    /// A collector, to be run once a second.
    pub(crate) fn collector(&self) -> Collector<'_> {
        Collector {
            watch: self,
            sampler: Sampler::default(),
        }
    }

    /// Serves HTTP clients until `closed`.
    pub(crate) fn serve(&self, listener: &TcpListener, closed: &AtomicBool) -> Result<()> {
        http_listener::serve(listener, self, &Timeouts::default(), closed)
    }

    fn figures(&self) -> Metrics {
        let has_file = self.config.store().is_some();
        let data = has_file.then_some(self.config.data.as_path());
        Metrics::gather(self.service, self.control, data)
    }

    fn shown(&self) -> Snapshot<'_> {
        Snapshot {
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

impl Handler for Monitor<'_> {
    fn answer(&self, request: &[u8]) -> Option<Vec<u8>> {
        match http::read(request) {
            Head::Open => None,
            Head::Whole(head) => Some(self.page(&head)),
            Head::Refused(status) => Some(http::bare(status)),
        }
    }

    fn timed_out(&self) -> Vec<u8> {
        http::bare(Status::TimedOut)
    }
}

/// Collects the statistics of a server once a second.
pub(crate) struct Collector<'w> {
    watch: &'w Monitor<'w>,
    sampler: Sampler,
}

impl Collector<'_> {
    /// Adds what happened since the last call to the history.
    pub(crate) fn collect(&mut self) {
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

    fn health(watch: &Monitor<'_>) -> String {
        let answer = watch.answer(b"GET /health HTTP/1.0\r\n\r\n").unwrap();
        let text = String::from_utf8(answer).unwrap();
        let (line, rest) = text.split_once("\r\n").unwrap();
        format!("{line} {}", rest.rsplit("\r\n").next().unwrap_or_default())
    }

    fn after_a_failed_set(kind: Kind, stop: bool) -> (String, String) {
        let service = Arc::new(Service::new(Arc::new(Broken(kind)), Settings::default()));
        let config = Config::default();
        let control = Control::new(config.limits.clone()).unwrap();
        let history = History::default();
        let watch = Monitor::new(&service, &control, &config, &history);
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
        watch.collector().collect();
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
