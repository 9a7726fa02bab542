//! The target that must fail: it holds a bug that only a harness which works can find.
//!
//! An input that begins with the four bytes of `kura` panics. Random bytes do so once in four
//! thousand million; a fuzzer that sees coverage finds it in a second, so a canary that lives states
//! that the harness is blind. It touches no code of the library.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes.iter();
    let sung = b"kura".iter().all(|letter| rest.next() == Some(letter));
    assert!(!sung, "the canary was caught");
});
