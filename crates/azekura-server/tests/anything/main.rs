//! Any bytes, to everything that reads bytes from outside: a connection, a datagram, a head of HTTP, a configuration.
//!
//! Each file next to this one states what must hold whatever comes, in its `check`; `make fuzz` calls the same with bytes that
//! it finds itself. Here they are made of the words that each one knows, of sound inputs with a few bytes changed, and of
//! noise, by seeds, so that this needs no tool and tries the same again. Broken answers show that the checks can fail.
//! It knows no sockets.

mod config;
mod datagram;
mod http;
mod session;

use azekura::testkit::suite::{share, tried_at_least};
use azekura::testkit::{Random, round_seed};

/// What inputs are made of.
struct Source {
    /// Sound inputs.
    whole: &'static [&'static [u8]],
    /// Parts of inputs.
    words: &'static [&'static [u8]],
}

impl Source {
    fn input(&self, random: &mut Random) -> Vec<u8> {
        let mut bytes = Vec::new();
        match random.below(8) {
            0 => {
                let len = random.index(200);
                bytes = random.bytes(len);
            }
            1..4 => {
                for _ in 0..=random.index(4) {
                    bytes.extend_from_slice(random.choose::<&[u8]>(self.whole));
                }
                for _ in 0..random.index(4) {
                    self.change(&mut bytes, random);
                }
            }
            _ => {
                for _ in 0..random.index(60) {
                    bytes.extend_from_slice(random.choose::<&[u8]>(self.words));
                    if random.one_in(2) {
                        bytes.push(b' ');
                    }
                }
            }
        }
        bytes
    }

    /// One byte of another value, one more, one less, or a word in between.
    fn change(&self, bytes: &mut Vec<u8>, random: &mut Random) {
        let at = random.index(bytes.len() + 1);
        let word = *random.choose(self.words);
        match random.below(4) {
            0 => drop(bytes.splice(at..at, word.iter().copied())),
            1 => bytes.truncate(at),
            kind if at < bytes.len() => {
                let noise = random.bytes(1);
                bytes.splice(at..=at, noise.into_iter().take(kind as usize - 2));
            }
            _ => {}
        }
    }
}

/// Checks the share of so many inputs, and demands that it did.
fn tries(what: &str, source: &Source, full: u64, check: impl Fn(&[u8]) -> bool) {
    let mut random = Random::new(round_seed());
    let (mut len, mut sound, mut count) = (0, 0, 0);
    for _ in 0..share(full) {
        let bytes = source.input(&mut random);
        len += bytes.len();
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(&bytes)));
        // What was wrong has been said.
        let Ok(is_sound) = checked else {
            panic!("by the input b\"{}\"", bytes.escape_ascii());
        };
        sound += u64::from(is_sound);
        count += 1;
    }
    let what = format!("inputs of {what}, {len} bytes, of which {sound} were understood");
    tried_at_least(count, full, &what);
    // Neither of the two ways is left out.
    assert!((count / 100..count * 99 / 100).contains(&sound), "{sound}");
}

#[test]
fn a_connection_answers_any_bytes_alike_in_any_pieces_and_in_whole_answers() {
    let source = Source {
        whole: session::WHOLE,
        words: session::WORDS,
    };
    tries("connections", &source, 6000, session::check);
}

#[test]
fn a_datagram_of_any_bytes_is_answered_in_whole_datagrams_or_not_at_all() {
    let source = Source {
        whole: datagram::WHOLE,
        words: datagram::WORDS,
    };
    tries("datagrams", &source, 10_000, datagram::check);
}

#[test]
fn a_head_of_any_bytes_is_open_refused_or_a_request_for_good() {
    let source = Source {
        whole: http::WHOLE,
        words: http::WORDS,
    };
    tries("heads of http", &source, 40_000, http::check);
}

#[test]
fn a_configuration_of_any_bytes_holds_or_is_refused_by_one_line() {
    let source = Source {
        whole: config::WHOLE,
        words: config::WORDS,
    };
    tries("configurations", &source, 20_000, config::check);
}

#[test]
fn an_answer_that_is_not_whole_is_seen() {
    for sound in [
        "STORED\r\nVALUE a 5 3\r\nabc\r\nEND\r\n",
        "VALUE a 5 3 7\r\na\r\n\r\nVA 2 t-1\r\n\r\n\r\nHD\r\n13\r\n",
        "OK\r\nkey=a exp=-1 la=0 cas=1 fetch=no cls=1 size=2 flags=0 \nEND\r\n",
        "STAT a b c\r\nEND\r\nME a exp=-1\r\nSERVER_ERROR x\r\nRESET\r\n",
    ] {
        assert_eq!(session::unsound(sound.as_bytes()), None, "{sound}");
    }
    for broken in [
        "STORED",
        "STORED\n",
        "STORED STORED\r\n",
        "VALUE a 5 3\r\nab\r\nEND\r\n",
        "VALUE a 5 3\r\nabcd\r\nEND\r\n",
        "VALUE a 5\r\nabc\r\n",
        "VA 3\r\nab\r\n",
        "12x\r\n",
        "\r\n",
        "key=a exp=-1\r\n",
        "WHAT\r\n",
        "\u{81}",
    ] {
        assert!(session::unsound(broken.as_bytes()).is_some(), "{broken}");
    }
    let mut packet = vec![0x81, 0, 0, 1, 4, 0, 0, 0, 0, 0, 0, 7];
    packet.extend([0; 12]);
    packet.extend(b"flagskv");
    assert_eq!(session::unsound(&packet), None);
    assert!(session::unsound(&packet[..30]).is_some());
    packet[11] = 2;
    assert!(session::unsound(&packet[..26]).is_some());
}
