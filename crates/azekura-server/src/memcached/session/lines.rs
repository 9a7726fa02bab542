//! Lines: the text protocol and the meta commands, one line and its data after another.
//!
//! A line is taken when it has ended, and with its data when that is there, or is long and taken as it comes. It is parsed
//! once: runs of reads and of writes begin with the parsed command. It knows no packets.

use memchr::memchr;

use super::{COLLECT_MIN, CREDENTIALS_LEN_MAX, Collect, Doing, Session, Step, Transport};
use crate::memcached::command::answer::{push_line, push_outcome};
use crate::memcached::command::executor::Executor;
use crate::memcached::command::gets::{self, Open};
use crate::memcached::command::text::{self as execute, WithData};
use crate::memcached::command::walk::Walk;
use crate::memcached::command::{meta, sets};
use crate::memcached::operate::watchers::{self, Watch};
use crate::memcached::operate::{stats, tools};
use crate::memcached::protocol::meta::{SetLine, set_line};
use crate::memcached::protocol::text::{self, Command, Mode, Store, Tool, WalkKind, Words};

impl Session {
    /// Takes the line at the front of `rest`, and its data.
    pub(super) fn line(&mut self, rest: &[u8], output: &mut Vec<u8>) -> Step {
        let Some(len) = memchr(b'\n', rest) else {
            return self.long_line(rest);
        };
        let line = text::without_end(rest.get(..len).unwrap_or_default());
        let end = len + 1;
        if !self.is_admitted {
            return self.admit(line, rest, end, output);
        }
        let executor = &mut self.executor;
        let command = text::parse(line);
        match command {
            Command::Read {
                keys: [b' ', key @ ..],
                cas,
                exptime: None,
            } if end == rest.len() && memchr(b' ', key).is_none() => {
                gets::single(executor, key, cas, output);
                Step::On(end)
            }
            Command::Read { exptime: None, .. } | Command::Meta(b'g', _) => {
                let run = gets::run(executor, None, Some((command, end)), rest, output);
                self.doing = run.open.map_or(Doing::Nothing, Doing::Keys);
                if run.consumed > 0 || self.executor.service.settings.output_max <= output.len() {
                    return Step::On(run.consumed);
                }
                // An `mg` that does more than to read.
                self.other(command, rest, end, output)
            }
            Command::Store(asked) => self.store(asked, line, rest, end, output),
            Command::Meta(b's', words) => match set_line(words) {
                SetLine::Refused(answer) => {
                    push_line(output, answer);
                    Step::On(end)
                }
                SetLine::Swallow { len, answer } => {
                    push_line(output, answer);
                    self.discard(end, len)
                }
                SetLine::Store { len } => match meta::refuse_too_large(executor, words, len) {
                    Ok(false) => {
                        self.with_data(WithData::Meta(words), len, line, rest, end, output)
                    }
                    refused => {
                        let answer = "SERVER_ERROR object too large for cache";
                        push_outcome(executor, refused.map(|_| answer), output);
                        self.discard(end, len)
                    }
                },
            },
            command => self.other(command, rest, end, output),
        }
    }

    /// A line that has not ended: a `get` may be as long as it likes, others are a mistake.
    fn long_line(&mut self, rest: &[u8]) -> Step {
        if rest.len() <= text::LINE_LEN_MAX {
            return Step::More(1);
        }
        let (cas, len) = match rest {
            [b'g', b'e', b't', b' ', ..] => (false, 4),
            [b'g', b'e', b't', b's', b' ', ..] => (true, 5),
            _ => return Step::Close(0),
        };
        self.doing = Doing::Keys(Open {
            cas,
            is_refused: false,
            has_keys: false,
            touch: None,
        });
        Step::On(len)
    }

    /// Refuses an item for its size: `len` bytes of data and an end of line pass by.
    fn discard(&mut self, end: usize, len: usize) -> Step {
        self.doing = Doing::Discard(len as u64 + 2);
        Step::On(end)
    }

    /// A line of an unauthenticated client: `set k f e len` with a user and a password as data, or refused.
    fn admit(&mut self, line: &[u8], rest: &[u8], end: usize, output: &mut Vec<u8>) -> Step {
        let mut words = Words(line);
        let is_set = words.next() == Some(b"set");
        let len = words.nth(3).and_then(text::data_len);
        let Some(len) = len.filter(|_| is_set) else {
            push_line(output, "CLIENT_ERROR unauthenticated");
            return Step::On(end);
        };
        if len > CREDENTIALS_LEN_MAX {
            push_line(output, "CLIENT_ERROR auth token too long");
            return self.discard(end, len);
        }
        let whole = end + len + 2;
        let Some(data) = rest.get(end..whole) else {
            self.awaits_data = true;
            return Step::More(whole - rest.len());
        };
        let Some(data) = data.strip_suffix(b"\r\n") else {
            push_line(output, "CLIENT_ERROR bad command line termination");
            return Step::On(whole);
        };
        // A password may contain spaces; a user name may not.
        let Some(at) = memchr(b' ', data) else {
            push_line(output, "CLIENT_ERROR bad authentication token format");
            return Step::On(whole);
        };
        let (user, password) = (
            data.get(..at).unwrap_or_default(),
            data.get(at + 1..).unwrap_or_default(),
        );
        push_line(
            output,
            if self.try_admit(user, password) {
                "STORED"
            } else {
                "CLIENT_ERROR authentication failure"
            },
        );
        Step::On(whole)
    }

    /// A line that data follows.
    fn store(
        &mut self,
        asked: Store<'_>,
        line: &[u8],
        rest: &[u8],
        end: usize,
        output: &mut Vec<u8>,
    ) -> Step {
        let executor = &mut self.executor;
        if !executor.fits(asked.key.len(), asked.flags, asked.len) {
            let refused =
                executor.refuse_too_large((asked.mode, asked.key), asked.mode == text::Mode::Set);
            if !asked.noreply {
                let answer = "SERVER_ERROR object too large for cache";
                push_outcome(executor, refused.map(|()| answer), output);
            }
            return self.discard(end, asked.len);
        }
        if asked.mode == Mode::Set && follows_set(rest, end + asked.len + 2) {
            let consumed = sets::run(&mut self.executor, asked, end, rest, output);
            if consumed > 0 {
                return Step::On(consumed);
            }
        }
        self.with_data(WithData::Store(asked), asked.len, line, rest, end, output)
    }

    /// Stores if all data is there; else waits for it, or takes what there is.
    fn with_data(
        &mut self,
        command: WithData<'_>,
        len: usize,
        line: &[u8],
        rest: &[u8],
        end: usize,
        output: &mut Vec<u8>,
    ) -> Step {
        let whole = end + len + 2;
        if let Some(data) = rest.get(end..whole) {
            execute::with_data(&mut self.executor, &command, data, output);
            return Step::On(whole);
        }
        if len <= COLLECT_MIN {
            self.awaits_data = true;
            return Step::More(whole - rest.len());
        }
        self.doing = Doing::Collect(Box::new(Collect {
            line: line.to_vec(),
            data: Vec::new(),
            left: len + 2,
        }));
        Step::On(end)
    }

    /// Answers by `begin`, and by the walk that it begins.
    fn walk(
        &mut self,
        begin: impl FnOnce(&mut Executor, &[u8], &mut Vec<u8>) -> Option<Walk>,
        words: &[u8],
        output: &mut Vec<u8>,
    ) {
        if let Some(walk) = begin(&mut self.executor, words, output) {
            self.doing = Doing::Walk(Box::new(walk));
        }
    }

    /// `watch`: from here on the connection only sends events.
    fn watch(&mut self, words: &[u8], output: &mut Vec<u8>) {
        let service = &self.executor.service;
        let answer = if !service.settings.dump_enabled {
            "CLIENT_ERROR watch commands not allowed"
        } else if self.transport == Transport::Udp {
            "ERROR"
        } else if !output.is_empty() {
            "ERROR cannot pipeline other commands before watch"
        } else if let Some(kinds) = watchers::kinds(words) {
            match Watch::begin(&service.watchers, kinds) {
                Some(watch) => {
                    self.doing = Doing::Watch(watch);
                    "OK"
                }
                None => "WATCHER_TOO_MANY log watcher limit reached",
            }
        } else {
            "ERROR"
        };
        push_line(output, answer);
    }

    /// A line that is neither of a run of reads nor of writes.
    fn other(
        &mut self,
        command: Command<'_>,
        rest: &[u8],
        end: usize,
        output: &mut Vec<u8>,
    ) -> Step {
        let executor = &mut self.executor;
        match command {
            _ if end < text::LINE_LEN_MIN => push_line(output, text::BAD_FORMAT),
            Command::Swallow { len, answer } => {
                if let Some(answer) = answer {
                    push_line(output, answer);
                }
                return self.discard(end, len);
            }
            Command::Refused(answer) => {
                if let Some(answer) = answer {
                    push_line(output, answer);
                }
            }
            Command::Read { keys, cas, exptime } => {
                // The line is whole, and its keys stand at its end.
                let line = text::without_end(rest.get(..end - 1).unwrap_or_default());
                self.doing = Doing::Keys(Open {
                    cas,
                    is_refused: false,
                    has_keys: true,
                    touch: exptime.map(|time| executor.service.expires(time)),
                });
                return Step::On(line.len() - keys.len());
            }
            Command::ShutDown { graceful, noreply } => {
                return self.shut_down(graceful, noreply, end, output);
            }
            Command::Operate(Tool::Watch, words) => self.watch(words, output),
            Command::Stats(words) => self.walk(execute::stats, words, output),
            Command::Operate(tool, words) => {
                let operate = |executor: &mut _, words: &_, output: &mut _| {
                    tools::operate(executor, tool, words, output)
                };
                let before = output.len();
                self.walk(operate, words, output);
                // What is walked has no such word at its end.
                if text::is_quiet(words) {
                    output.truncate(before);
                }
            }
            Command::Walk(what, words) => self.begin_walk(what, words, output),
            Command::Version => {
                output.extend_from_slice(b"VERSION ");
                push_line(output, stats::VERSION);
            }
            Command::Meta(letter, words) => {
                if let Err(error) = meta::execute(executor, letter, words, output) {
                    push_outcome(executor, Err(error), output);
                }
            }
            Command::Quit | Command::Close => return Step::Close(end),
            // It was executed with its data.
            Command::Store(_) => push_line(output, "ERROR"),
            command => execute::execute(executor, &command, output),
        }
        Step::On(end)
    }

    /// `shutdown`.
    fn shut_down(
        &mut self,
        graceful: Option<bool>,
        noreply: bool,
        end: usize,
        output: &mut Vec<u8>,
    ) -> Step {
        let service = &self.executor.service;
        let outside = service.outside();
        let refused = match (outside, graceful) {
            (Some(outside), Some(graceful)) if service.settings.shutdown_enabled => {
                outside.shut_down(graceful);
                return Step::Close(end);
            }
            (Some(_), None) if service.settings.shutdown_enabled => {
                "CLIENT_ERROR invalid shutdown mode"
            }
            _ => "SERVER_ERROR: shutdown not enabled",
        };
        if !noreply {
            push_line(output, refused);
        }
        Step::On(end)
    }

    /// `keys`, `dump`, `dump_key`.
    fn begin_walk(&mut self, what: WalkKind, words: &[u8], output: &mut Vec<u8>) {
        let settings = &self.executor.service.settings;
        if !settings.dump_enabled {
            return push_line(output, "CLIENT_ERROR dump not allowed");
        }
        match Walk::parse(what, words, settings.dump_bytes_per_second) {
            Ok(walk) => self.doing = Doing::Walk(Box::new(walk)),
            Err(answer) => push_line(output, answer),
        }
    }
}

/// Whether another `set` begins at `end`, after the data of this one.
fn follows_set(rest: &[u8], end: usize) -> bool {
    rest.get(end..)
        .is_some_and(|more| more.starts_with(b"set "))
}
