//! The meta commands, as transcripts.
//!
//! Where memcached 1.6.45 and 1.6.18 differ, these are the answers of 1.6.45. `#` in an answer is any number.
//! Each test is a feature of the protocol.

mod wire;

use std::fmt::Write as _;

use azekura_server::memcached::Settings;
use wire::{Client, NOW, plays, service};

#[test]
fn a_meta_get_tells_what_it_is_asked_for_in_that_order() {
    plays(
        "> mn
         < MN
         > mg a
         < EN
         > mg a v k O123 q
         > mg a v k O123
         < EN ka O123
         > set a 5 0 3
         > one
         < STORED
         > mg a
         < HD
         > mg a v
         < VA 3
         < one
         > mg a s v f t k Oxyz c u
         < VA 3 s3 f5 t-1 ka Oxyz c# 
         < one
         > mg a c f Oxyz k s q
         < HD c# f5 Oxyz ka s3
         > mg a t f P1 L2
         < HD t-1 f5"
            .replace("c# \n", "c#\n")
            .as_str(),
    );
}

#[test]
fn a_meta_set_stores_by_its_mode() {
    plays(
        "> ms a 2
         > hi
         < HD
         > ms a 2 ME
         > no
         < NS
         > ms a 2 MA s k O9
         > >>
         < HD s4 ka O9
         > ms a 2 MP s
         > <<
         < HD s6
         > mg a v
         < VA 6
         < <<hi>>
         > ms b 2 MR k c
         > no
         < NS kb c0
         > ms b 2 MA
         > no
         < NS
         > ms b 2 MA N30 F5
         > ya
         < HD
         > mg b v t f
         < VA 2 t30 f5
         < ya
         > ms c 2 F7 T60 q
         > hi
         > ms c 2 MS F8 T90
         > hi
         < HD
         > mg c t f
         < HD t90 f8
         > ms c 2 C1
         > no
         < EX
         > ms none 2 C1 q
         > no
         < NF
         > ms c 2 E12345 c
         > hi
         < HD c12345
         > ms c 2 C12345 c
         > ho
         < HD c#
         > ms c 2 C12345
         > no
         < EX",
    );
}

#[test]
fn an_old_version_may_be_stored_as_stale_and_one_reader_wins() {
    plays(
        "> ms a 3 E100
         > new
         < HD
         > ms a 3 C50 I c
         > old
         < HD c#
         > mg a v
         < VA 3 X W
         < old
         > mg a v
         < VA 3 Z X
         < old
         > ms a 3
         > now
         < HD
         > mg a v
         < VA 3
         < now
         > md a I T30
         < HD
         > mg a t v
         < VA 3 t30 X W
         < now
         > get a
         < VALUE a 0 3
         < now
         < END
         > mg a t v
         < VA 3 t30 Z X
         < now",
    );
}

#[test]
fn a_miss_may_create_and_an_item_about_to_expire_may_be_won() {
    plays(
        "> mg a N30 v t
         < VA 0 t30 W
         <
         > mg a N30 v t
         < VA 0 t30 Z
         <
         > ms a 2 T100
         > hi
         < HD
         > mg a R30 t
         < HD t100
         > mg a R200 t
         < HD t100 W
         > mg a R200 t
         < HD t100 Z
         > mg a t T50 t
         < CLIENT_ERROR duplicate flag
         > mg a T50 t
         < HD t50 Z
         > mg a t T70
         < HD t50 Z
         > mg a t
         < HD t70 Z",
    );
}

#[test]
fn a_value_the_client_has_already_is_left_out() {
    plays(
        "> ms a 2 E77
         > hi
         < HD
         > mg a v c C77
         < HD c77
         > mg a v c C78
         < VA 2 c77
         < hi",
    );
}

#[test]
fn a_meta_delete_removes_empties_or_marks() {
    plays(
        "> md a
         < NF
         > md a q k O1
         < NF ka O1
         > ms a 2 E10 F5
         > hi
         < HD
         > md a C9
         < EX
         > md a C10 x F7 T30
         < HD
         > mg a v f t
         < VA 0 f7 t30
         <
         > md a q
         > mg a
         < EN
         > ms a 2 E10
         > hi
         < HD
         > md a E99 I
         < HD
         > mg a c
         < HD c99 X W",
    );
}

#[test]
fn meta_arithmetic_counts_and_creates() {
    plays(
        "> ma n
         < NF
         > ma n q
         < NF
         > ma n N0 J13 v
         < VA 2
         < 13
         > ma n v
         < VA 2
         < 14
         > ma n MD D10 v t
         < VA 1 t-1
         < 4
         > ma n M- D10 v
         < VA 1
         < 0
         > ma n MI D30 T60 v t c k O5
         < VA 2 t60 c# kn O5
         < 30
         > ma n q
         > ma n C1
         < EX
         > ma n C0
         < HD
         > ma n E555 c
         < HD c555
         > set none 0 0 0
         >
         < STORED
         > ma none C1
         < CLIENT_ERROR cannot increment or decrement non-numeric value
         > ma n Mx
         < CLIENT_ERROR invalid mode for ma M token
         > ma n Dx
         < CLIENT_ERROR invalid or duplicate flag
         > ms t 1
         > x
         < HD
         > ma t
         < CLIENT_ERROR cannot increment or decrement non-numeric value
         > ma z N90 t J1
         < HD t90
         > ma z t T60
         < HD t90
         > mg z t
         < HD t60
         > ma y t N90 T60
         < HD t-1
         > mg y t
         < HD t60
         > ma x T60 N90 t
         < HD t90",
    );
}

#[test]
fn keys_may_be_base64() {
    plays(
        "> ms AAEC/w== 2 b k
         > hi
         < HD kAAEC/w== b
         > mg AAEC/w== b v k
         < VA 2 kAAEC/w== b
         < hi
         > mg YQ== b k
         < EN kYQ== b
         > set a 0 0 1
         > x
         < STORED
         > mg YQ== b v
         < VA 1
         < x
         > ma AAEC/w== b
         < CLIENT_ERROR cannot increment or decrement non-numeric value
         > md AAEC/w== b k
         < HD kAAEC/w== b
         > mg AAE b
         < CLIENT_ERROR error decoding key
         > mg azQ b
         < CLIENT_ERROR error decoding key
         > mg azQ= b k N0
         < HD kk4 W
         > mg a#zQ= b v k
         < VA 0 kk4 Z
         < 
         > ms az=Q 2 b k
         > hi
         < HD kazA= b
         > mg k0 v
         < VA 2
         < hi
         > ms ## 2 b
         > hi
         < CLIENT_ERROR error decoding key",
    );
}

#[test]
fn meta_lines_that_are_not_as_they_should_be_are_refused() {
    let opaque = "o".repeat(32);
    let longer = "k".repeat(251);
    plays(&format!(
        "> mg
         < CLIENT_ERROR bad command line format
         > mg {longer}
         < CLIENT_ERROR bad command line format
         > mg a ?
         < CLIENT_ERROR bad command line format
         > mg a Q
         < CLIENT_ERROR invalid flag
         > mg a Y
         < CLIENT_ERROR invalid flag
         > mg a T2147483648
         < CLIENT_ERROR bad token in command line format
         > ms a 1 !
         < CLIENT_ERROR bad command line format
         > mn
         < MN
         > mg a 1
         < CLIENT_ERROR invalid flag
         > ms a 1 9
         > b
         < CLIENT_ERROR invalid flag
         > ms a 1 M
         > b
         < CLIENT_ERROR invalid mode for ms M token
         > ma a M
         < CLIENT_ERROR invalid mode for ma M token
         > ma a Mi
         < CLIENT_ERROR invalid mode for ma M token
         > ms a 1 Ms
         > b
         < CLIENT_ERROR invalid mode for ms M token
         > mg a v v ?
         < CLIENT_ERROR bad command line format
         > ma a v v ?
         < CLIENT_ERROR bad command line format
         > ma a b c f h k l q s t u v x I P L O N1 T1 R1
         < CLIENT_ERROR invalid or duplicate flag
         > mg !!!! Nx b
         < CLIENT_ERROR error decoding key
         > mg !!!! b Nx
         < CLIENT_ERROR bad token in command line format
         > ms a 1 F000000000001
         > b
         < CLIENT_ERROR bad command line format
         > ma a 1
         < CLIENT_ERROR invalid or duplicate flag
         > ma a -
         < CLIENT_ERROR bad command line format
         > ma !!!! b
         < CLIENT_ERROR invalid or duplicate flag
         > mg absent1 t N30
         < HD t-1 W
         > mg absent2 N30 t T60
         < HD t30 W
         > mg absent2 t
         < HD t60 Z
         > mg absent2 N30 t T40
         < HD t60 Z
         > mg absent3 T60 N30
         < HD W
         > mg absent3 t
         < HD t30 Z
         > mg a C+1
         < CLIENT_ERROR bad token in command line format
         > ms a 1 T+5
         > b
         < CLIENT_ERROR bad token in command line format
         > mg a v v
         < CLIENT_ERROR duplicate flag
         > mg a Nx
         < CLIENT_ERROR bad token in command line format
         > mg a O{opaque}
         < CLIENT_ERROR opaque token too long
         > mg a b c f h k l q s t u v x I P L O N1 T1 R1
         < CLIENT_ERROR options flags are too long
         > ms a
         < CLIENT_ERROR bad command line format
         > ms a x
         < CLIENT_ERROR bad command line format
         > ms {longer} 2
         > hi
         < CLIENT_ERROR bad command line format
         > ms a 2 MZ
         > hi
         < CLIENT_ERROR invalid mode for ms M token
         > ms a 2 Fx
         > hi
         < CLIENT_ERROR bad command line format
         > ms a 2
         > hi there
         < CLIENT_ERROR bad data chunk
         < ERROR
         > md a Q
         < CLIENT_ERROR invalid flag
         > md
         < CLIENT_ERROR bad command line format
         > ma
         < CLIENT_ERROR bad command line format
         > mg a Yx
         < CLIENT_ERROR invalid flag
         > mx a
         < ERROR"
    ));
}

#[test]
fn an_item_too_large_for_a_meta_set_passes_by_and_the_old_one_goes() {
    wire::plays_with(
        &Settings {
            item_size_max: 100,
            ..Settings::default()
        },
        &format!(
            "> ms a 2
             > hi
             < HD
             > ms a 200 q
             > {}
             < SERVER_ERROR object too large for cache
             > mg a
             < EN",
            "x".repeat(200)
        ),
    );
}

#[test]
fn a_stale_set_keeps_the_time_to_live_and_who_has_won() {
    plays(
        "> ms s 1 T100 E50
         > x
         < HD
         > ms s 1 C0 I
         > y
         < EX
         > ms s 1 C1 I
         > y
         < HD
         > mg s t v
         < VA 1 t100 X W
         < y
         > ms s2 1 E50
         > x
         < HD
         > md s2 I
         < HD
         > mg s2
         < HD X W
         > ms s2 1 C1 I
         > z
         < HD
         > mg s2
         < HD Z X",
    );
}

#[test]
fn a_later_set_of_another_connection_has_a_greater_version() {
    let service = service(Settings::default());
    let mut clients = [Client::new(&service), Client::new(&service)];
    let mut before = 0;
    for round in 0..100 {
        let answer = clients[round % 2].send(b"set a 0 0 1\r\nx\r\nmg a c\r\n", 99);
        let answer = String::from_utf8(answer).unwrap();
        let cas = answer.trim_end().strip_prefix("STORED\r\nHD c").unwrap();
        let cas: u64 = cas.parse().unwrap();
        assert!(cas > before, "{cas} after {before}");
        before = cas;
    }
}

#[test]
fn what_is_known_of_an_item_is_told_to_people() {
    plays(
        "> me a
         < EN
         > ms a 2 T30 E9
         > hi
         < HD
         > me a
         < ME a exp=30 la=0 cas=9 fetch=no cls=1 size=#
         > me a k z
         < ME a exp=30 la=0 cas=9 fetch=no cls=1 size=#
         > me YQ== b
         < EN
         > me YQ== b k
         < ME a exp=30 la=0 cas=9 fetch=no cls=1 size=#
         > me YQ= b k
         < CLIENT_ERROR bad command line format
         > ms azQ= 2 b E7
         > hi
         < HD
         > me k4
         < ME azQ= exp=-1 la=0 cas=7 fetch=no cls=1 size=#",
    );
}

#[test]
fn many_meta_gets_in_one_piece_are_answered_in_their_order() {
    let service = service(Settings::default());
    let mut client = Client::new(&service);
    let (mut sent, mut expected) = (String::new(), String::new());
    for i in 0..200 {
        let _ = write!(sent, "ms k{i} 3 T{}\r\n{i:3}\r\n", i % 3 * 10);
        expected += "HD\r\n";
    }
    sent += "md k100 I\r\n";
    expected += "HD\r\n";
    for i in 0..200 {
        let _ = write!(sent, "mg k{i} v O{i}\r\nmg none k q\r\n");
        let won = if i == 100 { " X W" } else { "" };
        let _ = write!(expected, "VA 3 O{i}{won}\r\n{i:3}\r\n");
    }
    let answer = client.send(sent.as_bytes(), usize::MAX);
    assert_eq!(String::from_utf8_lossy(&answer), expected);
    service.set_time(NOW + 10).unwrap();
    let answer = client.send(b"mg k1 v\r\nmg k0 v\r\nmg k2 t\r\n", 99);
    assert_eq!(answer, b"EN\r\nVA 3\r\n  0\r\nHD t10\r\n");
}
