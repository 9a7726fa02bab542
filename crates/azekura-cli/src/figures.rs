//! Figures: a name and a value each, as a table for people or as one JSON object.
//!
//! Promises: numbers are exact; the table adds what sizes are in larger units.
//! It does not know what is counted.

use std::fmt::Display;

use azekura::Result;
use azekura::error::size;
use serde_json::{Map, Value};

use crate::output::Output;

/// Prints `rows`. Sizes are what ends in `bytes`, `_size` or `_len_max`.
pub(crate) fn print<N: Display, V: Display>(
    out: &mut Output<'_>,
    rows: &[(N, V)],
    json: bool,
) -> Result<()> {
    let rows: Vec<(String, String)> = rows
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect();
    if json {
        let typed = rows.into_iter().map(|(name, value)| {
            let value = typed(&name, value);
            (name, value)
        });
        return out.json(&typed.collect::<Map<String, Value>>());
    }
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in rows {
        let is_size = ["bytes", "_size", "_len_max"]
            .iter()
            .any(|end| name.ends_with(end));
        match value.parse() {
            Ok(bytes) if is_size && bytes >= 1024 => {
                out.line(format_args!("{name:<width$}  {value} ({})", size(bytes)))?;
            }
            _ => out.line(format_args!("{name:<width$}  {value}"))?,
        }
    }
    Ok(())
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
