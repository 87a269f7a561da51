//! The conversion of a [`State`] from and to an [`Image`], the form in which it is stored.
//!
//! A stored image may be damaged or edited, so [`State::from_image`] validates it, and
//! [`State::check`] a fact that was read from a journal.

use std::sync::Arc;

use dormouse_proto::alarm::{Alarm, AlarmId};
use dormouse_proto::id::{CallId, FdId, Pid};
use dormouse_proto::record::{CallFact, Entry, Phase};
use imbl::OrdMap;

use super::pending_reads::PendingReads;
use super::program_cache::ProgramCache;
use super::toolbox::HostContext;
use super::{Fact, Image, State};
use crate::budget::Account;
use crate::table::Table;
use dormouse_content::Content;
use dormouse_program::Program;

/// Why an image cannot be loaded as a process: it is damaged or was edited.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// The descriptor table is inconsistent.
    #[error("the descriptor table of the image is invalid: {0}")]
    Table(String),
    /// The image waits for a call id that was never allocated.
    #[error("the image waits for call {call}, but the next call is {epoch}.{next_seq}")]
    Call {
        /// Call that the image waits for.
        call: CallId,
        /// Epoch of the image.
        epoch: u32,
        /// Sequence number of the image's next call.
        next_seq: u32,
    },
    /// A counter of the image is so high that it could overflow.
    #[error("a counter of the image is {count}, more than the maximum of {MAX_COUNT}")]
    Count {
        /// Value of the counter.
        count: u32,
    },
    /// The compacted messages of the image are out of order, or their summary is missing.
    #[error("the compacted messages of the image are out of order, or have no summary")]
    Compacted,
    /// The image names a model that its program does not have.
    #[error("the image uses model {requested} of its program, which has {models} models")]
    Model {
        /// Number of the model, counted from 1.
        requested: u32,
        /// Models of the program.
        models: usize,
    },
    /// The image belongs to another program.
    #[error("the image runs program {image}, not {program}")]
    Program {
        /// Program named in the image.
        image: Arc<str>,
        /// Program that the image was loaded with.
        program: String,
    },
}

impl State {
    /// Loads a process from an image. `pid` is the number that the process has within its tree (its
    /// local id).
    /// Inspects each descriptor and copies none.
    ///
    /// # Errors
    /// [`StateError`] if the image is inconsistent, or does not belong to `program`.
    pub fn from_image(
        pid: Pid,
        program: Program,
        host: Arc<HostContext>,
        image: Image,
    ) -> Result<Self, StateError> {
        if *image.program != *program.key() {
            return Err(StateError::Program {
                image: image.program,
                program: program.key().to_owned(),
            });
        }
        check_model(&program, image.model)?;
        check_counts(&image)?;
        check_calls(&image)?;
        check_compacted(&image)?;
        let table = build_table(image.table, image.next_fd, image.last_history)?;
        let mut state = Self {
            pid,
            toolbox: ProgramCache::for_program(&program, &host).stored_toolbox(
                &program,
                &image.tools,
                &image.external,
            ),
            host,
            program,
            bundle: image.bundle,
            system: image.system,
            access: image.access,
            depth: image.depth,
            lifetime: image.lifetime,
            priority: image.priority,
            messages: image.messages,
            forked_at: image.forked_at,
            mailbox: image.mailbox.into(),
            receipts: image.receipts.into_iter().collect(),
            background: image.background.into_iter().collect(),
            table,
            epoch: image.epoch,
            next_seq: image.next_seq,
            model: image.model,
            iterations: image.iterations,
            phase: image.phase,
            control: image.control,
            budget: Arc::new(Account::new(image.budget, image.usage)),
            output_totals: image.output_totals,
            restores: image.restores,
            compacted: image.compacted,
            request_tokens: image.request_tokens,
            result: image.result,
            alarms: alarms_by_id(&image.alarms),
            alarms_set: image.alarms_set,
            reopenings: image.reopenings,
            reopened_children: image
                .reopened_children
                .into_iter()
                .map(|child| ((child.call, child.index), child))
                .collect(),
            effects: image.effects,
            pausing: image.pausing,
            speculation: image.speculation,
            limited_calls: image.limited_calls.into_iter().collect(),
            server_tool_calls: OrdMap::new(),
            pending_reads: PendingReads::default(),
        };
        // An image of a version that recorded no effects: they are known from here on.
        let last_message = u32::try_from(state.last_message_number()).unwrap_or(u32::MAX);
        state.effects.begins_after.get_or_insert(last_message);
        state.recount_server_tool_calls();
        state.update_message_descriptors();
        Ok(state)
    }

    /// Checks a fact that was read from a journal before [`evolve`](super::evolve()) applies it:
    /// `evolve` itself validates nothing.
    ///
    /// # Errors
    /// [`StateError`] if the fact restores an invalid image, or switches to a model that does not
    /// exist.
    pub fn check(&self, fact: &Fact) -> Result<(), StateError> {
        match fact {
            Fact::Call(CallFact::ModelSwitched { to, .. }) => check_model(&self.program, *to),
            Fact::Restored { image, .. } => {
                check_model(&self.program, image.model)?;
                check_counts(image)?;
                check_compacted(image)?;
                build_table(image.table.clone(), image.next_fd, image.last_history).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// The image of the process: all of its state except its pid. O(mailbox + senders + background
    /// children); conversation and table are shared.
    #[must_use]
    pub fn image(&self) -> Image {
        Image {
            bundle: self.bundle.clone(),
            program: self.program.key().into(),
            system: self.system.clone(),
            tools: self.toolbox.specs(),
            external: self.toolbox.external_tools(),
            access: self.access,
            depth: self.depth,
            lifetime: self.lifetime,
            priority: self.priority,
            messages: self.messages.clone(),
            forked_at: self.forked_at.clone(),
            mailbox: self.mailbox.iter().cloned().collect(),
            receipts: self
                .receipts
                .iter()
                .map(|(from, receipts)| (*from, receipts.clone()))
                .collect(),
            background: self
                .background
                .iter()
                .map(|(call, child)| (*call, *child))
                .collect(),
            table: self.table.entries(),
            next_fd: self.table.next_fd(),
            epoch: self.epoch,
            next_seq: self.next_seq,
            model: self.model,
            iterations: self.iterations,
            phase: self.phase.clone(),
            control: self.control,
            usage: self.budget.own_usage(),
            budget: self.budget.ledger(),
            output_totals: self.output_totals,
            restores: self.restores,
            compacted: self.compacted.clone(),
            last_history: self.table.last_history(),
            request_tokens: self.request_tokens,
            result: self.result.clone(),
            alarms: self.alarms.values().cloned().collect(),
            alarms_set: self.alarms_set,
            reopenings: self.reopenings,
            reopened_children: self.reopened_children.values().copied().collect(),
            effects: self.effects.clone(),
            pausing: self.pausing.clone(),
            speculation: self.speculation,
            limited_calls: self
                .limited_calls
                .iter()
                .map(|(tool, calls)| (tool.clone(), *calls))
                .collect(),
        }
    }
}

/// Upper limit for the counters of a loaded image, so that they do not overflow when they are
/// incremented.
const MAX_COUNT: u32 = 1 << 31;

fn check_counts(image: &Image) -> Result<(), StateError> {
    match image
        .counters()
        .into_iter()
        .find(|count| *count > MAX_COUNT)
    {
        Some(count) => Err(StateError::Count { count }),
        None => Ok(()),
    }
}

/// Refuses compacted messages that are out of order or have no summary.
fn check_compacted(image: &Image) -> Result<(), StateError> {
    let mut last = 0;
    let is_ordered = image.compacted.iter().all(|compacted| {
        let is_after = compacted.last > 0 && compacted.last >= last;
        last = compacted.last;
        is_after
    });
    match is_ordered && (image.compacted.is_empty() || !image.messages.is_empty()) {
        true => Ok(()),
        false => Err(StateError::Compacted),
    }
}

fn check_model(program: &Program, index: u32) -> Result<(), StateError> {
    let models = program.models().len();
    if (index as usize) < models {
        Ok(())
    } else {
        Err(StateError::Model {
            requested: index.saturating_add(1),
            models,
        })
    }
}

fn build_table(
    entries: OrdMap<FdId, Entry<Content>>,
    next_fd: u32,
    last_history: u32,
) -> Result<Table, StateError> {
    Table::from_parts(entries, next_fd, last_history)
        .map_err(|error| StateError::Table(error.to_string()))
}

pub(super) fn alarms_by_id(alarms: &[Alarm]) -> OrdMap<AlarmId, Alarm> {
    let by_id = alarms.iter().map(|alarm| (alarm.id, alarm.clone()));
    by_id.collect()
}

fn check_calls(image: &Image) -> Result<(), StateError> {
    let was_allocated = |call: CallId| call.epoch <= image.epoch && call.seq < image.next_seq;
    let pending = match &image.phase {
        Phase::Thinking { call } => vec![*call],
        Phase::Acting { pending_calls, .. } => pending_calls
            .iter()
            .map(|pending_call| pending_call.call)
            .collect(),
        Phase::Idle | Phase::Ready { .. } | Phase::Ended { .. } => Vec::new(),
    };
    let background = image.background.iter().map(|(call, _)| *call);
    let reopened = image.reopened_children.iter().map(|child| child.call);
    let unallocated = pending
        .into_iter()
        .chain(background)
        .chain(reopened)
        .find(|call| !was_allocated(*call));
    match unallocated {
        Some(call) => Err(StateError::Call {
            call,
            epoch: image.epoch,
            next_seq: image.next_seq,
        }),
        None => Ok(()),
    }
}
