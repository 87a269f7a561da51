//! What a client gets of a tool server through `dormouse mcp` is what it gets directly, feature by
//! feature. `.ci/mcp-features` does the same with servers of other makers. Configurations are read
//! as editors write them.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::dormouse;
use crate::mcp::initialize_params;

/// The folder of the servers and clients that speak the protocol, in Python.
const PEERS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../adapters/mcp-server/tests/peers/"
);

#[test]
fn every_feature_of_a_server_is_the_same_directly_and_through_the_proxy() {
    let peer = |name: &str| format!("{PEERS}{name}");
    let compared = Command::new("python3")
        .arg(peer("features.py"))
        .args(["--json", "--dormouse", env!("CARGO_BIN_EXE_dormouse")])
        .args(["--calls", &peer("calls/every-feature.json")])
        .args(["--", "python3", &peer("protocol_server.py")])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&compared.stderr);
    let verdicts: BTreeMap<String, String> = serde_json::from_slice(&compared.stdout)
        .unwrap_or_else(|error| panic!("{error}: {errors}"));
    let different: Vec<_> = verdicts
        .iter()
        .filter(|(_, verdict)| *verdict != "same")
        .collect();
    assert!(
        different.is_empty() && verdicts.len() > 25,
        "{different:#?}\n{errors}"
    );
}

/// The answers of `dormouse mcp` with these arguments to requests, and what it writes to standard
/// error.
fn answers(folder: &Path, args: &[&str], requests: &[(&str, Value)]) -> (Vec<Value>, String) {
    let mut child = dormouse::command(folder)
        .arg("mcp")
        .args(args)
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .env("OWN_KEY", "of the flag")
        .env("INPUT_API_KEY", "of the input")
        .env("ARGUMENT", "an argument")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut messages = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let handshake = [("initialize", initialize_params())];
    let mut received = Vec::new();
    for (id, (method, params)) in handshake.iter().chain(requests).enumerate() {
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        // A proxy that has ended takes nothing.
        let _ = writeln!(input, "{request}");
        received
            .extend(messages.find(|message| message["id"] == id && message["method"].is_null()));
    }
    drop(input);
    let errors = child.wait_with_output().unwrap().stderr;
    (
        received.split_off(received.len().min(1)),
        String::from_utf8(errors).unwrap(),
    )
}

fn call(tool: &str, arguments: Value) -> (&'static str, Value) {
    ("tools/call", json!({"name": tool, "arguments": arguments}))
}

fn protocol_server() -> String {
    format!("{PEERS}protocol_server.py")
}

#[test]
fn a_large_result_with_a_schema_is_a_descriptor_that_the_schema_admits() {
    let folder = tempfile::tempdir().unwrap();
    let server = protocol_server();
    let (received, errors) = answers(
        folder.path(),
        &["--", "python3", &server],
        &[
            ("tools/list", json!({})),
            call("tree", json!({})),
            call("large_tree", json!({})),
            call("impolite", json!({})),
        ],
    );
    let [listed, small, large, impolite] = &received[..] else {
        panic!("{received:?} {errors}")
    };
    let tools = listed["result"]["tools"].as_array().unwrap();
    let tree = tools.iter().find(|tool| tool["name"] == "tree").unwrap();
    let either = &tree["outputSchema"]["anyOf"];
    assert_eq!(either[0]["required"], json!(["tree"]));
    assert_eq!(either[1]["required"], json!(["dormouse_text"]));
    let small = &small["result"];
    assert_eq!(small["structuredContent"]["tree"]["name"], "root");
    let large = &large["result"];
    let text = large["content"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("<fd_result fd=\"fd:1\""), "{text}");
    assert_eq!(large["structuredContent"], json!({"dormouse_text": text}));
    assert_eq!(large["_meta"], json!({"x/nodes": 2_000}));
    let impolite = &impolite["result"];
    let text = impolite["content"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("<fd_text "), "{text}");
    assert!(impolite.get("structuredContent").is_none(), "{impolite}");
}

#[test]
fn prompts_of_one_name_are_told_apart_by_their_servers() {
    let folder = tempfile::tempdir().unwrap();
    let entry = json!({"command": "python3", "args": [protocol_server()]});
    let servers = json!({"mcpServers": {"a": entry, "b": entry}});
    std::fs::write(folder.path().join("servers.json"), servers.to_string()).unwrap();
    let prompt = json!({"name": "b__review", "arguments": {"language": "rust"}});
    let (received, errors) = answers(
        folder.path(),
        &["--config", "servers.json"],
        &[("prompts/list", json!({})), ("prompts/get", prompt)],
    );
    let [listed, filled] = &received[..] else {
        panic!("{received:?} {errors}")
    };
    let prompts = listed["result"]["prompts"].as_array().unwrap();
    let names: Vec<_> = prompts.iter().map(|prompt| &prompt["name"]).collect();
    assert_eq!(names, ["a__review", "b__review"]);
    let message = &filled["result"]["messages"][0];
    assert_eq!(message["content"]["text"], "Review this rust.");
}

#[test]
fn a_configuration_of_an_editor_is_read_with_its_inputs_and_files() {
    let folder = tempfile::tempdir().unwrap();
    let server = protocol_server();
    let servers = json!({"mcpServers": {
        "old": {"type": "sse", "url": "https://old.example/sse"},
        "good": {
            "command": "python3", "args": [server, "${env:ARGUMENT}"],
            "env": {"KEY": "${input:api-key}", "BOTH": "of the entry"},
            "envFile": "${workspaceFolder}/.env",
        },
    }});
    std::fs::write(folder.path().join("servers.json"), servers.to_string()).unwrap();
    std::fs::write(
        folder.path().join(".env"),
        "FILE=of the file\nBOTH=hidden\n",
    )
    .unwrap();
    let environment = |flags: &[&str]| {
        let args = [&["--config", "servers.json"], flags].concat();
        let names = json!({"names": ["KEY", "FILE", "BOTH"]});
        answers(folder.path(), &args, &[call("environment", names)])
    };
    for (flags, key) in [
        (&[][..], "of the input"),
        (&["--input=api-key=OWN_KEY", "--deadline=5m"], "of the flag"),
    ] {
        let (received, errors) = environment(flags);
        let text = received
            .first()
            .and_then(|answer| answer["result"]["content"][0]["text"].as_str())
            .unwrap_or_else(|| panic!("{received:?} {errors}"));
        let expected = json!([["an argument"], [key, "of the file", "of the entry"]]);
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), expected);
        assert!(
            errors.contains("the server `old` is left out")
                && errors.contains("\"type\": \"http\""),
            "{errors}"
        );
    }
    // The tools are known from the last start, so that only the call needs the variable.
    let (received, errors) = environment(&["--input=api-key=NOT_SET"]);
    let refused = received[0].to_string();
    assert!(refused.contains("NOT_SET is not set"), "{refused} {errors}");
}
