//! `create`: makes a new, empty file. An existing one is refused, never emptied.
//! Some settings are fixed here for the life of the file; `rebuild` writes it anew with others.
//! It does not know what will be stored.

use std::path::PathBuf;

use azekura::open::names_a_tree;
use azekura::order::Order;
use azekura::record::hash::HashDb;
use azekura::record::tree::TreeDb;
use azekura::shard::Sharded;
use azekura::{Db, Result};

use crate::exit::Outcome;
use crate::output::Output;
use crate::store::{Shape, Writing, of_tree_file, refuse_existing};

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
    /// Make so many files as one store, each for a part of the keys by their hash: FILE.shard-000 and so on, next to FILE, which names
    /// them; 1 to 256
    #[arg(long, value_name = "NUMBER")]
    shards: Option<usize>,
    #[command(flatten)]
    shape: Shape,
    #[command(flatten)]
    writing: Writing,
}

impl Create {
    pub(crate) fn run(&self, _: &mut Output<'_>) -> Result<Outcome> {
        refuse_existing(&self.file)?;
        let db = if self.is_tree() {
            self.make_tree()?
        } else {
            self.make_hash()?
        };
        self.writing.finish(db.engine())?;
        db.close()?;
        Ok(Outcome::Yes)
    }

    fn is_tree(&self) -> bool {
        let is_named = names_a_tree(&self.file);
        self.engine
            .map_or(is_named, |engine| engine == Engine::Tree)
    }

    fn make_hash(&self) -> Result<Db> {
        if self.order.is_some() {
            return Err(of_tree_file("--order"));
        }
        let options = self.shape.over(self.writing.options())?;
        match self.shards {
            None => HashDb::create(&self.file, &options).map(Db::from),
            Some(shards) => Sharded::<HashDb>::create(&self.file, shards, &options).map(Db::from),
        }
    }

    fn make_tree(&self) -> Result<Db> {
        let order = self.order.as_deref().and_then(Order::from_name);
        let options = self.writing.options_of_tree();
        let options = options.order(order.unwrap_or_default());
        let options = self.shape.over_tree(options);
        match self.shards {
            None => TreeDb::create(&self.file, &options).map(Db::from),
            Some(shards) => Sharded::<TreeDb>::create(&self.file, shards, &options).map(Db::from),
        }
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
