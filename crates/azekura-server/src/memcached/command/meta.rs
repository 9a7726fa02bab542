//! What the meta commands mean: one update of the engine each, and the answer written while the item is at hand.
//!
//! `ms` is checked twice: when its line is there, to know how much data follows and whether it is discarded, and again when
//! the data is whole. It knows no connection.

use azekura::error::Result;

use crate::item::{Head, Item};
use crate::memcached::command::arithmetic::{Counted, Step};
use crate::memcached::command::executor::{Change, Executor, no_item};
use crate::memcached::command::store::{New, Stored};
use crate::memcached::command::walk::size_of_item;
use crate::memcached::operate::counters::Count;
use crate::memcached::operate::watchers::Lookup;
use crate::memcached::protocol::meta::{Flags, Line, OPAQUE_TOO_LONG, Seen, parse_set, push_left};
use crate::memcached::protocol::number;
use crate::memcached::protocol::text::{BAD_FORMAT, KEY_LEN_MAX, Mode, Words};

/// The answer to nearly every fault of an `ma`.
const BAD_FLAG_OF_COUNT: &str = "CLIENT_ERROR invalid or duplicate flag";

/// A command whose line is sound: its key is decoded.
struct Request<'l> {
    line: &'l Line<'l>,
    flags: &'l Flags,
    key: &'l [u8],
}

fn refuse(output: &mut Vec<u8>, line: &str) {
    output.extend_from_slice(line.as_bytes());
    output.extend_from_slice(b"\r\n");
}

/// Whether the item of an `ms` line that is to be stored is too large; then what was there is gone, in all modes.
pub(crate) fn refuse_too_large(executor: &mut Executor, words: &[u8], len: usize) -> Result<bool> {
    let mut room = [0; KEY_LEN_MAX];
    let Ok(set) = parse_set(words, &mut room) else {
        return Ok(false);
    };
    if executor.fits(set.key_len, set.flags.client, len) {
        return Ok(false);
    }
    let key = if set.flags.has(b'b') {
        room.get(..set.key_len).unwrap_or_default()
    } else {
        set.line.key
    };
    executor.refuse_too_large((set.mode, key), true)?;
    Ok(true)
}

/// `ms`, with its data.
pub(crate) fn set(
    executor: &mut Executor,
    words: &[u8],
    data: &[u8],
    output: &mut Vec<u8>,
) -> Result<()> {
    let mut room = [0; KEY_LEN_MAX];
    let set = match parse_set(words, &mut room) {
        Ok(set) => set,
        Err(answer) => {
            refuse(output, answer);
            return Ok(());
        }
    };
    let flags = &set.flags;
    let is_binary_key = flags.has(b'b');
    let key = if is_binary_key {
        room.get(..set.key_len).unwrap_or_default()
    } else {
        set.line.key
    };
    let joins = matches!(set.mode, Mode::Append | Mode::Prepend);
    let vivify = joins && flags.has(b'N');
    let compares = flags.has(b'C') && matches!(set.mode, Mode::Set | Mode::Replace);
    let new = New {
        mode: if compares { Mode::Cas } else { set.mode },
        key,
        flags: flags.client,
        expires: executor
            .service
            .expires(if vivify { flags.vivify } else { flags.ttl }),
        data,
        compare: flags.compare(),
        version: flags.version(),
        may_be_stale: compares && flags.has(b'I'),
        vivify,
        is_binary_key,
    };
    executor.tally.one(Count::CmdMeta);
    let stored = executor.store(&new)?;
    executor.must_sync |= flags.has(b'Y');
    let (code, cas, len) = match stored {
        Stored::Done { cas, len } => (b"HD", cas, len),
        Stored::Exists => (b"EX", 0, data.len()),
        Stored::NotFound => (b"NF", 0, data.len()),
        Stored::Refused => (b"NS", 0, data.len()),
    };
    if code == b"HD" && flags.has(b'q') {
        return Ok(());
    }
    output.extend_from_slice(code);
    for word in Words(set.line.flags) {
        match word.first().copied().unwrap_or_default() {
            b'c' => {
                output.extend_from_slice(b" c");
                number::push(output, cas);
            }
            b's' => {
                output.extend_from_slice(b" s");
                number::push(output, len as u64);
            }
            letter => Line::echo(letter, word, key, is_binary_key, output),
        }
    }
    output.extend_from_slice(b"\r\n");
    Ok(())
}

/// `mg`, `md`, `ma`, `mn` and `me`, by their second letter.
pub(crate) fn execute(
    executor: &mut Executor,
    letter: u8,
    words: &[u8],
    output: &mut Vec<u8>,
) -> Result<()> {
    executor.tally.one(Count::CmdMeta);
    if letter == b'n' {
        refuse(output, "MN");
        return Ok(());
    }
    let Some(line) = Line::cut(words) else {
        refuse(output, BAD_FORMAT);
        return Ok(());
    };
    if letter == b'e' {
        return explain(executor, &line, output);
    }
    let mut room = [0; KEY_LEN_MAX];
    let read = match line.flags() {
        _ if line.has_mark() => Err(BAD_FORMAT),
        // Most faults of an `ma` have one answer.
        Err(answer) if letter == b'a' && answer != OPAQUE_TOO_LONG => Err(BAD_FLAG_OF_COUNT),
        Err(answer) => Err(answer),
        Ok(flags) => line.bytes(&flags, &mut room).map(|key| (flags, key)),
    };
    let (flags, key) = match read {
        Ok(read) => read,
        Err(answer) => {
            refuse(output, answer);
            return Ok(());
        }
    };
    let request = &Request {
        line: &line,
        flags: &flags,
        key,
    };
    match letter {
        b'g' => get(executor, request, output)?,
        b'd' => delete(executor, request, output)?,
        _ => arithmetic(executor, request, output)?,
    }
    executor.must_sync |= flags.has(b'Y');
    Ok(())
}

/// `mg` in full: it may create, touch, or win.
fn get(executor: &mut Executor, request: &Request<'_>, output: &mut Vec<u8>) -> Result<()> {
    let Request { line, flags, key } = *request;
    let (now, next) = (executor.now, executor.version());
    let expires = |time| executor.service.expires(time);
    let (ttl, vivify, recache) = (
        expires(flags.ttl),
        expires(flags.vivify),
        expires(flags.recache),
    );
    let seen = Seen::default();
    let (mut is_hit, mut sight) = (false, Lookup::NotFound);
    executor.change(key, |present, built| {
        let Some(item) = present else {
            if !flags.has(b'N') {
                return Change::Keep;
            }
            is_hit = true;
            let mut head = Head {
                // However the key came: memcached does not remember that here.
                cas: flags.version().unwrap_or(next),
                ..Head::default()
            };
            // The last of them counts; `t` shows what the flags before it have set.
            let mut shown = head;
            for word in Words(line.flags) {
                match word.first() {
                    Some(b'N') => head.expires = vivify,
                    Some(b'T') => head.expires = ttl,
                    Some(b't') => shown.expires = head.expires,
                    _ => {}
                }
            }
            let item = Item {
                head: shown,
                data: b"",
            };
            line.answer_hit(key, &item, &shown, now, seen, true, output);
            head.is_won = true;
            return Change::put(built, &head, b"");
        };
        (is_hit, sight) = (true, Lookup::Found(item.data.len()));
        let mut head = item.head;
        let mut won = false;
        for word in Words(line.flags) {
            match word.first() {
                Some(b'T') => head.expires = ttl,
                Some(b'R') => {
                    won |= !head.is_won && head.expires != 0 && head.expires < recache;
                }
                _ => {}
            }
        }
        won |= head.is_stale && !head.is_won;
        line.answer_hit(key, &item, &head, now, seen, won, output);
        head.is_won |= won;
        if head == item.head {
            return Change::Keep;
        }
        Change::put(built, &head, item.data)
    })?;
    executor.service.watchers.saw(key, sight, executor.number);
    if !is_hit {
        line.answer_miss(key, flags.has(b'b'), output);
    }
    let (asked, hit, miss) = if flags.has(b'T') {
        (Count::CmdTouch, Count::TouchHits, Count::TouchMisses)
    } else {
        (Count::CmdGet, Count::GetHits, Count::GetMisses)
    };
    executor.tally.one(asked);
    executor.tally.one(if is_hit { hit } else { miss });
    Ok(())
}

fn delete(executor: &mut Executor, request: &Request<'_>, output: &mut Vec<u8>) -> Result<()> {
    let Request { flags, key, .. } = *request;
    let is_plain = !flags.has(b'x') && !flags.has(b'I');
    let done = if is_plain {
        executor.remove(key, flags.compare(), "md")?
    } else {
        let next = executor.version();
        let ttl = executor.service.expires(flags.ttl);
        let (mut done, mut sight) = (None, Lookup::NotFound);
        executor.change(key, |present, built| {
            let Some(item) = present else {
                return Change::Keep;
            };
            sight = Lookup::Found(item.data.len());
            done = Some(flags.compare().is_none_or(|cas| cas == item.head.cas));
            if done == Some(false) {
                return Change::Keep;
            }
            let mut head = item.head;
            let mut data = item.data;
            if flags.has(b'x') {
                (head.flags, head.expires) = (flags.client, ttl);
                (head.is_stale, head.is_won) = (false, false);
                data = b"";
            }
            if flags.has(b'I') {
                if flags.has(b'T') {
                    head.expires = ttl;
                }
                (head.is_stale, head.is_won) = (true, false);
            }
            head.cas = flags
                .version()
                .unwrap_or(next.max(item.head.cas.wrapping_add(1)));
            Change::put(built, &head, data)
        })?;
        executor.service.watchers.saw(key, sight, executor.number);
        if done == Some(true) && flags.has(b'x') {
            executor.note_deleted(key, sight, "md");
        }
        executor.tally.one(match done {
            Some(true) => Count::DeleteHits,
            _ => Count::DeleteMisses,
        });
        done
    };
    let code = match done {
        Some(true) => b"HD",
        Some(false) => b"EX",
        None => b"NF",
    };
    if code == b"HD" && flags.has(b'q') {
        return Ok(());
    }
    output.extend_from_slice(code);
    echo_all(request, output);
    Ok(())
}

/// The words that are repeated whatever the outcome, and the end of the line.
fn echo_all(request: &Request<'_>, output: &mut Vec<u8>) {
    for word in Words(request.line.flags) {
        let letter = word.first().copied().unwrap_or_default();
        Line::echo(letter, word, request.key, request.flags.has(b'b'), output);
    }
    output.extend_from_slice(b"\r\n");
}

fn arithmetic(executor: &mut Executor, request: &Request<'_>, output: &mut Vec<u8>) -> Result<()> {
    let Request { line, flags, key } = *request;
    let up = match flags.mode {
        0 | b'I' | b'+' => true,
        b'D' | b'-' => false,
        _ => {
            refuse(output, "CLIENT_ERROR invalid mode for ma M token");
            return Ok(());
        }
    };
    let ttl = executor.service.expires(flags.ttl);
    let vivify = executor.service.expires(flags.vivify);
    // The last of them counts.
    let mut first = 0;
    for word in Words(line.flags) {
        match word.first() {
            Some(b'T') => first = ttl,
            Some(b'N') => first = vivify,
            _ => {}
        }
    }
    let step = Step {
        up,
        delta: flags.delta,
        // Here, as in packets, 0 is any version.
        compare: flags.compare().filter(|cas| *cas != 0),
        version: flags.version(),
        initial: flags.has(b'N').then_some((flags.initial, first)),
        expires: flags.has(b'T').then_some(ttl),
    };
    let (number, head, before) = match executor.count(key, &step)? {
        Counted::Done {
            number,
            head,
            before,
        } => (number, head, before),
        missed @ (Counted::NotFound | Counted::Exists) => {
            output.extend_from_slice(if missed == Counted::Exists {
                b"EX"
            } else {
                b"NF"
            });
            echo_all(request, output);
            return Ok(());
        }
        Counted::NoNumber => {
            refuse(
                output,
                "CLIENT_ERROR cannot increment or decrement non-numeric value",
            );
            return Ok(());
        }
        Counted::TooLarge => {
            refuse(output, "SERVER_ERROR Out of memory allocating new item");
            return Ok(());
        }
    };
    if flags.has(b'q') {
        return Ok(());
    }
    let mut digits = Vec::with_capacity(20);
    number::push(&mut digits, number);
    if flags.has(b'v') {
        output.extend_from_slice(b"VA ");
        number::push(output, digits.len() as u64);
    } else {
        output.extend_from_slice(b"HD");
    }
    // `t` shows what the flags before it have set.
    let mut expires = before.unwrap_or(0);
    for word in Words(line.flags) {
        match word.first().copied().unwrap_or_default() {
            b'c' => {
                output.extend_from_slice(b" c");
                number::push(output, head.cas);
            }
            b'T' => expires = ttl,
            b'N' if before.is_none() => expires = vivify,
            b't' => push_left(output, expires, executor.now),
            letter => Line::echo(letter, word, key, flags.has(b'b'), output),
        }
    }
    output.extend_from_slice(b"\r\n");
    if flags.has(b'v') {
        output.extend_from_slice(&digits);
        output.extend_from_slice(b"\r\n");
    }
    Ok(())
}

/// `me`: what is known of an item, for people. Of its flags only a first `b` has a meaning, and that only if another
/// follows, as in memcached.
fn explain(executor: &Executor, line: &Line<'_>, output: &mut Vec<u8>) -> Result<()> {
    let now = executor.now;
    let mut room = [0; KEY_LEN_MAX];
    let mut words = Words(line.flags);
    let is_base64 = words.next() == Some(b"b") && words.next().is_some();
    let key = match is_base64 {
        _ if line.key.len() > KEY_LEN_MAX || line.has_mark() => None,
        false => Some(line.key),
        true => number::from_base64(line.key, &mut room).and_then(|len| room.get(..len)),
    };
    let Some(key) = key else {
        refuse(output, BAD_FORMAT);
        return Ok(());
    };
    let mut reported = false;
    let mut is_damaged = false;
    executor.service.engine.read(key, &mut |value| {
        let item = value.and_then(Item::decode);
        is_damaged = value.is_some() && item.is_none();
        let Some(item) = item.filter(|item| !item.head.is_over(now)) else {
            return;
        };
        reported = true;
        output.extend_from_slice(b"ME ");
        if item.head.is_binary_key {
            number::push_base64(output, key);
        } else {
            output.extend_from_slice(key);
        }
        output.extend_from_slice(b" exp=");
        if item.head.expires == 0 {
            output.extend_from_slice(b"-1");
        } else {
            number::push(output, u64::from(item.head.expires - now));
        }
        output.extend_from_slice(b" la=0 cas=");
        number::push(output, item.head.cas);
        output.extend_from_slice(b" fetch=no cls=1 size=");
        number::push(output, size_of_item(key, &item));
        output.extend_from_slice(b"\r\n");
    })?;
    if is_damaged {
        return Err(no_item(key));
    }
    if !reported {
        refuse(output, "EN");
    }
    Ok(())
}
