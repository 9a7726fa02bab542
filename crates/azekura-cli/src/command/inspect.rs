//! `inspect`: prints what a file is and holds, without changing it.
//! Sizes are in bytes with `--json` and with units in the table.
//! It does not verify: `check` does.

use std::path::PathBuf;

use azekura::error::size;
use azekura::{Durability, Result};

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
        let store = azekura::open::open_read_only(&self.file)?;
        let (stats, promise) = (store.stats(), store.promise());
        let durability = promise
            .durability
            .map_or("none", |durability| match durability {
                Durability::Process => "process",
                Durability::Power => "power",
            });
        let sizes = [
            ("live_bytes", stats.live_bytes),
            ("file_bytes", stats.file_bytes),
            ("memory_bytes", stats.memory_bytes),
            ("key_len_max", promise.key_len_max),
            ("value_len_max", promise.value_len_max),
        ];
        if self.json {
            let mut object = serde_json::Map::new();
            object.insert("path".into(), self.file.to_string_lossy().into());
            object.insert("engine".into(), promise.engine.into());
            object.insert("count".into(), stats.count.into());
            object.extend(sizes.map(|(name, value)| (name.into(), value.into())));
            object.insert("durability".into(), durability.into());
            let atomic = promise.update_many_is_crash_atomic;
            object.insert("update_many_is_crash_atomic".into(), atomic.into());
            object.extend(
                stats
                    .more
                    .into_iter()
                    .map(|(name, value)| (name.into(), value.into())),
            );
            out.json(&object)?;
            return Ok(Outcome::Yes);
        }
        let mut rows = vec![
            ("path", self.file.display().to_string()),
            ("engine", promise.engine.to_string()),
            ("count", stats.count.to_string()),
        ];
        rows.extend(sizes.map(|(name, value)| (name, size(value))));
        rows.push(("durability", durability.to_string()));
        rows.extend(stats.more);
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, value) in rows {
            out.line(format_args!("{name:<width$}  {value}"))?;
        }
        Ok(Outcome::Yes)
    }
}
