//! Explorations: the tool `explore` forks speculative children (`speculation.rs`) and takes over what
//! one of them says or proposes.
//!
//! The first child that is done and that the *judge* passes wins: the others are ended, and its last
//! message is the answer. Without a judge, every child that is done passes. A schema judges what a
//! child answers or proposes. A linked program judges as a process of its own, which reads the child
//! as the program that judges a race does ([`JudgedBranch`]), and submits whether it passes.
//!
//! A judging process is a child of the call. The child with the index `i` of `n` is judged by the
//! one with the index `n + i`, so that its share, its end and the search for it after a restart are
//! those of any child. One child is judged at a time, so that nothing is judged in vain once one
//! passes. A judge that cannot be made has ended, by a fact: the child that it was to judge loses.
//!
//! A judge gives no permission: a program judges only in a process that may `spawn` it, and a rule
//! of `tools.ask` about that tool holds the exploration (`held.rs`). A command cannot judge, since
//! the commands of a program are tools with arguments of their own; a judging program may have one.

use dormouse_program::{AskRule, AskedCall, Program, ValueSchema};
use dormouse_proto::id::CallId;
use dormouse_proto::model::Usage;
use dormouse_proto::process::{Exit, ExitStatus};
use dormouse_proto::record::{ChildFact, PendingCall, Speculation};
use dormouse_proto::text::truncate;
use dormouse_proto::tool::Answer;
use dormouse_proto::xml::Element;
use serde_json::Value;

use super::children::{PlacedExit, has_ended};
use super::decide::Draft;
use super::speculation::Proposal;
use super::toolbox::ToolBinding;
use super::tools::MAX_ARGUMENT_BYTES;
use super::{Effect, Fetched, PendingSpawn};
use crate::race::{JudgedBranch, Judgement};
use crate::tool::{ParseJudge, ProcessHandler, Refusal};

/// The most characters that are quoted of what a judge says.
const MAX_VERDICT_CHARS: usize = 300;

/// What decides whether a child of an exploration may win.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judge {
    /// A JSON Schema of the arguments of the proposed calls, or of the answer.
    Schema(ValueSchema),
    /// A linked program, whose process submits whether the child passes.
    Program(Program),
}

impl Draft {
    /// Continues as several speculative children.
    pub(super) fn explore(
        &mut self,
        call: CallId,
        parse_prompts: fn(&str, u32) -> Result<Vec<String>, Refusal>,
        parse_judge: ParseJudge,
    ) {
        if let Err(refusal) = self.check_judge(call, parse_judge) {
            return self.answer_in_full(call, refusal.into());
        }
        self.fork_as(call, parse_prompts, Speculation::Child);
        // After a restart: a judge that was begun is found again, the next one begins, and the
        // children that lost are ended.
        if let Some(index) = self.running_judge(call) {
            self.find_child(call, index);
        }
        self.continue_exploration(call, None);
    }

    /// Checks that a call may have its judge. The permission was checked before the call was first
    /// started.
    fn check_judge(&self, call: CallId, parse_judge: ParseJudge) -> Result<(), Refusal> {
        let pending_call = self.pending_call(call);
        match parse_judge(&self.state.program, &pending_call.args)? {
            Some(Judge::Program(_)) if !pending_call.started => self.check_may_spawn(),
            _ => Ok(()),
        }
    }

    /// Checks that the model could start a judging program itself.
    fn check_may_spawn(&self) -> Result<(), Refusal> {
        let spawn = self.state.toolbox.spawn_tool();
        let spawn = spawn.filter(|(_, binding)| binding.access <= self.state.access);
        let Some((called, binding)) = spawn else {
            let refusal = "Nothing was started: a program judges only where the process may start \
                           it with the tool 'spawn', and this process may not. Judge by a schema.";
            return Err(refusal.to_owned().into());
        };
        let name = binding.tool.name_in_program();
        match self.state.program.max_calls(called, name) {
            None => Ok(()),
            Some(_) => Err(format!(
                "Nothing was started: the program limits the calls of '{called}' (tools.limits), \
                 which would not count the processes that judge. Judge by a schema."
            )
            .into()),
        }
    }

    /// The rule of `tools.ask` about `spawn` that concerns an exploration which a program judges. What
    /// the judge will read is not known yet, so a condition on the arguments counts as met.
    pub(super) fn ask_rule_of_judge(
        &self,
        binding: &ToolBinding,
        pending_call: &PendingCall,
    ) -> Option<&AskRule> {
        let program = &self.state.program;
        let Some(ProcessHandler::Explore { judge, .. }) = binding.tool.process_handler() else {
            return None;
        };
        let Ok(Some(Judge::Program(_))) = judge(program, &pending_call.args) else {
            return None;
        };
        let (called, spawn) = self.state.toolbox.spawn_tool()?;
        program.ask_rule(&AskedCall {
            called,
            name: spawn.tool.name_in_program(),
            access: spawn.access,
            args: &[],
            expands_handles: false,
        })
    }

    /// The judge of a checked call; `None` if it has none, or is no exploration.
    pub(super) fn judge_of(&self, pending_call: &PendingCall) -> Option<Judge> {
        match self.process_handler_of(pending_call) {
            Some(ProcessHandler::Explore { judge, .. }) => {
                judge(&self.state.program, &pending_call.args).ok()?
            }
            _ => None,
        }
    }

    /// An open exploration: its call, the number of its children, and its judge.
    fn exploration(&self, call: CallId) -> Option<(&PendingCall, u32, Option<Judge>)> {
        let pending_call = self.state.call_in_flight(call)?;
        let Some(ProcessHandler::Explore { count, judge, .. }) =
            self.process_handler_of(pending_call)
        else {
            return None;
        };
        let children = u32::try_from(count(&pending_call.args)).ok()?;
        let judge = judge(&self.state.program, &pending_call.args).ok()?;
        Some((pending_call, children, judge))
    }

    /// The number of children of a checked call that run no more, and are judged if they have to be.
    pub(super) fn count_finished_children(&self, pending_call: &PendingCall) -> usize {
        let children = self.count_expected_children(pending_call);
        let children = u32::try_from(children).unwrap_or(u32::MAX);
        let judges = matches!(self.judge_of(pending_call), Some(Judge::Program(_)));
        let is_finished = |index: u32| {
            let is_judged = || has_ended(pending_call, children.saturating_add(index));
            index < children && (!judges || !is_done(pending_call, index) || is_judged())
        };
        let ended = pending_call.ended_children.keys();
        ended.filter(|index| is_finished(**index)).count()
    }

    /// The index of the process that judges a child of this call; `None` if none does.
    pub(super) fn running_judge(&self, call: CallId) -> Option<u32> {
        let (pending_call, children, _) = self.exploration(call)?;
        let mut judges = (0..children).map(|index| children + index);
        judges.find(|judge| {
            self.state.budget.share(call, *judge).is_some() && !has_ended(pending_call, *judge)
        })
    }

    /// The next child that a program has to judge; `None` if there is none, or one has passed.
    pub(super) fn next_to_judge(&self, call: CallId) -> Option<u32> {
        let (pending_call, children, judge) = self.exploration(call)?;
        let judge = judge.filter(|judge| matches!(judge, Judge::Program(_)))?;
        if (0..children).any(|index| passes(pending_call, Some(&judge), (children, index))) {
            return None;
        }
        let mut done = (0..children).filter(|index| is_done(pending_call, *index));
        done.find(|index| !has_ended(pending_call, children + index))
    }

    /// Ends the other children of an exploration once one passes; until then, has the next child
    /// judged. `ended` is the child or the judge that has just ended; `None` after a restart.
    pub(super) fn continue_exploration(&mut self, call: CallId, ended: Option<u32>) {
        let Some((pending_call, children, judge)) = self.exploration(call) else {
            return;
        };
        let mut looked_at = match ended {
            Some(index) => {
                let index = index.checked_sub(children).unwrap_or(index);
                index..index + 1
            }
            None => 0..children,
        };
        if looked_at.any(|index| passes(pending_call, judge.as_ref(), (children, index))) {
            if self.state.budget.has_shares(call) {
                self.schedule(Effect::KillChildren { call });
            }
        } else if let Some(Judge::Program(program)) = judge {
            self.judge_next(call, &program);
        }
    }

    /// Begins to judge the next child, unless one is being judged.
    fn judge_next(&mut self, call: CallId, program: &Program) {
        let is_judging =
            self.state.pending_reads.is_reading(call) || self.running_judge(call).is_some();
        let (false, Some(index)) = (is_judging, self.next_to_judge(call)) else {
            return;
        };
        if self.state.is_stopped() {
            return self.state.pending_reads.queue_repeat(call);
        }
        let Some((_, children, _)) = self.exploration(call) else {
            return;
        };
        let judge = children + index;
        let access = self.state.access;
        match self.reserve_shares(call, &[judge], (program, program.budget()), access) {
            Ok(()) => self.read_for_judge(call),
            Err(refusal) => self.fail_judge(call, judge, refusal),
        }
    }

    /// Requests the image of the process that judges, whose share is reserved. Also called if it was
    /// not made before a restart.
    pub(super) fn read_for_judge(&mut self, call: CallId) {
        if self.state.pending_reads.is_reading(call) {
            return;
        }
        let Some(pending) = self.pending_judge(call) else {
            return;
        };
        self.read_for_birth(call, pending, Ok(Fetched::default()));
    }

    fn pending_judge(&self, call: CallId) -> Option<PendingSpawn> {
        let judge = self.running_judge(call)?;
        let (pending_call, children, Some(Judge::Program(program))) = self.exploration(call)?
        else {
            return None;
        };
        let index = judge - children;
        let (child, exit) = pending_call.ended_children.get(&index)?;
        let proposal = Proposal::of(exit);
        let calls = proposal
            .iter()
            .flat_map(|proposal| &proposal.proposed_calls);
        let branch = JudgedBranch {
            pid: *child,
            branch: index + 1,
            level: 1,
            end: proposal.is_none().then_some(exit),
            message: proposal
                .as_ref()
                .map_or(&*exit.message, |proposal| &*proposal.message),
            calls: calls.map(|call| (&*call.tool, call.args.clone())).collect(),
            usage: exit.spent.as_deref().copied().unwrap_or_default(),
        };
        Some(PendingSpawn {
            query: branch.json().to_string(),
            program,
            descriptors: Vec::new(),
            files: Vec::new(),
            temp_files: Vec::new(),
            result_schema: None,
        })
    }

    /// Records that a judge cannot be made: the child that it was to judge loses. The record has the
    /// pid of that child, since the judge has none.
    pub(super) fn fail_judge(&mut self, call: CallId, judge: u32, refusal: Refusal) {
        self.return_share(call, judge, Some(Usage::default()));
        let Some((pending_call, children, _)) = self.exploration(call) else {
            return;
        };
        let judged = judge.checked_sub(children);
        let judged = judged.and_then(|index| pending_call.ended_children.get(&index));
        let Some(child) = judged.map(|(child, _)| *child) else {
            return;
        };
        self.emit(ChildFact::Ended {
            call,
            index: judge,
            child,
            exit: Exit::new(ExitStatus::Faulted, refusal.to_string()),
        });
        self.continue_exploration(call, Some(judge));
        self.read_if_all_ended(call);
    }

    /// Answers an exploration with the last message of its winner, the first child that passes, and
    /// with the beginnings of the others. The call fails if no child passes.
    pub(super) fn answer_exploration(&mut self, call: CallId, ended: Vec<PlacedExit>) {
        let winner = ended
            .iter()
            .find(|exit| exit.why_it_loses.is_none())
            .map(|exit| exit.index);
        let mut produced = 0;
        let mut results = Element::new("explore_result")
            .attribute("children", ended.len())
            .attribute_if("winner", winner.map(|index| index + 1));
        for exit in ended {
            let element = Element::new("child")
                .attribute("index", exit.index + 1)
                .attribute("pid", exit.child)
                .attribute("status", exit.status.word());
            results = results.child(if Some(exit.index) == winner {
                produced = exit.placement.produced_chars();
                self.fill_element(element, exit.placement)
            } else {
                let lost = exit.why_it_loses.as_deref().unwrap_or("another child won");
                element.attribute("lost", lost).text(exit.beginning)
            });
        }
        let answer = Answer {
            is_error: winner.is_none(),
            ..Answer::shown(results)
        };
        self.answer_call(call, answer, produced);
    }
}

/// Why a child of an exploration does not win; `None` if it passes. `verdict` is the end of the
/// process that judged it. O(n) in the messages.
pub(super) fn why_it_loses(
    exit: &Exit,
    judge: Option<&Judge>,
    verdict: Option<&Exit>,
) -> Option<String> {
    if exit.status != ExitStatus::Done {
        return Some(format!("it ended as {}", exit.status.word()));
    }
    match (judge?, verdict) {
        (Judge::Schema(schema), _) => why_schema_refuses(exit, schema),
        (Judge::Program(_), None) => Some("another child won before it was judged".to_owned()),
        (Judge::Program(_), Some(verdict)) => match Judgement::of_exit(verdict) {
            Ok(Judgement { passes: true, .. }) => None,
            Ok(Judgement { passes: false, .. }) => {
                let said = truncate(&verdict.message, MAX_VERDICT_CHARS);
                Some(format!("the judge did not pass it: {said}"))
            }
            Err(why) => {
                let why = truncate(&why, MAX_VERDICT_CHARS);
                Some(format!("the judge failed: {why}"))
            }
        },
    }
}

fn why_schema_refuses(exit: &Exit, schema: &ValueSchema) -> Option<String> {
    let values = match Proposal::of(exit) {
        Some(proposal) => proposal
            .proposed_calls
            .into_iter()
            .map(|call| call.args)
            .collect(),
        None => match serde_json::from_str(exit.message.trim()) {
            Ok(value) => vec![value],
            Err(_) => return Some("its answer is not JSON".to_owned()),
        },
    };
    let violations = values
        .iter()
        .filter_map(|value: &Value| schema.check(value).err());
    let violations: Vec<_> = violations.flatten().map(|it| it.to_string()).collect();
    (!violations.is_empty()).then(|| violations.join("; "))
}

/// Whether a child of a call is known to win: what is too long to be parsed in a decision is judged
/// once all children have ended.
fn passes(
    pending_call: &PendingCall,
    judge: Option<&Judge>,
    (children, index): (u32, u32),
) -> bool {
    let exit_of = |index: u32| {
        let (_, exit) = pending_call.ended_children.get(&index)?;
        Some(exit)
    };
    let Some(exit) = exit_of(index) else {
        return false;
    };
    let is_long = exit.message.len() > MAX_ARGUMENT_BYTES;
    let waits = is_long && matches!(judge, Some(Judge::Schema(_)));
    !waits && why_it_loses(exit, judge, exit_of(children + index)).is_none()
}

/// Whether a child of a call has ended well.
fn is_done(pending_call: &PendingCall, index: u32) -> bool {
    let ended = pending_call.ended_children.get(&index);
    ended.is_some_and(|(_, exit)| exit.status == ExitStatus::Done)
}
