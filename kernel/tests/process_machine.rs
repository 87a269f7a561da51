//! The process machine under random runs: whatever happens in whatever order, facts replay to the
//! same state (DUR-2), stale completions change nothing (CALL-1), what was sent to a model only
//! grows unless it went back (HIST-1), and one that is stopped begins nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dormouse_content::{Content, ReadQuota};
use dormouse_kernel::process::{
    Birth, Child, ChildEvent, Completion, Decision, Effect, Fact, FetchError, FetchedFile,
    HostContext, HostRequest, HostTool, Input, PendingSpawn, Preloads, Read, ReadResult, Report,
    Signal, State, Work, decide, evolve, initial_image,
};
use dormouse_kernel::program::{Program, compile};
use dormouse_kernel::syscall::Call;
use dormouse_kernel::syscall::{
    Outcome, PendingSummary, PendingTempFile, PendingWrite, TOOL_SET,
    create_temp_file::create_temp_file, fd_to_file, summarize_fd,
};
use dormouse_kernel::table::Table;
use dormouse_proto::descriptor::DescriptorSettings;
use dormouse_proto::id::{CallId, FdId, Pid};
use dormouse_proto::mail::Sender;
use dormouse_proto::message::{Block, Message, Role};
use dormouse_proto::model::{ModelError, ModelErrorKind, Reply, Request, StopReason, Usage};
use dormouse_proto::process::{Exit, ExitStatus, Origin, Priority};
use dormouse_proto::record::{DescriptorFact, Entry, Lifetime, Phase, TurnFact};
use dormouse_proto::temp_file::{TempFileError, TempFileOp, TempFileReply, TempId};
use dormouse_proto::tool::{Access, Answer, ToolOutput, ToolPolicy, ToolSpec};
use dormouse_proto::user_input::UserInput;
use proptest::prelude::*;

const PROGRAM: &str = r#"
[model]
name = "m"
provider = "scripted"
max_iterations = 6
[prompt]
system = "You are a test."
[tools]
enabled = ["read_fd", "search_fd", "fd_to_file", "summarize_fd", "rename_fd", "mark_fd_section", "delete_fd_section",
    "fork", "spawn", "goto", "grep", "append_temp_file", "read_temp_file"]
[linked_programs]
me = "p.toml"
[file_descriptor]
max_direct_output_chars = 50
default_page_size = 20
max_input_chars = 60
reference_messages = true
expand_fds = true
"#;

fn program() -> Program {
    compiled(PROGRAM)
}

fn compiled(text: &str) -> Program {
    let compiled = compile(
        Path::new("p.toml"),
        &mut |_| Ok(Bytes::copy_from_slice(text.as_bytes())),
        &["grep"],
    );
    compiled
        .unwrap_or_else(|errors| panic!("{errors:?}"))
        .program
}

fn surroundings() -> Arc<HostContext> {
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
    Arc::new(HostContext {
        tools,
        ..HostContext::new(&TOOL_SET)
    })
}

fn process(lifetime: Lifetime, input: &str) -> State {
    process_of(program(), lifetime, input)
}

fn process_of(program: Program, lifetime: Lifetime, input: &str) -> State {
    let around = surroundings();
    let said = input.into();
    let (priority, preloads) = (Priority::High, &Preloads::default());
    let birth = Birth {
        access: Access::Admin,
        depth: 0,
        lifetime,
        priority,
        preloads,
        input: Some(&said),
    };
    let image = initial_image(&program, &around, birth, 0);
    State::from_image(Pid(1), program, around, image).expect("an image that was just made is valid")
}

/// What a random run does next. Numbers choose among what is possible then.
#[derive(Clone, Debug)]
enum Step {
    Speak(usize),
    HostCall,
    Reply(Vec<u8>, u8),
    FailModel,
    Return(u8, usize),
    StartChild(u8),
    EndChild(u8),
    ReadResult(u8),
    Stale(u8),
    GoBack(u8),
    SendBack(u8),
    Interrupt,
    Stop,
    Continue,
    Resume,
    Kill,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        16 => (0_usize..120).prop_map(Step::Speak),
        4 => Just(Step::HostCall),
        32 => (prop::collection::vec(0_u8..20, 0..4), any::<u8>()).prop_map(|(tools, stop)| Step::Reply(tools, stop)),
        2 => Just(Step::FailModel),
        32 => (any::<u8>(), 0_usize..120).prop_map(|(which, size)| Step::Return(which, size)),
        24 => any::<u8>().prop_map(Step::StartChild),
        16 => any::<u8>().prop_map(Step::EndChild),
        24 => any::<u8>().prop_map(Step::ReadResult),
        12 => any::<u8>().prop_map(Step::Stale),
        12 => (0_u8..12).prop_map(Step::GoBack),
        4 => (0_u8..12).prop_map(Step::SendBack),
        4 => Just(Step::Interrupt),
        4 => Just(Step::Stop),
        8 => Just(Step::Continue),
        4 => Just(Step::Resume),
        1 => Just(Step::Kill),
    ]
}

/// The world around one machine: what it was asked to do and has not answered yet.
struct World {
    state: State,
    journal: Vec<Fact>,
    tools: Vec<CallId>,
    writes: Vec<(CallId, PendingWrite)>,
    summaries: Vec<(CallId, PendingSummary)>,
    temp_files: Vec<(CallId, PendingTempFile)>,
    fetches: Vec<(CallId, PendingSpawn)>,
    finds: Vec<CallId>,
    /// Spawned children that exist, and those of them whose parent has not been told.
    born: BTreeSet<CallId>,
    starts: Vec<CallId>,
    children: Vec<(CallId, u32)>,
    past: Vec<CallId>,
    issued: BTreeSet<CallId>,
    sent: Vec<Arc<Message>>,
    uses: u32,
    /// Whether what was in flight is lost: it came back from its journal while it was stopped.
    frozen: bool,
    /// Whether reads are performed in steps of their own; else each at once.
    reads_apart: bool,
    reads: Vec<Read>,
    /// Calls that are read for a second time, since they were in flight.
    read_again: BTreeSet<CallId>,
}

impl World {
    fn new(state: State) -> Self {
        let (journal, sent, issued, children) =
            (Vec::new(), Vec::new(), BTreeSet::new(), Vec::new());
        let (tools, writes, summaries, temp_files, past) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (fetches, finds, born, starts) = (Vec::new(), Vec::new(), BTreeSet::new(), Vec::new());
        Self {
            state,
            journal,
            tools,
            writes,
            summaries,
            temp_files,
            fetches,
            finds,
            born,
            starts,
            children,
            past,
            issued,
            sent,
            uses: 0,
            frozen: false,
            reads_apart: false,
            reads: Vec::new(),
            read_again: BTreeSet::new(),
        }
    }

    /// Feeds the machine and returns how many facts followed.
    fn feed(&mut self, input: Input) -> usize {
        let continued = matches!(input, Input::Signal(Signal::Continue));
        let read_again = match &input {
            Input::Completed {
                call,
                result: Completion::Read(_),
            } => self.read_again.get(call).copied(),
            _ => None,
        };
        let reads_again = read_again.is_some();
        let resumed = matches!(input, Input::Signal(Signal::Resume))
            || (continued && std::mem::take(&mut self.frozen))
            || reads_again;
        // A spawn that is in flight makes its child: what was begun before the stop finishes.
        let finishes = match &input {
            Input::Completed {
                result: Completion::Fetched { .. },
                ..
            }
            | Input::Child {
                event: ChildEvent::Absent { .. },
                ..
            } => true,
            Input::Completed {
                call,
                result: Completion::Read(_),
            } => self.is_called(*call),
            _ => false,
        };
        let was_stopped = self.state.is_stopped() && !continued && !finishes;
        let decision = decide(&self.state, input, 7);
        let decision = if self.reads_apart {
            decision
        } else {
            decision.read_all(7)
        };
        let Decision {
            facts,
            state,
            reads,
            effects,
            ..
        } = decision;
        let again: Vec<_> = reads
            .iter()
            .filter_map(Read::call)
            .filter(|call| resumed && self.is_called(*call))
            .collect();
        self.read_again.extend(again);
        self.reads.extend(reads);
        let count = facts.len();
        for fact in facts {
            let is_done = matches!(&fact, Fact::Exited { exit } if exit.status == ExitStatus::Done);
            assert!(
                !is_done || self.state.background().is_empty(),
                "it ends before the children that it is to hear of"
            );
            if let Fact::Turn(TurnFact::WentTo { to, .. }) = fact {
                self.sent.truncate(to as usize);
            }
            self.journal.push(fact);
        }
        self.state = state;
        self.frozen |= resumed && !reads_again && self.state.is_stopped();
        // A process that is stopped reads once more when it continues.
        if let Some(call) = read_again.filter(|_| !self.state.is_stopped()) {
            self.read_again.remove(&call);
        }
        let begins = |effect: &Effect| {
            !matches!(
                effect,
                Effect::Abandon { .. }
                    | Effect::KillChildren { .. }
                    | Effect::KillChildrenExcept { .. }
                    | Effect::FindChild { .. }
                    | Effect::AnswerHost { .. }
                    | Effect::Report(
                        Report::Switch { .. }
                            | Report::Held { .. }
                            | Report::HeldAnswered { .. }
                            | Report::Turn { .. }
                            | Report::Exit { .. }
                    )
            )
        };
        assert!(
            !was_stopped || !effects.iter().any(begins),
            "one that is stopped began {effects:?}"
        );
        effects
            .into_iter()
            .for_each(|effect| self.perform(effect, resumed));
        count
    }

    fn is_called(&self, call: CallId) -> bool {
        let Phase::Acting { pending_calls, .. } = self.state.phase() else {
            return false;
        };
        pending_calls
            .iter()
            .any(|pending_call| pending_call.call == call && pending_call.started)
    }

    fn perform(&mut self, effect: Effect, resumed: bool) {
        match effect {
            Effect::StartWork {
                call,
                work: Work::Model { request, .. },
            } => {
                self.issue(call, resumed);
                self.check_history(&request);
                self.sent = request.messages;
            }
            Effect::StartWork {
                call,
                work: Work::Tool { .. },
            } => {
                self.issue(call, false);
                self.tools.push(call);
            }
            Effect::StartWork {
                call,
                work: Work::WriteFile(pending),
            } => {
                self.issue(call, resumed);
                self.writes.push((call, pending));
            }
            Effect::StartWork {
                call,
                work: Work::Summarize {
                    pending, request, ..
                },
            } => {
                self.issue(call, resumed);
                assert!(
                    request.tools.is_empty() && request.messages.len() == 1,
                    "a question, and no conversation"
                );
                self.summaries.push((call, pending));
            }
            Effect::StartWork {
                call,
                work: Work::TempFile(pending),
            } => {
                self.issue(call, resumed);
                self.temp_files.push((call, pending));
            }
            Effect::StartChildren { children, .. } => {
                children.iter().for_each(|child| self.start(child))
            }
            Effect::StartWork {
                call,
                work: Work::Fetch(pending),
            } => self.fetches.push((call, pending)),
            Effect::FindChild { call, .. } => self.finds.push(call),
            Effect::WakeAt { .. } => panic!("the program bounds no time"),
            Effect::Abandon { calls } => {
                let mut background = self.state.background().keys();
                assert!(
                    !background.any(|call| calls.contains(call)),
                    "a child in the background is given up"
                );
                self.past.extend(calls);
            }
            Effect::KillChildren { .. } => panic!("no call explores"),
            Effect::KillChildrenExcept { calls } => {
                assert!(
                    self.state
                        .background()
                        .keys()
                        .all(|call| calls.contains(call)),
                    "one is not kept"
                );
            }
            Effect::StartWork {
                work: Work::Send { .. },
                ..
            }
            | Effect::StartWork {
                work: Work::ListProcesses,
                ..
            }
            | Effect::StartWork {
                work: Work::Checkpoint(_),
                ..
            }
            | Effect::StartWork {
                work: Work::Wait { .. },
                ..
            }
            | Effect::Summarize { .. } => {
                panic!("no such tool is enabled")
            }
            Effect::AnswerHost { .. } | Effect::Report(_) => {}
        }
    }

    /// CALL-2: only what may be repeated is issued a second time, and only after a restart.
    fn issue(&mut self, call: CallId, repeatable: bool) {
        assert!(
            self.issued.insert(call) || repeatable,
            "call {call} was issued twice"
        );
    }

    fn start(&mut self, child: &Child) {
        match child.origin {
            Origin::Forked { call, index } => {
                self.check_child(child);
                self.children.push((call, index));
            }
            // One that exists by parent and call is not made again.
            Origin::Spawned { call } => {
                if self.born.insert(call) {
                    self.children.push((call, 0));
                }
                self.starts.push(call);
            }
            _ => panic!("children are forked or spawned"),
        }
    }

    /// HIST-1, and every tool use is answered in the message that follows it.
    fn check_history(&self, request: &Request) {
        assert!(
            request.messages.starts_with(&self.sent),
            "what was sent changed"
        );
        check_answered(&request.messages);
    }

    /// FORK-2: a child's first request begins with its parent's bytes, and is a valid history.
    fn check_child(&self, child: &Child) {
        let state = State::from_image(
            Pid(99),
            child.program.clone(),
            surroundings(),
            child.image.clone(),
        )
        .expect("a child is valid");
        let parent = self.state.request();
        let effects = decide(&state, Input::Signal(Signal::Resume), 8)
            .read_all(8)
            .effects;
        let Some(Effect::StartWork {
            work: Work::Model { request, .. },
            ..
        }) = effects.last()
        else {
            panic!("a child asks its model first")
        };
        assert_eq!(
            (&request.system, &request.tools),
            (&parent.system, &parent.tools)
        );
        assert!(request.messages.starts_with(&parent.messages), "FORK-2");
        check_answered(&request.messages);
    }

    fn input(&mut self, step: Step) -> Option<Input> {
        match step {
            Step::Speak(size) => Some(Input::UserInput {
                from: Sender::Host,
                user_input: ("x\n".repeat(size / 2) + "y").into(),
            }),
            Step::HostCall => {
                let args = r#"{"fd": "fd:1"}"#.to_owned();
                Some(Input::Host {
                    request_id: "t".into(),
                    request: HostRequest::Call {
                        tool: "read_fd".into(),
                        args,
                    },
                })
            }
            Step::Reply(tools, stop) => self.reply(&tools, stop),
            Step::FailModel => {
                let call = self.thinking()?;
                self.past.push(call);
                Some(Input::Completed {
                    call,
                    result: Completion::Model(Err(ModelError::new(
                        ModelErrorKind::Malformed,
                        "no",
                    ))),
                })
            }
            Step::Return(which, size) => self.returned(which, size),
            Step::StartChild(which) => self.started(which),
            Step::EndChild(which) => {
                let (call, index) = take(&mut self.children, which)?;
                self.past.push(call);
                let message: String = "found ".repeat(usize::from(which) % 20);
                let exit = Exit::new(ExitStatus::Done, message);
                Some(Input::Child {
                    call,
                    event: ChildEvent::Ended {
                        index,
                        child: Pid(u64::from(index) + 2),
                        exit,
                    },
                })
            }
            Step::GoBack(to) => self.go_back(to),
            Step::SendBack(to) => {
                let position = format!("msg:{to}");
                Some(Input::Host {
                    request_id: "b".into(),
                    request: HostRequest::Goto {
                        position,
                        message: "again\n".repeat(usize::from(to) * 2),
                    },
                })
            }
            Step::ReadResult(which) => {
                let read = take(&mut self.reads, which)?;
                read.perform(ReadQuota::unlimited())
            }
            Step::Interrupt => Some(Input::Signal(Signal::Interrupt)),
            Step::Stop => Some(Input::Signal(Signal::Stop)),
            Step::Continue => Some(Input::Signal(Signal::Continue)),
            Step::Resume => {
                // What was being read is lost with the life that asked for it.
                self.reads.clear();
                Some(Input::Signal(Signal::Resume))
            }
            Step::Kill => Some(Input::Signal(Signal::Kill)),
            Step::Stale(_) => None,
        }
    }

    fn thinking(&self) -> Option<CallId> {
        match self.state.phase() {
            Phase::Thinking { call } => Some(*call),
            _ => None,
        }
    }

    fn reply(&mut self, tools: &[u8], stop: u8) -> Option<Input> {
        let call = self.thinking()?;
        self.past.push(call);
        let mut blocks = vec![Block::text("hm")];
        for tool in tools {
            self.uses += 1;
            blocks.push(tool_use(self.uses, *tool));
        }
        let stop = match (stop % 10, tools.is_empty()) {
            (0, _) => StopReason::MaxTokens,
            (1, _) => StopReason::Refusal,
            (2, true) => StopReason::Pause,
            (_, true) => StopReason::EndTurn,
            (_, false) => StopReason::ToolUse,
        };
        let usage = Usage {
            input_tokens: 3,
            output_tokens: 2,
            ..Usage::default()
        };
        Some(Input::Completed {
            call,
            result: Completion::Model(Ok(Reply {
                blocks,
                stop,
                usage,
            })),
        })
    }

    /// A reply that does nothing but go back.
    fn go_back(&mut self, to: u8) -> Option<Input> {
        let call = self.thinking()?;
        self.past.push(call);
        self.uses += 1;
        let args = format!(r#"{{"position": "msg:{to}", "message": "I know more now."}}"#).into();
        let goto = Block::ToolUse {
            id: format!("u{}", self.uses).into(),
            name: "goto".into(),
            args,
            raw: None,
        };
        Some(replied(call, goto))
    }

    fn returned(&mut self, which: u8, size: usize) -> Option<Input> {
        if let Some((call, pending)) = take(&mut self.writes, which) {
            self.past.push(call);
            return Some(Input::Completed {
                call,
                result: Completion::FileWritten {
                    pending,
                    result: Ok(()),
                },
            });
        }
        if let Some((call, pending)) = take(&mut self.summaries, which) {
            self.past.push(call);
            return Some(Input::Completed {
                call,
                result: Completion::Summarized {
                    pending,
                    result: Ok(last_words("in short")),
                },
            });
        }
        if let Some((call, pending)) = take(&mut self.temp_files, which) {
            self.past.push(call);
            let (id, version) = (TempId(1), 2);
            let result = match pending.op {
                _ if size.is_multiple_of(5) => Err(TempFileError::NotFound {
                    id,
                    known: Vec::new(),
                }),
                TempFileOp::Read { .. } => Ok(TempFileReply::Contents {
                    id,
                    version,
                    content: Content::new("z".repeat(size)),
                }),
                _ => Ok(TempFileReply::Changed {
                    id,
                    version,
                    total_bytes: 3,
                }),
            };
            return Some(Input::Completed {
                call,
                result: Completion::TempFile { pending, result },
            });
        }
        let call = take(&mut self.tools, which)?;
        self.past.push(call);
        Some(Input::Completed {
            call,
            result: Completion::Tool(ToolOutput::ok("z".repeat(size))),
        })
    }

    /// What a spawn waits for: its files, word of its child, or of there being none.
    fn started(&mut self, which: u8) -> Option<Input> {
        if let Some((call, pending)) = take(&mut self.fetches, which) {
            self.past.push(call);
            let file = |path: &String| FetchedFile::File {
                path: path.clone(),
                content: Content::new("of a file"),
            };
            let temp_file = |&id: &TempId| FetchedFile::TempFile {
                id,
                version: 2,
                content: Content::new("of a temporary file"),
            };
            let files = pending.files.iter().map(file);
            let files = files.chain(pending.temp_files.iter().map(temp_file));
            let result = if which.is_multiple_of(5) {
                Err(FetchError::Internal("no".to_owned()))
            } else {
                pending.place(files.collect(), 7)
            };
            return Some(Input::Completed {
                call,
                result: Completion::Fetched { pending, result },
            });
        }
        if let Some(call) = take(&mut self.finds, which).filter(|call| !self.born.contains(call)) {
            return Some(Input::Child {
                call,
                event: ChildEvent::Absent { index: 0 },
            });
        }
        let call = take(&mut self.starts, which)?;
        self.past.push(call);
        Some(Input::Child {
            call,
            event: ChildEvent::Started { child: Pid(9) },
        })
    }

    /// Completions of a call that is over, answered already or abandoned.
    fn check_stale(&mut self, which: u8) {
        let Some(call) =
            (!self.past.is_empty()).then(|| self.past[usize::from(which) % self.past.len()])
        else {
            return;
        };
        if self.is_open(call) {
            return;
        }
        let before = self.state.clone();
        let exit = Exit::new(ExitStatus::Done, "late");
        let (write, summary, temp_file) = pending();
        let spawn = PendingSpawn {
            program: before.program().clone(),
            query: "late".to_owned(),
            descriptors: Vec::new(),
            files: Vec::new(),
            temp_files: Vec::new(),
            result_schema: None,
        };
        let late = [
            Input::Completed {
                call,
                result: Completion::Model(Ok(last_words("late"))),
            },
            Input::Completed {
                call,
                result: Completion::Tool(ToolOutput::ok("late")),
            },
            Input::Completed {
                call,
                result: Completion::Read(ReadResult::Tool(Outcome::Answer(Answer::failed("late")))),
            },
            Input::Completed {
                call,
                result: Completion::FileWritten {
                    pending: write,
                    result: Ok(()),
                },
            },
            Input::Completed {
                call,
                result: Completion::Summarized {
                    pending: summary,
                    result: Ok(last_words("late")),
                },
            },
            Input::Completed {
                call,
                result: Completion::TempFile {
                    pending: temp_file,
                    result: Err(TempFileError::TooMany { max_files: 1 }),
                },
            },
            Input::Completed {
                call,
                result: Completion::Fetched {
                    result: spawn.place(Vec::new(), 0),
                    pending: spawn,
                },
            },
            Input::Child {
                call,
                event: ChildEvent::Started { child: Pid(50) },
            },
            Input::Child {
                call,
                event: ChildEvent::Absent { index: 0 },
            },
            Input::Child {
                call,
                event: ChildEvent::Ended {
                    index: 0,
                    child: Pid(50),
                    exit,
                },
            },
        ];
        for input in late {
            let shown = format!("{input:?}");
            assert_eq!(
                self.feed(input),
                0,
                "a stale completion made facts: {shown}"
            );
        }
        assert_eq!(self.state, before, "CALL-1");
    }

    fn is_open(&self, call: CallId) -> bool {
        let is_waited_for = match self.state.phase() {
            Phase::Thinking { call: open } => *open == call,
            Phase::Acting { pending_calls, .. } => pending_calls
                .iter()
                .any(|pending_call| pending_call.call == call && pending_call.answer.is_none()),
            _ => false,
        };
        let has_share = self.state.budget().share(call, 0).is_some();
        is_waited_for || has_share || self.state.background().contains_key(&call)
    }
}

fn last_words(text: &str) -> Reply {
    Reply {
        blocks: vec![Block::text(text)],
        stop: StopReason::EndTurn,
        usage: Usage::default(),
    }
}

/// A write, a summary and a temporary file of a descriptor, as they are asked for.
fn pending() -> (PendingWrite, PendingSummary, PendingTempFile) {
    let mut table = Table::new();
    table.insert(
        table.next_id(),
        Entry::new(Content::new("text"), 10, "tool:t", 0),
    );
    let settings = DescriptorSettings::default();
    let write = fd_to_file(&Call::unlimited(
        &table,
        r#"{"fd": "fd:1", "file_path": "out.txt"}"#,
        &settings,
        0,
    ));
    let summary = summarize_fd(&Call::unlimited(&table, r#"{"fd": "fd:1"}"#, &settings, 0));
    match (
        write,
        summary,
        create_temp_file(&Call::unlimited(&table, r#"{"fd": "fd:1"}"#, &settings, 0)),
    ) {
        (Outcome::Write(write), Outcome::Summarize(summary), Outcome::TempFile(file)) => {
            (write, summary, file)
        }
        others => panic!("all ask for something outside: {others:?}"),
    }
}

fn take<T>(waiting: &mut Vec<T>, which: u8) -> Option<T> {
    if waiting.is_empty() {
        None
    } else {
        Some(waiting.swap_remove(usize::from(which) % waiting.len()))
    }
}

fn tool_use(number: u32, tool: u8) -> Block {
    let (name, args) = match tool {
        0 => ("read_fd", r#"{"fd": "fd:1"}"#),
        1 => ("read_fd", r#"{"fd": "fd:1", "extract_to_new_fd": true}"#),
        2 => ("search_fd", r#"{"fd": "fd:1", "query": "x"}"#),
        3 => ("fd_to_file", r#"{"fd": "fd:1", "file_path": "out.txt"}"#),
        4 => ("fork", r#"{"prompts": ["a", "b"]}"#),
        5 => ("nonsense", "{}"),
        7 => ("summarize_fd", r#"{"fd": "fd:1"}"#),
        8 => ("summarize_fd", r#"{"fd": "msg:1", "again": true}"#),
        9 => ("grep", r#"{"for": "{{fd:1 lines 1-2}}"}"#),
        10 => ("rename_fd", r#"{"fd": "fd:1", "name": "log"}"#),
        11 => (
            "mark_fd_section",
            r#"{"fd": "msg:1", "start_line": 1, "end_line": 1, "ref_id": "top"}"#,
        ),
        12 => ("delete_fd_section", r#"{"fd": "msg:1", "ref_id": "top"}"#),
        13 => (
            "append_temp_file",
            r#"{"temp_file_id": "temp:1", "content": "x"}"#,
        ),
        15 => (
            "goto",
            r#"{"position": "msg:1", "message": "I know more now."}"#,
        ),
        16 => (
            "goto",
            r#"{"position": "msg:4", "message": "I know more now."}"#,
        ),
        14 => ("read_temp_file", r#"{"temp_file_id": "temp:1"}"#),
        17 => (
            "spawn",
            r#"{"program_name": "me", "query": "x", "additional_preload_files": ["a"]}"#,
        ),
        18 => (
            "spawn",
            r#"{"program_name": "me", "query": "x", "wait": false}"#,
        ),
        19 => (
            "spawn",
            r#"{"program": "me", "query": "x", "wait": false, "additional_preload_temp_files": ["temp:1"]}"#,
        ),
        _ => ("grep", "{}"),
    };
    Block::ToolUse {
        id: format!("u{number}").into(),
        name: name.into(),
        args: args.into(),
        raw: None,
    }
}

/// Each tool use is answered once, in the user's message right behind it.
fn check_answered(messages: &[Arc<Message>]) {
    for (at, message) in messages.iter().enumerate() {
        let uses: Vec<_> = message.blocks.iter().filter_map(used).collect();
        if uses.is_empty() {
            continue;
        }
        let next = messages
            .get(at + 1)
            .unwrap_or_else(|| panic!("the uses {uses:?} are not answered"));
        let results: Vec<_> = next.blocks.iter().filter_map(answered).collect();
        assert_eq!((next.role, results), (Role::User, uses));
    }
}

fn used(block: &Block) -> Option<&str> {
    if let Block::ToolUse { id, .. } = block {
        Some(id)
    } else {
        None
    }
}

fn answered(block: &Block) -> Option<&str> {
    if let Block::ToolResult { id, .. } = block {
        Some(id)
    } else {
        None
    }
}

fn run(lifetime: Lifetime, reads_apart: bool, steps: Vec<Step>) {
    let mut world = World::new(process(lifetime, "begin"));
    world.reads_apart = reads_apart;
    let first = world.state.clone();
    world.feed(Input::Signal(Signal::Resume));
    for step in steps {
        if let Step::Stale(which) = step {
            world.check_stale(which);
        } else if let Some(input) = world.input(step) {
            world.feed(input);
        }
    }
    let mut replayed = first;
    world
        .journal
        .iter()
        .for_each(|fact| evolve(&mut replayed, fact));
    assert_eq!(replayed, world.state, "DUR-2");
    let again = State::from_image(
        Pid(1),
        world.state.program().clone(),
        surroundings(),
        world.state.image(),
    )
    .expect("an image of a process is valid");
    assert_eq!(again, world.state, "an image is the whole process");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 800, ..ProptestConfig::default() })]

    #[test]
    fn any_run_replays_to_the_state_that_wrote_it(
        session in any::<bool>(),
        reads_apart in any::<bool>(),
        steps in prop::collection::vec(step(), 0..60),
    ) {
        run(if session { Lifetime::Session } else { Lifetime::Task }, reads_apart, steps);
    }
}

/// A call that is made again after a restart is made once in that life, although the process is
/// stopped when its read comes back and reads again when it continues.
#[test]
fn a_read_that_comes_back_while_the_process_is_stopped_is_made_again() {
    let steps = [
        Step::Reply(vec![13], 2),
        Step::ReadResult(0),
        Step::Resume,
        Step::Stop,
        Step::ReadResult(0),
        Step::Continue,
        Step::ReadResult(0),
    ];
    run(Lifetime::Task, true, steps.into());
}

/// The process after `input`, and what it wants done.
fn after(state: &State, input: Input) -> (State, Vec<Effect>) {
    let Decision { state, effects, .. } = decide(state, input, 0).read_all(0);
    (state, effects)
}

/// The process once it has asked its model, and the call.
fn asked(state: &State) -> (CallId, State) {
    let (state, _) = after(state, Input::Signal(Signal::Resume));
    let Phase::Thinking { call } = *state.phase() else {
        panic!("it asks its model: {:?}", state.phase())
    };
    (call, state)
}

fn replied(call: CallId, block: Block) -> Input {
    let reply = Reply {
        blocks: vec![block],
        stop: StopReason::ToolUse,
        usage: Usage::default(),
    };
    Input::Completed {
        call,
        result: Completion::Model(Ok(reply)),
    }
}

fn last_answer(state: &State) -> (String, bool) {
    match &state.messages().last().expect("something was said").blocks[0] {
        Block::ToolResult { text, is_error, .. } => (text.to_string(), *is_error),
        other => panic!("an answer is last: {other:?}"),
    }
}

#[test]
fn a_call_in_flight_when_the_kernel_stopped_is_repeated_only_where_that_is_harmless() {
    let a_host_tool = (tool_use(1, 6), false);
    let a_whole_file = (tool_use(1, 3), true);
    let children = (tool_use(1, 4), true);
    let a_temp_file = (tool_use(1, 8), true);
    for (block, repeated) in [a_host_tool, a_whole_file, children, a_temp_file] {
        let (call, state) = asked(&process(Lifetime::Task, &"line\n".repeat(20)));
        let (acting, first) = after(&state, replied(call, block.clone()));
        assert!(!first.is_empty(), "{block:?} is performed");
        let (resumed, effects) = after(&acting, Input::Signal(Signal::Resume));
        let again = effects.iter().any(|effect| {
            !matches!(
                effect,
                Effect::StartWork {
                    work: Work::Model { .. },
                    ..
                } | Effect::KillChildrenExcept { .. }
            )
        });
        assert_eq!(again, repeated, "{block:?}");
        if !repeated {
            let (text, is_error) = last_answer(&resumed);
            assert!(
                is_error && text.contains("effect is unknown"),
                "the model is told: {text}"
            );
        }
    }
}

#[test]
fn a_forked_child_is_told_who_it_is_and_may_not_fork() {
    let (call, state) = asked(&process(Lifetime::Task, "go"));
    let (_, effects) = after(&state, replied(call, tool_use(1, 4)));
    let Some(Effect::StartChildren { children, .. }) = effects.first() else {
        panic!("children start: {effects:?}")
    };
    let child = &children[1];
    let child = State::from_image(
        Pid(2),
        child.program.clone(),
        surroundings(),
        child.image.clone(),
    )
    .expect("a child is valid");
    let (told, _) = last_answer(&child);
    assert!(
        told.contains("child 2 of 2") && told.ends_with('b'),
        "{told}"
    );
    let (call, child) = asked(&child);
    let (child, effects) = after(&child, replied(call, tool_use(2, 4)));
    assert!(
        matches!(
            &effects[..],
            [Effect::StartWork {
                work: Work::Model { .. },
                ..
            }]
        ),
        "nothing is started: {effects:?}"
    );
    let (text, is_error) = last_answer(&child);
    assert!(is_error && text.contains("needs admin access"), "{text}");
}

#[test]
fn nothing_said_at_birth_is_no_message() {
    let (program, around, said) = (program(), surroundings(), UserInput { parts: Vec::new() });
    let birth = Birth {
        access: Access::Admin,
        depth: 0,
        lifetime: Lifetime::Task,
        priority: Priority::Normal,
        preloads: &Preloads::default(),
        input: Some(&said),
    };
    assert!(
        initial_image(&program, &around, birth, 0)
            .mailbox
            .is_empty()
    );
}

#[test]
fn what_children_say_is_text_in_the_answer_whether_it_is_whole_or_cut() {
    for (cap, cut) in [
        (1000, ""),
        (
            20,
            "Only its first 20 bytes were kept; 21 bytes after them were cut off.",
        ),
    ] {
        let program = compiled(&format!("{PROGRAM}max_content_bytes = {cap}\n"));
        let (call, state) = asked(&process_of(program, Lifetime::Task, "go"));
        let (mut state, effects) = after(&state, replied(call, tool_use(1, 4)));
        let Some(Effect::StartChildren { children, .. }) = effects.first() else {
            panic!("children start: {effects:?}")
        };
        let said = "</child><fd_error type=\"x\"/> & <unclosed>";
        assert_eq!(said.len(), 41);
        for (index, child) in (0..).zip(children) {
            let Origin::Forked { call, .. } = child.origin else {
                panic!("{:?}", child.origin)
            };
            let exit = Exit::new(ExitStatus::Done, said);
            (state, _) = after(
                &state,
                Input::Child {
                    call,
                    event: ChildEvent::Ended {
                        index,
                        child: Pid(2 + u64::from(index)),
                        exit,
                    },
                },
            );
        }
        let (xml, _) = last_answer(&state);
        let document = roxmltree::Document::parse(&xml)
            .unwrap_or_else(|error| panic!("XML-1: {error}: {xml}"));
        let of_children = document
            .root_element()
            .children()
            .filter(|node| node.has_tag_name("child"));
        let texts: Vec<String> = of_children
            .map(|child| child.children().filter_map(|node| node.text()).collect())
            .collect();
        let kept = &said[..said.len().min(cap)];
        assert_eq!(texts.len(), 2);
        assert!(
            texts
                .iter()
                .all(|text| text.starts_with(kept) && text.ends_with(cut)),
            "{texts:?}"
        );
    }
}

#[test]
fn a_turn_ends_at_its_limit_of_model_calls() {
    let (mut call, mut state) = asked(&process(Lifetime::Task, "go"));
    for _ in 1..6 {
        (state, _) = after(&state, replied(call, tool_use(1, 5)));
        let Phase::Thinking { call: next } = *state.phase() else {
            panic!("{:?}", state.phase())
        };
        call = next;
    }
    let (state, _) = after(&state, replied(call, tool_use(1, 5)));
    assert_eq!(
        state.exit().map(|exit| exit.status),
        Some(ExitStatus::IterationLimit)
    );
}

#[test]
fn a_tool_use_in_a_cut_reply_is_never_run() {
    let (call, state) = asked(&process(Lifetime::Task, "go"));
    let reply = Reply {
        blocks: vec![tool_use(1, 6)],
        stop: StopReason::MaxTokens,
        usage: Usage::default(),
    };
    let (_, effects) = after(
        &state,
        Input::Completed {
            call,
            result: Completion::Model(Ok(reply)),
        },
    );
    assert!(
        matches!(
            &effects[..],
            [Effect::StartWork {
                work: Work::Model { .. },
                ..
            }]
        ),
        "{effects:?}"
    );
}

/// The process after one more tool use of its model, and what it asked for.
fn used_by(state: &State, number: u32, name: &str, args: &str) -> State {
    let (call, state) = asked(state);
    let block = Block::ToolUse {
        id: format!("n{number}").into(),
        name: name.into(),
        args: args.into(),
        raw: None,
    };
    after(&state, replied(call, block)).0
}

/// What is noted of `fd:1`: its name, and the first lines of its sections.
fn noted(state: &State) -> (Option<String>, Vec<(String, u64)>) {
    let notes = &state
        .table()
        .get(&FdId::Fd(1))
        .expect("the input was opened")
        .notes;
    let sections = notes
        .sections
        .iter()
        .map(|(ref_id, section)| (ref_id.to_string(), section.start_line));
    (notes.name.as_deref().map(str::to_owned), sections.collect())
}

const NAME: (&str, &str) = ("rename_fd", r#"{"fd": "fd:1", "name": "log"}"#);
const MARK: (&str, &str) = (
    "mark_fd_section",
    r#"{"fd": "log", "start_line": 2, "end_line": 3, "ref_id": "bug"}"#,
);

#[test]
fn a_note_is_a_fact_and_part_of_the_image() {
    let first = process(Lifetime::Task, &"line\n".repeat(20));
    let (mut state, mut facts) = (first.clone(), Vec::new());
    for (number, (name, args)) in (0_u32..).zip([NAME, MARK]) {
        let id = format!("n{number}").into();
        let block = Block::ToolUse {
            id,
            name: name.into(),
            args: args.into(),
            raw: None,
        };
        let resumed = decide(&state, Input::Signal(Signal::Resume), 0).read_all(0);
        let Phase::Thinking { call } = *resumed.state.phase() else {
            panic!("{:?}", resumed.state.phase())
        };
        let used = decide(&resumed.state, replied(call, block), 0).read_all(0);
        facts.extend(resumed.facts.into_iter().chain(used.facts));
        state = used.state;
    }
    assert_eq!(
        noted(&state),
        (Some("log".to_owned()), vec![("bug".to_owned(), 2)])
    );
    let kept: Vec<_> = facts
        .iter()
        .filter(|fact| matches!(fact, Fact::Descriptor(DescriptorFact::Annotated { .. })))
        .collect();
    assert_eq!(kept.len(), 2, "{kept:?}");
    let mut replayed = first;
    facts.iter().for_each(|fact| evolve(&mut replayed, fact));
    assert_eq!(replayed, state, "DUR-2");
    let again = State::from_image(
        Pid(1),
        state.program().clone(),
        surroundings(),
        state.image(),
    )
    .expect("an image of a process is valid");
    assert_eq!(noted(&again), noted(&state));
}

#[test]
fn a_fork_has_the_notes_and_neither_side_sees_what_the_other_notes_later() {
    let state = process(Lifetime::Task, &"line\n".repeat(20));
    let state = used_by(&used_by(&state, 1, NAME.0, NAME.1), 2, MARK.0, MARK.1);
    let (call, state) = asked(&state);
    let (parent, effects) = after(&state, replied(call, tool_use(3, 4)));
    let Some(Effect::StartChildren { children, .. }) = effects.first() else {
        panic!("children start: {effects:?}")
    };
    let born = children.iter().map(|child| {
        State::from_image(
            Pid(2),
            child.program.clone(),
            surroundings(),
            child.image.clone(),
        )
        .expect("a child is valid")
    });
    let born: Vec<_> = born.collect();
    let inherited = noted(&parent);
    assert_eq!(
        inherited,
        (Some("log".to_owned()), vec![("bug".to_owned(), 2)])
    );
    assert_eq!(
        born.iter().map(noted).collect::<Vec<_>>(),
        vec![inherited.clone(); 2]
    );
    let renamed = used_by(&born[0], 4, "rename_fd", r#"{"fd": "log", "name": "mine"}"#);
    let changed = used_by(
        &renamed,
        5,
        "delete_fd_section",
        r#"{"fd": "mine", "ref_id": "bug"}"#,
    );
    assert_eq!(noted(&changed), (Some("mine".to_owned()), vec![]));
    assert_eq!(
        (noted(&parent), noted(&born[1])),
        (inherited.clone(), inherited.clone()),
        "FORK-1"
    );
    let marked = MARK.1.replace("bug", "top");
    let parent = used_by(&ended(parent, &[0, 1]), 6, MARK.0, &marked);
    assert_eq!(noted(&parent).1.len(), 2);
    assert_eq!(
        (noted(&changed).1.len(), noted(&born[1])),
        (0, inherited),
        "FORK-1"
    );
}

/// The process once its children of these indices have ended.
fn ended(state: State, indices: &[u32]) -> State {
    let Phase::Acting { pending_calls, .. } = state.phase() else {
        panic!("it waits for children: {:?}", state.phase())
    };
    let call = pending_calls[0].call;
    indices.iter().fold(state, |state, index| {
        let exit = Exit::new(ExitStatus::Done, "done");
        after(
            &state,
            Input::Child {
                call,
                event: ChildEvent::Ended {
                    index: *index,
                    child: Pid(u64::from(*index) + 2),
                    exit,
                },
            },
        )
        .0
    })
}

#[test]
fn what_a_temporary_file_holds_is_read_whole_or_becomes_a_descriptor_and_its_version_is_told() {
    let cases = [
        (
            20,
            0,
            "<temp_file id=\"temp:1\" version=\"3\" total_chars=\"20\">zzz",
        ),
        (51, 1, "<fd_result fd=\"fd:1\" source=\"temp:1\""),
    ];
    for (size, descriptors, start) in cases {
        let (call, state) = asked(&process(Lifetime::Task, "go"));
        let (acting, effects) = after(&state, replied(call, tool_use(1, 14)));
        let [
            Effect::StartWork {
                call,
                work: Work::TempFile(pending),
            },
        ] = &effects[..]
        else {
            panic!("it asks: {effects:?}")
        };
        assert_eq!(
            (&pending.op, pending.max_bytes),
            (&TempFileOp::Read { id: TempId(1) }, 1_000_000_000)
        );
        let content = Content::new("z".repeat(size));
        let result = Ok(TempFileReply::Contents {
            id: TempId(1),
            version: 3,
            content: content.clone(),
        });
        let (read, _) = after(
            &acting,
            Input::Completed {
                call: *call,
                result: Completion::TempFile {
                    pending: pending.clone(),
                    result,
                },
            },
        );
        let (text, is_error) = last_answer(&read);
        assert!(text.starts_with(start) && !is_error, "{text}");
        assert_eq!(
            (read.table().len(), read.output_totals().produced_chars),
            (descriptors, size as u64)
        );
        if let Some((_, entry)) = read.table().iter().next() {
            assert!(
                text.contains("Version 3 of temp:1 exceeds 50 characters")
                    && text.contains("version=3"),
                "{text}"
            );
            assert_eq!(
                entry
                    .content
                    .unlimited_reader()
                    .bytes()
                    .expect("it is in memory")
                    .as_ptr(),
                content
                    .unlimited_reader()
                    .bytes()
                    .expect("it is in memory")
                    .as_ptr(),
                "nothing is copied"
            );
        }
    }
}

/// The process after a spawn in the background whose child exists, and the call.
fn with_background(lifetime: Lifetime) -> (CallId, State) {
    let (call, state) = asked(&process(lifetime, "go"));
    let (acting, effects) = after(&state, replied(call, tool_use(1, 18)));
    let [Effect::StartChildren { children, .. }] = &effects[..] else {
        panic!("a child starts: {effects:?}")
    };
    let Origin::Spawned { call } = children[0].origin else {
        panic!("it is spawned: {:?}", children[0].origin)
    };
    let (state, effects) = after(
        &acting,
        Input::Child {
            call,
            event: ChildEvent::Started { child: Pid(7) },
        },
    );
    assert!(
        matches!(
            &effects[..],
            [Effect::StartWork {
                work: Work::Model { .. },
                ..
            }]
        ),
        "it goes on at once: {effects:?}"
    );
    assert_eq!(
        last_answer(&state),
        ("<spawned pid=\"7\" program=\"me\"/>".to_owned(), false)
    );
    (call, state)
}

fn says_last(state: &State, text: &str) -> (State, Vec<Effect>) {
    let Phase::Thinking { call } = *state.phase() else {
        panic!("{:?}", state.phase())
    };
    after(
        state,
        Input::Completed {
            call,
            result: Completion::Model(Ok(last_words(text))),
        },
    )
}

#[test]
fn a_task_hears_of_its_child_in_the_background_before_it_ends_and_only_once() {
    for lifetime in [Lifetime::Task, Lifetime::Session] {
        let (call, state) = with_background(lifetime);
        let (waiting, effects) = says_last(&state, "meanwhile");
        assert_eq!(waiting.phase(), &Phase::Idle);
        assert!(
            matches!(&effects[..], [Effect::Report(Report::Turn { .. })]),
            "{effects:?}"
        );
        let exit = Exit::new(ExitStatus::Truncated, "found".repeat(20));
        let end = Input::Child {
            call,
            event: ChildEvent::Ended {
                index: 0,
                child: Pid(7),
                exit: exit.clone(),
            },
        };
        let (told, effects) = after(&waiting, end.clone());
        assert!(
            matches!(
                &effects[..],
                [Effect::StartWork {
                    work: Work::Model { .. },
                    ..
                }]
            ),
            "it begins a turn: {effects:?}"
        );
        let text = told.messages().last().expect("it was told").text();
        assert!(
            text.starts_with(
                "<child_ended pid=\"7\" status=\"truncated\">\n  <fd_result fd=\"fd:1\""
            ),
            "{text}"
        );
        let entry = told
            .table()
            .get(&FdId::Fd(1))
            .expect("the large message is a descriptor");
        assert_eq!(
            entry
                .content
                .unlimited_reader()
                .bytes()
                .expect("it is in memory")
                .as_ptr(),
            exit.message.as_ptr(),
            "nothing is copied"
        );
        assert_eq!(after(&told, end).0, told, "its end is heard once");
        let (ended, _) = says_last(&told, "the end");
        assert_eq!(ended.exit().is_some(), lifetime == Lifetime::Task);
    }
}

#[test]
fn an_interrupt_lets_a_child_in_the_background_live_and_a_restart_looks_for_it() {
    let (call, state) = with_background(Lifetime::Session);
    let (interrupted, effects) = after(&state, Input::Signal(Signal::Interrupt));
    let gone = effects
        .iter()
        .any(|effect| matches!(effect, Effect::Abandon { calls } if calls.contains(&call)));
    assert!(
        !gone && interrupted.background().contains_key(&call),
        "{effects:?}"
    );
    let (resumed, effects) = after(&interrupted, Input::Signal(Signal::Resume));
    assert!(
        matches!(&effects[..], [Effect::KillChildrenExcept { calls }, Effect::FindChild { call: sought, index: 0, .. }]
            if calls == &[call] && *sought == call),
        "{effects:?}"
    );
    let (lost, _) = after(
        &resumed,
        Input::Child {
            call,
            event: ChildEvent::Absent { index: 0 },
        },
    );
    assert!(lost.background().is_empty());
    assert!(
        lost.messages()
            .last()
            .expect("it was told")
            .text()
            .contains("is no child of this process")
    );
    let (killed, _) = after(&state, Input::Signal(Signal::Kill));
    assert!(killed.background().is_empty());
}

#[test]
fn a_spawn_that_was_begun_looks_for_its_child_before_it_reads_or_makes_anything() {
    for tool in [17, 18] {
        let (call, state) = asked(&process(Lifetime::Task, "go"));
        let (acting, first) = after(&state, replied(call, tool_use(1, tool)));
        let (resumed, effects) = after(&acting, Input::Signal(Signal::Resume));
        let [
            Effect::KillChildrenExcept { .. },
            Effect::FindChild { call, index: 0, .. },
        ] = effects[..]
        else {
            panic!("{effects:?}")
        };
        let (_, again) = after(
            &resumed,
            Input::Child {
                call,
                event: ChildEvent::Absent { index: 0 },
            },
        );
        let is_same =
            |(a, b): (&Effect, &Effect)| std::mem::discriminant(a) == std::mem::discriminant(b);
        assert!(
            again.len() == 1 && first.iter().zip(&again).all(is_same),
            "{first:?} {again:?}"
        );
    }
}

#[test]
fn children_beyond_the_limit_are_refused_whatever_calls_made_the_others() {
    let (_, mut state) = with_background(Lifetime::Task);
    for number in 2..=32 {
        let Phase::Thinking { call } = *state.phase() else {
            panic!("{:?}", state.phase())
        };
        let (acting, effects) = after(&state, replied(call, tool_use(number, 18)));
        let Some(Effect::StartChildren { children, .. }) = effects.first() else {
            panic!("child {number}: {effects:?}")
        };
        let Origin::Spawned { call } = children[0].origin else {
            panic!("it is spawned")
        };
        state = after(
            &acting,
            Input::Child {
                call,
                event: ChildEvent::Started {
                    child: Pid(u64::from(number) + 6),
                },
            },
        )
        .0;
        // Each begins a turn of its own, so that the limit of model calls is not met.
        state = after(
            &says_last(&state, "next").0,
            Input::UserInput {
                from: Sender::Host,
                user_input: "on".into(),
            },
        )
        .0;
    }
    for tool in [4, 18] {
        let Phase::Thinking { call } = *state.phase() else {
            panic!("{:?}", state.phase())
        };
        let (refused, _) = after(&state, replied(call, tool_use(40, tool)));
        let (text, is_error) = last_answer(&refused);
        assert!(
            is_error
                && text.contains("32 of this process are running")
                && text.contains("max_children"),
            "{text}"
        );
    }
}

#[test]
fn children_inherit_the_priority_of_their_parent() {
    for tool in [4, 18] {
        let (call, state) = asked(&process(Lifetime::Task, "go"));
        assert_eq!(state.priority(), Priority::High);
        let (_, effects) = after(&state, replied(call, tool_use(1, tool)));
        let Some(Effect::StartChildren { children, .. }) = effects.first() else {
            panic!("children start: {effects:?}")
        };
        assert!(
            children
                .iter()
                .all(|child| child.image.priority == Priority::High)
        );
    }
}
