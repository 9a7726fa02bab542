//! `inspect`: prints what a file is and holds, without changing it.
//! The names are the library's. Numbers are exact; the table adds what they are in larger units.
//! It does not verify: `check` does.

use std::path::PathBuf;

use azekura::error::size;
use azekura::record::hash::HashReader;
use azekura::{Durability, Reader as _, Result};
use serde_json::{Map, Value};

use crate::exit::Outcome;
use crate::output::Output;

/// Print figures about a file
#[derive(clap::Args)]
pub(crate) struct Inspect {
    /// The file
    file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Inspect {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        let store = HashReader::open(&self.file)?;
        let promise = store.promise();
        let durability = promise
            .durability
            .map_or("none", |durability| match durability {
                Durability::Process => "process",
                Durability::Power => "power",
            });
        let mut rows = store.inspect();
        rows.push(("durability", durability.to_string()));
        rows.push(("key_len_max", promise.key_len_max.to_string()));
        rows.push(("value_len_max", promise.value_len_max.to_string()));
        if self.json {
            let object: Map<String, Value> = rows
                .into_iter()
                .map(|(name, value)| (name.to_string(), typed(name, value)))
                .collect();
            out.json(&object)?;
            return Ok(Outcome::Yes);
        }
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, value) in rows {
            let is_size = ["_bytes", "_size", "_len_max"]
                .iter()
                .any(|end| name.ends_with(end));
            match value.parse() {
                Ok(bytes) if is_size && bytes >= 1024 => {
                    out.line(format_args!("{name:<width$}  {value} ({})", size(bytes)))?;
                }
                _ => out.line(format_args!("{name:<width$}  {value}"))?,
            }
        }
        Ok(Outcome::Yes)
    }
}

/// Numbers as numbers, yes and no as such, the rest as text.
fn typed(name: &str, value: String) -> Value {
    if name == "path" {
        return Value::String(value);
    }
    if let Ok(number) = value.parse::<u64>() {
        return Value::from(number);
    }
    value.parse().map_or(Value::String(value), Value::Bool)
}
