//! The sessions of `dormouse mcp`: what a server remembers of one is seen by no other one.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::dormouse;
use crate::mcp::{Client, address_of, initialize_params, terminate};

/// A tool server that remembers what it is told.
pub(crate) const STATEFUL_SERVER: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/stateful_server.py");

/// `dormouse mcp` over its standard streams, with these arguments.
pub(crate) fn piped(folder: &Path, args: &[&str]) -> Client {
    let mut command = dormouse::command(folder);
    command
        .arg("mcp")
        .args(args)
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .env("XDG_STATE_HOME", folder.join("state"));
    Client::of(&mut command)
}

pub(crate) fn tool_names(client: &mut Client) -> Vec<String> {
    let listed = client.ask("tools/list", &json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap().iter();
    tools
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

/// `dormouse mcp` over HTTP, in front of the stateful server.
struct Proxy {
    child: Child,
    address: String,
}

impl Proxy {
    fn begin(folder: &Path, flags: &[&str]) -> Self {
        Self::of(folder, flags, &["python3"])
    }

    /// A proxy whose server is started by this command.
    fn of(folder: &Path, flags: &[&str], python: &[&str]) -> Self {
        let mut child = dormouse::command(folder)
            .args(["mcp", "--http", "--no-token"])
            .args(flags)
            .arg("--")
            .args(python)
            .arg(STATEFUL_SERVER)
            .env("XDG_CACHE_HOME", folder.join("cache"))
            .env("STARTS_FILE", folder.join("starts"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut url)
            .unwrap();
        let address = address_of(&url).to_owned();
        Self { child, address }
    }

    /// Sends a message with these headers, and returns the head and the body of the response.
    fn post(&self, headers: &str, message: &Value) -> (String, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let body = message.to_string();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\n{headers}Content-Length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        write!(stream, "{head}{body}").unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    fn session(&self) -> Session<'_> {
        let params = initialize_params();
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
        let (head, _) = self.post("", &request);
        let id = head
            .lines()
            .find_map(|line| line.strip_prefix("mcp-session-id: "));
        let headers = format!("Mcp-Session-Id: {}\r\n", id.unwrap());
        let notification = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        self.post(&headers, &notification);
        Session {
            proxy: self,
            headers,
        }
    }

    /// A client of the version of the protocol that has no sessions over HTTP.
    fn without_session(&self, tool: &str) -> Session<'_> {
        let headers = format!(
            "Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: {tool}\r\n"
        );
        Session {
            proxy: self,
            headers,
        }
    }

    /// The tools that are listed for a client without a session.
    fn tools_without_session(&self) -> Vec<String> {
        let headers = "Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/list\r\n".to_owned();
        let client = Session {
            proxy: self,
            headers,
        };
        let mut names = client.tools();
        names.retain(|name| !name.contains("_fd"));
        names
    }
}

struct Session<'a> {
    proxy: &'a Proxy,
    headers: String,
}

impl Session<'_> {
    fn call(&self, tool: &str, text: &str) -> String {
        let params = json!({"name": tool, "arguments": {"text": text}});
        let result = self.result("tools/call", params);
        let text = result["content"][0]["text"].as_str();
        text.unwrap_or_else(|| panic!("{result}")).to_owned()
    }

    fn tools(&self) -> Vec<String> {
        let result = self.result("tools/list", json!({}));
        let tools = result["tools"].as_array().unwrap().iter();
        tools
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect()
    }

    fn result(&self, method: &str, mut params: Value) -> Value {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        if self.headers.contains("2026-07-28") {
            params["_meta"] = meta;
        }
        let request = json!({"jsonrpc": "2.0", "id": 2, "method": method, "params": params});
        let (_, body) = self.proxy.post(&self.headers, &request);
        let line = body
            .lines()
            .map(|line| line.strip_prefix("data: ").unwrap_or(line))
            .find(|line| line.contains("\"result\""));
        let mut answer: Value =
            serde_json::from_str(line.unwrap_or_else(|| panic!("{body}"))).unwrap();
        answer["result"].take()
    }
}

#[test]
fn what_a_server_remembers_of_a_session_is_seen_by_no_other_of_twenty() {
    let folder = tempfile::tempdir().unwrap();
    let mut proxy = Proxy::begin(folder.path(), &[]);
    let sessions: Vec<_> = (0..20).map(|_| proxy.session()).collect();
    let secret = |number: usize| format!("secret of {number}");
    std::thread::scope(|scope| {
        for (number, session) in sessions.iter().enumerate() {
            scope.spawn(move || session.call("remember", &secret(number)));
        }
    });
    for (number, session) in sessions.iter().enumerate() {
        assert_eq!(
            session.call("recall", ""),
            json!([secret(number)]).to_string()
        );
    }
    assert_eq!(proxy.session().call("recall", ""), "[]");
    terminate(&mut proxy.child);
}

#[test]
fn nothing_is_remembered_between_calls_outside_of_sessions() {
    let folder = tempfile::tempdir().unwrap();
    let mut proxy = Proxy::begin(folder.path(), &[]);
    let kept = proxy.without_session("remember").call("remember", "secret");
    assert!(kept.starts_with("1 kept"), "{kept}");
    assert_eq!(proxy.without_session("recall").call("recall", ""), "[]");
    terminate(&mut proxy.child);
}

#[test]
fn a_client_without_a_session_is_listed_what_the_server_last_had() {
    let folder = tempfile::tempdir().unwrap();
    let names = folder.path().join("names");
    std::fs::write(&names, "recall").unwrap();
    let variable = format!("TOOL_NAMES_FILE={}", names.display());
    let begin = || Proxy::of(folder.path(), &[], &["env", &variable, "python3"]);
    let mut first = begin();
    assert_eq!(first.tools_without_session(), ["recall"]);
    terminate(&mut first.child);
    std::fs::write(&names, "recall remember").unwrap();
    let mut proxy = begin();
    assert_eq!(proxy.tools_without_session(), ["recall"]);
    // A call starts the server. Its lists are kept before the server of the call ends, which is
    // after the answer.
    assert_eq!(proxy.without_session("recall").call("recall", ""), "[]");
    let is_listed = (0..1_000).any(|_| proxy.tools_without_session() == ["recall", "remember"]);
    assert!(is_listed);
    terminate(&mut proxy.child);
}

#[test]
fn a_server_that_is_shared_is_started_once_for_all_sessions() {
    let folder = tempfile::tempdir().unwrap();
    let mut proxy = Proxy::begin(folder.path(), &["--share-servers"]);
    for number in 1..=3 {
        let kept = proxy.session().call("remember", "a");
        assert!(kept.starts_with(&format!("{number} kept")), "{kept}");
    }
    let starts = std::fs::read_to_string(folder.path().join("starts")).unwrap();
    assert_eq!(starts, "s");
    terminate(&mut proxy.child);
}

#[test]
fn an_output_is_read_by_its_name_when_the_program_is_started_for_each_call() {
    let folder = tempfile::tempdir().unwrap();
    let server = ["--", "python3", STATEFUL_SERVER];
    let mut first = piped(folder.path(), &server);
    let answer = first.ask(
        "tools/call",
        &json!({"name": "large", "arguments": {"text": "a line"}}),
    );
    let notice = answer["result"]["content"][1]["text"].as_str().unwrap();
    let name = notice
        .split([' ', ','])
        .find(|word| word.starts_with("kept-"));
    let read = json!({"fd": name.unwrap(), "start_line": 4321, "end_line": 4321});
    assert_eq!(first.end(), (String::new(), Some(0)));
    let temporary = folder.path().join("cache/dormouse/temporary");
    assert_eq!(std::fs::read_dir(temporary).unwrap().count(), 0);

    let page = piped(folder.path(), &server).call("read_fd", read.clone());
    assert!(page.contains("a line 4320\n"), "{page}");
    let short = ["--keep-outputs=0s", "--", "python3", STATEFUL_SERVER];
    let unknown = piped(folder.path(), &short).call("read_fd", read);
    assert!(unknown.contains("not_found"), "{unknown}");
}
