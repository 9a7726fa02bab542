//! The program under test, and a directory for its files.
//! Every run has its standard input closed or given, never the terminal's. A run that is signalled
//! (a crash) fails the test at once.
//! It does not know any command but `create`.

use std::ffi::OsStr;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// A directory that disappears with the test.
pub(crate) struct Place(tempfile::TempDir);

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
}

/// States what was not tested, past the test runner, which keeps the words of tests that pass.
pub(crate) fn notice(text: &str) {
    writeln!(std::io::stderr(), "notice: {text}").expect("standard error is open");
}

/// `count` lines, made from their numbers.
pub(crate) fn lines(count: u32, line: impl Fn(u32) -> String) -> String {
    (0..count).map(line).collect::<Vec<_>>().concat()
}

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    /// A place with an empty store, `s.azh`.
    pub(crate) fn with_store() -> Self {
        let place = Self::new();
        place.run(&["create", "s.azh"]).ok();
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), bytes).expect("a file is written");
    }

    /// A file that only its owner may read.
    pub(crate) fn write_secret(&self, name: &str, bytes: impl AsRef<[u8]>) {
        self.write(name, bytes);
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(self.path(name), mode).expect("a file of ours");
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).expect("a file is read")
    }

    /// The names of the files there are.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).expect("the directory is listed");
        let mut names: Vec<String> = entries
            .map(|e| {
                e.expect("an entry")
                    .file_name()
                    .into_string()
                    .expect("text")
            })
            .collect();
        names.sort();
        names
    }

    /// The program with `arguments`, in this directory.
    pub(crate) fn command(&self, arguments: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_azekura"));
        command
            .args(arguments)
            .current_dir(self.0.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, arguments: &[impl AsRef<OsStr>]) -> Ran {
        self.run_with(arguments, b"")
    }

    /// Runs with `input` on standard input.
    pub(crate) fn run_with(&self, arguments: &[impl AsRef<OsStr>], input: &[u8]) -> Ran {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .spawn()
            .expect("the program starts");
        // A program that ends without reading breaks the pipe, which is its right.
        let _ = child
            .stdin
            .take()
            .expect("the pipe was asked for")
            .write_all(input);
        Ran::of(child.wait_with_output().expect("the program ends"))
    }

    /// Runs with the standard input that a shell makes of `redirection`.
    pub(crate) fn run_redirected(&self, redirection: &str, arguments: &[&str]) -> Ran {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &format!("exec \"$0\" \"$@\" {redirection}")])
            .arg(env!("CARGO_BIN_EXE_azekura"))
            .args(arguments)
            .current_dir(self.0.path());
        Ran::of(shell.output().expect("the program ends"))
    }
}

impl Ran {
    fn of(output: Output) -> Self {
        Self {
            code: output
                .status
                .code()
                .unwrap_or_else(|| panic!("ended by {}", output.status)),
            out: output.stdout,
            err: String::from_utf8(output.stderr).expect("messages are text"),
        }
    }

    /// Expects success without a word on standard error; returns standard output.
    pub(crate) fn ok(self) -> String {
        assert_eq!((self.code, self.err.as_str()), (0, ""), "{self:?}");
        self.text()
    }

    /// Expects the answer no; returns standard output.
    pub(crate) fn no(self) -> String {
        assert_eq!(self.code, 1, "{self:?}");
        self.text()
    }

    /// Expects an error with `code`, one line, nothing on standard output; returns the line.
    pub(crate) fn error(self, code: i32) -> String {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.out.is_empty(), "{self:?}");
        let line = self.err.strip_suffix('\n').expect("a whole line");
        assert!(!line.contains('\n'), "one line: {line}");
        let message = line
            .strip_prefix("azekura: ")
            .expect("the program's name first");
        message.to_string()
    }

    pub(crate) fn text(self) -> String {
        String::from_utf8(self.out).expect("results are text")
    }
}
