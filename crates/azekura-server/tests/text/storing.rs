//! What is stored, compared and counted, and got again.
//! Each command is played whole and in pieces, with room for the answer and without.
//! It knows no clock.

use azekura_server::memcached::Settings;

use crate::wire::{Client, plays, service};

#[test]
fn what_was_set_is_got() {
    plays(
        "> set a 5 0 3
         > one
         < STORED
         > get a
         < VALUE a 5 3
         < one
         < END
         > get b
         < END
         > get a b a
         < VALUE a 5 3
         < one
         < VALUE a 5 3
         < one
         < END
         > gets   a
         < VALUE a 5 3 #
         < one
         < END
         > set empty 0 0 0
         >
         < STORED
         > get empty
         < VALUE empty 0 0
         <
         < END
         > delete a
         < DELETED
         > delete a
         < NOT_FOUND
         > set binary 4294967295 0 6
         > a\\r\\n\\x00\\xff.
         < STORED
         > get binary
         < VALUE binary 4294967295 6
         < a\\r\\n\\x00\\xff.
         < END
         > version
         < VERSION #.#.#-azekura-#.#.#",
    );
}

#[test]
fn a_line_may_end_without_a_carriage_return_but_data_may_not() {
    plays(
        "> set a 0 0 2\\nhi
         < STORED
         > get a\\nget a
         < VALUE a 0 2
         < hi
         < END
         < VALUE a 0 2
         < hi
         < END
         > set a 0 0 2
         > hi\\nget a
         < CLIENT_ERROR bad data chunk
         < ERROR",
    );
}

#[test]
fn storing_depends_on_what_is_there() {
    plays(
        "> replace a 0 0 1
         > x
         < NOT_STORED
         > append a 0 0 1
         > x
         < NOT_STORED
         > prepend a 0 0 1
         > x
         < NOT_STORED
         > add a 3 0 3
         > one
         < STORED
         > add a 0 0 3
         > two
         < NOT_STORED
         > append a 9 9 2
         > >>
         < STORED
         > prepend a 9 9 2
         > <<
         < STORED
         > get a
         < VALUE a 3 7
         < <<one>>
         < END
         > replace a 4 0 3
         > two
         < STORED
         > get a
         < VALUE a 4 3
         < two
         < END
         > cas none 0 0 1 1
         > x
         < NOT_FOUND
         > cas a 0 0 1 1
         > x
         < EXISTS",
    );
}

#[test]
fn of_flags_the_low_32_bits_are_kept() {
    plays(
        "> set a 4294967295 0 1
         > x
         < STORED
         > set b 18446744073709551615 0 1
         > x
         < STORED
         > add c +4294967303 0 1
         > x
         < STORED
         > get a b c
         < VALUE a 4294967295 1
         < x
         < VALUE b 4294967295 1
         < x
         < VALUE c 7 1
         < x
         < END",
    );
}

#[test]
fn a_version_is_compared_and_changes_with_every_write() {
    let service = service(Settings::default());
    let mut client = Client::new(&service);
    let mut version = || {
        let answer = client.send(b"gets a\r\n", 99);
        let line = String::from_utf8(answer).unwrap();
        let version = line.lines().next().unwrap().rsplit(' ').next().unwrap();
        version.parse::<u64>().unwrap()
    };
    let mut client = Client::new(&service);
    client.send(b"set a 0 0 1\r\nx\r\n", 99);
    let first = version();
    client.send(b"touch a 0\r\n", 99);
    assert_eq!(version(), first, "touching is no write");
    for line in [
        "append a 0 0 1\r\n1\r\n",
        "set a 0 0 1\r\n7\r\n",
        "incr a 1\r\n",
    ] {
        let before = version();
        client.send(line.as_bytes(), 99);
        assert!(version() > before, "{line}");
    }
    let present = version();
    for other in [present - 1, present + 1, first, u64::MAX] {
        let line = format!("cas a 0 0 1 {other}\r\ny\r\n");
        let answer = client.send(line.as_bytes(), 99);
        assert_eq!(answer, b"EXISTS\r\n", "{other} instead of {present}");
    }
    let line = format!("cas a 0 0 1 {present}\r\ny\r\n");
    assert_eq!(client.send(line.as_bytes(), 99), b"STORED\r\n");
    assert_eq!(client.send(line.as_bytes(), 99), b"EXISTS\r\n");
    let deleted = format!("cas a 0 0 1 {}\r\ny\r\n", version());
    client.send(b"delete a\r\nset a 0 0 1\r\nz\r\n", 99);
    assert_eq!(
        client.send(deleted.as_bytes(), 99),
        b"EXISTS\r\n",
        "a key that was deleted comes back with another version"
    );
}

#[test]
fn numbers_are_counted_up_and_down() {
    plays(
        "> incr n 1
         < NOT_FOUND
         > decr n 1
         < NOT_FOUND
         > set n 7 0 2
         > 10
         < STORED
         > incr n 5
         < 15
         > decr n 10
         < 5
         > get n
         < VALUE n 7 2
         < 5\\x20
         < END
         > decr n 10
         < 0
         > set n 0 0 20
         > 18446744073709551615
         < STORED
         > incr n 1
         < 0
         > incr n 18446744073709551616
         < CLIENT_ERROR invalid numeric delta argument
         > incr n -1
         < CLIENT_ERROR invalid numeric delta argument
         > incr n x
         < CLIENT_ERROR invalid numeric delta argument
         > set t 0 0 4
         > text
         < STORED
         > incr t 1
         < CLIENT_ERROR cannot increment or decrement non-numeric value
         > set t 0 0 0
         >
         < STORED
         > decr t 1
         < CLIENT_ERROR cannot increment or decrement non-numeric value
         > incr n 3 noreply
         > incr n 1
         < 4",
    );
}

#[test]
fn commands_that_want_no_answer_get_none() {
    plays(
        "> set a 0 0 1 noreply
         > x
         > add a 0 0 1 noreply
         > y
         > append a 0 0 1 noreply
         > y
         > cas a 0 0 1 1 noreply
         > z
         > touch a 100 noreply
         > incr a 1 noreply
         > set a x 0 1 noreply
         > y
         > set a 0 0 -1 noreply
         < CLIENT_ERROR bad command line format
         > get a
         < VALUE a 0 2
         < xy
         < END
         > delete a noreply
         > delete a noreply
         > verbosity 1 noreply
         > flush_all noreply
         > get a
         < END",
    );
}
