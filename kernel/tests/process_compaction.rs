//! Compaction, one at a time: when it happens, what stays, what can still be read, and what does not
//! change by it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dormouse_content::ReadQuota;
use dormouse_kernel::process::{Birth, CheckpointImage, CheckpointInfo};
use dormouse_kernel::process::{
    BusyReason, Completion, Decision, Effect, Fact, HostContext, HostRequest, HostTool, Input,
    Preloads, Signal, State, decide, initial_image,
};
use dormouse_kernel::program::compile;
use dormouse_kernel::syscall::{PendingSummary, TOOL_SET};
use dormouse_proto::checkpoint::Scope;
use dormouse_proto::id::{CheckpointId, FactNumber, FdId, Pid};
use dormouse_proto::mail::Sender;
use dormouse_proto::message::{Block, Raw, Role};
use dormouse_proto::model::{ModelError, ModelErrorKind, Reply, StopReason, Usage};
use dormouse_proto::process::Priority;
use dormouse_proto::record::{DescriptorFact, Lifetime, Phase, TurnFact};
use dormouse_proto::tool::{Access, ToolOutput, ToolPolicy, ToolSpec};

use crate::replay::Replay;

const PROGRAM: &str = r#"
[model]
name = "m"
provider = "scripted"
max_iterations = 30
[tools]
enabled = ["read_fd", "search_fd", "goto", "grep", "fork"]
[file_descriptor]
reference_messages = true
default_page_size = 200
[context]
window = 1000
compact_at = 0.5
keep_messages = 2
"#;

/// As much as a message has in these tests: enough to be worth a compaction.
const WORDS: usize = 60;

fn begun_with(text: &str) -> Replay {
    let text = Bytes::from(text.to_owned());
    let compiled = compile(Path::new("p.toml"), &mut |_| Ok(text.clone()), &["grep"]);
    let program = compiled
        .unwrap_or_else(|errors| panic!("{errors:?}"))
        .program;
    let spec = ToolSpec {
        name: "grep".into(),
        description: "finds".into(),
        schema: "{}".into(),
    };
    let policy = ToolPolicy::default();
    let around = Arc::new(HostContext {
        tools: BTreeMap::from([("grep".into(), HostTool { spec, policy })]),
        ..HostContext::new(&TOOL_SET)
    });
    let birth = Birth {
        access: Access::Admin,
        depth: 0,
        lifetime: Lifetime::Session,
        priority: Priority::Normal,
        preloads: &Preloads::default(),
        input: None,
    };
    let image = initial_image(&program, &around, birth, 0);
    let state = State::from_image(Pid(1), program, around, image).unwrap();
    Replay::of(state, 0)
}

fn begun() -> Replay {
    begun_with(PROGRAM)
}

/// The user's `number`th text.
fn said(number: u32) -> String {
    format!("question {number} {}", "about it ".repeat(WORDS))
}

impl Replay {
    fn hear(&mut self, text: &str) {
        self.feed(Input::UserInput {
            from: Sender::Host,
            user_input: text.into(),
        });
    }

    /// The model replies, after a request and reply of so many tokens.
    fn say(&mut self, text: &str, tokens: u64, stop: StopReason) {
        let blocks = vec![Block::text(text)];
        self.say_blocks(blocks, tokens, stop);
    }

    fn say_blocks(&mut self, blocks: Vec<Block>, tokens: u64, stop: StopReason) {
        let usage = Usage {
            input_tokens: tokens / 2,
            cache_read_tokens: tokens - tokens / 2,
            ..Usage::default()
        };
        let call = self.thinking();
        self.feed(Input::Completed {
            call,
            result: Completion::Model(Ok(Reply {
                blocks,
                stop,
                usage,
            })),
        });
    }

    /// Turns of few tokens.
    fn converse(&mut self, turns: std::ops::RangeInclusive<u32>) {
        for number in turns {
            self.hear(&said(number));
            self.say(&format!("answer {number}"), 400, StopReason::EndTurn);
        }
    }

    /// Turns, the last of which brings the process near its window.
    fn fill(&mut self, turns: std::ops::RangeInclusive<u32>) {
        self.converse(*turns.start()..=turns.end() - 1);
        let last = *turns.end();
        self.hear(&said(last));
        self.say(&format!("answer {last}"), 501, StopReason::EndTurn);
    }

    fn refuse(&mut self) {
        let call = self.thinking();
        let error = ModelError::new(ModelErrorKind::ContextOverflow, "too many tokens");
        self.feed(Input::Completed {
            call,
            result: Completion::Model(Err(error)),
        });
    }

    fn compactions(&self) -> usize {
        let is_one = |fact: &&Fact| matches!(fact, Fact::Compacted { .. });
        self.facts.iter().filter(is_one).count()
    }

    fn history(&self, number: u32) -> String {
        let id = FdId::History(number);
        let entry = self.state.table().get(&id);
        let entry = entry.unwrap_or_else(|| panic!("{id} is in the table"));
        entry.content.unlimited_reader().text().unwrap().to_string()
    }

    /// All of what the model was told and said, wherever it now is.
    fn everything(&self) -> String {
        let histories = (1..=self.state.table().last_history()).map(|number| self.history(number));
        let messages = self.state.messages().iter().map(|message| message.text());
        histories.chain(messages).collect()
    }

    fn texts(&self) -> Vec<String> {
        let messages = self.request().messages;
        messages.iter().map(|message| message.text()).collect()
    }

    fn summaries_asked(&self) -> Vec<PendingSummary> {
        let asked = self.effects.iter().filter_map(|effect| match effect {
            Effect::Summarize { pending, .. } => Some(pending.clone()),
            _ => None,
        });
        asked.collect()
    }

    fn goto(&mut self, position: &str) {
        self.feed(Input::Host {
            request_id: "g".into(),
            request: HostRequest::Goto {
                position: position.into(),
                message: "Again.".into(),
            },
        });
    }

    /// The status and the reason of the last turn that ended.
    fn turn_end(&self) -> String {
        let ended = self.facts.iter().rev().find_map(|fact| match fact {
            Fact::Turn(TurnFact::Ended { status, reason }) => Some(format!(
                "{}: {}",
                status.word(),
                reason.as_deref().unwrap_or_default()
            )),
            _ => None,
        });
        ended.expect("a turn has ended")
    }

    /// Loads the process again from its image, as after a kill of the kernel.
    fn load_again(&mut self) {
        let image = self.state.image();
        let (program, around) = (self.state.program().clone(), HostContext::new(&TOOL_SET));
        self.state = State::from_image(Pid(1), program, Arc::new(around), image).unwrap();
        self.first = self.state.clone();
        self.facts.clear();
        self.feed(Input::Signal(Signal::Resume));
    }
}

#[test]
fn the_next_call_near_the_window_has_a_summary_in_place_of_old_messages() {
    let mut run = begun();
    run.fill(1..=4);
    assert_eq!(run.compactions(), 0, "only before a call");
    let epoch = run.state.image().epoch;
    run.hear(&said(5));
    assert_eq!(run.compactions(), 1);
    assert_eq!(run.state.image().epoch, epoch + 1);
    let texts = run.texts();
    let [summary, kept, newest] = &texts[..] else {
        panic!("{texts:?}");
    };
    let start = "<compacted_messages fd=\"history:1\" messages=\"1-7\">";
    assert!(summary.starts_with(start), "{summary}");
    assert!(summary.contains("Use read_fd") && summary.contains("1 user: question 1"));
    assert_eq!(kept, "answer 4");
    assert!(newest.ends_with("[msg:9]"), "numbers go on: {newest}");
    for number in 1..=5 {
        assert!(run.everything().contains(&said(number)), "{number}");
    }
    assert_eq!(run.state.last_message_number(), 9);
}

#[test]
fn the_history_is_read_searched_and_named_like_any_descriptor() {
    let mut run = begun();
    run.fill(1..=4);
    run.hear("go on");
    let cases = [
        (
            "read_fd",
            r#"{"fd": "history:1", "page": 2}"#,
            "<fd_content fd=\"history:1\" page=\"2\"",
        ),
        (
            "search_fd",
            r#"{"fd": "history:1", "pattern": "question 3"}"#,
            "question 3",
        ),
        (
            "read_fd",
            r#"{"fd": "msg:2"}"#,
            "in history:1, after the line '## msg:2'",
        ),
        ("read_fd", r#"{"fd": "msg:8"}"#, "answer 4"),
    ];
    for (tool, args, expected) in cases {
        run.reply(&[(tool, args)]);
        let request = run.request();
        let last = request.messages.last().unwrap();
        let Block::ToolResult { text, .. } = &last.blocks[0] else {
            panic!("{last:?}");
        };
        assert!(text.contains(expected), "{args}: {text}");
    }
}

#[test]
fn a_refused_conversation_is_compacted_and_sent_again_until_nothing_is_left() {
    let mut run = begun();
    run.converse(1..=3);
    run.hear(&said(9));
    let calls = run.state.image().iterations;
    for left in [2, 1, 0] {
        run.refuse();
        assert_eq!(run.state.messages().len(), 1 + left, "{:?}", run.turn_end());
        assert_eq!(
            run.state.image().iterations,
            calls,
            "a refused call does not count"
        );
    }
    assert!(
        run.texts()[0].contains("7 user: question 9"),
        "{:?}",
        run.texts()
    );
    run.refuse();
    let end = run.turn_end();
    assert!(end.starts_with("model_failed"), "{end}");
    assert!(
        end.contains("nothing more of the conversation can be compacted"),
        "{end}"
    );
    // The process goes on, and nothing is lost.
    run.hear("and now?");
    run.say("fine", 10, StopReason::EndTurn);
    assert!(run.everything().contains(&said(1)) && run.everything().contains(&said(9)));
}

#[test]
fn a_reply_that_fills_the_window_is_compacted_with_the_rest() {
    let mut run = begun();
    run.converse(1..=2);
    run.hear("write a book");
    run.say("Chapter one", 600, StopReason::ContextWindow);
    let texts = run.request().messages;
    assert_eq!(texts.len(), 1, "no request ends with a reply");
    let text = texts[0].text();
    assert!(text.contains("<compacted_message number=\"6\" role=\"assistant\">Chapter one"));
    assert!(text.contains("write a book"), "{text}");
    run.say("Chapter two", 100, StopReason::EndTurn);
    assert_eq!(run.state.last_message_number(), 7);
}

#[test]
fn a_conversation_that_no_summary_makes_shorter_is_not_compacted() {
    let mut run = begun();
    run.hear("go on");
    run.refuse();
    assert_eq!(run.compactions(), 0);
    let end = run.turn_end();
    assert!(end.contains("nothing more of the conversation"), "{end}");
}

#[test]
fn without_compaction_a_full_context_ends_the_turn() {
    let mut run = begun_with(&PROGRAM.replace("[context]", "[context]\nenabled = false"));
    run.fill(1..=4);
    run.hear("go on");
    run.refuse();
    assert!(run.turn_end().starts_with("model_failed"));
    assert_eq!(run.compactions(), 0);
    // Without the table it is on, and only the provider decides.
    let (start, _) = PROGRAM.split_once("[context]").unwrap();
    let mut run = begun_with(start);
    run.fill(1..=4);
    run.hear("go on");
    assert_eq!(run.compactions(), 0);
    run.refuse();
    assert_eq!(run.compactions(), 1);
}

#[test]
fn a_program_without_descriptor_tools_is_told_that_it_cannot_read_them() {
    let tools = "[\"read_fd\", \"search_fd\", \"goto\", \"grep\", \"fork\"]";
    let program = PROGRAM
        .replace(tools, "[\"grep\"]")
        .replace("reference_messages = true", "")
        .replace("[file_descriptor]", "")
        .replace("default_page_size = 200", "");
    let mut run = begun_with(&program);
    run.fill(1..=4);
    run.hear("go on");
    let summary = &run.texts()[0];
    assert!(
        summary.contains("You have no tool to read them"),
        "{summary}"
    );
    assert!(!summary.contains("_fd"), "{summary}");
    assert!(run.history(1).contains(&said(1)));
}

#[test]
fn thinking_that_a_provider_binds_to_compacted_messages_becomes_text() {
    let mut run = begun();
    run.converse(1..=3);
    run.hear("find it");
    let thinking = Block::Opaque(Raw::new(
        "anthropic",
        r#"{"type":"thinking","thinking":"hm","signature":"s"}"#,
    ));
    let call = Block::ToolUse {
        id: "a".into(),
        name: "grep".into(),
        args: "{}".into(),
        raw: None,
    };
    run.say_blocks(vec![thinking, call], 501, StopReason::ToolUse);
    let call = run.called().unwrap();
    run.feed(Input::Completed {
        call,
        result: Completion::Tool(ToolOutput::ok("found")),
    });
    let messages = run.request().messages;
    let [summary] = &messages[..] else {
        panic!("{messages:?}");
    };
    let text = summary.text();
    assert!(text.contains("[calls grep as a] {}"), "{text}");
    assert!(text.contains("[answer of a] found"), "{text}");
    assert!(!text.contains("signature"), "{text}");
    assert!(
        run.history(1).contains("\"signature\":\"s\""),
        "nothing is lost"
    );
}

/// An adapter block that names the container in which the provider's tools run code.
fn container(id: &str) -> Block {
    let note = format!(r#"{{"type":"container","id":"{id}"}}"#);
    Block::Opaque(Raw::adapter_block(note))
}

#[test]
fn the_latest_container_stays_in_the_conversation() {
    let mut run = begun();
    run.converse(1..=2);
    for id in ["c1", "c2"] {
        run.hear(&said(3));
        let blocks = vec![Block::text("ran"), container(id)];
        run.say_blocks(blocks, 400, StopReason::EndTurn);
    }
    let containers = |run: &Replay| -> Vec<Block> {
        let messages = run.state.messages().iter();
        let blocks = messages.flat_map(|message| message.blocks.clone());
        blocks
            .filter(|block| matches!(block, Block::Opaque(_)))
            .collect()
    };
    run.fill(5..=8);
    run.hear("go on");
    assert_eq!(run.compactions(), 1);
    assert_eq!(containers(&run), [container("c2")]);
    let summary = &run.state.messages()[0];
    assert!(!summary.text().contains("c2"), "{}", summary.text());
    // Also where the newest messages stay as text, or none of them.
    run.say("on", 600, StopReason::ContextWindow);
    assert_eq!(run.compactions(), 2);
    assert_eq!(containers(&run), [container("c2")]);
    // The note is no text that could leave the summary.
    run.refuse();
    assert_eq!(run.state.messages().len(), 1);
    assert_eq!(containers(&run), [container("c2")]);
    run.hear("go on");
    assert_eq!(containers(&run), [container("c2")]);
}

fn summarized(pending: PendingSummary, text: &str) -> Input {
    Input::Summarized {
        pending,
        result: Ok(Reply {
            blocks: vec![Block::text(text)],
            stop: StopReason::EndTurn,
            usage: Usage {
                output_tokens: 9,
                ..Usage::default()
            },
        }),
    }
}

fn begun_with_model_summary() -> Replay {
    let mut run = begun_with(&format!("{PROGRAM}summary = \"model\"\n"));
    run.fill(1..=4);
    run.hear("go on");
    run
}

#[test]
fn the_summary_model_is_asked_if_the_program_wants_it_and_charged_once() {
    let mut run = begun_with_model_summary();
    let asked = run.summaries_asked();
    assert_eq!((asked.len(), run.compactions()), (1, 0));
    assert!(
        asked[0].prompt.contains("question 1"),
        "{}",
        asked[0].prompt
    );
    run.feed(summarized(asked[0].clone(), "It was about it."));
    assert!(run.texts()[0].contains("<summary by=\"model\">It was about it.</summary>"));
    assert_eq!(run.state.usage().output_tokens, 9);
    // Told again, it changes nothing but its cost.
    let messages = run.state.messages().clone();
    run.feed(summarized(asked[0].clone(), "Again."));
    assert_eq!((run.state.messages(), run.compactions()), (&messages, 1));
    assert_eq!(run.state.usage().output_tokens, 18);
    let is_note = |fact: &Fact| matches!(fact, Fact::Descriptor(DescriptorFact::Annotated { .. }));
    assert!(!run.facts.iter().any(is_note));
    // Without a usable reply, the kernel summarizes.
    for input in [
        summarized(asked[0].clone(), " \n"),
        Input::Summarized {
            pending: asked[0].clone(),
            result: Err(ModelError::new(ModelErrorKind::Transport, "no")),
        },
    ] {
        let mut run = begun_with_model_summary();
        run.feed(input);
        assert!(run.texts()[0].contains("<summary by=\"excerpts\">"));
    }
}

#[test]
fn a_compaction_in_flight_survives_what_happens_meanwhile() {
    // An interrupt gives it up; its cost is counted.
    let mut run = begun_with_model_summary();
    let asked = run.summaries_asked().remove(0);
    run.feed(Input::Signal(Signal::Interrupt));
    assert!(run.turn_end().starts_with("interrupted"));
    run.feed(summarized(asked, "late"));
    assert_eq!((run.compactions(), run.state.usage().output_tokens), (0, 9));
    run.hear("once more");
    assert_eq!(
        run.summaries_asked().len(),
        1,
        "the next turn begins with it"
    );
    // A stopped process records what comes, and calls no model before it continues.
    let mut run = begun_with_model_summary();
    let asked = run.summaries_asked().remove(0);
    run.feed(Input::Signal(Signal::Stop));
    assert_eq!(run.state.busy_reason(), Some(BusyReason::Summary));
    run.feed(summarized(asked, "late"));
    assert_eq!(run.compactions(), 1);
    assert!(matches!(run.state.phase(), Phase::Ready { .. }) && run.effects.is_empty());
    run.feed(Input::Signal(Signal::Continue));
    assert_eq!(run.request().messages.len(), 3);
    // A kill of the kernel: it is asked again, as after any restart.
    let mut run = begun_with_model_summary();
    let before = run.state.messages().clone();
    run.load_again();
    assert_eq!(
        (run.state.messages(), run.summaries_asked().len()),
        (&before, 1)
    );
    // Mail waits for its turn.
    let mut run = begun_with_model_summary();
    let asked = run.summaries_asked().remove(0);
    run.hear("one more thing");
    assert_eq!(run.state.waiting_messages(), 1);
    run.feed(summarized(asked, "in short"));
    assert_eq!(run.request().messages.len(), 3);
}

#[test]
fn going_back_reaches_into_what_was_compacted() {
    let mut run = begun();
    run.converse(1..=2);
    let early: Vec<_> = run.state.messages().iter().cloned().collect();
    run.fill(3..=4);
    run.hear("go on");
    run.say("on", 10, StopReason::EndTurn);
    run.fill(5..=7);
    run.hear("go on");
    assert_eq!((run.compactions(), run.state.compacted().len()), (2, 2));
    let (second, last) = (run.state.compacted()[0].last, run.state.last_compacted());
    let full = run.state.clone();
    // Into the first: the conversation is as it was before any compaction.
    run.goto("msg:4");
    let messages = run.request().messages;
    assert_eq!(messages[..4], early[..4]);
    assert!(messages[4].text().contains("<goto from=\"msg:") && messages.len() == 5);
    assert!(messages[4].text().ends_with("[msg:5]"));
    assert!(run.state.compacted().is_empty());
    assert!(
        run.everything().contains(&said(7)),
        "histories stay readable"
    );
    // Its number is not used again (FD-1).
    run.say("fine", 501, StopReason::EndTurn);
    run.hear("and");
    assert_eq!(run.state.table().last_history(), 3);
    assert_eq!(run.state.compacted()[0].history, 3);
    // Into the second: it begins with the summary of the first.
    let mut run = Replay::of(full, 0);
    run.goto(&format!("msg:{last}"));
    assert_eq!(run.state.compacted().len(), 1);
    assert_eq!(run.state.last_message_number(), last as usize + 1);
    assert!(run.texts()[0].starts_with("<compacted_messages fd=\"history:1\""));
    run.goto(&format!("msg:{}", second + 1));
    assert_eq!(run.request().messages.len(), 3, "{:?}", run.texts());
}

/// Reasoning and a text of an Anthropic server, with what binds them to it.
fn from_the_server(text: &str) -> Vec<Block> {
    let raw = |json: &str| Raw::new("anthropic", json);
    let thinking = r#"{"type":"thinking","thinking":"hm","signature":"s"}"#;
    let words = Block::Text {
        text: text.into(),
        raw: Some(raw(r#"{"type":"text","text":"x","citations":[]}"#)),
    };
    vec![Block::Opaque(raw(thinking)), words, container("c")]
}

#[test]
fn what_a_server_made_does_not_come_back_at_another_one() {
    let is_of_a_server = |block: &&Block| match block {
        Block::Text { raw, .. } | Block::ToolUse { raw, .. } => raw.is_some(),
        Block::Opaque(_) => true,
        Block::ToolResult { .. } | Block::Media { .. } => false,
    };
    let elsewhere = "base_url = \"http://localhost:1\"\n";
    for (place, kept) in [(elsewhere, 0), ("", 6)] {
        let model = |name: &str| format!("name = \"{name}\"\nprovider = \"anthropic\"\n");
        let fallbacks = format!(
            "[[model.fallback]]\n{}{place}[[model.fallback]]\nname = \"c\"\nprovider = \"openai\"\n[tools]",
            model("b")
        );
        let program = PROGRAM
            .replace("name = \"m\"\nprovider = \"scripted\"\n", &model("a"))
            .replace("[tools]", &fallbacks);
        let mut run = begun_with(&program);
        for number in 1..=2 {
            run.hear(&said(number));
            let blocks = from_the_server(&format!("answer {number}"));
            run.say_blocks(blocks, 400, StopReason::EndTurn);
        }
        run.fill(3..=5);
        run.hear("go on");
        assert_eq!(run.compactions(), 1);
        let fail = |run: &mut Replay| {
            let call = run.thinking();
            let error = ModelError::new(ModelErrorKind::Authentication, "no");
            run.feed(Input::Completed {
                call,
                result: Completion::Model(Err(error)),
            });
        };
        fail(&mut run);
        assert_eq!(&*run.request().model, "b");
        run.goto("msg:5");
        let request = run.request();
        assert_eq!((&*request.model, request.messages.len()), ("b", 6));
        let blocks = request.messages.iter().flat_map(|message| &message.blocks);
        assert_eq!(blocks.filter(is_of_a_server).count(), kept, "{place}");
        assert_eq!(run.texts()[3], "answer 2", "the words come back");
        // Nothing that only the first server understands rules out a third one.
        fail(&mut run);
        let is_asked = matches!(run.state.phase(), Phase::Thinking { .. });
        assert_eq!(is_asked, kept == 0, "{place}");
    }
}

#[test]
fn the_model_goes_back_into_what_was_compacted() {
    let mut run = begun();
    run.fill(1..=4);
    run.hear("go on");
    run.reply(&[("goto", r#"{"position": "msg:1", "message": "Once more."}"#)]);
    let texts = run.texts();
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(texts[0].starts_with(&said(1)) && texts[1].contains("Once more."));
    run.reply(&[("goto", r#"{"position": "msg:9", "message": "Then."}"#)]);
    let request = run.request();
    let Block::ToolResult { text, is_error, .. } = &request.messages.last().unwrap().blocks[0]
    else {
        panic!("{:?}", run.texts());
    };
    assert!(*is_error && text.contains("future_position"), "{text}");
}

#[test]
fn lost_messages_refuse_a_goto_by_name_and_change_nothing() {
    let mut run = begun();
    run.fill(1..=4);
    run.hear("go on");
    let mut image = run.state.image();
    image.compacted[0].messages = dormouse_content::Content::new(&b"no encoding"[..]);
    let (program, around) = (run.state.program().clone(), HostContext::new(&TOOL_SET));
    let state = State::from_image(Pid(1), program, Arc::new(around), image).unwrap();
    let before = state.messages().clone();
    let Decision { state, effects, .. } = decide(
        &state,
        Input::Host {
            request_id: "g".into(),
            request: HostRequest::Goto {
                position: "msg:1".into(),
                message: "Again.".into(),
            },
        },
        0,
    )
    .read_all(0);
    assert_eq!(state.messages(), &before);
    let answer = effects.iter().find_map(|effect| match effect {
        Effect::AnswerHost { answer, .. } => Some(answer.text.to_string()),
        _ => None,
    });
    assert!(answer.unwrap().contains("content_unreadable"));
}

#[test]
fn an_ended_process_answers_a_goto_that_was_being_read_and_a_request_for_tools() {
    let mut run = begun();
    run.fill(1..=4);
    run.hear("go on");
    let mut state = run.state.clone();
    let mut input = Input::Host {
        request_id: "g".into(),
        request: HostRequest::Goto {
            position: "msg:1".into(),
            message: "Again.".into(),
        },
    };
    // Its message is placed, then the compacted messages are read.
    for _ in 0..2 {
        let decision = decide(&state, input, 0);
        state = decision.state;
        let read = decision.reads[0].perform(ReadQuota::unlimited());
        input = read.expect("the quota is unlimited");
    }
    let Decision { state, .. } = decide(&state, Input::Signal(Signal::Kill), 0);
    let replace_tools = Input::Host {
        request_id: "t".into(),
        request: HostRequest::ReplaceTools {
            tools: Vec::new().into(),
            external: Vec::new().into(),
        },
    };
    for (expected, input) in [("g", input), ("t", replace_tools)] {
        let Decision { effects, .. } = decide(&state, input, 0);
        let [Effect::AnswerHost { request_id, answer }] = effects.as_slice() else {
            panic!("{expected} is answered: {effects:?}");
        };
        assert_eq!((&**request_id, answer.is_error), (expected, true));
    }
}

#[test]
fn a_checkpoint_from_before_is_whole() {
    let mut run = begun();
    run.fill(1..=4);
    let before = run.state.image();
    run.hear("go on");
    run.say("on", 10, StopReason::EndTurn);
    let checkpoint = CheckpointInfo {
        id: CheckpointId(1),
        label: "".into(),
        at: FactNumber(1),
        scope: Scope::Process,
    };
    run.feed(Input::Host {
        request_id: "r".into(),
        request: HostRequest::Restore(Box::new(CheckpointImage {
            checkpoint,
            image: before.clone(),
        })),
    });
    let messages: Vec<_> = run.state.messages().iter().cloned().collect();
    let expected: Vec<_> = before.messages.iter().cloned().collect();
    assert_eq!(messages[..expected.len()], expected[..]);
    assert!(run.state.compacted().is_empty());
    // The number of the descriptor that is gone is not used again (FD-1).
    run.hear("go on");
    assert_eq!(run.state.compacted()[0].history, 2);
}

#[test]
fn children_of_a_fork_share_the_summary_and_what_was_compacted() {
    let mut run = begun();
    run.fill(1..=4);
    run.hear("go on");
    run.reply(&[("fork", r#"{"prompts": ["left", "right"]}"#)]);
    let children = run.effects.iter().find_map(|effect| match effect {
        Effect::StartChildren { children, .. } => Some(children.clone()),
        _ => None,
    });
    let parent: Vec<_> = run.state.messages().iter().cloned().collect();
    for child in children.expect("children are made") {
        let messages: Vec<_> = child.image.messages.iter().cloned().collect();
        assert_eq!(messages[..parent.len()], parent[..], "FORK-2");
        assert_eq!(child.image.forked_at, [parent.len() as u32]);
        assert_eq!(child.image.compacted, run.state.image().compacted);
        assert!(messages.last().unwrap().text().ends_with("[msg:11]"));
        let around = Arc::new(HostContext::new(&TOOL_SET));
        let state = State::from_image(Pid(2), child.program.clone(), around, child.image).unwrap();
        let mut child = Replay::of(state, 0);
        assert!(child.history(1).contains(&said(1)));
        child.refuse();
        assert_eq!(child.state.compacted().len(), 2);
        assert!(
            child.request().forked_at.is_empty(),
            "no other child has its summary"
        );
    }
}

#[test]
fn damaged_compactions_of_an_image_are_refused() {
    let mut run = begun();
    run.fill(1..=4);
    run.hear("go on");
    let image = run.state.image();
    let load = |change: fn(&mut dormouse_kernel::process::Image)| {
        let mut image = image.clone();
        change(&mut image);
        let around = Arc::new(HostContext::new(&TOOL_SET));
        State::from_image(Pid(1), run.state.program().clone(), around, image).is_err()
    };
    assert!(!load(|_| {}));
    assert!(load(|image| image.messages.clear()));
    assert!(load(|image| image.compacted[0].last = 0));
    assert!(load(|image| image.compacted[0].last = u32::MAX));
    assert!(load(|image| image.last_history = 0));
    assert!(load(|image| {
        let first = image.compacted[0].clone();
        image
            .compacted
            .push_back(dormouse_proto::record::CompactedMessages {
                last: first.last - 1,
                ..first
            });
    }));
}

#[test]
fn the_request_and_the_state_are_bounded_however_long_it_goes_on() {
    let mut run = begun();
    let mut most = 0;
    for number in 1..=200 {
        run.hear(&said(number));
        let request = run.request();
        let tokens = request.estimated_tokens();
        most = most.max(tokens);
        run.say(&format!("answer {number}"), tokens, StopReason::EndTurn);
        // Facts are checked by replay after each input: keep the test linear.
        run.first = run.state.clone();
        run.facts.clear();
    }
    assert!(most < 2_000, "{most}");
    let everything = run.everything();
    for number in 1..=200 {
        assert!(everything.contains(&said(number)), "{number}");
        assert!(everything.contains(&format!("answer {number}")), "{number}");
    }
    assert!(run.state.compacted().len() > 20);
}

#[test]
fn a_summary_is_a_message_of_the_user_without_a_number() {
    let mut run = begun();
    run.fill(1..=4);
    run.hear("go on");
    let summary = &run.state.messages()[0];
    assert_eq!((summary.role, summary.blocks.len()), (Role::User, 1));
    assert!(!summary.text().contains("msg:"), "{}", summary.text());
}
