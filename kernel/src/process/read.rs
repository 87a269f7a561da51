//! Reads: what a decision has to know of the bytes of contents.
//!
//! A decision never looks at bytes: contents can be large, and on disk. If it needs them, it asks for a [`Read`], which holds
//! all that it takes to perform it. The shell performs it, at once if it is small and next to the actor if it is not, and the
//! result comes back as [`Completion::Read`]. A read changes nothing: it needs no intent and waits for no fact, and one that a restart
//! cuts off is performed again.
//!
//! The calls of a model are begun in order, and none is begun while one before it reads: so a name that one call gives is known to
//! the next, and descriptors are numbered in the order of the calls. What arrives from outside is read in the order in which it
//! arrived: the shell performs one such read at a time.

use std::sync::Arc;

use dormouse_proto::descriptor::{DescriptorSettings, FdError};
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::mail::Speaker;
use dormouse_proto::record::Caller;
use dormouse_proto::spoken::Spoken;
use dormouse_proto::temp_file::TempId;
use dormouse_proto::tool::{Answer, OutsideTool, ToolOutput};

use super::decide::{Decision, Draft, decide};
use super::toolbox::Kind;
use super::{Completion, Effect, Fact, Input, Work};
use crate::content::{Collected, Content, ReadQuota, Unreadable};
use crate::program::Program;
use crate::syscall::spawn::{self, PendingSpawn};
use crate::syscall::{Call, Letter, Outcome, PendingMessage, PlacedLetter, Syscall, handle, send_message};
use crate::table::placement::{PlacedOutput, Placement, Placer};
use crate::table::{NewDescriptor, Table};

/// A read that a decision asked for. Cloning costs a few pointers.
#[derive(Clone, Debug)]
pub struct Read {
    subject: Subject,
    settings: Option<DescriptorSettings>,
    now_ms: u64,
}

/// What is read, and what for.
#[derive(Clone, Debug)]
enum Subject {
    /// What a call needs before it can be begun or answered.
    Call { call: CallId, purpose: Purpose, args: Arc<str>, table: Table, program: Program },
    /// What a tool outside produced.
    Output { call: CallId, output: ToolOutput, source: String },
    /// The content of a temporary file.
    TempFile { call: CallId, id: TempId, version: u64, content: Content },
    /// Something that arrived from outside of the process.
    Arrival(Arrival),
}

/// What a call needs the bytes for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    /// The answer of a descriptor tool, or what it asks for.
    Tool(Syscall),
    /// Arguments of a tool outside, with handles replaced.
    Arguments,
    /// What a child is given.
    Spawn,
    /// What a message hands over.
    Message,
}

/// Something that arrives with bytes. Each field is that of the [`Input`] of the same name.
#[derive(Clone, Debug)]
pub(super) enum Arrival {
    /// Someone speaks to the process.
    Spoke { from: Speaker, spoken: Spoken },
    /// The host hands over a content.
    Opened { ticket: Arc<str>, collected: Collected, source: String, page_chars: Option<u32> },
    /// Another process sends a message.
    Messaged { ticket: Arc<str>, from: Pid, call: CallId, settled: u32, letter: Letter },
}

/// What a read found.
#[derive(Clone, Debug)]
pub enum Found {
    /// The outcome of a descriptor tool.
    Tool(Outcome),
    /// Arguments without handles; none if there was none.
    Arguments(Result<Option<String>, FdError>),
    /// A checked spawn, or a text for the model.
    Spawn(Result<PendingSpawn, String>),
    /// A checked message, or a text for the model.
    Message(Result<PendingMessage, String>),
    /// Where the output of a tool goes.
    Output(PlacedOutput),
    /// Where the content of a temporary file goes.
    TempFile(Placement),
}

/// Something that arrived, ready to be taken in.
#[derive(Clone, Debug)]
pub enum Placed {
    /// Where the parts of what somebody said go.
    Spoke {
        /// Who said it.
        from: Speaker,
        /// The parts, in order.
        parts: Vec<Placement>,
    },
    /// What the host handed over, as a descriptor.
    Opened {
        /// The host's name of its call.
        ticket: Arc<str>,
        /// The descriptor.
        new: Result<Box<NewDescriptor>, Unreadable>,
    },
    /// A message of another process.
    Messaged {
        /// The name of the delivery.
        ticket: Arc<str>,
        /// The sender.
        from: Pid,
        /// Its call.
        call: CallId,
        /// The sender waits for no call below this number.
        settled: u32,
        /// What it says.
        letter: PlacedLetter,
    },
}

impl Found {
    /// Whether something is begun with it, and not only answered.
    fn begins_something(&self) -> bool {
        match self {
            Self::Tool(outcome) => outcome.begins_something(),
            Self::Arguments(result) => result.is_ok(),
            Self::Spawn(result) => result.is_ok(),
            Self::Message(result) => result.is_ok(),
            Self::Output(_) | Self::TempFile(_) => false,
        }
    }
}

impl Read {
    /// The call that waits for it; none if it is of something that arrived from outside.
    #[must_use]
    pub fn call(&self) -> Option<CallId> {
        match &self.subject {
            Subject::Call { call, .. } | Subject::Output { call, .. } | Subject::TempFile { call, .. } => Some(*call),
            Subject::Arrival(_) => None,
        }
    }

    /// Whether it is the work of a descriptor tool, and not a part of what another tool does.
    #[must_use]
    pub fn is_tool(&self) -> bool {
        matches!(self.subject, Subject::Call { purpose: Purpose::Tool(_), .. })
    }

    /// Performs it. None if the quota does not allow it: then nothing has come of it, and it can be performed again.
    #[must_use]
    pub fn perform(&self, quota: &ReadQuota) -> Option<Input> {
        let Self { subject, settings, now_ms } = self;
        let placer = Placer { settings: settings.as_ref(), now_ms: *now_ms, quota };
        let found = |call: &CallId, found| Input::Completed { call: *call, result: Completion::Read(found) };
        let input = match subject {
            Subject::Call { call, purpose, args, table, program } => {
                let settings = &settings.unwrap_or_default();
                // They are parsed, and what they say is copied.
                quota.charge(args.len().saturating_mul(2)).ok()?;
                found(call, purpose.read(&Call { table, args, settings, now_ms: *now_ms, quota }, program))
            }
            Subject::Output { call, output, source } => {
                found(call, Found::Output(placer.output(output.clone(), source)))
            }
            Subject::TempFile { call, id, version, content } => {
                found(call, Found::TempFile(placer.temp_file((*id, *version), content)))
            }
            Subject::Arrival(arrival) => Input::Placed(arrival.clone().place(&placer)),
        };
        // A result that was made when nothing more could be read is none.
        (!quota.is_used_up()).then_some(input)
    }
}

impl Purpose {
    fn read(self, call: &Call<'_>, program: &Program) -> Found {
        match self {
            Self::Tool(syscall) => Found::Tool(syscall(call)),
            Self::Arguments => Found::Arguments(handle::expand(call)),
            Self::Spawn => Found::Spawn(spawn::pending(program, call)),
            Self::Message => Found::Message(send_message::pending(program, call)),
        }
    }
}

impl Arrival {
    fn place(self, placer: &Placer<'_>) -> Placed {
        match self {
            Self::Spoke { from, spoken } => Placed::Spoke { from, parts: placer.spoken(&spoken) },
            Self::Opened { ticket, collected, source, page_chars } => {
                Placed::Opened { ticket, new: placer.handed(collected, &source, page_chars).map(Box::new) }
            }
            Self::Messaged { ticket, from, call, settled, letter } => {
                let letter = PlacedLetter::new(from, letter, placer);
                Placed::Messaged { ticket, from, call, settled, letter }
            }
        }
    }
}

impl Decision {
    /// Performs the reads that stay within `bytes` of what is in memory, and decides on what they find. The others are left, and
    /// so is what arrived after something whose read is not done yet.
    pub fn read_inline(self, bytes: u64, now_ms: u64) -> Self {
        let is_next = self.state.reading.arrivals <= 1;
        self.read(now_ms, |read| {
            if read.call().is_none() && !is_next {
                return None;
            }
            read.perform(&ReadQuota::inline(bytes))
        })
    }

    /// Performs all reads here and now, also from disk. For drivers without actors: a handler must not wait for it.
    pub fn read_all(self, now_ms: u64) -> Self {
        self.read(now_ms, |read| read.perform(ReadQuota::unlimited()))
    }

    fn read(mut self, now_ms: u64, perform: impl Fn(&Read) -> Option<Input>) -> Self {
        let mut left = Vec::new();
        while !self.reads.is_empty() {
            for read in std::mem::take(&mut self.reads) {
                match perform(&read) {
                    Some(input) => self.follow(input, now_ms),
                    None => left.push(read),
                }
            }
        }
        self.reads = left;
        self
    }

    /// Decides on one more input, in the same step.
    fn follow(&mut self, input: Input, now_ms: u64) {
        let Self { facts, state, reads, effects } = decide(&self.state, input, now_ms);
        self.state = state;
        self.facts.extend(facts);
        self.reads.extend(reads);
        self.effects.extend(effects);
    }
}

/// The reads that are on their way. No fact says so, and no image: a process that comes back begins its reads anew. So two states
/// are equal whatever is being read for them.
#[derive(Clone, Debug, Default)]
pub(super) struct Reading {
    calls: Vec<CallId>,
    arrivals: usize,
    /// Calls of an earlier life that are to be repeated, and that wait: for the read of a call before them, or for the process to
    /// be continued.
    to_repeat: Vec<CallId>,
}

impl Reading {
    pub(super) fn has(&self, call: CallId) -> bool {
        self.calls.contains(&call)
    }

    /// Whether something that arrived is being read.
    pub(super) fn has_arrivals(&self) -> bool {
        self.arrivals > 0
    }

    fn begin(&mut self, call: Option<CallId>) {
        match call {
            Some(call) => self.calls.push(call),
            None => self.arrivals += 1,
        }
    }

    /// All calls are given up. What arrives is still read.
    pub(super) fn end_calls(&mut self) {
        self.calls.clear();
        self.to_repeat.clear();
    }

    pub(super) fn repeat_later(&mut self, call: CallId) {
        self.to_repeat.push(call);
    }

    /// Whether the call was to be repeated later. From now on it is not.
    pub(super) fn is_to_repeat(&mut self, call: CallId) -> bool {
        let before = self.to_repeat.len();
        self.to_repeat.retain(|waiting| *waiting != call);
        self.to_repeat.len() < before
    }

    /// Whether something was read for the call until now.
    pub(super) fn end(&mut self, call: CallId) -> bool {
        let before = self.calls.len();
        self.calls.retain(|reading| *reading != call);
        self.calls.len() < before
    }
}

impl PartialEq for Reading {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Draft {
    /// Asks for what a call needs.
    pub(super) fn read(&mut self, call: CallId, purpose: Purpose) {
        let (args, table) = (self.slot(call).args.clone(), self.state.table.clone());
        let program = self.state.program.clone();
        self.ask_for(Subject::Call { call, purpose, args, table, program });
    }

    /// Asks where the output of a call goes.
    pub(super) fn place_output(&mut self, call: CallId, output: ToolOutput, source: String) {
        self.ask_for(Subject::Output { call, output, source });
    }

    /// Asks where the content of a temporary file goes.
    pub(super) fn place_temp_file(&mut self, call: CallId, (id, version): (TempId, u64), content: Content) {
        self.ask_for(Subject::TempFile { call, id, version, content });
    }

    /// Asks where something goes that arrived from outside.
    pub(super) fn place(&mut self, arrival: Arrival) {
        self.ask_for(Subject::Arrival(arrival));
    }

    fn ask_for(&mut self, subject: Subject) {
        let read = Read { subject, settings: self.state.settings().copied(), now_ms: self.now_ms };
        self.state.reading.begin(read.call());
        self.reads.push(read);
    }

    /// Takes in what arrived.
    pub(super) fn take_placed(&mut self, placed: Placed) {
        self.state.reading.arrivals = self.state.reading.arrivals.saturating_sub(1);
        match placed {
            Placed::Spoke { from, parts } => self.hear(from, parts),
            Placed::Opened { ticket, new } => self.open_for_host(ticket, new),
            Placed::Messaged { ticket, from, call, settled, letter } => {
                self.receive(ticket, (from, call), settled, letter);
            }
        }
    }

    /// What was found for a call. It is stale if nobody waits for it any more (CALL-1).
    pub(super) fn take_read(&mut self, call: CallId, found: Found) {
        let is_open = self.state.slots().iter().any(|slot| slot.call == call && slot.answer.is_none());
        if !self.state.reading.end(call) || !is_open {
            return;
        }
        // A stopped process begins nothing. It reads again when it is continued.
        if self.state.is_stopped() && found.begins_something() {
            if self.slot(call).called {
                self.state.reading.repeat_later(call);
            }
            return;
        }
        let caller = self.caller();
        match found {
            Found::Tool(outcome) => self.take_outcome(call, outcome),
            Found::Arguments(arguments) => self.take_arguments(call, arguments),
            Found::Spawn(pending) => self.take_spawn(call, pending),
            Found::Message(pending) => self.take_message(call, pending),
            Found::Output(output) => self.answer_output(call, output),
            Found::TempFile(placement) => {
                let produced_chars = placement.produced_chars();
                let answer = self.placed(placement);
                self.answer(call, answer, produced_chars);
            }
        }
        match caller {
            // Those after it waited.
            Caller::Model if !self.state.is_stopped() => self.begin_uncalled(),
            _ => self.settle(caller),
        }
    }

    fn take_arguments(&mut self, call: CallId, arguments: Result<Option<String>, FdError>) {
        let Some(Kind::External(tool)) = self.kind(call) else { return };
        match arguments {
            Ok(expanded) => {
                let args = expanded.map_or_else(|| self.slot(call).args.clone(), Arc::from);
                self.begin_outside(call, tool, args);
            }
            Err(error) => self.answer_whole(call, error.answer()),
        }
    }

    pub(super) fn begin_outside(&mut self, call: CallId, tool: OutsideTool, args: Arc<str>) {
        let written = self.slot(call).args.clone();
        self.intend(call);
        self.perform(Effect::Begin { call, work: Work::Tool { tool, args, written } });
    }

    fn take_outcome(&mut self, call: CallId, outcome: Outcome) {
        match outcome {
            Outcome::Answer(answer) => self.answer_whole(call, answer),
            Outcome::Opened(new) => {
                let answer = self.open_next(*new);
                self.answer_whole(call, answer);
            }
            Outcome::Noted { id, note, answer } => {
                self.emit(Fact::DescriptorNoted { id, note });
                self.answer_whole(call, answer);
            }
            Outcome::Write(pending) => {
                self.intend(call);
                self.perform(Effect::Begin { call, work: Work::WriteFile(pending) });
            }
            Outcome::Summarize(pending) => {
                if let Some(why) = self.refusal_to_spend() {
                    return self.answer_whole(call, Answer::failed(why));
                }
                let model = self.state.summarizer();
                let request = self.state.summary_request(&model, pending.prompt.clone());
                self.intend(call);
                self.perform(Effect::Begin { call, work: Work::Summarize { pending, request, model } });
            }
            Outcome::TempFile(pending) => {
                self.intend(call);
                self.perform(Effect::Begin { call, work: Work::TempFile(pending) });
            }
        }
    }
}
