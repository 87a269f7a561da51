//! `dormouse mcp install` in a home with files of several clients.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::dormouse::{self, Ran, run};

const CURSOR: &str = "{\n  // mine\n  \"mcpServers\": {\n    \"git\": {\n      \"command\": \"uvx\",\n      \"args\": \
                      [\"mcp-server-git\"],\n      \"env\": { \"TOKEN\": \"t\" }\n    },\n    \"far\": { \"url\": \
                      \"https://h/mcp\" }\n  }\n}\n";
const CODEX: &str = "model = \"m\" # mine\n";

/// A home in which Cursor and Codex have files, and opencode has a folder.
fn home() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    for (folder, file, text) in [
        (".cursor", "mcp.json", CURSOR),
        (".codex", "config.toml", CODEX),
        (".config/opencode", "", ""),
    ] {
        let folder = home.path().join(folder);
        fs::create_dir_all(&folder).unwrap();
        if !file.is_empty() {
            fs::write(folder.join(file), text).unwrap();
        }
    }
    home
}

fn install(home: &Path, args: &[&str]) -> Ran {
    let mut command = dormouse::command(home);
    command
        .args(["mcp", "install"])
        .args(args)
        .env("HOME", home)
        .env_remove("XDG_CONFIG_HOME");
    run(&mut command)
}

fn text(home: &Path, file: &str) -> String {
    fs::read_to_string(home.join(file)).unwrap()
}

#[test]
fn an_entry_is_shown_first_and_written_where_that_is_agreed() {
    let home = home();
    let server = ["--name=files", "--", "npx", "server-filesystem", "/a b"];
    for flags in [&["--dry-run"][..], &[]] {
        let shown = install(home.path(), &[flags, &server].concat());
        assert_eq!(shown.code, 0, "{shown:?}");
        assert!(
            shown.out.contains("+    \"files\": {") && shown.out.contains("+[mcp_servers.files]"),
            "{shown:?}"
        );
        assert_eq!(text(home.path(), ".cursor/mcp.json"), CURSOR);
    }
    let written = install(home.path(), &[&["--yes"][..], &server].concat());
    assert_eq!(written.code, 0, "{written:?}");
    let cursor = text(home.path(), ".cursor/mcp.json");
    assert!(cursor.contains("// mine") && cursor.contains("\"TOKEN\": \"t\""));
    let codex = text(home.path(), ".codex/config.toml");
    assert!(
        codex.starts_with(CODEX) && codex.contains("[mcp_servers.files]"),
        "{codex}"
    );
    let opencode = text(home.path(), ".config/opencode/opencode.json");
    let opencode: Value = serde_json::from_str(&opencode).unwrap();
    let command = opencode["mcp"]["files"]["command"].as_array().unwrap();
    assert!(command[0].as_str().unwrap().ends_with("dormouse"));
    assert_eq!(command[1..4], ["mcp", "--descriptor-tools=lean", "--"]);
    assert_eq!(command[4..], ["npx", "server-filesystem", "/a b"]);
    let copies = fs::read_dir(home.path().join(".cursor")).unwrap();
    let copies: Vec<_> = copies
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "bak"))
        .collect();
    assert_eq!(fs::read_to_string(&copies[0]).unwrap(), CURSOR);
    let again = install(home.path(), &[&["--yes"][..], &server].concat());
    assert_eq!(again.out.matches("nothing changes").count(), 3, "{again:?}");
}

#[test]
fn servers_that_are_there_are_wrapped_once_and_keep_their_variables() {
    let home = home();
    for _ in 0..2 {
        let ran = install(home.path(), &["--wrap-all", "--yes", "--client=cursor"]);
        assert_eq!(ran.code, 0, "{ran:?}");
    }
    let cursor = text(home.path(), ".cursor/mcp.json");
    assert!(cursor.contains("// mine"), "{cursor}");
    let cursor: Value = serde_json::from_str(&cursor.replace("// mine", "")).unwrap();
    let git = &cursor["mcpServers"]["git"];
    assert_eq!(git["env"]["TOKEN"], "t");
    assert_eq!(
        git["args"],
        serde_json::json!([
            "mcp",
            "--descriptor-tools=lean",
            "--",
            "uvx",
            "mcp-server-git"
        ])
    );
    assert_eq!(cursor["mcpServers"]["far"]["url"], "https://h/mcp");
    let absent = install(home.path(), &["--wrap=nobody", "--client=cursor"]);
    assert!(
        absent.code == 2 && absent.err.contains("There are: far, git"),
        "{absent:?}"
    );
}

#[test]
fn what_cannot_be_done_says_why_and_leaves_the_files_alone() {
    let home = home();
    fs::write(home.path().join(".cursor/mcp.json"), "{ \"mcpServers\": ").unwrap();
    for (args, expected) in [
        (&["--", "x"][..], "mcp.json: it is not valid"),
        (&[], "name a server after --"),
        (&["--client=emacs", "--", "x"], "known are: claude-desktop"),
        (&["--client=zed", "--", "x"], "zed is not found"),
        (
            &["--client=codex", "--wrap=git"],
            "'git'. None of them has a server",
        ),
    ] {
        let ran = install(home.path(), args);
        assert!(
            ran.code == 2 && ran.err.contains(expected),
            "{args:?}: {ran:?}"
        );
    }
    assert_eq!(text(home.path(), ".codex/config.toml"), CODEX);
    fs::write(home.path().join(".cursor/mcp.json"), CURSOR).unwrap();
    let codex = "[mcp_servers.git]\ncommand = \"git-server\"\n";
    fs::write(home.path().join(".codex/config.toml"), codex).unwrap();
    let ran = install(home.path(), &["--wrap=got"]);
    let expected = "no client has a server 'got'. There are: far, git\n";
    assert!(ran.code == 2 && ran.err == expected, "{ran:?}");
}
