//! Operations and what came of them, as JSON: the two streams that a workload and a run are.
//!
//! ```text
//!   workload   [{"PUT":{"key":"Z3Q0","value":{"size":102400}}},{"GET":{"key":"Z3Q0"}},{"DELETE":{"key":"Z3Q0"}}]
//!   results    [{"seqno":0,"key":"Z3Q0","method":"PUT","start_time":0.1,"elapsed":0.02,"exists":null,"error":null}]
//! ```
//!
//! The shapes are those of `ekvsb`, the tool of the published benchmark, so that either program reads
//! what the other wrote. Both are read and written one element at a time: ten million of them take no
//! memory. `start_time` is in seconds since the run began, `elapsed` in seconds; `exists` is null where
//! the store does not report it. Unknown fields are skipped. What is no such array is an error that names the file, the
//! line and the column.
//!
//! It does not know where keys come from.

use std::io::{BufRead, Read, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use azekura::error::{Error, Kind, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// One operation of a workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    /// Store a value.
    Put {
        /// The key, at most 16 bytes.
        key: String,
        /// What is stored.
        value: ValueOf,
    },
    /// Read a value.
    Get {
        /// The key.
        key: String,
    },
    /// Remove an object.
    Delete {
        /// The key.
        key: String,
    },
}

/// Operations, one by one.
pub type Operations = Box<dyn Iterator<Item = Result<Operation>> + Send>;
/// A value, as a workload describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueOf {
    /// Its bytes.
    pub size: u64,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[expect(missing_docs, reason = "the names are the methods")]
pub enum Method {
    Put,
    Get,
    Delete,
}

impl Operation {
    /// What it does.
    pub const fn method(&self) -> Method {
        match self {
            Self::Put { .. } => Method::Put,
            Self::Get { .. } => Method::Get,
            Self::Delete { .. } => Method::Delete,
        }
    }

    /// To which key.
    pub fn key(&self) -> &str {
        match self {
            Self::Put { key, .. } | Self::Get { key } | Self::Delete { key } => key,
        }
    }

    /// The same, given away.
    pub fn into_key(self) -> String {
        match self {
            Self::Put { key, .. } | Self::Get { key } | Self::Delete { key } => key,
        }
    }
}

/// What came of an operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Its place in the workload, from 0.
    pub seqno: u64,
    /// The key.
    pub key: String,
    /// What was done.
    pub method: Method,
    /// Seconds from the beginning of the run.
    pub start_time: f64,
    /// Seconds it took.
    pub elapsed: f64,
    /// Whether there was an object; `None` if the store does not report it.
    pub exists: Option<bool>,
    /// Why it failed: null, or whatever the tool that ran it wrote.
    pub error: Option<serde_json::Value>,
}

impl Outcome {
    /// Whether it looked for an object, to read or to remove it, and there was none.
    pub fn is_missing(&self) -> bool {
        self.error.is_none() && self.method != Method::Put && self.exists == Some(false)
    }
}

/// Writes an array element by element.
pub struct ArrayWriter<W: Write> {
    out: W,
    any: bool,
}

impl<W: Write> ArrayWriter<W> {
    /// Nothing is written before the first element or the end.
    pub const fn new(out: W) -> Self {
        Self { out, any: false }
    }

    /// Adds an element.
    pub fn add(&mut self, element: &impl Serialize) -> Result<()> {
        let failed = |error| Error::io("cannot write JSON", error);
        let before: &[u8] = if self.any { b",\n" } else { b"[" };
        self.any = true;
        self.out.write_all(before).map_err(failed)?;
        serde_json::to_writer(&mut self.out, element).map_err(|error| failed(error.into()))
    }

    /// Closes the array and hands it on.
    pub fn finish(mut self) -> Result<()> {
        let end: &[u8] = if self.any { b"]\n" } else { b"[]\n" };
        let done = self.out.write_all(end).and_then(|()| self.out.flush());
        done.map_err(|error| Error::io("cannot write JSON", error))
    }
}

/// Bytes, and on which line they are.
struct Lines<R> {
    from: R,
    /// Ends of lines that were read.
    ends: u64,
    /// Bytes read since.
    columns: u64,
}

impl<R> Lines<R> {
    fn pass(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if byte == b'\n' {
                (self.ends, self.columns) = (self.ends + 1, 0);
            } else {
                self.columns += 1;
            }
        }
    }
}

impl<R: Read> Read for Lines<R> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let read = self.from.read(buf)?;
        self.pass(&buf[..read]);
        Ok(read)
    }
}

/// Reads an array element by element: an iterator that ends after the array, or after the first error.
pub struct ArrayReader<R, T> {
    from: Lines<R>,
    name: PathBuf,
    state: State,
    read: u64,
    of: PhantomData<fn() -> T>,
}

#[derive(PartialEq)]
enum State {
    Before,
    Inside,
    Ended,
}

impl<R: BufRead, T: DeserializeOwned> ArrayReader<R, T> {
    /// Nothing is read yet. Errors call it `name`.
    pub fn new(from: R, name: &Path) -> Self {
        Self {
            from: Lines {
                from,
                ends: 0,
                columns: 0,
            },
            name: name.to_path_buf(),
            state: State::Before,
            read: 0,
            of: PhantomData,
        }
    }

    /// The next byte that is not blank, left where it is.
    fn peek(&mut self) -> Result<Option<u8>> {
        loop {
            let failed = |error| Error::io("cannot read JSON", error).at(&self.name);
            let ready = self.from.from.fill_buf().map_err(failed)?;
            let Some(&byte) = ready.first() else {
                return Ok(None);
            };
            if !byte.is_ascii_whitespace() {
                return Ok(Some(byte));
            }
            self.skip(byte);
        }
    }

    /// Goes past a byte that was looked at.
    fn skip(&mut self, byte: u8) {
        self.from.from.consume(1);
        self.from.pass(&[byte]);
    }

    fn wrong(&self, what: &str) -> Error {
        self.wrong_at((self.from.ends + 1, self.from.columns + 1), what)
    }

    fn wrong_at(&self, (line, column): (u64, u64), what: &str) -> Error {
        let what = format!("line {line} column {column}: element {}: {what}", self.read);
        Error::new(Kind::Invalid, what)
            .at(&self.name)
            .remedy("give a JSON array, as `azekura bench object workload` writes it")
    }

    /// What the parser found, which counts lines from where the element began.
    fn misread(&self, error: &serde_json::Error) -> Error {
        if let Some(kind) = error.io_error_kind() {
            return Error::io("cannot read JSON", std::io::Error::from(kind)).at(&self.name);
        }
        let text = error.to_string();
        let place = format!(" at line {} column {}", error.line(), error.column());
        // It has read up to the byte that is wrong, or one past the end.
        let column = self.from.columns.max(1);
        let what = text.strip_suffix(&place).unwrap_or(&text);
        self.wrong_at((self.from.ends + 1, column), what)
    }

    fn element(&mut self) -> Result<Option<T>> {
        let mut found = self.peek()?;
        if self.state == State::Before {
            if found != Some(b'[') {
                return Err(self.wrong("an array is expected"));
            }
            self.skip(b'[');
            found = self.peek()?;
        } else if found == Some(b',') {
            self.skip(b',');
            found = self.peek()?;
            if found == Some(b']') {
                return Err(self.wrong("an object is expected after a comma"));
            }
        } else if found != Some(b']') {
            return Err(self.wrong("a comma or the end of the array is expected"));
        }
        match found {
            Some(b']') => {
                self.skip(b']');
                match self.peek()? {
                    None => Ok(None),
                    Some(_) => Err(self.wrong("nothing is expected after the array")),
                }
            }
            // Only of an object does the parser read no byte too many.
            Some(b'{') => {
                self.state = State::Inside;
                let mut one = serde_json::Deserializer::from_reader(&mut self.from);
                let element = T::deserialize(&mut one);
                let element = element.map_err(|error| self.misread(&error))?;
                self.read += 1;
                Ok(Some(element))
            }
            _ => Err(self.wrong("an object is expected")),
        }
    }
}

impl<R: BufRead, T: DeserializeOwned> Iterator for ArrayReader<R, T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        if self.state == State::Ended {
            return None;
        }
        let element = self.element().transpose();
        if !matches!(element, Some(Ok(_))) {
            self.state = State::Ended;
        }
        element
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written<T: Serialize>(elements: &[T]) -> String {
        let mut bytes = Vec::new();
        let mut array = ArrayWriter::new(&mut bytes);
        for element in elements {
            array.add(element).unwrap();
        }
        array.finish().unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_workload_has_the_shape_of_the_published_tool() {
        let key = || "Z3Q0".to_owned();
        let operations = [
            Operation::Put {
                key: key(),
                value: ValueOf { size: 102_400 },
            },
            Operation::Get { key: key() },
            Operation::Delete { key: key() },
        ];
        let text = written(&operations);
        assert_eq!(
            text,
            "[{\"PUT\":{\"key\":\"Z3Q0\",\"value\":{\"size\":102400}}},\n\
             {\"GET\":{\"key\":\"Z3Q0\"}},\n{\"DELETE\":{\"key\":\"Z3Q0\"}}]\n"
        );
        let read: Result<Vec<Operation>> =
            ArrayReader::new(text.as_bytes(), Path::new("w")).collect();
        assert_eq!(read.unwrap(), operations);
        assert_eq!(written::<Operation>(&[]), "[]\n");
    }

    #[test]
    fn results_have_the_shape_of_the_published_tool_and_unknown_fields_do_no_harm() {
        let outcome = Outcome {
            seqno: 7,
            key: "a".into(),
            method: Method::Delete,
            start_time: 0.5,
            elapsed: 0.000_125,
            exists: None,
            error: None,
        };
        let text = written(std::slice::from_ref(&outcome));
        assert_eq!(
            text,
            "[{\"seqno\":7,\"key\":\"a\",\"method\":\"DELETE\",\"start_time\":0.5,\
             \"elapsed\":0.000125,\"exists\":null,\"error\":null}]\n"
        );
        let more = text.replace("{\"seqno\"", " {\"host\": [1, {}], \"seqno\"");
        let read: Vec<Outcome> = ArrayReader::new(more.as_bytes(), Path::new("w"))
            .map(Result::unwrap)
            .collect();
        assert_eq!(read, [outcome]);
        let failed = text.replace("\"error\":null", "\"error\":{\"reason\":\"x\"}");
        let read: Vec<Outcome> = ArrayReader::new(failed.as_bytes(), Path::new("w"))
            .map(Result::unwrap)
            .collect();
        assert!(read[0].error.is_some());
    }

    #[test]
    fn what_is_no_array_of_operations_is_an_error_that_says_where() {
        for (text, what) in [
            ("", "element 0: an array is expected"),
            ("{}", "element 0: an array is expected"),
            ("[1]", "element 0: an object is expected"),
            (
                "[{\"GET\":{\"key\":\"a\"}}",
                "element 1: a comma or the end",
            ),
            (
                "[{\"GET\":{\"key\":\"a\"}},]",
                "element 1: an object is expected after a comma",
            ),
            (
                "[{\"GET\":{\"key\":\"a\"}}]x",
                "element 1: nothing is expected after",
            ),
            ("[{\"GET\":{\"kex\":\"a\"}}]", "element 0: "),
            ("[{\"GET\":{\"key\":\"a", "element 0: "),
            ("[{\"FLY\":{\"key\":\"a\"}}]", "element 0: unknown variant"),
        ] {
            let read: Result<Vec<Operation>> =
                ArrayReader::new(text.as_bytes(), Path::new("w")).collect();
            let error = read.unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid);
            assert!(error.to_string().contains(what), "{text}: {error}");
        }
    }

    #[test]
    fn errors_name_the_file_and_the_line_of_all_it_holds() {
        let get = "{\"GET\":{\"key\":\"a\"}}";
        for (text, place) in [
            (String::new(), "line 1 column 1: element 0: "),
            (
                format!("[{get},\n{get},\n\n  oops]"),
                "line 4 column 3: element 2: ",
            ),
            (
                format!("[{get},\n{}]", get.replace("key", "kex")),
                "line 2 column 18: element 1: missing field `key`",
            ),
            (
                format!("[{get},\n{{\"GET\":\n{{\"key\":7}}}}]"),
                "line 3 column 9: element 1: invalid type: integer `7`",
            ),
            (
                format!("[\n{get}\n{get}]"),
                "line 3 column 1: element 1: a comma",
            ),
        ] {
            let read: Result<Vec<Operation>> =
                ArrayReader::new(text.as_bytes(), Path::new("put.json")).collect();
            let error = read.unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("invalid: {place}")),
                "{text}: {error}"
            );
            assert!(error.contains(" at put.json"), "{error}");
        }
    }
}
