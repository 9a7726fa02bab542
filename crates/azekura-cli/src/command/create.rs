//! `create`: makes a new, empty file. An existing one is refused, never emptied.
//! Some settings are fixed here for the life of the file; `rebuild` writes it anew with others.
//! It does not know what will be stored.

use std::path::PathBuf;

use azekura::Result;
use azekura::open::names_a_tree;
use azekura::order::Order;
use azekura::record::hash::HashDb;
use azekura::record::tree::{self, TreeDb};
use azekura::{Error, Kind};

use crate::exit::Outcome;
use crate::output::Output;
use crate::store::{Shape, Writing, refuse_existing};

/// Make a new, empty file
#[derive(clap::Args)]
pub(crate) struct Create {
    /// The file to make, by convention NAME.azh, or NAME.azt for a tree
    file: PathBuf,
    /// How records are found: by hash, the fastest, or in the order of their keys [default: tree if the name ends with .azt]
    #[arg(long, value_name = "ENGINE")]
    engine: Option<Engine>,
    /// The order of a tree's keys: lexical, decimal, ... [default: lexical]
    #[arg(long, value_parser = Order::ALL.map(Order::name), value_name = "ORDER")]
    order: Option<String>,
    #[command(flatten)]
    shape: Shape,
    #[command(flatten)]
    writing: Writing,
}

impl Create {
    pub(crate) fn run(&self, _: &mut Output<'_>) -> Result<Outcome> {
        refuse_existing(&self.file)?;
        if self.is_tree() {
            return self.make_tree();
        }
        if self.order.is_some() {
            let error = Error::new(Kind::Invalid, "--order is of a tree file");
            return Err(error.remedy("add --engine tree, or leave it out"));
        }
        let db = HashDb::create(&self.file, &self.shape.over(self.writing.options()))?;
        self.writing.finish(&db)?;
        db.close()?;
        Ok(Outcome::Yes)
    }

    fn is_tree(&self) -> bool {
        let is_named = names_a_tree(&self.file);
        self.engine
            .map_or(is_named, |engine| engine == Engine::Tree)
    }

    fn make_tree(&self) -> Result<Outcome> {
        let order = self.order.as_deref().and_then(Order::from_name);
        let opening = tree::OpenOptions::new().capacity(self.writing.options().opening.capacity);
        let options = tree::CreateOptions::new()
            .order(order.unwrap_or_default())
            .opening(opening);
        let db = TreeDb::create(&self.file, &self.shape.over_tree(options))?;
        self.writing.finish(&db)?;
        db.close()?;
        Ok(Outcome::Yes)
    }
}

/// The engines of a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Engine {
    /// A hash file
    Hash,
    /// A tree file, whose records are in the order of their keys
    Tree,
}
