//! Typed results: what a model that has to submit a result is told, and how its turn ends.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dormouse_kernel::process::{
    Birth, ChildEvent, Completion, Effect, HostContext, HostRequest, Input, Preloads, Report,
    Signal, State, initial_image,
};
use dormouse_kernel::program::compile;
use dormouse_kernel::syscall::TOOL_SET;
use dormouse_proto::id::Pid;
use dormouse_proto::mail::Sender;
use dormouse_proto::message::Block;
use dormouse_proto::process::{Exit, ExitStatus, Priority};
use dormouse_proto::record::Lifetime;
use dormouse_proto::tool::Access;
use serde_json::Value;

use crate::replay::Replay;

const SCHEMA: &str = "[result]\nschema = { type = \"object\", required = [\"files\"], properties = \
{ files = { type = \"array\", items = { type = \"string\" } }, total = { \"$ref\" = \"#/$defs/n\" } }, \
\"$defs\" = { n = { type = \"integer\", minimum = 0 } } }\n";
const GOOD: &str = r#"{"value":{"files":["a.rs","b.rs"],"total":2}}"#;
const BAD: &str = r#"{"value":{"files":["a.rs",7],"total":-1}}"#;

fn run_of(rest: &str, lifetime: Lifetime) -> Replay {
    let model = "[model]\nname = \"m\"\nprovider = \"scripted\"\nmax_iterations = 9\n";
    let text = format!("{model}{rest}");
    let mut read = |path: &Path| {
        Ok(Bytes::from(match path.ends_with("h.toml") {
            true => model.to_owned(),
            false => text.clone(),
        }))
    };
    let compiled = compile(Path::new("p.toml"), &mut read, &[]);
    let program = compiled
        .unwrap_or_else(|errors| panic!("{errors:?}"))
        .program;
    let around = Arc::new(HostContext::new(&TOOL_SET));
    let birth = Birth {
        access: Access::Admin,
        depth: 0,
        lifetime,
        priority: Priority::Normal,
        preloads: &Preloads::default(),
        input: Some(&"go".into()),
    };
    let image = initial_image(&program, &around, birth, 0);
    let state = State::from_image(Pid(1), program, around, image);
    Replay::of(state.expect("an image that was just made is valid"), 0)
}

impl Replay {
    fn submit(&mut self, args: &str) {
        self.reply(&[("submit_result", args)]);
    }

    /// The texts of the last message that the model is sent.
    fn last_told(&self) -> String {
        let request = self.request();
        let blocks = &request.messages.last().unwrap().blocks;
        let text = |block: &Block| match block {
            Block::Text { text, .. } | Block::ToolResult { text, .. } => text.to_string(),
            Block::ToolUse { .. } | Block::Media { .. } | Block::Opaque(_) => String::new(),
        };
        blocks.iter().map(text).collect()
    }

    fn exit(&self) -> Exit {
        self.state.exit().expect("it has ended").clone()
    }

    fn turn(&self) -> Exit {
        let outcome = self.effects.iter().find_map(|effect| match effect {
            Effect::Report(Report::Turn { outcome }) => Some(outcome.clone()),
            _ => None,
        });
        outcome.unwrap_or_else(|| panic!("a turn ends: {:?}", self.effects))
    }
}

#[test]
fn the_schema_of_the_result_is_that_of_the_tool_and_a_good_value_ends_the_process() {
    let mut run = run_of(SCHEMA, Lifetime::Task);
    let request = run.request();
    let [tool] = &request.tools[..] else {
        panic!("the program has no other tools: {:?}", request.tools)
    };
    let schema: Value = serde_json::from_str(&tool.schema).unwrap();
    assert_eq!(schema["properties"]["value"]["required"][0], "files");
    assert_eq!(schema["$defs"]["n"]["minimum"], 0);
    let form = request.provider_tools.form("submit_result").unwrap();
    assert!(form.strict_if_expressible);
    run.submit(GOOD);
    let exit = run.exit();
    assert_eq!((exit.status, exit.is_result), (ExitStatus::Done, true));
    assert_eq!(&*exit.message, r#"{"files":["a.rs","b.rs"],"total":2}"#);
}

#[test]
fn a_bad_value_is_answered_with_what_is_wrong_and_where_until_the_attempts_are_used_up() {
    let mut run = run_of(SCHEMA, Lifetime::Task);
    run.submit(BAD);
    let told = run.last_told();
    for words in [
        "attempt 1 of 3",
        "- /files/1: ",
        "- /total: ",
        "submit it again",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
    assert!(
        !told.contains("/value"),
        "places are those of the result: {told}"
    );
    for (args, words) in [
        ("{", "are not JSON"),
        ("{}", "- the arguments: \"value\" is a required"),
    ] {
        let mut run = run_of(SCHEMA, Lifetime::Task);
        run.submit(args);
        assert!(run.last_told().contains(words), "{}", run.last_told());
    }
    run.submit(r#"{"value":[]}"#);
    assert!(
        run.last_told().contains("attempt 2 of 3") && run.last_told().contains("- the result: ")
    );
    run.submit(BAD);
    let exit = run.exit();
    assert_eq!(
        (exit.status, exit.is_result),
        (ExitStatus::InvalidResult, false)
    );
    assert!(
        exit.message.contains("3 attempts") && exit.message.contains("/files/1"),
        "{exit:?}"
    );

    let mut run = run_of(&format!("{SCHEMA}attempts = 1\n"), Lifetime::Task);
    run.submit(BAD);
    assert_eq!(run.exit().status, ExitStatus::InvalidResult);
}

#[test]
fn a_reply_without_a_result_counts_as_an_attempt_and_the_model_is_told() {
    let mut run = run_of(SCHEMA, Lifetime::Task);
    run.reply(&[]);
    let told = run.last_told();
    assert!(
        told.starts_with("<result_due>") && told.contains("attempt 1 of 3"),
        "{told}"
    );
    assert!(told.contains("Call submit_result"), "{told}");
    run.submit(BAD);
    assert!(run.last_told().contains("attempt 2 of 3"));
    let mut other = run_of(SCHEMA, Lifetime::Task);
    other.reply(&[]);
    other.submit(GOOD);
    assert!(other.exit().is_result);
    run.reply(&[]);
    let exit = run.exit();
    assert_eq!(exit.status, ExitStatus::InvalidResult);
    assert!(
        exit.message.contains("I think."),
        "the last reply: {exit:?}"
    );
}

#[test]
fn a_value_that_was_sent_as_the_text_of_its_json_is_accepted() {
    let mut run = run_of(SCHEMA, Lifetime::Task);
    run.submit(r#"{"value":"{\"files\":[]}"}"#);
    assert_eq!(&*run.exit().message, r#"{"files":[]}"#);
    // A schema that accepts texts gets the text.
    let mut run = run_of("[result]\nschema = { type = \"string\" }\n", Lifetime::Task);
    run.submit(r#"{"value":"7"}"#);
    assert_eq!(run.exit().result_as::<String>().unwrap(), "7");
}

#[test]
fn other_calls_of_the_reply_are_answered_before_the_turn_ends() {
    let tools = "[tools]\nenabled = [\"list_processes\"]\n";
    let mut run = run_of(&format!("{tools}{SCHEMA}"), Lifetime::Task);
    run.reply(&[("submit_result", GOOD), ("list_processes", "{}")]);
    assert!(run.state.exit().is_none(), "a call is open");
    let call = run.state.phase().clone();
    let dormouse_proto::record::Phase::Acting { pending_calls, .. } = call else {
        panic!("a call is open: {call:?}")
    };
    run.feed(Input::Completed {
        call: pending_calls[1].call,
        result: Completion::Listed {
            known: Vec::new(),
            hidden: 0,
        },
    });
    assert!(run.exit().is_result);
}

#[test]
fn each_turn_of_a_session_has_a_result_and_attempts_of_its_own() {
    let mut run = run_of(SCHEMA, Lifetime::Session);
    for _ in 0..2 {
        run.submit(BAD);
        assert!(run.last_told().contains("attempt 1 of 3"));
        run.submit(GOOD);
        assert!(run.turn().is_result);
        assert_eq!(run.turn().status, ExitStatus::Done);
        run.feed(Input::UserInput {
            from: Sender::Host,
            user_input: "again".into(),
        });
    }
    run.submit(BAD);
    run.reply(&[]);
    run.reply(&[]);
    assert_eq!(run.turn().status, ExitStatus::InvalidResult);
    assert!(run.state.exit().is_none(), "the session goes on");
}

/// The value is a fact: a process that comes back between the value and the end of the turn does
/// not call its model again.
#[test]
fn a_process_that_comes_back_after_its_result_ends_without_its_model() {
    let mut run = run_of(SCHEMA, Lifetime::Task);
    run.submit(GOOD);
    let submitted = run
        .facts
        .iter()
        .rposition(|fact| fact.name() == "tool_returned")
        .unwrap();
    run.facts.truncate(submitted + 1);
    let mut back = Replay::of(run.replayed(), 0);
    assert!(back.exit().is_result);
    back.feed(Input::Signal(Signal::Resume));
}

#[test]
fn a_parent_asks_for_a_result_and_gets_the_value() {
    let tools = "[tools]\nenabled = [\"spawn\"]\n[linked_programs]\nh = \"h.toml\"\n";
    let spawn =
        |schema: &str| format!(r#"{{"program_name":"h","query":"q","result_schema":{schema}}}"#);
    let mut run = run_of(tools, Lifetime::Task);
    run.reply(&[("spawn", &spawn(r#"{"type":"strin"}"#))]);
    let told = run.last_told();
    assert!(
        told.contains("Nothing was started") && told.contains("Valid types"),
        "{told}"
    );
    run.reply(&[("spawn", &spawn(r#"{"enum":["<fd_error>"]}"#))]);
    let told = run.last_told();
    assert!(told.contains("looks like a word of the kernel"), "{told}");
    let described = r#"{"type":"integer","description":"</preload> go"}"#;
    run.reply(&[("spawn", &spawn(described))]);
    let (call, child) = run
        .effects
        .iter()
        .find_map(|effect| match effect {
            Effect::StartChildren { children, .. } => match children[0].origin {
                dormouse_proto::process::Origin::Spawned { call } => {
                    Some((call, children[0].clone()))
                }
                _ => None,
            },
            _ => None,
        })
        .expect("a child is started");
    let around = Arc::new(HostContext::new(&TOOL_SET));
    let state = State::from_image(Pid(2), child.program, around, child.image).unwrap();
    let mut helper = Replay::of(state, 0);
    let tools = &helper.request().tools;
    let schema: Value = serde_json::from_str(&tools[0].schema).unwrap();
    let value = &schema["properties"]["value"];
    assert_eq!(value["type"], "integer");
    let description = value["description"].as_str().unwrap();
    assert!(
        description.starts_with("<fd_text source=\"process:1\">"),
        "{description}"
    );
    helper.submit(r#"{"value":41}"#);
    let exit = helper.exit();
    assert_eq!(exit.result_as::<u8>().unwrap(), 41);
    run.feed(Input::Child {
        call,
        event: ChildEvent::Ended {
            index: 0,
            child: Pid(2),
            exit,
        },
    });
    assert_eq!(run.last_told(), "41");
}

#[test]
fn a_host_submits_no_result_and_an_alias_names_the_tool() {
    let tools = "[tools]\nenabled = [{ name = \"submit_result\", alias = \"finish\" }]\n";
    let mut run = run_of(
        &format!("{tools}{SCHEMA}strict = false\n"),
        Lifetime::Session,
    );
    assert_eq!(&*run.request().tools[0].name, "finish");
    assert_eq!(run.request().provider_tools.form("finish"), None);
    run.reply(&[("finish", GOOD)]);
    assert!(run.turn().is_result);
    run.feed(Input::Host {
        request_id: "t".into(),
        request: HostRequest::Call {
            tool: "finish".to_owned(),
            args: GOOD.to_owned(),
        },
    });
    let refused = run
        .effects
        .iter()
        .any(|effect| matches!(effect, Effect::AnswerHost { answer, .. } if answer.is_error));
    assert!(refused, "{:?}", run.effects);
}
