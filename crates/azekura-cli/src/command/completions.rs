//! `completions`: prints the completion script of a shell, generated from the definitions.
//! Put it where the shell looks for such scripts; docs/cli.md shows where that is.
//! It does not know the commands.

use azekura::Result;
use clap_complete::Shell;

use crate::exit::Outcome;
use crate::output::Output;

/// Print the completion script of a shell
#[derive(clap::Args)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_parser = ["bash", "zsh", "fish"])]
    shell: String,
}

impl Completions {
    pub(crate) fn run(&self, all: &clap::Command, out: &mut Output<'_>) -> Result<Outcome> {
        let shell = match self.shell.as_str() {
            "bash" => Shell::Bash,
            "zsh" => Shell::Zsh,
            _ => Shell::Fish,
        };
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut all.clone(), "azekura", &mut script);
        out.bytes(&script)?;
        Ok(Outcome::Yes)
    }
}
