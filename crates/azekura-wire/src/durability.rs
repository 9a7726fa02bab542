//! The words for what an acknowledged write survives, `process` and `power`, as flags and as fields of JSON.
//!
//! It promises that every program names the library's [`Durability`] by the same words. It adds no level of its own: a
//! store in memory has no durability, which is `None`.

use azekura::Durability;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use serde::{Deserialize as _, Deserializer, Serializer};

const LEVELS: [(Durability, &str); 2] = [
    (
        Durability::Process,
        "The death of any process: the system writes the changes out when it likes",
    ),
    (
        Durability::Power,
        "Loss of power: the changes are on the device",
    ),
];

/// The parser of a flag.
pub fn parser() -> impl TypedValueParser<Value = Durability> {
    let words = LEVELS.map(|(level, help)| PossibleValue::new(level.word()).help(help));
    PossibleValuesParser::new(words)
        .try_map(|text| Durability::from_word(&text).ok_or("no such level"))
}

/// Writes an optional field of JSON, for `#[serde(with = "..")]`.
pub fn serialize<S: Serializer>(field: &Option<Durability>, to: S) -> Result<S::Ok, S::Error> {
    match field {
        Some(level) => to.serialize_str(level.word()),
        None => to.serialize_none(),
    }
}

/// Reads an optional field of JSON, for `#[serde(with = "..")]`.
pub fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Option<Durability>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    text.map(|text| {
        Durability::from_word(&text).ok_or_else(|| serde::de::Error::custom("no such durability"))
    })
    .transpose()
}
