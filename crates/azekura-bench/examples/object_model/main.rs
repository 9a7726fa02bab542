//! Prints the published benchmark of `CannyLS` on models of three disks, as tables in Markdown.
//!
//! `cargo run --release -p azekura-bench --example object_model -- 100`: one operation of a hundred
//! on the full geometry, which takes seconds. Updates that overflow the cache of the published disk need 10 or less.
//!
//! With `beside` before the number, the real store of azekura beside `CannyLS` and files, in both classes of durability: on a
//! hundredth of the disk and of the objects, with one operation of so many. All operations are some minutes of one processor.

mod model;

use std::io::Write as _;

use azekura::error::{Error, Kind, Result};
use azekura::io::sim::drive::Parameters;
use azekura_bench::phase::Phase;
use model::{Cannyls, Files, Pattern, Plan, beside, published, run};

/// The part of disk and objects that a real store has.
const PART: u64 = 100;

fn main() -> Result<()> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let is_beside = words.first().is_some_and(|word| word == "beside");
    if is_beside {
        words.remove(0);
    }
    let scale = match words.first() {
        None => 100,
        Some(text) => text
            .parse()
            .map_err(|_| Error::new(Kind::Invalid, "the scale is a number").key(text.as_bytes()))?,
    };
    let disks = [
        ("published", Parameters::published()),
        ("nominal 15k", Parameters::nominal_15k()),
        ("SATA 7200", Parameters::sata_7200()),
    ];
    let mut output = std::io::stdout().lock();
    for (name, disk) in disks {
        let tables = if is_beside {
            let mut tables = String::new();
            for (class, power) in [("less than power", false), ("power", true)] {
                let phases = beside::run_all(&disk, PART, scale, power)?;
                let table = beside::table(&phases);
                tables.extend(["Acknowledged writes survive ", class, ":\n\n", &table, "\n"]);
            }
            tables
        } else {
            published::table(&replay(&disk, scale)?)
        };
        writeln!(output, "Disk: {name}\n\n{tables}").map_err(|e| Error::io("cannot print", e))?;
    }
    Ok(())
}

fn replay(disk: &Parameters, scale: u64) -> Result<Vec<Phase>> {
    let mut phases = Vec::new();
    for size in published::SIZES {
        let mut patterns: [Box<dyn Pattern>; 4] = [
            Box::new(Cannyls::new(disk.clone(), 4096)),
            Box::new(Cannyls::new(disk.clone(), 0)),
            Box::new(Files::new(disk.clone(), false)),
            Box::new(Files::new(disk.clone(), true)),
        ];
        for pattern in &mut patterns {
            run(
                &Plan::published(size, scale),
                pattern.as_mut(),
                &mut |phase| {
                    phases.push(phase);
                    Ok(())
                },
            )?;
        }
    }
    published::sort(&mut phases);
    Ok(phases)
}
