//! Records as `list` and `search` print them: a line each, which can be read back.
//! Key and value with a tab between them, or keys alone, or JSON objects.
//! It does not know where records come from.

use azekura::Result;

use crate::format::JsonRecord;
use crate::output::Output;
use crate::text::Coding;

/// How records are printed.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct Listing {
    /// Print the keys alone
    #[arg(long, conflicts_with = "json")]
    keys: bool,
    /// Print a JSON object per record
    #[arg(long)]
    json: bool,
    /// How the arguments of the command are read, too.
    #[command(flatten)]
    pub(crate) coding: Coding,
}

impl Listing {
    /// Prints one record.
    pub(crate) fn print(self, out: &mut Output<'_>, key: &[u8], value: &[u8]) -> Result<()> {
        let show = |bytes| self.coding.show(bytes);
        if self.json {
            out.json(&JsonRecord::new(key, Some(value)))
        } else if self.keys {
            out.line(show(key))
        } else {
            out.line(format_args!("{}\t{}", show(key), show(value)))
        }
    }
}
