//! Answers in lines: of a command that succeeded, and of one that failed in the engine.
//!
//! What a client may learn of an engine's error is decided by the executor. Where a client wants no answer, an error is
//! kept from it too, as memcached does. It knows no command.

use super::executor::Executor;

/// Appends a line and its end.
pub(crate) fn push_line(output: &mut Vec<u8>, line: &str) {
    output.extend_from_slice(line.as_bytes());
    output.extend_from_slice(b"\r\n");
}

/// Appends what came of a command: a line, or the engine's error.
pub(crate) fn push_outcome(
    executor: &mut Executor,
    outcome: azekura::Result<&str>,
    output: &mut Vec<u8>,
) {
    match outcome {
        Ok(line) => push_line(output, line),
        Err(error) => push_line(output, &executor.error_line(&error)),
    }
}

/// As `push_outcome`, unless the client wants no answer.
pub(crate) fn answer(
    executor: &mut Executor,
    outcome: azekura::Result<&str>,
    noreply: bool,
    output: &mut Vec<u8>,
) {
    if !noreply {
        push_outcome(executor, outcome, output);
    }
}
