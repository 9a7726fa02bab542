//! Operations and what came of them, as JSON: the two streams that a workload and a run are.
//!
//! ```text
//!   workload   [{"PUT":{"key":"Z3Q0","value":{"size":102400}}},{"GET":{"key":"Z3Q0"}},{"DELETE":{"key":"Z3Q0"}}]
//!   results    [{"seqno":0,"key":"Z3Q0","method":"PUT","start_time":0.1,"elapsed":0.02,"exists":null,"error":null}]
//! ```
//!
//! The shapes are those of `ekvsb`, the tool of the published benchmark, so that either program reads
//! what the other wrote. Both are read and written one element at a time. `start_time` is in seconds since the run began, `elapsed` in seconds; `exists` is null where
//! the store does not report it. Unknown fields are skipped. What is no such array is an error that names the file, the
//! line and the column.
//!
//! It does not know where keys come from.

use std::io::{Read, Write};
use std::path::Path;

use azekura::error::{Error, Kind, Result};
use serde::de::{DeserializeOwned, Deserializer as _, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

/// Longest value that is made: an object is at most as large.
pub(super) const VALUE_SIZE_MAX: u64 = 512 << 20;

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
pub type Operations = Box<dyn Iterator<Item = Operation> + Send>;
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

/// What writes a workload.
pub const WORKLOAD: &str = "azekura bench object workload";
/// What writes results.
pub const RESULTS: &str = "azekura bench object --results";

/// Reads an array element by element, and hands each over to `each`.
///
/// Errors: `Invalid` for what is no array of such elements, with `name`, line and column, and the advice to give what `writer`
/// writes; `Io`; and those of `each`.
pub fn read_array<T: DeserializeOwned>(
    from: impl Read,
    name: &Path,
    writer: &str,
    each: &mut dyn FnMut(T) -> Result<()>,
) -> Result<()> {
    let mut elements = Elements {
        each,
        read: 0,
        failed: None,
    };
    let mut json = serde_json::Deserializer::from_reader(from);
    let read = json
        .deserialize_seq(&mut elements)
        .and_then(|()| json.end());
    if let Some(error) = elements.failed {
        return Err(error);
    }
    read.map_err(|error| {
        if let Some(kind) = error.io_error_kind() {
            return Error::io("cannot read JSON", std::io::Error::from(kind)).at(name);
        }
        let (line, column, text) = (error.line(), error.column(), error.to_string());
        let place = format!(" at line {line} column {column}");
        let what = text.strip_suffix(&place).unwrap_or(&text);
        let what = format!(
            "line {line} column {column}: element {}: {what}",
            elements.read
        );
        Error::new(Kind::Invalid, what)
            .at(name)
            .remedy(format!("give a JSON array, as `{writer}` writes it"))
    })
}

struct Elements<'e, T> {
    each: &'e mut dyn FnMut(T) -> Result<()>,
    read: u64,
    /// What `each` returned.
    failed: Option<Error>,
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for &mut Elements<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> std::result::Result<(), A::Error> {
        while let Some(element) = array.next_element()? {
            if let Err(error) = (self.each)(element) {
                self.failed = Some(error);
                return Err(serde::de::Error::custom("ended"));
            }
            self.read += 1;
        }
        Ok(())
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

    fn read<T: DeserializeOwned>(text: &str) -> Result<Vec<T>> {
        let mut all = Vec::new();
        read_array(
            text.as_bytes(),
            Path::new("put.json"),
            WORKLOAD,
            &mut |one| {
                all.push(one);
                Ok(())
            },
        )?;
        Ok(all)
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
        assert_eq!(read::<Operation>(&text).unwrap(), operations);
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
        assert_eq!(read::<Outcome>(&more).unwrap(), [outcome]);
        let failed = text.replace("\"error\":null", "\"error\":{\"reason\":\"x\"}");
        assert!(read::<Outcome>(&failed).unwrap()[0].error.is_some());
    }

    #[test]
    fn what_is_no_array_of_operations_is_an_error_that_names_the_file_and_the_place() {
        let get = "{\"GET\":{\"key\":\"a\"}}";
        for (text, place) in [
            (String::new(), "line 1 column 0: element 0: "),
            ("{}".into(), "line 1 column 1: element 0: "),
            ("[1]".into(), "line 1 column 2: element 0: "),
            (format!("[{get}"), "line 1 column 20: element 1: "),
            (format!("[{get},]"), "line 1 column 22: element 1: "),
            (format!("[{get}]x"), "line 1 column 22: element 1: "),
            (
                "[{\"GET\":{\"key\":\"a".into(),
                "line 1 column 17: element 0: ",
            ),
            (
                get.replace("{\"GET", "[{\"FLY"),
                "line 1 column 7: element 0: unknown variant",
            ),
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
            (format!("[\n{get}\n{get}]"), "line 3 column 1: element 1: "),
        ] {
            let error = read::<Operation>(&text).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid);
            let error = error.to_string();
            let expected = format!("invalid: {place}");
            assert!(
                error.starts_with(&expected) && error.contains(" at put.json"),
                "{text}: {error}"
            );
        }
        let full = || Error::new(Kind::Full, "by design");
        let each = &mut |_: Operation| Err(full());
        let error = read_array(
            format!("[{get}]").as_bytes(),
            Path::new("w"),
            WORKLOAD,
            each,
        )
        .unwrap_err();
        assert_eq!(error.to_string(), full().to_string());
    }
}
