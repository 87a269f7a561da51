//! What is not to be had on a cluster, and what the error says instead.

use crate::world::{World, ran};

#[test]
fn a_command_that_has_no_meaning_on_a_cluster_says_what_to_use() {
    // None of them needs a node, or tables.
    let world = World::new();
    let cases = [
        ("gc --live-percent 50", "no segments"),
        ("gc --despite-damage", "keeps its contents"),
        ("gc --pin v1", "--keep-checkpoints N"),
        ("fsck", "pg_amcheck"),
        ("restore cp:1", "dormouse branch PID@cp:N"),
        ("race 1@3", "dormouse export --tree"),
        ("call echo.toml --calls x", "name a folder"),
        ("mcp echo.toml", "name a folder"),
        ("import x.dormouse", "--resume"),
    ];
    for (line, expected) in cases {
        let said = world.refuses(line);
        assert!(said.contains(expected), "{line}: {said}");
    }
    assert!(!world.folder().join("postgres:").exists());
}

#[test]
fn flags_of_processes_that_run_here_are_refused() {
    let (world, _node) = World::with_node();
    let flags = ["--allow-run=echo", "--record x", "--unattended"];
    for flag in flags {
        let said = world.refuses(&format!("run echo.toml --input hello {flag}"));
        assert!(said.contains("dormouse node --help"), "{flag}: {said}");
    }
    let said = world.refuses("resume");
    assert!(said.contains("dormouse wait PID"), "{said}");
    let said = world.refuses("branch 1 --effects run");
    assert!(said.contains("--effects"), "{said}");
    assert_eq!(
        world.succeeds("ps").lines().count(),
        1,
        "nothing was started"
    );
}

#[test]
fn what_is_not_there_is_said() {
    let (world, _node) = World::with_node();
    for line in [
        "wait 77",
        "send 77 hello",
        "signal kill 77",
        "checkpoint 77",
        "log 77",
        "messages 77",
        "raise 77 --output-tokens 1",
        "approve 77/0.1",
        "branch 77",
    ] {
        let said = world.refuses(line);
        assert!(said.contains("77"), "{line}: {said}");
    }
    // Its shard is not there either.
    let said = world.refuses(&format!("log {}", 99_u64 << 40));
    assert!(said.contains("shard 99"), "{said}");
}

#[test]
fn a_password_is_neither_an_argument_nor_said() {
    let world = World::new();
    let (head, tail) = world.store.split_once('@').unwrap();
    let store = format!("{head}:s3cret@{tail}");
    for line in ["ps", "nodes", "run echo.toml --input hello", "drain a"] {
        let words = line.split_whitespace();
        let refused = ran(world.command().args(words).args(["--store", &store]));
        assert_eq!(refused.code, 2, "{line}: {refused:?}");
        assert!(
            refused.err.contains("DORMOUSE_DATABASE_PASSWORD_FILE"),
            "{refused:?}"
        );
        assert!(!refused.err.contains("s3cret"), "{refused:?}");
    }
    let wrong = ran(world
        .command()
        .args(["nodes", "--store", &world.store])
        .env("PGPASSWORD", "s3cret"));
    assert_eq!(wrong.code, 3, "{wrong:?}");
    assert!(!wrong.err.contains("s3cret"), "{wrong:?}");
}

#[test]
fn a_schema_without_tables_is_read_as_such_and_not_made() {
    let world = World::new();
    for _ in 0..2 {
        let said = world.refuses("ps");
        assert!(said.contains("has the version 0 of the tables"), "{said}");
    }
}

#[test]
fn a_folder_has_nobody_to_go_on_in() {
    let world = World::new();
    let words = [
        "run",
        "echo.toml",
        "--input",
        "hello",
        "--store",
        "state",
        "--detach",
    ];
    let refused = ran(world.command().args(words));
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(
        refused.err.contains("--detach is for clusters"),
        "{refused:?}"
    );
    assert!(!world.folder().join("state").exists());
}
