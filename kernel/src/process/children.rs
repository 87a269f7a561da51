//! Children: those that a fork makes, how many there may be, and what the parent is answered when
//! they have ended.

use std::sync::Arc;

use dormouse_proto::budget::Budget;
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::message::{Block, Message, Role};
use dormouse_proto::model::Usage;
use dormouse_proto::process::{Exit, ExitStatus, Origin};
use dormouse_proto::record::{Caller, ChildFact, Control, Lifetime, Phase, Slot, Tally};
use dormouse_proto::shown::ShownText;
use dormouse_proto::tool::{Access, Answer};
use dormouse_proto::xml::Element;
use imbl::OrdMap;

use super::decide::Draft;
use super::evolve::{referable, results};
use super::{Child, Effect, Image, State};
use crate::syscall::fork;
use crate::table::placement::{Placement, Placer};

const SIBLING: &str =
    "Interrupted: this call belongs to the parent process. Call it again if you need it.";

impl Draft {
    pub(crate) fn fork(&mut self, call: CallId) {
        let limits = self.state.program.limits();
        let prompts = match fork::prompts(&self.slot(call).args, limits.max_fork_children) {
            Ok(prompts) => prompts,
            Err(message) => return self.answer_whole(call, Answer::failed(message)),
        };
        // Children that were asked for before the kernel stopped are not asked for as further ones.
        let room = if self.slot(call).called {
            Ok(())
        } else {
            self.check_room(call, prompts.len())
        };
        if let Err(message) = room {
            return self.answer_whole(call, Answer::failed(message));
        }
        if self.answer_if_all_ended(call) {
            return;
        }
        let slot = self.slot(call);
        let missing: Vec<u32> = (0..)
            .take(prompts.len())
            .filter(|index| !has_ended(slot, *index))
            .collect();
        let (program, access) = (
            self.state.program.clone(),
            self.state.access.min(Access::Write),
        );
        if let Err(message) = self.reserve(call, &missing, (&program, Budget::default()), access) {
            return self.answer_whole(call, Answer::failed(message));
        }
        let shared = forked(&self.state);
        let children = missing.into_iter().map(|index| Child {
            origin: Origin::Forked { call, index },
            program: self.state.program.clone(),
            image: self.told(&shared, (call, index), &prompts),
        });
        let (children, may_exist) = (children.collect(), self.slot(call).called);
        self.intend(call);
        self.perform(Effect::StartChildren {
            children,
            may_exist,
        });
    }

    /// The image of the child that goes by this prompt.
    fn told(&self, shared: &Image, (call, index): (CallId, u32), prompts: &[String]) -> Image {
        let (number, count, pid) = (index + 1, prompts.len(), self.state.pid);
        let told = ShownText::from(format!(
            "You are child {number} of {count} of a fork of process {pid}.\n\n"
        ));
        let told = told.then(ShownText::outside(
            &format!("process:{pid}"),
            prompts[index as usize].as_str(),
        ));
        let message = Message {
            role: Role::User,
            blocks: answers(&self.state, call, told),
        };
        let message = Arc::new(referable(
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

    /// Whether a call may make `count` children: so deep below the root, and beside those that run.
    pub(super) fn check_room(&self, call: CallId, count: usize) -> Result<(), String> {
        let limits = self.state.program.limits();
        if self.state.depth >= limits.max_depth {
            let (depth, limit) = (self.state.depth, limits.max_depth);
            return Err(format!(
                "No further children: this process is {depth} levels below its root, and the \
                 program allows {limit} (limits.max_depth). Do the work in this process."
            ));
        }
        let running = self.children_beside(call);
        if running + count > limits.max_children as usize {
            let limit = limits.max_children;
            return Err(format!(
                "No further children: {running} of this process are running, {count} more were \
                 asked for, and the program allows {limit} at a time (limits.max_children). Wait \
                 until some have ended."
            ));
        }
        Ok(())
    }

    /// The children that run for other calls than this, or for none.
    pub(super) fn children_beside(&self, call: CallId) -> usize {
        let others = self
            .state
            .slots()
            .iter()
            .filter(|slot| slot.call != call && slot.called && slot.answer.is_none());
        let waited = others.map(|slot| match self.kind_of(slot) {
            Some(kind) if kind.makes_children() => self
                .expected_children(slot)
                .saturating_sub(slot.ended.len()),
            _ => 0,
        });
        self.state.background.len() + waited.sum::<usize>()
    }

    /// Whatever became of its call, what a child left of its share comes back.
    pub(super) fn take_child(&mut self, call: CallId, index: u32, child: Pid, exit: Exit) {
        self.give_back(call, index, exit.spent);
        if self.state.background.contains_key(&call) {
            self.report(call, child, &exit);
        }
        self.go_on_with_shares();
        let Some(slot) = self.state.open_slot(call) else {
            return;
        };
        if has_ended(slot, index) {
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
            self.settle(caller);
        }
    }

    /// Answers a call whose children have all ended. A process that was restored from between the
    /// end of a child and the answer goes on from here.
    pub(super) fn answer_if_all_ended(&mut self, call: CallId) -> bool {
        let slot = self.slot(call);
        // The prompts are counted once, and not with each end.
        if self.state.budget.has_shares(call) || slot.ended.len() < self.expected_children(slot) {
            return false;
        }
        let ended = slot.ended.clone();
        if self.is_call_of(call, &fork::TOOL) {
            self.answer_fork(call, &ended);
        } else {
            self.answer_spawn(call, &ended);
        }
        true
    }

    /// How many children a call made. Its arguments were checked before it made any.
    pub(super) fn expected_children(&self, slot: &Slot) -> usize {
        match self.kind_of(slot) {
            Some(kind) if kind.is(&fork::TOOL) => fork::count(&slot.args),
            _ => 1,
        }
    }

    /// One answer with each child's last message; a failure of one is its own and not that of the
    /// call.
    fn answer_fork(&mut self, call: CallId, ended: &Ended) {
        let mut produced = 0;
        let mut results = Element::new("fork_result").attribute("children", ended.len());
        for (index, (child, exit)) in ended {
            let said = self.message_of_child(*child, exit, "fork");
            produced += said.produced_chars;
            results = results.child(child_element(index + 1, *child, exit, &said));
        }
        self.answer(call, Answer::shown(results), produced);
    }

    /// The child's last message; an error where it did not finish.
    fn answer_spawn(&mut self, call: CallId, ended: &Ended) {
        let Some((_, (child, exit))) = ended.get_min() else {
            return;
        };
        let Said {
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

    /// The last message of a child, as its parent reads it. If it is large, it is handed over as a
    /// descriptor, and not copied.
    pub(super) fn message_of_child(&mut self, child: Pid, exit: &Exit, verb: &str) -> Said {
        let placement = self.placer().exit(exit, &format!("{verb}:{child}"));
        let produced_chars = placement.produced_chars();
        let exact = match &placement {
            Placement::Context { text, .. } => Some(text.clone()),
            Placement::Descriptor(_) => None,
        };
        Said {
            answer: self.placed(placement),
            produced_chars,
            exact,
        }
    }

    /// Places text that is in memory: what a model said, which is never more than a reply.
    pub(super) fn placer(&self) -> Placer<'_> {
        Placer::unlimited(self.state.settings(), self.now_ms)
    }
}

/// The children of a call that have ended, by index.
type Ended = OrdMap<u32, (Pid, Exit)>;

/// A child's last message as it enters its parent's context.
pub(super) struct Said {
    answer: Answer,
    produced_chars: u64,
    /// The text; none where it became a descriptor, and the answer is the element that shows it.
    exact: Option<Arc<str>>,
}

impl Said {
    /// An answer that is an element already stands as it is; anything else is text, whole or cut
    /// (XML-1).
    pub(super) fn shown_in(&self, element: Element) -> Element {
        match &self.exact {
            Some(text) => element.text(&**text),
            None => element.rendered(&*self.answer.text),
        }
    }
}

/// Whether child `index` of a call is known to have ended: it is not asked for again.
fn has_ended(slot: &Slot, index: u32) -> bool {
    slot.ended.contains_key(&index)
}

fn child_element(number: u32, child: Pid, exit: &Exit, said: &Said) -> Element {
    let element = Element::new("child")
        .attribute("index", number)
        .attribute("pid", child)
        .attribute("status", exit.status.word());
    said.shown_in(element)
}

/// What the images of all children of a fork have in common: the parent's, with a turn to go on
/// with. Once every tool use of the turn is answered there, the history is valid, and begins with
/// the parent's bytes (FORK-2).
fn forked(state: &State) -> Image {
    let shared = u32::try_from(state.messages.len()).unwrap_or(u32::MAX);
    let forked_at = state.forked_at.iter().copied().chain([shared]).collect();
    Image {
        mailbox: Vec::new(),
        heard: Vec::new(),
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

/// What the child reads where the parent waits: its prompt for the fork, and a word for each
/// sibling call. A fork that the host called stands in no history: its prompt is simply said.
fn answers(state: &State, call: CallId, told: ShownText) -> Vec<Block> {
    if let Phase::Acting {
        caller: Caller::Host,
        ..
    } = state.phase
    {
        return vec![Block::text(told)];
    }
    let (mine, sibling) = (Answer::shown(told), Answer::failed(SIBLING));
    state
        .slots()
        .iter()
        .flat_map(|slot| results(slot, if slot.call == call { &mine } else { &sibling }))
        .collect()
}
