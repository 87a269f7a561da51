//! Commands of a hostile program, run through `dormouse` as a user would run it: confined, limited, and gone when the kernel is.

use std::fs;
use std::io::Write;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// The code of an attack that was refused.
const REFUSED: i32 = 7;
/// A user without rights.
const NOBODY: u32 = 65_534;

const PROGRAM: &str = r#"
[model]
name = "hostile"
provider = "scripted"
script = "script.toml"

[tools]
enabled = ["read_fd"]

[[tools.command]]
name = "read"
description = "Reads."
argv = ["python3", "-B", "{file}", "{told}"]
parameters.file = { type = "string" }
parameters.told = { type = "string" }
access = "read"

[[tools.command]]
name = "write"
description = "Writes."
argv = ["python3", "-B", "{file}", "{told}"]
parameters.file = { type = "string" }
parameters.told = { type = "string" }
access = "write"

[[tools.command]]
name = "sh"
description = "Runs a script."
argv = ["sh", "-c", "{script}"]
parameters.script = { type = "string" }
access = "write"

[[tools.command]]
name = "rsh"
description = "Runs a script that reads."
argv = ["sh", "-c", "{script}"]
parameters.script = { type = "string" }
access = "read"

[[tools.command]]
name = "key"
description = "Tells a variable."
argv = ["sh", "-c", "echo key=$ATTACKED_KEY store=$DORMOUSE_STORE_KEY"]
env = ["ATTACKED_KEY", "DORMOUSE_STORE_KEY"]

[limits]
command_memory = "300MB"
command_processes = 40
command_file_size = "1MB"
command_open_files = 64
"#;

/// A folder with a program, a store, and what is not to be reached; as seen by somebody.
struct Bench {
    _dir: TempDir,
    base: PathBuf,
    dormouse: PathBuf,
    user: Option<u32>,
    sockets: Option<(TcpListener, UdpSocket, UnixListener, UnixListener, UnixDatagram)>,
}

impl Bench {
    fn new(user: Option<u32>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        for folder in ["outside", "inside/deep", "attacks"] {
            fs::create_dir_all(base.join(folder)).unwrap();
        }
        for file in ["outside/there", "inside/there", "inside/deep/there"] {
            fs::write(base.join(file), "as it was").unwrap();
        }
        for (attack, _) in attacks() {
            fs::copy(&attack, base.join("attacks").join(attack.file_name().unwrap())).unwrap();
        }
        fs::copy(folder_of_attacks().join("attack.py"), base.join("attacks/attack.py")).unwrap();
        fs::write(base.join("program.toml"), PROGRAM).unwrap();
        fs::write(base.join("script.toml"), "[[turn]]\ntext = \"done\"\n").unwrap();
        let built = PathBuf::from(env!("CARGO_BIN_EXE_dormouse"));
        // Where the build stands, another user may see nothing.
        let dormouse = if user.is_some() { base.join("dormouse") } else { built.clone() };
        if user.is_some() {
            fs::copy(built, &dormouse).unwrap();
        }
        let bench = Self { _dir: dir, base, dormouse, user, sockets: None };
        bench.give_away();
        bench
    }

    /// Everything belongs to the user who attacks: what refuses is not that somebody else owns it.
    fn give_away(&self) {
        let Some(user) = self.user else { return };
        let mut open = vec![self.base.clone()];
        while let Some(path) = open.pop() {
            std::os::unix::fs::chown(&path, Some(user), Some(user)).unwrap();
            if path.is_dir() {
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
                open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            }
        }
    }

    fn listening(mut self) -> Self {
        let (tcp, udp) = (TcpListener::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let name = SocketAddr::from_abstract_name(self.base.display().to_string()).unwrap();
        let paths = (UnixListener::bind(self.base.join("socket")), UnixListener::bind_addr(&name));
        let datagrams = UnixDatagram::bind(self.base.join("socket-dgram")).unwrap();
        for path in ["socket", "socket-dgram"] {
            fs::set_permissions(self.base.join(path), fs::Permissions::from_mode(0o777)).unwrap();
        }
        self.sockets = Some((tcp, udp, paths.0.unwrap(), paths.1.unwrap(), datagrams));
        self
    }

    fn told(&self, inside: &str) -> Value {
        let ports = self
            .sockets
            .as_ref()
            .map(|(tcp, udp, ..)| (tcp.local_addr().unwrap().port(), udp.local_addr().unwrap().port()));
        let (tcp, udp) = ports.unwrap_or_default();
        json!({
            "kernel": "parent of the guard", "outside": self.base.join("outside"), "store": self.base.join("inside/store"), "tcp": tcp,
            "udp": udp, "unix": self.base.join("socket"), "abstract": self.base.display().to_string(), "terminal": "/dev/tty",
            "inside": self.base.join(inside),
        })
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(&self.dormouse);
        command
            .args(line.split_whitespace())
            .current_dir(&self.base)
            .env_remove("DORMOUSE_LOG")
            .env("TMPDIR", &self.base);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(user) = self.user {
            command.uid(user).gid(user).env("HOME", "/");
        }
        command
    }

    /// Calls tools by hand, and answers with what each answered and what stood on standard error.
    fn call(&self, flags: &str, calls: &[Value]) -> (Vec<Value>, String) {
        let mut child = self.command(&format!("call program.toml --calls - {flags}")).spawn().unwrap();
        let text: String = calls.iter().map(|call| format!("{call}\n")).collect();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let Output { stdout, stderr, .. } = child.wait_with_output().unwrap();
        let lines = String::from_utf8(stdout).unwrap();
        let answers = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        (answers, String::from_utf8_lossy(&stderr).into_owned())
    }
}

fn folder_of_attacks() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/attacks")
}

#[expect(clippy::print_stdout, clippy::disallowed_macros, reason = "a test that shows less than it says has to tell")]
fn tell(what: &str) {
    println!("{what}");
}

/// The attacks, and which access each is declared with.
fn attacks() -> Vec<(PathBuf, String)> {
    let mut attacks: Vec<_> = fs::read_dir(folder_of_attacks()).unwrap().map(|entry| entry.unwrap().path()).collect();
    attacks.retain(|path| path.extension().is_some_and(|extension| extension == "py") && !path.ends_with("attack.py"));
    attacks.sort();
    let needs = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        text.lines().next().and_then(|line| line.strip_prefix("# access: ")).unwrap().to_owned()
    };
    attacks.into_iter().map(|path| (path.clone(), needs(&path))).collect()
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|metadata| std::os::unix::fs::MetadataExt::uid(&metadata) == 0)
}

/// As who the program is run: as this test is, and, where that is root, as a user without rights too.
fn users() -> Vec<Option<u32>> {
    if is_root() { vec![None, Some(NOBODY)] } else { vec![None] }
}

fn text(answer: &Value) -> &str {
    answer["text"].as_str().unwrap()
}

#[test]
fn no_attack_gets_through() {
    for user in users() {
        let bench = Bench::new(user).listening();
        let mut calls = Vec::new();
        for (attack, needs) in attacks() {
            let (access, root) = needs.split_once(", ").map_or((needs.as_str(), false), |(access, _)| (access, true));
            if root && (user.is_some() || !is_root()) {
                continue;
            }
            for inside in ["inside", "inside/deep"] {
                let file = format!("./attacks/{}", attack.file_name().unwrap().display());
                let told = bench.told(inside).to_string();
                calls.push(json!({ "tool": access, "args": { "file": file, "told": told } }));
            }
        }
        let flags = "--allow-run=python3 --allow-write=inside --store inside/store";
        let (answers, errors) = bench.call(flags, &calls);
        assert_eq!(answers.len(), calls.len(), "{errors}");
        for (call, answer) in calls.iter().zip(&answers) {
            let said = text(answer);
            assert!(said.contains(&format!("exited with code {REFUSED}.")), "{user:?} {call}: {said}");
        }
        for file in ["outside/there", "inside/store/HEAD"] {
            assert!(bench.base.join(file).exists(), "{file}");
        }
        assert_eq!(fs::read(bench.base.join("outside/there")).unwrap(), b"as it was");
    }
}

#[test]
fn no_command_is_told_a_variable_that_is_not_permitted() {
    let bench = Bench::new(None);
    let run = |flags: &str| {
        let mut command = bench.command(&format!("call program.toml --calls - --allow-run=sh {flags}"));
        let mut child =
            command.env("ATTACKED_KEY", "canary").env("DORMOUSE_STORE_KEY", "0f".repeat(32)).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"{\"tool\": \"key\", \"args\": {}}\n").unwrap();
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
    };
    let told = "key=canary store=\\n";
    for (flags, expected) in [
        ("", "--allow-env=ATTACKED_KEY"),
        ("--allow-env=ATTACKED_KEY", told),
        ("--allow-env=ATTACKED_KEY,DORMOUSE_STORE_KEY", told),
    ] {
        let said = run(flags);
        assert!(said.contains(expected) && !said.contains("0f0f"), "{flags}: {said}");
        assert_eq!(said.contains("canary"), expected == told, "{flags}: {said}");
    }
}

#[test]
fn the_key_and_a_recording_are_closed_to_commands_and_to_file_tools() {
    let bench = Bench::new(None);
    fs::write(bench.base.join("inside/deep/key"), "0f".repeat(32)).unwrap();
    let program = PROGRAM.replace("enabled = [\"read_fd\"]", "enabled = [\"read_fd\", \"read_file\", \"fd_to_file\"]");
    fs::write(bench.base.join("program.toml"), program).unwrap();
    let calls = [
        json!({ "tool": "rsh", "args": { "script": "cat inside/deep/key" } }),
        json!({ "tool": "sh", "args": { "script": "echo x > inside/deep/key" } }),
        json!({ "tool": "read_file", "args": { "path": "inside/deep/key" } }),
        json!({ "tool": "read_file", "args": { "path": "inside/store/HEAD" } }),
        json!({ "open": { "file": "program.toml", "page_size": 500 } }),
        json!({ "tool": "fd_to_file", "args": { "fd": "fd:1", "file_path": "inside/deep/key", "exist_ok": true } }),
        json!({ "tool": "fd_to_file", "args": { "fd": "fd:1", "file_path": "inside/store/HEAD", "exist_ok": true } }),
    ];
    let flags = "--allow-run=sh --allow-read=. --allow-write=inside --store inside/store --key-file inside/deep/key";
    let (answers, errors) = bench.call(flags, &calls);
    assert_eq!(answers.len(), calls.len(), "{errors}");
    for (call, answer) in calls.iter().zip(&answers).filter(|(call, _)| call.get("open").is_none()) {
        let said = text(answer);
        let refused =
            ["Permission denied", "where the kernel keeps what is its own"].iter().any(|word| said.contains(word));
        assert!(refused && !said.contains("0f0f"), "{call}: {said}");
    }
}

#[test]
fn a_command_is_held_to_its_limits() {
    let bench = Bench::new(None);
    let cases = [
        ("python3 -c 'bytearray(10**9)'", "MemoryError"),
        ("head -c 2000000 /dev/zero > inside/deep/large", "File size limit exceeded"),
        ("python3 -c 'f=[open(\"/dev/null\") for _ in range(100)]'", "Too many open files"),
        ("for i in $(seq 200); do sleep 20 & done; wait", "more than 40 processes at once"),
    ];
    for (script, expected) in cases {
        let calls = [json!({ "tool": "sh", "args": { "script": script } })];
        let began = Instant::now();
        let (answers, errors) = bench.call("--allow-run=sh --allow-write=inside", &calls);
        let said = answers.first().map(text).unwrap_or(&errors);
        // Which of two bounds is met first depends on who runs it: a fork that fails, or the count of processes.
        let failed = said.contains(expected) || said.contains("Cannot fork") || said.contains("was ended by signal 25");
        assert!(failed, "{script}: {said}");
        assert!(began.elapsed() < Duration::from_secs(15), "{script}");
    }
}

/// A variable of a server goes to the server and not to its guard, which is not confined.
#[test]
fn what_a_server_is_told_is_not_what_its_guard_follows() {
    let bench = Bench::new(None);
    let server = "import json, os, sys\nfor line in sys.stdin:\n message = json.loads(line)\n if 'id' not in message: continue\n \
                  name = os.environ['RUST_BACKTRACE']\n guard = open('/proc/%d/status' % os.getppid()).read().splitlines()[0]\n \
                  say = {'protocolVersion': '2025-06-18', 'capabilities': {'tools': {}}, 'serverInfo': {'name': 's', 'version': '1'}}\n \
                  tool = {'name': 't', 'inputSchema': {'type': 'object'}}\n \
                  answer = {'initialize': say, 'tools/list': {'tools': [tool]}}.get(message['method'], \
                  {'content': [{'type': 'text', 'text': name + ' ' + guard}]})\n \
                  print(json.dumps({'jsonrpc': '2.0', 'id': message['id'], 'result': answer}), flush=True)\n";
    fs::write(bench.base.join("server.py"), server).unwrap();
    let library = bench.base.join("none.so");
    let program = format!(
        "{PROGRAM}\n[mcp.servers.s]\ncommand = \"python3\"\nargs = [\"-B\", \"server.py\"]\nenv = {{ RUST_BACKTRACE = \"told\", \
         LD_PRELOAD = {}, LD_DEBUG = \"files\" }}\n[tools.mcp]\ns = \"all\"\n",
        json!(library)
    );
    fs::write(bench.base.join("program.toml"), program).unwrap();
    let mut command = bench.command("call program.toml --calls - --allow-run=python3");
    let mut child = command.env("DORMOUSE_LOG", "dormouse_mcp::stderr=trace").spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"{\"tool\": \"s__t\", \"args\": {}}\n").unwrap();
    let Output { stdout, stderr, .. } = child.wait_with_output().unwrap();
    let (said, errors) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(said.contains("told Name:"), "{said}{errors}");
    // The loader of the guard would say the same of the guard's own program.
    assert!(!errors.contains("dormouse-guard: error") && !errors.contains("calling init: linux-vdso"), "{errors}");
}

/// A folder that is mounted somewhere else is the same folder.
#[test]
fn a_store_is_closed_under_each_name_that_it_has() {
    if !is_root() {
        tell("skipped: only root can mount");
        return;
    }
    let bench = Bench::new(None);
    fs::create_dir_all(bench.base.join("inside/store")).unwrap();
    let program = PROGRAM
        .replace("enabled = [\"read_fd\"]", "enabled = [\"read_fd\", \"read_file\", \"list_dir\", \"fd_to_file\"]");
    fs::write(bench.base.join("program.toml"), program).unwrap();
    for folder in ["inside/alias", "outside/alias"] {
        fs::create_dir(bench.base.join(folder)).unwrap();
    }
    let calls = [
        json!({ "open": { "file": "program.toml", "page_size": 500 } }),
        json!({ "tool": "rsh", "args": { "script": "cat inside/alias/HEAD" } }),
        json!({ "tool": "rsh", "args": { "script": "cat outside/alias/store/HEAD" } }),
        json!({ "tool": "sh", "args": { "script": "echo x > inside/alias/new" } }),
        json!({ "tool": "sh", "args": { "script": "echo x >> outside/alias/store/HEAD" } }),
        json!({ "tool": "read_file", "args": { "path": "inside/alias/HEAD" } }),
        json!({ "tool": "read_file", "args": { "path": "outside/alias/store/HEAD" } }),
        json!({ "tool": "list_dir", "args": { "path": "inside/alias" } }),
        json!({ "tool": "fd_to_file", "args": { "fd": "fd:1", "file_path": "inside/alias/new" } }),
        json!({ "tool": "fd_to_file", "args": { "fd": "fd:1", "file_path": "outside/alias/store/a/new" } }),
    ];
    let text: String = calls.iter().map(|call| format!("{call}\n")).collect();
    fs::write(bench.base.join("calls"), text).unwrap();
    let line = "mount --bind inside/store inside/alias && mount --bind inside outside/alias && exec \"$0\" call program.toml --calls \
                calls --allow-run=sh --allow-read=. --allow-write=inside,outside --store inside/store";
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", line])
        .arg(&bench.dormouse)
        .current_dir(&bench.base)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let answers: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), calls.len(), "{}", String::from_utf8_lossy(&output.stderr));
    for (call, answer) in calls.iter().zip(&answers).skip(1) {
        let said = self::text(answer);
        let refused =
            ["Permission denied", "what the kernel keeps as its own", "where the kernel keeps what is its own"];
        assert!(refused.iter().any(|word| said.contains(word)), "{call}: {said}");
    }
}

/// What the program was started with is not for its commands: a file of the user's shell, a socket.
#[test]
fn what_the_program_inherited_goes_to_no_command() {
    let bench = Bench::new(None);
    let call = json!({ "tool": "rsh", "args": { "script": "echo x >&9 && echo got out" } });
    fs::write(bench.base.join("calls"), format!("{call}\n")).unwrap();
    let line = "exec 9>>outside/there && exec \"$0\" call program.toml --calls calls --allow-run=sh";
    let output =
        Command::new("bash").args(["-c", line]).arg(&bench.dormouse).current_dir(&bench.base).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("Bad file descriptor") && !said.contains("\\ngot out"), "{said}");
    assert_eq!(fs::read(bench.base.join("outside/there")).unwrap(), b"as it was");
}

/// Where there are no threads left, nothing runs that would not be confined.
#[test]
fn a_command_that_cannot_be_confined_is_not_begun() {
    if !is_root() {
        tell("skipped: only root can become a user with few processes");
        return;
    }
    let bench = Bench::new(Some(61_237));
    let call = json!({ "tool": "rsh", "args": { "script": "grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status; echo x > outside/there" } });
    fs::write(bench.base.join("calls"), format!("{call}\n")).unwrap();
    let mut begun = 0;
    for most in 4..24 {
        let line = format!("ulimit -u {most}; exec ./dormouse call program.toml --calls calls --allow-run=sh");
        let mut command = Command::new("bash");
        command.args(["-c", &line]).current_dir(&bench.base).uid(61_237).gid(61_237).env("TMPDIR", &bench.base);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        begun += u32::from(said.contains("NoNewPrivs:\\t1"));
        assert!(!said.contains("NoNewPrivs:\\t0") && !said.contains("Seccomp:\\t0"), "{most}: {said}");
        assert_eq!(fs::read(bench.base.join("outside/there")).unwrap(), b"as it was", "{most}: {said}");
    }
    assert!(begun > 0, "it is begun where there is room");
}

/// Programs that a command of this test started, by the word that they carry.
fn running(word: &str) -> usize {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| line.windows(word.len()).any(|part| part == word.as_bytes())).count()
}

/// Ways to leave a process behind: in the group, beside it, in a session of its own, as a daemon, deaf to signals.
fn leaving(word: &str) -> String {
    let sleep = format!("sleep 98{word}");
    format!(
        "{sleep} & setsid {sleep} & (setsid sh -c '{sleep} & {sleep} & wait' &) & \
         sh -c 'trap \"\" TERM HUP INT; {sleep}' & python3 -c 'import os,sys,time\n\
         if os.fork() == 0:\n os.setsid()\n if os.fork() == 0:\n  os.execvp(\"sleep\", [\"sleep\", \"98{word}\"])' & \
         python3 -c 'import ctypes,os\nif os.fork() == 0:\n os.setsid()\n \
         ctypes.CDLL(None).prctl(15, b\"\\xff\\xfe\", 0, 0, 0)\n import time\n time.sleep(98{word})' & \
         echo begun > inside/deep/begun; sleep 98{word}"
    )
}

#[test]
fn nothing_outlives_a_command_that_ends() {
    let bench = Bench::new(None);
    let word = format!("1{:08}", std::process::id());
    let script = leaving(&word).replace(&format!("; sleep 98{word}"), "; sleep 0.3");
    let calls = [json!({ "tool": "sh", "args": { "script": script } })];
    let (answers, errors) = bench.call("--allow-run=sh --allow-write=inside", &calls);
    assert_eq!(answers.len(), 1, "{errors}");
    assert_eq!(running(&format!("98{word}")), 0, "{answers:?}");
}

/// `DORMOUSE_KILLS` asks for another number of kills.
#[test]
fn nothing_outlives_a_kernel_that_is_killed() {
    let kills = std::env::var("DORMOUSE_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(10_u32);
    let mut left = 0;
    let mut slowest = Duration::ZERO;
    for kill in 0..kills {
        let bench = Bench::new(None);
        let word = format!("2{:08}{kill:04}", std::process::id());
        let program = PROGRAM.replace("enabled = [\"read_fd\"]", "enabled = [\"read_fd\"]\n");
        fs::write(bench.base.join("program.toml"), format!("{program}\n[prompt]\nuser = \"go\"\n")).unwrap();
        let call =
            format!("[[turn]]\ncalls = [{{ tool = \"sh\", args = {{ script = {} }} }}]\n", json!(leaving(&word)));
        fs::write(bench.base.join("script.toml"), call).unwrap();
        let flags = "run program.toml --allow-run=sh --allow-write=inside --store inside/store";
        let mut child =
            bench.command(flags).process_group(0).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let began = Instant::now();
        // At any moment from the first command on.
        let is_begun = |at: Duration| bench.base.join("inside/deep/begun").exists() || began.elapsed() > at;
        let moment = Duration::from_millis(u64::from(kill % 7) * 20);
        while !is_begun(Duration::from_secs(20)) {
            std::thread::sleep(Duration::from_millis(2));
        }
        std::thread::sleep(moment);
        child.kill().unwrap();
        let killed = Instant::now();
        child.wait().unwrap();
        let mut count = running(&format!("98{word}"));
        while count > 0 && killed.elapsed() < Duration::from_secs(1) {
            std::thread::sleep(Duration::from_millis(5));
            count = running(&format!("98{word}"));
        }
        slowest = slowest.max(killed.elapsed());
        left += count;
        let temporary = fs::read_dir(&bench.base).unwrap().flatten();
        let temporary = temporary.filter(|entry| entry.file_name().to_string_lossy().starts_with("dormouse-")).count();
        assert!(temporary == 0 || count > 0, "a folder for temporary files was left");
    }
    tell(&format!("{kills} kernels killed, {left} processes left after a second, the last gone after {slowest:?}"));
    assert_eq!(left, 0);
}

/// Where nothing can be confined it is said, and nothing is run, unless the user wants it.
#[test]
fn without_landlock_commands_are_refused() {
    let bench = Bench::new(None);
    let calls = [
        json!({ "tool": "rsh", "args": { "script": "echo it ran" } }),
        json!({ "tool": "sh", "args": { "script": "echo it ran" } }),
    ];
    let call = |flags: &str| without_landlock(|| bench.call(flags, &calls));
    let (answers, errors) = call("--allow-run=sh");
    assert!(errors.contains("warning: this system has no Landlock"), "{errors}");
    for answer in &answers {
        assert!(text(answer).contains("--allow-unconfined") && !text(answer).contains("it ran"), "{answer}");
    }
    let (answers, errors) = call("--allow-run=sh --allow-unconfined");
    assert!(errors.contains("warning: this system has no Landlock"), "{errors}");
    assert!(answers.len() == 2 && answers.iter().all(|answer| text(answer).contains("it ran")), "{answers:?}");
}

/// What is started on a thread that may not use Landlock may not either.
fn without_landlock<T: Send>(start: impl FnOnce() -> T + Send) -> T {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
    const LANDLOCK: [i64; 3] = [444, 445, 446];
    const ENOSYS: u32 = 38;
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let calls = LANDLOCK.map(|call| (call, Vec::new())).into_iter().collect();
            let arch = std::env::consts::ARCH.try_into().unwrap();
            let filter = SeccompFilter::new(calls, SeccompAction::Allow, SeccompAction::Errno(ENOSYS), arch).unwrap();
            let program: BpfProgram = filter.try_into().unwrap();
            apply_filter(&program).unwrap();
            start()
        });
        thread.join().unwrap()
    })
}
