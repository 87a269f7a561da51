//! Creation of processes: a pid is reserved in the table, the birth record becomes durable, then
//! the process runs.
//!
//! A process is *pending* from the reservation of its pid until its birth record is durable. In
//! order:
//!
//! 1. [`Supervisor::commit_births`] reserves the pids and hands the records to the checkpoint
//!    actor, which answers with [`BirthMessage::BirthsCommitted`].
//! 2. If that failed, no process exists: `commit_failure.rs` removes the rows and stops or notifies
//!    the parent (`on_creation_failed`).
//! 3. Otherwise `fork_release.rs` runs the processes (`run_pending`). Of the children of one fork
//!    it may first run one only, so that it fills the provider's cache; the start of the others is
//!    *delayed* ([`BirthMessage::Release`]) until the model of that one begins a reply, that one
//!    ends, two seconds have passed, or they are sent a signal or a message themselves.
//! 4. `children.rs` reports each spawned child to its parent as started (`report_start`), even one
//!    that is delayed or cannot run, since it exists. Its end is reported by a later message.

use std::sync::{Arc, Weak};

use dormouse_kernel::journal::JournalTail;
use dormouse_kernel::process::{Child, Image, State, waiting_of_image};
use dormouse_kernel::program::Program;
use dormouse_proto::id::{FactNumber, Pid};
use dormouse_proto::label::Label;
use dormouse_proto::process::{Origin, ProcessRow};
use dormouse_proto::record::Control;

use super::Supervisor;
use super::branch::{BranchRequest, PendingBranch};
use super::lookup::HandleReply;
use crate::checkpoint::{CommitError, LogRecord};
use crate::error::{NameError, StartError};
use crate::ports::ServerClient;
use crate::process::StartedSignal;
use crate::recovery::{Loaded, StoredWait};

/// Requests for new processes, and the results of their commits.
pub(crate) enum BirthMessage {
    /// Create a root process.
    Start {
        root: Box<NewRoot>,
        reply: HandleReply,
    },
    /// Create the children of a call, except those that exist already.
    StartChildren {
        parent: Pid,
        children: Vec<Child>,
        /// Whether some of the children may exist already, as after a restart of the parent.
        may_exist: bool,
    },
    /// Create new processes from the members of a cut.
    Branch(Box<BranchRequest>),
    /// Birth records are durable, or could not be made durable.
    BirthsCommitted {
        pending: Vec<PendingProcess>,
        result: Result<(), CommitError>,
        reply: Option<HandleReply>,
    },
    /// The records of a branch are durable, or could not be made durable.
    BranchCommitted {
        branch: Box<PendingBranch>,
        result: Result<(), CommitError>,
    },
    /// Run processes whose start was delayed.
    Release { pids: Vec<Pid> },
}

/// A root process to create.
pub(crate) struct NewRoot {
    pub(crate) program: Program,
    pub(crate) image: Box<Image>,
    pub(crate) origin: Origin,
    pub(crate) name: Option<Arc<str>>,
    /// The labels of its tree; ignored for a copy, which has those of the tree of its original.
    pub(crate) labels: Arc<[Label]>,
    /// The client that it serves, as its tool servers see it.
    pub(crate) client: Option<Weak<dyn ServerClient>>,
}

impl NewRoot {
    /// A copy of process `from` as of its fact `at`.
    pub(crate) fn copied(program: Program, image: Image, from: Pid, at: FactNumber) -> Self {
        Self {
            program,
            image: Box::new(image),
            origin: Origin::Copied { from, at },
            name: None,
            labels: Arc::default(),
            client: None,
        }
    }
}

/// A process whose birth record is not durable yet.
pub(crate) struct PendingProcess {
    pub(super) row: ProcessRow,
    pub(super) program: Program,
    pub(super) image: Box<Image>,
    /// The client that it serves, as its tool servers see it.
    pub(super) client: Option<Weak<dyn ServerClient>>,
}

impl Supervisor {
    pub(super) async fn handle_birth(&mut self, message: BirthMessage) {
        match message {
            BirthMessage::Start { root, reply } => self.start_root(*root, reply),
            BirthMessage::StartChildren {
                parent,
                children,
                may_exist,
            } => {
                self.start_children(parent, children, may_exist);
            }
            BirthMessage::Branch(request) => self.branch(*request),
            BirthMessage::BirthsCommitted {
                pending,
                result,
                reply,
            } => self.on_births_committed(pending, result, reply).await,
            BirthMessage::BranchCommitted { branch, result } => {
                self.on_branch_committed(*branch, result).await
            }
            BirthMessage::Release { pids } => self.release_delayed(pids).await,
        }
    }

    fn start_root(&mut self, root: NewRoot, reply: HandleReply) {
        let NewRoot {
            program,
            image,
            origin,
            name,
            labels,
            client,
        } = root;
        if let Some((name, pid)) = name
            .as_ref()
            .and_then(|name| Some((name, self.table.find_by_name(name)?)))
        {
            // The requester has dropped its receiver if it no longer waits.
            return drop(
                reply.send(Err(NameError::Taken {
                    name: name.to_string(),
                    pid,
                }
                .into())),
            );
        }
        let labels = match origin {
            Origin::Copied { from, .. } => self.table.labels(from),
            Origin::Started
            | Origin::Forked { .. }
            | Origin::Spawned { .. }
            | Origin::Judge { .. } => labels,
        };
        let mut process = match self.pending_process(None, program, image, origin) {
            Ok(process) => process,
            // The requester has dropped its receiver if it no longer waits.
            Err(error) => return drop(reply.send(Err(error.into()))),
        };
        process.row.name = name;
        process.row.labels = labels;
        process.client = client;
        self.commit_births(vec![process], Some(reply));
    }

    /// A process with a new pid.
    ///
    /// # Errors
    /// [`StartError::NoPidLeft`].
    pub(super) fn pending_process(
        &mut self,
        parent: Option<Pid>,
        program: Program,
        image: Box<Image>,
        origin: Origin,
    ) -> Result<PendingProcess, StartError> {
        let pid = self.table.pids.assign()?;
        let row = ProcessRow {
            parent,
            origin,
            reopenings: image.reopenings,
            waiting: waiting_of_image(&image),
            is_paused: image.pausing.paused.is_some(),
            ..ProcessRow::started(pid, program.name())
        };
        Ok(PendingProcess {
            row,
            program,
            image,
            client: None,
        })
    }

    /// Makes birth records durable in one commit; the processes run afterwards. Sets `control` in
    /// the images of children of a stopped tree, so that they start stopped, after a restart too.
    pub(super) fn commit_births(
        &mut self,
        mut pending: Vec<PendingProcess>,
        reply: Option<HandleReply>,
    ) {
        for process in pending
            .iter_mut()
            .filter(|process| self.table.inherits_stop(process.row.parent))
        {
            process.image.control = Control::Stopped;
        }
        let mut records = Vec::new();
        for process in &pending {
            self.table.reserve(process.row.clone());
            if self.context.has_store {
                records.push(LogRecord::Created {
                    row: process.row.clone(),
                    image: process.image.clone(),
                });
            }
        }
        let myself = self.myself.clone();
        let acknowledge = Box::new(move |result: Result<_, _>| {
            // If the supervisor has stopped, the kernel is shutting down.
            let _ = myself.cast(
                BirthMessage::BirthsCommitted {
                    pending,
                    result: result.map(drop),
                    reply,
                }
                .into(),
            );
        });
        self.context.append_records(records, acknowledge);
    }

    async fn on_births_committed(
        &mut self,
        pending: Vec<PendingProcess>,
        result: Result<(), CommitError>,
        reply: Option<HandleReply>,
    ) {
        let pid = pending.first().map(|process| process.row.pid);
        let handle = match result {
            Ok(()) => {
                // The servers know the client of the process before its first call.
                pending
                    .iter()
                    .for_each(|process| self.serve_client(process));
                let rows: Vec<_> = pending.iter().map(|process| process.row.clone()).collect();
                // The handle is made first, so that it knows the view of a process that hibernates
                // from birth.
                let handle = pid
                    .filter(|_| reply.is_some())
                    .map(|pid| self.handle_parts(pid));
                self.run_pending(pending).await;
                rows.iter().for_each(|row| self.report_start(row));
                handle
            }
            Err(error) => {
                pending
                    .iter()
                    .for_each(|process| self.on_creation_failed(process, &error));
                Some(Err(error.into()))
            }
        };
        if let (Some(handle), Some(reply)) = (handle, reply) {
            // The requester has dropped its receiver if it no longer waits.
            let _ = reply.send(handle);
        }
    }

    fn serve_client(&self, PendingProcess { row, client, .. }: &PendingProcess) {
        if let (Some(servers), Some(client)) = (&self.context.servers, client) {
            servers.serve_client(row.pid, client.clone());
        }
    }

    /// Runs a new process, if its image is valid.
    pub(super) async fn run_new_process(
        &mut self,
        process: PendingProcess,
        started_signal: Option<StartedSignal>,
    ) {
        let PendingProcess {
            row,
            program,
            image,
            client: _,
        } = process;
        let pid = row.pid;
        let stored_wait = StoredWait::of_image(&image);
        let host_context = self.context.host_context.clone();
        match State::from_image(row.local_id(), program, host_context, *image) {
            Ok(state) if self.hibernates_from_birth(&row, &state) => {
                self.leave_hibernated(row, &state)
            }
            Ok(state) => {
                let loaded = Loaded {
                    pid,
                    stored_wait,
                    state,
                    last_fact: FactNumber(0),
                    journal_tail: JournalTail::new(0),
                };
                self.start_actor(loaded, started_signal).await
            }
            Err(error) => self.end_as_faulted(pid, &error.to_string()),
        }
    }
}
