//! Exports, shows and imports processes, and runs what was imported.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::dormouse::{dormouse, refuses, succeeds};

const PROGRAM: &str = r#"
[model]
name = "notes"
provider = "scripted"
script = "script.toml"

[tools]
enabled = ["fork", "create_temp_file", "read_temp_file"]
effects = "run"
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

/// A folder with the program, and the store `here` in which it ran.
fn ran() -> TempDir {
    let folder = tempfile::tempdir().expect("there is a folder for temporary files");
    fs::write(folder.path().join("notes.toml"), PROGRAM).expect("it can be written");
    fs::write(folder.path().join("script.toml"), SCRIPT).expect("it can be written");
    succeeds(folder.path(), "run notes.toml --input go --store here");
    folder
}

#[test]
fn a_tree_is_exported_shown_and_imported() {
    let folder = ran();
    let told = succeeds(folder.path(), "export 1 notes.dormouse --store here --tree");
    assert!(told.contains("  2 processes  "), "{told}");
    let id = told
        .split_whitespace()
        .next()
        .expect("it begins with the export's name");
    let shown = succeeds(folder.path(), "show notes.dormouse");
    assert!(
        shown.starts_with(&format!(
            "export {id}, whole\nof process 1 and all below it, as it stood at "
        )),
        "{shown}"
    );
    for line in ["1 notes ", "  2 notes "] {
        assert!(
            shown
                .lines()
                .any(|shown| shown.starts_with(line) && shown.contains(" done ")),
            "{line:?} in {shown}"
        );
    }
    let lines = succeeds(folder.path(), "show notes.dormouse --log --json");
    assert!(
        lines
            .lines()
            .any(|line| line.contains("\"name\":\"tool_returned\"")),
        "{lines}"
    );
    assert_eq!(
        succeeds(folder.path(), "import notes.dormouse --store there"),
        "3  was 1\n4  was 2\n"
    );
    assert_eq!(
        succeeds(folder.path(), "import notes.dormouse --store there"),
        "5  was 1\n6  was 2\n"
    );
    let listed = succeeds(folder.path(), "ps --store there");
    assert_eq!(
        listed
            .lines()
            .filter(|line| line.contains(" done "))
            .count(),
        4,
        "{listed}"
    );
    assert_eq!(
        succeeds(folder.path(), "ps --store here").lines().count(),
        3,
        "the first store is as it was"
    );
}

#[test]
fn one_process_is_printed_in_the_singular() {
    let folder = ran();
    let printed = succeeds(folder.path(), "export 2 one.dormouse --store here");
    assert!(printed.contains("  1 process  "), "{printed}");
}

#[test]
fn a_point_of_the_past_goes_on_elsewhere() {
    let folder = ran();
    succeeds(
        folder.path(),
        "export 1@4 early.dormouse --store here --tree",
    );
    assert_eq!(
        succeeds(folder.path(), "import early.dormouse --store there"),
        "3  was 1\n"
    );
    let resumed = succeeds(folder.path(), "resume 3 --store there --json");
    assert!(resumed.contains("hunter2"), "{resumed}");
}

/// The word for how each process of a store stands, by its pid.
fn states(folder: &Path, store: &str) -> BTreeMap<u64, String> {
    let lines = dormouse(folder, &format!("ps --store {store} --json")).json_lines();
    let state = |line: &serde_json::Value| {
        Some((line["pid"].as_u64()?, line["status"].as_str()?.to_owned()))
    };
    lines.iter().filter_map(state).collect()
}

#[test]
fn what_was_imported_runs_where_it_is_named_and_nothing_else_runs_with_it() {
    let folder = ran();
    let at = folder.path();
    succeeds(at, "export 1@4 early.dormouse --store here --tree");
    for pid in 3..6 {
        assert_eq!(
            succeeds(at, "import early.dormouse --store there"),
            format!("{pid}  was 1\n")
        );
    }
    let held = || {
        states(at, "there")
            .into_iter()
            .filter(|(_, state)| state == "held")
            .map(|(pid, _)| pid)
    };
    let refused = refuses(at, "resume --store there");
    for pid in 3..6 {
        assert!(
            refused.contains(&format!("process {pid}, notes, imported from export ")),
            "{refused}"
        );
    }
    assert!(
        refused.contains("stays held") && refused.contains("--imported"),
        "{refused}"
    );
    assert_eq!(held().collect::<Vec<_>>(), [3, 4, 5]);
    let resumed = dormouse(at, "resume 4 --store there");
    assert_eq!(resumed.out, "It was hunter2.\n", "{resumed:?}");
    let err = resumed.err;
    assert!(
        err.contains("resumes process 4, notes, imported from export ")
            && !err.contains("process 3"),
        "{err}"
    );
    assert_eq!(held().collect::<Vec<_>>(), [3, 5]);
    let err = dormouse(at, "resume 6 --store there").err;
    assert!(
        err.contains("process 6 is part of the tree of process 4"),
        "{err}"
    );
    assert!(refuses(at, "resume 3 77 --store there").contains("no process 77"));
    succeeds(at, "run notes.toml --input go --store there");
    assert_eq!(held().collect::<Vec<_>>(), [3, 5]);
    assert!(
        refuses(at, "resume --store there").contains("stays held"),
        "what ran here has ended"
    );
    let imported = dormouse(at, "import early.dormouse --store there --resume");
    assert_eq!(imported.out, "It was hunter2.\n", "{imported:?}");
    assert!(imported.err.contains(", which was 1"), "{imported:?}");
    assert_eq!(held().collect::<Vec<_>>(), [3, 5]);
    assert!(refuses(at, "import early.dormouse --store there --allow-run=ls").contains("--resume"));
    assert_eq!(
        succeeds(at, "resume --store there --imported"),
        "It was hunter2.\nIt was hunter2.\n"
    );
    assert_eq!(held().count(), 0);
}

const NEEDY: &str = r#"
[model]
name = "notes"
provider = "scripted"
script = "script.toml"
[prompt]
user = "hello"
[tools]
enabled = ["fd_to_file", "list_dir", "spawn"]
[[tools.command]]
name = "history"
description = "Shows the history."
argv = ["git", "log", "--grep=two words"]
env = ["GIT_DIR"]
[tools.mcp]
files = "all"
[mcp.servers.files]
command = "npx"
args = ["server", "/tmp"]
env = { TOKEN = "${SECRET}", LD_PRELOAD = "./a\u001b b.so" }
cwd = "/"
optional = true
[limits]
command_processes = 9000
[env_info]
commands = ["uname -a"]
env_vars = { region = "REGION" }
[linked_programs]
far = "far model.toml"
"#;

const FAR: &str = r#"
[model]
name = "far"
provider = "openai-chat"
base_url = "https://models.example/v1"
api_key_env = "FAR_KEY"
"#;

#[test]
fn what_a_program_starts_and_reaches_is_listed_and_said_before_it_runs() {
    let folder = ran();
    let at = folder.path();
    fs::write(at.join("needy.toml"), NEEDY).expect("it can be written");
    fs::write(at.join("far model.toml"), FAR).expect("it can be written");
    let errors_of = |line: &str| dormouse(at, line).err;
    let flags = [
        "needy.toml, command history (write): this kernel may not run `git`: the user has to start \
         it with --allow-run=git,",
        "--allow-env=GIT_DIR,",
        "needy.toml, server files: this kernel may not run `npx`: the user has to start it with \
         --allow-run=npx,",
        "--allow-env=SECRET,",
        "needy.toml, tool fd_to_file: no file can be written: the user has to start this kernel \
         with --allow-write=DIR,",
        "--allow-read=DIR,",
        "needy.toml, env_info: this kernel may not run `uname`: the user has to start it with \
         --allow-run=uname,",
        "--allow-env=REGION,",
        "\"far model.toml\", model far: this kernel may not connect to models.example:443: the \
         user has to start it with --allow-net=models.example:443,",
        "--allow-env=FAR_KEY,",
    ];
    let warned = errors_of("run needy.toml --store needy");
    let warnings: Vec<_> = warned
        .lines()
        .filter(|line| line.starts_with("warning: "))
        .collect();
    assert_eq!(warnings.len(), flags.len(), "{warned}");
    for (warning, flag) in warnings.iter().zip(flags) {
        assert!(warning.contains(flag), "{flag} in {warning}");
    }
    assert!(
        warned.find("warning: ") < warned.find("[1] needy starts"),
        "{warned}"
    );
    let allowed = "--allow-run=uname --allow-env=REGION,SECRET,GIT_DIR,FAR_KEY \
         --allow-net=models.example --allow-read=. --allow-write=.";
    let warned = errors_of(&format!("run needy.toml {allowed}"));
    assert!(
        warned.contains("`git`") && warned.contains("`npx`"),
        "{warned}"
    );
    assert_eq!(
        warned
            .lines()
            .filter(|line| line.starts_with("warning: "))
            .count(),
        2,
        "{warned}"
    );
    succeeds(at, "export 1@0 needy.dormouse --store needy --tree");
    let shown = succeeds(at, "show needy.dormouse");
    let lines = [
        "needy.toml command history (write) runs git log \"--grep=two words\"",
        "needy.toml command history (write) reads the variable GIT_DIR",
        "needy.toml command history (write) may use 8000000000 bytes of memory, 9000 processes, \
         files of 16000000000 bytes, 4096 open files",
        "needy.toml server files runs npx server /tmp",
        "needy.toml server files reads the variable SECRET",
        "needy.toml server files sets the variable TOKEN",
        "needy.toml server files sets the variable LD_PRELOAD to \"./a\\u{1b} b.so\"",
        "needy.toml server files runs in the folder /",
        "needy.toml server files may use 8000000000 bytes of memory, 9000 processes, files of \
         16000000000 bytes, 4096 open files",
        "needy.toml tool fd_to_file writes files",
        "needy.toml tool list_dir reads files",
        "needy.toml env_info runs uname -a",
        "needy.toml env_info reads the variable REGION",
        "\"far model.toml\" model far connects to https://models.example/v1",
        "\"far model.toml\" model far reads the variable FAR_KEY",
    ];
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    for line in lines {
        assert!(
            shown.lines().any(|shown| words(shown) == line),
            "{line} in {shown}"
        );
    }
    let shown = dormouse(at, "show needy.dormouse --json").json_lines();
    let requirements = shown[0]["requirements"]
        .as_array()
        .expect("they are listed");
    assert_eq!(requirements.len(), lines.len());
    assert_eq!(requirements[0]["needs"]["runs"][2], "--grep=two words");
    assert_eq!(
        (&requirements[0]["by"], &requirements[0]["access"]),
        (&"command".into(), &"write".into())
    );
    succeeds(at, "import needy.dormouse --store there");
    for line in [
        "resume 2 --store there",
        "import needy.dormouse --store there --resume",
    ] {
        assert!(errors_of(line).contains("--allow-run=git"), "{line}");
    }
}

#[test]
fn what_is_redacted_is_nowhere_in_the_file() {
    let folder = ran();
    succeeds(
        folder.path(),
        "export 1 notes.dormouse --store here --tree --redact hunter[0-9] --redact go",
    );
    let file = fs::read(folder.path().join("notes.dormouse")).expect("it is there");
    let shown = String::from_utf8_lossy(&file);
    assert!(
        !shown.contains("hunter2") && shown.contains("the word is *******"),
        "{shown}"
    );
    assert!(succeeds(folder.path(), "show notes.dormouse").contains(", redacted, "));
    assert_eq!(
        succeeds(folder.path(), "import notes.dormouse --store there"),
        "3  was 1\n4  was 2\n"
    );
    let wrong = refuses(
        folder.path(),
        "export 1 notes.dormouse --store here --redact (",
    );
    assert!(wrong.contains("--redact"), "{wrong}");
}

#[test]
fn an_export_replaces_a_file_only_by_force() {
    let folder = ran();
    let path = folder.path().join("notes.dormouse");
    fs::write(&path, "mine").expect("it can be written");
    let refused = refuses(folder.path(), "export 1 notes.dormouse --store here");
    assert!(
        refused.contains("notes.dormouse exists already") && refused.contains("--force"),
        "{refused}"
    );
    assert_eq!(fs::read(&path).expect("it is there"), b"mine");
    succeeds(
        folder.path(),
        "export 1 notes.dormouse --store here --force",
    );
    assert!(succeeds(folder.path(), "show notes.dormouse").starts_with("export "));
}

#[test]
fn a_file_that_is_not_whole_is_refused_and_makes_nothing() {
    let folder = ran();
    succeeds(folder.path(), "export 1 notes.dormouse --store here");
    let file = fs::read(folder.path().join("notes.dormouse")).expect("it is there");
    fs::write(folder.path().join("half.dormouse"), &file[..file.len() / 2])
        .expect("it can be written");
    for line in ["show half.dormouse", "import half.dormouse --store there"] {
        let refused = refuses(folder.path(), line);
        assert!(
            refused.contains(&format!("was cut off after {} bytes", file.len() / 2)),
            "{refused}"
        );
    }
    assert!(
        refuses(folder.path(), "import notes.toml --store there").contains("the file is no export")
    );
    assert!(refuses(folder.path(), "import none.dormouse --store there").contains("none.dormouse"));
    assert!(
        !folder.path().join("there").exists(),
        "no store is made for nothing"
    );
    assert!(refuses(folder.path(), "import half.dormouse --store here").contains("was cut off"));
    assert_eq!(
        succeeds(folder.path(), "ps --store here").lines().count(),
        3
    );
    refuses(folder.path(), "export 9 nobody.dormouse --store here");
    assert!(!folder.path().join("nobody.dormouse").exists());
    assert!(
        refuses(folder.path(), "export 1 notes.dormouse --store nowhere")
            .contains("is not a store")
    );
}
