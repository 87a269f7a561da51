//! Tests with programs that fail, hang, print without end, or leave processes behind. They are
//! scripts of `sh -c`.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dormouse_actors::ports::{OutputSink, Tool};
use dormouse_proto::command::{Command, CommandLimits, Parameter, ParameterKind};
use dormouse_proto::tool::{Access, ToolPolicy};
use tempfile::TempDir;

use super::confining::system_confines;
use super::environment::Environment;
use super::skip::skip;
use super::{CommandTool, Launcher};
use crate::permissions::Permissions;

const CAP_BYTES: u64 = 4 << 20;

/// A working directory and the tool that runs in it.
struct CommandFixture {
    dir: TempDir,
    launcher: Arc<Launcher>,
}

impl CommandFixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let canary = [
            ("ANTHROPIC_API_KEY", "canary"),
            ("NAMED", "handed on"),
            ("LANG", "C"),
        ];
        let canary = canary.map(|(name, value)| (name.into(), value.into()));
        let path = std::env::vars_os().filter(|(name, _)| name == "PATH");
        let temporary = [("TMPDIR".into(), dir.path().into())];
        let environment = Environment::new(path.chain(canary).chain(temporary));
        let permissions = Permissions::none()
            .allow_run("sh")
            .allow_run("printf")
            .allow_write(".");
        let permissions = permissions.allow_env("NAMED").allow_env("UNSET");
        let launcher =
            Launcher::with_environment(&permissions, &Arc::default(), dir.path(), environment)
                .unwrap();
        Self {
            dir,
            launcher: Arc::new(launcher),
        }
    }

    fn tool(&self, argv: &[&str]) -> CommandTool {
        let parameter = |name: &str, optional| Parameter {
            name: name.into(),
            kind: ParameterKind::String,
            description: String::new(),
            default: None,
            optional,
            choices: Vec::new(),
        };
        let command = Command {
            name: "tool".into(),
            description: "A tool.".into(),
            argv: argv.iter().map(|element| (*element).to_owned()).collect(),
            parameters: vec![parameter("a", true), parameter("b", true)],
            env: vec!["NAMED".into(), "UNSET".into()],
            policy: ToolPolicy {
                output_cap_bytes: CAP_BYTES,
                ..ToolPolicy::default()
            },
            limits: CommandLimits::default(),
        };
        CommandTool::new(command, Arc::clone(&self.launcher))
    }

    async fn run(&self, argv: &[&str], args: &str) -> (Result<(), String>, String) {
        let out = OutputSink::with_cap(CAP_BYTES);
        let done = self.tool(argv).call(args.to_owned(), out.clone()).await;
        (
            done.map_err(String::from),
            String::from_utf8(out.take().bytes.to_vec()).unwrap(),
        )
    }

    async fn sh(&self, script: &str) -> (Result<(), String>, String) {
        self.run(&["sh", "-c", script], "{}").await
    }

    /// The process numbers that a script wrote into a file.
    fn pids(&self, file: &str) -> Vec<u32> {
        let text = std::fs::read_to_string(self.dir.path().join(file)).unwrap_or_default();
        text.split_whitespace()
            .map(|pid| pid.parse().unwrap())
            .collect()
    }

    async fn wait_for_pids(&self, file: &str, count: usize) -> Vec<u32> {
        let began = Instant::now();
        while self.pids(file).len() < count {
            assert!(
                began.elapsed() < Duration::from_secs(10),
                "the script did not come up"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.pids(file)
    }
}

/// Whether a process still runs. A zombie does not.
fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

async fn assert_all_end(pids: &[u32]) {
    let began = Instant::now();
    while pids.iter().any(|pid| is_alive(*pid)) {
        assert!(
            began.elapsed() < Duration::from_secs(1),
            "{pids:?} outlived the call"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn limits_are_applied_to_a_command_without_a_guard() {
    let fixture = CommandFixture::new();
    // The limits are set once the command runs.
    let script = "for try in $(seq 200); do [ \"$(ulimit -n)\" = 77 ] && break; sleep 0.01; done; \
         ulimit -n; ulimit -c";
    let mut tool = fixture.tool(&["sh", "-c", script]);
    Arc::get_mut(&mut tool.command).unwrap().limits.open_files = 77;
    let out = OutputSink::with_cap(CAP_BYTES);
    tool.call("{}".to_owned(), out.clone()).await.unwrap();
    assert_eq!(out.take().bytes, "77\n0\n");
}

#[tokio::test]
async fn an_exit_is_reported_with_its_code_and_standard_error() {
    let cases = [
        ("echo out", Ok(()), "out\n"),
        ("echo out; echo err >&2", Ok(()), "out\n"),
        ("true", Ok(()), ""),
        ("cat", Ok(()), ""),
        (
            "echo out; echo why >&2; exit 3",
            Err(&["tool: ", "exited with code 3", "stderr:\nwhy"][..]),
            "out\n",
        ),
        (
            "exit 101",
            Err(&["exited with code 101", "nothing to stderr"]),
            "",
        ),
        (
            "echo out; kill -9 $$",
            Err(&["ended by signal 9 (", "KILL"]),
            "out\n",
        ),
    ];
    let fixture = CommandFixture::new();
    for (script, expected, output) in cases {
        let (done, out) = fixture.sh(script).await;
        assert_eq!(out, output, "{script}");
        match expected {
            Ok(()) => assert_eq!(done, Ok(()), "{script}"),
            Err(parts) => {
                let error = done.expect_err(script);
                assert!(
                    parts.iter().all(|part| error.contains(part)),
                    "{script}: {error}"
                );
            }
        }
    }
}

#[tokio::test]
async fn arguments_arrive_as_they_are_and_options_do_not() {
    let fixture = CommandFixture::new();
    let printf = ["printf", "<%s>", "{a}", "x{b}"];
    let cases = [
        (
            r#"{"a":"one two; $(id) `id` *","b":"$HOME"}"#,
            Ok("<one two; $(id) `id` *><x$HOME>"),
        ),
        (r#"{"a":"line\nline"}"#, Ok("<line\nline>")),
        (r#"{"b":"-v"}"#, Ok("<x-v>")),
        (r#"{"a":"-v"}"#, Err("`a` may not begin with `-`")),
        (r#"{"a":"x\u0000y"}"#, Err("NUL")),
        (r#"{"c":"x"}"#, Err("`c` is not a parameter")),
    ];
    for (args, expected) in cases {
        let (done, out) = fixture.run(&printf, args).await;
        match expected {
            Ok(output) => assert_eq!((done, out.as_str()), (Ok(()), output), "{args}"),
            Err(part) => assert!(
                done.clone().expect_err(args).contains(part) && out.is_empty(),
                "{args}: {done:?}"
            ),
        }
    }
}

#[tokio::test]
async fn a_program_that_is_not_permitted_is_refused_at_each_call() {
    let fixture = CommandFixture::new();
    let tool = fixture.tool(&["cat", "/etc/passwd"]);
    assert_eq!(&*tool.spec().name, "tool");
    for _ in 0..2 {
        let error = tool
            .call(String::new(), OutputSink::with_cap(9))
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("may not run `cat`") && error.contains("--allow-run=cat"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn the_environment_is_scrubbed_and_the_working_directory_is_set() {
    let fixture = CommandFixture::new();
    let (done, out) = fixture.sh("env; pwd -P").await;
    assert_eq!(done, Ok(()));
    assert!(
        !out.contains("canary") && !out.contains("ANTHROPIC"),
        "{out}"
    );
    assert!(
        out.contains("NAMED=handed on\n") && out.contains("LANG=C\n") && !out.contains("UNSET"),
        "{out}"
    );
    assert!(
        out.contains(fixture.dir.path().canonicalize().unwrap().to_str().unwrap()),
        "{out}"
    );
}

#[tokio::test]
async fn output_is_forwarded_while_the_program_runs() {
    let fixture = CommandFixture::new();
    let out = OutputSink::with_cap(CAP_BYTES);
    let call = fixture
        .tool(&["sh", "-c", "echo early; sleep 60"])
        .call(String::new(), out.clone());
    let waited = tokio::time::timeout(Duration::from_millis(500), call).await;
    assert!(waited.is_err(), "it sleeps for a minute");
    assert_eq!(out.take().bytes, "early\n");
}

#[tokio::test]
async fn large_output_arrives_in_full_on_both_streams() {
    let fixture = CommandFixture::new();
    let (done, out) = fixture
        .sh(
            "i=0; while [ $i -lt 40000 ]; do echo line $i; echo error $i >&2; i=$((i+1)); \
             done; exit 1",
        )
        .await;
    assert_eq!(out.lines().count(), 40_000);
    let error = done.unwrap_err();
    assert!(
        error.ends_with("error 39999") && error.len() < 17 << 10,
        "{} bytes",
        error.len()
    );
}

#[tokio::test]
async fn output_without_end_is_cut_at_the_cap_and_the_group_is_killed() {
    let fixture = CommandFixture::new();
    let began = Instant::now();
    let (done, out) = fixture
        .sh("echo $$ > pids; yes & echo $! >> pids; yes")
        .await;
    assert!(
        done.clone()
            .unwrap_err()
            .contains(&format!("more than {CAP_BYTES} bytes")),
        "{done:?}"
    );
    assert_eq!(out.len() as u64, CAP_BYTES);
    assert!(began.elapsed() < Duration::from_secs(10));
    assert_all_end(&fixture.wait_for_pids("pids", 2).await).await;
}

/// Processes that are left behind: next to the program, below it, with the pipes open or closed.
const LEFT_BEHIND: [&str; 4] = [
    "sleep 60 & echo $! > pids",
    "sh -c 'sleep 60 & echo $! > pids; wait' & while ! test -s pids; do :; done",
    "sleep 60 > /dev/null 2>&1 & echo $! > pids",
    "sh -c 'trap \"\" TERM HUP INT; echo $$ > pids; while :; do sleep 1; done' & while ! test -s \
     pids; do :; done",
];

#[tokio::test]
async fn processes_left_behind_neither_delay_the_call_nor_outlive_it() {
    for script in LEFT_BEHIND {
        let fixture = CommandFixture::new();
        let began = Instant::now();
        let (done, out) = fixture.sh(&format!("{script}; echo done")).await;
        assert_eq!((done, out.as_str()), (Ok(()), "done\n"), "{script}");
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "{script}: {:?}",
            began.elapsed()
        );
        assert_all_end(&fixture.wait_for_pids("pids", 1).await).await;
    }
}

#[tokio::test]
async fn a_dropped_call_leaves_no_process() {
    for script in LEFT_BEHIND {
        let fixture = CommandFixture::new();
        let script = format!("{script}; echo $$ > leader; sleep 60");
        let call = tokio::spawn(
            fixture
                .tool(&["sh", "-c", &script])
                .call(String::new(), OutputSink::with_cap(9)),
        );
        let mut pids = fixture.wait_for_pids("pids", 1).await;
        pids.extend(fixture.wait_for_pids("leader", 1).await);
        assert!(pids.iter().all(|pid| is_alive(*pid)), "{script}");
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
        assert_all_end(&pids).await;
        assert_reaped(pids[1]).await;
    }
}

/// The leader is this process's child: no trace of it may be left either.
async fn assert_reaped(leader: u32) {
    let began = Instant::now();
    while Path::new(&format!("/proc/{leader}")).exists() {
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "{leader} was not reaped"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_closed_output_does_not_end_the_call_early() {
    let fixture = CommandFixture::new();
    let (done, _) = fixture.sh("exec >&- 2>&-; sleep 0.3; exit 7").await;
    assert!(done.unwrap_err().contains("exited with code 7"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_calls_run_concurrently() {
    let fixture = CommandFixture::new();
    let tool = fixture.tool(&["sh", "-c", "sleep 0.1; echo \"$0\"", "./{a}"]);
    let calls = (0..100).map(|n| {
        let out = OutputSink::with_cap(CAP_BYTES);
        let call = tool.call(format!(r#"{{"a":"{n}"}}"#), out.clone());
        async move {
            assert_eq!(call.await, Ok(()));
            assert_eq!(out.take().bytes, format!("./{n}\n"));
        }
    });
    futures_util::future::join_all(calls).await;
}

#[tokio::test]
async fn a_command_writes_only_to_permitted_folders_and_a_read_tool_nowhere() {
    if !system_confines() {
        return skip("landlock", "this system cannot confine");
    }
    let fixture = CommandFixture::new();
    let outside_path = std::env::current_dir().unwrap().join("not-to-be-written");
    let outside = format!("echo x > {}", outside_path.display());
    for (access, script, part) in [
        (
            Access::Read,
            "echo x > within",
            Some("declared access = \"read\": it may write nothing"),
        ),
        (Access::Read, "cat /etc/hostname > /dev/null", None),
        (
            Access::Write,
            "echo x > within && sh -c 'echo y >> within'",
            None,
        ),
        (Access::Write, &outside, Some("--allow-write permits more")),
        (
            Access::Admin,
            &format!("sh -c '{outside}'"),
            Some("may write below "),
        ),
    ] {
        let mut tool = fixture.tool(&["sh", "-c", script]);
        Arc::get_mut(&mut tool.command)
            .expect("nobody else holds it")
            .policy
            .access = access;
        let done = tool
            .call("{}".to_owned(), OutputSink::with_cap(CAP_BYTES))
            .await;
        match part {
            None => assert_eq!(done, Ok(()), "{script}"),
            Some(part) => assert!(
                done.as_ref()
                    .is_err_and(|why| why.to_string().contains(part)),
                "{script}: {done:?}"
            ),
        }
    }
    assert_eq!(
        std::fs::read_to_string(fixture.dir.path().join("within")).unwrap(),
        "x\ny\n"
    );
    assert!(!outside_path.exists());
    std::fs::write(
        fixture.dir.path().join("ours"),
        "the kernel itself is not confined",
    )
    .unwrap();
}
