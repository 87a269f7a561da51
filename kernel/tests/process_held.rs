//! Held calls: what waits for a person and what goes on, what each verdict does, and that a verdict
//! applies to one call of one process (HELD-1).

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dormouse_kernel::process::{
    Birth, BusyReason, Completion, Effect, Fact, HostContext, HostRequest, HostTool, Image, Input,
    Preloads, Report, Signal, StartMode, State, Verdict, Work, image_of_branch, image_of_copy,
    initial_image,
};
use dormouse_kernel::program::compile;
use dormouse_kernel::syscall::TOOL_SET;
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::message::Block;
use dormouse_proto::process::{ExitStatus, Priority, Waiting};
use dormouse_proto::record::{CallFact, Control, Lifetime, Phase};
use dormouse_proto::tool::{Access, ToolOutput, ToolPolicy, ToolSpec};
use serde_json::json;

use crate::replay::Replay;

const TOOLS: [&str; 3] = ["look", "write", "bash"];
const HOUR_MS: u64 = 3_600_000;

/// A process with the read tool `look`, and the tools `write` and `bash`, which write.
pub(crate) fn process(ask: &str) -> State {
    let text = format!(
        "[model]\nname = \"m\"\nprovider = \"scripted\"\n[tools]\nenabled = [\"look\", \"write\", \
         \"bash\", \"ask_user\", \"goto\", \"read_fd\", {{ name = \"fork\", access = \"write\" }}, \
         {{ name = \"explore\", access = \"write\" }}]\n{ask}"
    );
    let compiled = compile(
        Path::new("p.toml"),
        &mut |_| Ok(Bytes::from(text.clone())),
        &TOOLS,
    );
    let program = compiled
        .unwrap_or_else(|errors| panic!("{errors:?}"))
        .program;
    let context = context();
    let (input, preloads) = ("go".into(), Preloads::default());
    let birth = Birth {
        access: Access::Write,
        depth: 0,
        lifetime: Lifetime::Session,
        priority: Priority::Normal,
        preloads: &preloads,
        input: Some(&input),
    };
    let image = initial_image(&program, &context, birth, 0);
    State::from_image(Pid(1), program, context, image).unwrap()
}

/// A process whose model has made these calls.
pub(crate) fn called(ask: &str, calls: &[(&str, &str)]) -> Replay {
    let mut run = Replay::of(process(ask), 0);
    run.reply(calls);
    run
}

const ASK_WRITE: &str = "ask = [\"write\"]\n";
const ASK_BASH: &str = "ask = [\"bash\"]\n";

impl Replay {
    pub(crate) fn held(&self) -> Vec<(CallId, String)> {
        let held = self.state.phase().held_calls();
        held.map(|(pending_call, _)| (pending_call.call, pending_call.tool.to_string()))
            .collect()
    }

    /// The tools that the last input began, with their arguments.
    pub(crate) fn begun(&self) -> Vec<(String, String)> {
        let begun = self.effects.iter().filter_map(|effect| match effect {
            Effect::StartWork {
                work: Work::Tool { tool, args, .. },
                ..
            } => Some((tool.name_for_model.to_string(), args.to_string())),
            _ => None,
        });
        begun.collect()
    }

    pub(crate) fn verdict(&mut self, call: CallId, verdict: Verdict) -> Result<(), String> {
        self.feed(Input::Host {
            request_id: "v".into(),
            request: HostRequest::AnswerHeld { call, verdict },
        });
        let answers = self.effects.iter().filter_map(|effect| match effect {
            Effect::AnswerHost { request_id, answer } if &**request_id == "v" => Some(answer),
            _ => None,
        });
        let answers: Vec<_> = answers.collect();
        assert_eq!(answers.len(), 1);
        match answers[0].is_error {
            true => Err(answers[0].text.to_string()),
            false => Ok(()),
        }
    }

    pub(crate) fn approve(&mut self, call: CallId) {
        self.verdict(call, Verdict::Approve { args: None }).unwrap();
    }

    pub(crate) fn finish(&mut self, call: CallId, output: &str) {
        self.feed(Input::Completed {
            call,
            result: Completion::Tool(ToolOutput::ok(output.to_owned())),
        });
    }

    /// The answers to the calls of the last reply, as the model reads them.
    pub(crate) fn answers(&self) -> Vec<String> {
        let last = self.state.messages().last().unwrap();
        let answers = last.blocks.iter().filter_map(|block| match block {
            Block::ToolResult { text, .. } => Some(text.to_string()),
            _ => None,
        });
        answers.collect()
    }

    fn image(&self) -> Image {
        self.state.image()
    }
}

/// The process of an image, which begins to run at `now_ms`.
pub(crate) fn of_image(original: &Replay, image: Image, pid: u64, now_ms: u64) -> Replay {
    let program = original.state.program().clone();
    let state = State::from_image(Pid(pid), program, context(), image).unwrap();
    Replay::of(state, now_ms)
}

/// The host's tools: `look` reads, `write` and `bash` write. All but `write` may be repeated.
pub(crate) fn context() -> Arc<HostContext> {
    let host_tool = |name: &str| {
        let spec = ToolSpec {
            name: name.into(),
            description: "does".into(),
            schema: "{}".into(),
        };
        let access = match name {
            "look" => Access::Read,
            _ => Access::Write,
        };
        let policy = ToolPolicy {
            access,
            idempotent: name != "write",
            ..ToolPolicy::default()
        };
        (name.into(), HostTool { spec, policy })
    };
    Arc::new(HostContext {
        tools: TOOLS.into_iter().map(host_tool).collect(),
        ..HostContext::new(&TOOL_SET)
    })
}

#[test]
fn a_rule_holds_calls_by_access_by_name_and_by_argument() {
    let by_argument = "ask = [{ tool = \"bash\", when = { argument = \"command\", matches = \
                       \"^rm|push\" } }, { tool = \"bash\", when = { argument = \
                       \"/options/force\", equals = true } }]\n";
    let cases: [(&str, &str, &str, bool); 15] = [
        (ASK_WRITE, "write", "{}", true),
        (ASK_WRITE, "bash", "{}", true),
        (ASK_WRITE, "look", "{}", false),
        ("ask = [\"read\"]\n", "look", "{}", true),
        ("ask = [\"admin\"]\n", "write", "{}", false),
        ("ask = [\"look\"]\n", "look", "{}", true),
        ("ask = [\"look\"]\n", "bash", "{}", false),
        (by_argument, "bash", r#"{"command": "rm -r x"}"#, true),
        (by_argument, "bash", r#"{"command": "git push"}"#, true),
        (by_argument, "bash", r#"{"command": "ls"}"#, false),
        (by_argument, "bash", r#"{"command": ["x", "push"]}"#, true),
        (by_argument, "bash", r#"{"options": {"force": true}}"#, true),
        (
            by_argument,
            "bash",
            r#"{"options": {"force": "True"}}"#,
            true,
        ),
        (by_argument, "bash", "rm", true),
        ("", "bash", "{}", false),
    ];
    for (ask, tool, args, is_held) in cases {
        let run = called(ask, &[(tool, args)]);
        assert_eq!(run.held().len(), usize::from(is_held), "{ask}{tool} {args}");
        assert_eq!(run.begun().is_empty(), is_held, "{ask}{tool} {args}");
        let is_reported = run
            .effects
            .iter()
            .any(|effect| matches!(effect, Effect::Report(Report::Held { .. })));
        assert_eq!(is_reported, is_held);
    }
}

/// What a tool takes for the argument of a rule is judged, however the model writes it.
#[test]
fn a_rule_judges_arguments_as_the_tool_takes_them() {
    let read =
        |condition: &str| format!("ask = [{{ tool = \"read_fd\", when = {{ {condition} }} }}]\n");
    let command = |condition: &str| {
        format!(
            "ask = [{{ tool = \"pay\", when = {{ {condition} }} }}]\n[[tools.command]]\nname = \
             \"pay\"\ndescription = \"Pays.\"\nargv = [\"pay\", \"{{sum}}\", \"{{to}}\"]\nparameters.sum = {{ type = \"integer\" }}\nparameters.to = {{ type = \
             \"string\", default = \"bob\" }}\n"
        )
    };
    let secret = read(r#"argument = "fd", matches = "^fd:7$""#);
    let pointer = read(r#"argument = "/fd", matches = "^fd:7$""#);
    let all = read(r#"argument = "read_all", equals = true"#);
    let page = read(r#"argument = "page", equals = 2"#);
    let five = command(r#"argument = "sum", matches = "^5$""#);
    let to_bob = command(r#"argument = "to", equals = "bob""#);
    let cases = [
        (&secret, "read_fd", r#"{"fd": "fd:7"}"#, true),
        (&secret, "read_fd", r#"{"path": "fd:7"}"#, true),
        (&secret, "read_fd", r#"{"fileDescriptor": "fd:7"}"#, true),
        (&secret, "read_fd", r#"{"fd": null, "id": "fd:7"}"#, true),
        (&secret, "read_fd", r#"{"path": "fd:8"}"#, false),
        (&pointer, "read_fd", r#"{"descriptor": "fd:7"}"#, true),
        (&all, "read_fd", r#"{"fd": "fd:1", "all": "True"}"#, true),
        (&all, "read_fd", r#"{"fd": "fd:1", "all": "false"}"#, false),
        (
            &page,
            "read_fd",
            r#"{"fd": "fd:1", "pageNumber": "2"}"#,
            true,
        ),
        (&five, "pay", r#"{"sum": "005", "to": "eve"}"#, true),
        (&five, "pay", r#"{"sum": 15, "to": "eve"}"#, false),
        (&to_bob, "pay", r#"{"sum": 1}"#, true),
        (&to_bob, "pay", r#"{"sum": 1, "to": null}"#, true),
        (&to_bob, "pay", r#"{"sum": 1, "to": "eve"}"#, false),
    ];
    for (ask, tool, args, is_held) in cases {
        let run = called(ask, &[(tool, args)]);
        assert_eq!(run.held().len(), usize::from(is_held), "{ask}{args}");
    }
}

/// The content that a handle stands for could be what the rule is about.
#[test]
fn an_argument_with_a_handle_meets_every_condition() {
    let expanding = "ask = [{ tool = \"bash\", when = { argument = \"command\", matches = \"rm\" } \
                     }]\n[file_descriptor]\nexpand_fds = true\n";
    let run = called(expanding, &[("bash", r#"{"command": "{{fd:1}}"}"#)]);
    assert_eq!(run.held().len(), 1, "{:?}", run.state.phase());
}

#[test]
fn reads_go_on_and_nothing_writes_until_all_of_a_turn_is_answered() {
    let ask_bash = "ask = [\"bash\"]\n";
    let calls = [
        ("write", "{}"),
        ("bash", "{}"),
        ("look", "{}"),
        ("bash", r#"{"b": 2}"#),
    ];
    let mut run = called(ask_bash, &calls);
    assert_eq!(run.begun(), [("look".into(), "{}".into())]);
    let look = run.called().unwrap();
    let held = run.held();
    assert_eq!(held.len(), 2);
    assert_eq!(run.state.busy_reason(), Some(BusyReason::Turn), "it looks");
    run.finish(look, "seen");
    assert_eq!(run.state.busy_reason(), None, "it only waits");
    run.approve(held[0].0);
    assert_eq!(run.begun(), [], "another one is held");
    assert_eq!(run.state.busy_reason(), None);
    let why = "not on a Friday".to_owned();
    run.verdict(held[1].0, Verdict::Refuse { why }).unwrap();
    let begun = run.begun();
    let names: Vec<_> = begun.iter().map(|(tool, _)| tool.as_str()).collect();
    assert_eq!(names, ["write", "bash"]);
    assert_eq!(run.state.busy_reason(), Some(BusyReason::Turn));
    let calls: Vec<_> = run
        .state
        .phase()
        .pending_calls()
        .iter()
        .map(|call| call.call)
        .collect();
    run.finish(calls[1], "ran");
    run.finish(calls[0], "written");
    let answers = run.answers();
    assert_eq!(
        (&*answers[0], &*answers[1], &*answers[2]),
        ("written", "ran", "seen")
    );
    assert!(answers[3].contains("Refused by a person") && answers[3].contains("Friday"));
}

/// The descriptor of a later output is not kept waiting by a call that may wait for weeks.
#[test]
fn a_large_output_is_shown_while_an_earlier_call_is_held() {
    let descriptors = "ask = [\"write\"]\n[file_descriptor]\nmax_direct_output_chars = \
                       20\ndefault_page_size = 10\nmax_input_chars = 40\n";
    let mut run = called(descriptors, &[("write", "{}"), ("look", "{}")]);
    let look = run.called().unwrap();
    run.finish(look, &"long ".repeat(50));
    assert_eq!(run.state.table().len(), 1);
    assert_eq!(run.state.busy_reason(), None, "{:?}", run.state.phase());
}

#[test]
fn the_model_reads_the_arguments_that_ran() {
    let mut run = called(ASK_WRITE, &[("write", r#"{"path": "/etc/passwd"}"#)]);
    let call = run.held()[0].0;
    for invalid in ["", "7", "[1]", "{"] {
        let args = Some(invalid.to_owned());
        let error = run.verdict(call, Verdict::Approve { args }).unwrap_err();
        assert!(error.contains("edited arguments"), "{invalid}: {error}");
    }
    let args = Some(r#"{"path": "/tmp/<x>"}"#.to_owned());
    run.verdict(call, Verdict::Approve { args }).unwrap();
    assert_eq!(run.begun()[0].1, r#"{"path": "/tmp/<x>"}"#);
    run.finish(call, "written");
    let answer = &run.answers()[0];
    assert!(
        answer.starts_with("<edited_arguments>") && answer.ends_with("\nwritten"),
        "{answer}"
    );
    assert!(answer.contains(r#"{"path": "/tmp/<x>"}"#), "{answer}");
    let uses = run
        .state
        .messages()
        .iter()
        .flat_map(|message| &message.blocks);
    let args = uses.filter_map(|block| match block {
        Block::ToolUse { args, .. } => Some(args.to_string()),
        _ => None,
    });
    assert_eq!(args.collect::<Vec<_>>(), [r#"{"path": "/etc/passwd"}"#]);

    let mut same = called(ASK_WRITE, &[("write", r#"{"path": "a"}"#)]);
    let call = same.held()[0].0;
    let args = Some(r#"{ "path":"a" }"#.to_owned());
    same.verdict(call, Verdict::Approve { args }).unwrap();
    same.finish(call, "written");
    assert_eq!(same.answers(), ["written"], "nothing was changed");
}

#[test]
fn a_question_is_answered_with_a_valid_value() {
    let args = r#"{"question": "Which?", "choices": ["a", "b"]}"#;
    let mut run = called("", &[("ask_user", args), ("look", "{}"), ("write", "{}")]);
    let (call, look) = (run.held()[0].0, run.called().unwrap());
    assert_eq!(run.begun().len(), 1, "what writes waits for the answer");
    let approval = run.verdict(call, Verdict::Approve { args: None });
    assert!(approval.unwrap_err().contains("is a question"));
    let value = json!("c");
    let error = run.verdict(call, Verdict::Answer { value }).unwrap_err();
    assert!(error.contains("\"a\", \"b\""), "{error}");
    assert_eq!(run.held().len(), 1, "it can be answered again");
    run.verdict(call, Verdict::Answer { value: json!("b") })
        .unwrap();
    let write = run.called().unwrap();
    run.finish(write, "written");
    run.finish(look, "seen");
    assert_eq!(run.answers(), ["b", "seen", "written"]);

    let mut invalid = called(
        "",
        &[("ask_user", r#"{"question": "?", "schema": {"type": 3}}"#)],
    );
    assert_eq!(
        invalid.held(),
        [],
        "a mistake of the model is answered at once"
    );
    assert!(invalid.answers()[0].contains("schema"));
    invalid.reply(&[]);
    invalid.feed(Input::Host {
        request_id: "h".into(),
        request: HostRequest::Call {
            tool: "ask_user".into(),
            args: args.into(),
        },
    });
    assert_eq!(
        (invalid.held().len(), invalid.state.phase()),
        (0, &Phase::Idle)
    );
}

#[test]
fn a_verdict_applies_once_and_to_a_held_call_only() {
    let mut run = called(ASK_WRITE, &[("write", "{}")]);
    let call = run.held()[0].0;
    let value = json!(1);
    let answered = run.verdict(call, Verdict::Answer { value });
    assert!(answered.unwrap_err().contains("no question"));
    let other = CallId {
        seq: call.seq + 1,
        ..call
    };
    assert!(run.verdict(other, Verdict::Approve { args: None }).is_err());
    run.approve(call);
    let again = run.verdict(call, Verdict::Approve { args: None });
    assert!(again.unwrap_err().contains("answered before"));
    assert_eq!(run.begun(), [], "the second one begins nothing");
    let refused = run.verdict(call, Verdict::Refuse { why: String::new() });
    assert!(refused.is_err(), "it runs already");
    let mut asked = called("", &[("ask_user", r#"{"question": "Which?"}"#)]);
    let recalled = asked.verdict(asked.held()[0].0, Verdict::Recall);
    assert!(recalled.unwrap_err().contains("answer it with a value"));
}

#[test]
fn a_copy_does_not_say_that_nothing_ran_of_a_call_that_the_original_had_started() {
    let mut run = called(ASK_BASH, &[("bash", "{}")]);
    let waiting = run.image();
    run.approve(run.held()[0].0);
    let started = run.image();
    for (image, expected) in [
        (waiting, "Nothing of this call has run."),
        (started, "It was not run again."),
    ] {
        let mut copy = of_image(&run, image_of_copy(image, 0), 2, 0);
        let why = String::new();
        copy.verdict(copy.held()[0].0, Verdict::Refuse { why })
            .unwrap();
        let answer = &copy.answers()[0];
        assert!(answer.contains(expected), "{answer}");
    }
}

#[test]
fn access_is_checked_first_and_host_calls_are_not_held() {
    let admin_only = "ask = [\"read\"]\n";
    let mut run = called(admin_only, &[("none", "{}"), ("look", "{}")]);
    assert_eq!(run.held().len(), 1, "there is no tool of the other name");
    let call = run.held()[0].0;
    run.approve(call);
    run.finish(call, "seen");
    run.reply(&[]);
    run.feed(Input::Host {
        request_id: "h".into(),
        request: HostRequest::Call {
            tool: "write".into(),
            args: "{}".into(),
        },
    });
    assert_eq!((run.held().len(), run.begun().len()), (0, 1));
}

#[test]
fn a_call_that_nobody_answers_expires() {
    let expiring = "ask = [\"write\"]\nask_expires = \"1h\"\n";
    let mut run = called(expiring, &[("write", "{}")]);
    let call = run.held()[0].0;
    let wakes = |run: &Replay| {
        let times = run.effects.iter().filter_map(|effect| match effect {
            Effect::WakeAt { at_ms } => Some(*at_ms),
            _ => None,
        });
        times.collect::<Vec<_>>()
    };
    assert_eq!(wakes(&run), [HOUR_MS]);
    assert_eq!(run.state.next_wake_ms(), Some(HOUR_MS));
    run.feed(Input::TimeUp { at_ms: HOUR_MS - 1 });
    assert_eq!(run.held().len(), 1);

    let mut resumed = of_image(&run, run.image(), 1, HOUR_MS);
    assert_eq!(resumed.held(), [], "what expired meanwhile is refused");
    assert!(resumed.answers()[0].contains("nobody answered within the time"));
    let late = resumed.verdict(call, Verdict::Approve { args: None });
    assert!(late.is_err());

    let mut late = of_image(&run, run.image(), 1, HOUR_MS - 1);
    late.now_ms = HOUR_MS;
    let approved = late.verdict(call, Verdict::Approve { args: None });
    assert!(approved.is_err(), "an approval that comes too late");
    assert!(late.answers()[0].contains("nobody answered within the time"));

    run.feed(Input::TimeUp { at_ms: HOUR_MS });
    assert!(run.answers()[0].contains("nobody answered within the time"));
    assert_eq!(run.begun(), []);
}

#[test]
fn an_approval_that_was_not_begun_runs_once_after_a_restart() {
    let calls = [("write", "{}"), ("write", r#"{"n": 2}"#)];
    let mut run = called(ASK_WRITE, &calls);
    let held = run.held();
    run.approve(held[0].0);
    // A journal may end behind each fact.
    let mut resumed = of_image(&run, run.image(), 1, 0);
    assert_eq!((resumed.begun().len(), resumed.held().len()), (0, 1));
    resumed.approve(held[1].0);
    assert_eq!(resumed.begun().len(), 2);
    let mut again = of_image(&resumed, resumed.image(), 1, 0);
    let answers = again.answers();
    assert!(
        answers
            .iter()
            .all(|answer| answer.contains("effect is unknown")),
        "{answers:?}"
    );
    again.reply(&[]);
    assert_eq!(again.held(), []);
}

#[test]
fn a_journal_may_end_behind_each_fact() {
    let calls = [("write", "{}"), ("bash", "{}"), ("look", "{}")];
    let mut run = called(ASK_WRITE, &calls);
    let held = run.held();
    run.approve(held[1].0);
    run.approve(held[0].0);
    let facts = run.facts.clone();
    for kept in 0..=facts.len() {
        let mut state = run.first.clone();
        for fact in &facts[..kept] {
            dormouse_kernel::process::evolve(&mut state, fact);
        }
        let intents = |facts: &[Fact], call: CallId| {
            let begun = |fact: &&Fact| matches!(fact, Fact::Call(CallFact::ToolCalled { call: begun }) if *begun == call);
            facts.iter().filter(begun).count()
        };
        let is_approved = |call: CallId| {
            let approves = |fact: &Fact| matches!(fact, Fact::Call(CallFact::Approved { call: approved, .. }) if *approved == call);
            facts[..kept].iter().any(approves)
        };
        let resumed = Replay::of(state, 0);
        for (call, tool) in &held {
            let begun_before = intents(&facts[..kept], *call);
            let begun_again = intents(&resumed.facts, *call);
            if !is_approved(*call) {
                assert_eq!(
                    (begun_before, begun_again),
                    (0, 0),
                    "{kept} facts, {tool}: HELD-1"
                );
            }
            let may_run_again = tool == "bash";
            let runs = begun_before + begun_again;
            assert!(
                runs <= 1 || may_run_again,
                "{kept} facts, {tool}: {runs} runs"
            );
        }
    }
}

#[test]
fn a_copy_holds_anew_what_was_held_or_approved() {
    let expiring = "ask = [\"write\"]\nask_expires = \"1h\"\n";
    let calls = [
        ("bash", r#"{"n": 1}"#),
        ("write", "{}"),
        ("bash", r#"{"n": 3}"#),
    ];
    let mut run = called(expiring, &calls);
    let held = run.held();
    let args = Some(r#"{"n": 9}"#.to_owned());
    run.verdict(held[0].0, Verdict::Approve { args }).unwrap();
    let waiting = run.image();
    run.approve(held[1].0);
    run.approve(held[2].0);
    let begun = run.image();
    let (now_ms, running) = (5 * HOUR_MS, StartMode::Running);
    let copies = [
        (
            "a branch",
            image_of_branch(waiting.clone(), now_ms, running),
            3,
        ),
        ("a copy", image_of_copy(waiting, now_ms), 3),
        // What is not repeatable and had begun is not run again at all.
        (
            "a branch of calls in flight",
            image_of_branch(begun.clone(), now_ms, running),
            2,
        ),
        ("a copy of calls in flight", image_of_copy(begun, now_ms), 2),
    ];
    for (what, image, expected) in copies {
        let mut copy = of_image(&run, image, 2, now_ms);
        assert_eq!(
            (copy.held().len(), copy.begun().len()),
            (expected, 0),
            "{what}"
        );
        assert_eq!(copy.state.next_wake_ms(), Some(6 * HOUR_MS), "{what}");
        let pending_calls = copy.state.phase().pending_calls().to_vec();
        assert_eq!(
            &*pending_calls[0].args, r#"{"n": 1}"#,
            "{what}: the model's own"
        );
        assert_eq!(copy.state.busy_reason(), None, "{what}");
        assert!(
            copy.state.phase().asks(),
            "{what}: it waits for the person only"
        );
        let held = copy.held();
        held.iter().for_each(|(call, _)| copy.approve(*call));
        assert_eq!(copy.begun().len(), expected, "{what}");
    }
}

#[test]
fn a_copy_repeats_what_waited_for_a_call_that_is_not_run_again() {
    let ask = "ask = [{ tool = \"write\", when = { argument = \"n\", matches = \".\" } }]\n";
    let mut run = called(ask, &[("bash", "{}"), ("write", r#"{"n": 1}"#)]);
    run.approve(run.held()[0].0);
    let copy = of_image(&run, image_of_copy(run.image(), HOUR_MS), 2, HOUR_MS);
    assert_eq!(copy.held(), []);
    assert_eq!(copy.begun(), [("bash".to_owned(), "{}".to_owned())]);
}

#[test]
fn a_turn_that_is_given_up_gives_up_its_held_calls() {
    let signals = [Signal::Interrupt, Signal::Kill];
    for signal in signals {
        let mut run = called(ASK_WRITE, &[("write", "{}")]);
        let call = run.held()[0].0;
        run.feed(Input::Signal(signal));
        assert_eq!(run.held(), []);
        assert!(run.verdict(call, Verdict::Approve { args: None }).is_err());
        assert_eq!(run.begun(), []);
    }
    let mut run = called(ASK_WRITE, &[("write", "{}")]);
    let call = run.held()[0].0;
    run.feed(Input::Host {
        request_id: "t".into(),
        request: HostRequest::Goto {
            position: "msg:1".into(),
            message: "again".into(),
        },
    });
    assert_eq!(run.held(), []);
    assert!(run.verdict(call, Verdict::Approve { args: None }).is_err());
}

#[test]
fn an_approval_of_a_stopped_process_takes_effect_when_it_continues() {
    let mut run = called(ASK_WRITE, &[("write", "{}")]);
    let call = run.held()[0].0;
    run.feed(Input::Signal(Signal::Stop));
    run.approve(call);
    assert_eq!((run.begun().len(), run.held().len()), (0, 0));
    let mut frozen = of_image(&run, run.image(), 1, 0);
    assert_eq!(frozen.image().control, Control::StoppedWithoutCalls);
    for stopped in [&mut run, &mut frozen] {
        stopped.feed(Input::Signal(Signal::Continue));
        assert_eq!(stopped.begun().len(), 1);
    }
}

/// A process that its row lets rest is resumed without being loaded: then nobody tells it that what
/// held it up has ended.
#[test]
fn the_row_of_a_process_that_is_held_up_lets_nobody_resume_it_unread() {
    let mut run = called(ASK_WRITE, &[("write", "{}")]);
    let person = Waiting::Person { expires_ms: None };
    assert_eq!(run.state.waiting(), person);
    for (holds, ends) in [
        (Signal::Stop, Signal::Continue),
        (Signal::Suspend, Signal::Release),
    ] {
        run.feed(Input::Signal(holds));
        assert_eq!(run.state.waiting(), Waiting::Unknown);
        run.feed(Input::Signal(ends));
        assert_eq!(run.state.waiting(), person);
    }
}

#[test]
fn the_wall_time_stands_still_while_a_process_waits() {
    let limited = "ask = [\"write\"]\n[budget]\nwall_time = \"10s\"\n";
    let mut run = Replay::of(process(limited), 0);
    run.now_ms = 4_000;
    run.reply(&[("write", "{}")]);
    let call = run.held()[0].0;
    assert_eq!(
        (run.state.busy_reason(), run.state.next_wake_ms()),
        (None, None)
    );
    run.now_ms = 100 * HOUR_MS;
    let mut resumed = of_image(&run, run.image(), 1, 100 * HOUR_MS);
    for run in [&mut run, &mut resumed] {
        run.approve(call);
        assert_eq!(run.state.next_wake_ms(), Some(100 * HOUR_MS + 6_000));
        run.now_ms += 5_999;
        run.finish(call, "written");
        assert_eq!(run.state.exit(), None);
        run.feed(Input::TimeUp {
            at_ms: 100 * HOUR_MS + 6_000,
        });
        let exit = run.state.exit().expect("its time is over");
        assert_eq!(
            (exit.status, exit.ran_ms),
            (ExitStatus::BudgetExhausted, 9_999)
        );
    }
}
