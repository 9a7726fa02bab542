//! `top`: the activity of a server in a terminal, requested once a second and redrawn in place.
//!
//! Figures are the server's own, of the last second and since its start; nothing is computed here but their form. On a
//! terminal it leaves what was there before as it was, whichever way it ends. Elsewhere, or with `--once`, it prints one
//! picture and ends. It uses the protocol of clients, so it needs no other port.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use azekura::error::size;
use azekura::{Error, Kind, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::exit::Outcome;
use crate::output::Output;
use crate::server::Server;
use azekura_wire::Client;

/// Seconds whose rates are drawn.
const PAST: usize = 60;

/// Show what a server is doing, each second; q ends
#[derive(clap::Args)]
pub(crate) struct Top {
    /// Print once and end, as is done where standard output is no terminal
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    server: Server,
}

/// Figures by their names.
type Figures = BTreeMap<String, String>;

/// The statistics of a server.
#[derive(Default)]
struct Seen {
    general: Figures,
    engine: Figures,
    recent: Figures,
    latency: Figures,
}

impl Top {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        let mut client = self.server.connect()?;
        if self.once || !std::io::stdout().is_terminal() {
            let seen = Seen::ask_whole(&mut client)?;
            out.bytes(picture(&self.server.address, &seen, None).as_bytes())?;
            return Ok(Outcome::Yes);
        }
        let seen = Seen::ask(&mut client)?;
        // From here on a signal waits to be looked at, so the terminal is given back.
        let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])
            .map_err(|e| Error::io("cannot listen to signals", e))?;
        let screen = Screen::take(out)?;
        let watched = self.watch(&mut client, seen, &screen, &mut signals, out);
        drop(screen);
        let left = out.text_now("\x1b[?25h\x1b[?1049l");
        watched.and(left).map(|()| Outcome::Yes)
    }

    fn watch(
        &self,
        client: &mut Client,
        mut seen: Seen,
        screen: &Screen,
        signals: &mut Signals,
        out: &mut Output<'_>,
    ) -> Result<()> {
        let mut past = VecDeque::new();
        loop {
            let next = Instant::now() + Duration::from_secs(1);
            if past.len() == PAST {
                past.pop_front();
            }
            past.push_back(requests(&seen.recent));
            draw(&picture(&self.server.address, &seen, Some(&past)), out)?;
            loop {
                if signals.pending().next().is_some() || screen.asks_to_end(next)? {
                    return Ok(());
                }
                if Instant::now() >= next {
                    break;
                }
            }
            seen = Seen::ask(client)?;
        }
    }
}

impl Seen {
    fn ask(client: &mut Client) -> Result<Self> {
        let mut of = |group| -> Result<Figures> {
            let split = |figure: String| {
                let (name, value) = figure.split_once(' ')?;
                Some((name.to_owned(), value.to_owned()))
            };
            Ok(client.stats(group)?.into_iter().filter_map(split).collect())
        };
        let general = of("")?;
        if !general
            .get("version")
            .is_some_and(|of| of.contains("azekura"))
        {
            return Err(Error::new(Kind::Mismatch, "the server is not azekura")
                .remedy("`azekura client stats` shows the figures of other servers"));
        }
        Ok(Self {
            engine: of("engine")?,
            recent: of("recent")?,
            latency: of("latency")?,
            general,
        })
    }

    /// As `ask`, and waits for the first second of a server that has just started.
    fn ask_whole(client: &mut Client) -> Result<Self> {
        for _ in 0..30 {
            let seen = Self::ask(client)?;
            if !seen.recent.is_empty() {
                return Ok(seen);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Self::ask(client)
    }
}

/// The terminal, while it is drawn on.
struct Screen {
    /// How its keys were before; `None`: there are none.
    before: Option<Termios>,
}

impl Screen {
    /// Goes to a picture of its own, and lets keys come one by one.
    fn take(out: &mut Output<'_>) -> Result<Self> {
        let before = tcgetattr(rustix::stdio::stdin()).ok();
        if let Some(before) = &before {
            let mut keys = before.clone();
            let off = LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
            keys.local_modes.remove(off);
            set(&keys)?;
        }
        let screen = Self { before };
        out.text_now("\x1b[?1049h\x1b[?25l")?;
        Ok(screen)
    }

    /// Waits for a key until `next`; whether it was one that ends: q, Ctrl-C, Ctrl-D or Escape.
    fn asks_to_end(&self, next: Instant) -> Result<bool> {
        let left = next.saturating_duration_since(Instant::now());
        let left = Timespec {
            tv_sec: 0,
            tv_nsec: i64::from(left.subsec_nanos().max(1_000_000)),
        };
        let stdin = rustix::stdio::stdin();
        let mut waits = Vec::new();
        if self.before.is_some() {
            waits.push(PollFd::new(&stdin, PollFlags::IN));
        }
        match poll(&mut waits, Some(&left)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(false),
            Ok(_) => {}
            Err(e) => return Err(Error::io("cannot wait for keys", e)),
        }
        let mut keys = [0; 16];
        let len = rustix::io::read(stdin, &mut keys).unwrap_or(0);
        // Nothing to read, though there was something: the terminal has gone.
        let ends = |key: &u8| matches!(key, b'q' | b'Q' | 0x03 | 0x04 | 0x1b);
        Ok(len == 0 || keys[..len].iter().any(ends))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = set(before);
        }
    }
}

/// Draws over what was drawn before, as much as there is room for.
fn draw(picture: &str, out: &mut Output<'_>) -> Result<()> {
    // A terminal that does not know its size reports zero.
    let known = |size: u16, usual: u16| if size == 0 { usual } else { size };
    let (rows, columns) = tcgetwinsize(rustix::stdio::stdout()).map_or((24, 80), |size| {
        (known(size.ws_row, 24), known(size.ws_col, 80))
    });
    let mut text = String::from("\x1b[H");
    let room = usize::from(rows).saturating_sub(1).max(1);
    for line in picture.lines().take(room) {
        text.extend(line.chars().take(usize::from(columns)));
        text.push_str("\x1b[K\r\n");
    }
    text.push_str("\x1b[J");
    out.text_now(&text)
}

fn set(keys: &Termios) -> Result<()> {
    tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, keys)
        .map_err(|e| Error::io("cannot set up the terminal", e))
}

/// The value of a figure; `None`: there is none, or it is no number.
fn value(figures: &Figures, name: &str) -> Option<f64> {
    figures.get(name)?.parse().ok()
}

fn requests(recent: &Figures) -> f64 {
    let of = |name| value(recent, name).unwrap_or(0.0);
    of("gets_per_second") + of("sets_per_second") + of("others_per_second")
}

/// A size or a time without its fraction.
#[expect(clippy::cast_sign_loss, reason = "what is below zero is zero")]
fn whole(value: f64) -> u64 {
    value.max(0.0) as u64
}

/// A count with its thousands apart.
fn count(value: f64) -> String {
    let digits = format!("{:.0}", value.max(0.0));
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Microseconds with their unit.
fn micros(value: f64) -> String {
    match value {
        ..1e3 => format!("{value:.1} us"),
        ..1e6 => format!("{:.1} ms", value / 1e3),
        _ => format!("{:.1} s", value / 1e6),
    }
}

/// Seconds in the two largest units.
fn long(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// The rates of the last seconds as a row of bars.
fn bars(past: &VecDeque<f64>) -> String {
    let top = past.iter().copied().fold(1.0, f64::max);
    let bar = |value: &f64| {
        // From one eighth to a whole block.
        let eighths = (value / top * 7.0).round().clamp(0.0, 7.0);
        (0..8_u32)
            .find(|step| f64::from(*step) >= eighths)
            .and_then(|step| char::from_u32(0x2581 + step))
            .unwrap_or(' ')
    };
    past.iter().map(bar).collect()
}

/// A figure in words; `-`: there is none.
fn shown(figures: &Figures, name: &str, show: &dyn Fn(f64) -> String) -> String {
    value(figures, name).map_or_else(|| "-".to_owned(), show)
}

fn bytes(value: f64) -> String {
    size(whole(value))
}

/// A text of lines, each a name and pairs of a label and a value; as wide as terminals mostly are.
struct Picture(String);

impl Picture {
    fn line(&mut self, name: &str, parts: &[(&str, String)]) {
        let _ = write!(self.0, "{name:<12}");
        for (label, value) in parts {
            let pair = format!("{label}{}{value}", if label.is_empty() { "" } else { " " });
            let _ = write!(self.0, "{pair:<16} ");
        }
        self.0.truncate(self.0.trim_end().len());
        self.0.push('\n');
    }

    /// The server.
    fn server(&mut self, address: &str, seen: &Seen) {
        let word = |name: &str| seen.engine.get(name).map_or("-", String::as_str);
        let uptime = long(whole(value(&seen.general, "uptime").unwrap_or(0.0)));
        let (engine, survives) = (word("engine"), word("survives"));
        let durability = survives.trim_start_matches("the ");
        let _ = writeln!(
            self.0,
            "{:<12}{address}  up {uptime}  engine {engine}  durability {durability}",
            "azekura"
        );
        let places = value(&seen.general, "damaged_places").unwrap_or(0.0);
        if places > 0.0 {
            let writes = match seen.general.get("read_only").map(String::as_str) {
                Some("yes") => "writes are refused until it is repaired",
                _ => "what it affects is refused",
            };
            let _ = writeln!(
                self.0,
                "{:<12}places {}  {writes}",
                "DAMAGED",
                count(places)
            );
        }
    }

    /// What was done in the last second.
    fn requests(&mut self, recent: &Figures) {
        let rate = |name| shown(recent, name, &count);
        self.line(
            "requests/s",
            &[
                ("", count(requests(recent))),
                ("get", rate("gets_per_second")),
                ("set", rate("sets_per_second")),
                ("other", rate("others_per_second")),
            ],
        );
        let time = |name| shown(recent, name, &micros);
        self.line(
            "latency",
            &[
                ("p50", time("p50_us")),
                ("p99", time("p99_us")),
                ("p99.9", time("p999_us")),
                ("max", time("max_us")),
            ],
        );
        let hits = |ratio: f64| format!("{:.1} %", ratio * 100.0);
        let cpu = |percent: f64| format!("{percent:.0} %");
        let flow = |value: f64| format!("{}/s", bytes(value));
        self.line(
            "rates",
            &[
                ("hits", shown(recent, "hit_ratio", &hits)),
                ("in", shown(recent, "received_bytes_per_second", &flow)),
                ("out", shown(recent, "sent_bytes_per_second", &flow)),
                ("CPU", shown(recent, "cpu_percent", &cpu)),
            ],
        );
    }

    /// What it has and takes.
    fn resources(&mut self, seen: &Seen) {
        let total = |name| shown(&seen.general, name, &count);
        self.line(
            "connections",
            &[
                ("open", total("curr_connections")),
                ("at most", total("max_connections")),
                ("refused", total("rejected_connections")),
                ("dropped", total("connections_dropped")),
            ],
        );
        let recent = &seen.recent;
        self.line(
            "memory",
            &[
                ("process", shown(recent, "resident_bytes", &bytes)),
                ("engine", shown(&seen.engine, "memory_bytes", &bytes)),
            ],
        );
        let mut space = vec![("records", shown(&seen.engine, "count", &count))];
        for (label, name) in [
            ("file", "file_bytes"),
            ("live", "live_bytes"),
            ("free", "free_bytes"),
        ] {
            if value(recent, name).is_some() {
                space.push((label, shown(recent, name, &bytes)));
            }
        }
        self.line("space", &space);
        let rate = |name| shown(recent, name, &count);
        self.line(
            "per second",
            &[
                ("syncs", rate("syncs_per_second")),
                ("p99", shown(recent, "sync_p99_us", &micros)),
                ("errors", rate("errors_per_second")),
                ("slow", rate("slow_per_second")),
            ],
        );
    }

    /// How long each command took, since the start.
    fn latency(&mut self, latency: &Figures) {
        let text = &mut self.0;
        let names = ["mean_us", "p50_us", "p90_us", "p99_us", "p999_us", "max_us"];
        let _ = write!(text, "\n{:<12}{:>13}", "since start", "count");
        for name in ["mean", "p50", "p90", "p99", "p99.9", "max"] {
            let _ = write!(text, "{name:>9}");
        }
        text.push('\n');
        for word in ["get", "set", "delete", "incr", "touch", "other", "sync"] {
            if value(latency, &format!("{word}:count")).is_none() {
                continue;
            }
            let of = |name: &str, show| shown(latency, &format!("{word}:{name}"), show);
            let _ = write!(text, "{word:<12}{:>13}", of("count", &count));
            for name in names {
                let _ = write!(text, "{:>9}", of(name, &micros));
            }
            text.push('\n');
        }
    }
}

/// All that is shown; `past` is drawn if there is one.
fn picture(address: &str, seen: &Seen, past: Option<&VecDeque<f64>>) -> String {
    let mut picture = Picture(String::new());
    picture.server(address, seen);
    if let Some(past) = past {
        picture.line("", &[("", bars(past))]);
    }
    picture.requests(&seen.recent);
    picture.resources(seen);
    picture.latency(&seen.latency);
    picture.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(pairs: &[(&str, &str)]) -> Figures {
        let owned = |pair: &(&str, &str)| (pair.0.to_owned(), pair.1.to_owned());
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn a_picture_tells_rates_times_and_sizes_and_a_dash_for_what_there_is_not() {
        let seen = Seen {
            general: figures(&[("uptime", "3725"), ("curr_connections", "40")]),
            engine: figures(&[
                ("engine", "hash"),
                ("survives", "the process"),
                ("memory_bytes", "1048576"),
                ("count", "1234567"),
            ]),
            recent: figures(&[
                ("gets_per_second", "1500.4"),
                ("sets_per_second", "500"),
                ("p99_us", "1234.5"),
                ("file_bytes", "2048"),
                ("hit_ratio", "0.985"),
                ("cpu_percent", "123.4"),
            ]),
            latency: figures(&[("get:count", "10"), ("get:p50_us", "2.0")]),
        };
        let text = picture("here:1", &seen, None);
        let line = |name: &str| {
            let found = text.lines().find(|line| line.starts_with(name));
            let words: Vec<&str> = found.unwrap_or_default().split_whitespace().collect();
            words.join(" ")
        };
        assert_eq!(
            line("azekura"),
            "azekura here:1 up 1 h 2 min engine hash durability process"
        );
        assert_eq!(
            line("requests/s"),
            "requests/s 2,000 get 1,500 set 500 other -"
        );
        assert_eq!(line("latency"), "latency p50 - p99 1.2 ms p99.9 - max -");
        assert_eq!(line("rates"), "rates hits 98.5 % in - out - CPU 123 %");
        assert_eq!(line("memory"), "memory process - engine 1 MiB");
        assert_eq!(line("space"), "space records 1,234,567 file 2 KiB");
        assert_eq!(line("get"), "get 10 - 2.0 us - - - -");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }

    #[test]
    fn bars_are_as_high_as_their_rates() {
        let past = VecDeque::from([0.0, 50.0, 100.0]);
        assert_eq!(bars(&past), "\u{2581}\u{2585}\u{2588}");
    }

    #[test]
    fn counts_and_times_are_told_in_the_units_of_people() {
        assert_eq!(
            (count(0.0), count(999.0), count(1e6)),
            ("0".into(), "999".into(), "1,000,000".into())
        );
        assert_eq!(
            (micros(0.5), micros(2500.0), micros(3e6)),
            ("0.5 us".into(), "2.5 ms".into(), "3.0 s".into())
        );
        assert_eq!(
            (long(59), long(61), long(90_000)),
            ("59 s".into(), "1 min 1 s".into(), "1 d 1 h".into())
        );
    }
}
