//! A full device, played by a limit on the size of files, as `ulimit -f` sets it.
//!
//! What does not fit is reported, a full file can be emptied, shortened and compacted, and a server continues with what it has.
//! It does not know where exactly a file is full.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use crate::program::{Place, Ran, lines};
use crate::serve::Server;

const RECORDS: u32 = 150_000;

/// Of the limit of files that become large: 30 to 60 MiB, as shells count in different units.
const BLOCKS: &str = "60000";

/// The program where no file may grow beyond so many blocks.
fn limited(place: &Place, blocks: &str, arguments: &[&str]) -> Command {
    let program = place.command(arguments);
    let mut words: Vec<OsString> = vec![program.get_program().into()];
    words.extend(program.get_args().map(Into::into));
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -f \"$0\"; exec \"$@\"", blocks])
        .args(words)
        .current_dir(place.path("."));
    command
}

fn run_limited(place: &Place, arguments: &[&str]) -> Ran {
    run_limited_to(place, BLOCKS, arguments)
}

pub(crate) fn run_limited_to(place: &Place, blocks: &str, arguments: &[&str]) -> Ran {
    let output = limited(place, blocks, arguments)
        .stdin(Stdio::null())
        .output()
        .expect("a shell");
    Ran {
        code: output.status.code().expect("no signal"),
        out: output.stdout,
        err: String::from_utf8(output.stderr).expect("messages are text"),
    }
}

pub(crate) fn count(place: &Place) -> u32 {
    let text = place.run(&["inspect", "--json", "s.azh"]).ok();
    let object: serde_json::Value = serde_json::from_str(&text).expect("one JSON object");
    let count = object["count"].as_u64().expect("a number");
    u32::try_from(count).expect("a small one")
}

#[test]
fn an_import_that_fills_the_device_says_how_far_it_came_or_leaves_no_file() {
    let place = Place::with_store();
    let value = "v".repeat(500);
    place.write("in", lines(RECORDS, |n| format!("{n:06}\t{value}\n")));

    let error = run_limited(&place, &["import", "--create", "new.azh", "tsv", "in"]).error(5);
    assert!(error.starts_with("full: "), "{error}");
    assert_eq!(place.names(), ["in", "s.azh"]);

    let error = run_limited(&place, &["import", "s.azh", "tsv", "in"]).error(5);
    let stored = count(&place);
    assert!(stored > 10_000, "{stored}");
    let told = format!(
        "the first {stored} of {RECORDS} records are stored; make room and import the same again for the others"
    );
    assert!(error.ends_with(&told), "{error}");
    place
        .run(&["get", "s.azh", &format!("{:06}", stored - 1)])
        .ok();
    place.run(&["get", "s.azh", &format!("{stored:06}")]).no();

    // It is full, and can be emptied and compacted as it is.
    let keys: Vec<String> = (0..5000).map(|n| format!("{n:06}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    run_limited(
        &place,
        &[&["remove", "--each", "s.azh"], &keys[..]].concat(),
    )
    .ok();
    run_limited(&place, &["compact", "s.azh"]).ok();
    assert_eq!(count(&place), stored - 5000);
    run_limited(&place, &["set", "s.azh", "one", "more"]).ok();

    place.run(&["import", "s.azh", "tsv", "in"]).ok();
    assert_eq!(count(&place), RECORDS + 1);
    place.run(&["check", "s.azh"]).ok();
}

/// Each ended by SIGXFSZ, without a word.
#[test]
fn a_limit_of_the_size_of_files_is_an_error_of_one_line() {
    let place = Place::with_store();
    place
        .run(&["object", "create", "s.azo", "--capacity", "16MiB"])
        .ok();
    place.write("large", vec![b'v'; 4 << 20]);
    place.run(&["set", "s.azh", "before", "x"]).ok();
    place
        .run(&["object", "put", "s.azo", "2", "--value", "x"])
        .ok();
    for arguments in [
        &["create", "new.azh"][..],
        &["object", "create", "new.azo", "--capacity", "16MiB"],
        &["set", "s.azh", "--value-file", "large", "k"],
        &["object", "put", "s.azo", "1", "large"],
    ] {
        let error = run_limited_to(&place, "1", arguments).error(5);
        assert!(error.starts_with("full: "), "{error}");
        assert!(error.contains("ulimit -f"), "{error}");
    }
    assert_eq!(place.names(), ["large", "s.azh", "s.azo"]);
    // A superblock may be torn by that, of which there are two.
    assert_eq!(place.run(&["get", "s.azh", "before"]).ok(), "x\n");
    assert_eq!(place.run(&["object", "get", "s.azo", "2"]).ok(), "x");
}

/// A client of a server, for lines.
pub(crate) struct Client(BufReader<TcpStream>);

impl Client {
    pub(crate) fn new(server: &Server) -> Self {
        Self(BufReader::new(
            TcpStream::connect(&server.address).expect("it listens"),
        ))
    }

    /// The first line of the answer.
    pub(crate) fn ask(&mut self, request: &str) -> String {
        self.0
            .get_mut()
            .write_all(request.as_bytes())
            .expect("it reads");
        let mut line = String::new();
        self.0.read_line(&mut line).expect("it answers");
        line
    }

    /// Whether the records below `count` are there as they were set.
    pub(crate) fn finds(&mut self, count: u32, value: &str) {
        for n in 0..count {
            let head = self.ask(&format!("get k{n}\r\n"));
            assert_eq!(head, format!("VALUE k{n} 0 {}\r\n", value.len()));
            let mut data = vec![0; value.len() + 7];
            self.0.read_exact(&mut data).expect("the data");
            assert!(data.starts_with(value.as_bytes()), "k{n}");
        }
    }
}

#[test]
fn a_server_on_a_full_device_refuses_sets_with_the_reason_and_answers_gets() {
    let place = Place::new();
    let arguments = ["serve", "--data", "d", "--listen", "127.0.0.1:0"];
    let mut command = limited(&place, BLOCKS, &arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let server = Server::of(command);
    let mut client = Client::new(&server);
    let value = "v".repeat(50_000);
    let set = |n: u32| format!("set k{n} 0 0 {}\r\n{value}\r\n", value.len());
    let mut stored = 0;
    let refusal = loop {
        let answer = client.ask(&set(stored));
        if answer != "STORED\r\n" {
            break answer;
        }
        stored += 1;
        assert!(stored < 2000, "it grows on");
    };
    assert!(
        refusal.starts_with("SERVER_ERROR full: ") && stored > 100,
        "{refusal} after {stored}"
    );
    // The same connection, and others, get what they set.
    client.finds(stored, &value);
    Client::new(&server).finds(stored, &value);
    assert_eq!(client.ask(&format!("get k{stored}\r\n")), "END\r\n");
    // Nothing that was acknowledged is lost, and with room it continues.
    server.kill();
    let server = Server::start(&place, &[]);
    let mut client = Client::new(&server);
    client.finds(stored, &value);
    assert_eq!(client.ask(&set(stored)), "STORED\r\n");
    client.finds(stored + 1, &value);
}

/// Every refusal was exit code 3 but that of too large a value.
#[test]
fn a_client_that_is_refused_ends_with_the_code_of_the_servers_error() {
    let place = Place::new();
    let server = Server::start(&place, &["--capacity", "8MiB"]);
    let value = "v".repeat(100_000);
    let refused = (0..200).find_map(|n| {
        let ran = server.ask(&place, &["set", &format!("k{n}"), &value]);
        (ran.code != 0).then_some(ran)
    });
    let error = refused.expect("8 MiB are full by then").error(5);
    let expected = "full: the server refused (\"SERVER_ERROR full: ";
    assert!(error.starts_with(expected), "{error}");
    let load = "bench memcache --records 10 --value-size 9999999 --address";
    let mut load: Vec<&str> = load.split(' ').collect();
    load.push(&server.address);
    let error = place.run(&load).error(4);
    let expected = "too large: the server refused (SERVER_ERROR object too large";
    assert!(error.starts_with(expected), "{error}");
    let (code, ..) = server.end();
    assert_eq!(code, 0);
    // A record that no server stored is none of its items.
    place.run(&["set", "d/records.azh", "k0", "x"]).ok();
    let server = Server::start(&place, &["--capacity", "8MiB"]);
    let error = server.ask(&place, &["get", "k0"]).error(8);
    assert!(
        error.starts_with("corrupted: the server refused"),
        "{error}"
    );
}
