//! What the world remembers of each process to hold it to: beside the machine, and not made by it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dormouse_kernel::process::State;
use dormouse_proto::id::{CallId, ContentHash, FdId, Pid};
use dormouse_proto::message::{Message, Role};
use dormouse_proto::process::Origin;
use dormouse_proto::record::Phase;
use dormouse_proto::tool::ToolSpec;

use super::alarms::Alarms;
use super::budget::Spending;
use super::forks::Digest;
use super::mail::Letters;
use super::pausing::Holds;
use super::reopening::Lives;
use super::{Held, ensure, provenance};
use crate::event::NewProcess;
use crate::tokens::Token;
use crate::world::World;

pub(crate) struct Ledger {
    /// The process that its tree begins with.
    pub(super) root: Pid,
    /// The greatest number of a descriptor, and the fact that gave each; the first is what it was
    /// born with.
    pub(super) numbers: Vec<(u32, u64)>,
    /// The same of descriptors `history:N`.
    pub(super) histories: Vec<(u32, u64)>,
    /// What each descriptor holds.
    pub(super) contents: BTreeMap<FdId, ContentHash>,
    /// What it was told, made or inherited.
    pub(super) known: BTreeSet<Token>,
    pub(super) sent: Sent,
    pub(super) letters: Letters,
    pub(super) alarms: Alarms,
    pub(super) spending: Spending,
    pub(super) lives: Lives,
    pub(super) holds: Holds,
    /// What was applied, and by which fact.
    pub(super) applied: BTreeMap<(Applied, CallId, u32), u64>,
    /// How it stood after what was last acknowledged.
    pub(crate) witness: Option<(u64, State)>,
    /// How it stood after its own last step.
    pub(super) left: Option<Digest>,
    pub(super) left_deep: Option<u64>,
}

/// The beginning that the next request must have.
#[derive(Clone)]
pub(super) struct Sent {
    pub(super) system: Arc<str>,
    pub(super) tools: Arc<[ToolSpec]>,
    pub(super) messages: Vec<Arc<Message>>,
    /// The invariant that says so.
    pub(super) by: &'static str,
}

/// Something that is applied at most once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Applied {
    ToolReturned,
    ModelReplied,
    ChildEnded,
    ChildStarted,
    ChildReported,
}

impl World {
    /// A process is about to be: what it starts with is its parent's, or what its parent was handed
    /// (FD-3).
    pub(crate) fn check_birth(&mut self, created: &NewProcess) -> Held {
        let pid = created.row.pid;
        let mut known = BTreeSet::new();
        provenance::of_image(&created.image, &mut |token| known.extend([token]));
        let source = match &created.row.origin {
            Origin::Forked { .. } | Origin::Spawned { .. } | Origin::Judge { .. } => {
                created.row.parent
            }
            Origin::Copied { from, .. } => Some(*from),
            Origin::Started => None,
        };
        if let Some(source) = source {
            let of = &self.ledgers[&source].known;
            let stray = known
                .iter()
                .find(|token| !of.contains(token) && !self.tokens.is_public(**token));
            ensure(stray.is_none(), "FD-3", || {
                format!("{pid} starts with what {source} never had: {stray:?}")
            })?;
        }
        let by = if matches!(created.row.origin, Origin::Forked { .. }) {
            "FORK-2"
        } else {
            "HIST-1"
        };
        let mut messages: Vec<_> = created.image.messages.iter().cloned().collect();
        if let Phase::Ready { .. } = created.image.phase {
            // What no model has seen yet may still be added to.
            messages.pop_if(|last| last.role == Role::User);
        }
        let sent = Sent {
            system: created.image.system.clone(),
            tools: created.image.tools.clone(),
            messages,
            by,
        };
        let root = created
            .row
            .parent
            .map_or(pid, |parent| self.ledgers[&parent].root);
        let ledger = Ledger {
            root,
            numbers: vec![(created.image.next_fd.saturating_sub(1), 0)],
            histories: vec![(created.image.last_history, 0)],
            contents: BTreeMap::new(),
            known,
            sent,
            letters: Letters::default(),
            alarms: Alarms::default(),
            spending: Spending::default(),
            lives: Lives::default(),
            holds: Holds::default(),
            applied: BTreeMap::new(),
            witness: None,
            left: None,
            left_deep: None,
        };
        self.ledgers.insert(pid, ledger);
        Ok(())
    }

    /// A life begins after fact `last`: what came after that is lost, and nobody saw it.
    pub(crate) fn begin_ledger(&mut self, state: &State, last: u64) {
        let Some(ledger) = self.ledgers.get_mut(&state.pid()) else {
            return;
        };
        ledger.numbers.retain(|(_, at)| *at <= last);
        ledger.histories.retain(|(_, at)| *at <= last);
        ledger.letters.begin(state, last);
        ledger.alarms.begin(state, last);
        ledger.spending.begin(state.budget(), last);
        ledger.lives.begin(last);
        ledger.holds.begin(state);
        ledger.applied.retain(|_, at| *at <= last);
        let entries = state
            .table()
            .iter()
            .filter(|(id, _)| !matches!(id, FdId::Message { .. }));
        ledger.contents = entries
            .map(|(id, entry)| (id.clone(), entry.content.hash()))
            .collect();
        ledger.left = Some(Digest::of(state));
        ledger.left_deep = None;
    }
}
