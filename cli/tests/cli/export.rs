//! The program moves a process from one store to another, and shows what it moves.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

const PROGRAM: &str = r#"
[model]
name = "notes"
provider = "scripted"
script = "script.toml"

[tools]
enabled = ["fork", "create_temp_file", "read_temp_file"]
"#;

/// Makes a note, forks one that reads it, and says what that said.
const SCRIPT: &str = r#"
[[turn]]
when = { prompt = "^go", round = 0 }
calls = [{ tool = "create_temp_file", args = { content = "the word is hunter2\n" } }]
[[turn]]
when = { prompt = "^go", round = 1 }
calls = [{ tool = "fork", args = { prompts = ["read it"] } }]
[[turn]]
text = "It was hunter2."
"#;

fn dormouse(folder: &Path, line: &str) -> Output {
    let words: Vec<_> = line.split_whitespace().collect();
    let mut command = Command::new(env!("CARGO_BIN_EXE_dormouse"));
    command.args(words).current_dir(folder).env_remove("DORMOUSE_LOG").output().expect("the program can be run")
}

/// What it printed, where it ended with this code.
fn printed(folder: &Path, line: &str, code: i32) -> String {
    let output = dormouse(folder, line);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{line}\n{out}\n{err}");
    if code == 0 { out.into_owned() } else { err.into_owned() }
}

fn ran() -> TempDir {
    let folder = tempfile::tempdir().expect("there is a folder for temporary files");
    fs::write(folder.path().join("notes.toml"), PROGRAM).expect("it can be written");
    fs::write(folder.path().join("script.toml"), SCRIPT).expect("it can be written");
    printed(folder.path(), "run notes.toml --input go --store here", 0);
    folder
}

#[test]
fn a_tree_is_exported_shown_and_imported() {
    let folder = ran();
    let told = printed(folder.path(), "export 1 notes.dormouse --store here --tree", 0);
    assert!(told.contains("  2 processes  "), "{told}");
    let id = told.split_whitespace().next().expect("it begins with the export's name");
    let shown = printed(folder.path(), "show notes.dormouse", 0);
    assert!(
        shown.starts_with(&format!("export {id}, whole\nof process 1 and all below it, as it stood at ")),
        "{shown}"
    );
    for line in ["1 notes ", "  2 notes "] {
        assert!(shown.lines().any(|shown| shown.starts_with(line) && shown.contains(" done ")), "{line:?} in {shown}");
    }
    let lines = printed(folder.path(), "show notes.dormouse --log --json", 0);
    assert!(lines.lines().any(|line| line.contains("\"name\":\"tool_returned\"")), "{lines}");
    assert_eq!(printed(folder.path(), "import notes.dormouse --store there", 0), "3  was 1\n4  was 2\n");
    assert_eq!(printed(folder.path(), "import notes.dormouse --store there", 0), "5  was 1\n6  was 2\n");
    let listed = printed(folder.path(), "ps --store there", 0);
    assert_eq!(listed.lines().filter(|line| line.contains(" done ")).count(), 4, "{listed}");
    assert_eq!(printed(folder.path(), "ps --store here", 0).lines().count(), 3, "the first store is as it was");
}

#[test]
fn a_point_of_the_past_goes_on_elsewhere() {
    let folder = ran();
    printed(folder.path(), "export 1@4 early.dormouse --store here --tree", 0);
    assert_eq!(printed(folder.path(), "import early.dormouse --store there", 0), "3  was 1\n");
    let resumed = printed(folder.path(), "resume --store there --json", 0);
    assert!(resumed.contains("hunter2"), "{resumed}");
}

#[test]
fn what_is_redacted_is_nowhere_in_the_file() {
    let folder = ran();
    printed(folder.path(), "export 1 notes.dormouse --store here --tree --redact hunter[0-9] --redact go", 0);
    let file = fs::read(folder.path().join("notes.dormouse")).expect("it is there");
    let shown = String::from_utf8_lossy(&file);
    assert!(!shown.contains("hunter2") && shown.contains("the word is *******"), "{shown}");
    assert!(printed(folder.path(), "show notes.dormouse", 0).contains(", redacted, "));
    assert_eq!(printed(folder.path(), "import notes.dormouse --store there", 0), "3  was 1\n4  was 2\n");
    let wrong = printed(folder.path(), "export 1 notes.dormouse --store here --redact (", 2);
    assert!(wrong.contains("--redact"), "{wrong}");
}

#[test]
fn a_file_that_is_not_whole_is_refused_and_makes_nothing() {
    let folder = ran();
    printed(folder.path(), "export 1 notes.dormouse --store here", 0);
    let file = fs::read(folder.path().join("notes.dormouse")).expect("it is there");
    fs::write(folder.path().join("half.dormouse"), &file[..file.len() / 2]).expect("it can be written");
    for line in ["show half.dormouse", "import half.dormouse --store there"] {
        let refused = printed(folder.path(), line, 2);
        assert!(refused.contains(&format!("was cut off after {} bytes", file.len() / 2)), "{refused}");
    }
    assert!(printed(folder.path(), "import notes.toml --store there", 2).contains("the file is no export"));
    assert!(printed(folder.path(), "import none.dormouse --store there", 2).contains("none.dormouse"));
    assert!(!folder.path().join("there").exists(), "no store is made for nothing");
    assert!(printed(folder.path(), "import half.dormouse --store here", 2).contains("was cut off"));
    assert_eq!(printed(folder.path(), "ps --store here", 0).lines().count(), 3);
    printed(folder.path(), "export 9 nobody.dormouse --store here", 2);
    assert!(!folder.path().join("nobody.dormouse").exists());
    assert!(printed(folder.path(), "export 1 notes.dormouse --store nowhere", 2).contains("is not a store"));
}
