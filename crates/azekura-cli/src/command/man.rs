//! `man`: prints a manual page, of the whole or of one command (`azekura man object put`), generated from the definitions.
//! `azekura man > azekura.1` makes the file that `man` reads.
//! It does not know the commands.

use azekura::{Error, Kind, Result};

use crate::exit::Outcome;
use crate::output::{self, Output};

/// Print the manual page
#[derive(clap::Args)]
pub(crate) struct Man {
    /// The command it is about, with its own command if it has some; without it, the whole program
    #[arg(value_name = "COMMAND")]
    commands: Vec<String>,
}

impl Man {
    pub(crate) fn run(&self, all: &clap::Command, out: &mut Output<'_>) -> Result<Outcome> {
        let mut all = all.clone();
        // Building hands names and versions down to the subcommands.
        all.build();
        let mut page = &all;
        for (at, name) in self.commands.iter().enumerate() {
            page = page.find_subcommand(name).ok_or_else(|| {
                let path = self.commands[..=at].join(" ");
                Error::new(Kind::Invalid, format!("no command {path:?}"))
                    .remedy("`azekura --help` lists them")
            })?;
        }
        let page = if self.commands.is_empty() {
            // The name of the page stands before this.
            all.about(
                "store records, a byte key and a byte value each, in one file, and large objects",
            )
        } else {
            page.clone()
        };
        clap_mangen::Man::new(page)
            .source(concat!("azekura ", env!("CARGO_PKG_VERSION")))
            .render(&mut out.writer())
            .map_err(output::failed)?;
        Ok(Outcome::Yes)
    }
}
