//! Prints the published benchmark of `CannyLS` on models of three disks, as a table in Markdown.
//!
//! `cargo run --release -p azekura-bench --features model --example object_model -- 100`: one operation of a hundred
//! on the full geometry, which takes seconds. Updates that overflow the cache of the published disk need 10 or less.

use std::io::Write as _;

use azekura::error::{Error, Kind, Result};
use azekura::io::sim::drive::Parameters;
use azekura_bench::object_model::{Cannyls, Files, Pattern, Plan, published, run};

fn main() -> Result<()> {
    let scale = match std::env::args().nth(1) {
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
        phases.sort_by_key(|phase| {
            ["put new", "put update", "get", "delete"]
                .iter()
                .position(|op| *op == phase.op)
        });
        writeln!(output, "Disk: {name}\n\n{}", published::table(&phases))
            .map_err(|e| Error::io("cannot print", e))?;
    }
    Ok(())
}
