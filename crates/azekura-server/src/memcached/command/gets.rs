//! Runs of reads: keys of one command and of the commands after it are looked up together, and their values copied once.
//!
//! A batch holds up to 32 keys, borrowed from the input, and for each where the input continues. Answers come in the order
//! of the keys, whatever the order in which the engine shows them; they end where the output is full, and the rest is read
//! again later. Only reads are in a batch, so the order of effects is kept.

use memchr::memchr;

use crate::item::Item;
use crate::memcached::command::executor::{Executor, no_item};
use crate::memcached::operate::counters::{Count, Tally};
use crate::memcached::operate::key_stats::Done;
use crate::memcached::operate::watchers::{DETAIL, FETCHERS, Lookup};
use crate::memcached::protocol::binary::{self, Header};
use crate::memcached::protocol::meta;
use crate::memcached::protocol::number;
use crate::memcached::protocol::text::{self, Command, Words};
use crate::memcached::service::Service;

/// As many as engines look up at once.
const BATCH: usize = 32;

/// The key that the request at the front of `input` may be about: a guess, for hints.
#[inline]
pub(crate) fn probable_key(input: &[u8]) -> Option<&[u8]> {
    let key = if let Some(header) = Header::decode(input) {
        let start = binary::HEADER_LEN + header.extras_len;
        input.get(start..)?.get(..header.key_len)?
    } else {
        let rest = input.get(memchr(b' ', input)? + 1..)?;
        rest.get(..rest.iter().position(|byte| *byte <= b' ')?)?
    };
    (!key.is_empty()).then_some(key)
}

/// How one key is answered, and where the input continues.
#[derive(Clone, Copy, Debug)]
struct Ask<'i> {
    form: Form<'i>,
    /// Bytes of input up to the end of this key, or of its command if it is the last.
    end: usize,
    /// Whether the command ends with this key.
    is_last: bool,
}

#[derive(Clone, Copy, Debug)]
enum Form<'i> {
    /// `get`, or `gets`, which shows versions.
    Text { cas: bool },
    /// `mg` that only reads.
    Meta(meta::Line<'i>),
    /// A packet.
    Binary(Header),
}

/// A command with more keys after what was consumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Open {
    /// Whether versions are shown.
    pub(crate) cas: bool,
    /// Whether it was answered with an error already: its other keys pass by.
    pub(crate) is_refused: bool,
    /// Whether a key was seen.
    pub(crate) has_keys: bool,
    /// From when on the items are over, for `gat` and `gats`.
    pub(crate) touch: Option<u32>,
}

/// What a run came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Bytes of input that are done with.
    pub(crate) consumed: usize,
    /// The command that continues after them.
    pub(crate) open: Option<Open>,
    /// Whether the next key is one that only an update can answer (an item that is won by being read).
    pub(crate) needs_update: bool,
}

struct Batch<'i> {
    keys: [&'i [u8]; BATCH],
    asks: [Ask<'i>; BATCH],
    count: usize,
    is_refused: bool,
}

/// What a batch came to.
enum Flow {
    /// All is answered.
    On,
    /// The output is full; or the ask of this index needs an update.
    Stop { needs_update: bool },
}

impl<'i> Batch<'i> {
    fn new() -> Self {
        let ask = Ask {
            form: Form::Text { cas: false },
            end: 0,
            is_last: false,
        };
        Self {
            keys: [b""; BATCH],
            asks: [ask; BATCH],
            count: 0,
            is_refused: false,
        }
    }

    /// There is room, as the caller that fills the last place answers all.
    fn push(&mut self, key: &'i [u8], ask: Ask<'i>) {
        if let (Some(at), Some(room)) =
            (self.keys.get_mut(self.count), self.asks.get_mut(self.count))
        {
            (*at, *room) = (key, ask);
            self.count += 1;
        }
    }

    fn last(&mut self) -> Option<&mut Ask<'i>> {
        self.asks.get_mut(self.count.checked_sub(1)?)
    }

    /// Answers; `run` moves on by what was answered.
    fn answer(&mut self, executor: &mut Executor, output: &mut Vec<u8>, run: &mut Run) -> Flow {
        let limit = executor.service.settings.output_max;
        let count = std::mem::take(&mut self.count);
        let (keys, asks) = (&self.keys, &self.asks);
        let mut done = 0;
        let mut needs_update = false;
        let mut is_alone = false;
        while done < count && !needs_update && output.len() < limit {
            let end = if is_alone { done + 1 } else { count };
            let (Some(keys), Some(asks)) = (keys.get(done..end), asks.get(done..end)) else {
                break;
            };
            let mut answered = 0;
            let mut damaged = None;
            let (service, mut responder) = Responder::of(executor);
            let is_refused = &mut self.is_refused;
            let mut visit = |index: usize, value: Option<&[u8]>| {
                let (Some(key), Some(ask)) = (keys.get(index), asks.get(index)) else {
                    return;
                };
                let is_over = needs_update || damaged.is_some() || output.len() >= limit;
                if index != answered || is_over {
                    return;
                }
                match responder.respond(key, ask, value, is_refused, output) {
                    Answered::Answer => answered += 1,
                    Answered::NeedsUpdate => needs_update = true,
                    Answered::NoItem => damaged = Some(no_item(key)),
                }
            };
            let read = match keys {
                [key] => service.engine.read(key, &mut |value| visit(0, value)),
                _ => service.engine.read_many(keys, &mut visit),
            };
            if let (Some(error), Some(ask)) = (damaged.or(read.err()), asks.get(answered)) {
                refuse(executor, ask, &error, &mut self.is_refused, output);
                answered += 1;
            }
            // If the engine did not begin with the first key, that is read alone.
            is_alone = answered == 0;
            done += answered;
        }
        if let Some(ask) = done.checked_sub(1).and_then(|last| asks.get(last)) {
            run.consumed = ask.end;
            run.open = match ask.form {
                Form::Text { cas } if !ask.is_last => Some(Open {
                    cas,
                    is_refused: self.is_refused,
                    has_keys: true,
                    touch: None,
                }),
                _ => None,
            };
        }
        if done == count {
            Flow::On
        } else {
            Flow::Stop { needs_update }
        }
    }
}

/// What came of telling what was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answered {
    Answer,
    /// Only an update can answer.
    NeedsUpdate,
    /// It is no item.
    NoItem,
}

/// The parts of an executor that answer a read, while the rest of it reads the engine: a reference of its own to what all
/// connections share would be counted there, at each read of each thread.
struct Responder<'h> {
    tally: &'h mut Tally,
    service: &'h Service,
    number: i32,
    now: u32,
}

impl<'h> Responder<'h> {
    #[inline]
    fn of(executor: &'h mut Executor) -> (&'h Service, Self) {
        let service = &*executor.service;
        let responder = Self {
            tally: &mut executor.tally,
            service,
            number: executor.number,
            now: executor.now,
        };
        (service, responder)
    }

    /// Answers one key with what was found.
    #[inline]
    fn respond(
        &mut self,
        key: &[u8],
        ask: &Ask<'_>,
        value: Option<&[u8]>,
        is_refused: &mut bool,
        output: &mut Vec<u8>,
    ) -> Answered {
        let item = match value.map(Item::decode) {
            Some(None) => return Answered::NoItem,
            Some(item) => item,
            None => None,
        };
        let live = item.filter(|item| !item.head.is_over(self.now));
        match &ask.form {
            Form::Meta(line) => {
                self.tally.one(Count::CmdMeta);
                if live.is_some_and(|item| item.head.is_stale && !item.head.is_won) {
                    return Answered::NeedsUpdate;
                }
                self.count(key, item.as_ref(), live.is_some());
                line.answer_get(key, live.as_ref(), self.now, meta::Seen::default(), output);
            }
            Form::Binary(header) => {
                self.count(key, item.as_ref(), live.is_some());
                binary::answer_read(output, header, key, live.as_ref());
            }
            Form::Text { cas } => {
                if !*is_refused {
                    self.count(key, item.as_ref(), live.is_some());
                    if let Some(item) = live {
                        push_value(output, key, &item, *cas);
                    }
                }
                if ask.is_last {
                    if !*is_refused {
                        output.extend_from_slice(b"END\r\n");
                    }
                    *is_refused = false;
                }
            }
        }
        Answered::Answer
    }

    #[inline]
    fn count(&mut self, key: &[u8], item: Option<&Item<'_>>, is_live: bool) {
        if self.service.watchers.want(DETAIL | FETCHERS) {
            self.note(key, item, is_live);
        }
        self.tally.read(item.is_some(), is_live);
    }

    /// Reports the read to watchers and counts its prefix.
    #[cold]
    fn note(&self, key: &[u8], item: Option<&Item<'_>>, is_live: bool) {
        if self.service.watchers.want(DETAIL) {
            self.service.key_stats.note(key, Done::Get { hit: is_live });
        }
        let sight = Lookup::of(item.map(|item| item.data.len()), is_live);
        self.service.watchers.saw(key, sight, self.number);
    }
}

/// Answers one key, and so its command, with an error.
#[cold]
fn refuse(
    executor: &mut Executor,
    ask: &Ask<'_>,
    error: &azekura::Error,
    is_refused: &mut bool,
    output: &mut Vec<u8>,
) {
    if let Form::Binary(header) = &ask.form {
        return super::binary::fail(executor, header, error, output);
    }
    if !*is_refused {
        let line = executor.error_line(error);
        output.extend_from_slice(line.as_bytes());
        output.extend_from_slice(b"\r\n");
    }
    *is_refused = !ask.is_last;
}

/// `VALUE key flags bytes [version]`, and the data.
#[inline]
pub(crate) fn push_value(output: &mut Vec<u8>, key: &[u8], item: &Item<'_>, cas: bool) {
    output.reserve(key.len() + item.data.len() + 64);
    output.extend_from_slice(b"VALUE ");
    output.extend_from_slice(key);
    output.push(b' ');
    number::push(output, u64::from(item.head.flags));
    output.push(b' ');
    number::push(output, item.data.len() as u64);
    if cas {
        output.push(b' ');
        number::push(output, item.head.cas);
    }
    output.extend_from_slice(b"\r\n");
    output.extend_from_slice(item.data);
    output.extend_from_slice(b"\r\n");
}

/// Answers the reads at the front of `input`: the rest of an `open` command, whose line need not be whole, and then whole
/// lines, as long as they only read.
///
/// `first`: the first command, and where its line ends, if that was parsed already.
pub(crate) fn run<'i>(
    executor: &mut Executor,
    open: Option<Open>,
    mut first: Option<(Command<'i>, usize)>,
    input: &'i [u8],
    output: &mut Vec<u8>,
) -> Run {
    let mut batch = Batch::new();
    let mut run = Run {
        consumed: 0,
        open,
        needs_update: false,
    };
    let mut at = 0;
    if let Some(open) = open {
        batch.is_refused = open.is_refused;
        let (is_over, end) = rest_of_command(executor, open, input, &mut batch, output, &mut run);
        if !is_over {
            return run;
        }
        at = end;
    }
    while let Some((command, end)) = first.take().or_else(|| next_line(input, at)) {
        match command {
            Command::Read {
                keys,
                cas,
                exptime: None,
            } => {
                let mut words = Words(keys);
                // The keys stand at the end of the line.
                let start = end_of_words(input, end) - keys.len();
                while let Some(key) = words.next() {
                    let ask = Ask {
                        form: Form::Text { cas },
                        end: start + keys.len() - words.0.len(),
                        is_last: false,
                    };
                    batch.push(key, ask);
                    let is_last = words.0.iter().all(|byte| *byte == b' ');
                    if let (true, Some(ask)) = (is_last, batch.last()) {
                        (ask.is_last, ask.end) = (true, end);
                    }
                    if batch.count == BATCH
                        && let Flow::Stop { needs_update } =
                            batch.answer(executor, output, &mut run)
                    {
                        run.needs_update = needs_update;
                        return run;
                    }
                }
            }
            Command::Meta(b'g', words) => {
                let Some(line) = meta::Line::read_only(words) else {
                    break;
                };
                let ask = Ask {
                    form: Form::Meta(line),
                    end,
                    is_last: true,
                };
                batch.push(line.key, ask);
                if batch.count == BATCH
                    && let Flow::Stop { needs_update } = batch.answer(executor, output, &mut run)
                {
                    run.needs_update = needs_update;
                    return run;
                }
            }
            _ => break,
        }
        at = end;
    }
    if batch.count > 0
        && let Flow::Stop { needs_update } = batch.answer(executor, output, &mut run)
    {
        run.needs_update = needs_update;
    }
    run
}

/// The command of the line that begins at `at`, and where that ends; `None`: it is not whole.
#[inline]
fn next_line(input: &[u8], at: usize) -> Option<(Command<'_>, usize)> {
    let rest = input.get(at..)?;
    let len = memchr(b'\n', rest)?;
    let line = text::without_end(rest.get(..len)?);
    Some((text::parse(line), at + len + 1))
}

/// Where the words end of a line that ends at `end`.
#[inline]
fn end_of_words(input: &[u8], end: usize) -> usize {
    let line = input.get(..end - 1).unwrap_or_default();
    text::without_end(line).len()
}

/// Answers the packets at the front of `input` that only read and are whole.
pub(crate) fn packets(executor: &mut Executor, input: &[u8], output: &mut Vec<u8>) -> usize {
    let mut batch = Batch::new();
    let mut run = Run {
        consumed: 0,
        open: None,
        needs_update: false,
    };
    let mut at = 0;
    while batch.count < BATCH
        && let Some(rest) = input.get(at..)
        && let Some(header) = Header::decode(rest).filter(Header::is_read)
        && let Some(key) = rest.get(binary::HEADER_LEN..header.front_len())
    {
        at += header.front_len();
        let ask = Ask {
            form: Form::Binary(header),
            end: at,
            is_last: true,
        };
        batch.push(key, ask);
    }
    if batch.count > 0 {
        batch.answer(executor, output, &mut run);
    }
    run.consumed
}

/// Answers the keys of a `gat`, whose line is whole: each is one update.
pub(crate) fn touch(
    executor: &mut Executor,
    open: Open,
    expires: u32,
    input: &[u8],
    output: &mut Vec<u8>,
) -> Run {
    let limit = executor.service.settings.output_max;
    let len = memchr(b'\n', input).unwrap_or(input.len());
    let line = text::without_end(input.get(..len).unwrap_or_default());
    let mut words = Words(line);
    let mut run = Run {
        consumed: 0,
        open: Some(open),
        needs_update: false,
    };
    let mut is_refused = open.is_refused;
    while output.len() < limit {
        let Some(key) = words.next() else {
            if !is_refused {
                output.extend_from_slice(b"END\r\n");
            }
            (run.consumed, run.open) = (len + 1, None);
            break;
        };
        run.consumed = line.len() - words.0.len();
        if is_refused {
            continue;
        }
        let touched = executor.touch(key, expires, |item| {
            push_value(output, key, &item, open.cas);
        });
        match touched {
            Ok(is_hit) => executor.note_read(key, is_hit, is_hit),
            Err(error) => {
                let line = executor.error_line(&error);
                output.extend_from_slice(line.as_bytes());
                output.extend_from_slice(b"\r\n");
                is_refused = true;
                run.open = Some(Open { is_refused, ..open });
            }
        }
    }
    run
}

/// Answers a `get` of one key.
#[inline]
pub(crate) fn single(executor: &mut Executor, key: &[u8], cas: bool, output: &mut Vec<u8>) {
    let ask = Ask {
        form: Form::Text { cas },
        end: 0,
        is_last: true,
    };
    let mut is_refused = false;
    let (service, mut responder) = Responder::of(executor);
    let mut answered = Answered::Answer;
    let read = service.engine.read(key, &mut |value| {
        answered = responder.respond(key, &ask, value, &mut is_refused, output);
    });
    let damaged = (answered == Answered::NoItem).then(|| no_item(key));
    if let Some(error) = damaged.or(read.err()) {
        refuse(executor, &ask, &error, &mut is_refused, output);
    }
}

/// Answers what is there of the keys of a command. Whether its line ended, or else all was done that could be; and where.
fn rest_of_command<'i>(
    executor: &mut Executor,
    open: Open,
    input: &'i [u8],
    batch: &mut Batch<'i>,
    output: &mut Vec<u8>,
    run: &mut Run,
) -> (bool, usize) {
    let newline = memchr(b'\n', input);
    let line = match newline {
        Some(len) => text::without_end(input.get(..len).unwrap_or_default()),
        // The last word may continue, and a carriage return may belong to the end.
        None => input,
    };
    let mut words = Words(line);
    let mut open = open;
    let mut whole = line.len();
    while let Some(key) = words.next() {
        let end = line.len() - words.0.len();
        if newline.is_none() && words.0.is_empty() && key.len() <= text::KEY_LEN_MAX + 1 {
            // Not whole yet.
            whole = end - key.len();
            break;
        }
        if key.len() > text::KEY_LEN_MAX {
            if batch.count > 0 && matches!(batch.answer(executor, output, run), Flow::Stop { .. }) {
                return (false, 0);
            }
            if !open.is_refused && !batch.is_refused {
                output.extend_from_slice(text::BAD_FORMAT.as_bytes());
                output.extend_from_slice(b"\r\n");
            }
            open.is_refused = true;
            batch.is_refused = true;
            run.consumed = end;
            run.open = Some(open);
            continue;
        }
        open.has_keys = true;
        let ask = Ask {
            form: Form::Text { cas: open.cas },
            end,
            is_last: false,
        };
        batch.push(key, ask);
        if batch.count == BATCH && matches!(batch.answer(executor, output, run), Flow::Stop { .. })
        {
            return (false, 0);
        }
    }
    if batch.count > 0 && matches!(batch.answer(executor, output, run), Flow::Stop { .. }) {
        return (false, 0);
    }
    let Some(len) = newline else {
        open.is_refused = batch.is_refused;
        (run.consumed, run.open) = (whole, Some(open));
        return (false, 0);
    };
    if !open.has_keys {
        output.extend_from_slice(text::BAD_FORMAT.as_bytes());
        output.extend_from_slice(b"\r\n");
    } else if !batch.is_refused {
        output.extend_from_slice(b"END\r\n");
    }
    batch.is_refused = false;
    (run.consumed, run.open) = (len + 1, None);
    (true, len + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_guessed_of_requests_that_are_whole_enough() {
        for input in [
            "get a b\r\n",
            "set a 0 0 1\r\nx\r\n",
            "mg a v\r\n",
            "mn a\n",
        ] {
            assert_eq!(probable_key(input.as_bytes()), Some(&b"a"[..]));
        }
        for input in [
            "",
            "get",
            "get ",
            "get a",
            "get  a\r\n",
            "version\r\n",
            "\u{80}",
        ] {
            assert_eq!(probable_key(input.as_bytes()), None);
        }
        let mut packet = [0; 26];
        (packet[0], packet[3], packet[24], packet[25]) = (binary::REQUEST, 2, b'a', b'b');
        assert_eq!(probable_key(&packet), Some(&b"ab"[..]));
        assert_eq!(probable_key(&packet[..25]), None);
    }
}
