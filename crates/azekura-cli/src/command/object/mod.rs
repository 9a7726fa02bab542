//! `object`: what can be done with an object store, one file per subcommand.
//!
//! Each opens the store, does one thing and closes it, so that what was changed is on the device and the next open replays
//! nothing. Ids are hexadecimal digits; lists go in the order of ids.
//!
//! `repair` opens none: it makes one that opens.
//!
//! It promises that what can be refused without the store is refused before it is opened. None of the subcommands knows
//! another, nor how objects are stored.

mod check;
mod copy;
mod create;
mod finding;
mod get;
mod grow;
mod head;
mod journal;
mod list;
mod place;
mod put;
mod remove;
mod remove_range;
mod repair;
mod scrub;
mod stats;
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
    Stats(stats::Stats),
    Journal(journal::Journal),
    Check(check::Check),
    Scrub(scrub::Scrub),
    Repair(repair::Repair),
    Grow(grow::Grow),
    Copy(copy::Copy),
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
            Verb::Stats(stats) => stats.run(out),
            Verb::Journal(journal) => journal.run(out),
            Verb::Check(check) => check.run(out),
            Verb::Scrub(scrub) => scrub.run(out),
            Verb::Repair(repair) => repair.run(out),
            Verb::Grow(grow) => grow.run(out),
            Verb::Copy(copy) => copy.run(out),
        }
    }
}
