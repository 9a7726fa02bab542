//! The programs in the README pass, one after the other.
//!
//! They stand in the folder next to this file, letter by letter, as text: the compiler takes them from there. A
//! change of the one without the other fails.

const README: &str = include_str!("../../../README.md");
const PROGRAMS: [&str; 4] = [
    include_str!("readme/first_steps.txt"),
    include_str!("readme/changes.txt"),
    include_str!("readme/in_order.txt"),
    include_str!("readme/moments.txt"),
];

mod first_steps {
    include!("readme/first_steps.txt");

    pub(super) fn run() -> azekura::Result<()> {
        main()
    }
}

mod changes {
    include!("readme/changes.txt");

    pub(super) fn run() -> azekura::Result<()> {
        main()
    }
}

mod in_order {
    include!("readme/in_order.txt");

    pub(super) fn run() -> azekura::Result<()> {
        main()
    }
}

mod moments {
    include!("readme/moments.txt");

    pub(super) fn run() -> azekura::Result<()> {
        main()
    }
}

#[test]
fn the_programs_in_the_readme_pass() {
    let fenced = README.split("```rust\n").skip(1);
    let fenced: Vec<&str> = fenced.filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(fenced, PROGRAMS);
    // They make their file where they are run, and this is the only test of this program.
    let folder = tempfile::tempdir().expect("a folder");
    std::env::set_current_dir(folder.path()).expect("a folder to go to");
    first_steps::run().expect("the first passes");
    changes::run().expect("the second passes");
    in_order::run().expect("the third passes");
    moments::run().expect("the fourth passes");
    assert!(folder.path().join("fruit.azh").exists());
    assert!(folder.path().join("years.azt").exists());
}
