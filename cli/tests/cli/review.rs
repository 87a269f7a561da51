//! The swarm that reviews a change: every figure of its review is counted here a second time.

use std::path::Path;
use std::process::Command;

use dormouse_tests::book::{page, root};

fn review(root: &Path, change: &Path, folder: &Path) -> String {
    let report = folder.join("review.md");
    let output = Command::new(env!("CARGO_BIN_EXE_dormouse"))
        .current_dir(root)
        .env_remove("DORMOUSE_LOG")
        .args(["run", "examples/review/reviewer.toml", "--input"])
        .arg(format!(
            "Review {} and write the review to {}",
            change.display(),
            report.display()
        ))
        .arg(format!(
            "--allow-read={}",
            change.parent().unwrap().display()
        ))
        .arg(format!("--allow-write={}", folder.display()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    std::fs::read_to_string(report).unwrap()
}

/// What a review says of a change, counted line by line.
fn check(change: &str, review: &str) {
    let count =
        |is_counted: &dyn Fn(&str) -> bool| change.lines().filter(|line| is_counted(line)).count();
    let files = count(&|line| line.starts_with("diff --git "));
    let lines = change.lines().count();
    let head = format!("The change touches {files} files in {lines} lines of diff.");
    assert!(review.contains(&head), "{head}\n{review}");
    for word in [".unwrap()", ".expect(", "panic!(", "todo!("] {
        let [added, removed] =
            ["+ ", "- "].map(|sign| count(&|line| line.starts_with(sign) && line.contains(word)));
        let row = format!("| `{word}` | {added} | {removed} |");
        let is_there = added + removed > 0;
        assert_eq!(review.contains(&row), is_there, "{row}\n{review}");
    }
    let [added, removed] =
        ["+#[test]", "-#[test]"].map(|attribute| count(&|line| line == attribute));
    let tests = format!("{added} tests are added and {removed} removed.");
    assert!(review.contains(&tests), "{tests}\n{review}");
    for line in change
        .lines()
        .filter(|line| line.starts_with("+pub struct "))
    {
        let name = line["+pub struct ".len()..]
            .split(|c: char| !c.is_alphanumeric())
            .next();
        let row = format!("| `{}` | struct |", name.unwrap());
        assert!(review.contains(&row), "{row}\n{review}");
    }
}

#[test]
fn a_review_says_what_is_in_the_change() {
    let folder = tempfile::tempdir().unwrap();
    let change = root().join("examples/review/change.diff");
    let review = review(&root(), &change, folder.path());
    check(&page("examples/review/change.diff"), &review);
}

/// Another change than the one that the script was written with.
#[test]
fn so_does_that_of_another_change() {
    let folder = tempfile::tempdir().unwrap();
    let mut other = "diff --git a/src/a.rs b/src/a.rs\n--- a/src/a.rs\n+++ b/src/a.rs\n".to_owned();
    for number in 0..40 {
        other += &format!("+pub struct Item{number} {{\n+    x: u32,\n+}}\n");
        other += &format!("+#[test]\n+fn it_works_{number}() {{\n+    a().unwrap();\n+}}\n");
        other += &format!("-    todo!()\n-#[test]\n-fn it_worked_{number}() {{\n");
    }
    let change = folder.path().join("other.diff");
    std::fs::write(&change, &other).unwrap();
    check(&other, &review(&root(), &change, folder.path()));
}
