//! `object scrub`: reads and verifies every object within a budget of bytes a second.
//! Prints each damage on a line when it is found; the exit code is 8 where there was one.
//! It looks at values alone: `check` verifies the rest, too.

use azekura::Result;
use azekura::error::size;
use azekura::object::{ObjectId, Scrubbed, Step, StoreReader};

use super::place::Place;
use crate::exit::Outcome;
use crate::output::{Output, counted};
use crate::progress::Progress;
use crate::store::parse_size;

/// A size of something: with nothing a second it would never end.
fn parse_rate(text: &str) -> std::result::Result<u64, String> {
    match parse_size(text)? {
        0 => Err("a rate is more than nothing".into()),
        rate => Ok(rate),
    }
}

/// Read and verify all objects, slowly
#[derive(clap::Args)]
pub(crate) struct Scrub {
    #[command(flatten)]
    place: Place,
    /// Read no more than this each second
    #[arg(long, value_name = "SIZE", value_parser = parse_rate)]
    rate: Option<u64>,
    /// Begin with this id
    #[arg(long, value_name = "ID")]
    first: Option<String>,
}

impl Scrub {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        let first = self.first.as_deref().map_or(Ok(ObjectId(0)), str::parse)?;
        let done = self.place.look(|store| self.scrub(store, first, out))?;
        let objects = counted(done.objects, "object", "objects");
        let (bytes, damaged) = (size(done.bytes), done.damaged);
        out.line(format_args!(
            "{objects} read, {bytes} verified, {damaged} damaged"
        ))?;
        Ok(if done.damaged == 0 {
            Outcome::Yes
        } else {
            Outcome::Damaged
        })
    }

    fn scrub(
        &self,
        store: &StoreReader,
        first: ObjectId,
        out: &mut Output<'_>,
    ) -> Result<Scrubbed> {
        let progress = Progress::new("scrubbing", store.count());
        let mut printed = Ok(());
        let mut count = 0;
        let done = store.scrub(first, self.rate, &mut |step| {
            count += 1;
            progress.set(count);
            if let Step::Damaged(finding) = step {
                printed = out.line_now(format_args!("damage: {}", finding.what));
            }
            printed.is_ok()
        })?;
        printed.map(|()| done)
    }
}
