//! The subcommands: one file or folder each, with its arguments, their help, and what it does.
//!
//! Each is a struct of arguments with one method, `run`, which prints to the given output and answers
//! yes, no, or damaged. What can be checked without the file is checked before it is opened.
//! None knows another.

mod append;
mod apply;
mod check;
mod client;
mod compact;
mod completions;
mod copy;
mod count;
mod create;
mod export;
mod get;
mod import;
mod increment;
mod inspect;
mod list;
mod man;
mod merge;
mod object;
mod rebuild;
mod rekey;
mod remove;
mod remove_range;
mod repair;
mod search;
mod serve;
mod set;
mod skip;
mod top;
mod tour;

use azekura::Result;

use crate::exit::Outcome;
use crate::output::Output;

macro_rules! subcommands {
    ($($(#[$attribute:meta])* $variant:ident($arguments:ty),)*; $($of_all:ident($of_all_arguments:ty),)*) => {
        /// One subcommand with its arguments.
        #[derive(clap::Subcommand)]
        pub(crate) enum Subcommand {
            $($(#[$attribute])* $variant($arguments),)*
            $($of_all($of_all_arguments),)*
        }

        impl Subcommand {
            /// Runs the subcommand; `all` is the whole command line, for those that describe it.
            pub(crate) fn run(&self, all: &clap::Command, out: &mut Output<'_>) -> Result<Outcome> {
                match self {
                    $(Self::$variant(arguments) => arguments.run(out),)*
                    $(Self::$of_all(arguments) => arguments.run(all, out),)*
                }
            }
        }
    };
}

subcommands! {
    Serve(Box<serve::Serve>),
    Client(client::Client),
    Top(top::Top),
    Create(create::Create),
    Get(get::Get),
    Set(set::Set),
    Append(append::Append),
    Remove(remove::Remove),
    RemoveRange(remove_range::RemoveRange),
    Rekey(rekey::Rekey),
    Increment(increment::Increment),
    List(list::List),
    Count(count::Count),
    Search(search::Search),
    Inspect(inspect::Inspect),
    Check(check::Check),
    Repair(repair::Repair),
    Rebuild(rebuild::Rebuild),
    Compact(compact::Compact),
    Copy(copy::Copy),
    Apply(apply::Apply),
    Export(export::Export),
    Import(import::Import),
    Merge(merge::Merge),
    Object(object::Object),
    Skip(skip::Skip),
    Tour(tour::Tour),
    #[command(hide = true)]
    TourWriter(tour::Writer),
    ;
    Completions(completions::Completions),
    Man(man::Man),
}
