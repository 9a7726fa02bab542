//! `object`: what can be done with an object store, one file per subcommand.
//!
//! Each opens the store, does one thing and closes it, so that what was changed is on the device and the next open replays
//! nothing. Ids are hexadecimal digits; lists go in the order of ids.
//!
//! It promises that what can be refused without the store is refused before it is opened. None of the subcommands knows
//! another, nor how objects are stored.

mod create;
mod get;
mod head;
mod list;
mod place;
mod put;
mod remove;
mod remove_range;
mod usage;

use azekura::Result;

use crate::exit::Outcome;
use crate::output::Output;

/// Store large values under 128-bit ids, in a file or on block devices
#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Object {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    Create(create::Create),
    Put(put::Put),
    Get(get::Get),
    Head(head::Head),
    Remove(remove::Remove),
    RemoveRange(remove_range::RemoveRange),
    List(list::List),
    Usage(usage::Usage),
}

impl Object {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        match &self.verb {
            Verb::Create(create) => create.run(out),
            Verb::Put(put) => put.run(out),
            Verb::Get(get) => get.run(out),
            Verb::Head(head) => head.run(out),
            Verb::Remove(remove) => remove.run(out),
            Verb::RemoveRange(range) => range.run(out),
            Verb::List(list) => list.run(out),
            Verb::Usage(usage) => usage.run(out),
        }
    }
}
