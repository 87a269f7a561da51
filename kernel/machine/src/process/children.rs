//! Children: forks, limits on the number of children, and the answer that the parent gets when its
//! children have ended.
//!
//! A *fork* creates children that start with the conversation of their parent; a *spawn*
//! (`spawn.rs`) creates a child with an empty conversation. An *exploration* (`exploring.rs`) is a
//! fork of speculative children, one of which wins.

use std::sync::Arc;

use dormouse_proto::budget::{Budget, Ledger, Pausing};
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::message::{Block, Message, Role};
use dormouse_proto::model::Usage;
use dormouse_proto::process::{Exit, ExitStatus, Origin};
use dormouse_proto::record::{
    Caller, ChildFact, Control, Lifetime, OutputTotals, PendingCall, Phase, ResultProgress,
    Speculation,
};
use dormouse_proto::shown::ShownText;
use dormouse_proto::text::truncate;
use dormouse_proto::tool::{Access, Answer};
use dormouse_proto::xml::Element;

use super::arrival::Arrival;
use super::decide::Draft;
use super::evolve::{append_marker, tool_result_blocks};
use super::read::ReadSubject;
use super::speculation::with_speculation;
use super::{Child, Effect, Image, State};
use crate::table::placement::{Placement, Placer};
use crate::tool::{ProcessHandler, Refusal};

/// Answer, in the history of a forked child, to the other calls of the reply that called `fork`.
const SIBLING_CALL_ANSWER: &str =
    "Interrupted: this call belongs to the parent process. Call it again if you need it.";

impl Draft {
    pub(super) fn fork(
        &mut self,
        call: CallId,
        parse_prompts: fn(&str, u32) -> Result<Vec<String>, Refusal>,
    ) {
        self.fork_as(call, parse_prompts, self.state.speculation);
    }

    /// Continues as several children.
    pub(super) fn fork_as(
        &mut self,
        call: CallId,
        parse_prompts: fn(&str, u32) -> Result<Vec<String>, Refusal>,
        speculation: Speculation,
    ) {
        let limits = self.state.program.limits();
        let prompts = match parse_prompts(&self.pending_call(call).args, limits.max_fork_children) {
            Ok(prompts) => prompts,
            Err(refusal) => return self.answer_in_full(call, refusal.into()),
        };
        // The limits were checked before the call was first started.
        let checked = if self.pending_call(call).started {
            Ok(())
        } else {
            self.check_child_limits(call, prompts.len())
        };
        if let Err(refusal) = checked {
            return self.answer_in_full(call, refusal.into());
        }
        if self.read_if_all_ended(call) {
            return;
        }
        let pending_call = self.pending_call(call);
        let missing: Vec<u32> = (0..)
            .take(prompts.len())
            .filter(|index| !has_ended(pending_call, *index))
            .collect();
        let program = self.state.program.clone();
        let access = self.state.access.min(Access::Write);
        if let Err(refusal) =
            self.reserve_shares(call, &missing, (&program, Budget::default()), access)
        {
            return self.answer_in_full(call, refusal.into());
        }
        let shared_image = with_speculation(fork_image(&self.state), speculation);
        let children = missing.into_iter().map(|index| Child {
            origin: Origin::Forked { call, index },
            program: self.state.program.clone(),
            image: self.child_image(&shared_image, (call, index), &prompts),
        });
        let children: Vec<_> = children.collect();
        let may_exist = self.pending_call(call).started;
        self.record_intent(call);
        // All children of an exploration may have ended while one of them is judged.
        if !children.is_empty() {
            self.schedule(Effect::StartChildren {
                children,
                may_exist,
            });
        }
    }

    /// The image of one child: the image that all children share, with the prompt and the budget of
    /// the child.
    fn child_image(
        &self,
        shared_image: &Image,
        (call, index): (CallId, u32),
        prompts: &[String],
    ) -> Image {
        let number = index + 1;
        let count = prompts.len();
        let pid = self.state.pid;
        let prompt = ShownText::from(format!(
            "You are child {number} of {count} of a fork of process {pid}.\n\n"
        ));
        let prompt = prompt.then(ShownText::outside(
            &format!("process:{pid}"),
            prompts[index as usize].as_str(),
        ));
        let message = Message {
            role: Role::User,
            blocks: child_prompt_blocks(&self.state, call, prompt),
        };
        let message = Arc::new(append_marker(
            &self.state.program,
            self.state.last_message_number(),
            message,
        ));
        let mut image = Image {
            budget: self.state.budget.ledger_of_child(call, index, self.now_ms),
            ..shared_image.clone()
        };
        image.messages.push_back(message);
        image
    }

    /// Checks that a call may create `count` children: the depth of the tree and the number of
    /// running children are limited.
    pub(super) fn check_child_limits(&self, call: CallId, count: usize) -> Result<(), Refusal> {
        let limits = self.state.program.limits();
        if self.state.depth >= limits.max_depth {
            let depth = self.state.depth;
            let limit = limits.max_depth;
            return Err(format!(
                "No further children: this process is {depth} levels below its root, and the \
                 program allows {limit} (limits.max_depth). Do the work in this process."
            )
            .into());
        }
        let running = self.count_other_running_children(call);
        if running + count > limits.max_children as usize {
            let limit = limits.max_children;
            return Err(format!(
                "No further children: {running} of this process are running, {count} more were \
                 asked for, and the program allows {limit} at a time (limits.max_children). Wait \
                 until some have ended."
            )
            .into());
        }
        Ok(())
    }

    /// Number of running children of all other calls, and of background children.
    pub(super) fn count_other_running_children(&self, call: CallId) -> usize {
        let others = self.state.pending_calls().iter().filter(|pending_call| {
            pending_call.call != call && pending_call.started && pending_call.answer.is_none()
        });
        let awaited = others.map(|pending_call| match self.bound_tool_of(pending_call) {
            Some(tool) if tool.makes_children() => self
                .count_expected_children(pending_call)
                .saturating_sub(self.count_finished_children(pending_call)),
            _ => 0,
        });
        self.state.background_pids().count() + awaited.sum::<usize>()
    }

    /// Handles the end of a child. The child's share is returned even if its call is already
    /// answered.
    pub(super) fn handle_child_ended(&mut self, call: CallId, index: u32, child: Pid, exit: Exit) {
        // This end is of an earlier life of the child. The parent had heard of it before it opened
        // the child again (`reopening.rs`: ends are numbered).
        if self
            .state
            .has_reopened_since((call, index), exit.reopenings)
        {
            return;
        }
        // An end that is reported again was charged before.
        if self.state.budget.share(call, index).is_some() {
            self.charge_wait(exit.ran_ms);
        }
        self.return_share(call, index, exit.spent.as_deref().copied());
        // A background child, or one that was opened again, is reported by a message. The call of
        // any other child is answered below.
        if self.state.runs_in_background_at(call, index) {
            self.request_arrival_placement(Arrival::EndedChild {
                call,
                index,
                child,
                exit: exit.clone(),
            });
        }
        self.continue_with_returned_shares();
        let Some(pending_call) = self.state.call_in_flight(call) else {
            return;
        };
        if has_ended(pending_call, index) {
            return;
        }
        self.emit(ChildFact::Ended {
            call,
            index,
            child,
            exit,
        });
        self.continue_exploration(call, Some(index));
        self.read_if_all_ended(call);
    }

    /// Looks for a child that a call created.
    pub(super) fn find_child(&mut self, call: CallId, index: u32) {
        let reopened = self.state.reopened_children.get(&(call, index));
        let reopenings = reopened.map_or(0, |reopened| reopened.reopenings);
        self.schedule(Effect::FindChild {
            call,
            index,
            reopenings,
        });
    }

    /// If all children of the call have ended and are judged, requests the placement of their last
    /// messages, which are its answer. Returns whether that is so. Also called after a restart, since
    /// a journal can end between the last end and the answer.
    pub(super) fn read_if_all_ended(&mut self, call: CallId) -> bool {
        // The cheap check comes first: counting the expected children parses the arguments.
        if self.state.budget.has_shares(call) {
            return false;
        }
        let pending_call = self.pending_call(call);
        let children = self.count_expected_children(pending_call);
        let children = u32::try_from(children).unwrap_or(u32::MAX);
        let ended = pending_call.ended_children.clone();
        if (0..children).any(|index| !has_ended(pending_call, index))
            || self.next_to_judge(call).is_some()
        {
            return false;
        }
        let (tool, judge) = match self.process_handler(call) {
            Some(ProcessHandler::Fork { .. }) => ("fork", None),
            Some(ProcessHandler::Explore { .. }) => ("explore", self.judge_of(pending_call)),
            _ => ("spawn", None),
        };
        if !self.state.pending_reads.is_reading(call) {
            self.request_read(ReadSubject::EndedChildren {
                call,
                tool,
                children,
                ended,
                judge,
            });
        }
        true
    }

    /// Answers a call with the last messages of its children.
    pub(super) fn answer_with_children(&mut self, call: CallId, ended: Vec<PlacedExit>) {
        match self.process_handler(call) {
            Some(ProcessHandler::Fork { .. }) => self.answer_fork(call, ended),
            Some(ProcessHandler::Explore { .. }) => self.answer_exploration(call, ended),
            _ => self.answer_spawn(call, ended),
        }
    }

    /// The number of children that a call creates. Its arguments have been checked.
    pub(super) fn count_expected_children(&self, pending_call: &PendingCall) -> usize {
        match self.process_handler_of(pending_call) {
            Some(ProcessHandler::Fork { count, .. } | ProcessHandler::Explore { count, .. }) => {
                count(&pending_call.args)
            }
            _ => 1,
        }
    }

    /// Answers a fork with the last message of each child. The failure of a child is not a failure
    /// of the call.
    fn answer_fork(&mut self, call: CallId, ended: Vec<PlacedExit>) {
        let mut produced = 0;
        let mut results = Element::new("fork_result").attribute("children", ended.len());
        for PlacedExit {
            index,
            child,
            status,
            placement,
            ..
        } in ended
        {
            produced += placement.produced_chars();
            let element = Element::new("child")
                .attribute("index", index + 1)
                .attribute("pid", child)
                .attribute("status", status.word());
            results = results.child(self.fill_element(element, placement));
        }
        self.answer_call(call, Answer::shown(results), produced);
    }

    /// Answers a spawn with the child's last message. The answer is an error if the child did not
    /// finish.
    fn answer_spawn(&mut self, call: CallId, ended: Vec<PlacedExit>) {
        let Some(PlacedExit {
            child,
            status,
            placement,
            ..
        }) = ended.into_iter().next()
        else {
            return;
        };
        let produced_chars = placement.produced_chars();
        let answer = self.open_placement(placement);
        let answer = match status {
            ExitStatus::Done => answer,
            status => Answer {
                text: format!(
                    "Process {child} ended as {}: {}",
                    status.word(),
                    answer.text
                )
                .into(),
                is_error: true,
                ..answer
            },
        };
        self.answer_call(call, answer, produced_chars);
    }
}

/// A child that has ended, with the placement of its last message.
#[derive(Clone, Debug)]
pub struct PlacedExit {
    /// Index of the child within its call, from 0.
    pub index: u32,
    /// Pid of the child.
    pub child: Pid,
    /// How it ended.
    pub status: ExitStatus,
    /// How often it had been opened again before this end.
    pub reopenings: u32,
    /// Placement of its last message. A large one becomes a descriptor, which shares the text.
    pub placement: Placement,
    /// The beginning of its last message, for a child that does not win an exploration.
    pub beginning: String,
    /// Why a child of an exploration does not win; `None` if it passes.
    pub why_it_loses: Option<String>,
}

/// The most characters that are shown of the last message of a child that does not win.
const MAX_BEGINNING_CHARS: usize = 300;

impl PlacedExit {
    /// Places the last message of a child. A descriptor of it gets `source` and the pid as its
    /// source. O(n) in the message.
    pub(super) fn new(
        (index, child): (u32, Pid),
        exit: &Exit,
        (source, why_it_loses): (&str, Option<String>),
        placer: &Placer<'_>,
    ) -> Self {
        Self {
            index,
            child,
            status: exit.status,
            reopenings: exit.reopenings,
            placement: placer.exit(exit, &format!("{source}:{child}")),
            beginning: truncate(&exit.message, MAX_BEGINNING_CHARS),
            why_it_loses,
        }
    }
}

/// Whether child `index` of a call has ended, so that it is not started again.
pub(super) fn has_ended(pending_call: &PendingCall, index: u32) -> bool {
    pending_call.ended_children.contains_key(&index)
}

/// The image that all children of a fork share: the image of the parent, ready to continue the
/// turn. [`Draft::child_image`] then answers the open tool uses, so that the history is valid and
/// begins with the bytes of the parent (FORK-2).
fn fork_image(state: &State) -> Image {
    let shared_messages = u32::try_from(state.messages.len()).unwrap_or(u32::MAX);
    let forked_at = state
        .forked_at
        .iter()
        .copied()
        .chain([shared_messages])
        .collect();
    Image {
        mailbox: Vec::new(),
        receipts: Vec::new(),
        background: Vec::new(),
        reopenings: 0,
        reopened_children: Vec::new(),
        access: state.access.min(Access::Write),
        depth: state.depth + 1,
        forked_at,
        lifetime: Lifetime::Task,
        epoch: state.epoch + 1,
        iterations: 0,
        phase: Phase::Ready { stop_reason: None },
        control: Control::Running,
        usage: Usage::default(),
        // Each child gets a budget of its own. The budget of the parent is not copied, since it has
        // an entry for each child.
        budget: Ledger::default(),
        output_totals: OutputTotals::default(),
        restores: 0,
        result: ResultProgress::default(),
        // The alarms of the parent wake the parent. Numbers continue, since the child's history
        // names those of the parent.
        alarms: Vec::new(),
        effects: state.effects.of_child(),
        pausing: Pausing::default(),
        limited_calls: Vec::new(),
        ..state.image()
    }
}

/// The blocks of the first message of a forked child. The prompt answers the `fork` call, and each
/// other call of that reply is answered with an error. A fork by the host is not part of the
/// conversation, so its prompt is a plain text block.
fn child_prompt_blocks(state: &State, call: CallId, prompt: ShownText) -> Vec<Block> {
    if let Phase::Acting {
        caller: Caller::Host,
        ..
    } = state.phase
    {
        return vec![Block::text(prompt)];
    }
    let fork_answer = Answer::shown(prompt);
    let sibling_answer = Answer::failed(SIBLING_CALL_ANSWER);
    let mut blocks = Vec::new();
    for pending_call in state.pending_calls() {
        let answer = if pending_call.call == call {
            &fork_answer
        } else {
            &sibling_answer
        };
        blocks.extend(tool_result_blocks(pending_call, answer));
    }
    blocks
}
