//! The commands of all stores, on a cluster.

use crate::world::{World, until};

const SLOW: &str = "[model]\nname = 'x'\nprovider = 'scripted'\nscript = 'slow.script.toml'\n";
const SLOW_SCRIPT: &str = "[[turn]]\ndelay_ms = 600000\ntext = 'never'\n";

#[test]
fn a_run_prints_the_result_and_what_it_was_is_there() {
    let (world, _node) = World::with_node();
    let ran = world.runs("run echo.toml --input hello --label user=anna");
    assert_eq!((ran.code, &*ran.out), (0, "turn 0: hello\n"), "{ran:?}");
    assert!(ran.err.contains("echo"), "{ran:?}");
    let ran = world.runs("run echo.toml --input again --json");
    let events = ran.json_lines();
    let find = |event| events.iter().find(|it| it["event"] == event).unwrap();
    assert_eq!(find("result")["message"], "turn 0: again");
    let pid = find("result")["pid"].as_u64().unwrap();
    assert_eq!(find("tree")["processes"][0]["pid"], pid);
    assert!(
        events
            .iter()
            .any(|it| it["event"] == "exited" && it["pid"] == pid)
    );

    let lines = world.runs("ps --json").json_lines();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines.iter().all(|line| line["status"] == "done"));
    let labels = lines.iter().map(|line| line["labels"].to_string());
    assert_eq!(
        labels.filter(|labels| labels.contains("user=anna")).count(),
        1
    );

    // A message opens it again.
    let sent = world.runs(&format!("send {pid} more"));
    assert_eq!((sent.code, &*sent.out), (0, "turn 1: more\n"), "{sent:?}");
    let messages = world.succeeds(&format!("messages {pid}"));
    assert!(messages.contains("turn 1: more"), "{messages}");
    let log = world.runs(&format!("log {pid} --json --from 1"));
    let exits = log.json_lines();
    assert_eq!(
        exits.iter().filter(|fact| fact["name"] == "exited").count(),
        2
    );
}

#[test]
fn a_point_is_named_and_continued_from() {
    let (world, _node) = World::with_node();
    let pid = world.start("echo.toml --input one");
    world.succeeds(&format!("wait {pid}"));
    assert_eq!(
        world.succeeds(&format!("checkpoint {pid} --label first --tree")),
        "cp:1\n"
    );
    let checkpoints = world.succeeds("checkpoints");
    assert!(checkpoints.contains("first") && checkpoints.contains(&format!("{pid}@")));
    let branched = world.succeeds(&format!("branch {pid}@cp:1 --input two --json"));
    let result = branched
        .lines()
        .find(|line| line.contains(r#""event":"result""#))
        .unwrap();
    let result: serde_json::Value = serde_json::from_str(result).unwrap();
    assert_eq!(result["message"], "turn 1: two");
    let branch = result["pid"].as_u64().unwrap();
    assert_ne!(branch, pid);
    let diff = world.succeeds(&format!("diff {pid} {branch}"));
    assert!(diff.contains("two"), "{diff}");
    assert!(
        world
            .succeeds(&format!("messages {pid}@cp:1"))
            .contains("turn 0: one")
    );
}

#[test]
fn trees_that_ended_are_collected_in_all_shards() {
    let (world, _node) = World::with_node();
    let pids = [(); 3].map(|()| world.start("echo.toml --input hello"));
    for pid in pids {
        world.succeeds(&format!("wait {pid}"));
    }
    let counted = world.succeeds("gc --dry-run --drop-ended 0s");
    assert!(
        counted.contains("would delete  0 checkpoints, 3 processes"),
        "{counted}"
    );
    assert_eq!(world.succeeds("ps --json").lines().count(), 3);
    let kept = world.succeeds("gc --drop-ended 1d");
    assert!(kept.contains(" 0 processes"), "{kept}");
    let deleted = world.succeeds("gc --drop-ended 0s");
    assert!(
        deleted.contains("deleted  0 checkpoints, 3 processes"),
        "{deleted}"
    );
    assert_eq!(world.succeeds("ps --json"), "");
}

#[test]
fn a_shard_that_no_node_has_is_kept_and_named() {
    let (world, node) = World::with_node();
    let pid = world.start("echo.toml --input hello");
    world.succeeds(&format!("wait {pid}"));
    drop(node);
    let ran = world.runs("gc --drop-ended 0s");
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.out.contains("not collected, so all of"), "{ran:?}");
}

#[test]
fn signals_stop_continue_and_kill() {
    let (world, _node) = World::with_node();
    world.write("slow.toml", SLOW);
    world.write("slow.script.toml", SLOW_SCRIPT);
    let pid = world.start("slow.toml --input hello");
    until("it calls its model", || {
        world.line_of(pid)["status"] == "thinking"
    });
    world.succeeds(&format!("signal stop {pid} --tree"));
    let waited = world.runs(&format!("wait {pid}"));
    assert_eq!(waited.code, 0, "{waited:?}");
    assert!(
        waited.err.contains(&format!("process {pid} is stopped")),
        "{waited:?}"
    );
    assert_eq!(world.line_of(pid)["status"], "stopped");
    let resumed = world.succeeds(&format!("resume {pid} --detach"));
    assert_eq!(resumed, format!("{pid}\n"));
    until("it goes on", || world.line_of(pid)["status"] == "thinking");
    world.succeeds(&format!("signal kill {pid}"));
    let waited = world.runs(&format!("wait {pid}"));
    assert_eq!(waited.code, 1, "{waited:?}");
    assert!(waited.err.contains("killed"), "{waited:?}");
}

#[test]
fn a_signal_to_the_command_leaves_the_process_alone() {
    let (world, _node) = World::with_node();
    world.write("slow.toml", SLOW);
    world.write("slow.script.toml", SLOW_SCRIPT);
    let pid = world.start("slow.toml --input hello");
    let mut wait = world.command();
    wait.args(["wait", &pid.to_string(), "--store", &world.store]);
    let wait = wait.stderr(std::process::Stdio::piped()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_secs(2));
    let kill = std::process::Command::new("kill")
        .args(["-INT", &wait.id().to_string()])
        .status();
    assert!(kill.unwrap().success());
    let output = wait.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains(&format!("dormouse wait {pid} --store")),
        "{said}"
    );
    assert_eq!(world.line_of(pid)["status"], "thinking");
}

#[test]
fn an_alarm_ends_a_wait_unless_it_is_waited_for() {
    let (world, _node) = World::with_node();
    world.write(
        "sleeper.toml",
        "[model]\nname = 's'\nprovider = 'scripted'\nscript = 's.toml'\n[tools]\nenabled = ['wake_at']\n",
    );
    world.write(
        "s.toml",
        "[[turn]]\nwhen.contains = '<alarm id'\ntext = 'awake'\n\
         [[turn]]\nwhen.round = 0\ncalls = [{ tool = 'wake_at', args = { in = '20s', note = 'up' } }]\n\
         [[turn]]\ntext = 'I rest'\n",
    );
    let ran = world.runs("run sleeper.toml --input hello");
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.err.contains("when the cluster goes on"), "{ran:?}");
    let alarms = world.runs("alarms --json").json_lines();
    assert_eq!(alarms.len(), 1, "{alarms:?}");
    let pid = &alarms[0]["pid"];
    let ran = world.runs(&format!("wait {pid} --wait"));
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(world.runs("alarms --json").json_lines().is_empty());
}
