//! Kills: the work runs in a child process that dies by SIGKILL at a random moment.
//!
//! ```text
//!   parent                                     child (the same program, `--child`)
//!   spawn "work"  -------------------------->  open or create, work; the ledger is in shared memory
//!   wait: a while | hardly | until a chore
//!   SIGKILL       -------------------------->  dies between any two instructions
//!   (again, at once: it dies while it opens)
//!   spawn "verify" ------------------------->  open, hold every key against the ledger, check
//! ```
//!
//! A child that ends by itself with an error, or by another signal, or makes no progress, is a violation. What it printed
//! is in `child.txt` next to the store.

use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use azekura::error::{Error, Kind, Result};
use azekura::io::Access;
use serde::{Deserialize, Serialize};

use super::ledger::{Ledger, Population};
use crate::generate::Choice;
use crate::unfinished::{self, Listed};

/// A child that does nothing for so long hangs.
const HANGS_AFTER: Duration = Duration::from_secs(180);
/// How often a child is looked at, at least.
const LOOK: Duration = Duration::from_millis(5);
/// How long the work of a child lasts that is not killed before.
pub(super) const LIFE: Duration = Duration::from_millis(1500);

/// What a child is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Phase {
    Work,
    Verify,
}

/// Which child of which round it is, as its flag has it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) phase: Phase,
    pub(super) seed: u64,
    pub(super) store: u64,
    pub(super) round: u64,
    pub(super) folder: PathBuf,
}

fn spawn(order: &Order) -> Result<(Child, Listed)> {
    let failed = |error| Error::io("cannot run the child", error);
    let messages = File::create(order.folder.join("child.txt")).map_err(failed)?;
    let order_text = serde_json::to_string(order).map_err(|error| failed(error.into()))?;
    // The flags of this process decide what is drawn; what comes last counts.
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command
        .args(std::env::args_os().skip(1))
        .arg(format!("--child={order_text}"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(messages);
    unfinished::spawn(&mut command)
}

/// What a child printed, or how it ended if it printed nothing.
fn ended(order: &Order, status: ExitStatus) -> Error {
    let printed = std::fs::read_to_string(order.folder.join("child.txt")).unwrap_or_default();
    let printed = printed.trim().trim_start_matches("azekura: ");
    let what = match order.phase {
        Phase::Work => "the process at work",
        Phase::Verify => "the process that opens and verifies",
    };
    match status.code() {
        // A flag does not fit what was drawn.
        Some(3) => return Error::new(Kind::Invalid, printed.trim_start_matches("invalid: ")),
        // The device is full, not the store.
        Some(5) => return Error::new(Kind::Full, printed.trim_start_matches("full: ")),
        _ => {}
    }
    let printed = if printed.is_empty() {
        status.to_string()
    } else {
        printed.to_owned()
    };
    Error::new(Kind::Corrupted, format!("{what} found a violation")).detail(printed)
}

fn hangs(order: &Order) -> Error {
    Error::new(Kind::Corrupted, "a process makes no progress").detail(format!(
        "{:?} of round {} did nothing for {} s",
        order.phase,
        order.round,
        HANGS_AFTER.as_secs()
    ))
}

/// Runs a child to its end; `ledger`: where its progress can be seen.
pub(super) fn run(order: &Order, ledger: &Ledger) -> Result<()> {
    let (mut child, _listed) = spawn(order)?;
    match wait(&mut child, ledger, &mut || Some(LOOK))? {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(ended(order, status)),
        None => Err(hangs(order)),
    }
}

/// Waits for the end of a child, until `left` answers that no time is left, or until it hangs (`None`): then it is killed.
fn wait(
    child: &mut Child,
    ledger: &Ledger,
    left: &mut dyn FnMut() -> Option<Duration>,
) -> Result<Option<ExitStatus>> {
    let failed = |error| Error::io("cannot wait for the child", error);
    let (mut seen, mut since) = (ledger.now(), Instant::now());
    loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Ok(Some(status));
        }
        if ledger.now() != seen {
            (seen, since) = (ledger.now(), Instant::now());
        }
        let hangs = since.elapsed() > HANGS_AFTER;
        let Some(left) = left().filter(|_| !hangs) else {
            child.kill().map_err(failed)?;
            let status = child.wait().map_err(failed)?;
            // It may have ended before, by itself.
            let was_killed = status.signal() == Some(9);
            return Ok((!hangs || !was_killed).then_some(status));
        };
        std::thread::sleep(left.min(LOOK));
    }
}

/// Starts a child at work and kills it at a moment that `choice` draws; whether it was killed before it ended. The first
/// of a round mostly lives long enough to work, the `later` ones mostly die while they open.
pub(super) fn kill(
    order: &Order,
    ledger: &Ledger,
    later: bool,
    choice: &mut Choice,
) -> Result<bool> {
    let mut micros = |most: Duration| Duration::from_micros(choice.below(most.as_micros() as u64));
    let (opening, chore, working) = (
        micros(Duration::from_millis(30)),
        micros(Duration::from_millis(4)),
        micros(LIFE),
    );
    let moment = choice.below(8) + if later { 0 } else { 2 * choice.below(2) };
    let works = ledger.works();
    let (mut child, _listed) = spawn(order)?;
    let mut dies = (moment < 3).then(|| Instant::now() + opening);
    let mut began = None;
    let status = wait(&mut child, ledger, &mut || {
        let now = Instant::now();
        if began.is_none() && ledger.works() > works {
            began = Some(now);
        }
        if dies.is_none() {
            // It opens and verifies the store before it works.
            dies = match moment {
                // While a chore is under way, if one comes.
                3..5 if began.is_some() && ledger.chore() > 0 => Some(now + chore),
                3..5 => began
                    .map(|began| began + LIFE)
                    .filter(|patience| *patience < now),
                // Not at all, unless it is slow: then it closes the store.
                9 => began.map(|began| began + LIFE * 4),
                _ => began.map(|began| began + working),
            };
        }
        match dies {
            Some(dies) => dies
                .checked_duration_since(now)
                .filter(|left| !left.is_zero()),
            None => Some(Duration::from_micros(200)),
        }
    })?;
    match status {
        None => Err(hangs(order)),
        Some(status) if status.signal() == Some(9) => Ok(true),
        Some(status) if status.success() => Ok(false),
        Some(status) => Err(ended(order, status)),
    }
}

/// Makes the ledger of a new store, and opens it to look on.
pub(super) fn ledger(folder: &Path, population: Population) -> Result<Ledger> {
    let path = folder.join("ledger");
    Ledger::create(&path, population)?;
    Ledger::open(&path, population, Access::Read)
}
