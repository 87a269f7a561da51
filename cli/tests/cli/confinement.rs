//! Commands of a hostile program, run through `dormouse` as a user would run it: confined, limited,
//! and gone when the kernel is.

mod bench;
mod control_socket;
mod leftovers;
#[expect(
    clippy::disallowed_methods,
    reason = "a test that is left out says so past the harness"
)]
#[path = "../../../tests/skip.rs"]
pub(crate) mod skip;
#[path = "../../../tests/attacks/target.rs"]
mod target;
mod unable;

use std::fs;
use std::io::Write;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::json;

use self::bench::{Bench, PROGRAM, is_root, text};
use self::skip::skip;
use self::target::{REFUSED, attacks};

/// A user without rights.
const NOBODY: u32 = 65_534;

/// As who the program is run: as this test is, and, where that is root, as a user without rights
/// too.
fn users() -> Vec<Option<u32>> {
    if is_root() {
        return vec![None, Some(NOBODY)];
    }
    skip(
        "root",
        "only root can be two users, and some attacks are those of root",
    );
    vec![None]
}

#[test]
fn no_attack_gets_through() {
    for user in users() {
        let bench = Bench::new(user);
        let can_be_root = user.is_none() && is_root();
        let mut calls = Vec::new();
        for attack in attacks()
            .iter()
            .filter(|attack| can_be_root || !attack.needs_root)
        {
            for inside in ["inside", "inside/deep"] {
                let file = format!("./attacks/{}", attack.path.file_name().unwrap().display());
                let told = bench.target.argument("parent of the guard", inside);
                calls
                    .push(json!({ "tool": attack.access, "args": { "file": file, "told": told } }));
            }
        }
        let flags = "--allow-run=python3 --allow-write=inside --store inside/store";
        let (answers, errors) = bench.call(flags, &calls);
        assert_eq!(answers.len(), calls.len(), "{errors}");
        for (call, answer) in calls.iter().zip(&answers) {
            let said = text(answer);
            assert!(
                said.contains(&format!("exited with code {REFUSED}.")),
                "{user:?} {call}: {said}"
            );
        }
        bench.target.assert_whole(&format!("{user:?}"));
        assert!(bench.base.join("inside/store/HEAD").exists());
    }
}

#[test]
fn no_command_is_told_a_variable_that_is_not_permitted() {
    let bench = Bench::new(None);
    let run = |flags: &str| {
        let mut command = bench.command(&format!(
            "call program.toml --calls - --allow-run=sh {flags}"
        ));
        let mut child = command
            .env("ATTACKED_KEY", "canary")
            .env("DORMOUSE_STORE_KEY", "0f".repeat(32))
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(b"{\"tool\": \"key\", \"args\": {}}\n")
            .unwrap();
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
    };
    let told = "key=canary store=\\n";
    for (flags, expected) in [
        ("", "--allow-env=ATTACKED_KEY"),
        ("--allow-env=ATTACKED_KEY", told),
        ("--allow-env=ATTACKED_KEY,DORMOUSE_STORE_KEY", told),
    ] {
        let said = run(flags);
        assert!(
            said.contains(expected) && !said.contains("0f0f"),
            "{flags}: {said}"
        );
        assert_eq!(said.contains("canary"), expected == told, "{flags}: {said}");
    }
}

#[test]
fn the_key_and_a_recording_are_closed_to_commands_and_to_file_tools() {
    let bench = Bench::new(None);
    fs::write(bench.base.join("inside/deep/key"), "0f".repeat(32)).unwrap();
    let program = PROGRAM.replace(
        "enabled = [\"read_fd\"]",
        "enabled = [\"read_fd\", \"read_file\", \"fd_to_file\"]",
    );
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
    let flags = "--allow-run=sh --allow-read=. --allow-write=inside --store inside/store \
         --key-file inside/deep/key";
    let (answers, errors) = bench.call(flags, &calls);
    assert_eq!(answers.len(), calls.len(), "{errors}");
    for (call, answer) in calls
        .iter()
        .zip(&answers)
        .filter(|(call, _)| call.get("open").is_none())
    {
        let said = text(answer);
        let refused = [
            "Permission denied",
            "where the kernel keeps what is its own",
        ]
        .iter()
        .any(|word| said.contains(word));
        assert!(refused && !said.contains("0f0f"), "{call}: {said}");
    }
}

#[test]
fn a_command_is_held_to_its_limits() {
    let bench = Bench::new(None);
    let cases = [
        ("python3 -c 'bytearray(10**9)'", "MemoryError"),
        (
            "head -c 2000000 /dev/zero > inside/deep/large",
            "File size limit exceeded",
        ),
        (
            "python3 -c 'f=[open(\"/dev/null\") for _ in range(100)]'",
            "Too many open files",
        ),
        (
            "for i in $(seq 200); do sleep 20 & done; wait",
            "more than 40 processes at once",
        ),
    ];
    for (script, expected) in cases {
        let calls = [json!({ "tool": "sh", "args": { "script": script } })];
        let began = Instant::now();
        let (answers, errors) = bench.call("--allow-run=sh --allow-write=inside", &calls);
        let said = answers.first().map(text).unwrap_or(&errors);
        // Which of two bounds is met first depends on who runs it: a fork that fails, or the count
        // of processes.
        let failed = said.contains(expected)
            || said.contains("Cannot fork")
            || said.contains("was ended by signal 25");
        assert!(failed, "{script}: {said}");
        assert!(began.elapsed() < Duration::from_secs(15), "{script}");
    }
}

/// A variable of a server goes to the server and not to its guard, which is not confined.
#[test]
fn what_a_server_is_told_is_not_what_its_guard_follows() {
    let bench = Bench::new(None);
    let server = "import json, os, sys\nfor line in sys.stdin:\n message = json.loads(line)\n if \
         'id' not in message: continue\n name = os.environ['RUST_BACKTRACE']\n guard = \
         open('/proc/%d/status' % os.getppid()).read().splitlines()[0]\n say = {'protocolVersion': \
         '2025-06-18', 'capabilities': {'tools': {}}, 'serverInfo': {'name': 's', 'version': \
         '1'}}\n tool = {'name': 't', 'inputSchema': {'type': 'object'}}\n answer = {'initialize': \
         say, 'tools/list': {'tools': [tool]}}.get(message['method'], {'content': [{'type': \
         'text', 'text': name + ' ' + guard}]})\n print(json.dumps({'jsonrpc': '2.0', 'id': \
         message['id'], 'result': answer}), flush=True)\n";
    fs::write(bench.base.join("server.py"), server).unwrap();
    let library = bench.base.join("none.so");
    let program = format!(
        "{PROGRAM}\n[mcp.servers.s]\ncommand = \"python3\"\nargs = [\"-B\", \"server.py\"]\nenv = \
         {{ RUST_BACKTRACE = \"told\", LD_PRELOAD = {}, LD_DEBUG = \"files\" }}\n[tools.mcp]\ns = \
         \"all\"\n",
        json!(library)
    );
    fs::write(bench.base.join("program.toml"), program).unwrap();
    let mut command = bench.command("call program.toml --calls - --allow-run=python3");
    let mut child = command
        .env("DORMOUSE_LOG", "dormouse_mcp::stderr=trace")
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"{\"tool\": \"s__t\", \"args\": {}}\n")
        .unwrap();
    let Output { stdout, stderr, .. } = child.wait_with_output().unwrap();
    let (said, errors) = (
        String::from_utf8_lossy(&stdout),
        String::from_utf8_lossy(&stderr),
    );
    assert!(said.contains("told Name:"), "{said}{errors}");
    // The loader of the guard would say the same of the guard's own program.
    assert!(
        !errors.contains("dormouse-guard: error") && !errors.contains("calling init: linux-vdso"),
        "{errors}"
    );
}

/// A folder that is mounted somewhere else is the same folder.
#[test]
fn a_store_is_closed_under_each_name_that_it_has() {
    if !is_root() {
        return skip("root", "only root can mount");
    }
    let bench = Bench::new(None);
    fs::create_dir_all(bench.base.join("inside/store")).unwrap();
    let program = PROGRAM.replace(
        "enabled = [\"read_fd\"]",
        "enabled = [\"read_fd\", \"read_file\", \"list_dir\", \"fd_to_file\"]",
    );
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
    let mounts = "mount --bind inside/store inside/alias && mount --bind inside outside/alias";
    let answers = bench.call_with_mounts(
        mounts,
        "--allow-run=sh --allow-read=. --allow-write=inside,outside --store inside/store",
        &calls,
    );
    for (call, answer) in calls.iter().zip(&answers).skip(1) {
        let said = self::text(answer);
        let refused = [
            "Permission denied",
            "what the kernel keeps as its own",
            "where the kernel keeps what is its own",
        ];
        assert!(
            refused.iter().any(|word| said.contains(word)),
            "{call}: {said}"
        );
    }
}

/// The devices, processes and settings of the system are closed wherever they are mounted, as in a
/// tree that is changed root to.
#[test]
fn the_system_is_closed_under_each_name_that_it_has() {
    if !is_root() {
        return skip("root", "only root can mount");
    }
    let bench = Bench::new(None);
    for folder in ["proc", "sys", "dev"] {
        fs::create_dir_all(bench.base.join("inside/root").join(folder)).unwrap();
    }
    let calls = [
        json!({ "tool": "sh", "args": { "script": "cat inside/root/proc/sys/kernel/printk > \
             inside/root/proc/sys/kernel/printk" } }),
        json!({ "tool": "sh", "args": { "script": "echo 0 > inside/root/proc/self/oom_score_adj" } }),
        json!({ "tool": "sh", "args": { "script": ": >> inside/root/sys/kernel/profiling" } }),
        json!({ "tool": "sh", "args": { "script": ": >> inside/root/dev/kmsg" } }),
        json!({ "tool": "rsh", "args": { "script": ": < inside/root/dev/kmsg" } }),
    ];
    let mounts = "cd inside/root && mount -t proc proc proc && mount -t sysfs sysfs sys && mount \
         --bind /dev dev && cd ../..";
    let answers = bench.call_with_mounts(mounts, "--allow-run=sh --allow-write=inside", &calls);
    for (call, answer) in calls.iter().zip(&answers) {
        let said = self::text(answer);
        assert!(said.contains("Permission denied"), "{call}: {said}");
    }
}

/// A store that is reached by a link is reached by the same link later.
#[test]
fn a_link_that_leads_to_the_store_stays() {
    let bench = Bench::new(None);
    fs::create_dir(bench.base.join("outside/store")).unwrap();
    std::os::unix::fs::symlink("../outside", bench.base.join("inside/link")).unwrap();
    let script = "mkdir inside/deep/store; rm -f inside/link; ln -s deep inside/link; mv \
         inside/link inside/deep/moved";
    let calls = [json!({ "tool": "sh", "args": { "script": script } })];
    let flags = "--allow-run=sh --allow-write=inside --store inside/link/store";
    let (answers, errors) = bench.call(flags, &calls);
    assert!(
        text(&answers[0]).contains("Permission denied"),
        "{answers:?} {errors}"
    );
    assert_eq!(
        fs::read_link(bench.base.join("inside/link")).unwrap(),
        std::path::Path::new("../outside")
    );
    assert!(
        bench.base.join("outside/store/HEAD").exists()
            && !bench.base.join("inside/deep/store/HEAD").exists()
    );
}

/// What the program was started with is not for its commands: a file of the user's shell, a socket.
#[test]
fn what_the_program_inherited_goes_to_no_command() {
    let bench = Bench::new(None);
    let call = json!({ "tool": "rsh", "args": { "script": "echo x >&9 && echo got out" } });
    fs::write(bench.base.join("calls"), format!("{call}\n")).unwrap();
    let line =
        "exec 9>>outside/there && exec \"$0\" call program.toml --calls calls --allow-run=sh";
    let output = Command::new("bash")
        .args(["-c", line])
        .arg(&bench.dormouse)
        .current_dir(&bench.base)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        said.contains("Bad file descriptor") && !said.contains("\\ngot out"),
        "{said}"
    );
    assert_eq!(
        fs::read(bench.base.join("outside/there")).unwrap(),
        b"as it was"
    );
}
