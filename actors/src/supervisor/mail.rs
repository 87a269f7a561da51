//! Routing of messages: which process may write to which, and delivery to the receiver.
//!
//! Only the receiver acknowledges a message, after the receipt is durable; if there is no receiver,
//! the supervisor answers with the reason (MAIL-1). A hibernated receiver is woken, and one that has
//! ended is opened again (`reopening.rs`). `peers.rs` sends what is for processes of other kernels.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use dormouse_kernel::process::Input;
use dormouse_kernel::syscall::list_processes::MAX_SHOWN;
use dormouse_kernel::syscall::{Envelope, Refusal};
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::mail::{Address, Reach, ReachableProcess};
use dormouse_proto::process::ExitStatus;
use dormouse_proto::tool::Answer;
use tokio::sync::oneshot;

use super::Supervisor;
use super::entry::{ProcessEntry, RunState};
use super::table::ProcessTable;
use crate::process::Delivery;
use crate::recovery::{self, LoadPurpose};

/// An input or a message for a process.
pub(crate) enum MailMessage {
    /// An input from the host; the process is woken if it is not loaded.
    Deliver { pid: Pid, delivery: Box<Delivery> },
    /// A message from another process.
    Send(Box<SendRequest>),
    /// A message from a process of another kernel.
    Receive(Box<SendRequest>),
}

/// A message from one process to another.
pub(crate) struct SendRequest {
    pub(crate) from: Pid,
    /// Call of the sender; identifies the message.
    pub(crate) call: CallId,
    /// The sender has received the acknowledgement of every message below this sequence number.
    pub(crate) acked_below: u32,
    pub(crate) to: Address,
    pub(crate) envelope: Envelope,
    /// Receives the receipt. Dropped if the receiver stopped before it could answer.
    pub(crate) receipt: oneshot::Sender<Answer>,
}

/// The processes that a process can write to: a bounded list, and the number of processes that are
/// left out of the list.
#[derive(Default)]
pub(crate) struct ReachableProcesses {
    pub(crate) processes: Vec<ReachableProcess>,
    pub(crate) unlisted_count: usize,
}

impl Supervisor {
    pub(super) fn handle_mail(&mut self, message: MailMessage) {
        match message {
            MailMessage::Deliver { pid, delivery } => {
                self.release_tree(pid);
                self.deliver_or_reopen(pid, self.with_local_sender(pid, *delivery));
            }
            MailMessage::Send(request) => {
                if let Some(request) = self.send_to_peer(*request) {
                    self.route_message(request);
                }
            }
            MailMessage::Receive(request) => self.route_message(*request),
        }
    }

    /// Delivers an input: at once if the process runs, otherwise once it is loaded.
    pub(super) fn deliver(&mut self, pid: Pid, delivery: Delivery) {
        if self.table.deliver(pid, delivery) {
            self.wake(pid);
            self.release_for_delivery(pid);
        }
    }

    /// Delivers an input from inside the kernel. A process that has ended ignores it.
    pub(super) fn deliver_internal(&mut self, pid: Pid, input: Input) {
        self.deliver(pid, Delivery::internal(input));
    }

    /// Ends the isolation of a tree, because the host resumed one of its processes or sent it an
    /// input.
    pub(super) fn release_tree(&mut self, pid: Pid) {
        let root = self.table.highest_known_ancestor(pid);
        self.isolated_trees.remove(&root);
    }

    fn route_message(&mut self, request: SendRequest) {
        match self.resolve_receiver(request.from, &request.to) {
            Ok(Receiver {
                pid,
                sender_id,
                refusal: Some(why),
            }) => self.answer_from_journal(pid, sender_id, why, request),
            Ok(Receiver {
                pid: to,
                sender_id,
                refusal: None,
            }) => {
                let SendRequest {
                    from,
                    call,
                    acked_below,
                    envelope,
                    receipt,
                    ..
                } = request;
                // A repeated message gets a new request id, so that each delivery has its own
                // answer.
                self.messages_routed += 1;
                let request_id: Arc<str> =
                    format!("message:{from}:{call}:{}", self.messages_routed).into();
                let input = Input::Message {
                    request_id: request_id.clone(),
                    from: sender_id,
                    call,
                    acked_below,
                    envelope,
                };
                self.deliver_or_reopen(
                    to,
                    Delivery {
                        reply_to: Some((request_id, receipt.into())),
                        ..Delivery::internal(input)
                    },
                );
            }
            // The requester has dropped its receiver if it no longer waits.
            Err(refusal) => drop(request.receipt.send(refusal.into())),
        }
    }

    /// Answers a message to a process that has ended. A restarted sender repeats its messages, so
    /// the process may have received this one before it ended. Its journal then holds the receipt.
    /// If the journal cannot be read, the receipt is dropped, so that the sender repeats the message.
    fn answer_from_journal(
        &self,
        pid: Pid,
        sender_id: Pid,
        why: Refusal,
        SendRequest { call, receipt, .. }: SendRequest,
    ) {
        let context = self.context.clone();
        tokio::task::spawn_blocking(move || {
            let journal_receipt = match context.store_handle() {
                None if context.has_store => return,
                None => None,
                Some(store) => {
                    let purpose = LoadPurpose::Inspect;
                    match recovery::load_process(&*store, &context, pid, None, purpose) {
                        Ok(loaded) => loaded.state.receipt(sender_id, call),
                        Err(error) => {
                            tracing::warn!(%pid, "a message cannot be answered: {error}");
                            return;
                        }
                    }
                }
            };
            // The requester has dropped its receiver if it no longer waits.
            let _ = receipt.send(journal_receipt.unwrap_or_else(|| why.into()));
        });
    }

    /// The receiver of a message to this address, to which the sender may write.
    fn resolve_receiver(&self, from: Pid, to: &Address) -> Result<Receiver, Refusal> {
        let AddressedProcess {
            addressed_id,
            pid: to,
        } = self.resolve_address(from, to)?;
        let refusal = match self.table.run_state(to) {
            Some(RunState::Ended) => self.find_end_refusal(from, to, addressed_id),
            _ => None,
        };
        let root = self.table.highest_known_ancestor(to);
        let is_isolated =
            self.isolated_trees.contains(&root) && self.table.highest_known_ancestor(from) != root;
        if refusal.is_none() && is_isolated {
            return Err(format!(
                "Process {addressed_id} does not run: the user has not resumed it. Nothing was sent."
            )
            .into());
        }
        let sender_id = self.local_id_for(to, from).ok_or_else(|| {
            format!(
                "Process {addressed_id} cannot be written to: the number of this process means \
                 another one there."
            )
        })?;
        Ok(Receiver {
            pid: to,
            sender_id,
            refusal,
        })
    }

    /// The process that an address names. Costs the depth of both trees.
    ///
    /// # Errors
    /// The reason, for the sender, if there is none or the sender may not write to it.
    fn resolve_address(&self, from: Pid, to: &Address) -> Result<AddressedProcess, Refusal> {
        let known = |pid| AddressedProcess {
            addressed_id: self.local_id_for(from, pid).unwrap_or(pid),
            pid,
        };
        let parent = || self.table.get(from).and_then(ProcessEntry::parent);
        let AddressedProcess { addressed_id, pid } = match to {
            Address::Parent => parent().map(known).ok_or(
                "This process has no parent: the host started it. list_processes shows who there \
                 is.",
            )?,
            Address::Process(addressed_id) | Address::Correspondent(addressed_id) => {
                AddressedProcess {
                    addressed_id: *addressed_id,
                    pid: self.resolve(from, *addressed_id),
                }
            }
            Address::Name(name) => self.table.find_by_name(name).map(known).ok_or_else(|| {
                format!(
                    "There is no living process of the name '{name}'. list_processes shows who \
                     there is."
                )
            })?,
        };
        if pid == from {
            return Err(format!("Process {addressed_id} is this process itself.").into());
        }
        // A correspondent is a process that has written to the sender: it may be answered, whatever
        // the reach.
        let reach = self.context.limits.reach;
        let may_write =
            matches!(to, Address::Correspondent(_)) || self.table.can_reach(from, pid, reach);
        if self.table.get(pid).is_none() || !may_write {
            let reach = format_reach(reach);
            return Err(format!(
                "There is no process {addressed_id} {reach}. list_processes shows who there is."
            )
            .into());
        }
        Ok(AddressedProcess { addressed_id, pid })
    }

    /// Why a message cannot open an ended process again; `None` if it can.
    fn find_end_refusal(&self, from: Pid, to: Pid, addressed_id: Pid) -> Option<Refusal> {
        let exit = self.table.get(to)?.exit()?;
        if self.table.root(from) != self.table.root(to) {
            let word = exit.status.word();
            return Some(
                format!(
                    "Process {addressed_id} has ended as {word}: only a message of its own tree, or \
                     of the user, opens it again."
                )
                .into(),
            );
        }
        let checked = self.check_reopening(to, addressed_id);
        checked.err().map(|error| error.to_string().into())
    }

    pub(super) fn list_reachable(&self, pid: Pid, reply: oneshot::Sender<ReachableProcesses>) {
        // Without a store no message opens a process again.
        let ended = match self.context.has_store {
            true => self.table.reopenable_children(pid),
            false => Vec::new(),
        };
        let reachable = self
            .table
            .reachable_from(pid, self.context.limits.reach, ended);
        let listed = self
            .table
            .list_first(reachable, |process| self.with_local_ids(pid, process));
        // The requester has dropped its receiver if it no longer waits.
        let _ = reply.send(listed);
    }
}

/// The receiver of a message.
struct Receiver {
    pid: Pid,
    /// The id by which the receiver knows the sender.
    sender_id: Pid,
    /// The error for the sender, if the receiver has ended.
    refusal: Option<Refusal>,
}

/// A process, and the id by which the sender knows it.
struct AddressedProcess {
    addressed_id: Pid,
    pid: Pid,
}

impl ProcessTable {
    /// Whether `from` may write to `to`.
    fn can_reach(&self, from: Pid, to: Pid, reach: Reach) -> bool {
        let parent = |pid: Pid| self.get(pid).and_then(ProcessEntry::parent);
        let is_named = self.get(to).is_some_and(|entry| entry.name().is_some());
        is_named
            || match reach {
                Reach::Everyone => true,
                Reach::Tree => self.root(from) == self.root(to),
                Reach::Relatives => {
                    let (from_parent, to_parent) = (parent(from), parent(to));
                    from_parent == Some(to)
                        || to_parent == Some(from)
                        || (from_parent.is_some() && from_parent == to_parent)
                }
            }
    }

    /// The processes that `pid` may write to, in the order in which they are listed: `pid` itself, its
    /// parent, its children, its siblings, the named ones, all others, each with the newest first,
    /// and the `ended` ones. Costs the tree, or all processes if the reach is everyone.
    fn reachable_from(&self, pid: Pid, reach: Reach, ended: Vec<Pid>) -> Vec<Pid> {
        let parent = self.get(pid).and_then(ProcessEntry::parent);
        let living_children = |pid: Pid| {
            let children = self.living_children(pid).into_iter();
            children.map(|(child, _)| child).collect()
        };
        let others = match reach {
            Reach::Relatives => Vec::new(),
            Reach::Tree => self.living_tree(self.root(pid)),
            Reach::Everyone => self.living().collect(),
        };
        let groups: [Vec<Pid>; 6] = [
            vec![pid],
            parent.into_iter().collect(),
            living_children(pid),
            parent.map(living_children).unwrap_or_default(),
            self.named_processes().collect(),
            others,
        ];
        let mut known = BTreeSet::new();
        let mut reachable = Vec::new();
        for mut group in groups {
            group.sort_unstable_by_key(|pid| Reverse(*pid));
            reachable.extend(group.into_iter().filter(|pid| known.insert(*pid)));
        }
        reachable.extend(ended);
        reachable
    }

    /// The first of these processes that the observer can name, up to the limit. `with_local_ids`
    /// replaces their pids by the ids that the observer knows.
    fn list_first(
        &self,
        reachable: Vec<Pid>,
        with_local_ids: impl Fn(ReachableProcess) -> Option<ReachableProcess>,
    ) -> ReachableProcesses {
        let mut reachable = reachable.into_iter();
        let processes = reachable
            .by_ref()
            .filter_map(|pid| with_local_ids(self.reachable_process(pid)?))
            .take(MAX_SHOWN)
            .collect();
        ReachableProcesses {
            processes,
            unlisted_count: reachable.len(),
        }
    }

    /// The ended children of a process that a message can open again, the newest first: all but those
    /// that were killed or faulted.
    fn reopenable_children(&self, pid: Pid) -> Vec<Pid> {
        let is_reopenable = |pid: &Pid| {
            let exit = self.get(*pid).and_then(ProcessEntry::exit);
            exit.is_some_and(|exit| {
                !matches!(exit.status, ExitStatus::Killed | ExitStatus::Faulted)
            })
        };
        let children = self.children_of(pid).map(|(child, _)| child);
        let mut reopenable: Vec<Pid> = children.filter(is_reopenable).collect();
        reopenable.sort_unstable_by_key(|pid| Reverse(*pid));
        reopenable
    }

    fn reachable_process(&self, pid: Pid) -> Option<ReachableProcess> {
        let entry = self.get(pid)?;
        let program = entry.program().clone();
        let name = entry.name().cloned();
        Some(ReachableProcess {
            pid,
            parent: entry.parent(),
            program,
            name,
            status: self.status(pid)?.word(),
        })
    }
}

fn format_reach(reach: Reach) -> &'static str {
    match reach {
        Reach::Relatives => "among the parent, the children and the siblings of this one",
        Reach::Tree => "in the tree of this one",
        Reach::Everyone => "in this kernel",
    }
}

#[cfg(test)]
mod tests {
    use dormouse_proto::process::{Origin, ProcessRow};

    use super::super::table::tests::table_of;
    use super::*;

    /// A root without a name, other roots with names, and children of the first.
    fn table(named: u64, children: u64) -> ProcessTable {
        let with_name = |pid| ProcessRow {
            name: Some(format!("n{pid}").into()),
            ..ProcessRow::started(Pid(pid), "p")
        };
        let child = |pid| ProcessRow {
            parent: Some(Pid(1)),
            origin: Origin::Spawned {
                call: CallId {
                    epoch: 0,
                    seq: u32::try_from(pid).unwrap(),
                },
            },
            ..ProcessRow::started(Pid(pid), "p")
        };
        let last_named = 1 + named;
        let rows = std::iter::once(ProcessRow::started(Pid(1), "p"))
            .chain((2..=last_named).map(with_name))
            .chain((last_named + 1..=last_named + children).map(child));
        table_of(rows.collect())
    }

    #[test]
    fn a_list_of_reachable_processes_is_bounded_and_begins_with_the_nearest() {
        for (named, children, unknown, unlisted_count) in [
            (3, 2, 0, 0),
            (500, 2, 0, 403),
            (2, 500, 0, 403),
            // The observer cannot name process 2.
            (3, 2, 2, 0),
        ] {
            let table = table(named, children);
            let reachable = table.reachable_from(Pid(1), Reach::Tree, Vec::new());
            let list = table.list_first(reachable, |process| {
                (process.pid.0 != unknown).then_some(process)
            });
            assert_eq!(list.unlisted_count, unlisted_count, "{named} {children}");
            assert!(list.processes.len() <= MAX_SHOWN);
            let pids: Vec<u64> = list.processes.iter().map(|process| process.pid.0).collect();
            let last = 1 + named + children;
            assert_eq!(
                pids[..3],
                [1, last, last - 1],
                "itself, its newest children"
            );
            assert!(!pids.contains(&unknown));
        }
    }
}
