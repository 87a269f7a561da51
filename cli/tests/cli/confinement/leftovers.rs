//! Nothing that a command started outlives it, or the kernel.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::json;

use super::bench::{Bench, PROGRAM, tell};

/// Programs that a command of this test started, by the word that they carry.
fn running(word: &str) -> usize {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines
        .filter(|line| line.windows(word.len()).any(|part| part == word.as_bytes()))
        .count()
}

/// Ways to leave a process behind: in the group, beside it, in a session of its own, as a daemon,
/// deaf to signals.
fn leaving(word: &str) -> String {
    let sleep = format!("sleep 98{word}");
    format!(
        "{sleep} & setsid {sleep} & (setsid sh -c '{sleep} & {sleep} & wait' &) & sh -c 'trap \"\" \
         TERM HUP INT; {sleep}' & python3 -c 'import os,sys,time\nif os.fork() == 0:\n \
         os.setsid()\n if os.fork() == 0:\n  os.execvp(\"sleep\", [\"sleep\", \"98{word}\"])' & \
         python3 -c 'import ctypes,os\nif os.fork() == 0:\n os.setsid()\n \
         ctypes.CDLL(None).prctl(15, b\"\\xff\\xfe\", 0, 0, 0)\n import time\n \
         time.sleep(98{word})' & echo begun > inside/deep/begun; sleep 98{word}"
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
    let kills = std::env::var("DORMOUSE_KILLS")
        .ok()
        .and_then(|kills| kills.parse().ok())
        .unwrap_or(10_u32);
    let mut left = 0;
    let mut slowest = Duration::ZERO;
    for kill in 0..kills {
        let bench = Bench::new(None);
        let word = format!("2{:08}{kill:04}", std::process::id());
        let program = PROGRAM.replace("enabled = [\"read_fd\"]", "enabled = [\"read_fd\"]\n");
        fs::write(
            bench.base.join("program.toml"),
            format!("{program}\n[prompt]\nuser = \"go\"\n"),
        )
        .unwrap();
        let call = format!(
            "[[turn]]\ncalls = [{{ tool = \"sh\", args = {{ script = {} }} }}]\n",
            json!(leaving(&word))
        );
        fs::write(bench.base.join("script.toml"), call).unwrap();
        let flags = "run program.toml --allow-run=sh --allow-write=inside --store inside/store";
        let mut child = bench
            .command(flags)
            .process_group(0)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let began = Instant::now();
        // At any moment from the first command on.
        let is_begun =
            |at: Duration| bench.base.join("inside/deep/begun").exists() || began.elapsed() > at;
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
        let temporary = temporary
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("dormouse-"))
            .count();
        assert!(
            temporary == 0 || count > 0,
            "a folder for temporary files was left"
        );
    }
    tell(&format!(
        "{kills} kernels killed, {left} processes left after a second, the last gone after \
         {slowest:?}"
    ));
    assert_eq!(left, 0);
}
