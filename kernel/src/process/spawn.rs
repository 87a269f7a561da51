//! `spawn`: from a call to a child. Files that the machine does not hold are fetched first. A call
//! from before a restart looks for its child before anything is done again.

use dormouse_proto::budget::Ledger;
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::model::Usage;
use dormouse_proto::process::Origin;
use dormouse_proto::record::{ChildFact, Lifetime, Slot};
use dormouse_proto::tool::Answer;
use dormouse_proto::user_input::{InputPart, USER_INPUT};
use dormouse_proto::xml::Element;

use super::birth::{Birth, born};
use super::decide::Draft;
use super::read::Purpose;
use super::{Child, Effect, Image, Work};
use crate::syscall::spawn::{self, FetchError, Fetched, PendingSpawn, Preloads};

impl Draft {
    pub(crate) fn spawn(&mut self, call: CallId) {
        if !self.slot(call).called {
            self.begin_spawn(call);
        } else if !self.answer_if_all_ended(call) {
            self.perform(Effect::FindChild { call, index: 0 });
        }
    }

    fn begin_spawn(&mut self, call: CallId) {
        self.read_for_call(call, Purpose::Spawn);
    }

    pub(super) fn take_spawn(&mut self, call: CallId, pending: Result<PendingSpawn, String>) {
        let pending = pending.and_then(|pending| self.check_room(call, 1).map(|()| pending));
        let access = self.state.access;
        match pending.and_then(|pending| {
            let program = &pending.program;
            self.reserve(call, &[0], (program, program.budget()), access)
                .map(|()| pending)
        }) {
            Err(message) => self.refuse_spawn(call, message),
            Ok(pending) => {
                self.intend(call);
                if pending.is_complete() {
                    self.start_child(call, &pending, Ok(Fetched::default()));
                } else {
                    self.perform(Effect::Begin {
                        call,
                        work: Work::Fetch(pending),
                    });
                }
            }
        }
    }

    /// Answers a spawn that creates no child: returns its share and tells the model why.
    pub(super) fn refuse_spawn(&mut self, call: CallId, why: String) {
        self.give_back(call, 0, Some(Usage::default()));
        self.answer_whole(call, Answer::failed(why));
    }

    pub(super) fn take_fetched(
        &mut self,
        call: CallId,
        pending: &PendingSpawn,
        result: Result<Fetched, FetchError>,
    ) {
        self.complete(call, |draft| draft.start_child(call, pending, result));
    }

    fn start_child(
        &mut self,
        call: CallId,
        pending: &PendingSpawn,
        fetched: Result<Fetched, FetchError>,
    ) {
        match pending.preloads(fetched) {
            Err(message) => self.refuse_spawn(call, message),
            Ok(preloads) => {
                let child = self.spawned(call, pending, &preloads);
                // A child that may exist was looked for before the spawn was repeated.
                self.perform(Effect::StartChildren {
                    children: vec![child],
                    may_exist: false,
                });
            }
        }
    }

    fn spawned(
        &self,
        call: CallId,
        PendingSpawn { program, query, .. }: &PendingSpawn,
        preloads: &Preloads,
    ) -> Child {
        // The query is text of a model, which may quote others: it is shown as untrusted input.
        let said = InputPart::new(USER_INPUT, query.clone()).into();
        let birth = Birth {
            access: self.state.access,
            depth: self.state.depth + 1,
            lifetime: Lifetime::Task,
            priority: self.state.priority,
            preloads,
            input: Some(&said),
        };
        let image = born(program, &self.state.around, birth, self.now_ms);
        let ledger = self.state.budget.ledger_of_child(call, 0, self.now_ms);
        let image = Image {
            budget: Ledger {
                held_bytes: image.budget.held_bytes,
                ..ledger
            },
            ..image
        };
        Child {
            origin: Origin::Spawned { call },
            program: program.clone(),
            image,
        }
    }

    /// Handles the start of a child: a call that does not wait for its end is answered with its
    /// pid.
    pub(super) fn take_start(&mut self, call: CallId, child: Pid) {
        let Some(slot) = self.state.open_slot(call) else {
            return;
        };
        if !self.is_call_of(call, &spawn::TOOL) || spawn::waits(&slot.args) {
            return;
        }
        let (started, caller) = (started(slot, child), self.caller());
        self.emit(ChildFact::Started { call, child });
        self.answer_whole(call, started);
        self.settle(caller);
    }

    /// Handles a child that does not exist. An open spawn starts again. A background child is
    /// reported as lost, also if its call is not answered yet: a branch can begin between the two.
    /// A share that was reserved for a child of a finished call is returned.
    pub(super) fn take_absence(&mut self, call: CallId, index: u32) {
        if self.state.open_slot(call).is_some() {
            let caller = self.caller();
            if let Some(child) = self.state.background.get(&call).copied() {
                self.give_back(call, index, Some(Usage::default()));
                self.answer_whole(call, started(self.slot(call), child));
                self.report_lost(call, child);
            } else if self.is_call_of(call, &spawn::TOOL) {
                self.begin_spawn(call);
            }
            return self.settle(caller);
        }
        self.give_back(call, index, Some(Usage::default()));
        if let Some(child) = self.state.background.get(&call).copied() {
            self.report_lost(call, child);
        }
        self.go_on_with_shares();
    }
}

/// The answer to a call that does not wait for its child.
fn started(slot: &Slot, child: Pid) -> Answer {
    let program = spawn::program_name(&slot.args);
    Answer::shown(
        Element::new("spawned")
            .attribute("pid", child)
            .attribute_if("program", program),
    )
}
