//! `watch`: the commands of other clients, line by line, as memcached prints them; and what happens to a client that does
//! not read.
//! A watcher is a session that is served without input, as a connection's is that must wait.
//! It knows no sockets.

use std::sync::Arc;

use azekura_server::memcached::{Next, Service, Session, Settings, Transport};

use crate::wire::{Client, NOW, is_like, plays, plays_with, service};

/// A session that watches, which was answered `OK`.
fn watcher(service: &Arc<Service>, line: &str) -> Session {
    let mut session = Session::new(Arc::clone(service), Transport::Tcp);
    let mut output = Vec::new();
    session.serve(line.as_bytes(), &mut output);
    assert_eq!(String::from_utf8_lossy(&output), "OK\r\n", "{line}");
    session
}

/// The lines that have come, without their times.
fn lines(watcher: &mut Session) -> Vec<String> {
    let mut output = Vec::new();
    let served = watcher.serve(b"get never served\r\n", &mut output);
    assert!(matches!(served.next, Next::Pause { millis: 1.. }));
    assert_eq!(served.consumed, 0);
    let text = String::from_utf8(output).unwrap();
    let cut = |line: &str| {
        let (time, rest) = line.split_once(" gid=").unwrap();
        assert!(is_like(time, "ts=#.#"), "{time}");
        rest.to_owned()
    };
    text.split_terminator('\n')
        .map(|line| match line.strip_prefix("skipped=") {
            Some(_) => line.to_owned(),
            None => cut(line),
        })
        .collect()
}

#[test]
fn a_watcher_is_told_what_each_command_does() {
    let service = service(Settings::default());
    let mut watcher = watcher(&service, "watch fetchers mutations deletions\r\n");
    let mut client = Client::new(&service);
    let mut gid = 0;
    for (request, told) in [
        (
            "get a",
            vec!["item_get key=a status=not_found clsid=0 cfd=0 size=0"],
        ),
        (
            "set a 1 100 3\r\nabc",
            vec!["item_store key=a status=stored cmd=set ttl=100 clsid=1 cfd=0 size=3"],
        ),
        (
            "set a 1 0 3\r\nabc\r\nset b%: 0 0 1 noreply\r\nb",
            vec![
                "item_store key=a status=stored cmd=set ttl=0 clsid=1 cfd=0 size=3",
                "item_store key=b%25%3A status=stored cmd=set ttl=0 clsid=1 cfd=0 size=1",
            ],
        ),
        (
            "gets a c",
            vec![
                "item_get key=a status=found clsid=1 cfd=0 size=3",
                "item_get key=c status=not_found clsid=0 cfd=0 size=0",
            ],
        ),
        (
            "gat 0 a",
            vec!["item_get key=a status=found clsid=1 cfd=0 size=3"],
        ),
        (
            "touch c 1",
            vec!["item_get key=c status=not_found clsid=0 cfd=0 size=0"],
        ),
        (
            "add a 0 0 1\r\nx",
            vec!["item_store key=a status=not_stored cmd=add ttl=0 clsid=1 cfd=0 size=1"],
        ),
        (
            "prepend a 0 0 1\r\nx",
            vec!["item_store key=a status=stored cmd=prepend ttl=0 clsid=1 cfd=0 size=4"],
        ),
        (
            "cas a 0 0 1 9\r\nx",
            vec!["item_store key=a status=exists cmd=cas ttl=0 clsid=1 cfd=0 size=1"],
        ),
        (
            "cas c 0 0 1 9\r\nx",
            vec!["item_store key=c status=not_found cmd=cas ttl=0 clsid=1 cfd=0 size=1"],
        ),
        (
            "ma n N0 J15",
            vec![
                "item_get key=n status=not_found clsid=0 cfd=0 size=0",
                "item_store key=n status=stored cmd=add ttl=0 clsid=1 cfd=0 size=2",
            ],
        ),
        (
            "incr n 1",
            vec!["item_get key=n status=found clsid=1 cfd=0 size=2"],
        ),
        (
            "mg n v",
            vec!["item_get key=n status=found clsid=1 cfd=0 size=2"],
        ),
        (
            "mg n v t T0",
            vec!["item_get key=n status=found clsid=1 cfd=0 size=2"],
        ),
        (
            "md n",
            vec![
                "item_get key=n status=found clsid=1 cfd=0 size=2",
                "deleted key=n cmd=md clsid=1 size=2",
            ],
        ),
        (
            "delete a",
            vec![
                "item_get key=a status=found clsid=1 cfd=0 size=4",
                "deleted key=a cmd=delete clsid=1 size=4",
            ],
        ),
        (
            "delete a",
            vec!["item_get key=a status=not_found clsid=0 cfd=0 size=0"],
        ),
        (
            "set a 0 0 1048576",
            vec!["item_store key=a status=too_large cmd=set ttl=0 clsid=1 cfd=0 size=0"],
        ),
    ] {
        client.send(format!("{request}\r\n").as_bytes(), 99);
        let expected: Vec<_> = told
            .iter()
            .map(|told| {
                gid += 1;
                format!("{gid} type={told}")
            })
            .collect();
        assert_eq!(lines(&mut watcher), expected, "{request}");
    }
    let mut client = Client::new(&service);
    client.send(b"set e 0 1 1\r\nx\r\n", 99);
    service.set_time(NOW + 1).unwrap();
    client.send(b"get e\r\n", 99);
    assert!(lines(&mut watcher)[1].ends_with("key=e status=expired clsid=0 cfd=0 size=0"));
}

#[test]
fn a_watcher_is_told_only_what_it_asked_for_and_nothing_when_it_has_gone() {
    let service = service(Settings::default());
    let mut reads = watcher(&service, "watch\r\n");
    let mut begins = watcher(&service, "watch m d\r\n");
    let mut client = Client::new(&service);
    client.send(b"get a\r\nset a 0 0 1\r\nx\r\ndelete a\r\n", 99);
    assert_eq!(lines(&mut reads).len(), 2);
    assert_eq!(lines(&mut begins).len(), 2);
    let stats = |client: &mut Client| String::from_utf8(client.send(b"stats\r\n", 99)).unwrap();
    assert!(stats(&mut client).contains("STAT log_watchers 2\r\n"));
    drop(reads);
    client.send(b"get a\r\n", 99);
    assert_eq!(lines(&mut begins), [""; 0]);
    drop(begins);
    client.send(b"set a 0 0 1\r\nx\r\n", 99);
    let told = stats(&mut client);
    // Counting by prefix continues when no client watches.
    client.send(b"stats detail on\r\nget p:a\r\n", 99);
    drop(watcher(&service, "watch\r\n"));
    client.send(b"get p:a\r\n", 99);
    let detail = String::from_utf8(client.send(b"stats detail dump\r\n", 99)).unwrap();
    assert!(detail.starts_with("PREFIX p get 2 "), "{detail}");
    for line in [
        "log_watchers 0",
        "log_watcher_sent 4",
        "log_watcher_skipped 0",
    ] {
        assert!(
            told.contains(&format!("STAT {line}\r\n")),
            "{line} in {told}"
        );
    }
}

#[test]
fn lines_that_a_watcher_does_not_take_are_dropped_and_counted() {
    let service = service(Settings::default());
    let mut watcher = watcher(&service, "watch\r\n");
    let mut client = Client::new(&service);
    let count = 10_000;
    let get = format!("get {}\r\n", "k".repeat(250));
    for _ in 0..count {
        client.send(get.as_bytes(), 999);
    }
    let held = lines(&mut watcher).len();
    assert!((500..1000).contains(&held), "{held} lines");
    client.send(b"get a\r\n", 99);
    let told = lines(&mut watcher);
    assert_eq!(told.len(), 2);
    assert_eq!(told[0], format!("skipped={}", count - held));
    assert!(told[1].starts_with(&format!("{} type=item_get key=a ", count + 1)));
}

#[test]
fn what_may_not_be_watched_is_refused_as_memcached_refuses_it() {
    for word in ["nonsense", "fetchers nonsense", "Fetchers", "noreply"] {
        plays(&format!("> watch {word}\n< ERROR"));
    }
    plays_with(
        &Settings {
            dump_enabled: false,
            ..Settings::default()
        },
        "> watch
         < CLIENT_ERROR watch commands not allowed",
    );
    let service = service(Settings::default());
    for line in [
        "watch rawcmds sysevents\r\n",
        "watch fetch\r\n",
        "watch \r\n",
    ] {
        watcher(&service, line);
    }
    let all: Vec<_> = (0..20)
        .map(|_| watcher(&service, "watch proxyreqs proxyevents proxyuser\r\n"))
        .collect();
    let mut output = Vec::new();
    let mut session = Session::new(Arc::clone(&service), Transport::Tcp);
    session.serve(b"watch\r\n", &mut output);
    drop(all);
    session.serve(b"mn\r\nwatch\r\n", &mut output);
    assert_eq!(
        String::from_utf8_lossy(&output),
        "WATCHER_TOO_MANY log watcher limit reached\r\nMN\r\nERROR cannot pipeline other commands before watch\r\n"
    );
}
