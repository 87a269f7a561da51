//! A cluster for each test: a schema of its own, a folder with programs, and nodes as programs.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

pub(crate) use crate::ran::Ran;

/// A session that answers each input with it, and the number of its turn.
pub(crate) const ECHO: &str = "\
[model]
name = 'echo'
provider = 'scripted'
script = 'echo.script.toml'
";
const ECHO_SCRIPT: &str = "[[turn]]\ntext = 'turn {{ turn }}: {{ prompt }}'\n";

/// A schema, and a folder.
pub(crate) struct World {
    /// What `--store` gets.
    pub(crate) store: String,
    password: String,
    folder: tempfile::TempDir,
}

impl World {
    /// A folder with the program `echo.toml`, and no node.
    pub(crate) fn new() -> Self {
        let urls = std::env::var("DORMOUSE_POSTGRES_URLS");
        let urls = urls.expect("DORMOUSE_POSTGRES_URLS names the server: run .ci/cluster");
        let url = urls.split(',').next().unwrap();
        let (head, address) = url.rsplit_once('@').unwrap();
        let (user, password) = head.rsplit_once(':').unwrap();
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let time = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
        let schema = format!("cli{}_{}_{number}", time.as_micros(), std::process::id());
        let world = Self {
            store: format!("{user}@{address}?schema={schema}"),
            password: password.to_owned(),
            folder: tempfile::tempdir().unwrap(),
        };
        world.write("echo.toml", ECHO);
        world.write("echo.script.toml", ECHO_SCRIPT);
        world
    }

    /// As [`new`](Self::new), with a node `a` that is ready.
    pub(crate) fn with_node() -> (Self, Node) {
        let world = Self::new();
        let node = world.node("a", &[]);
        world.until_ready(1);
        (world, node)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder().join(name), text).unwrap();
    }

    /// The program, with the password in its environment.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dormouse"));
        command
            .current_dir(self.folder())
            .env("PGPASSWORD", &self.password)
            .env_remove("DORMOUSE_LOG")
            .env_remove("DORMOUSE_OBJECTS")
            .env_remove("DORMOUSE_STORE_KEY");
        command
    }

    /// Starts a node with four shards.
    pub(crate) fn node(&self, name: &str, flags: &[&str]) -> Node {
        let log = self.folder().join(format!("{name}.log"));
        let log = std::fs::File::options().create(true).append(true).open(log);
        let child = self
            .command()
            .args(["node", "--store", &self.store, "--name", name])
            .args(["--shards", "4", "--lease", "3"])
            .args(flags)
            .stdin(Stdio::null())
            .stderr(log.unwrap())
            .spawn()
            .unwrap();
        Node(child)
    }

    /// Waits until so many nodes have the four shards, and none has more of them than it will keep.
    pub(crate) fn until_ready(&self, count: usize) {
        until("the nodes are ready", || {
            let nodes = self.runs("nodes --json");
            let nodes = nodes.json_lines();
            let shards = nodes.iter().map(|node| node["shards"].as_u64().unwrap());
            let addresses = nodes.iter().map(|node| node["address"].as_str().unwrap());
            nodes.len() == count && shards.sum::<u64>() == 4 && addresses.into_iter().all(is_ready)
        });
    }

    /// Runs the program with the words of this line, on the cluster.
    pub(crate) fn runs(&self, line: &str) -> Ran {
        self.runs_words(&line.split_whitespace().collect::<Vec<_>>())
    }

    pub(crate) fn runs_words(&self, words: &[&str]) -> Ran {
        ran(self.command().args(words).args(["--store", &self.store]))
    }

    /// As [`runs`](Self::runs), and succeeds. Returns standard output.
    pub(crate) fn succeeds(&self, line: &str) -> String {
        let ran = self.runs(line);
        assert_eq!(ran.code, 0, "{line}: {ran:?}\n{}", self.logs());
        ran.out
    }

    /// As [`runs`](Self::runs), and is refused as wrong. Returns standard error.
    pub(crate) fn refuses(&self, line: &str) -> String {
        let ran = self.runs(line);
        assert_eq!(ran.code, 2, "{line}: {ran:?}");
        ran.err
    }

    /// Starts a program, and returns its pid at once.
    pub(crate) fn start(&self, line: &str) -> u64 {
        let out = self.succeeds(&format!("run {line} --detach"));
        out.trim().parse().unwrap()
    }

    /// The line of a process in `ps`.
    pub(crate) fn line_of(&self, pid: u64) -> Value {
        let lines = self.runs("ps --json").json_lines();
        let line = lines.into_iter().find(|line| line["pid"] == pid);
        line.unwrap_or_else(|| panic!("ps lists {pid}"))
    }

    /// What the nodes said.
    pub(crate) fn logs(&self) -> String {
        let read = |name| std::fs::read_to_string(self.folder().join(name)).unwrap_or_default();
        ["a.log", "b.log"].map(read).join("\n")
    }
}

/// Runs a command to its end, within two minutes.
pub(crate) fn ran(command: &mut Command) -> Ran {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let id = child.id();
    let (sender, done) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    let Ok(output) = done.recv_timeout(Duration::from_secs(120)) else {
        send_signal(id, "KILL");
        panic!("{command:?} does not end");
    };
    output.unwrap().into()
}

/// Whether a node says that it is ready.
fn is_ready(address: &str) -> bool {
    use std::io::{Read, Write};
    let Ok(mut stream) = std::net::TcpStream::connect(address) else {
        return false;
    };
    let request = "GET /readyz HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n";
    let mut answer = String::new();
    let asked = stream.write_all(request.as_bytes());
    asked
        .and_then(|()| stream.read_to_string(&mut answer))
        .is_ok()
        && answer.starts_with("HTTP/1.1 200")
}

fn send_signal(id: u32, name: &str) {
    let id = id.to_string();
    let status = Command::new("kill")
        .args([&format!("-{name}"), &id])
        .status();
    assert!(status.unwrap().success());
}

/// A node as a program. Killed when it is dropped.
pub(crate) struct Node(Child);

impl Node {
    pub(crate) fn signal(&self, name: &str) {
        send_signal(self.0.id(), name);
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    /// Waits for the end of the program, and returns whether it ended well.
    pub(crate) fn ended_well(mut self) -> bool {
        until("the node ends", || !self.is_running());
        self.0.wait().unwrap().success()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until something holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(90), "never: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
