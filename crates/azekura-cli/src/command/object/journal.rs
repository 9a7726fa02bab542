//! `object journal`: the records of the journal since the last checkpoint, oldest first: a line or a JSON object each.
//! After a clean close there is next to nothing; after a crash, what this open replayed.
//! It shows and decides nothing.

use azekura::Result;
use azekura::object::layout::Record;
use serde_json::{Value, json};

use super::place::Place;
use crate::exit::Outcome;
use crate::output::Output;

const HELP: &str = "\
Example:
  azekura object journal photos.azo

Exit codes: 6 the store is in use; 8 damage was found. `azekura --help` lists all.";

/// Print what the journal states since the last checkpoint
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Journal {
    #[command(flatten)]
    place: Place,
    /// Print a JSON object for each record
    #[arg(long)]
    json: bool,
}

impl Journal {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        self.place.look(|store| {
            let mut printed = Ok(());
            store.journal(&mut |offset, record| {
                printed = if self.json {
                    let mut object = as_json(record);
                    object["offset"] = offset.into();
                    out.json(&object)
                } else {
                    out.line(format_args!("{offset:#010x}  {}", words(record)))
                };
                printed.is_ok()
            })?;
            printed
        })?;
        Ok(Outcome::Yes)
    }
}

/// A record as a line.
fn words(record: &Record) -> String {
    match record {
        Record::Put(id, sequence, entry) => {
            let (len, piece) = (entry.len, entry.place);
            format!("put {id} sequence {sequence} length {len} piece {piece}")
        }
        Record::Small(id, sequence, entry) => {
            format!("small put {id} sequence {sequence} length {}", entry.len)
        }
        Record::Removed(id, sequence) => format!("removed {id} sequence {sequence}"),
        Record::RangeRemoved(sequence, first, last) => {
            format!("removed {first} to {last} sequence {sequence}")
        }
        Record::Batch(records) => {
            let records: Vec<String> = records.iter().map(words).collect();
            format!("at once: {}", records.join(", "))
        }
        Record::Opened(extent) => {
            let units: u64 = extent.spans.iter().map(|span| u64::from(span.units)).sum();
            let (sequence, pieces) = (extent.sequence, extent.spans.len());
            format!(
                "opened an allocation extent of {units} units in {pieces} runs sequence {sequence}"
            )
        }
        Record::LowWater(sequence) => format!("every put before sequence {sequence} has ended"),
        Record::Aborted(sequence) => format!("aborted sequence {sequence}"),
    }
}

/// A record as JSON has it.
fn as_json(record: &Record) -> Value {
    match record {
        Record::Put(id, sequence, entry) => json!({
            "record": "put", "id": id.to_string(), "sequence": sequence, "len": entry.len, "piece": entry.place,
        }),
        Record::Small(id, sequence, entry) => json!({
            "record": "small", "id": id.to_string(), "sequence": sequence, "len": entry.len,
        }),
        Record::Removed(id, sequence) => {
            json!({"record": "removed", "id": id.to_string(), "sequence": sequence})
        }
        Record::RangeRemoved(sequence, first, last) => json!({
            "record": "range_removed", "first": first.to_string(), "last": last.to_string(), "sequence": sequence,
        }),
        Record::Batch(records) => {
            json!({"record": "batch", "records": records.iter().map(as_json).collect::<Vec<_>>()})
        }
        Record::Opened(extent) => {
            let spans = extent.spans.iter();
            let spans: Vec<Value> = spans
                .map(|span| json!({"unit": span.unit, "units": span.units}))
                .collect();
            json!({"record": "opened", "sequence": extent.sequence, "spans": spans})
        }
        Record::LowWater(sequence) => json!({"record": "low_water", "sequence": sequence}),
        Record::Aborted(sequence) => json!({"record": "aborted", "sequence": sequence}),
    }
}
