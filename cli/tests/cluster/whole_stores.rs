//! Stores that go into a cluster and come out of it, and single trees as files.

use crate::world::{World, ran};

const SESSION: &str = "[model]\nname = 'x'\nprovider = 'scripted'\nscript = 'ask.script.toml'\n\
                       [tools]\nenabled = ['ask_user']\n";
/// Asks once, and ends with the answer.
const SESSION_SCRIPT: &str = "\
[[turn]]
when.round = 0
calls = [{ tool = 'ask_user', args = { question = 'Which?' } }]
[[turn]]
text = 'it is {{ last }}'
";

fn world() -> (World, crate::world::Node) {
    let (world, node) = World::with_node();
    world.write("ask.toml", SESSION);
    world.write("ask.script.toml", SESSION_SCRIPT);
    (world, node)
}

fn on_folder(world: &World, line: &str) -> crate::world::Ran {
    ran(world.command().args(line.split_whitespace()))
}

#[test]
fn a_store_goes_in_and_comes_out() {
    let (world, _node) = world();
    for input in ["one", "two"] {
        let line = format!("run ask.toml --input {input} --store state");
        assert_eq!(on_folder(&world, &line).code, 4);
    }
    let set = on_folder(
        &world,
        "label set user=anna --per day --output-tokens 50 --store state",
    );
    assert_eq!(set.code, 0, "{set:?}");
    let imported = world.runs("import-store state --name first");
    assert_eq!(imported.code, 0, "{imported:?}");
    assert!(imported.err.contains("user=anna"), "{imported:?}");
    let pids: Vec<_> = imported
        .out
        .lines()
        .map(|line| line.split_once("  was ").unwrap())
        .collect();
    assert_eq!(
        pids.iter().map(|pids| pids.1).collect::<Vec<_>>(),
        ["1", "2"]
    );
    // A second time nothing comes twice.
    assert_eq!(
        world.succeeds("import-store state --name first"),
        imported.out
    );
    let pending = world.runs("pending --json").json_lines();
    assert_eq!(pending.len(), 2, "{pending:?}");
    let first = pids[0].0;
    let call = pending
        .iter()
        .find(|call| call["pid"] == first.parse::<u64>().unwrap())
        .unwrap();
    world.succeeds(&format!("answer {} red", call["call"].as_str().unwrap()));
    assert_eq!(world.succeeds(&format!("wait {first}")), "it is red\n");

    let exported = world.succeeds("export-store out");
    assert_eq!(exported.lines().count(), 2, "{exported}");
    assert_eq!(world.succeeds("export-store out"), exported);
    let lines = on_folder(&world, "ps --json --store out").json_lines();
    let done = lines.iter().filter(|line| line["status"] == "done").count();
    assert_eq!((lines.len(), done), (2, 1), "{lines:?}");
    let pending = on_folder(&world, "pending --json --store out").json_lines();
    let call = pending[0]["call"].as_str().unwrap();
    let answered = on_folder(&world, &format!("answer {call} blue --store out"));
    assert_eq!(answered.code, 0, "{answered:?}");
    let pid = &pending[0]["pid"];
    let resumed = on_folder(&world, &format!("resume {pid} --store out"));
    assert_eq!(
        (resumed.code, &*resumed.out),
        (0, "it is blue\n"),
        "{resumed:?}"
    );
}

#[test]
fn a_tree_comes_as_a_file_and_runs() {
    let (world, _node) = world();
    assert_eq!(
        on_folder(&world, "run ask.toml --input one --store state").code,
        4
    );
    let exported = on_folder(&world, "export 1 one.dormouse --tree --store state");
    assert_eq!(exported.code, 0, "{exported:?}");
    let imported = world.runs("import one.dormouse --resume");
    assert_eq!(imported.code, 4, "{imported:?}");
    let pending = world.runs("pending --json").json_lines();
    let (call, pid) = (pending[0]["call"].as_str().unwrap(), &pending[0]["pid"]);
    assert!(
        imported
            .err
            .contains(&format!("imports process {pid}, which was 1"))
    );
    world.succeeds(&format!("answer {call} green"));
    assert_eq!(world.succeeds(&format!("wait {pid}")), "it is green\n");
    // Another import of the same file is another tree.
    assert_eq!(world.runs("import one.dormouse --resume").code, 4);
    assert_eq!(world.runs("ps --json").json_lines().len(), 2);
}
