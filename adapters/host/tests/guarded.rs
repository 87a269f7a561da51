//! Commands under guard. This test program embeds the host, so that its `main` is what makes the
//! guard possible; it cannot have the usual harness, whose `main` is another.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../tests/skip.rs"]
mod skip;

use std::fs;
use std::future::Future;
use std::path::Path;
use std::process;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dormouse_actors::ports::{Host, OutputSink, Tool};
use dormouse_host::{LocalHost, Permissions, guard};
use dormouse_proto::command::{Command, CommandLimits};
use dormouse_proto::tool::{Access, ToolPolicy};
use libtest_mimic::{Arguments, Failed, Trial};
use rustix::process::{Pid, Signal, kill_process};
use skip::skip;
use tempfile::TempDir;

/// The folder of a kernel that this program plays, to be killed.
const KERNEL: &str = "GUARDED_TEST_KERNEL";

fn main() -> process::ExitCode {
    guard::enter();
    if let Some(folder) = std::env::var_os(KERNEL) {
        let bench = Bench::of(folder.as_ref());
        let _ = block_on(bench.sh(
            "echo $$ $PPID > pids; sleep 60 & setsid sleep 60 & echo $! > apart; ls \
                 /proc/$$/fd > open; sleep 60",
        ));
        return process::ExitCode::FAILURE;
    }
    let trials: [(&str, fn()); 15] = [
        (
            "an_end_is_that_of_the_command",
            an_end_is_that_of_the_command,
        ),
        (
            "what_the_guard_cannot_begin_is_said",
            what_the_guard_cannot_begin_is_said,
        ),
        (
            "the_environment_is_the_one_that_is_permitted",
            the_environment_is_the_one_that_is_permitted,
        ),
        (
            "a_command_leads_a_session_and_is_the_first_to_go",
            a_command_leads_a_session_and_is_the_first_to_go,
        ),
        ("limits_hold", limits_hold),
        (
            "too_many_processes_end_the_command",
            too_many_processes_end_the_command,
        ),
        (
            "as_many_processes_as_permitted_are_left_alone",
            as_many_processes_as_permitted_are_left_alone,
        ),
        (
            "what_a_command_leaves_may_finish_a_line_and_is_ended",
            what_a_command_leaves_may_finish_a_line_and_is_ended,
        ),
        (
            "who_leaves_the_group_is_ended_too",
            who_leaves_the_group_is_ended_too,
        ),
        (
            "a_call_that_is_given_up_leaves_nothing",
            a_call_that_is_given_up_leaves_nothing,
        ),
        (
            "a_command_writes_where_it_may_and_its_folder_goes",
            a_command_writes_where_it_may_and_its_folder_goes,
        ),
        (
            "a_command_moves_neither_its_guard_nor_the_kernel",
            a_command_moves_neither_its_guard_nor_the_kernel,
        ),
        (
            "a_command_whose_guard_is_not_its_parent_does_not_run",
            a_command_whose_guard_is_not_its_parent_does_not_run,
        ),
        (
            "a_command_does_not_outlive_its_guard",
            a_command_does_not_outlive_its_guard,
        ),
        (
            "nothing_outlives_a_kernel_that_is_killed",
            nothing_outlives_a_kernel_that_is_killed,
        ),
    ];
    let trial = |(name, run): (&str, fn())| {
        Trial::test(name, move || {
            run();
            Ok::<(), Failed>(())
        })
    };
    libtest_mimic::run(&Arguments::from_args(), trials.map(trial).into()).exit_code()
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(work)
}

struct Bench {
    _dir: Option<TempDir>,
    host: LocalHost,
    confines: bool,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let bench = Self::of(dir.path());
        Self {
            _dir: Some(dir),
            ..bench
        }
    }

    fn of(folder: &Path) -> Self {
        let permissions = Permissions::none()
            .allow_run("sh")
            .allow_run("python3")
            .allow_write(".")
            .allow_env("PERMITTED");
        let confines = LocalHost::new(permissions.clone(), folder)
            .unwrap()
            .missing_confinement()
            .is_none();
        let permissions = if confines {
            permissions
        } else {
            permissions.allow_without_confinement()
        };
        Self {
            _dir: None,
            host: LocalHost::new(permissions, folder).unwrap(),
            confines,
        }
    }

    fn dir(&self) -> &Path {
        self.host.working_dir()
    }

    fn tool(&self, argv: &[&str], limits: CommandLimits) -> Arc<dyn Tool> {
        self.host.command(&Command {
            name: "tool".into(),
            description: "A tool.".into(),
            argv: argv.iter().map(|part| (*part).to_owned()).collect(),
            parameters: Vec::new(),
            env: vec!["PERMITTED".into()],
            policy: ToolPolicy {
                access: Access::Write,
                ..ToolPolicy::default()
            },
            limits,
        })
    }

    /// How a command ended, and what it said.
    async fn run(&self, argv: &[&str], limits: CommandLimits) -> (Result<(), String>, String) {
        let out = OutputSink::with_cap(1 << 20);
        let ended = self
            .tool(argv, limits)
            .call("{}".to_owned(), out.clone())
            .await
            .map_err(String::from);
        (
            ended,
            String::from_utf8_lossy(&out.take().bytes).into_owned(),
        )
    }

    async fn sh(&self, script: &str) -> (Result<(), String>, String) {
        self.run(&["sh", "-c", script], CommandLimits::default())
            .await
    }

    /// The process numbers in a file, once there are so many.
    fn pids(&self, file: &str, count: usize) -> Vec<i32> {
        let path = self.dir().join(file);
        let mut found = Vec::new();
        wait_until(&format!("{file} holds {count} numbers"), || {
            let text = fs::read_to_string(&path).unwrap_or_default();
            found = text
                .split_whitespace()
                .map(|pid| pid.parse().unwrap())
                .collect();
            found.len() >= count && text.ends_with('\n')
        });
        found
    }
}

#[track_caller]
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "in vain waited until {what}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process still runs; one that is only waited for by its parent does not.
fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

fn an_end_is_that_of_the_command() {
    let bench = Bench::new();
    for (script, code, said) in [
        ("echo out; echo err >&2", None, "out\n"),
        (
            "echo out; echo err >&2; exit 3",
            Some("exited with code 3"),
            "out\n",
        ),
        ("exit 125", Some("code 125"), ""),
        ("kill -9 $$", Some("signal 9"), ""),
        ("kill -15 $$", Some("signal 15"), ""),
        ("cat", None, ""),
    ] {
        let (ended, out) = block_on(bench.sh(script));
        assert_eq!(out, said, "{script}");
        match code {
            None => assert_eq!(ended, Ok(()), "{script}"),
            Some(code) => assert!(
                ended.as_ref().is_err_and(|why| why.contains(code)),
                "{script}: {ended:?}"
            ),
        }
    }
    let (ended, _) = block_on(bench.sh("echo err >&2; exit 1"));
    assert!(ended.is_err_and(|why| why.contains("err")));
}

/// The guard may end before its copy asks for its parent, which is another process then.
fn a_command_whose_guard_is_not_its_parent_does_not_run() {
    let own = process::id();
    for (guard, runs) in [(own, true), (own + 1, false)] {
        let guard_argument = format!("guard={guard}");
        let ended = process::Command::new(std::env::current_exe().unwrap())
            .args(["__dormouse_command", "kernel=1", "support=0,false"])
            .args([guard_argument.as_str(), "--", "/bin/sh", "-c", "echo ran"])
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(
            ended.stdout,
            if runs { &b"ran\n"[..] } else { b"" },
            "{errors}"
        );
        assert_eq!(ended.status.code(), Some(if runs { 0 } else { 125 }));
        assert_eq!(errors.contains("lost its guard"), !runs, "{errors}");
    }
}

fn what_the_guard_cannot_begin_is_said() {
    let bench = Bench::new();
    let (ended, _) = block_on(bench.run(&["absent"], CommandLimits::default()));
    assert!(ended.is_err_and(|why| why.contains("absent")));
    // It is there when it is looked for, and cannot be run.
    fs::write(bench.dir().join("broken"), "#!/nowhere/shell\n").unwrap();
    fs::set_permissions(
        bench.dir().join("broken"),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let permissions = Permissions::none().allow_run(bench.dir().join("broken").to_str().unwrap());
    let host = LocalHost::new(permissions.allow_without_confinement(), bench.dir()).unwrap();
    let bench = Bench { host, ..bench };
    let (ended, _) = block_on(bench.run(&["./broken"], CommandLimits::default()));
    assert!(
        ended
            .as_ref()
            .is_err_and(|why| why.contains("broken could not be started")),
        "{ended:?}"
    );
}

fn the_environment_is_the_one_that_is_permitted() {
    let bench = Bench::new();
    let (ended, out) = block_on(bench.sh("env"));
    ended.unwrap();
    let names: Vec<_> = out
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, _)| name)
        .collect();
    let known = [
        "PATH",
        "HOME",
        "LANG",
        "LC_ALL",
        "TZ",
        "TMPDIR",
        "USER",
        "PERMITTED",
        "PWD",
        "OLDPWD",
        "SHLVL",
        "_",
    ];
    assert!(names.iter().all(|name| known.contains(name)), "{names:?}");
    assert!(names.contains(&"PATH"), "{names:?}");
}

fn a_command_leads_a_session_and_is_the_first_to_go() {
    let bench = Bench::new();
    let script = "read -r pid name state parent group session rest < /proc/self/stat; echo \
         $session $$; cat /proc/$$/oom_score_adj";
    let (ended, out) = block_on(bench.sh(&format!("{script}; cat /proc/$PPID/comm")));
    ended.unwrap();
    let lines: Vec<_> = out.lines().collect();
    let (session, pid) = lines[0].split_once(' ').unwrap();
    assert_eq!((session, lines[1]), (pid, "500"), "{out}");
}

fn limits_hold() {
    let bench = Bench::new();
    let limits = CommandLimits {
        open_files: 77,
        ..CommandLimits::default()
    };
    let (ended, out) = block_on(bench.run(&["sh", "-c", "ulimit -n; ulimit -c"], limits));
    assert_eq!((ended, out.as_str()), (Ok(()), "77\n0\n"));
}

fn too_many_processes_end_the_command() {
    let bench = Bench::new();
    let limits = CommandLimits {
        processes: 20,
        ..CommandLimits::default()
    };
    let began = Instant::now();
    let script = "for i in $(seq 60); do sleep 61 & echo $! >> pids; done; wait";
    let (ended, _) = block_on(bench.run(&["sh", "-c", script], limits));
    let why = ended.unwrap_err();
    assert!(
        why.contains("more than 20 processes") || why.contains("ork"),
        "{why}"
    );
    assert!(began.elapsed() < Duration::from_secs(15));
    assert!(bench.pids("pids", 1).into_iter().all(|pid| !is_alive(pid)));
}

/// For longer than it takes to look, twice.
fn as_many_processes_as_permitted_are_left_alone() {
    let bench = Bench::new();
    let limits = CommandLimits {
        processes: 40,
        ..CommandLimits::default()
    };
    let script = "for i in $(seq 25); do sleep 2.5 & done; wait; echo done";
    let (ended, out) = block_on(bench.run(&["sh", "-c", script], limits));
    assert_eq!((ended, out.as_str()), (Ok(()), "done\n"));
}

fn what_a_command_leaves_may_finish_a_line_and_is_ended() {
    let bench = Bench::new();
    let script = "rm -f said; (while [ ! -e said ]; do sleep 0.01; done; echo late) & (sleep 30; \
                  echo never) & echo $! > pids; echo soon; : > said";
    let began = Instant::now();
    // On a busy machine the line may come too late, but not each time.
    let is_whole = (0..10).any(|_| {
        let (ended, out) = block_on(bench.sh(script));
        assert!(ended.is_ok() && !out.contains("never"), "{ended:?}: {out}");
        out == "soon\nlate\n"
    });
    assert!(is_whole && began.elapsed() < Duration::from_secs(25));
    assert!(!is_alive(bench.pids("pids", 1)[0]));
    // One that leaves nothing is not waited for.
    let began = Instant::now();
    (0..5).for_each(|_| block_on(bench.sh("true")).0.unwrap());
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
}

fn who_leaves_the_group_is_ended_too() {
    let bench = Bench::new();
    let script = "setsid sh -c 'trap \"\" TERM HUP INT; echo $$ >> pids; sleep 62 & echo $! >> \
         pids; wait' & python3 -c 'import os, time\nif os.fork() == 0:\n os.setsid()\n if \
         os.fork() == 0:\n  open(\"pids\", \"a\").write(f\"{os.getpid()}\\n\"); time.sleep(62)' & \
         while [ \"$(wc -l < pids)\" -lt 3 ]; do sleep 0.02; done";
    fs::write(bench.dir().join("pids"), "").unwrap();
    let (ended, _) = block_on(bench.sh(script));
    ended.unwrap();
    let pids = bench.pids("pids", 3);
    assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
}

fn a_call_that_is_given_up_leaves_nothing() {
    let bench = Bench::new();
    let script = "echo $$ > pids; setsid sleep 63 & echo $! >> pids; sleep 63";
    let written = || fs::read_to_string(bench.dir().join("pids")).unwrap_or_default();
    block_on(async {
        tokio::select! {
            (ended, _) = bench.sh(script) => panic!("it sleeps: {ended:?}"),
            () = async {
                while written().lines().count() < 2 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            } => {}
        }
        let pids = bench.pids("pids", 2);
        wait_until("both are gone", || pids.iter().all(|pid| !is_alive(*pid)));
    });
}

fn a_command_writes_where_it_may_and_its_folder_goes() {
    let bench = Bench::new();
    if !bench.confines {
        return skip("landlock", "this system cannot confine");
    }
    let outside = tempfile::tempdir().unwrap();
    let script = format!(
        "echo in > in; echo here > \"$TMPDIR/here\" && echo \"$TMPDIR\"; echo out > {}/out || echo \
         refused",
        outside.path().display()
    );
    let (ended, out) = block_on(bench.sh(&script));
    ended.unwrap();
    let (folder, rest) = out.split_once('\n').unwrap();
    assert_eq!(rest, "refused\n");
    assert!(
        !Path::new(folder).exists() && folder.contains("dormouse-"),
        "{folder}"
    );
    assert!(bench.dir().join("in").exists() && !outside.path().join("out").exists());
}

fn a_command_moves_neither_its_guard_nor_the_kernel() {
    let bench = Bench::new();
    if !bench.confines {
        return skip("landlock", "this system cannot confine");
    }
    let script = format!(
        "import os\nfor pid in [os.getppid(), {}, 0]:\n try: os.sched_setaffinity(pid, \
         os.sched_getaffinity(0)); print('moved')\n except PermissionError: print('refused')",
        process::id()
    );
    let (ended, out) = block_on(bench.run(&["python3", "-c", &script], CommandLimits::default()));
    assert_eq!((ended, out.as_str()), (Ok(()), "refused\nrefused\nmoved\n"));
}

fn a_command_does_not_outlive_its_guard() {
    let bench = Bench::new();
    block_on(async {
        let call = bench.sh("echo $$ $PPID > pids; sleep 64");
        let kill = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let pids = bench.pids("pids", 2);
            kill_process(Pid::from_raw(pids[1]).unwrap(), Signal::KILL).unwrap();
            pids
        };
        let ((ended, _), pids) = tokio::join!(call, kill);
        assert!(ended.is_err(), "its guard was killed");
        wait_until("the command is gone", || !is_alive(pids[0]));
    });
}

/// A kernel in a process of its own, which does not outlive its test.
struct Kernel(process::Child);

impl Kernel {
    fn end(&mut self) {
        // It may have ended before.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.end();
    }
}

/// What the program itself was started with goes to no command either.
fn nothing_outlives_a_kernel_that_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().canonicalize().unwrap();
    let mut start = process::Command::new("sh");
    start
        .args(["-c", "exec 7</dev/null; exec \"$0\""])
        .arg(std::env::current_exe().unwrap());
    let mut kernel = Kernel(start.env(KERNEL, &folder).spawn().unwrap());
    let bench = Bench::of(&folder);
    let pids = [bench.pids("pids", 2), bench.pids("apart", 1)].concat();
    assert!(pids.iter().all(|pid| is_alive(*pid)), "{pids:?}");
    let open = bench.pids("open", 3);
    assert!(!open.contains(&7), "{open:?}");
    kernel.end();
    wait_until("all are gone", || pids.iter().all(|pid| !is_alive(*pid)));
}
