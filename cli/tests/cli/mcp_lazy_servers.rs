//! `dormouse mcp` in front of several servers: a server starts when it is called, and one that is
//! slow, broken or different from last time keeps no client from the others.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::mcp::Client;
use crate::mcp_sessions::{STATEFUL_SERVER, piped, tool_names};

const TOOLS_CHANGED: &str = "notifications/tools/list_changed";

/// A folder with the configuration of several servers.
struct Servers {
    folder: tempfile::TempDir,
    entries: BTreeMap<String, Value>,
}

impl Servers {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            entries: BTreeMap::new(),
        }
    }

    /// Adds a server with these tools. It fails while the file `NAME-fails` exists, and counts its
    /// starts in `NAME-starts`.
    fn add(&mut self, name: &str, tools: &str) -> &mut Value {
        let path = |suffix: &str| self.path(&format!("{name}-{suffix}"));
        let entry = json!({
            "command": "python3", "args": [STATEFUL_SERVER],
            "env": {
                "TOOL_NAMES": tools, "STARTS_FILE": path("starts"), "FAIL_FILE": path("fails"),
            },
        });
        self.entries.insert(name.to_owned(), entry);
        self.entries.get_mut(name).unwrap()
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    fn touch(&self, file: &str) {
        std::fs::write(self.path(file), "").unwrap();
    }

    /// A client that calls the servers through the proxy.
    fn client(&self, flags: &[&str]) -> Client {
        let file = json!({ "mcpServers": self.entries }).to_string();
        std::fs::write(self.path("servers.json"), file).unwrap();
        let config = ["--config", "servers.json", "--descriptor-tools=lean"];
        piped(self.folder.path(), &[&config, flags].concat())
    }

    /// How often each server was started, in alphabetical order.
    fn starts(&self) -> Vec<usize> {
        let count = |name: &String| {
            std::fs::read(self.path(&format!("{name}-starts"))).map_or(0, |starts| starts.len())
        };
        self.entries.keys().map(count).collect()
    }
}

/// The tools of the servers.
fn server_tools(client: &mut Client) -> Vec<String> {
    let mut names = tool_names(client);
    names.retain(|name| !name.ends_with("_fd") && !name.ends_with("_fds"));
    names
}

#[test]
fn a_server_whose_tools_are_known_starts_when_one_of_them_is_called() {
    let mut servers = Servers::new();
    servers.add("a", "remember");
    servers.add("b", "recall");
    let expected = ["remember", "recall"];
    let mut client = servers.client(&[]);
    assert_eq!(server_tools(&mut client), expected);
    client.end();
    assert_eq!(servers.starts(), [1, 1], "each is started for its list");

    let mut client = servers.client(&[]);
    assert_eq!(server_tools(&mut client), expected);
    let level = client.ask("logging/setLevel", &json!({"level": "info"}));
    assert_eq!(level["result"], json!({}));
    assert_eq!(servers.starts(), [1, 1], "the lists are known");
    assert_eq!(client.call("recall", json!({})), "[]");
    assert_eq!(client.call("recall", json!({})), "[]");
    assert_eq!(servers.starts(), [1, 2]);
    client.end();
}

#[test]
fn a_server_that_refuses_a_log_level_does_not_keep_it_from_the_others() {
    let mut servers = Servers::new();
    servers.add("a", "recall")["env"]["REFUSES_LEVEL"] = "1".into();
    servers.add("b", "levels");
    let mut client = servers.client(&[]);
    for tool in ["recall", "levels"] {
        assert_eq!(client.call(tool, json!({})), "[]");
    }
    let refused = client.ask("logging/setLevel", &json!({"level": "info"}));
    let why = refused["error"]["message"].as_str().unwrap();
    assert!(why.contains("no such level"), "{refused}");
    assert_eq!(client.call("levels", json!({})), r#"["info"]"#);
    client.end();
}

#[test]
fn a_file_of_known_lists_holds_nothing_of_the_declaration() {
    let mut servers = Servers::new();
    servers.add("a", "remember")["env"]["KEY"] = "s3cret".into();
    servers.client(&[]).end();
    let folder = servers.path("cache/dormouse/lists");
    let files: Vec<_> = std::fs::read_dir(&folder).unwrap().collect();
    assert_eq!(files.len(), 1);
    let file = files.into_iter().next().unwrap().unwrap().path();
    let text = std::fs::read_to_string(file).unwrap();
    let holds = |word: &str| text.contains(word);
    assert!(
        holds("The tool remember.") && !holds("s3cret") && !holds("python3"),
        "{text}"
    );
}

#[test]
fn a_list_that_has_changed_is_told_when_its_server_has_started() {
    let mut servers = Servers::new();
    servers.add("a", "find");
    servers.add("b", "recall");
    servers.client(&[]).end();
    servers.add("b", "recall remember find");

    let mut client = servers.client(&[]);
    assert_eq!(
        server_tools(&mut client),
        ["find", "recall"],
        "as last time"
    );
    assert_eq!(client.call("recall", json!({})), "[]");
    client.wait_for_notification(TOOLS_CHANGED);
    let expected = ["a__find", "recall", "remember", "b__find"];
    assert_eq!(server_tools(&mut client), expected, "a name that two have");
    let kept = client.call("remember", json!({"text": "x"}));
    assert!(kept.starts_with("1 kept"), "{kept}");
    client.end();

    let mut client = servers.client(&[]);
    assert_eq!(server_tools(&mut client), expected);
    assert_eq!(client.call("b__find", json!({})), "[]");
    assert_eq!(server_tools(&mut client), expected);
    assert!(client.notified().is_empty(), "{:?}", client.notified());
    client.end();
}

#[test]
fn a_slow_server_is_left_out_until_it_is_ready() {
    let mut servers = Servers::new();
    servers.add("fast", "recall");
    let ready = servers.path("slow-is-ready");
    servers.add("slow", "remember")["env"]["READY_FILE"] = json!(ready);
    let mut client = servers.client(&["--start-wait=0s"]);
    let names = server_tools(&mut client);
    assert!(!names.contains(&"remember".to_owned()), "{names:?}");
    let unknown = client.ask("tools/call", &json!({"name": "remember", "arguments": {}}));
    let why = unknown["error"]["message"].as_str().unwrap();
    assert!(
        why.contains("The tool server `slow` is not ready") && why.contains("not ready yet"),
        "{why}"
    );
    servers.touch("slow-is-ready");
    while server_tools(&mut client).len() < 2 {
        client.wait_for_notification(TOOLS_CHANGED);
    }
    let kept = client.call("remember", json!({"text": "x"}));
    assert!(kept.starts_with("1 kept"), "{kept}");
    client.end();

    // From now on it is served at once, however long it takes to start.
    std::fs::remove_file(ready).unwrap();
    let mut client = servers.client(&["--start-wait=0s"]);
    assert_eq!(server_tools(&mut client), ["recall", "remember"]);
    client.end();
}

#[test]
fn a_broken_server_keeps_no_client_from_the_others() {
    let mut servers = Servers::new();
    servers.add("broken", "remember");
    servers.add("good", "recall");
    servers.touch("broken-fails");
    let mut client = servers.client(&[]);
    assert_eq!(server_tools(&mut client), ["recall"]);
    assert_eq!(client.call("recall", json!({})), "[]");
    let unknown = client.ask("tools/call", &json!({"name": "remember", "arguments": {}}));
    let why = unknown["error"]["message"].as_str().unwrap();
    assert!(
        why.contains("The tool server `broken` is not ready"),
        "{why}"
    );
    // It is started again and again, so that it is there once it can be.
    std::fs::remove_file(servers.path("broken-fails")).unwrap();
    client.wait_for_notification(TOOLS_CHANGED);
    let kept = client.call("remember", json!({"text": "x"}));
    assert!(kept.starts_with("1 kept"), "{kept}");
    client.end();

    // Its tools are known now: a call says that it fails, and what to do.
    servers.touch("broken-fails");
    let mut client = servers.client(&[]);
    assert_eq!(server_tools(&mut client), ["remember", "recall"]);
    let failed = client.call("remember", json!({"text": "x"}));
    for part in [
        "`broken` cannot be reached",
        "The call was not made",
        "starts the server again",
    ] {
        assert!(failed.contains(part), "{failed}");
    }
    assert_eq!(client.call("recall", json!({})), "[]");
    client.end();
}

#[test]
fn a_server_that_is_required_keeps_the_proxy_from_starting() {
    let mut servers = Servers::new();
    servers.add("broken", "remember")["optional"] = false.into();
    servers.add("good", "recall");
    servers.touch("broken-fails");
    let client = servers.client(&[]);
    let refused = client.handshake["error"]["message"].to_string();
    assert!(
        refused.contains("the tool server `broken` cannot be used"),
        "{refused}"
    );
    assert_eq!(client.end().1, Some(1));
}

#[test]
fn a_client_is_told_of_a_change_of_a_server_that_all_sessions_share() {
    let mut servers = Servers::new();
    servers.add("a", "recall")["shared"] = true.into();
    servers.add("b", "find");
    servers.client(&[]).end();
    servers.add("a", "recall remember")["shared"] = true.into();
    let mut client = servers.client(&[]);
    assert_eq!(client.call("recall", json!({})), "[]");
    client.wait_for_notification(TOOLS_CHANGED);
    assert_eq!(server_tools(&mut client), ["recall", "remember", "find"]);
    client.end();
}

#[test]
fn tools_keep_their_names_unless_two_servers_have_the_same_one() {
    let mut servers = Servers::new();
    servers.add("a", "find send_message");
    servers.add("b", "find read_fd");
    let mut client = servers.client(&[]);
    let expected = [
        "read_fd",
        "search_fd",
        "list_fds",
        "a__find",
        "send_message",
        "b__find",
        "b__read_fd",
    ];
    assert_eq!(tool_names(&mut client), expected);
    assert_eq!(client.call("b__find", json!({"text": "x"})), "[]");
    client.end();
}

#[test]
fn a_server_is_asked_again_for_a_tool_that_its_known_list_lacks() {
    let servers = Servers::new();
    let client = |names: &str, selected: &str| {
        let program = format!(
            "[model]\nprovider = \"scripted\"\n[tools.mcp]\na = {{ tools = {selected}, prefix = \"\" }}\n\
             [mcp.servers.a]\ncommand = \"python3\"\nargs = [\"{STATEFUL_SERVER}\"]\n\
             env = {{ TOOL_NAMES = \"{names}\" }}\n"
        );
        std::fs::write(servers.path("p.toml"), program).unwrap();
        let flags = [
            "p.toml",
            "--allow-run=python3",
            "--allow-unconfined=python3",
        ];
        piped(
            servers.folder.path(),
            &[&flags[..], &["--allow-env=TOOL_NAMES"]].concat(),
        )
    };
    let mut first = client("remember", "\"all\"");
    assert_eq!(server_tools(&mut first), ["remember"]);
    first.end();
    let mut second = client("recall", "[\"recall\"]");
    assert_eq!(server_tools(&mut second), ["recall"]);
    second.end();
}

/// A client of `dormouse mcp` with a store in this folder.
fn with_store(servers: &Servers, folder: &Path) -> Client {
    servers.client(&["--store", folder.to_str().unwrap()])
}

#[test]
fn a_process_that_is_kept_goes_on_while_its_server_is_broken() {
    let mut servers = Servers::new();
    servers.add("a", "large");
    servers.add("b", "recall");
    let store = servers.path("store");
    let mut client = with_store(&servers, &store);
    let large = client.call("large", json!({"text": "x"}));
    assert!(large.contains("fd=\"fd:1\""), "{large}");
    client.end();
    servers.touch("b-fails");
    let mut client = with_store(&servers, &store);
    assert_eq!(server_tools(&mut client), ["large", "recall"]);
    let page = client.call("read_fd", json!({"fd": "fd:1"}));
    assert!(page.contains("x 0\n"), "{page}");
    client.end();
}
