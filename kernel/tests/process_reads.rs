//! Reads of contents: a decision asks for them and never performs them, whatever the disk does; the
//! calls of a model wait for the read before them, and what is found late changes nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use dormouse_content::{BlobReader, BlobStore, CappedBytes, Content, ReadQuota, Unreadable};
use dormouse_kernel::process::{
    Birth, BusyReason, ChildEvent, Completion, Decision, Effect, Fact, Fetched, HostContext,
    HostRequest, HostTool, Input, Preloads, Read, Signal, State, Work, decide, initial_image,
};
use dormouse_kernel::program::compile;
use dormouse_kernel::syscall::{Envelope, TOOL_SET};
use dormouse_proto::id::{CallId, FdId, Pid};
use dormouse_proto::mail::Sender;
use dormouse_proto::message::Block;
use dormouse_proto::model::{Reply, StopReason, Usage};
use dormouse_proto::process::{Exit, ExitStatus, Priority};
use dormouse_proto::record::{CallFact, ContentRef, DescriptorFact, Entry, Lifetime, MailFact};
use dormouse_proto::tool::{Access, ToolOutput, ToolPolicy, ToolSpec};

const PROGRAM: &str = r#"
[model]
name = "m"
provider = "scripted"
[tools]
enabled = ["read_fd", "search_fd", "fd_to_file", "rename_fd", "mark_fd_section", "spawn", "send_message", "grep"]
[linked_programs]
me = "p.toml"
[file_descriptor]
max_direct_output_chars = 50
max_input_chars = 50
expand_fds = true
"#;

const TEXT: &str = "one\ntwo\nthree\n";

/// What this test holds on a disk that is not to be read within a decision.
#[derive(Debug, Default)]
struct Disk {
    is_open: AtomicBool,
}

impl BlobStore for Disk {
    fn open(&self, _: ContentRef) -> Result<Arc<dyn BlobReader>, Unreadable> {
        assert!(
            self.is_open.load(Ordering::Relaxed),
            "a decision reads the disk"
        );
        Ok(Arc::new(Stored))
    }
}

struct Stored;

impl BlobReader for Stored {
    fn length(&self) -> u64 {
        TEXT.len() as u64
    }

    fn index(&self) -> Option<Bytes> {
        None
    }

    fn slice(&self, bytes: std::ops::Range<u64>) -> Result<Bytes, Unreadable> {
        let range = usize::try_from(bytes.start).unwrap()..usize::try_from(bytes.end).unwrap();
        Ok(Bytes::from_static(TEXT[range].as_bytes()))
    }
}

/// A process whose model was asked, with `fd:1` on disk, and what came of it.
pub(crate) struct Run {
    disk: Arc<Disk>,
    pub(crate) state: State,
    pub(crate) facts: Vec<Fact>,
    pub(crate) reads: Vec<Read>,
    pub(crate) effects: Vec<Effect>,
}

impl Run {
    fn new() -> Self {
        Self::of(PROGRAM)
    }

    pub(crate) fn of(program: &'static str) -> Self {
        let program = compile(
            Path::new("p.toml"),
            &mut |_| Ok(Bytes::from(program)),
            &["grep"],
        )
        .unwrap()
        .program;
        let spec = ToolSpec {
            name: "grep".into(),
            description: "finds".into(),
            schema: "{}".into(),
        };
        let policy = ToolPolicy {
            access: Access::Read,
            ..ToolPolicy::default()
        };
        let tools = BTreeMap::from([("grep".into(), HostTool { spec, policy })]);
        let around = Arc::new(HostContext {
            tools,
            ..HostContext::new(&TOOL_SET)
        });
        let (said, preloads) = ("go".into(), Preloads::default());
        let birth = Birth {
            access: Access::Admin,
            depth: 0,
            lifetime: Lifetime::Session,
            priority: Priority::Normal,
            preloads: &preloads,
            input: Some(&said),
        };
        let mut image = initial_image(&program, &around, birth, 0);
        let disk = Arc::new(Disk::default());
        let stored = Content::on_disk(Content::new(TEXT).reference(), disk.clone());
        image
            .table
            .insert(FdId::Fd(1), Entry::new(stored, 8, "tool:t", 0));
        image.next_fd = 2;
        let state = State::from_image(Pid(1), program, around, image).unwrap();
        let mut run = Self {
            disk,
            state,
            facts: Vec::new(),
            reads: Vec::new(),
            effects: Vec::new(),
        };
        run.feed(Input::Signal(Signal::Resume));
        run
    }

    /// Loads the process again from its image, as after a restart of the kernel.
    pub(crate) fn restart(&mut self) {
        let image = self.state.image();
        self.state = State::from_image(
            Pid(1),
            self.state.program().clone(),
            Arc::new(HostContext::new(&TOOL_SET)),
            image,
        )
        .unwrap();
        self.feed(Input::Signal(Signal::Resume));
    }

    /// Decides twice: what is equal has equal decisions.
    pub(crate) fn feed(&mut self, input: Input) {
        let again = decide(&self.state, input.clone(), 7);
        let Decision {
            facts,
            state,
            reads,
            effects,
            ..
        } = decide(&self.state, input, 7);
        assert_eq!((&facts, &state), (&again.facts, &again.state));
        self.state = state;
        self.facts.extend(facts);
        self.reads.extend(reads);
        self.effects = effects;
    }

    pub(crate) fn reply(&mut self, tools: &[(&str, &str)]) {
        let call = self.model_call();
        let uses = (0_u32..)
            .zip(tools)
            .map(|(number, (name, args))| Block::ToolUse {
                id: format!("u{number}").into(),
                name: (*name).into(),
                args: args.replace('\'', "\"").into(),
                raw: None,
            });
        let reply = Reply {
            blocks: uses.collect(),
            stop: StopReason::ToolUse,
            usage: Usage::default(),
        };
        self.feed(Input::Completed {
            call,
            result: Completion::Model(Ok(reply)),
        });
    }

    pub(crate) fn model_call(&self) -> CallId {
        let called = self.facts.iter().rev().find_map(|fact| match fact {
            Fact::Call(CallFact::ModelCalled { call }) => Some(*call),
            _ => None,
        });
        called.expect("it has asked its model")
    }

    /// What the next read finds.
    fn found(&mut self) -> Input {
        self.disk.is_open.store(true, Ordering::Relaxed);
        let found = self
            .reads
            .remove(0)
            .perform(ReadQuota::unlimited())
            .unwrap();
        self.disk.is_open.store(false, Ordering::Relaxed);
        found
    }

    pub(crate) fn read(&mut self) {
        let found = self.found();
        self.feed(found);
    }

    pub(crate) fn answers(&self) -> Vec<String> {
        let answer = |fact: &Fact| match fact {
            Fact::Call(CallFact::ToolReturned { answer, .. }) => Some(answer.text.to_string()),
            _ => None,
        };
        self.facts.iter().filter_map(answer).collect()
    }

    fn writes(&self) -> usize {
        self.effects
            .iter()
            .filter(|effect| {
                matches!(
                    effect,
                    Effect::StartWork {
                        work: Work::WriteFile(_),
                        ..
                    }
                )
            })
            .count()
    }
}

const READ: (&str, &str) = ("read_fd", "{'fd':'fd:1','read_all':true}");
const SAY: (&str, &str) = ("send_message", "{'to':'parent','text':'and more'}");
const WRITE: (&str, &str) = (
    "fd_to_file",
    "{'fd':'fd:1','file_path':'out','mode':'append'}",
);

impl Run {
    /// The calls of tools that were begun, in the order of the reply.
    pub(crate) fn running_tools(&self) -> Vec<CallId> {
        let tool = |effect: &Effect| match effect {
            Effect::StartWork {
                call,
                work: Work::Tool { .. },
            } => Some(*call),
            _ => None,
        };
        self.effects.iter().filter_map(tool).collect()
    }

    /// The model ends its turn.
    pub(crate) fn end_turn(&mut self) {
        let reply = Reply {
            blocks: vec![Block::text("done")],
            stop: StopReason::EndTurn,
            usage: Usage::default(),
        };
        self.feed(Input::Completed {
            call: self.model_call(),
            result: Completion::Model(Ok(reply)),
        });
    }

    /// A tool ends with this output, which is placed.
    fn end_tool(&mut self, call: CallId, output: &str) {
        self.feed(self::output(call, output.to_owned()));
        if !self.reads.is_empty() {
            self.read();
        }
    }

    /// The text that opens each descriptor, by its number.
    fn opened(&self) -> Vec<(FdId, String)> {
        let opened = |fact: &Fact| match fact {
            Fact::Descriptor(DescriptorFact::Opened { id, entry }) => {
                let text = entry.content.unlimited_reader().text().unwrap();
                Some((id.clone(), text[..1].to_owned()))
            }
            _ => None,
        };
        self.facts.iter().filter_map(opened).collect()
    }
}

/// A tool returned this output.
pub(crate) fn output(call: CallId, bytes: impl Into<Bytes>) -> Input {
    let result = Completion::Tool(ToolOutput::ok(bytes));
    Input::Completed { call, result }
}

#[test]
fn outputs_of_one_reply_are_numbered_in_the_order_of_its_calls() {
    let outputs = ["a", "b", "c"].map(|letter| letter.repeat(60));
    let orders = [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ];
    for order in orders {
        let mut run = Run::new();
        run.reply(&[("grep", "{}"); 3]);
        let tools = run.running_tools();
        assert_eq!(tools.len(), 3);
        for at in order {
            run.end_tool(tools[at], &outputs[at]);
        }
        let expected = [(2, "a"), (3, "b"), (4, "c")];
        let expected = expected.map(|(number, text)| (FdId::Fd(number), text.to_owned()));
        assert_eq!(run.opened(), expected, "{order:?}");
        assert_eq!(run.answers().len(), 3);
        run.model_call();
    }
}

#[test]
fn a_small_output_waits_for_no_other_and_a_large_one_only_for_earlier_ones() {
    let mut run = Run::new();
    run.reply(&[("grep", "{}"); 3]);
    let tools = run.running_tools();
    run.end_tool(tools[1], "small");
    assert_eq!(run.answers(), ["small"]);
    run.end_tool(tools[2], &"c".repeat(60));
    assert_eq!(run.answers().len(), 1);
    run.end_tool(tools[0], "first");
    assert_eq!(run.opened(), [(FdId::Fd(2), "c".to_owned())]);
    assert_eq!(run.answers().len(), 3);
}

#[test]
fn an_output_that_waits_is_dropped_with_its_turn() {
    let mut run = Run::new();
    run.reply(&[("grep", "{}"); 2]);
    let tools = run.running_tools();
    run.end_tool(tools[1], &"b".repeat(60));
    run.feed(Input::Signal(Signal::Interrupt));
    run.end_tool(tools[0], &"a".repeat(60));
    assert_eq!((run.opened(), run.answers()), (vec![], vec![]));
}

#[test]
fn a_decision_asks_for_a_read_and_goes_on_with_what_it_found() {
    let calls = [
        READ,
        ("search_fd", "{'fd':'fd:1','query':'t.o','regex':true}"),
        (
            "mark_fd_section",
            "{'fd':'fd:1','start_line':1,'end_line':2,'ref_id':'x'}",
        ),
        WRITE,
        (
            "spawn",
            "{'program_name':'me','query':'go','additional_preload_fds':['fd:1 lines 1-2']}",
        ),
        (
            "send_message",
            "{'to':'parent','text':'x','fds':['fd:1 lines 1-2']}",
        ),
        ("grep", "{'x':'{{fd:1}}'}"),
    ];
    for call in calls {
        let mut run = Run::new();
        run.reply(&[call]);
        assert_eq!(
            (run.answers().len(), run.effects.len()),
            (0, 0),
            "{call:?}: nothing is begun before it is read"
        );
        // A spawn reads twice: its arguments, then what the child starts with.
        while !run.reads.is_empty() {
            run.read();
        }
        assert!(
            run.answers().len() == 1 || !run.effects.is_empty(),
            "{call:?}"
        );
        assert!(
            !run.answers().iter().any(|answer| answer.contains("error")),
            "{call:?}: {:?}",
            run.answers()
        );
    }
}

#[test]
fn the_calls_of_a_model_wait_for_the_read_before_them() {
    let mut run = Run::new();
    let extract = |lines| {
        (
            "read_fd",
            format!("{{'fd':'log','start_line':{lines},'extract_to_new_fd':true}}"),
        )
    };
    let (second, third) = (extract(2), extract(3));
    let calls = [
        ("grep", "{}"),
        ("rename_fd", "{'fd':'fd:1','name':'log'}"),
        (second.0, &*second.1),
        ("grep", "{'x':1}"),
        (third.0, &*third.1),
    ];
    run.reply(&calls);
    let called = |run: &Run| {
        run.effects
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
            .count()
    };
    assert_eq!(called(&run), 1, "what comes first begins at once");
    let Some(Effect::StartWork {
        call: grep,
        work: Work::Tool { .. },
    }) = run.effects.last().cloned()
    else {
        panic!("grep is called")
    };
    run.read();
    assert_eq!(
        called(&run),
        0,
        "the name is given, and the first part is being read"
    );
    // What comes meanwhile takes the next number.
    run.feed(Input::Completed {
        call: grep,
        result: Completion::Tool(ToolOutput::ok("z".repeat(60))),
    });
    run.reads.rotate_left(1);
    run.read();
    run.read();
    assert_eq!(called(&run), 1);
    run.read();
    let answers = run.answers();
    assert!(answers[1].contains("fd=\"fd:2\""), "{answers:?}");
    assert!(
        answers[2].contains("new_fd=\"fd:3\"") && answers[3].contains("new_fd=\"fd:4\""),
        "{answers:?}"
    );
}

#[test]
fn whatever_arrives_with_bytes_is_placed_by_a_read() {
    let text = "a long line\n".repeat(9);
    let envelope = || Envelope {
        program: "other".into(),
        text: text.clone().into(),
        descriptors: Vec::new(),
    };
    let (request_id, call) = (|| "t".into(), CallId { epoch: 0, seq: 0 });
    let capped = || CappedBytes::capped(text.clone().into(), u64::MAX);
    let arrivals = || {
        [
            Input::UserInput {
                from: Sender::Host,
                user_input: text.as_str().into(),
            },
            Input::Message {
                request_id: request_id(),
                from: Pid(9),
                call,
                acked_below: 0,
                envelope: envelope(),
            },
            Input::Host {
                request_id: request_id(),
                request: HostRequest::Open {
                    capped: capped(),
                    source: "file:x".into(),
                    page_chars: None,
                },
            },
        ]
    };
    for (number, arrival) in arrivals().into_iter().enumerate() {
        let mut run = Run::new();
        let before = run.facts.len();
        run.feed(arrival.clone());
        assert_eq!(
            (run.facts.len(), run.reads.len()),
            (before, 1),
            "{number}: a decision looks at no text"
        );
        run.read();
        let opened = run.facts[before..]
            .iter()
            .filter(|fact| matches!(fact, Fact::Descriptor(DescriptorFact::Opened { .. })))
            .count();
        assert_eq!(opened, 1, "{number}");
        // Who asks is answered also if the process ends meanwhile.
        run.feed(arrival);
        run.feed(Input::Signal(Signal::Kill));
        let before = run.facts.len();
        run.read();
        let is_answered = run
            .effects
            .iter()
            .any(|effect| matches!(effect, Effect::AnswerHost { .. }));
        assert_eq!(
            (run.facts.len(), is_answered),
            (before, number > 0),
            "{number}"
        );
    }
}

#[test]
fn what_arrives_after_something_that_is_still_read_waits_for_it() {
    let mut run = Run::new();
    let says = |text: &str| Input::UserInput {
        from: Sender::Host,
        user_input: text.into(),
    };
    let decide = |run: &mut Run, input: Input, bytes: u64| {
        let Decision {
            facts,
            state,
            reads,
            ..
        } = decide(&run.state, input, 7).read_inline(bytes, 7);
        run.state = state;
        run.facts.extend(facts);
        run.reads.extend(reads);
    };
    let heard = |run: &Run| {
        run.facts
            .iter()
            .filter(|fact| matches!(fact, Fact::Mail(MailFact::Queued { .. })))
            .count()
    };
    decide(&mut run, says("small"), 1_000);
    assert_eq!(
        (heard(&run), run.reads.len()),
        (1, 0),
        "what is small is heard at once"
    );
    decide(&mut run, says(&"large".repeat(1_000)), 1_000);
    decide(&mut run, says("small"), 1_000);
    assert_eq!((heard(&run), run.reads.len()), (1, 2));
    run.read();
    run.read();
    decide(&mut run, says("small"), 1_000);
    assert_eq!((heard(&run), run.reads.len()), (4, 0));
}

#[test]
fn what_is_found_late_or_twice_changes_nothing() {
    let mut run = Run::new();
    run.reply(&[WRITE]);
    let found = run.found();
    run.feed(found.clone());
    assert_eq!(run.writes(), 1);
    run.feed(found.clone());
    assert_eq!(run.writes(), 0, "it is begun once");
    let mut run = Run::new();
    run.reply(&[READ]);
    let found = run.found();
    run.feed(Input::Signal(Signal::Interrupt));
    let before = (run.state.clone(), run.facts.len());
    run.feed(found);
    assert_eq!((&run.state, run.facts.len()), (&before.0, before.1));
}

#[test]
fn a_stopped_process_begins_nothing_of_what_was_found_and_reads_again() {
    let mut run = Run::new();
    run.reply(&[WRITE, READ]);
    run.feed(Input::Signal(Signal::Stop));
    run.read();
    assert_eq!((run.writes(), run.reads.len()), (0, 0));
    run.feed(Input::Signal(Signal::Continue));
    run.read();
    assert_eq!(
        (run.writes(), run.reads.len()),
        (1, 1),
        "the next one is read for while it is written"
    );
    let mut run = Run::new();
    run.reply(&[READ]);
    run.feed(Input::Signal(Signal::Stop));
    run.feed(Input::Signal(Signal::Continue));
    assert_eq!(run.reads.len(), 1, "what is on its way is not read twice");
    run.read();
    assert_eq!(run.answers().len(), 1);
}

#[test]
fn a_process_that_comes_back_reads_again_and_writes_once() {
    let mut run = Run::new();
    run.reply(&[READ, WRITE]);
    run.reads.clear();
    run.restart();
    run.read();
    run.read();
    assert_eq!((run.answers().len(), run.writes()), (1, 1));
    // Begun, and its end is not known: to append twice is not the same.
    run.restart();
    assert_eq!((run.reads.len(), run.writes()), (0, 0));
    assert!(
        run.answers()[1].contains("effect is unknown"),
        "{:?}",
        run.answers()
    );
}

#[test]
fn a_read_within_a_handler_is_bounded_and_never_of_the_disk() {
    let mut run = Run::new();
    run.reply(&[READ]);
    assert!(
        run.reads[0].perform(&ReadQuota::inline(u64::MAX)).is_none(),
        "it is on disk"
    );
    let cancelled = ReadQuota::until(Arc::new(AtomicBool::new(true)));
    assert!(run.reads[0].perform(&cancelled).is_none());
    let table = [("small", 100, true), ("large", 1 << 20, false)];
    for (name, lines, is_inline) in table {
        let mut run = Run::new();
        let mut image = run.state.image();
        image.table.insert(
            FdId::Fd(1),
            Entry::new(Content::new("a line\n".repeat(lines)), 8, "tool:t", 0),
        );
        run.state = State::from_image(
            Pid(1),
            run.state.program().clone(),
            Arc::new(HostContext::new(&TOOL_SET)),
            image,
        )
        .unwrap();
        let call = run.model_call();
        let args = r#"{"fd":"fd:1","query":"none"}"#.into();
        let search = Block::ToolUse {
            id: "u".into(),
            name: "search_fd".into(),
            args,
            raw: None,
        };
        let reply = Reply {
            blocks: vec![search],
            stop: StopReason::ToolUse,
            usage: Usage::default(),
        };
        let decision = decide(
            &run.state,
            Input::Completed {
                call,
                result: Completion::Model(Ok(reply)),
            },
            7,
        )
        .read_inline(64 << 10, 7);
        assert_eq!(decision.reads.is_empty(), is_inline, "{name}");
    }
}

/// The process as it comes back from its image, with nothing of what it was reading.
fn restart(run: &mut Run) {
    let image = run.state.image();
    run.state = State::from_image(
        Pid(1),
        run.state.program().clone(),
        Arc::new(HostContext::new(&TOOL_SET)),
        image,
    )
    .unwrap();
    run.reads.clear();
    run.feed(Input::Signal(Signal::Resume));
}

#[test]
fn an_interrupt_leaves_what_arrives_in_its_order() {
    let mut run = Run::new();
    run.reply(&[READ]);
    run.reads.clear();
    let says = |text: &str| Input::UserInput {
        from: Sender::Host,
        user_input: text.into(),
    };
    run.feed(says(&"large".repeat(1_000)));
    run.feed(Input::Signal(Signal::Interrupt));
    assert_eq!(
        run.state.busy_reason(),
        Some(BusyReason::Mail),
        "it does not go to sleep before it has heard"
    );
    let decision = decide(&run.state, says("small"), 7).read_inline(1_000, 7);
    assert_eq!(
        (decision.facts.len(), decision.reads.len()),
        (0, 1),
        "it waits for what came before it"
    );
}

#[test]
fn a_stopped_process_repeats_nothing_before_it_is_continued() {
    let mut run = Run::new();
    run.reply(&[
        (
            "send_message",
            "{'to':'parent','text':'x','fds':['fd:1 lines 1-2']}",
        ),
        SAY,
    ]);
    run.read();
    run.read();
    let sent = |run: &Run| {
        run.effects
            .iter()
            .filter(|e| {
                matches!(
                    e,
                    Effect::StartWork {
                        work: Work::Send { .. },
                        ..
                    }
                )
            })
            .count()
    };
    restart(&mut run);
    assert_eq!(
        (run.reads.len(), sent(&run)),
        (1, 0),
        "the second message waits for the first"
    );
    run.feed(Input::Signal(Signal::Stop));
    run.read();
    assert_eq!((run.reads.len(), sent(&run)), (0, 0));
    run.feed(Input::Signal(Signal::Continue));
    for _ in 0..2 {
        assert_eq!(run.reads.len(), 1);
        run.read();
        assert_eq!(sent(&run), 1);
    }
}

/// The process may be stopped and continued while the files are fetched: both fetches then complete.
#[test]
fn files_that_are_fetched_twice_make_one_child_whose_end_answers_the_call() {
    let spawn = (
        "spawn",
        "{'program_name':'me','query':'q','additional_preload_files':['x']}",
    );
    let exit = Exit::new(ExitStatus::Done, "the end");
    // How many inputs come between the first fetch and the second: none, the image of the child,
    // its end, the read of its end.
    for between in 0..4 {
        let mut run = Run::new();
        run.reply(&[spawn]);
        run.read();
        let [
            Effect::StartWork {
                call,
                work: Work::Fetch(pending),
            },
        ] = &run.effects[..]
        else {
            panic!("{:?}", run.effects)
        };
        let call = *call;
        let fetched = Input::Completed {
            call,
            result: Completion::Fetched {
                pending: pending.clone(),
                result: Ok(Fetched::default()),
            },
        };
        let ended = Input::Child {
            call,
            event: ChildEvent::Ended {
                index: 0,
                child: Pid(2),
                exit: exit.clone(),
            },
        };
        run.feed(fetched.clone());
        let steps: [fn(&mut Run, &Input); 3] = [
            |run, _| run.read(),
            |run, ended| run.feed(ended.clone()),
            |run, _| run.read(),
        ];
        for step in &steps[..between] {
            step(&mut run, &ended);
        }
        run.feed(fetched.clone());
        for step in &steps[between..] {
            step(&mut run, &ended);
        }
        while !run.reads.is_empty() {
            run.read();
        }
        assert_eq!(run.answers(), ["the end"], "after {between} inputs");
    }
}
