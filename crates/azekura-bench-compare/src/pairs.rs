//! Pairs of runs: azekura and a rival, each in a process and a folder of its own.
//!
//! The order within a pair alternates (`azekura_bench::comparison`). A rival without batches is called record by record. Two
//! sides that read different things end the comparison with `Corrupted`. It prints nothing.

use std::path::Path;

use azekura::error::{Error, Kind, Result};
use azekura_bench::child;
use azekura_bench::comparison::{Pair, in_turn};
use azekura_bench::phase::Phase;
use azekura_bench::plan::Plan;
use azekura_bench::words::word;

use crate::rivals::Rival;

/// Runs one pair; `index` decides the order. Stores are made in `folder` and removed.
pub(crate) fn run(
    rival: Rival,
    against: Rival,
    plan: &Plan,
    folder: &Path,
    index: u64,
) -> Result<Pair> {
    let sides = [rival, against];
    let mut runs = in_turn(index, 2, |side| child(sides[side], plan, folder))?;
    let ours = runs.pop().unwrap_or_default();
    let theirs = runs.pop().unwrap_or_default();
    let pair = Pair { ours, theirs };
    for (ours, theirs) in pair.ours.iter().zip(&pair.theirs) {
        let counted =
            ours.op != "remove" || (rival.row().counts_removals && against.row().counts_removals);
        if ours.digest != theirs.digest || (counted && ours.hits != theirs.hits) {
            let show = |phase: &Phase| format!("{:?} {:?}", phase.hits, phase.digest);
            let (one, other) = (&ours.engine, &theirs.engine);
            let what = format!("{one} and {other} read different things");
            let detail = format!("{}: {} against {}", ours.op, show(ours), show(theirs));
            return Err(Error::new(Kind::Corrupted, what).detail(detail));
        }
    }
    Ok(pair)
}

/// Runs `plan` on `rival` in a process of its own and reads its results.
fn child(rival: Rival, plan: &Plan, folder: &Path) -> Result<Vec<Phase>> {
    let place = tempfile::tempdir_in(folder)
        .map_err(|e| Error::io("cannot make a folder for the store", e).at(folder))?;
    let batch = if rival.row().batches { plan.batch } else { 1 };
    let path = Some(place.path().join("store"));
    let plan = Plan {
        path,
        batch,
        json: true,
        ..plan.clone()
    };
    let words = ["record", "--rival", &word(&rival)];
    child::phases(
        &words,
        plan.flags(),
        &format!("the run of {}", word(&rival)),
    )
}
