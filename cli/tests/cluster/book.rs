//! The chapter of the commands on a cluster, run as it is written.

use std::process::Command;

use dormouse_tests::book::blocks_of;

use crate::world::{World, ran};

/// What separates the outputs of blocks.
const SEPARATOR: &str = "\u{1e}";

/// A text without white space at the ends of its lines.
fn trimmed(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(str::trim_end).collect();
    lines.join("\n").trim().to_owned()
}

#[test]
fn the_chapter_does_what_it_says() {
    let (world, _node) = World::with_node();
    let blocks = blocks_of("docs/cluster-commands.md");
    for block in blocks.iter().filter(|block| block.tags[0] == "toml") {
        world.write(
            block.file_name().expect("a file says its name"),
            &block.text,
        );
    }
    // What `examples/cluster/up` writes.
    std::fs::create_dir_all(world.folder().join("target/cluster")).unwrap();
    let env = format!("export DORMOUSE_STORE='{}'\n", world.store);
    world.write("target/cluster/env", &env);

    let is_command = |tags: &[String]| tags == ["sh", "cluster"];
    let commands = blocks.iter().filter(|block| is_command(&block.tags));
    // One shell, since blocks use the variables of those before.
    let mut script = format!(
        "set -eo pipefail\ndormouse() {{ '{}' \"$@\"; }}\n",
        env!("CARGO_BIN_EXE_dormouse")
    );
    for block in commands.clone() {
        script += &format!("{}\nprintf '{SEPARATOR}'\n", block.text);
    }
    let mut bash = Command::new("bash");
    for (name, value) in world.command().get_envs() {
        match value {
            Some(value) => bash.env(name, value),
            None => bash.env_remove(name),
        };
    }
    let ran = ran(bash.args(["-c", &script]).current_dir(world.folder()));
    assert_eq!(ran.code, 0, "{ran:?}\n{}", world.logs());

    let printed: Vec<_> = ran.out.split(SEPARATOR).collect();
    assert_eq!(printed.len(), commands.count() + 1);
    let mut number = 0;
    let mut compared = 0;
    for block in &blocks {
        if is_command(&block.tags) {
            number += 1;
        }
        if block.is(&["text", "output"]) {
            let expected = trimmed(&block.text);
            assert_eq!(trimmed(printed[number - 1]), expected, "{}", block.place());
            compared += 1;
        }
    }
    assert_eq!((number, compared), (7, 2));
    let greeting = std::fs::read_to_string(world.folder().join("greeting")).unwrap();
    assert_eq!(greeting, "You wrote: Good morning.\n");
    assert!(printed[2].contains("You said yes."), "{}", printed[2]);
    assert!(
        printed[5].contains("You wrote: Thank you."),
        "{}",
        printed[5]
    );
}
