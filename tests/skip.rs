//! Skipping tests that need something the machine may lack. A skipped test says so on the terminal,
//! and fails if `DORMOUSE_MUST_RUN` names what it needs, as in `DORMOUSE_MUST_RUN=landlock,root`.

use std::io::Write;

/// Skips a test that needs `part`, which this machine lacks.
#[track_caller]
pub(crate) fn skip(part: &str, why: &str) {
    let must_run = std::env::var("DORMOUSE_MUST_RUN").unwrap_or_default();
    assert!(
        must_run.split(',').all(|named| named != part),
        "{part} is there by DORMOUSE_MUST_RUN, and {why}"
    );
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    // The harness captures what macros print in a test that passes, but not this.
    let _ = writeln!(std::io::stderr().lock(), "skipped: {test}: {why}");
}
