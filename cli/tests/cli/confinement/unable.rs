//! Where a command cannot be confined, it is not run.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use serde_json::json;

use super::bench::{Bench, is_root, text};
use super::skip::skip;

/// Where there are no threads left, nothing runs that would not be confined.
#[test]
fn a_command_that_cannot_be_confined_is_not_begun() {
    if !is_root() {
        return skip("root", "only root can become a user with few processes");
    }
    let bench = Bench::new(Some(61_237));
    let call = json!({ "tool": "rsh", "args": { "script": "grep -E '^(NoNewPrivs|Seccomp):' \
         /proc/self/status; echo x > outside/there" } });
    fs::write(bench.base.join("calls"), format!("{call}\n")).unwrap();
    let mut begun = 0;
    for most in 4..24 {
        let line = format!(
            "ulimit -u {most}; exec ./dormouse call program.toml --calls calls --allow-run=sh"
        );
        let mut command = Command::new("bash");
        command
            .args(["-c", &line])
            .current_dir(&bench.base)
            .uid(61_237)
            .gid(61_237)
            .env("TMPDIR", &bench.base);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        begun += u32::from(said.contains("NoNewPrivs:\\t1"));
        assert!(
            !said.contains("NoNewPrivs:\\t0") && !said.contains("Seccomp:\\t0"),
            "{most}: {said}"
        );
        assert_eq!(
            fs::read(bench.base.join("outside/there")).unwrap(),
            b"as it was",
            "{most}: {said}"
        );
    }
    assert!(begun > 0, "it is begun where there is room");
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
    assert!(
        errors.contains("warning: this system has no Landlock"),
        "{errors}"
    );
    for answer in &answers {
        assert!(
            text(answer).contains("--allow-unconfined") && !text(answer).contains("it ran"),
            "{answer}"
        );
    }
    let (answers, errors) = call("--allow-run=sh --allow-unconfined");
    assert!(
        errors.contains("warning: this system has no Landlock"),
        "{errors}"
    );
    assert!(
        answers.len() == 2 && answers.iter().all(|answer| text(answer).contains("it ran")),
        "{answers:?}"
    );
}

/// What is started on a thread that may not use Landlock may not either.
fn without_landlock<T: Send>(start: impl FnOnce() -> T + Send) -> T {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
    const LANDLOCK: [i64; 3] = [444, 445, 446];
    const ENOSYS: u32 = 38;
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let calls = LANDLOCK
                .map(|call| (call, Vec::new()))
                .into_iter()
                .collect();
            let arch = std::env::consts::ARCH.try_into().unwrap();
            let filter = SeccompFilter::new(
                calls,
                SeccompAction::Allow,
                SeccompAction::Errno(ENOSYS),
                arch,
            )
            .unwrap();
            let program: BpfProgram = filter.try_into().unwrap();
            apply_filter(&program).unwrap();
            start()
        });
        thread.join().unwrap()
    })
}
