//! For tests of what a machine may lack. A test that is left out says so on the terminal, and fails where its part is known to be there:
//! `DORMOUSE_MUST_RUN` names these parts, as in `DORMOUSE_MUST_RUN=landlock,root`.

use std::io::Write;

/// Leaves out a test of `part`, which this machine lacks.
#[track_caller]
pub(crate) fn skip(part: &str, why: &str) {
    let must_run = std::env::var("DORMOUSE_MUST_RUN").unwrap_or_default();
    assert!(must_run.split(',').all(|named| named != part), "{part} is there by DORMOUSE_MUST_RUN, and {why}");
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    // Not by a macro, whose words the harness keeps to itself where a test passes.
    let _ = writeln!(std::io::stderr().lock(), "skipped: {test}: {why}");
}
