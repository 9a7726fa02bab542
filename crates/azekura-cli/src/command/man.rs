//! `man`: prints a manual page, of the whole or of one command, generated from the definitions.
//! `azekura man > azekura.1` makes the file that `man` reads.
//! It does not know the commands.

use azekura::{Error, Kind, Result};

use crate::args;
use crate::exit::Outcome;
use crate::output::{self, Output};

/// Print the manual page
#[derive(clap::Args)]
pub(crate) struct Man {
    /// The command it is about; without it, the whole program
    command: Option<String>,
}

impl Man {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        let mut all = args::command();
        // Building hands names and versions down to the subcommands.
        all.build();
        let page = match &self.command {
            // The name of the page stands before this.
            None => all.about("store records, a byte key and a byte value each, in one file"),
            Some(name) => all
                .find_subcommand(name)
                .cloned()
                .ok_or_else(|| Error::new(Kind::Invalid, format!("no command {name:?}")))?,
        };
        clap_mangen::Man::new(page)
            .source(concat!("azekura ", env!("CARGO_PKG_VERSION")))
            .render(&mut out.writer())
            .map_err(output::failed)?;
        Ok(Outcome::Yes)
    }
}
