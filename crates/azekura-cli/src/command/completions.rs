//! `completions`: prints the completion script of a shell, generated from the definitions.
//! Put it where the shell looks for such scripts; docs/cli.md shows where that is.
//! It does not know the commands.

use azekura::Result;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap_complete::Shell;

use crate::exit::Outcome;
use crate::output::Output;

/// Print the completion script of a shell
#[derive(clap::Args)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_parser = PossibleValuesParser::new(["bash", "zsh", "fish"]).try_map(|shell| shell.parse::<Shell>()))]
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(&self, all: &clap::Command, out: &mut Output<'_>) -> Result<Outcome> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut all.clone(), "azekura", &mut script);
        out.bytes(&script)?;
        Ok(Outcome::Yes)
    }
}
