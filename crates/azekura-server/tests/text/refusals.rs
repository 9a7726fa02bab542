//! Malformed lines, and the answer to each.
//! Answers are those of memcached 1.6.45; after a refused line the next one is read where that one would.
//! It knows no clock.

use crate::wire::plays;

#[test]
fn lines_that_are_not_as_they_should_be_are_refused() {
    plays(
        ">
         < CLIENT_ERROR bad command line format
         > x
         < CLIENT_ERROR bad command line format
         > unknown
         < ERROR
         > GET a
         < ERROR
         >\\x20 get a
         < ERROR
         > get
         < CLIENT_ERROR bad command line format
         > gets
         < CLIENT_ERROR bad command line format
         > gat 1
         < CLIENT_ERROR bad command line format
         > gat x a
         < CLIENT_ERROR invalid exptime argument
         > set a 0 0
         < CLIENT_ERROR bad command line format
         > set a 0 0 -1
         < CLIENT_ERROR bad command line format
         > set a 0 0 2147483646
         < CLIENT_ERROR bad command line format
         > set a -1 0 2
         > hi
         < CLIENT_ERROR bad command line format
         > set a 18446744073709551616 0 2
         > hi
         < CLIENT_ERROR bad command line format
         > set a 0 soon 2
         > hi
         < CLIENT_ERROR bad command line format
         > cas a 0 0 2
         > hi
         < CLIENT_ERROR bad command line format
         > cas a 0 0 2 x
         > hi
         < CLIENT_ERROR bad command line format
         > delete
         < CLIENT_ERROR bad command line format
         > incr a
         < CLIENT_ERROR bad command line format
         > touch a
         < CLIENT_ERROR bad command line format
         > touch a x
         < CLIENT_ERROR invalid exptime argument
         > touch a +1
         < CLIENT_ERROR invalid exptime argument
         > gat +1 a
         < CLIENT_ERROR invalid exptime argument
         > flush_all x
         < CLIENT_ERROR invalid exptime argument
         > verbosity
         < CLIENT_ERROR bad command line format
         > shutdown
         < SERVER_ERROR: shutdown not enabled
         > shutdown now
         < SERVER_ERROR: shutdown not enabled
         > stats nothing
         < ERROR
         > verbosity 2
         < OK",
    );
}

/// Every answer is that of 1.6.45, except those to the lines of five words and more: see `memcached/protocol/text.rs`.
#[test]
fn a_delete_is_judged_by_its_key_and_the_count_of_its_words() {
    let removed = [
        "delete k",
        "delete k 0",
        "delete k 10",
        "delete k -1",
        "delete k abc",
        "delete k norepl",
        "delete k noreply 0",
        "delete k 0 0",
        "delete k a b",
        "delete k b c d",
        "delete k  0",
        "delete  k",
    ];
    let removed_silently = [
        "delete k noreply",
        "delete k 0 noreply",
        "delete k 10 noreply",
        "delete k a noreply",
        "delete k b c noreply",
    ];
    let refused = [
        "delete",
        "delete k b c d e",
        "delete k b c d e f g h",
        "delete k noreply b c d",
    ];
    let refused_silently = ["delete k b c d noreply", "delete k b c d e f noreply"];
    let stored = "> set k 0 0 1
         > x
         < STORED";
    for line in removed {
        plays(&format!(
            "{stored}\n> {line}\n< DELETED\n> {line}\n< NOT_FOUND\n> get k\n< END"
        ));
    }
    for line in removed_silently {
        plays(&format!("{stored}\n> {line}\n> {line}\n> get k\n< END"));
    }
    let kept = "> get k
         < VALUE k 0 1
         < x
         < END";
    for line in refused {
        plays(&format!(
            "{stored}\n> {line}\n< CLIENT_ERROR bad command line format\n{kept}"
        ));
    }
    for line in refused_silently {
        plays(&format!("{stored}\n> {line}\n{kept}"));
    }
    // The key is the first word, and only that.
    plays(&format!(
        "{stored}\n> delete a k\n< NOT_FOUND\n> delete a b k d\n< NOT_FOUND\n> delete noreply\n{kept}"
    ));
}

#[test]
fn keys_have_at_most_250_bytes() {
    let (long, longer) = ("k".repeat(250), "k".repeat(251));
    plays(&format!(
        "> set {long} 0 0 1
         > x
         < STORED
         > get {long}
         < VALUE {long} 0 1
         < x
         < END
         > get {longer}
         < CLIENT_ERROR bad command line format
         > get {long} {longer}
         < CLIENT_ERROR bad command line format
         > set {longer} 0 0 1
         > x
         < CLIENT_ERROR bad command line format
         > delete {longer}
         < CLIENT_ERROR bad command line format
         > incr {longer} 1
         < CLIENT_ERROR bad command line format
         > touch {longer} 1
         < CLIENT_ERROR bad command line format
         > gat 1 {longer}
         < CLIENT_ERROR bad command line format"
    ));
}

#[test]
fn data_that_does_not_end_where_it_should_is_refused_and_read_as_a_line() {
    plays(
        "> set a 0 0 2
         > hi there
         < CLIENT_ERROR bad data chunk
         < ERROR
         > get a
         < END",
    );
}

#[test]
fn numbers_and_times_are_read_as_1_6_45_reads_them() {
    plays(
        "> set k +1 0 1
         > a
         < STORED
         > get k
         < VALUE k 1 1
         < a
         < END
         > touch k 3000000000
         < CLIENT_ERROR invalid exptime argument
         > gat 3000000000 k
         < CLIENT_ERROR invalid exptime argument
         > flush_all 3000000000
         < CLIENT_ERROR invalid exptime argument
         > set k 0 3000000000 1
         > b
         < STORED
         > get k
         < END
         > cas k 0 0 5
         > versi
         < CLIENT_ERROR bad command line format
         > cas k 0 0 1 noreply
         > b
         > set k 0 0 +1
         < CLIENT_ERROR bad command line format
         > set k 0 0 2147483646 noreply
         < CLIENT_ERROR bad command line format
         > set k 0 0 10
         > 12 monkeys
         < STORED
         > incr k +1
         < CLIENT_ERROR invalid numeric delta argument
         > incr k 1
         < 13
         > get k
         < VALUE k 0 10
         < 13        
         < END
         > set k 0 0 3
         > 12x
         < STORED
         > incr k 1
         < CLIENT_ERROR cannot increment or decrement non-numeric value
         > set k 0 0 3
         > +12
         < STORED
         > incr k 1
         < 13
         > verbosity 99999999999
         < CLIENT_ERROR bad command line format
         > cache_memlimit x
         < ERROR
         > cache_memlimit
         < ERROR
         > shutdown x
         < SERVER_ERROR: shutdown not enabled",
    );
}

#[test]
fn who_wants_no_answer_is_not_told_of_commands_that_nobody_knows_either() {
    plays(
        "> unknown noreply
         > SET a 0 0 1 noreply
         > noreply
         > lru noreply
         > lru_crawler sleep noreply
         > slabs automove 1 noreply
         > refresh_certs noreply
         > shutdown noreply
         > cache_memlimit x noreply
         > verbosity x noreply
         > incr a x noreply
         > incr noreply
         < CLIENT_ERROR bad command line format
         > touch noreply
         < CLIENT_ERROR bad command line format
         > stats noreply
         < ERROR
         > mn
         < MN",
    );
}

#[test]
fn numbers_have_the_lengths_and_signs_of_1_6_45() {
    plays(
        "> set k -00 - 1
         > a
         < CLIENT_ERROR bad command line format
         > set k -00 -9223372036854775808 1
         > a
         < STORED
         > set k 00000000000000000000000000005 0 00000000001
         > a
         < STORED
         > get k
         < VALUE k 5 1
         < a
         < END
         > set k 0 0 000000000001
         < CLIENT_ERROR bad command line format
         > set k 0 0 -
         >
         < STORED
         > touch k -
         < TOUCHED
         > touch k 000000000000
         < CLIENT_ERROR invalid exptime argument
         > flush_all -
         < OK
         > cas k 0 0 1 0000000000000000000001
         > a
         < NOT_FOUND
         > cas k 0 0 1 00000000000000000000001
         > a
         < CLIENT_ERROR bad command line format
         > set k 0 0 3
         > -00
         < STORED
         > incr k 00000000000000000000001
         < CLIENT_ERROR invalid numeric delta argument
         > incr k 1
         < 1
         > stats cachedump 1 4294967296
         < CLIENT_ERROR bad command line format",
    );
}
