//! Walks over all records: `keys`, `dump`, `dump_key`.
//! Each item is listed once, no key breaks a line, and pauses of the session keep the rate.
//! It knows no threads, so nothing changes during a walk.

use azekura_server::memcached::Settings;

use crate::wire::{Client, NOW, plays, service};

#[test]
fn keys_of_any_bytes_do_not_break_the_lines_of_a_dump() {
    plays(
        "> ms YQ0KRU5EICU= 1 b
         > x
         < HD
         > keys a 9
         < KEY a%0D%0AEND%20%25
         < END
         > dump_key
         < KEY a%0D%0AEND%20%25
         < END
         > dump
         < VALUE a%0D%0AEND%20%25 0 1 # 0
         < x
         < END
         > stats detail on
         < OK
         > ms DQo6YQ== 1 b
         > x
         < HD
         > stats detail dump
         < PREFIX %0D%0A get 0 hit 0 set 1 del 0
         < END",
    );
}

#[test]
fn all_keys_and_all_items_can_be_walked() {
    let service = service(Settings::default());
    let mut client = Client::new(&service);
    for i in 0..5000 {
        client.send(
            format!("set key-{i} 7 0 3\r\n{:3}\r\n", i % 1000).as_bytes(),
            99,
        );
    }
    client.send(b"set gone 0 -1 1\r\nx\r\nset other 0 100 1\r\nx\r\n", 99);
    let lines = |client: &mut Client, line: &str| -> Vec<String> {
        let answer = client.send(line.as_bytes(), 99);
        let text = String::from_utf8(answer).unwrap();
        text.split("\r\n").map(str::to_owned).collect()
    };
    let mut keys = lines(&mut client, "dump_key\r\n");
    assert_eq!(keys.split_off(5001), ["END", ""]);
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 5001);
    let dump = lines(&mut client, "dump\r\n");
    let heads: Vec<_> = dump.iter().filter(|l| l.starts_with("VALUE ")).collect();
    assert_eq!(heads.len(), 5001);
    let other = dump
        .iter()
        .find(|line| line.starts_with("VALUE other 0 1 "));
    assert!(other.unwrap().ends_with(&format!(" {}", NOW + 100)));
    let mut found = lines(&mut client, "keys key-123 oth 9999\r\n");
    found.sort();
    assert_eq!(
        found.iter().filter(|line| line.starts_with("KEY ")).count(),
        12
    );
    assert_eq!(lines(&mut client, "keys key- 7\r\n").len(), 7 + 2);
    assert_eq!(client.paused_ms, 0);
    lines(&mut client, "dump 0 0 1 100\r\n");
    let bytes = dump.iter().map(|line| line.len() as u64 + 2).sum::<u64>();
    let expected = bytes * 1000 / (100 << 10);
    assert!(
        (expected * 8 / 10..=expected).contains(&client.paused_ms),
        "{} for {expected}",
        client.paused_ms
    );
    assert_eq!(
        client.send(b"dump 0 1 2\r\nkeys\r\ndump x\r\n", 99),
        b"CLIENT_ERROR there is one partition: 0 of 1\r\nCLIENT_ERROR bad command line format\r\n\
          CLIENT_ERROR bad command line format\r\n"
    );
}
