//! `spawn`: creates a child that runs a program. The steps are: check the call, reserve a share of
//! the budget, fetch the files that the child preloads, build its image, create the child. A call
//! from before a restart first looks for its child, so that no second child is created. A process
//! that judges a child of an exploration (`exploring.rs`) is created by the last two steps.

use std::sync::Arc;

use dormouse_content::{ReadQuota, Unreadable};
use dormouse_program::Program;
use dormouse_proto::budget::Ledger;
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::model::Usage;
use dormouse_proto::process::{Origin, Priority};
use dormouse_proto::record::{ChildFact, Lifetime, PendingCall};
use dormouse_proto::tool::{Access, Answer};
use dormouse_proto::user_input::{InputPart, USER_INPUT};
use dormouse_proto::xml::Element;

use super::birth::{Birth, initial_image};
use super::decide::Draft;
use super::read::{ReadPurpose, ReadSubject};
use super::result::{require_result, with_shown_result_schema};
use super::{Child, Effect, FetchError, Fetched, HostContext, Image, PendingSpawn, Work};
use crate::tool::{CheckSpawn, ProcessHandler, Refusal};

impl Draft {
    pub(super) fn spawn(&mut self, call: CallId, check: CheckSpawn) {
        if !self.pending_call(call).started {
            self.start_spawn(call, check);
        } else if !self.read_if_all_ended(call) {
            self.find_child(call, 0);
        }
    }

    fn start_spawn(&mut self, call: CallId, check: CheckSpawn) {
        self.read_for_call(call, ReadPurpose::Spawn(check));
    }

    pub(super) fn handle_checked_spawn(
        &mut self,
        call: CallId,
        pending: Result<PendingSpawn, Refusal>,
    ) {
        let pid = self.state.pid;
        let pending = match pending.and_then(|pending| with_shown_result_schema(pending, pid)) {
            Ok(pending) => pending,
            Err(refusal) => return self.refuse_spawn(call, refusal),
        };
        if let Err(refusal) = self.reserve_for_spawn(call, &pending) {
            return self.refuse_spawn(call, refusal);
        }
        self.record_intent(call);
        if pending.is_complete() {
            self.read_for_birth(call, pending, Ok(Fetched::default()));
        } else {
            self.schedule(Effect::StartWork {
                call,
                work: Work::Fetch(pending),
            });
        }
    }

    /// Checks the limits on children and reserves the share of the child.
    fn reserve_for_spawn(&mut self, call: CallId, pending: &PendingSpawn) -> Result<(), Refusal> {
        self.check_child_limits(call, 1)?;
        let program = &pending.program;
        let access = self.state.access;
        self.reserve_shares(call, &[0], (program, program.budget()), access)
    }

    /// Answers a spawn that creates no child with the reason, and returns the reserved share. If the
    /// child was to judge another one, that one loses.
    pub(super) fn refuse_spawn(&mut self, call: CallId, refusal: Refusal) {
        if let Some(judge) = self.running_judge(call) {
            return self.fail_judge(call, judge, refusal);
        }
        self.return_share(call, 0, Some(Usage::default()));
        self.answer_in_full(call, refusal.into());
    }

    pub(super) fn handle_fetched(
        &mut self,
        call: CallId,
        pending: PendingSpawn,
        result: Result<Fetched, FetchError>,
    ) {
        self.complete_call(call, |draft| draft.read_for_birth(call, pending, result));
    }

    /// Requests the image of the child, whose system prompt holds its preloads.
    pub(super) fn read_for_birth(
        &mut self,
        call: CallId,
        pending: PendingSpawn,
        fetched: Result<Fetched, FetchError>,
    ) {
        let birth = SpawnBirth {
            pending,
            fetched,
            host: Arc::clone(&self.state.host),
            access: self.state.access,
            depth: self.state.depth + 1,
            priority: self.state.priority,
        };
        self.request_read(ReadSubject::Birth { call, birth });
    }

    /// Starts the child with this image, or answers why there is none.
    pub(super) fn start_child(&mut self, call: CallId, image: Result<NewChild, Refusal>) {
        // The files of the child were fetched twice, and the child has ended in the meantime.
        if self.read_if_all_ended(call) {
            return;
        }
        let NewChild { program, image } = match image {
            Ok(child) => child,
            Err(refusal) => return self.refuse_spawn(call, refusal),
        };
        let (origin, index) = match self.running_judge(call) {
            Some(index) => (Origin::Judge { call, index }, index),
            None => (Origin::Spawned { call }, 0),
        };
        let ledger = self.state.budget.ledger_of_child(call, index, self.now_ms);
        let image = Image {
            budget: Ledger {
                held_bytes: image.budget.held_bytes,
                ..ledger
            },
            speculation: self.state.speculation,
            ..*image
        };
        let child = Child {
            origin,
            program,
            image,
        };
        // After a restart, this is reached only when the lookup found no child.
        self.schedule(Effect::StartChildren {
            children: vec![child],
            may_exist: false,
        });
    }

    /// Handles the start of a child. A call that does not wait for the child's end is answered with
    /// the child's pid.
    pub(super) fn handle_child_started(&mut self, call: CallId, child: Pid) {
        let Some(pending_call) = self.state.call_in_flight(call) else {
            return;
        };
        let Some(ProcessHandler::Spawn { waits, .. }) = self.process_handler_of(pending_call)
        else {
            return;
        };
        if waits(&pending_call.args) {
            return;
        }
        let answer = self.spawned_answer(pending_call, child);
        let caller = self.caller();
        self.emit(ChildFact::Started { call, child });
        self.answer_in_full(call, answer);
        self.continue_turn(caller);
    }

    /// Handles a child that does not exist. An open spawn call starts again, and so does the judge of
    /// an open exploration. A background child is
    /// reported as lost, even if its call is not answered yet, since the journal can be copied
    /// between the two facts. The share of a child of a finished call is returned.
    pub(super) fn handle_child_absent(&mut self, call: CallId, index: u32) {
        if self.state.call_in_flight(call).is_some() {
            let caller = self.caller();
            if let Some(child) = self.state.background.get(&call).copied() {
                self.return_share(call, index, Some(Usage::default()));
                self.answer_in_full(call, self.spawned_answer(self.pending_call(call), child));
                self.report_child_of_original((call, index), child);
            } else {
                match self.process_handler(call) {
                    Some(ProcessHandler::Spawn { check, .. }) => self.start_spawn(call, check),
                    Some(ProcessHandler::Explore { .. }) => self.read_for_judge(call),
                    _ => {}
                }
            }
            return self.continue_turn(caller);
        }
        self.return_share(call, index, Some(Usage::default()));
        let reopened = self.state.reopened_children.get(&(call, index));
        let reopened = reopened.map(|reopened| reopened.child);
        if let Some(child) = reopened.or_else(|| self.state.background.get(&call).copied()) {
            self.report_child_of_original((call, index), child);
        }
        self.continue_with_returned_shares();
    }

    /// The answer to a call that does not wait for its child.
    fn spawned_answer(&self, pending_call: &PendingCall, child: Pid) -> Answer {
        let program = match self.process_handler_of(pending_call) {
            Some(ProcessHandler::Spawn { program_name, .. }) => program_name(&pending_call.args),
            _ => None,
        };
        Answer::shown(
            Element::new("spawned")
                .attribute("pid", child)
                .attribute_if("program", program),
        )
    }
}

/// A spawned child that is about to be created.
#[derive(Clone, Debug)]
pub struct NewChild {
    /// Program of the child.
    pub program: Program,
    /// Image of the child, with the budget of its program.
    pub image: Box<Image>,
}

/// What the image of a spawned child is made of.
#[derive(Clone, Debug)]
pub(super) struct SpawnBirth {
    pending: PendingSpawn,
    fetched: Result<Fetched, FetchError>,
    host: Arc<HostContext>,
    access: Access,
    depth: u32,
    priority: Priority,
}

impl SpawnBirth {
    /// Builds the image of the child, or says why it cannot be created. O(preloads + query).
    ///
    /// # Errors
    /// [`Unreadable`] if the quota is used up.
    pub(super) fn image(
        &self,
        now_ms: u64,
        quota: &ReadQuota,
    ) -> Result<Result<NewChild, Refusal>, Unreadable> {
        let PendingSpawn { program, query, .. } = &self.pending;
        let program_bytes: usize = program.preloads().iter().map(|file| file.bytes.len()).sum();
        quota.charge(query.len() + program.system().len() + program_bytes)?;
        let preloads = match self.pending.preloads(&self.fetched) {
            Ok(preloads) => preloads,
            Err(refusal) => return Ok(Err(refusal)),
        };
        quota.charge(preloads.shown.iter().map(|shown| shown.xml().len()).sum())?;
        // The query is text of a model, which may quote others: it is rendered as untrusted input.
        let input = InputPart::new(USER_INPUT, query.clone()).into();
        let birth = Birth {
            access: self.access,
            depth: self.depth,
            lifetime: Lifetime::Task,
            priority: self.priority,
            preloads: &preloads,
            input: Some(&input),
        };
        let mut image = Box::new(initial_image(program, &self.host, birth, now_ms));
        if let Some(schema) = &self.pending.result_schema {
            require_result(&mut image, program, &self.host, schema);
        }
        let program = program.clone();
        Ok(Ok(NewChild { program, image }))
    }
}
