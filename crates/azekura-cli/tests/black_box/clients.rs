//! Clients of other hands against `azekura serve`: they decide whether what it speaks is the protocol.
//!
//! What a client needs is put there by `make clients` and `make setup`; where it is absent, a notice states what was left out. It knows of the
//! protocols nothing: each client compares what it gets with what it set, and fails by its exit code.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::program::{Place, notice};
use crate::serve::Server;

/// Runs the checker of libmemcached with `flags`; `None`: it is not there. It waits for each answer for a minute.
fn memccapable(server: &Server, flags: &[&str]) -> Option<String> {
    let (host, port) = server.address.rsplit_once(':').expect("an address");
    let ran = Command::new("memccapable")
        .args(["-h", host, "-p", port, "-t", "60"])
        .args(flags)
        .output();
    match ran {
        Ok(output) => {
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said).into_owned();
            assert!(output.status.success(), "{flags:?}: {said}");
            Some(said)
        }
        Err(e) if e.kind() == ErrorKind::NotFound => None,
        Err(e) => panic!("memccapable cannot be run: {e}"),
    }
}

#[test]
fn the_checker_of_libmemcached_passes_in_text_and_binary_mode() {
    let place = Place::new();
    let server = Server::start(&place, &["--threads", "2"]);
    for (flag, least) in [("-a", 27), ("-b", 27)] {
        let Some(said) = memccapable(&server, &[flag]) else {
            notice(
                "the checker of libmemcached was not run: memccapable (package libmemcached-tools) is missing",
            );
            return;
        };
        let passed = said.matches("[pass]").count();
        assert!(
            passed >= least && said.contains("All tests passed"),
            "{passed} passed: {said}"
        );
    }
}

/// Has a client fill a server, kills it, starts it again, and has the client look at what is left.
fn fills_and_finds(client: &[&Path]) {
    let place = Place::new();
    let run = |server: &Server, what: &str| {
        let output = Command::new(client[0])
            .args(&client[1..])
            .args([&server.address, what])
            .output()
            .expect("it is there");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{what}: {said}");
        assert_eq!(output.stdout, b"ok\n", "{what}: {said}");
    };
    let server = Server::start(&place, &["--threads", "2"]);
    run(&server, "fill");
    run(&server, "look");
    server.kill();
    let server = Server::start(&place, &["--threads", "2"]);
    run(&server, "look");
    run(&server, "fill");
}

/// Where `make clients` puts what is not of this repository.
fn installed(name: &str) -> Option<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = workspace.join("target/clients").join(name);
    path.exists().then_some(path)
}

#[test]
fn what_pymemcache_sets_it_gets_also_after_a_kill() {
    let Some(python) = installed("python/bin/python") else {
        notice("pymemcache was not run: `make clients` did not install it");
        return;
    };
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/pymemcache.py");
    fills_and_finds(&[&python, &program]);
}

#[test]
fn what_gomemcache_sets_it_gets_also_after_a_kill() {
    let Some(program) = installed("gomemcache") else {
        notice("gomemcache was not run: `make clients` did not build it");
        return;
    };
    fills_and_finds(&[&program]);
}
