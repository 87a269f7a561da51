//! Replies, last messages of children and messages of a goto are read outside of the decision,
//! whatever their size.

use std::time::{Duration, Instant};

use dormouse_content::ReadQuota;
use dormouse_kernel::process::{
    ChildEvent, Completion, Effect, Fact, HostRequest, Input, Signal, Work, decide,
};
use dormouse_proto::budget::Change;
use dormouse_proto::id::{CallId, FdId, Pid};
use dormouse_proto::message::{Block, Raw};
use dormouse_proto::model::{Reply, StopReason, Usage};
use dormouse_proto::process::{Exit, ExitStatus, Origin};
use dormouse_proto::record::{CallFact, TurnFact};
use serde_json::json;

use crate::process_reads::Run;

const PROGRAM: &str = r#"
[model]
name = "m"
provider = "scripted"
[tools]
enabled = ["read_fd", "fork", "spawn", "goto"]
[linked_programs]
me = "p.toml"
[limits]
max_children = 8
max_depth = 8
[file_descriptor]
enable_references = true
max_direct_output_chars = 50
max_input_chars = 50
"#;

/// What an actor reads within a handler.
const INLINE_BYTES: u64 = 64 << 10;
/// Characters of the large text. The image and the page have a tenth, to keep the test short.
const LARGE: usize = 100_000_000;

const USAGE: Usage = Usage {
    input_tokens: 3,
    output_tokens: 5,
    thinking_tokens: 0,
    cache_read_tokens: 0,
    cache_write_tokens: 0,
    cost_nanos: 0,
};

fn replied(call: CallId, block: Block) -> Input {
    let reply = Reply {
        blocks: vec![block],
        stop: StopReason::EndTurn,
        usage: USAGE,
    };
    let result = Completion::Model(Ok(reply));
    Input::Completed { call, result }
}

/// A text with a reference, the page that a tool of the provider fetched, and an image that the
/// model made, each with `len` characters, and the descriptor that each becomes.
fn blocks(len: usize) -> [(Block, FdId); 3] {
    let text = Block::text(format!("<ref id=\"plan\">{}</ref>", "x".repeat(len)));
    let page = json!({"type": "web_fetch_tool_result", "content": {"type": "document", "source":
        {"type": "text", "media_type": "text/plain", "data": "p".repeat(len)}}});
    let image = json!({"inlineData": {"mimeType": "image/png", "data": "A".repeat(len)}});
    let opaque =
        |format, json: serde_json::Value| Block::Opaque(Raw::new(format, json.to_string()));
    [
        (text, FdId::Ref("plan".to_owned())),
        (opaque("anthropic", page), FdId::Fd(2)),
        (opaque("gemini", image), FdId::Fd(2)),
    ]
}

fn recorded_replies(facts: &[Fact]) -> usize {
    let is_reply = |fact: &&Fact| matches!(fact, Fact::Call(CallFact::ModelReplied { .. }));
    facts.iter().filter(is_reply).count()
}

/// The time of the fastest of three runs.
fn fastest<T>(run: impl Fn() -> T) -> (T, Duration) {
    let timed = (0..3).map(|_| {
        let start = Instant::now();
        let value = run();
        (value, start.elapsed())
    });
    timed.min_by_key(|(_, time)| *time).expect("it ran")
}

#[test]
fn a_reply_of_100_mb_is_read_outside_of_the_decision() {
    let [(text, plan), ..] = blocks(LARGE);
    let [_, page, image] = blocks(LARGE / 10);
    for (block, id) in [(text, plan), page, image] {
        let mut run = Run::of(PROGRAM);
        let call = run.model_call();
        let input = replied(call, block);
        let (decision, deciding) = fastest(|| decide(&run.state, input.clone(), 7));
        assert!(decision.facts.is_empty() && decision.effects.is_empty());
        let [read] = &decision.reads[..] else {
            panic!("{id}: one read: {:?}", decision.reads.len())
        };
        assert!(read.is_reply() && read.call() == Some(call));
        assert!(read.perform(&ReadQuota::inline(INLINE_BYTES)).is_none());
        let start = Instant::now();
        let placed = read
            .perform(ReadQuota::unlimited())
            .expect("it has no limit");
        let reading = start.elapsed();
        run.state = decision.state;
        let (decision, recording) = fastest(|| decide(&run.state, placed.clone(), 7));
        assert_eq!(recorded_replies(&decision.facts), 1);
        let entry = decision.state.table().get(&id).expect("it is opened");
        assert!(
            entry.content.len_bytes() >= LARGE as u64 / 10 * 3 / 4,
            "{id}"
        );
        for time in [deciding, recording] {
            assert!(time * 10 < reading, "{id}: {time:?} of {reading:?}");
        }
    }
}

#[test]
fn a_small_reply_is_read_and_recorded_in_one_decision() {
    for (block, id) in blocks(100) {
        let run = Run::of(PROGRAM);
        let decision = decide(&run.state, replied(run.model_call(), block), 7);
        assert_eq!((decision.facts.len(), decision.reads.len()), (0, 1));
        let decision = decision.read_inline(INLINE_BYTES, 7);
        assert_eq!(
            (recorded_replies(&decision.facts), decision.reads.len()),
            (1, 0)
        );
        assert!(decision.state.table().get(&id).is_some(), "{id}");
    }
}

#[test]
fn a_reply_that_is_given_up_while_it_is_read_leaves_its_usage_and_nothing_else() {
    for signal in [Signal::Interrupt, Signal::Kill] {
        for (block, _) in blocks(100) {
            let mut run = Run::of(PROGRAM);
            let call = run.model_call();
            run.feed(replied(call, block));
            run.feed(Input::Signal(signal));
            let abandoned =
                |effect: &Effect| matches!(effect, Effect::Abandon { calls } if *calls == [call]);
            assert!(run.effects.iter().any(abandoned), "the read is cancelled");
            let used = Fact::Budget(Change::Used { call, usage: USAGE });
            assert_eq!(run.facts.iter().filter(|fact| **fact == used).count(), 1);
            let facts = run.facts.len();
            run.read();
            assert_eq!(run.facts.len(), facts, "what was read is stale");
            assert_eq!(
                (recorded_replies(&run.facts), run.state.usage()),
                (0, USAGE)
            );
        }
    }
}

#[test]
fn a_reply_that_comes_again_while_it_is_read_is_recorded_once() {
    for (block, _) in blocks(100) {
        let mut run = Run::of(PROGRAM);
        let call = run.model_call();
        run.feed(replied(call, block.clone()));
        run.feed(replied(call, block.clone()));
        run.read();
        run.read();
        run.feed(replied(call, block));
        assert_eq!((recorded_replies(&run.facts), run.reads.len()), (1, 0));
        assert_eq!(run.state.usage(), USAGE);
    }
}

#[test]
fn after_a_restart_the_model_is_called_again_only_if_no_reply_was_recorded() {
    let calls_model = |run: &Run| {
        let is_model = |effect: &Effect| {
            matches!(
                effect,
                Effect::StartWork {
                    work: Work::Model { .. },
                    ..
                }
            )
        };
        run.effects.iter().any(is_model)
    };
    for (block, _) in blocks(100) {
        let mut run = Run::of(PROGRAM);
        run.feed(replied(run.model_call(), block.clone()));
        run.restart();
        assert!(calls_model(&run));
        run.reads.clear();
        run.feed(replied(run.model_call(), block));
        run.read();
        run.restart();
        assert!(!calls_model(&run));
        assert_eq!(recorded_replies(&run.facts), 1);
    }
}

#[test]
fn a_stopped_process_records_a_reply_that_is_being_read() {
    let [(block, _), ..] = blocks(100);
    let mut run = Run::of(PROGRAM);
    run.feed(replied(run.model_call(), block));
    run.feed(Input::Signal(Signal::Stop));
    run.read();
    assert_eq!(recorded_replies(&run.facts), 1);
    let ended = |fact: &Fact| matches!(fact, Fact::Turn(TurnFact::Ended { .. }));
    assert!(!run.facts.iter().any(ended), "it is stopped");
    run.feed(Input::Signal(Signal::Continue));
    assert!(run.facts.iter().any(ended));
}

/// The call that created a child.
fn creating_call(origin: &Origin) -> CallId {
    match origin {
        Origin::Forked { call, .. } | Origin::Judge { call, .. } | Origin::Spawned { call } => {
            *call
        }
        Origin::Started | Origin::Copied { .. } => panic!("it is no child"),
    }
}

/// The child `index` of the call ends with this message.
fn ended(call: CallId, index: u32, message: &str) -> Input {
    Input::Child {
        call,
        event: ChildEvent::Ended {
            index,
            child: Pid(u64::from(10 + index)),
            exit: Exit::new(ExitStatus::Done, message).with_usage(Usage::default()),
        },
    }
}

#[test]
fn the_last_messages_of_children_are_read_before_the_call_is_answered() {
    let large = "x".repeat(1 << 20);
    let mut run = Run::of(PROGRAM);
    run.reply(&[("fork", "{'prompts':['a','b']}")]);
    let Some(Effect::StartChildren { children, .. }) = run.effects.first() else {
        panic!("it forks: {:?}", run.effects)
    };
    let call = creating_call(&children[0].origin);
    run.feed(ended(call, 0, &large));
    assert_eq!(run.reads.len(), 0, "one child still runs");
    run.feed(ended(call, 1, "short"));
    assert_eq!((run.answers().len(), run.reads.len()), (0, 1));
    let quota = ReadQuota::inline(INLINE_BYTES);
    assert!(run.reads[0].perform(&quota).is_none());
    // After a restart the messages are read again.
    run.restart();
    assert_eq!(run.reads.len(), 2);
    run.reads.remove(0);
    run.read();
    let answers = run.answers();
    assert!(
        answers.len() == 1 && answers[0].contains("short") && answers[0].contains("fd=\"fd:2\""),
        "{answers:?}"
    );
}

#[test]
fn the_end_of_a_background_child_is_read_and_reported_once() {
    let mut run = Run::of(PROGRAM);
    run.reply(&[("spawn", "{'program_name':'me','query':'go','wait':false}")]);
    while !run.reads.is_empty() {
        run.read();
    }
    let Some(Effect::StartChildren { children, .. }) = run.effects.last() else {
        panic!("it spawns: {:?}", run.effects)
    };
    let call = creating_call(&children[0].origin);
    let child = Pid(10);
    run.feed(Input::Child {
        call,
        event: ChildEvent::Started { child },
    });
    let large = "x".repeat(1 << 20);
    run.feed(ended(call, 0, &large));
    run.feed(ended(call, 0, &large));
    assert_eq!((run.reads.len(), run.state.waiting_messages()), (2, 0));
    run.read();
    run.read();
    assert_eq!(
        (run.state.waiting_messages(), run.state.background().len()),
        (1, 0)
    );
    assert!(run.state.table().get(&FdId::Fd(2)).is_some());
}

#[test]
fn the_message_of_a_goto_of_the_host_is_read() {
    let mut run = Run::of(PROGRAM);
    run.end_turn();
    while !run.reads.is_empty() {
        run.read();
    }
    let goto = |position: &str| Input::Host {
        request_id: "r".into(),
        request: HostRequest::Goto {
            position: position.into(),
            message: "x".repeat(1 << 20),
        },
    };
    run.feed(goto("msg:9"));
    let refused = |run: &Run| matches!(&run.effects[..], [Effect::AnswerHost { answer, .. }] if answer.is_error);
    assert!(run.reads.is_empty() && refused(&run), "{:?}", run.effects);
    run.feed(goto("msg:1"));
    assert_eq!((run.reads.len(), run.effects.len()), (1, 0));
    assert!(
        run.reads[0]
            .perform(&ReadQuota::inline(INLINE_BYTES))
            .is_none()
    );
    run.read();
    assert!(run.state.table().get(&FdId::Fd(2)).is_some());
    assert_eq!(run.state.messages().len(), 2);
    // Of two requests to go back to one place, the second finds nothing to go back over.
    run.feed(goto("msg:1"));
    run.feed(Input::Signal(Signal::Kill));
    run.read();
    assert!(refused(&run), "an ended process answers: {:?}", run.effects);
}

#[test]
fn the_arguments_of_a_process_tool_have_a_limit() {
    let prompt = "x".repeat(1 << 20);
    let calls = [
        ("fork", format!("{{'prompts':['{prompt}']}}")),
        (
            "spawn",
            format!("{{'program_name':'me','query':'{prompt}'}}"),
        ),
        (
            "goto",
            format!("{{'position':'msg:1','message':'{prompt}'}}"),
        ),
    ];
    for (tool, args) in calls {
        let mut run = Run::of(PROGRAM);
        run.reply(&[(tool, &args)]);
        let answers = run.answers();
        assert!(
            answers.len() == 1 && answers[0].contains("at most 1048576"),
            "{tool}: {answers:?}"
        );
    }
}
