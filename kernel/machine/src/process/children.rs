//! Children: forks, limits on their number, and the answer that the parent gets when they have
//! ended.

use std::sync::Arc;

use dormouse_proto::budget::Budget;
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::message::{Block, Message, Role};
use dormouse_proto::model::Usage;
use dormouse_proto::process::{Exit, ExitStatus, Origin};
use dormouse_proto::record::{Caller, ChildFact, Control, Lifetime, PendingCall, Phase, Tally};
use dormouse_proto::shown::ShownText;
use dormouse_proto::tool::{Access, Answer};
use dormouse_proto::xml::Element;
use imbl::OrdMap;

use super::decide::Draft;
use super::evolve::{result_blocks, with_marker};
use super::{Child, Effect, Image, State};
use crate::table::placement::{Placement, Placer};
use crate::tool::{ProcessHandler, Refusal};

const SIBLING: &str =
    "Interrupted: this call belongs to the parent process. Call it again if you need it.";

impl Draft {
    pub(super) fn fork(
        &mut self,
        call: CallId,
        prompts: fn(&str, u32) -> Result<Vec<String>, Refusal>,
    ) {
        let limits = self.state.program.limits();
        let prompts = match prompts(&self.pending_call(call).args, limits.max_fork_children) {
            Ok(prompts) => prompts,
            Err(refusal) => return self.answer_in_full(call, refusal.into()),
        };
        // Children that were created before a restart do not count as additional ones.
        let room = if self.pending_call(call).called {
            Ok(())
        } else {
            self.check_room(call, prompts.len())
        };
        if let Err(refusal) = room {
            return self.answer_in_full(call, refusal.into());
        }
        if self.answer_if_all_ended(call) {
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
        let shared = fork_image(&self.state);
        let children = missing.into_iter().map(|index| Child {
            origin: Origin::Forked { call, index },
            program: self.state.program.clone(),
            image: self.child_image(&shared, (call, index), &prompts),
        });
        let children = children.collect();
        let may_exist = self.pending_call(call).called;
        self.record_intent(call);
        self.schedule(Effect::StartChildren {
            children,
            may_exist,
        });
    }

    /// The image of one child: the shared image, its prompt, and its share of the budget.
    fn child_image(
        &self,
        shared: &Image,
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
            blocks: answer_blocks(&self.state, call, prompt),
        };
        let message = Arc::new(with_marker(
            &self.state.program,
            self.state.messages.len(),
            message,
        ));
        let mut image = Image {
            budget: self.state.budget.ledger_of_child(call, index, self.now_ms),
            ..shared.clone()
        };
        image.messages.push_back(message);
        image
    }

    /// Checks that a call may make `count` children: the depth of the tree and the number of
    /// running children are limited.
    pub(super) fn check_room(&self, call: CallId, count: usize) -> Result<(), Refusal> {
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
        let running = self.children_beside(call);
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
    pub(super) fn children_beside(&self, call: CallId) -> usize {
        let others = self.state.pending_calls().iter().filter(|pending_call| {
            pending_call.call != call && pending_call.called && pending_call.answer.is_none()
        });
        let waited = others.map(|pending_call| match self.bound_tool_of(pending_call) {
            Some(tool) if tool.makes_children() => self
                .expected_children(pending_call)
                .saturating_sub(pending_call.ended.len()),
            _ => 0,
        });
        self.state.background.len() + waited.sum::<usize>()
    }

    /// Handles the end of a child. Its share is returned even if its call is over.
    pub(super) fn handle_child_ended(&mut self, call: CallId, index: u32, child: Pid, exit: Exit) {
        self.return_share(call, index, exit.spent);
        if self.state.background.contains_key(&call) {
            self.report_end(call, child, &exit);
        }
        self.continue_with_returned_shares();
        let Some(pending_call) = self.state.unanswered_call(call) else {
            return;
        };
        if has_ended(pending_call, index) {
            return;
        }
        let caller = self.caller();
        self.emit(ChildFact::Ended {
            call,
            index,
            child,
            exit,
        });
        if self.answer_if_all_ended(call) {
            self.continue_turn(caller);
        }
    }

    /// Answers the call if all of its children have ended. A process that was restored between the
    /// last end and the answer continues here.
    pub(super) fn answer_if_all_ended(&mut self, call: CallId) -> bool {
        let pending_call = self.pending_call(call);
        // Parsing the arguments to count the prompts is the expensive test: the shares are checked
        // first.
        if self.state.budget.has_shares(call)
            || pending_call.ended.len() < self.expected_children(pending_call)
        {
            return false;
        }
        let ended = pending_call.ended.clone();
        match self.process_handler(call) {
            Some(ProcessHandler::Fork { .. }) => self.answer_fork(call, &ended),
            _ => self.answer_spawn(call, &ended),
        }
        true
    }

    /// How many children a call makes. Its arguments have been checked.
    pub(super) fn expected_children(&self, pending_call: &PendingCall) -> usize {
        match self.process_handler_of(pending_call) {
            Some(ProcessHandler::Fork { count, .. }) => count(&pending_call.args),
            _ => 1,
        }
    }

    /// Answers a fork with the last message of each child. The failure of a child is not a failure
    /// of the call.
    fn answer_fork(&mut self, call: CallId, ended: &Ended) {
        let mut produced = 0;
        let mut results = Element::new("fork_result").attribute("children", ended.len());
        for (index, (child, exit)) in ended {
            let message = self.message_of_child(*child, exit, "fork");
            produced += message.produced_chars;
            results = results.child(child_element(index + 1, *child, exit, &message));
        }
        self.answer(call, Answer::shown(results), produced);
    }

    /// Answers a spawn with the child's last message; as an error if the child did not finish.
    fn answer_spawn(&mut self, call: CallId, ended: &Ended) {
        let Some((_, (child, exit))) = ended.get_min() else {
            return;
        };
        let ChildMessage {
            answer,
            produced_chars,
            ..
        } = self.message_of_child(*child, exit, "spawn");
        let answer = match exit.status {
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
        self.answer(call, answer, produced_chars);
    }

    /// The last message of a child as its parent reads it. A large one becomes a descriptor that
    /// shares the text.
    pub(super) fn message_of_child(&mut self, child: Pid, exit: &Exit, verb: &str) -> ChildMessage {
        let placement = self.placer().exit(exit, &format!("{verb}:{child}"));
        let produced_chars = placement.produced_chars();
        let exact = match &placement {
            Placement::Context { text, .. } => Some(text.clone()),
            Placement::Descriptor(_) => None,
        };
        ChildMessage {
            answer: self.open_placement(placement),
            produced_chars,
            exact,
        }
    }

    /// A placer without a read quota, for text that is already in memory and no larger than a
    /// reply.
    pub(super) fn placer(&self) -> Placer<'_> {
        Placer::unlimited(self.state.settings(), self.now_ms)
    }
}

/// Ended children of a call, by index.
type Ended = OrdMap<u32, (Pid, Exit)>;

/// The last message of a child, ready for the context of its parent.
pub(super) struct ChildMessage {
    answer: Answer,
    produced_chars: u64,
    /// The exact text; `None` if it became a descriptor, whose element is the answer.
    exact: Option<Arc<str>>,
}

impl ChildMessage {
    /// Puts the message into an element: a descriptor's element as it is, other text escaped
    /// (XML-1).
    pub(super) fn in_element(&self, element: Element) -> Element {
        match &self.exact {
            Some(text) => element.text(&**text),
            None => element.rendered(&*self.answer.text),
        }
    }
}

/// Whether child `index` of a call has ended; such a child is not started again.
fn has_ended(pending_call: &PendingCall, index: u32) -> bool {
    pending_call.ended.contains_key(&index)
}

fn child_element(number: u32, child: Pid, exit: &Exit, message: &ChildMessage) -> Element {
    let element = Element::new("child")
        .attribute("index", number)
        .attribute("pid", child)
        .attribute("status", exit.status.word());
    message.in_element(element)
}

/// The part that the images of all children of a fork share: the parent's image, ready to continue
/// the turn. When the tool uses of the turn are answered, the history is valid and begins with the
/// bytes of the parent (FORK-2).
fn fork_image(state: &State) -> Image {
    let shared = u32::try_from(state.messages.len()).unwrap_or(u32::MAX);
    let forked_at = state.forked_at.iter().copied().chain([shared]).collect();
    Image {
        mailbox: Vec::new(),
        receipts: Vec::new(),
        background: Vec::new(),
        access: state.access.min(Access::Write),
        depth: state.depth + 1,
        forked_at,
        lifetime: Lifetime::Task,
        epoch: state.epoch + 1,
        iterations: 0,
        phase: Phase::Ready { stopped: None },
        control: Control::Running,
        usage: Usage::default(),
        tally: Tally::default(),
        restores: 0,
        ..state.image()
    }
}

/// The blocks with which the history of a child continues: its prompt as the answer to the fork,
/// and an error for each sibling call. A fork by the host is not part of the conversation, so its
/// prompt is plain text.
fn answer_blocks(state: &State, call: CallId, prompt: ShownText) -> Vec<Block> {
    if let Phase::Acting {
        caller: Caller::Host,
        ..
    } = state.phase
    {
        return vec![Block::text(prompt)];
    }
    let fork_answer = Answer::shown(prompt);
    let sibling_answer = Answer::failed(SIBLING);
    let mut blocks = Vec::new();
    for pending_call in state.pending_calls() {
        let answer = if pending_call.call == call {
            &fork_answer
        } else {
            &sibling_answer
        };
        blocks.extend(result_blocks(pending_call, answer));
    }
    blocks
}
