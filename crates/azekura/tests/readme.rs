//! The program in the README passes.
//!
//! It stands in the folder beside this file, letter by letter, as text: the compiler takes it from there. A
//! change of the one without the other fails.

const README: &str = include_str!("../../../README.md");
const PROGRAM: &str = include_str!("readme/first_steps.txt");

mod program {
    include!("readme/first_steps.txt");

    pub(super) fn run() -> azekura::Result<()> {
        main()
    }
}

#[test]
fn the_program_in_the_readme_passes() {
    let fenced = README
        .split("```rust\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .expect("the README has a program");
    assert_eq!(fenced, PROGRAM);
    // It makes its file where it is run, and this is the only test of this program.
    let folder = tempfile::tempdir().expect("a folder");
    std::env::set_current_dir(folder.path()).expect("a folder to go to");
    program::run().expect("it passes");
    assert!(folder.path().join("fruit.azh").exists());
}
