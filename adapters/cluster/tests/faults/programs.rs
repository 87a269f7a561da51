//! The programs of the swarm: trees whose tools are counters, and listeners, which they write to.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use dormouse_cluster::ProgramFiles;

/// The script of roots, forks and children. The input of a root is `NAME to PID for ROUNDS`. Those
/// that it makes have a name with a dot as their prompt, and call two tools.
const SCRIPT: &str = r#"
[[capture]]
name = "task"
from = "input"
pattern = '(?<me>[a-z0-9]+) to (?<peer>\d+) for (?<rounds>\d+)'

[[turn]]
when.holds = "'.' in prompt and round == 0"
delay_ms = 120
calls = [{ tool = "once", args = { id = "{{ prompt }}-0" } }]
[[turn]]
when.holds = "'.' in prompt and round == 1"
delay_ms = 120
calls = [{ tool = "again", args = { id = "{{ prompt }}-1" } }]
[[turn]]
when.holds = "'.' in prompt"
text = "{{ prompt }} is done"

[[turn]]
when.holds = "round >= task.rounds|int"
text = "{{ task.me }} is done"
[[turn]]
when.holds = "round % 8 == 1"
delay_ms = 150
calls = [
    { tool = "once", args = { id = "{{ task.me }}-{{ round }}a" } },
    { tool = "again", args = { id = "{{ task.me }}-{{ round }}b" } },
]
[[turn]]
when.holds = "round % 8 == 2"
calls = [{ tool = "large", args = { id = "{{ task.me }}-{{ round }}" } }]
[[turn]]
when.holds = "round % 8 == 3"
calls = [{ tool = "fork", args = { prompts = ["{{ task.me }}.f{{ round }}.0", "{{ task.me }}.f{{ round }}.1"] } }]
[[turn]]
when.holds = "round % 8 == 4"
calls = [{ tool = "spawn", args = { program_name = "child", query = "{{ task.me }}.s{{ round }}" } }]
[[turn]]
when.holds = "round % 8 == 5"
calls = [{ tool = "send_message", args = { to = "{{ task.peer }}", text = "note {{ task.me }}-{{ round }}." } }]
[[turn]]
when.holds = "round % 8 == 6"
delay_ms = 100
calls = [{ tool = "again", args = { id = "{{ task.me }}-{{ round }}" } }]
[[turn]]
delay_ms = 200
calls = [{ tool = "once", args = { id = "{{ task.me }}-{{ round }}" } }]
"#;

/// What every call does first: it appends the number of its shell, and the time, to the file of the
/// call, and says the same. So a call that ran twice has two lines.
const COUNT: &str =
    r#"read up rest < /proc/uptime; echo "$$.$up" >> "LEDGER/$0"; echo "ran $$.$up"; "#;

fn tools(ledger: &Path) -> String {
    let tool = |name: &str, idempotent: bool, and_then: &str| {
        let count = COUNT.replace("LEDGER", &ledger.display().to_string());
        format!(
            "[[tools.command]]\nname = '{name}'\ndescription = 'Counts.'\n\
             argv = ['sh', '-c', '''{count}{and_then}''', '{{id}}']\n\
             parameters.id = {{ type = 'string', description = 'The call.' }}\n\
             access = 'write'\nidempotent = {idempotent}\n"
        )
    };
    [
        tool("once", false, "sleep 0.1"),
        tool("again", true, "sleep 0.05"),
        // Larger than what is kept in the database, and different for each call.
        tool("large", true, r#"yes "$0 $$.$up" | head -c 100000"#),
    ]
    .concat()
}

/// A tree, whose calls count in files of the folder.
pub(crate) fn tree(ledger: &Path) -> ProgramFiles {
    let head = "[model]\nname = 'tree'\nprovider = 'scripted'\nscript = 'script.toml'\n\
                max_iterations = 200\n";
    let tools = tools(ledger);
    let root = format!(
        "{head}[tools]\nenabled = ['read_fd', 'fork', 'spawn', 'send_message']\n{tools}\
         [linked_programs]\nchild = {{ path = 'child.toml', description = 'Counts.' }}\n"
    );
    let child = format!("{head}{tools}");
    files(&[
        ("tree.toml", &root),
        ("child.toml", &child),
        ("script.toml", SCRIPT),
    ])
}

/// A session that is written to.
pub(crate) fn listener() -> ProgramFiles {
    let root = "[model]\nname = 'listener'\nprovider = 'scripted'\nscript = 'script.toml'\n";
    let script = "[[turn]]\ntext = 'I have heard it.'\n";
    files(&[("listener.toml", root), ("script.toml", script)])
}

/// A program whose main file is the first one.
fn files(files: &[(&str, &str)]) -> ProgramFiles {
    let entry = files[0].0;
    let file = |(name, text): &(&str, &str)| ((*name).to_owned(), Bytes::from((*text).to_owned()));
    let files: BTreeMap<_, _> = files.iter().map(file).collect();
    ProgramFiles::new(entry, files)
}
