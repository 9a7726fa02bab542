//! `object remove`: removes objects.
//! Several are one change: after a crash all of them are gone or none. Absent ones are named on standard error and make
//! the answer no; the others are removed all the same.
//! It does not write zeros over them: their room is used again when it is wanted.

use azekura::Result;
use azekura::object::{Change, ObjectId, Store};

use super::place::{self, Place};
use crate::exit::Outcome;
use crate::output::Output;
use crate::store::Lasting;

const HELP: &str = "\
Example:
  azekura object remove photos.azo 2a 2b

Exit codes: 1 one of the objects was not there; 6 the store is in use. `azekura --help` lists all.";

/// Remove objects
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Remove {
    #[command(flatten)]
    place: Place,
    /// The objects
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    #[command(flatten)]
    lasting: Lasting,
}

impl Remove {
    pub(crate) fn run(&self, _: &mut Output<'_>) -> Result<Outcome> {
        let mut ids = place::ids(&self.ids)?;
        ids.sort_unstable();
        ids.dedup();
        let absent = self
            .place
            .with(self.lasting.durability, |store| remove(store, &ids))?;
        place::absent(&absent);
        Ok(Outcome::of(absent.is_empty()))
    }
}

/// Removes those that are there; the others.
fn remove(store: &Store, ids: &[ObjectId]) -> Result<Vec<ObjectId>> {
    let mut absent = Vec::new();
    let mut changes = Vec::new();
    for id in ids {
        match store.head(*id)? {
            Some(_) => changes.push(Change::Remove(*id)),
            None => absent.push(*id),
        }
    }
    if let [change] = &changes[..] {
        store.remove(change.id())?;
    } else if !changes.is_empty() {
        store.apply(&changes)?;
    }
    Ok(absent)
}
