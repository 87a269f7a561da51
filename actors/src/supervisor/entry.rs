//! A row of the process table. The live state that only a loaded or watched process needs is
//! allocated on demand and dropped when it is unused, so that a hibernated or ended process costs a
//! few words.

mod live_state;
mod packed_waiting;

use std::sync::Arc;

use dormouse_kernel::process::{Input, Signal};
use dormouse_proto::id::{CallId, FactNumber, Pid};
use dormouse_proto::label::Label;
use dormouse_proto::process::{BranchOrigin, Exit, Origin, ProcessRow, Waiting};

pub(super) use self::live_state::LiveState;
pub(crate) use self::live_state::Watched;
use self::packed_waiting::PackedWaiting;
use crate::event::ProcessView;
use crate::process::Delivery;
use crate::process_status::ProcessStatus;

/// A process in the table.
pub(super) struct ProcessEntry {
    /// The pid of the parent; 0 for a process without a parent, since no process has that pid.
    parent: u64,
    program: Arc<str>,
    optional_fields: Option<Box<OptionalFields>>,
    live: Option<Box<LiveState>>,
    waiting: PackedWaiting,
    /// The call that created the process and the index among the children of that call, if its
    /// origin has one.
    call: CallId,
    index: u32,
    origin: OriginKind,
    pub(super) run_state: RunState,
    /// Whether new children start stopped, because the tree of the process was stopped.
    pub(super) children_start_stopped: bool,
    /// The process must be killed when it is loaded, even if the signal itself was lost.
    pub(super) is_kill_pending: bool,
}

/// Whether a process is loaded, and what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunState {
    /// Its birth is not durable yet, its journal is being read, or it waits after a fault.
    Loading,
    /// Not loaded since the kernel was opened, or since a failure unloaded it. Work may be pending
    /// in its journal.
    Held,
    /// Not loaded, and nothing is pending until it receives an input.
    Hibernated {
        rest: Rest,
    },
    Running,
    /// Its actor was asked to hibernate. Inputs wait for the answer.
    Hibernating,
    Ended,
}

/// The state in which a process hibernated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// It waits for an input, an alarm, a person, or its children.
    Waiting,
    Stopped,
}

/// How a process was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OriginKind {
    Started,
    Forked,
    Spawned,
    Judge,
    Copied,
}

/// Fields that few processes have, or only at their end. Those that are large and rare among these
/// are boxed.
#[derive(Default)]
struct OptionalFields {
    name: Option<Arc<str>>,
    copied: Option<(Pid, FactNumber)>,
    branched_from: Option<Box<BranchOrigin>>,
    exit: Option<Exit>,
    /// How often the process was opened again after it had ended.
    reopenings: u32,
    /// Whether the process is paused at a limit.
    is_paused: bool,
    /// The labels of the tree, if the process is its root.
    labels: Arc<[Label]>,
    /// The last view, if there is no journal to read it from.
    last_view: Option<Box<ProcessView>>,
}

impl ProcessEntry {
    pub(super) fn new(row: ProcessRow, run_state: RunState) -> Self {
        let ProcessRow {
            parent,
            program,
            name,
            origin,
            branched_from,
            exit,
            waiting,
            reopenings,
            is_paused,
            labels,
            ..
        } = row;
        let (call, index) = child_slot(&origin).unwrap_or((CallId { epoch: 0, seq: 0 }, 0));
        let (origin, copied) = match origin {
            Origin::Started => (OriginKind::Started, None),
            Origin::Forked { .. } => (OriginKind::Forked, None),
            Origin::Spawned { .. } => (OriginKind::Spawned, None),
            Origin::Judge { .. } => (OriginKind::Judge, None),
            Origin::Copied { from, at } => (OriginKind::Copied, Some((from, at))),
        };
        let has_no_optional_field = name.is_none()
            && copied.is_none()
            && branched_from.is_none()
            && exit.is_none()
            && reopenings == 0
            && !is_paused
            && labels.is_empty();
        let optional_fields = (!has_no_optional_field).then(|| {
            Box::new(OptionalFields {
                name,
                copied,
                branched_from: branched_from.map(Box::new),
                exit,
                reopenings,
                is_paused,
                labels,
                last_view: None,
            })
        });
        let parent = parent.map_or(0, |parent| parent.0);
        Self {
            parent,
            program,
            optional_fields,
            live: None,
            waiting: PackedWaiting::new(waiting),
            call,
            index,
            origin,
            run_state,
            children_start_stopped: false,
            is_kill_pending: false,
        }
    }

    pub(super) fn waiting(&self) -> Waiting {
        self.waiting.unpack()
    }

    pub(super) fn set_waiting(&mut self, waiting: Waiting) {
        self.waiting = PackedWaiting::new(waiting);
    }

    /// The row of the entry, which belongs to process `pid`.
    pub(super) fn row(&self, pid: Pid) -> ProcessRow {
        let parent = self.parent();
        let program = self.program.clone();
        let name = self.name().cloned();
        let exit = self.exit().cloned();
        ProcessRow {
            pid,
            parent,
            program,
            name,
            origin: self.origin(),
            branched_from: self.branched_from(),
            waiting: match exit {
                None => self.waiting(),
                Some(_) => Waiting::Nothing,
            },
            is_paused: self.is_paused(),
            labels: self.labels(),
            exit,
            reopenings: self
                .optional_fields
                .as_ref()
                .map_or(0, |optional_fields| optional_fields.reopenings),
        }
    }

    /// Whether the process is paused at a limit.
    pub(super) fn is_paused(&self) -> bool {
        let optional_fields = self.optional_fields.as_ref();
        optional_fields.is_some_and(|optional_fields| optional_fields.is_paused)
    }

    /// The labels of the tree, if the process is its root.
    pub(super) fn labels(&self) -> Arc<[Label]> {
        let optional_fields = self.optional_fields.as_ref();
        optional_fields.map_or_else(Arc::default, |optional_fields| {
            optional_fields.labels.clone()
        })
    }

    /// Records whether the process is paused. Returns whether that changes anything.
    pub(super) fn set_paused(&mut self, is_paused: bool) -> bool {
        let changes = self.is_paused() != is_paused;
        if changes {
            self.optional_fields.get_or_insert_default().is_paused = is_paused;
        }
        changes
    }

    pub(super) fn origin(&self) -> Origin {
        let copied = self
            .optional_fields
            .as_ref()
            .and_then(|optional_fields| optional_fields.copied);
        match (self.origin, copied) {
            (OriginKind::Forked, _) => Origin::Forked {
                call: self.call,
                index: self.index,
            },
            (OriginKind::Spawned, _) => Origin::Spawned { call: self.call },
            (OriginKind::Judge, _) => Origin::Judge {
                call: self.call,
                index: self.index,
            },
            (OriginKind::Copied, Some((from, at))) => Origin::Copied { from, at },
            (OriginKind::Started | OriginKind::Copied, _) => Origin::Started,
        }
    }

    /// The process and the fact that this process was copied from, if it belongs to a branch or
    /// an import.
    pub(super) fn branched_from(&self) -> Option<BranchOrigin> {
        self.optional_fields
            .as_ref()?
            .branched_from
            .as_deref()
            .copied()
    }

    pub(super) fn parent(&self) -> Option<Pid> {
        (self.parent != 0).then_some(Pid(self.parent))
    }

    pub(super) fn program(&self) -> &Arc<str> {
        &self.program
    }

    pub(super) fn name(&self) -> Option<&Arc<str>> {
        self.optional_fields.as_ref()?.name.as_ref()
    }

    /// The durable exit of the process.
    pub(super) fn exit(&self) -> Option<&Exit> {
        self.optional_fields.as_ref()?.exit.as_ref()
    }

    /// Records the exit of the process, and its last view.
    pub(super) fn record_exit(&mut self, exit: Exit, last_view: Option<ProcessView>) {
        let optional_fields = self.optional_fields.get_or_insert_default();
        optional_fields.exit = Some(exit);
        optional_fields.is_paused = false;
        optional_fields.last_view = last_view.map(Box::new);
    }

    /// Records that the process was opened again. Returns how often it was.
    pub(super) fn record_reopening(&mut self) -> u32 {
        self.set_waiting(Waiting::Nothing);
        let optional_fields = self.optional_fields.get_or_insert_default();
        optional_fields.exit = None;
        optional_fields.last_view = None;
        optional_fields.reopenings += 1;
        optional_fields.reopenings
    }

    pub(super) fn live(&self) -> Option<&LiveState> {
        self.live.as_deref()
    }

    pub(super) fn live_mut(&mut self) -> Option<&mut LiveState> {
        self.live.as_deref_mut()
    }

    /// The live state, which is created if there is none.
    pub(super) fn live_or_create(&mut self, inbox_capacity: usize) -> &mut LiveState {
        let Self {
            live,
            optional_fields,
            ..
        } = self;
        live.get_or_insert_with(|| {
            let (exit, last_view) = optional_fields
                .as_ref()
                .map(|fields| (fields.exit.clone(), fields.last_view.as_deref().cloned()))
                .unwrap_or_default();
            Box::new(LiveState::new(exit, last_view, inbox_capacity))
        })
    }

    /// Drops the live state if the process is not loaded and no handle or caller needs it.
    pub(super) fn drop_live_if_unused(&mut self) {
        let is_unloaded = matches!(
            self.run_state,
            RunState::Held | RunState::Hibernated { .. } | RunState::Ended
        );
        if is_unloaded
            && self
                .live()
                .is_some_and(|live| live.is_unused(self.run_state))
        {
            self.live = None;
        }
    }

    /// The detailed state of the process, if it is in memory.
    pub(super) fn view(&self) -> Option<ProcessView> {
        match (self.run_state, &self.live) {
            (RunState::Hibernated { .. }, _) => None,
            (_, Some(live)) => live.watched.borrow().view.clone(),
            (_, None) => self.optional_fields.as_ref()?.last_view.as_deref().cloned(),
        }
    }

    /// The status of the process, except that a pause above it is not known here
    /// ([`ProcessTable::status`](super::ProcessTable::status)).
    pub(super) fn own_status(&self) -> ProcessStatus {
        match (self.exit(), self.run_state) {
            (Some(exit), _) => ProcessStatus::Ended(exit.status),
            (None, RunState::Held) => ProcessStatus::Held,
            (None, RunState::Hibernated { .. }) if self.is_paused() => ProcessStatus::Paused,
            (None, RunState::Hibernated { rest }) => match (rest, self.waiting()) {
                (Rest::Stopped, _) => ProcessStatus::Stopped,
                (Rest::Waiting, Waiting::Person { .. } | Waiting::Unknown) => ProcessStatus::Asking,
                (Rest::Waiting, Waiting::Alarm { .. }) => ProcessStatus::Asleep,
                (Rest::Waiting, Waiting::Nothing) => ProcessStatus::Hibernated,
            },
            (
                None,
                RunState::Loading | RunState::Running | RunState::Hibernating | RunState::Ended,
            ) => {
                let watched = self.live().map(|live| live.watched.borrow());
                watched
                    .as_ref()
                    .and_then(|watched| watched.view.as_ref())
                    .map_or(ProcessStatus::Starting, ProcessView::status)
            }
        }
    }

    /// The inputs of a process that starts to run: signals that waited, which begin nothing, the
    /// resume signal, then the other inputs. Inputs that follow a continue signal stay behind it.
    /// (The resume signal starts a loaded process; a continue signal ends a stop.)
    pub(super) fn take_startup_inputs(&mut self) -> Vec<Delivery> {
        let mut waiting = self
            .live_mut()
            .map(|live| std::mem::take(&mut live.waiting_inputs))
            .unwrap_or_default();
        let continued = waiting
            .iter()
            .position(|delivery| matches!(delivery.input, Input::Signal(Signal::Continue)));
        let later = waiting.split_off(continued.unwrap_or(waiting.len()));
        let (signals, rest): (Vec<_>, Vec<_>) = waiting.into_iter().partition(Delivery::is_signal);
        // If a kill signal waits already, it ends the process and answers its sender, so no second
        // one is added.
        let has_kill_signal = signals
            .iter()
            .any(|delivery| matches!(delivery.input, Input::Signal(Signal::Kill)));
        let kill = (self.is_kill_pending && !has_kill_signal)
            .then(|| Delivery::internal(Input::Signal(Signal::Kill)));
        let start = Delivery::internal(Input::Signal(Signal::Resume));
        kill.into_iter()
            .chain(signals)
            .map(Delivery::before_resume)
            .chain([start])
            .chain(rest)
            .chain(later)
            .collect()
    }
}

/// The place of a child among the children of its parent: the call that created it, and the index
/// among the children of that call. `None` for a process that no call created.
pub(crate) fn child_slot(origin: &Origin) -> Option<(CallId, u32)> {
    match origin {
        Origin::Forked { call, index } | Origin::Judge { call, index } => Some((*call, *index)),
        Origin::Spawned { call } => Some((*call, 0)),
        Origin::Started | Origin::Copied { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The memory of a hibernated process. A child adds 32 bytes in the map of children, whose
    /// nodes may be half full.
    #[test]
    fn an_entry_takes_64_bytes() {
        assert_eq!(size_of::<Option<ProcessEntry>>(), 64);
    }

    /// What a process adds that has ended, is a copy, or has a name or a label.
    #[test]
    fn the_optional_fields_of_an_entry_take_120_bytes() {
        assert_eq!(size_of::<OptionalFields>(), 120);
    }

    #[test]
    fn an_entry_keeps_all_fields_of_its_row() {
        let call = CallId { epoch: 3, seq: 4 };
        let origins = [
            Origin::Started,
            Origin::Forked { call, index: 2 },
            Origin::Spawned { call },
            Origin::Judge { call, index: 5 },
            Origin::Copied {
                from: Pid(9),
                at: FactNumber(8),
            },
        ];
        let exit = Exit::new(dormouse_proto::process::ExitStatus::Killed, "why");
        let label: Label = "user=anna".parse().unwrap();
        let labels: [Arc<[Label]>; 2] = [Arc::default(), Arc::new([label])];
        let cases = origins.into_iter().zip(labels.iter().cycle());
        for (origin, labels) in cases {
            let nothing = Waiting::Nothing;
            let alarm = Waiting::Alarm { due_ms: 0 };
            for (parent, name, exit, waiting, reopenings, is_paused) in [
                (None, None, None, nothing, 0, false),
                (None, None, None, alarm, 3, false),
                (None, None, None, nothing, 0, true),
                (
                    Some(Pid(2)),
                    Some("n".into()),
                    Some(exit.clone()),
                    nothing,
                    0,
                    false,
                ),
            ] {
                let branched_from = parent.map(|from| BranchOrigin {
                    pid: from,
                    fact: FactNumber(3),
                    local_id: Pid(1),
                    import: None,
                });
                let program = "p".into();
                let origin = origin.clone();
                let row = ProcessRow {
                    pid: Pid(7),
                    parent,
                    program,
                    name,
                    origin,
                    branched_from,
                    exit,
                    waiting,
                    reopenings,
                    is_paused,
                    labels: labels.clone(),
                };
                assert_eq!(
                    ProcessEntry::new(row.clone(), RunState::Held).row(Pid(7)),
                    row
                );
            }
        }
    }

    #[test]
    fn signals_that_waited_come_before_the_process_resumes_and_begin_nothing() {
        let row = ProcessRow::started(Pid(7), "p");
        let mut entry = ProcessEntry::new(row, RunState::Loading);
        let waiting = &mut entry.live_or_create(8).waiting_inputs;
        waiting.push(Delivery::internal(Input::WakeDue));
        for signal in [Signal::Interrupt, Signal::Continue, Signal::Stop] {
            waiting.push(Delivery::internal(Input::Signal(signal)));
        }
        let inputs = entry.take_startup_inputs().into_iter();
        let inputs: Vec<_> = inputs.map(|delivery| delivery.input).collect();
        assert!(
            matches!(
                &inputs[..],
                [
                    Input::SignalBeforeResume(Signal::Interrupt),
                    Input::Signal(Signal::Resume),
                    Input::WakeDue,
                    Input::Signal(Signal::Continue),
                    Input::Signal(Signal::Stop),
                ]
            ),
            "{inputs:?}"
        );
    }
}
