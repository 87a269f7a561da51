//! What people decide about processes of a cluster: verdicts, limits, and budgets of labels.

use crate::world::World;

const ASKING: &str = "\
[model]
name = 'deployer'
provider = 'scripted'
script = 'deploy.script.toml'
[tools]
enabled = ['ask_user']
ask = ['deploy']
[[tools.command]]
name = 'deploy'
description = 'Deploys the site to a host.'
argv = ['echo', 'deployed to {host}']
parameters.host = { type = 'string', description = 'The host.' }
";
const ASKING_SCRIPT: &str = "\
[[turn]]
when.round = 0
calls = [{ tool = 'ask_user', args = { question = 'Which stage?', choices = ['test', 'live'] } }]
[[turn]]
when.tool = 'ask_user'
calls = [{ tool = 'deploy', args = { host = '{{ last }}.example' } }]
[[turn]]
text = '{{ last }}'
";

fn world() -> (World, crate::world::Node) {
    let world = World::new();
    world.write("deploy.toml", ASKING);
    world.write("deploy.script.toml", ASKING_SCRIPT);
    let node = world.node("a", &["--allow-run=echo"]);
    world.until_ready(1);
    (world, node)
}

/// The one call that waits, by its name.
fn pending(world: &World) -> String {
    let calls = world.runs("pending --json").json_lines();
    assert_eq!(calls.len(), 1, "{calls:?}");
    calls[0]["call"].as_str().unwrap().to_owned()
}

#[test]
fn a_question_is_answered_and_a_call_approved() {
    let (world, _node) = world();
    let ran = world.runs("run deploy.toml --input Deploy");
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(
        ran.err.contains("Which stage?") && !ran.err.contains("Then:"),
        "{ran:?}"
    );
    let call = pending(&world);
    let pid = call.split_once('/').unwrap().0.to_owned();
    let refused = world.refuses(&format!("answer {call} nowhere"));
    assert!(refused.contains(r#""test", "live""#), "{refused}");
    world.succeeds(&format!("answer {call} live"));
    assert_eq!(world.runs(&format!("wait {pid}")).code, 4);
    let call = pending(&world);
    let args = r#"{"host":"live.example.org"}"#;
    let approved = world.runs_words(&["approve", &call, "--args", args]);
    assert_eq!(approved.code, 0, "{approved:?}");
    let result = world.succeeds(&format!("wait {pid}"));
    assert!(result.contains("deployed to live.example.org"), "{result}");
    let late = world.runs(&format!("approve {call}"));
    assert!(late.code == 1 && late.err.contains("has ended"), "{late:?}");
}

#[test]
fn a_call_is_refused_with_a_reason() {
    let (world, _node) = world();
    let pid = world.start("deploy.toml --input Deploy");
    assert_eq!(world.runs(&format!("wait {pid}")).code, 4);
    world.succeeds(&format!("answer {} test", pending(&world)));
    assert_eq!(world.runs(&format!("wait {pid}")).code, 4);
    world.succeeds(&format!("refuse {} Friday", pending(&world)));
    let result = world.succeeds(&format!("wait {pid}"));
    assert!(
        result.contains("Friday") && !result.contains("deployed"),
        "{result}"
    );
}

#[test]
fn a_limit_is_raised() {
    let (world, _node) = World::with_node();
    world.write(
        "tight.toml",
        "[model]\nname = 't'\nprovider = 'scripted'\nscript = 't.toml'\n\
         [budget]\noutput_tokens = 5\nat_limit = 'pause'\n[tools]\nenabled = ['wake_at']\n",
    );
    world.write(
        "t.toml",
        "[[turn]]\nwhen.round = 0\ntext = 'I say at some length what I will do next, and why.'\n\
         calls = [{ tool = 'wake_at', args = { in = '1h', note = 'x' } }]\n[[turn]]\ntext = 'done'\n",
    );
    let ran = world.runs("run tight.toml --input hello --json");
    assert_eq!(ran.code, 4, "{ran:?}");
    let events = ran.json_lines();
    let paused = events
        .iter()
        .find(|event| event["event"] == "paused")
        .unwrap();
    let pid = paused["pid"].as_u64().unwrap();
    assert_eq!(paused["paused"]["amount"], "output_tokens");
    assert_eq!(world.line_of(pid)["status"], "paused");
    let raised = world.runs(&format!("raise {pid} --output-tokens 1"));
    assert_eq!(raised.code, 4, "{raised:?}");
    world.succeeds(&format!("raise {pid} --output-tokens 1000"));
    // It goes on, and then sleeps until its alarm.
    let waited = world.runs(&format!("wait {pid}"));
    assert_eq!(waited.code, 5, "{waited:?}");
}

#[test]
fn a_label_has_a_budget_in_the_whole_cluster() {
    let (world, _node) = World::with_node();
    world.succeeds("label set user=anna --per month --output-tokens 1");
    std::thread::sleep(std::time::Duration::from_secs(1));
    for _ in 0..2 {
        let ran = world.runs("run echo.toml --input hello --label user=anna");
        assert!(ran.code == 0 || ran.code == 5, "{ran:?}");
    }
    let held_up = world.runs("run echo.toml --input hello --label user=anna");
    assert_eq!(held_up.code, 5, "{held_up:?}");
    assert!(held_up.err.contains("user=anna"), "{held_up:?}");
    let listed = &world.runs("label list --json").json_lines()[0];
    assert_eq!(listed["label"], "user=anna");
    assert_eq!(listed["limits"]["output_tokens"]["limit"], "1");
    world.succeeds("label remove user=anna");
    assert!(world.runs("label list --json").json_lines().is_empty());
    let refused = world.refuses("label remove user=anna");
    assert!(refused.contains("has no budget"), "{refused}");
}
