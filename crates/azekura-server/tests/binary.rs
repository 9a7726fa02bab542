//! The binary protocol, packet by packet.
//!
//! A packet is built from its parts, and an answer taken apart; each exchange is played in one piece and byte by byte.
//! Opaque words are compared in every answer, versions where a test states it.

mod wire;

use azekura_server::memcached::{Passwords, Settings};
use wire::{Client, service};

/// A request.
fn packet(opcode: u8, cas: u64, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let body = (extras.len() + key.len() + value.len()) as u32;
    let mut bytes = vec![
        0x80,
        opcode,
        0,
        key.len() as u8,
        extras.len() as u8,
        0,
        0,
        0,
    ];
    bytes.extend((0..4).rev().map(|place| (body >> (8 * place)) as u8));
    bytes.extend_from_slice(&[0xca, 0xfe, 0xba, opcode]);
    bytes.extend((0..8).rev().map(|place| (cas >> (8 * place)) as u8));
    bytes.extend_from_slice(extras);
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(value);
    bytes
}

/// An answer: operation, status, extras, key, value; and the version next to it.
type Answer = (u8, u16, Vec<u8>, Vec<u8>, Vec<u8>);

fn answers(mut bytes: &[u8]) -> Vec<(Answer, u64)> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let number = |range: std::ops::Range<usize>| {
            bytes[range]
                .iter()
                .fold(0u64, |n, b| n << 8 | u64::from(*b))
        };
        assert_eq!(bytes[0], 0x81);
        assert_eq!(bytes[12..16], [0xca, 0xfe, 0xba, bytes[1]]);
        let (key, extras) = (number(2..4) as usize, usize::from(bytes[4]));
        let (body, cas) = (number(8..12) as usize, number(16..24));
        let at = 24 + extras;
        found.push((
            (
                bytes[1],
                number(6..8) as u16,
                bytes[24..at].to_vec(),
                bytes[at..at + key].to_vec(),
                bytes[at + key..24 + body].to_vec(),
            ),
            cas,
        ));
        bytes = &bytes[24 + body..];
    }
    found
}

fn told(opcode: u8, status: u16, extras: &[u8], key: &[u8], value: &[u8]) -> Answer {
    (
        opcode,
        status,
        extras.to_vec(),
        key.to_vec(),
        value.to_vec(),
    )
}

fn refused(opcode: u8, status: u16, text: &str) -> Answer {
    told(opcode, status, b"", b"", text.as_bytes())
}

/// Plays packets in several ways to a fresh store; returns the answers' versions.
fn plays(requests: &[Vec<u8>], expected: &[Answer]) -> Vec<u64> {
    let mut versions = Vec::new();
    for piece in [usize::MAX, 1, 13, 40] {
        let service = service(Settings::default());
        let bytes = requests.concat();
        let found = answers(&Client::new(&service).send(&bytes, piece));
        versions = found.iter().map(|(_, cas)| *cas).collect();
        let found: Vec<Answer> = found.into_iter().map(|(answer, _)| answer).collect();
        assert_eq!(found, expected, "in pieces of {piece}");
    }
    versions
}

const NO_EXPIRY: [u8; 8] = [0, 0, 0, 9, 0, 0, 0, 0];

#[test]
fn what_was_set_is_got_with_flags_and_version() {
    let versions = plays(
        &[
            packet(0x01, 0, &NO_EXPIRY, b"a", b"one"),
            packet(0x00, 0, b"", b"a", b""),
            packet(0x0c, 0, b"", b"a", b""),
            packet(0x09, 0, b"", b"b", b""),
            packet(0x0d, 0, b"", b"b", b""),
            packet(0x09, 0, b"", b"a", b""),
            packet(0x0d, 0, b"", b"a", b""),
            packet(0x00, 0, b"", b"b", b""),
            packet(0x0c, 0, b"", b"b", b""),
            packet(0x0a, 0, b"", b"", b""),
        ],
        &[
            told(0x01, 0, b"", b"", b""),
            told(0x00, 0, &[0, 0, 0, 9], b"", b"one"),
            told(0x0c, 0, &[0, 0, 0, 9], b"a", b"one"),
            told(0x09, 0, &[0, 0, 0, 9], b"", b"one"),
            told(0x0d, 0, &[0, 0, 0, 9], b"a", b"one"),
            refused(0x00, 1, "Not found"),
            told(0x0c, 1, b"", b"b", b""),
            told(0x0a, 0, b"", b"", b""),
        ],
    );
    assert!(versions[0] > 0);
    assert_eq!(versions[1..5], [versions[0]; 4]);
}

#[test]
fn storing_depends_on_what_is_there() {
    plays(
        &[
            packet(0x03, 0, &NO_EXPIRY, b"a", b"x"),
            packet(0x0e, 0, b"", b"a", b"x"),
            packet(0x01, 5, &NO_EXPIRY, b"a", b"x"),
            packet(0x02, 0, &NO_EXPIRY, b"a", b"one"),
            packet(0x02, 0, &NO_EXPIRY, b"a", b"two"),
            packet(0x12, 0, &NO_EXPIRY, b"a", b"two"),
            packet(0x19, 0, b"", b"a", b">"),
            packet(0x0f, 0, b"", b"a", b"<"),
            packet(0x01, 5, &NO_EXPIRY, b"a", b"x"),
            packet(0x00, 0, b"", b"a", b""),
            packet(0x04, 5, b"", b"a", b""),
            packet(0x14, 0, b"", b"a", b""),
            packet(0x04, 0, b"", b"a", b""),
            packet(0x11, 0, &NO_EXPIRY, b"q", b"quiet"),
            packet(0x00, 0, b"", b"q", b""),
        ],
        &[
            refused(0x03, 1, "Not found"),
            refused(0x0e, 5, "Not stored."),
            refused(0x01, 1, "Not found"),
            told(0x02, 0, b"", b"", b""),
            refused(0x02, 2, "Data exists for key."),
            refused(0x12, 2, "Data exists for key."),
            told(0x0f, 0, b"", b"", b""),
            refused(0x01, 2, "Data exists for key."),
            told(0x00, 0, &[0, 0, 0, 9], b"", b"<one>"),
            refused(0x04, 2, "Data exists for key."),
            refused(0x04, 1, "Not found"),
            told(0x00, 0, &[0, 0, 0, 9], b"", b"quiet"),
        ],
    );
}

#[test]
fn numbers_are_counted_and_created() {
    let by = |delta: u8, initial: u8, expires: [u8; 4]| {
        let mut extras = vec![0, 0, 0, 0, 0, 0, 0, delta, 0, 0, 0, 0, 0, 0, 0, initial];
        extras.extend_from_slice(&expires);
        extras
    };
    let number = |n: u8| [0, 0, 0, 0, 0, 0, 0, n];
    plays(
        &[
            packet(0x05, 0, &by(1, 7, [0xff; 4]), b"n", b""),
            packet(0x05, 0, &by(1, 7, [0; 4]), b"n", b""),
            packet(0x05, 0, &by(3, 7, [0; 4]), b"n", b""),
            packet(0x16, 0, &by(1, 7, [0; 4]), b"n", b""),
            packet(0x06, 0, &by(20, 7, [0; 4]), b"n", b""),
            packet(0x01, 0, &NO_EXPIRY, b"t", b"text"),
            packet(0x05, 0, &by(1, 0, [0; 4]), b"t", b""),
        ],
        &[
            refused(0x05, 1, "Not found"),
            told(0x05, 0, b"", b"", &number(7)),
            told(0x05, 0, b"", b"", &number(10)),
            told(0x06, 0, b"", b"", &number(0)),
            told(0x01, 0, b"", b"", b""),
            refused(0x05, 6, "Non-numeric server-side value for incr or decr"),
        ],
    );
}

#[test]
fn touching_flushing_versions_and_figures_are_answered() {
    plays(
        &[
            packet(0x01, 0, &NO_EXPIRY, b"a", b"x"),
            packet(0x1c, 0, &[0, 0, 0, 60], b"a", b""),
            packet(0x1d, 0, &[0, 0, 0, 60], b"a", b""),
            packet(0x23, 0, &[0, 0, 0, 60], b"a", b""),
            packet(0x1c, 0, &[0, 0, 0, 60], b"b", b""),
            packet(0x1e, 0, &[0, 0, 0, 60], b"b", b""),
            packet(0x10, 0, b"", b"sizes", b""),
            packet(0x10, 0, b"", b"nothing", b""),
            packet(0x18, 0, &[0, 0, 0, 0], b"", b""),
            packet(0x08, 0, b"", b"", b""),
            packet(0x00, 0, b"", b"a", b""),
            packet(0x1b, 0, b"", b"", b""),
            packet(0x55, 0, b"", b"key", b"and a value"),
            packet(0x07, 0, b"", b"", b""),
            packet(0x0a, 0, b"", b"", b""),
        ],
        &[
            told(0x01, 0, b"", b"", b""),
            told(0x1c, 0, &[0, 0, 0, 9], b"", b""),
            told(0x1d, 0, &[0, 0, 0, 9], b"", b"x"),
            told(0x23, 0, &[0, 0, 0, 9], b"a", b"x"),
            refused(0x1c, 1, "Not found"),
            told(0x10, 0, b"", b"sizes_status", b"disabled"),
            told(0x10, 0, b"", b"", b""),
            refused(0x10, 1, "Not found"),
            told(0x08, 0, b"", b"", b""),
            refused(0x00, 1, "Not found"),
            refused(0x1b, 0x81, "Unknown command"),
            refused(0x55, 0x81, "Unknown command"),
            told(0x07, 0, b"", b"", b""),
        ],
    );
}

#[test]
fn packets_whose_lengths_contradict_one_another_close_the_connection() {
    let mut body_too_short = packet(0x00, 0, b"", b"key", b"");
    body_too_short[11] = 2;
    // A set, and what is no operation, of 1 GiB and a byte.
    let mut set_too_long = packet(0x01, 0, &NO_EXPIRY, b"key", b"");
    set_too_long[8..12].copy_from_slice(&[0x40, 0, 0, 1]);
    let mut unknown_too_long = packet(0x41, 0, b"", b"", b"");
    unknown_too_long[8..12].copy_from_slice(&[0x40, 0, 0, 1]);
    let cases = [
        (set_too_long, 4),
        (unknown_too_long, 4),
        (body_too_short, 0x81),
        (packet(0x00, 0, b"xx", b"key", b""), 4),
        (packet(0x00, 0, b"", b"", b""), 4),
        (packet(0x01, 0, b"", b"key", b"x"), 4),
        (packet(0x05, 0, b"12345678", b"key", b""), 4),
        (packet(0x0a, 0, b"", b"key", b""), 4),
        (packet(0x04, 0, b"", b"key", b"x"), 4),
    ];
    for (bytes, status) in cases {
        let service = service(Settings::default());
        let mut client = Client::new(&service);
        let found = answers(&client.send(&bytes, usize::MAX));
        assert_eq!(found[0].0.1, status, "{bytes:?}");
        assert!(client.is_closed);
    }
    // What is no packet is not answered at all.
    let service = service(Settings::default());
    let mut client = Client::new(&service);
    let mut bytes = packet(0x0a, 0, b"", b"", b"");
    bytes.extend_from_slice(b"get a\r\n");
    assert_eq!(answers(&client.send(&bytes, usize::MAX)).len(), 1);
    assert!(client.is_closed);
}

#[test]
fn values_too_large_pass_by_and_long_ones_come_in_pieces() {
    let service = service(Settings::default());
    let mut long = packet(0x01, 0, &NO_EXPIRY, b"a", b"");
    let body = 9 + 100_000u32;
    long[8..12].copy_from_slice(&[0, (body >> 16) as u8, (body >> 8) as u8, body as u8]);
    let value = vec![7; 100_000];
    long.extend_from_slice(&value);
    let mut client = Client::new(&service);
    let mut sent = long.clone();
    sent.extend_from_slice(&packet(0x00, 0, b"", b"a", b""));
    let found = answers(&client.send(&sent, 999));
    assert_eq!(found[1].0.4, value);
    assert!(client.kept_max < 2000, "{} bytes", client.kept_max);
    service.set_item_size_max(1000);
    // Only a set takes along what was there.
    for (opcode, extras) in [
        (0x02, 8),
        (0x03, 8),
        (0x0e, 0),
        (0x0f, 0),
        (0x19, 0),
        (0x01, 8),
    ] {
        let mut other = sent.clone();
        (other[1], other[4], other[15]) = (opcode, extras, opcode);
        if extras == 0 {
            other.drain(24..32);
            let body = body - 8;
            other[8..12].copy_from_slice(&[0, (body >> 16) as u8, (body >> 8) as u8, body as u8]);
        }
        let found = answers(&client.send(&other, 999));
        assert_eq!(found[0].0, refused(opcode, 3, "Too large."));
        if opcode == 0x01 {
            assert_eq!(found[1].0, refused(0x00, 1, "Not found"));
        } else {
            assert_eq!(found[1].0.4, value, "after {opcode:#x}");
        }
    }
    let key = [b'k'; 251];
    let found = answers(&client.send(&packet(0x00, 0, b"", &key, b""), 99));
    assert_eq!(found[0].0, refused(0x00, 4, "Invalid arguments"));
    assert!(client.is_closed);
}

#[test]
fn only_flags_that_are_set_count_in_an_items_size() {
    let service = service(Settings {
        item_size_max: 1024,
        ..Settings::default()
    });
    let mut client = Client::new(&service);
    let fits = 1024 - 59 - 1;
    for (flags, len, status) in [
        (0, fits, 0),
        (0, fits + 1, 3),
        (5, fits - 4, 0),
        (5, fits, 3),
    ] {
        let extras = [0, 0, 0, flags, 0, 0, 0, 0];
        let set = packet(0x01, 0, &extras, b"a", &vec![b'x'; len]);
        assert_eq!(answers(&client.send(&set, usize::MAX))[0].0.1, status);
    }
    let short = packet(0x01, 0, &[0; 8], b"a", b"x");
    for (len, status) in [(fits - 1, 0), (fits, 5)] {
        client.send(&short, usize::MAX);
        let append = packet(0x0e, 0, b"", b"a", &vec![b'x'; len]);
        assert_eq!(answers(&client.send(&append, usize::MAX))[0].0.1, status);
    }
}

#[test]
fn times_have_no_sign_and_details_are_framed_as_1_6_45_frames_them() {
    let set = packet(0x01, 0, &[0, 0, 0, 0, 0xb2, 0xd0, 0x5e, 0], b"q", b"v");
    plays(
        &[
            set,
            packet(0x00, 0, b"", b"q", b""),
            packet(0x10, 0, b"", b"detail on", b""),
            packet(0x10, 0, b"", b"detail dump", b""),
            packet(0x10, 0, b"", b"detail x", b""),
        ],
        &[
            told(0x01, 0, b"", b"", b""),
            told(0x00, 0, &[0; 4], b"", b"v"),
            told(0x10, 0, b"", b"", b""),
            told(0x10, 0, b"", b"detailed", b"END\r\n"),
            told(0x10, 0, b"", b"", b""),
            refused(0x10, 1, "Not found"),
        ],
    );
}

#[test]
fn sasl_admits_who_has_a_password() {
    let service = service(Settings::default());
    service.set_passwords(Some(Passwords::parse(b"anna:secret\n").unwrap()));
    let mut client = Client::new(&service);
    let mut ask = |bytes: &[u8]| answers(&client.send(bytes, 7)).remove(0).0;
    assert_eq!(ask(&packet(0x20, 0, b"", b"", b"")).4, b"PLAIN");
    let refusal = refused(0x21, 0x20, "Auth failure.");
    assert_eq!(
        ask(&packet(0x21, 0, b"", b"PLAIN", b"\0anna\0public")),
        refusal
    );
    assert_eq!(
        ask(&packet(0x21, 0, b"", b"LOGIN", b"\0anna\0secret")),
        refusal
    );
    assert_eq!(ask(&packet(0x21, 0, b"", b"PLAIN", b"anna")), refusal);
    let good = packet(0x21, 0, b"", b"PLAIN", b"\0anna\0secret");
    assert_eq!(ask(&good), told(0x21, 0, b"", b"", b"Authenticated"));
    assert_eq!(
        ask(&packet(0x0a, 0, b"", b"", b"")),
        told(0x0a, 0, b"", b"", b"")
    );
    let mut stranger = Client::new(&service);
    let found = answers(&stranger.send(&packet(0x00, 0, b"", b"a", b""), 99));
    assert_eq!(found[0].0, refused(0x00, 0x20, "Auth failure."));
    assert!(stranger.is_closed);
}
