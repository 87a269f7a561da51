//! `dormouse mcp` as its clients start it: what goes over standard output, what a store keeps, how
//! it ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::dormouse::{self, run, succeeds};

const PROGRAM: &str = r#"
[model]
provider = "scripted"
[tools]
enabled = ["read_fd", "fd_to_file"]
[[tools.command]]
name = "numbers"
description = "Counts."
argv = ["seq", "{upto}"]
parameters.upto = { type = "integer", description = "The last number." }
"#;

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = dormouse::command(folder);
    command
        .args(["mcp", "program.toml", "--allow-run=seq"])
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .args(args);
    command
}

fn folder(program: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("program.toml"), program).unwrap();
    folder
}

pub(crate) fn initialize_params() -> Value {
    json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}})
}

/// The first message of a client.
fn initialize_request() -> String {
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize_params()})
        .to_string()
}

/// A client of the program over its standard streams.
pub(crate) struct Client {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    last: u64,
    /// The methods of the notifications that came between answers.
    notified: Vec<String>,
    /// The answer to the handshake.
    pub(crate) handshake: Value,
}

impl Client {
    fn begin(folder: &Path, args: &[&str]) -> Self {
        Self::of(&mut command(folder, args))
    }

    /// A client that starts this command.
    pub(crate) fn of(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (
            child.stdin.take().unwrap(),
            BufReader::new(child.stdout.take().unwrap()),
        );
        let mut client = Self {
            child,
            input,
            output,
            last: 0,
            notified: Vec::new(),
            handshake: Value::Null,
        };
        client.handshake = client.ask("initialize", &initialize_params());
        if client.handshake["error"].is_null() {
            client.tell(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        }
        client
    }

    fn tell(&mut self, message: &Value) {
        writeln!(self.input, "{message}").unwrap();
    }

    /// Each line of standard output is a message; the next is the answer, after notifications.
    pub(crate) fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.last += 1;
        let id = self.last;
        self.tell(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        loop {
            let message = self.next_message();
            match message["method"].as_str() {
                Some(method) => self.notified.push(method.to_owned()),
                None => {
                    assert_eq!(message["id"], id, "{message}");
                    return message;
                }
            }
        }
    }

    fn next_message(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// Waits for a notification, unless it has come already.
    pub(crate) fn wait_for_notification(&mut self, method: &str) {
        while !self.notified.iter().any(|notified| notified == method) {
            let message = self.next_message();
            self.notified
                .push(message["method"].as_str().unwrap().to_owned());
        }
        self.notified.retain(|notified| notified != method);
    }

    /// The notifications that came before the last answer.
    pub(crate) fn notified(&self) -> &[String] {
        &self.notified
    }

    pub(crate) fn call(&mut self, tool: &str, args: Value) -> String {
        let answer = self.ask("tools/call", &json!({"name": tool, "arguments": args}));
        answer["result"]["content"][0]["text"]
            .as_str()
            .unwrap_or_else(|| panic!("{answer}"))
            .to_owned()
    }

    /// Ends it as clients do, and returns what else it wrote and its exit code.
    pub(crate) fn end(mut self) -> (String, Option<i32>) {
        drop(self.input);
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        (rest, self.child.wait().unwrap().code())
    }
}

#[test]
fn standard_output_is_the_protocol_and_the_end_of_input_is_the_end() {
    let folder = folder(PROGRAM);
    let mut client = Client::begin(folder.path(), &[]);
    assert_eq!(client.call("numbers", json!({"upto": 3})), "1\n2\n3\n");
    let preview = client.call("numbers", json!({"upto": "20000"}));
    assert!(
        preview.starts_with("<fd_result fd=\"fd:1\" source=\"tool:numbers\""),
        "{preview:.300}"
    );
    assert!(
        client
            .call("read_fd", json!({"fd": "fd:1", "page": "2"}))
            .starts_with("<fd_content fd=\"fd:1\" page=\"2\"")
    );
    assert_eq!(client.end(), (String::new(), Some(0)));
}

#[test]
fn files_are_written_where_that_is_permitted_and_nowhere_else() {
    let folder = folder(PROGRAM);
    let write = json!({"fd": "fd:1", "file_path": "out/numbers.txt"});
    let mut client = Client::begin(folder.path(), &[]);
    client.call("numbers", json!({"upto": 20_000}));
    let refused = client.call("fd_to_file", write.clone());
    assert!(refused.contains("access_denied"), "{refused}");
    client.end();
    std::fs::create_dir(folder.path().join("out")).unwrap();
    let mut client = Client::begin(folder.path(), &["--allow-write=out"]);
    client.call("numbers", json!({"upto": 20_000}));
    assert!(
        client
            .call("fd_to_file", write)
            .contains("success=\"true\"")
    );
    client.end();
    let written = std::fs::read_to_string(folder.path().join("out/numbers.txt")).unwrap();
    assert_eq!(written.lines().count(), 20_000);
}

#[test]
fn a_store_keeps_descriptors_until_the_program_is_another() {
    let folder = folder(PROGRAM);
    let store = ["--store", "state"];
    let read = json!({"fd": "fd:1", "page": 1});
    let mut client = Client::begin(folder.path(), &store);
    client.call("numbers", json!({"upto": 20_000}));
    let page = client.call("read_fd", read.clone());
    client.end();
    let mut client = Client::begin(folder.path(), &store);
    assert_eq!(client.call("read_fd", read.clone()), page);
    assert!(
        client
            .call("numbers", json!({"upto": 20_000}))
            .contains("fd=\"fd:2\""),
        "numbers go on"
    );
    client.end();
    for (changed, numbers) in [
        (PROGRAM.replace("Counts.", "Counts up."), "1\n2\n"),
        (
            PROGRAM.replace("{upto}\"]", "-1\", \"{upto}\"]"),
            "-1\n0\n1\n2\n",
        ),
    ] {
        std::fs::write(folder.path().join("program.toml"), &changed).unwrap();
        let mut client = Client::begin(folder.path(), &store);
        assert!(
            client.call("read_fd", read.clone()).contains("not_found"),
            "another process: {changed}"
        );
        assert_eq!(client.call("numbers", json!({"upto": 2})), numbers);
        client.call("numbers", json!({"upto": 20_000}));
        client.end();
    }
}

#[test]
fn what_was_imported_under_the_name_of_the_kept_process_is_not_served() {
    let folder = folder(PROGRAM);
    let mut client = Client::begin(folder.path(), &["--store", "state"]);
    client.call("numbers", json!({"upto": 20_000}));
    client.end();
    succeeds(folder.path(), "export 1 kept.dormouse --store state");
    succeeds(folder.path(), "import kept.dormouse --store other");
    let mut child = command(folder.path(), &["--store", "other"]);
    let mut child = child
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    writeln!(input, "{}", initialize_request()).unwrap();
    let mut refused = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut refused)
        .unwrap();
    assert!(refused.contains("imported from another store"), "{refused}");
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

#[test]
fn a_command_without_its_dashes_is_told_where_they_belong() {
    let folder = tempfile::tempdir().unwrap();
    for (args, expected) in [
        (&["mcp", "npx"][..], "dormouse mcp -- npx …"),
        (
            &["mcp", "npx", "server"],
            "dormouse mcp [OPTIONS] -- <COMMAND>...",
        ),
    ] {
        let ran = dormouse::run(dormouse::command(folder.path()).args(args));
        assert!(ran.code == 2 && ran.err.contains(expected), "{ran:?}");
    }
}

#[test]
fn an_origin_that_no_browser_writes_is_refused() {
    for wrong in [
        "*",
        "app.example",
        "https://app.example/path",
        "ftp://app.example",
    ] {
        let origin = format!("--allow-origin={wrong}");
        let ran = run(&mut command(Path::new("."), &["--http", &origin]));
        assert!(
            ran.code == 2 && ran.err.contains("an origin is http:// or https://"),
            "{ran:?}"
        );
    }
}

#[test]
fn a_signal_ends_it_in_the_middle_of_a_session() {
    let folder = folder(PROGRAM);
    let mut client = Client::begin(folder.path(), &[]);
    client.call("numbers", json!({"upto": 3}));
    terminate(&mut client.child);
}

fn refused(args: &[&str], token: &str) -> String {
    let folder = folder(PROGRAM);
    let ran = run(command(folder.path(), args).env("MCP_TOKEN", token));
    assert_eq!((ran.code, &*ran.out), (2, ""), "{ran:?}");
    ran.err
}

#[test]
fn other_machines_are_served_only_where_that_is_said_and_a_token_protects_it() {
    assert!(refused(&["--http=0.0.0.0:0"], "").contains("--allow-remote"));
    assert!(refused(&["--http=0.0.0.0:0", "--allow-remote"], "").contains("--token-env"));
    let remote = [
        "--http=0.0.0.0:0",
        "--allow-remote",
        "--token-env=MCP_TOKEN",
    ];
    let short = refused(&remote, "sesame");
    assert!(
        short.contains("too short") && !short.contains("sesame"),
        "{short}"
    );
}

/// Stops a server by SIGTERM, and waits for its end.
pub(crate) fn terminate(child: &mut Child) {
    assert!(
        Command::new("kill")
            .args(["-TERM", &child.id().to_string()])
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

/// The machine and port of a server's URL, which is a line.
pub(crate) fn address_of(url: &str) -> &str {
    url.trim()
        .strip_prefix("http://")
        .and_then(|rest| rest.strip_suffix("/mcp"))
        .unwrap()
}

/// The status of a first request with this header.
fn status(address: &str, header: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let hello = initialize_request();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{header}Content-Length: {}",
        hello.len()
    );
    let types = "Content-Type: application/json\r\nAccept: application/json, text/event-stream";
    write!(stream, "{head}\r\n{types}\r\n\r\n{hello}").unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    answer
        .split_whitespace()
        .nth(1)
        .unwrap_or_else(|| panic!("{answer}"))
        .to_owned()
}

#[test]
fn over_http_it_prints_its_url_and_a_token_and_serves_until_it_is_stopped() {
    let folder = folder(PROGRAM);
    let mut secrets = Vec::new();
    for (args, secret) in [
        (&["--http"][..], None),
        (&["--http"], None),
        (&["--http", "--no-token"], Some("")),
    ] {
        let mut child = command(folder.path(), args)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut url, mut entry) = (String::new(), String::new());
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        lines.read_line(&mut url).unwrap();
        let address = address_of(&url);
        assert!(address.starts_with("127.0.0.1:"), "{url}");
        let header = secret.map(str::to_owned).unwrap_or_else(|| {
            lines.read_line(&mut entry).unwrap();
            let entry: Value = serde_json::from_str(&entry).unwrap();
            let entry = &entry["mcpServers"]["dormouse"];
            assert_eq!(entry["url"], url.trim());
            format!(
                "Authorization: {}\r\n",
                entry["headers"]["Authorization"].as_str().unwrap()
            )
        });
        assert_eq!(status(address, &header), "200");
        if secret.is_none() {
            assert_eq!(status(address, ""), "401");
            assert_eq!(
                status(address, "Authorization: Bearer 0123456789abcdef\r\n"),
                "401"
            );
        }
        secrets.push(header);
        terminate(&mut child);
    }
    assert_ne!(secrets[0], secrets[1], "each start draws its own");
    for args in [
        ["--http", "--no-token", "--token-env=T"],
        ["--http", "--no-token", "--allow-remote"],
    ] {
        assert!(
            refused(&args, "").contains("cannot be used with"),
            "{args:?}"
        );
    }
}

#[test]
fn over_http_it_serves_who_shows_the_token_of_the_user_and_does_not_print_it() {
    let (folder, token) = (folder(PROGRAM), "a token of the user's own");
    let mut command = command(folder.path(), &["--http", "--token-env=MCP_TOKEN"]);
    let mut child = command
        .env("MCP_TOKEN", token)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut url, mut rest) = (String::new(), String::new());
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    lines.read_line(&mut url).unwrap();
    let address = address_of(&url);
    assert_eq!(status(address, ""), "401");
    assert_eq!(
        status(address, &format!("Authorization: Bearer {token}\r\n")),
        "200"
    );
    terminate(&mut child);
    lines.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
}
