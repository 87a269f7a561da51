//! The process machine under random runs: whatever happens in whatever order, facts replay to the same state (DUR-2),
//! stale completions change nothing (CALL-1), and what was sent to a model only grows (HIST-1).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dormouse_kernel::content::Content;
use dormouse_kernel::process::{
    Birth, Child, Decision, Effect, Fact, HostTool, Input, Speaker, State, Surroundings, born, decide, evolve,
};
use dormouse_kernel::program::{Program, compile};
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::message::{Block, Message, Role};
use dormouse_proto::model::{ModelError, ModelErrorKind, Reply, Request, StopReason, Usage};
use dormouse_proto::process::{Exit, ExitStatus, Origin};
use dormouse_proto::record::{Lifetime, Phase};
use dormouse_proto::temp_file::{TempFileError, TempFileOp, TempFileReply, TempId};
use dormouse_proto::tool::{Access, ToolOutput, ToolPolicy, ToolSpec};
use proptest::prelude::*;

const PROGRAM: &str = r#"
[model]
name = "m"
provider = "scripted"
max_iterations = 6
[prompt]
system = "You are a test."
[tools]
enabled = ["read_fd", "search_fd", "fd_to_file", "fork", "grep", "append_temp_file", "read_temp_file"]
[file_descriptor]
max_direct_output_chars = 50
default_page_size = 20
max_input_chars = 60
"#;

fn program() -> Program {
    let compiled = compile(Path::new("p.toml"), &mut |_| Ok(Bytes::from_static(PROGRAM.as_bytes())), &["grep"]);
    compiled.unwrap_or_else(|errors| panic!("{errors:?}")).program
}

fn surroundings() -> Arc<Surroundings> {
    let spec = ToolSpec { name: "grep".into(), description: "finds".into(), schema: "{}".into() };
    let tools = BTreeMap::from([("grep".into(), HostTool { spec, policy: ToolPolicy::default() })]);
    Arc::new(Surroundings { tools, ..Surroundings::default() })
}

fn process(lifetime: Lifetime, input: &str) -> State {
    let (program, around) = (program(), surroundings());
    let said = input.into();
    let birth = Birth { access: Access::Admin, depth: 0, lifetime, descriptors: &[], input: Some(&said) };
    let image = born(&program, &around, birth, 0);
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
    EndChild(u8),
    Stale(u8),
    Interrupt,
    Resume,
    Kill,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        16 => (0_usize..120).prop_map(Step::Speak),
        4 => Just(Step::HostCall),
        32 => (prop::collection::vec(0_u8..10, 0..4), any::<u8>()).prop_map(|(tools, stop)| Step::Reply(tools, stop)),
        2 => Just(Step::FailModel),
        32 => (any::<u8>(), 0_usize..120).prop_map(|(which, size)| Step::Return(which, size)),
        16 => any::<u8>().prop_map(Step::EndChild),
        12 => any::<u8>().prop_map(Step::Stale),
        4 => Just(Step::Interrupt),
        4 => Just(Step::Resume),
        1 => Just(Step::Kill),
    ]
}

/// A call that asks for something of the tree's files.
type TempCall = (CallId, TempFileOp<Content>);

/// The world around one machine: what it was asked to do and has not answered yet.
struct World {
    state: State,
    journal: Vec<Fact>,
    tools: Vec<CallId>,
    writes: Vec<CallId>,
    temp_files: Vec<TempCall>,
    children: Vec<(CallId, u32)>,
    past: Vec<CallId>,
    issued: BTreeSet<CallId>,
    sent: Vec<Arc<Message>>,
    uses: u32,
}

impl World {
    fn new(state: State) -> Self {
        let (journal, sent, issued, children) = (Vec::new(), Vec::new(), BTreeSet::new(), Vec::new());
        let (tools, writes, temp_files, past) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { state, journal, tools, writes, temp_files, children, past, issued, sent, uses: 0 }
    }

    /// Feeds the machine and returns how many facts followed.
    fn feed(&mut self, input: Input) -> usize {
        let resumed = matches!(input, Input::Resumed);
        let Decision { facts, effects } = decide(&self.state, input, 7);
        let count = facts.len();
        for fact in facts {
            evolve(&mut self.state, &fact);
            self.journal.push(fact);
        }
        effects.into_iter().for_each(|effect| self.perform(effect, resumed));
        count
    }

    fn perform(&mut self, effect: Effect, resumed: bool) {
        match effect {
            Effect::CallModel { call, request } => {
                self.issue(call, resumed);
                self.check_history(&request);
                self.sent = request.messages;
            }
            Effect::CallTool { call, .. } => {
                self.issue(call, false);
                self.tools.push(call);
            }
            Effect::WriteFile { call, .. } => {
                self.issue(call, resumed);
                self.writes.push(call);
            }
            Effect::TempFile { call, op, .. } => {
                self.issue(call, resumed);
                self.temp_files.push((call, op));
            }
            Effect::StartChildren { children } => children.iter().for_each(|child| self.start(child)),
            Effect::Abandon { calls } => self.past.extend(calls),
            Effect::KeepChildren { .. }
            | Effect::AnswerHost { .. }
            | Effect::ReportTurn { .. }
            | Effect::ReportExit { .. } => {}
        }
    }

    /// CALL-2: only what may be repeated is issued a second time, and only after a restart.
    fn issue(&mut self, call: CallId, repeatable: bool) {
        assert!(self.issued.insert(call) || repeatable, "call {call} was issued twice");
    }

    fn start(&mut self, child: &Child) {
        self.check_child(child);
        let Origin::Forked { call, index } = child.origin else { panic!("only forks are asked for here") };
        self.children.push((call, index));
    }

    /// HIST-1, and every tool use is answered in the message that follows it.
    fn check_history(&self, request: &Request) {
        assert!(request.messages.starts_with(&self.sent), "what was sent changed");
        check_answered(&request.messages);
    }

    /// FORK-2: a child's first request begins with its parent's bytes, and is a valid history.
    fn check_child(&self, child: &Child) {
        let state = State::from_image(Pid(99), child.program.clone(), surroundings(), child.image.clone())
            .expect("a child is valid");
        let parent = self.state.request();
        let effects = decide(&state, Input::Resumed, 8).effects;
        let Some(Effect::CallModel { request, .. }) = effects.last() else { panic!("a child asks its model first") };
        assert_eq!((&request.system, &request.tools), (&parent.system, &parent.tools));
        assert!(request.messages.starts_with(&parent.messages), "FORK-2");
        check_answered(&request.messages);
    }

    fn input(&mut self, step: Step) -> Option<Input> {
        match step {
            Step::Speak(size) => {
                Some(Input::Spoke { from: Speaker::Host, spoken: ("x\n".repeat(size / 2) + "y").into() })
            }
            Step::HostCall => {
                let args = r#"{"fd": "fd:1"}"#.to_owned();
                Some(Input::HostCalled { ticket: "t".into(), tool: "read_fd".into(), args })
            }
            Step::Reply(tools, stop) => self.reply(&tools, stop),
            Step::FailModel => {
                let call = self.thinking()?;
                self.past.push(call);
                Some(Input::ModelReplied { call, result: Err(ModelError::new(ModelErrorKind::Malformed, "no")) })
            }
            Step::Return(which, size) => self.returned(which, size),
            Step::EndChild(which) => {
                let (call, index) = take(&mut self.children, which)?;
                let message = "found ".repeat(usize::from(which) % 20).into();
                let exit = Exit { status: ExitStatus::Done, message };
                Some(Input::ChildEnded { call, index, child: Pid(u64::from(index) + 2), exit })
            }
            Step::Interrupt => Some(Input::Interrupted),
            Step::Resume => Some(Input::Resumed),
            Step::Kill => Some(Input::Killed),
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
        let usage = Usage { input_tokens: 3, output_tokens: 2, ..Usage::default() };
        Some(Input::ModelReplied { call, result: Ok(Reply { blocks, stop, usage }) })
    }

    fn returned(&mut self, which: u8, size: usize) -> Option<Input> {
        if let Some(call) = take(&mut self.writes, which) {
            self.past.push(call);
            return Some(Input::FileWritten { call, result: Ok(()) });
        }
        if let Some((call, op)) = take(&mut self.temp_files, which) {
            self.past.push(call);
            let (id, version) = (TempId(1), 2);
            let result = match op {
                _ if size.is_multiple_of(5) => Err(TempFileError::NotFound { id, known: Vec::new() }),
                TempFileOp::Read { .. } => {
                    Ok(TempFileReply::Contents { id, version, content: Content::new("z".repeat(size)) })
                }
                _ => Ok(TempFileReply::Changed { id, version, total_bytes: 3 }),
            };
            return Some(Input::TempFileDone { call, result });
        }
        let call = take(&mut self.tools, which)?;
        self.past.push(call);
        Some(Input::ToolReturned { call, output: ToolOutput::ok("z".repeat(size)) })
    }

    /// Completions of a call that is over, answered already or abandoned.
    fn check_stale(&mut self, which: u8) {
        let Some(call) = (!self.past.is_empty()).then(|| self.past[usize::from(which) % self.past.len()]) else {
            return;
        };
        if self.is_open(call) {
            return;
        }
        let before = self.state.clone();
        let exit = Exit { status: ExitStatus::Done, message: "late".into() };
        let reply = Reply { blocks: vec![Block::text("late")], stop: StopReason::EndTurn, usage: Usage::default() };
        let late = [
            Input::ModelReplied { call, result: Ok(reply) },
            Input::ToolReturned { call, output: ToolOutput::ok("late") },
            Input::FileWritten { call, result: Ok(()) },
            Input::TempFileDone { call, result: Err(TempFileError::TooMany { max_files: 1 }) },
            Input::ChildEnded { call, index: 0, child: Pid(50), exit },
        ];
        for input in late {
            let shown = format!("{input:?}");
            assert_eq!(self.feed(input), 0, "a stale completion made facts: {shown}");
        }
        assert_eq!(self.state, before, "CALL-1");
    }

    fn is_open(&self, call: CallId) -> bool {
        match self.state.phase() {
            Phase::Thinking { call: open } => *open == call,
            Phase::Acting { slots, .. } => slots.iter().any(|slot| slot.call == call && slot.answer.is_none()),
            _ => false,
        }
    }
}

fn take<T>(waiting: &mut Vec<T>, which: u8) -> Option<T> {
    if waiting.is_empty() { None } else { Some(waiting.swap_remove(usize::from(which) % waiting.len())) }
}

fn tool_use(number: u32, tool: u8) -> Block {
    let (name, args) = match tool {
        0 => ("read_fd", r#"{"fd": "fd:1"}"#),
        1 => ("read_fd", r#"{"fd": "fd:1", "extract_to_new_fd": true}"#),
        2 => ("search_fd", r#"{"fd": "fd:1", "query": "x"}"#),
        3 => ("fd_to_file", r#"{"fd": "fd:1", "file_path": "out.txt"}"#),
        4 => ("fork", r#"{"prompts": ["a", "b"]}"#),
        5 => ("nonsense", "{}"),
        8 => ("append_temp_file", r#"{"temp_file_id": "temp:1", "content": "x"}"#),
        9 => ("read_temp_file", r#"{"temp_file_id": "temp:1"}"#),
        _ => ("grep", "{}"),
    };
    Block::ToolUse { id: format!("u{number}").into(), name: name.into(), args: args.into(), raw: None }
}

/// Each tool use is answered once, in the user's message right behind it.
fn check_answered(messages: &[Arc<Message>]) {
    for (at, message) in messages.iter().enumerate() {
        let uses: Vec<_> = message.blocks.iter().filter_map(used).collect();
        if uses.is_empty() {
            continue;
        }
        let next = messages.get(at + 1).unwrap_or_else(|| panic!("the uses {uses:?} are not answered"));
        let results: Vec<_> = next.blocks.iter().filter_map(answered).collect();
        assert_eq!((next.role, results), (Role::User, uses));
    }
}

fn used(block: &Block) -> Option<&str> {
    if let Block::ToolUse { id, .. } = block { Some(id) } else { None }
}

fn answered(block: &Block) -> Option<&str> {
    if let Block::ToolResult { id, .. } = block { Some(id) } else { None }
}

fn run(lifetime: Lifetime, steps: Vec<Step>) {
    let mut world = World::new(process(lifetime, "begin"));
    let first = world.state.clone();
    world.feed(Input::Resumed);
    for step in steps {
        if let Step::Stale(which) = step {
            world.check_stale(which);
        } else if let Some(input) = world.input(step) {
            world.feed(input);
        }
    }
    let mut replayed = first;
    world.journal.iter().for_each(|fact| evolve(&mut replayed, fact));
    assert_eq!(replayed, world.state, "DUR-2");
    let again = State::from_image(Pid(1), world.state.program().clone(), surroundings(), world.state.image())
        .expect("an image of a process is valid");
    assert_eq!(again, world.state, "an image is the whole process");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 800, ..ProptestConfig::default() })]

    #[test]
    fn any_run_replays_to_the_state_that_wrote_it(
        session in any::<bool>(),
        steps in prop::collection::vec(step(), 0..60),
    ) {
        run(if session { Lifetime::Session } else { Lifetime::Task }, steps);
    }
}

/// The process after `input`, and what it wants done.
fn after(state: &State, input: Input) -> (State, Vec<Effect>) {
    let mut state = state.clone();
    let Decision { facts, effects } = decide(&state, input, 0);
    facts.iter().for_each(|fact| evolve(&mut state, fact));
    (state, effects)
}

/// The process once it has asked its model, and the call.
fn asked(state: &State) -> (CallId, State) {
    let (state, _) = after(state, Input::Resumed);
    let Phase::Thinking { call } = *state.phase() else { panic!("it asks its model: {:?}", state.phase()) };
    (call, state)
}

fn replied(call: CallId, block: Block) -> Input {
    let reply = Reply { blocks: vec![block], stop: StopReason::ToolUse, usage: Usage::default() };
    Input::ModelReplied { call, result: Ok(reply) }
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
        let (resumed, effects) = after(&acting, Input::Resumed);
        let again =
            effects.iter().any(|effect| !matches!(effect, Effect::CallModel { .. } | Effect::KeepChildren { .. }));
        assert_eq!(again, repeated, "{block:?}");
        if !repeated {
            let (text, is_error) = last_answer(&resumed);
            assert!(is_error && text.contains("effect is unknown"), "the model is told: {text}");
        }
    }
}

#[test]
fn a_forked_child_is_told_who_it_is_and_may_not_fork() {
    let (call, state) = asked(&process(Lifetime::Task, "go"));
    let (_, effects) = after(&state, replied(call, tool_use(1, 4)));
    let Some(Effect::StartChildren { children }) = effects.first() else { panic!("children start: {effects:?}") };
    let child = &children[1];
    let child = State::from_image(Pid(2), child.program.clone(), surroundings(), child.image.clone())
        .expect("a child is valid");
    let (told, _) = last_answer(&child);
    assert!(told.contains("child 2 of 2") && told.ends_with('b'), "{told}");
    let (call, child) = asked(&child);
    let (child, effects) = after(&child, replied(call, tool_use(2, 4)));
    assert!(matches!(&effects[..], [Effect::CallModel { .. }]), "nothing is started: {effects:?}");
    let (text, is_error) = last_answer(&child);
    assert!(is_error && text.contains("needs admin access"), "{text}");
}

#[test]
fn a_turn_ends_at_its_limit_of_model_calls() {
    let (mut call, mut state) = asked(&process(Lifetime::Task, "go"));
    for _ in 1..6 {
        (state, _) = after(&state, replied(call, tool_use(1, 5)));
        let Phase::Thinking { call: next } = *state.phase() else { panic!("{:?}", state.phase()) };
        call = next;
    }
    let (state, _) = after(&state, replied(call, tool_use(1, 5)));
    assert_eq!(state.exit().map(|exit| exit.status), Some(ExitStatus::IterationLimit));
}

#[test]
fn a_tool_use_in_a_cut_reply_is_never_run() {
    let (call, state) = asked(&process(Lifetime::Task, "go"));
    let reply = Reply { blocks: vec![tool_use(1, 6)], stop: StopReason::MaxTokens, usage: Usage::default() };
    let (_, effects) = after(&state, Input::ModelReplied { call, result: Ok(reply) });
    assert!(matches!(&effects[..], [Effect::CallModel { .. }]), "{effects:?}");
}

#[test]
fn what_a_temporary_file_holds_is_read_whole_or_becomes_a_descriptor_and_its_version_is_told() {
    let cases = [
        (20, 0, "<temp_file id=\"temp:1\" version=\"3\" total_chars=\"20\">zzz"),
        (51, 1, "<fd_result fd=\"fd:1\" source=\"temp:1\""),
    ];
    for (size, descriptors, start) in cases {
        let (call, state) = asked(&process(Lifetime::Task, "go"));
        let (acting, effects) = after(&state, replied(call, tool_use(1, 9)));
        let [Effect::TempFile { call, op, max_bytes }] = &effects[..] else { panic!("it asks: {effects:?}") };
        assert_eq!((op, *max_bytes), (&TempFileOp::Read { id: TempId(1) }, 1_000_000_000));
        let content = Content::new("z".repeat(size));
        let result = Ok(TempFileReply::Contents { id: TempId(1), version: 3, content: content.clone() });
        let (read, _) = after(&acting, Input::TempFileDone { call: *call, result });
        let (text, is_error) = last_answer(&read);
        assert!(text.starts_with(start) && !is_error, "{text}");
        assert_eq!((read.table().len(), read.tally().produced_chars), (descriptors, size as u64));
        if let Some((_, entry)) = read.table().iter().next() {
            assert!(text.contains("Version 3 of temp:1 exceeds 50 characters") && text.contains("version=3"), "{text}");
            assert_eq!(entry.content.bytes().as_ptr(), content.bytes().as_ptr(), "nothing is copied");
        }
    }
}
