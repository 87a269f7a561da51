//! Time travel and signals, one at a time: what goto drops and keeps, what a stopped process does
//! and does not do.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dormouse_kernel::process::{
    Birth, BusyReason, Completion, Decision, Effect, Fact, HostContext, HostRequest, HostTool,
    Image, Input, Preloads, Signal, State, Work, decide, evolve, initial_image,
};
use dormouse_kernel::program::compile;
use dormouse_kernel::syscall::TOOL_SET;
use dormouse_proto::id::{CallId, FdId, Pid};
use dormouse_proto::mail::Sender;
use dormouse_proto::message::Block;
use dormouse_proto::model::{Reply, Request, StopReason, Usage};
use dormouse_proto::process::{ExitStatus, Priority};
use dormouse_proto::record::{Caller, Control, Lifetime, Phase, TurnFact};
use dormouse_proto::tool::{Access, ToolOutput, ToolPolicy, ToolSpec};

use crate::replay::Replay;

/// `[tools]` and what follows it. Without a descriptor tool there is nothing but `goto` that shows
/// a message's number.
const PLAIN: &str = "enabled = [\"goto\", \"grep\"]\n";
const REFERRING: &str = "enabled = [\"goto\", \"grep\", \"rename_fd\", \"read_fd\", \
\"fork\"]\n[file_descriptor]\nreference_messages = true\nmax_direct_output_chars = \
20\ndefault_page_size = 10\nmax_input_chars = 40\n";

/// A process whose host tool `grep` must not be repeated.
fn process(lifetime: Lifetime, tools: &str) -> State {
    let text = format!(
        "[model]\nname = \"m\"\nprovider = \"scripted\"\nmax_iterations = 6\n[tools]\n{tools}"
    );
    let compiled = compile(
        Path::new("p.toml"),
        &mut |_| Ok(Bytes::from(text.clone())),
        &["grep"],
    );
    let program = compiled
        .unwrap_or_else(|errors| panic!("{errors:?}"))
        .program;
    let spec = ToolSpec {
        name: "grep".into(),
        description: "finds".into(),
        schema: "{}".into(),
    };
    let tools = BTreeMap::from([(
        "grep".into(),
        HostTool {
            spec,
            policy: ToolPolicy::default(),
        },
    )]);
    let around = Arc::new(HostContext {
        tools,
        ..HostContext::new(&TOOL_SET)
    });
    let said = "go".into();
    let (priority, preloads) = (Priority::Normal, &Preloads::default());
    let birth = Birth {
        access: Access::Write,
        depth: 0,
        lifetime,
        priority,
        preloads,
        input: Some(&said),
    };
    let image = initial_image(&program, &around, birth, 0);
    State::from_image(Pid(1), program, around, image).expect("an image that was just made is valid")
}

fn begun(lifetime: Lifetime, tools: &str) -> Replay {
    Replay::of(process(lifetime, tools), 0)
}

impl Replay {
    /// The model calls grep, which finds `found`.
    fn grep(&mut self, found: &str) {
        self.reply(&[("grep", "{}")]);
        let call = self.called().expect("grep is called");
        self.feed(Input::Completed {
            call,
            result: Completion::Tool(ToolOutput::ok(found.to_owned())),
        });
    }

    fn send_back(&mut self, position: &str, message: &str) -> (String, bool) {
        self.feed(Input::Host {
            request_id: "t".into(),
            request: HostRequest::Goto {
                position: position.into(),
                message: message.into(),
            },
        });
        self.told()
    }

    /// What the host is answered.
    fn told(&self) -> (String, bool) {
        let answers = self.effects.iter().filter_map(|effect| match effect {
            Effect::AnswerHost { request_id, answer } if &**request_id == "t" => {
                Some((answer.text.to_string(), answer.is_error))
            }
            _ => None,
        });
        let answers: Vec<_> = answers.collect();
        assert_eq!(answers.len(), 1, "one answer: {:?}", self.effects);
        answers[0].clone()
    }
}

/// Each message as its texts.
fn texts(request: &Request) -> Vec<String> {
    let text = |block: &Block| match block {
        Block::Text { text, .. } => text.to_string(),
        Block::ToolUse { name, .. } => format!("({name})"),
        Block::ToolResult { text, .. } => format!("={text}"),
        Block::Media { .. } | Block::Opaque(_) => String::new(),
    };
    request
        .messages
        .iter()
        .map(|message| {
            message
                .blocks
                .iter()
                .map(text)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect()
}

#[test]
fn a_model_goes_back_to_a_message_that_it_was_shown_the_number_of() {
    let mut run = begun(Lifetime::Task, PLAIN);
    run.grep("a dead end");
    run.grep("another");
    assert_eq!(
        texts(&run.request())[..3],
        ["go [msg:1]", "I think. (grep)", "=a dead end [msg:3]"]
    );
    let before = (run.state.usage(), run.state.output_totals());
    run.reply(&[(
        "goto",
        r#"{"position": "msg:1", "message": "grep < finds nothing."}"#,
    )]);
    let goto = "<goto from=\"msg:5\" to=\"msg:1\"><![CDATA[grep < finds nothing.]]></goto>";
    assert_eq!(
        texts(&run.request()),
        ["go [msg:1]".to_owned(), format!("{goto} [msg:2]")]
    );
    let after = (run.state.usage(), run.state.output_totals());
    assert_eq!(
        (after.0.input_tokens, after.1),
        (before.0.input_tokens + 3, before.1),
        "what was spent stays spent"
    );
    assert!(
        run.facts.iter().any(|fact| matches!(
            fact,
            Fact::Turn(TurnFact::WentTo {
                to: 1,
                by: Caller::Model,
                ..
            })
        )),
        "{:?}",
        run.facts
    );
    run.reply(&[]);
    assert_eq!(
        run.state.exit().map(|exit| exit.status),
        Some(ExitStatus::Done)
    );
}

#[test]
fn a_reply_that_called_tools_stands_for_the_message_that_answers_them() {
    let mut run = begun(Lifetime::Task, PLAIN);
    run.grep("one");
    run.grep("two");
    run.reply(&[("goto", r#"{"position": "msg:2", "message": "again"}"#)]);
    let said = texts(&run.request());
    assert_eq!(
        (said.len(), said[3].as_str()),
        (4, "<goto from=\"msg:5\" to=\"msg:3\">again</goto> [msg:4]")
    );
}

#[test]
fn a_position_that_cannot_be_is_an_answer_of_its_own_kind() {
    let cases = [
        ("fd:1", "unknown_position"),
        ("msg:3", "current_position"),
        ("msg:4", "current_position"),
        ("msg:5", "future_position"),
    ];
    for (position, word) in cases {
        let mut run = begun(Lifetime::Task, PLAIN);
        run.grep("found");
        run.reply(&[(
            "goto",
            &format!(r#"{{"position": "{position}", "message": "m"}}"#),
        )]);
        let said = texts(&run.request());
        assert_eq!(said.len(), 5, "nothing is dropped");
        assert!(
            said[4].starts_with(&format!("=<goto_error type=\"{word}\">")),
            "{position}: {}",
            said[4]
        );
        let (text, is_error) = begun(Lifetime::Session, PLAIN).send_back(position, "m");
        assert!(is_error && text.contains("_position"), "{text}");
    }
}

#[test]
fn what_is_called_beside_goto_is_done_and_answered_and_goto_is_refused() {
    let mut run = begun(Lifetime::Task, PLAIN);
    run.grep("one");
    let goto = ("goto", r#"{"position": "msg:1", "message": "m"}"#);
    run.reply(&[goto, ("grep", "{}"), goto]);
    let call = run.called().expect("the sibling is called");
    run.feed(Input::Completed {
        call,
        result: Completion::Tool(ToolOutput::ok("two")),
    });
    let said = texts(&run.request()).pop().unwrap_or_default();
    assert_eq!(
        (
            said.matches("type=\"not_alone\"").count(),
            said.matches("=two").count()
        ),
        (2, 1),
        "{said}"
    );
}

#[test]
fn a_turn_that_goes_back_for_ever_ends_at_its_limit_of_model_calls() {
    let mut run = begun(Lifetime::Task, &format!("{PLAIN}\neffects = \"run\"\n"));
    run.grep("one");
    for _ in 0..4 {
        run.grep("more");
        if run.state.exit().is_some() {
            break;
        }
        run.reply(&[("goto", r#"{"position": "msg:1", "message": "m"}"#)]);
    }
    assert_eq!(
        run.state.exit().map(|exit| exit.status),
        Some(ExitStatus::IterationLimit)
    );
}

#[test]
fn descriptors_stay_and_notes_of_messages_that_are_gone_go() {
    let mut run = begun(Lifetime::Task, REFERRING);
    run.grep("a line of the output that is large\n");
    run.reply(&[
        ("rename_fd", r#"{"fd": "msg:3", "name": "preview"}"#),
        ("rename_fd", r#"{"fd": "msg:1", "name": "task"}"#),
    ]);
    run.reply(&[("rename_fd", r#"{"fd": "fd:1", "name": "log"}"#)]);
    let late = run.thinking();
    run.reply(&[(
        "goto",
        r#"{"position": "msg:1", "message": "The log is what counts, and nothing else does."}"#,
    )]);
    let said = texts(&run.request());
    assert!(
        said[1].contains("<goto from=\"msg:7\" to=\"msg:1\">\n  <fd_result fd=\"fd:2\""),
        "{}",
        said[1]
    );
    let table = run.state.table();
    let named = |name: &str| table.named(name).map(|(id, _)| id.to_string());
    assert_eq!(
        (named("log"), named("task"), named("preview")),
        (Some("fd:1".into()), Some("msg:1".into()), None)
    );
    let second = table
        .resolve("msg:2")
        .expect("the message that follows")
        .1
        .content
        .unlimited_reader()
        .text()
        .expect("it is in memory")
        .to_string();
    assert!(second.starts_with("<goto"), "{second}");
    assert!(table.resolve("msg:3").is_err());
    assert_eq!(table.next_id(), FdId::Fd(3), "FD-1");
    let before = run.state.clone();
    run.feed(Input::Completed {
        call: late,
        result: Completion::Model(Ok(Reply {
            blocks: vec![],
            stop: StopReason::EndTurn,
            usage: Usage::default(),
        })),
    });
    assert_eq!(run.state, before, "CALL-1");
}

#[test]
fn a_host_sends_a_process_back_in_the_middle_of_a_call() {
    let mut run = begun(Lifetime::Session, PLAIN);
    run.grep("one");
    run.reply(&[("grep", "{}")]);
    let call = run.called().expect("grep is called");
    let (text, is_error) = run.send_back("msg:1", "Do it otherwise.");
    assert!(
        !is_error && text == "<goto from=\"msg:4\" to=\"msg:1\"/>",
        "{text}"
    );
    assert!(
        run.effects
            .iter()
            .any(|effect| matches!(effect, Effect::Abandon { calls } if *calls == [call]))
    );
    let goto = "<goto from=\"msg:4\" to=\"msg:1\">Do it otherwise.</goto> [msg:2]";
    assert_eq!(texts(&run.request()), ["go [msg:1]", goto]);
    let before = run.state.clone();
    run.feed(Input::Completed {
        call,
        result: Completion::Tool(ToolOutput::ok("late")),
    });
    assert_eq!(run.state, before, "CALL-1");
    run.reply(&[]);
    assert_eq!(run.state.phase(), &Phase::Idle);
    let (_, is_error) = run.send_back("msg:2", "And once more.");
    assert!(
        !is_error && run.request().messages.len() == 3,
        "its last word is gone over"
    );
}

/// Whatever gives up calls begins an epoch, so that no call after it has the name of one before.
#[test]
fn an_interrupt_and_a_goto_begin_an_epoch() {
    let mut run = begun(Lifetime::Session, PLAIN);
    assert_eq!((run.state.image().epoch, run.thinking().epoch), (0, 0));
    run.feed(Input::Signal(Signal::Interrupt));
    assert_eq!(run.state.image().epoch, 1, "after an interrupt");
    run.feed(Input::UserInput {
        from: Sender::Host,
        user_input: "on".into(),
    });
    assert_eq!(run.thinking().epoch, 1);
    run.reply(&[("grep", "{}")]);
    assert_eq!(run.called().map(|call| call.epoch), Some(1));
    run.feed(Input::Completed {
        call: run.called().unwrap(),
        result: Completion::Tool(ToolOutput::ok("found")),
    });
    run.reply(&[("goto", r#"{"position": "msg:1", "message": "again"}"#)]);
    assert_eq!(
        (run.state.image().epoch, run.thinking().epoch),
        (2, 2),
        "after the model's goto"
    );
    run.reply(&[]);
    let (text, is_error) = run.send_back("msg:1", "Do it otherwise.");
    assert!(!is_error, "{text}");
    assert_eq!(
        (run.state.image().epoch, run.thinking().epoch),
        (3, 3),
        "after the host's goto"
    );
}

#[test]
fn a_host_may_call_the_tool_itself() {
    let mut run = begun(Lifetime::Session, PLAIN);
    run.reply(&[]);
    let args = r#"{"position": "msg:1", "message": "again"}"#.to_owned();
    run.feed(Input::Host {
        request_id: "t".into(),
        request: HostRequest::Call {
            tool: "goto".into(),
            args,
        },
    });
    assert_eq!(
        run.told(),
        ("<goto from=\"msg:2\" to=\"msg:1\"/>".to_owned(), false)
    );
    assert_eq!(texts(&run.request()).len(), 2);
}

/// The tickets and texts that the host is answered by what was decided last.
fn answered(run: &Replay) -> Vec<(String, String)> {
    let answers = run.effects.iter().filter_map(|effect| match effect {
        Effect::AnswerHost { request_id, answer } => {
            Some((request_id.to_string(), answer.text.to_string()))
        }
        _ => None,
    });
    answers.collect()
}

fn host_calls(run: &mut Replay, request_id: &str) -> CallId {
    run.feed(Input::Host {
        request_id: request_id.into(),
        request: HostRequest::Call {
            tool: "grep".into(),
            args: "{}".to_owned(),
        },
    });
    run.called().expect("it is called at once")
}

#[test]
fn calls_of_the_host_run_side_by_side_and_are_answered_each_for_itself() {
    let mut run = begun(Lifetime::Session, PLAIN);
    run.reply(&[]);
    let (first, second) = (host_calls(&mut run, "a"), host_calls(&mut run, "b"));
    assert_eq!(
        run.effects.len(),
        1,
        "the first is not called again: {:?}",
        run.effects
    );
    run.feed(Input::Completed {
        call: second,
        result: Completion::Tool(ToolOutput::ok("two")),
    });
    assert_eq!(answered(&run), [("b".to_owned(), "two".to_owned())]);
    let third = host_calls(&mut run, "c");
    run.feed(Input::Completed {
        call: first,
        result: Completion::Tool(ToolOutput::ok("one")),
    });
    assert_eq!(answered(&run), [("a".to_owned(), "one".to_owned())]);
    run.feed(Input::UserInput {
        from: Sender::Host,
        user_input: "hear this".into(),
    });
    run.feed(Input::Host {
        request_id: "d".into(),
        request: HostRequest::Call {
            tool: "grep".into(),
            args: "{}".to_owned(),
        },
    });
    assert!(
        answered(&run)[0].1.contains("about to begin a turn"),
        "what was said is not kept waiting"
    );
    run.feed(Input::Completed {
        call: third,
        result: Completion::Tool(ToolOutput::ok("three")),
    });
    assert_eq!(answered(&run), [("c".to_owned(), "three".to_owned())]);
    assert!(
        matches!(run.state.phase(), Phase::Thinking { .. }),
        "it is heard when the last is answered"
    );
}

#[test]
fn a_call_that_the_host_gives_up_is_answered_and_those_beside_it_go_on() {
    let mut run = begun(Lifetime::Session, PLAIN);
    run.reply(&[]);
    let (first, second) = (host_calls(&mut run, "a"), host_calls(&mut run, "b"));
    run.feed(Input::Host {
        request_id: "nobody's".into(),
        request: HostRequest::Cancel,
    });
    assert!(run.effects.is_empty());
    run.feed(Input::Host {
        request_id: "a".into(),
        request: HostRequest::Cancel,
    });
    assert!(
        run.effects
            .iter()
            .any(|effect| matches!(effect, Effect::Abandon { calls } if calls[..] == [first]))
    );
    assert!(
        matches!(&answered(&run)[..], [(request_id, text)] if request_id == "a" && text.contains("was \
             cancelled"))
    );
    let before = run.state.clone();
    run.feed(Input::Completed {
        call: first,
        result: Completion::Tool(ToolOutput::ok("late")),
    });
    assert_eq!(run.state, before, "CALL-1");
    run.feed(Input::Completed {
        call: second,
        result: Completion::Tool(ToolOutput::ok("two")),
    });
    assert_eq!(answered(&run), [("b".to_owned(), "two".to_owned())]);
    assert_eq!(run.state.phase(), &Phase::Idle);
}

#[test]
fn a_process_bounds_the_calls_of_the_host_and_an_interrupt_answers_all_of_them() {
    let mut run = begun(Lifetime::Session, PLAIN);
    run.reply(&[]);
    for number in 0..64 {
        host_calls(&mut run, &number.to_string());
    }
    run.feed(Input::Host {
        request_id: "one more".into(),
        request: HostRequest::Call {
            tool: "grep".into(),
            args: "{}".to_owned(),
        },
    });
    assert!(
        answered(&run)[0].1.contains("64 calls in flight"),
        "{:?}",
        run.effects
    );
    run.feed(Input::Signal(Signal::Interrupt));
    assert_eq!(
        (answered(&run).len(), run.state.phase()),
        (64, &Phase::Idle)
    );
}

#[test]
fn a_stopped_process_takes_in_what_was_in_flight_and_begins_nothing_until_it_is_continued() {
    let mut run = begun(Lifetime::Session, PLAIN);
    run.feed(Input::Signal(Signal::Stop));
    run.reply(&[("grep", "{}"), ("grep", "{}")]);
    assert!(
        run.effects.is_empty() && run.called().is_none(),
        "{:?}",
        run.effects
    );
    run.feed(Input::Signal(Signal::Continue));
    let calls: Vec<_> = run
        .effects
        .iter()
        .filter(|effect| {
            matches!(
                effect,
                Effect::StartWork {
                    work: Work::Tool { .. },
                    ..
                }
            )
        })
        .collect();
    assert_eq!(calls.len(), 2);
    let Some(first) = run.called() else {
        panic!("it was called")
    };
    run.feed(Input::Signal(Signal::Stop));
    run.feed(Input::Completed {
        call: first,
        result: Completion::Tool(ToolOutput::ok("one")),
    });
    run.feed(Input::Signal(Signal::Continue));
    assert!(
        run.effects.is_empty(),
        "what is in flight is not called again: {:?}",
        run.effects
    );
    run.feed(Input::Signal(Signal::Stop));
    let second = CallId {
        seq: first.seq + 1,
        ..first
    };
    run.feed(Input::Completed {
        call: second,
        result: Completion::Tool(ToolOutput::ok("two")),
    });
    assert!(
        run.effects.is_empty(),
        "the model is not asked: {:?}",
        run.effects
    );
    run.feed(Input::Signal(Signal::Continue));
    assert_eq!(texts(&run.request())[2], "=one =two [msg:3]");
    run.feed(Input::Signal(Signal::Stop));
    run.reply(&[]);
    assert!(
        matches!(run.state.phase(), Phase::Ready { .. }) && run.effects.is_empty(),
        "the turn does not end"
    );
    run.feed(Input::UserInput {
        from: Sender::Host,
        user_input: "more".into(),
    });
    assert_eq!((run.state.waiting_messages(), run.effects.len()), (1, 0));
    run.feed(Input::Signal(Signal::Continue));
    assert_eq!(
        texts(&run.request()).last().map(String::as_str),
        Some("more [msg:5]")
    );
}

#[test]
fn a_stopped_process_is_interrupted_and_killed_like_any_other() {
    for (signal, status) in [
        (Input::Signal(Signal::Interrupt), ExitStatus::Interrupted),
        (Input::Signal(Signal::Kill), ExitStatus::Killed),
    ] {
        let mut run = begun(Lifetime::Task, PLAIN);
        run.feed(Input::Signal(Signal::Stop));
        run.feed(signal);
        assert_eq!(run.state.exit().map(|exit| exit.status), Some(status));
    }
}

#[test]
fn one_that_comes_back_while_it_is_stopped_takes_up_what_was_in_flight_when_it_is_continued() {
    let mut thinking = begun(Lifetime::Session, PLAIN);
    let mut acting = begun(Lifetime::Session, PLAIN);
    acting.reply(&[("grep", "{}")]);
    for run in [&mut thinking, &mut acting] {
        run.feed(Input::Signal(Signal::Stop));
        for _ in 0..2 {
            run.feed(Input::Signal(Signal::Resume));
            assert!(
                matches!(run.effects[..], [Effect::KillChildrenExcept { .. }]),
                "{:?}",
                run.effects
            );
        }
        run.feed(Input::Signal(Signal::Stop));
        run.feed(Input::Signal(Signal::Continue));
        assert!(!run.state.is_stopped());
    }
    assert_eq!(texts(&thinking.request()), ["go [msg:1]"]);
    let said = texts(&acting.request());
    assert!(said[2].contains("effect is unknown"), "CALL-2: {}", said[2]);
}

#[test]
fn a_process_that_is_stopped_can_be_sent_back_and_asks_when_it_is_continued() {
    let mut run = begun(Lifetime::Session, PLAIN);
    run.reply(&[]);
    run.feed(Input::Signal(Signal::Stop));
    let (_, is_error) = run.send_back("msg:1", "again");
    assert!(
        !is_error
            && !run.effects.iter().any(|effect| matches!(
                effect,
                Effect::StartWork {
                    work: Work::Model { .. },
                    ..
                }
            ))
    );
    let args = "{}".to_owned();
    run.feed(Input::Host {
        request_id: "t".into(),
        request: HostRequest::Call {
            tool: "grep".into(),
            args,
        },
    });
    let (text, is_error) = run.told();
    assert!(is_error && text.contains("is stopped"), "{text}");
    run.feed(Input::Signal(Signal::Continue));
    assert_eq!(texts(&run.request()).len(), 2);
}

#[test]
fn a_process_is_at_rest_where_nothing_happens_before_somebody_speaks_to_it() {
    let mut run = begun(Lifetime::Session, PLAIN);
    assert_eq!(
        run.state.busy_reason(),
        Some(BusyReason::Turn),
        "it asks its model"
    );
    run.reply(&[("grep", "{}")]);
    assert_eq!(
        run.state.busy_reason(),
        Some(BusyReason::Turn),
        "it waits for a tool"
    );
    run.feed(Input::Signal(Signal::Stop));
    assert_eq!(
        run.state.busy_reason(),
        None,
        "what is in flight the machine leaves to the shell"
    );
    run.feed(Input::UserInput {
        from: Sender::Host,
        user_input: "more".into(),
    });
    assert_eq!(run.state.busy_reason(), Some(BusyReason::Mail));
    run.feed(Input::Signal(Signal::Interrupt));
    run.feed(Input::Signal(Signal::Continue));
    run.reply(&[]);
    assert_eq!(
        (run.state.phase(), run.state.busy_reason()),
        (&Phase::Idle, None)
    );
    run.feed(Input::Signal(Signal::Kill));
    assert_eq!(run.state.busy_reason(), Some(BusyReason::Ended));

    let mut timed = begun(
        Lifetime::Session,
        &format!("{PLAIN}[budget]\nwall_time = \"1h\"\n"),
    );
    timed.reply(&[]);
    assert_eq!(
        (timed.state.busy_reason(), timed.state.next_wake_ms()),
        (None, None),
        "the time of one that rests does not pass"
    );
}

#[test]
fn one_restored_from_right_after_an_interrupt_does_not_ask_after_its_own_last_word() {
    for (lifetime, signal) in [
        (Lifetime::Session, Input::Signal(Signal::Interrupt)),
        (Lifetime::Task, Input::Signal(Signal::Interrupt)),
        (Lifetime::Session, Input::Signal(Signal::Kill)),
    ] {
        let mut run = begun(lifetime, PLAIN);
        run.feed(Input::Signal(Signal::Stop));
        run.reply(&[]);
        run.feed(signal);
        let interrupted = run
            .facts
            .iter()
            .position(|fact| matches!(fact, Fact::Turn(TurnFact::Interrupted { .. })));
        let upto = interrupted.expect("a turn that is not over is interrupted") + 1;
        assert!(
            upto < run.facts.len(),
            "what ends it is a fact of its own: {:?}",
            run.facts
        );
        let mut state = run.first.clone();
        run.facts[..upto]
            .iter()
            .for_each(|fact| evolve(&mut state, fact));
        let image = Image {
            control: Control::Running,
            ..state.image()
        };
        let state = State::from_image(
            Pid(2),
            state.program().clone(),
            Arc::new(HostContext::new(&TOOL_SET)),
            image,
        );
        let Decision { effects, .. } = decide(
            &state.expect("an image of a living process is valid"),
            Input::Signal(Signal::Resume),
            0,
        )
        .read_all(0);
        let asked = effects.iter().any(|effect| {
            matches!(
                effect,
                Effect::StartWork {
                    work: Work::Model { .. },
                    ..
                }
            )
        });
        assert!(!asked, "its last word is the last message: {effects:?}");
    }
}
