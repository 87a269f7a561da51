//! An audit that cannot be done says so: in its exit code, in its status, and with the cause.

use std::path::Path;
use std::process::Output;

use crate::support::{Bench, Subject, captured, root, shown};

fn check(bench: &Bench, output: &Output, causes: &[&str]) {
    assert_eq!(output.status.code(), Some(1), "{}", shown(output));
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    for cause in causes.iter().chain(&["process 1 ended as refused"]) {
        assert!(printed.contains(cause), "{cause} is not in {printed}");
    }
    assert_eq!(bench.ps()[0]["status"], "refused");
    assert_eq!(
        bench.resume().status.code(),
        Some(1),
        "what it came to is shown once more"
    );
}

#[test]
fn a_file_that_is_not_there_or_holds_something_else() {
    for (file, cause) in [
        ("absent.json", "absent.json"),
        ("editor.toml", "Composes the report from the findings"),
    ] {
        let bench = Bench::of(Subject::Captured(captured().with_file_name(file)), "exit 1");
        let output = bench.run().wait_with_output().unwrap();
        check(&bench, &output, &["cannot be audited", cause]);
    }
}

#[test]
fn a_cargo_that_fails() {
    let long = "for i in $(seq 100); do echo \"warning: number $i\" >&2; done; echo 'error: no \
         such package' >&2; exit 101";
    for cargo in ["echo 'error: no such package' >&2; exit 101", long] {
        let bench = Bench::of(Subject::Live(root().join("Cargo.toml")), cargo);
        let output = bench.run().wait_with_output().unwrap();
        check(
            &bench,
            &output,
            &["cannot be audited", "error: no such package"],
        );
        assert_eq!(bench.runs(), 1);
    }
}

#[test]
fn a_report_that_may_not_be_written() {
    let bench = Bench::captured();
    let output = bench
        .run_into(Path::new("elsewhere/report.md"))
        .wait_with_output()
        .unwrap();
    check(&bench, &output, &["could not be written", "--allow-write"]);
}
