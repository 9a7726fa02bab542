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

impl Object {
    pub(crate) fn run(&self, all: &clap::Command, out: &mut Output<'_>) -> Result<Outcome> {
        self.verb.run(all, out)
    }
}

subcommands! { Verb:
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
    ;
}
