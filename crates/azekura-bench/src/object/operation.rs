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
//! the store does not tell. Fields that are not known are skipped.
//!
//! It does not know where keys come from.

use std::io::{BufRead, Write};
use std::marker::PhantomData;

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

/// A value, as a workload describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueOf {
    /// Its bytes.
    pub size: u64,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[expect(missing_docs, reason = "the names say it")]
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
    /// Whether there was an object; `None` if the store does not tell.
    pub exists: Option<bool>,
    /// Why it failed: null, or whatever the tool that ran it wrote.
    pub error: Option<serde_json::Value>,
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

/// Reads an array element by element: an iterator that ends after the array, or after the first error.
pub struct ArrayReader<R, T> {
    from: R,
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
    /// Nothing is read yet.
    pub const fn new(from: R) -> Self {
        Self {
            from,
            state: State::Before,
            read: 0,
            of: PhantomData,
        }
    }

    /// The next byte that is not blank, left where it is.
    fn peek(&mut self) -> Result<Option<u8>> {
        loop {
            let failed = |error| Error::io("cannot read JSON", error);
            let ready = self.from.fill_buf().map_err(failed)?;
            let Some(&byte) = ready.first() else {
                return Ok(None);
            };
            if !byte.is_ascii_whitespace() {
                return Ok(Some(byte));
            }
            self.from.consume(1);
        }
    }

    fn wrong(&self, what: &str) -> Error {
        Error::new(Kind::Invalid, format!("element {}: {what}", self.read))
            .remedy("give a JSON array, as `azekura bench object workload` writes it")
    }

    fn element(&mut self) -> Result<Option<T>> {
        let mut found = self.peek()?;
        if self.state == State::Before {
            if found != Some(b'[') {
                return Err(self.wrong("an array is expected"));
            }
            self.from.consume(1);
            found = self.peek()?;
        } else if found == Some(b',') {
            self.from.consume(1);
            found = self.peek()?;
            if found == Some(b']') {
                return Err(self.wrong("an object is expected after a comma"));
            }
        } else if found != Some(b']') {
            return Err(self.wrong("a comma or the end of the array is expected"));
        }
        match found {
            Some(b']') => {
                self.from.consume(1);
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
                let element = element.map_err(|error| self.wrong(&error.to_string()))?;
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
        let read: Result<Vec<Operation>> = ArrayReader::new(text.as_bytes()).collect();
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
        let read: Vec<Outcome> = ArrayReader::new(more.as_bytes())
            .map(Result::unwrap)
            .collect();
        assert_eq!(read, [outcome]);
        let failed = text.replace("\"error\":null", "\"error\":{\"reason\":\"x\"}");
        let read: Vec<Outcome> = ArrayReader::new(failed.as_bytes())
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
            let read: Result<Vec<Operation>> = ArrayReader::new(text.as_bytes()).collect();
            let error = read.unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid);
            assert!(error.to_string().contains(what), "{text}: {error}");
        }
    }
}
