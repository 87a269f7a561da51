//! Nodes: flags, signals, drains, moves of trees, and what can be read without any.

use std::time::{Duration, Instant};

use crate::world::{World, until};

#[test]
fn a_second_node_takes_its_part_and_gives_it_back_when_it_is_drained() {
    let (world, a) = World::with_node();
    let b = world.node("b", &["--label", "gpu,repo:main"]);
    world.until_ready(2);
    let listed = world.succeeds("nodes");
    assert!(listed.starts_with("NODE"), "{listed}");
    assert!(listed.contains("gpu,repo:main"), "{listed}");
    let pid = world.start("echo.toml --input one");
    world.succeeds("drain b");
    assert!(b.ended_well(), "{}", world.logs());
    world.until_ready(1);
    assert_eq!(world.succeeds(&format!("wait {pid}")), "turn 0: one\n");
    let refused = world.refuses("drain b");
    assert!(
        refused.contains("there is no node 'b'") && refused.contains("are: a"),
        "{refused}"
    );
    a.signal("TERM");
    assert!(a.ended_well());
    assert!(
        world
            .logs()
            .contains("SIGTERM: the node gives up its shards")
    );
}

#[test]
fn a_cluster_can_be_read_while_no_node_runs() {
    let (world, node) = World::with_node();
    let pid = world.start("echo.toml --input hello");
    world.succeeds(&format!("wait {pid}"));
    world.write(
        "open.toml",
        "[model]\nname = 'x'\nprovider = 'scripted'\nscript = 'slow.toml'\n",
    );
    world.write("slow.toml", "[[turn]]\ndelay_ms = 600000\ntext = 'never'\n");
    let open = world.start("open.toml --input hello");
    until("it runs", || world.line_of(open)["status"] == "thinking");
    node.signal("KILL");
    assert!(!node.ended_well());
    until("its leases end", || {
        let ps = world.runs("ps");
        ps.err.contains("its processes wait for one")
    });
    let lines = world.runs("ps --json").json_lines();
    let status = |pid| &lines.iter().find(|line| line["pid"] == pid).unwrap()["status"];
    assert_eq!(
        (status(pid), status(open)),
        (&"done".into(), &"held".into())
    );
    let messages = world.succeeds(&format!("messages {pid}"));
    assert!(messages.contains("turn 0: hello"), "{messages}");
    assert!(world.succeeds(&format!("log {pid}")).contains("exited"));
    world.succeeds(&format!("export {pid} out.dormouse"));
    assert!(world.folder().join("out.dormouse").is_file());
}

#[test]
fn a_tree_moves_to_another_shard() {
    let (world, _node) = World::with_node();
    world.write(
        "wait.toml",
        "[model]\nname = 'x'\nprovider = 'scripted'\nscript = 'slow.toml'\n",
    );
    world.write(
        "slow.toml",
        "[[turn]]\ndelay_ms = 4000\ntext = 'turn {{ turn }}: {{ prompt }}'\n",
    );
    let pid = world.start("wait.toml --input hello");
    let target = (pid >> 40) ^ 1;
    let moved = world.succeeds(&format!("move {pid} {target}"));
    let (new, old) = moved.trim().split_once("  was ").unwrap();
    assert_eq!(old, pid.to_string());
    assert_eq!(new.parse::<u64>().unwrap() >> 40, target);
    // Its old pid names it too.
    assert_eq!(world.succeeds(&format!("wait {pid}")), "turn 0: hello\n");
    assert_eq!(world.succeeds(&format!("wait {new}")), "turn 0: hello\n");
    let refused = world.refuses(&format!("move {pid} 99"));
    assert!(refused.contains("there is no shard 99"), "{refused}");
}

#[test]
fn model_calls_are_shared_by_all_nodes() {
    let world = World::new();
    let flags = ["--shared-model-calls", "1", "--connections", "4"];
    let _nodes = [world.node("a", &flags), world.node("b", &flags)];
    world.until_ready(2);
    world.write(
        "slow.toml",
        "[model]\nname = 'x'\nprovider = 'scripted'\nscript = 's.toml'\n",
    );
    world.write("s.toml", "[[turn]]\ndelay_ms = 1500\ntext = 'done'\n");
    let begun = Instant::now();
    let pids = [(); 4].map(|()| world.start("slow.toml --input hello").to_string());
    world.succeeds(&format!("wait {}", pids.join(" ")));
    assert!(
        begun.elapsed() >= Duration::from_secs(6),
        "{:?}",
        begun.elapsed()
    );
}

#[test]
fn contents_and_records_are_encrypted_by_the_key_of_the_nodes() {
    let world = World::new();
    world.write("key", &"0f".repeat(32));
    world.write("other", &"1f".repeat(32));
    let objects = format!("file://{}/objects", world.folder().display());
    let _node = world.node("a", &["--key-file", "key", "--objects", &objects]);
    world.until_ready(1);
    let large = "a secret line\n".repeat(9000);
    world.write("large.txt", &large);
    let program = crate::world::ECHO.to_owned() + "[tools]\nenabled = ['read_fd']\n";
    world.write("reader.toml", &program);
    let pid = world.start("reader.toml --input-file large.txt");
    let wait = format!("wait {pid} --key-file key");
    // The content is in the object store.
    let refused = world.runs(&format!("export {pid} x.dormouse --key-file key"));
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(refused.err.contains("is in an object store"), "{refused:?}");
    let with_objects = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let mut command = world.command();
        command.args(words).args(["--store", &world.store]);
        crate::world::ran(command.env("DORMOUSE_OBJECTS", &objects))
    };
    assert_eq!(with_objects(&wait).code, 0);
    let export = with_objects(&format!("export {pid} x.dormouse --key-file key"));
    assert_eq!(export.code, 0, "{export:?}");
    assert!(
        std::fs::metadata(world.folder().join("x.dormouse"))
            .unwrap()
            .len()
            > 100_000
    );
    let refused = world.runs(&format!("messages {pid} --key-file other"));
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(refused.err.contains("--key-file"), "{refused:?}");
}
