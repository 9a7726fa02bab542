//! `set`: stores records, replacing what was there.
//! Several pairs are one change: all or nothing, also across a crash, unless `--each` is given.
//! `--no-overwrite` stores nothing if one of the keys is present (with `--each`: skips that one).
//! It does not know what the values mean.

use std::ffi::OsString;
use std::path::PathBuf;

use azekura::error::quote;
use azekura::{Edit, Engine, Error, Kind, Result};

use crate::exit::Outcome;
use crate::output::note;
use crate::output::{Output, counted};
use crate::store::{Writing, limits};
use crate::text::Coding;
use crate::whole;

/// Store records, replacing present values
#[derive(clap::Args)]
pub(crate) struct Set {
    /// The file
    file: PathBuf,
    /// Keys and values in turn
    #[arg(required = true, value_name = "KEY VALUE")]
    pairs: Vec<OsString>,
    /// Take the value of the one KEY given from a file, or from standard input (-)
    #[arg(long, value_name = "FILE|-")]
    value_file: Option<PathBuf>,
    /// Store nothing if one of the keys is present; the exit code is then 1
    #[arg(long)]
    no_overwrite: bool,
    /// Store the pairs one by one instead of all or nothing
    #[arg(long)]
    each: bool,
    #[command(flatten)]
    writing: Writing,
    #[command(flatten)]
    coding: Coding,
}

impl Set {
    pub(crate) fn run(&self, _: &mut Output<'_>) -> Result<Outcome> {
        let mut words = self.coding.read_all(&self.pairs)?;
        if self.value_file.is_some() != (words.len() == 1)
            || words.len() % 2 == 1 && words.len() > 1
        {
            let expected = if self.value_file.is_some() {
                "one key, its value being in a file"
            } else {
                "a value after each key"
            };
            return Err(Error::new(Kind::Invalid, "keys and values do not pair up")
                .found(counted(words.len() as u64, "word", "words"), expected));
        }
        let engine = self.writing.open(&self.file)?;
        if let Some(source) = &self.value_file {
            words.push(whole::read(source, limits(&*engine).value)?);
        }
        let (keys, values): (Vec<&[u8]>, Vec<&[u8]>) = words
            .chunks_exact(2)
            .map(|pair| (&pair[0][..], &pair[1][..]))
            .unzip();
        let stored = if self.each {
            let mut all = true;
            for (key, value) in keys.iter().zip(&values) {
                all &= self.store(&*engine, &[key], &[value])?;
            }
            all
        } else {
            self.store(&*engine, &keys, &values)?
        };
        self.writing.finish(&*engine)?;
        Ok(Outcome::of(stored))
    }

    /// Stores all of the pairs or none; whether it stored them.
    fn store(&self, engine: &dyn Engine, keys: &[&[u8]], values: &[&[u8]]) -> Result<bool> {
        let mut present = None;
        engine.update_many(keys, &mut |olds| {
            if self.no_overwrite {
                present = olds.iter().position(Option::is_some);
            }
            match present {
                Some(_) => olds.iter().map(|_| Edit::Keep).collect(),
                None => values.iter().map(|value| Edit::put(value)).collect(),
            }
        })?;
        if let Some(index) = present {
            note!("azekura: present already: {}", quote(keys[index]));
        }
        Ok(present.is_none())
    }
}
