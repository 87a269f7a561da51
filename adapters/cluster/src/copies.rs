//! Copies of trees that come from elsewhere: how a shard takes one, and which of them run.
//!
//! A copy has a label that names the move and the attempt. It is made held, and runs once its
//! attempt is the one that the table of moves names. Any other copy of the move never runs.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Cursor;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use dormouse::checkpoint::Scope;
use dormouse::id::Pid;
use dormouse::label::Label;
use dormouse::process::ProcessRow;
use dormouse::{Kernel, KernelError, NotFound, ProcessInfo, Recovery, RecoveryAction};
use serde::{Deserialize, Serialize};

use crate::call::{Blob, CallError, Reply};

/// The key of the label that names the move and the attempt that a tree came by.
const MOVE_LABEL: &str = "dormouse.move";

/// The longest export that is moved, in bytes: it is one call, as base64.
pub(crate) const MAX_EXPORT_BYTES: usize = 64 << 20;

/// How many rows of the process table are looked through at once.
const ROWS_AT_ONCE: usize = 4096;

/// A tree that comes to a shard.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ImportCall {
    pub(crate) move_id: String,
    pub(crate) attempt: u64,
    /// The labels of the tree.
    pub(crate) labels: Vec<Label>,
    /// Whether it comes from another shard, and not from another store.
    pub(crate) is_from_shard: bool,
    pub(crate) export: Blob,
}

/// The row of a process.
///
/// # Errors
/// [`NotFound::Process`].
pub(crate) async fn row_of(kernel: &Kernel, pid: Pid) -> Result<ProcessRow, KernelError> {
    let before = pid.0.checked_sub(1).map(Pid);
    let page = kernel.process_page(before, 1).await?;
    let mut rows = page.into_iter().map(|info| info.row);
    let found = rows.find(|row| row.pid == pid);
    Ok(found.ok_or(NotFound::Process(pid))?)
}

/// Whether a process has not ended. One that a garbage collection has deleted has.
pub(crate) async fn lives(kernel: &Kernel, pid: Pid) -> Result<bool, KernelError> {
    match row_of(kernel, pid).await {
        Ok(row) => Ok(row.exit.is_none()),
        Err(KernelError::NotFound(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The rows of all processes without a parent.
pub(crate) async fn roots(kernel: &Kernel) -> Result<Vec<ProcessRow>, KernelError> {
    let mut roots = Vec::new();
    let mut after = None;
    loop {
        let page = kernel.process_page(after, ROWS_AT_ONCE).await?;
        let Some(last) = page.last() else {
            return Ok(roots);
        };
        after = Some(last.row.pid);
        let rows = page.into_iter().map(|info| info.row);
        roots.extend(rows.filter(|row| row.parent.is_none()));
    }
}

/// Exports a tree.
pub(crate) async fn export_tree(kernel: &Kernel, root: Pid) -> Result<Bytes, KernelError> {
    let export = kernel.export(root, Scope::Tree);
    let (bytes, _) = export.write(Vec::new()).await?;
    Ok(bytes.into())
}

/// The labels of a tree, without those of moves.
pub(crate) fn labels_to_keep(row: &ProcessRow) -> Vec<Label> {
    let labels = row.labels.iter();
    let kept = labels.filter(|label| label.key() != MOVE_LABEL);
    kept.cloned().collect()
}

/// Makes a copy in this shard, held. Copies that earlier attempts have left are ended: none of them
/// can become the tree.
pub(crate) async fn import(kernel: &Kernel, call: ImportCall) -> Result<Reply, CallError> {
    let ImportCall {
        move_id,
        attempt,
        labels,
        is_from_shard,
        export,
    } = call;
    // The first attempt has none before it, and spares the pass over the process table.
    if attempt > 1 {
        end_earlier_copies(kernel, &move_id, attempt).await?;
    }
    let label = Label::new(MOVE_LABEL, &format!("{move_id}.{attempt}"));
    let label = label.map_err(KernelError::from)?;
    let import = kernel.import(Cursor::new(export.0));
    let import = match is_from_shard {
        true => import.from_peer(),
        false => import,
    };
    let import = import.held().as_original();
    let imported = import.labels(labels.into_iter().chain([label])).await?;
    tracing::info!(id = %move_id, attempt, step = "taken", "a tree moves");
    Ok(Reply::Imported(imported.pids))
}

async fn end_earlier_copies(
    kernel: &Kernel,
    move_id: &str,
    attempt: u64,
) -> Result<(), KernelError> {
    for row in roots(kernel).await? {
        let is_earlier = |(id, of): (&str, u64)| id == move_id && of < attempt;
        if row.exit.is_none() && move_of(&row).is_some_and(is_earlier) {
            kernel.process(row.pid).await?.kill().await?;
        }
    }
    Ok(())
}

/// Runs a copy that has become the tree.
pub(crate) async fn resume(kernel: &Kernel, pids: Vec<Pid>) -> Result<Reply, CallError> {
    tracing::info!(root = ?pids.first(), step = "resuming", "a tree moves");
    for pid in pids {
        if !lives(kernel, pid).await? {
            continue;
        }
        // One that cannot be loaded is held, as after an opening of its shard.
        match kernel.resume(pid).await {
            Ok(_) => {}
            Err(error @ (KernelError::Closed | KernelError::LeaseLost)) => return Err(error.into()),
            Err(error) => tracing::warn!(%pid, %error, "a process that has moved is held"),
        }
    }
    Ok(Reply::Done)
}

/// The move and the attempt that a tree came by.
fn move_of(row: &ProcessRow) -> Option<(&str, u64)> {
    let mut labels = row.labels.iter();
    let label = labels.find(|label| label.key() == MOVE_LABEL)?;
    let (id, attempt) = label.value().rsplit_once('.')?;
    Some((id, attempt.parse().ok()?))
}

/// Whether a process without a parent is the root of a tree, and not of a copy that did not become
/// one. `moves` has the attempt of each move that did.
pub(crate) fn is_tree(row: &ProcessRow, moves: &BTreeMap<String, Option<u64>>) -> bool {
    move_of(row).is_none_or(|(id, attempt)| match moves.get(id) {
        Some(committed) => *committed == Some(attempt),
        None => true,
    })
}

/// Which processes of a shard run when it is opened: all but the copies that are not the tree.
/// `moves` has the attempt of each move to this shard that is.
pub(crate) fn recovery(moves: BTreeMap<String, Option<u64>>) -> Recovery {
    if moves.is_empty() {
        return Recovery::Resume;
    }
    let held: Mutex<BTreeSet<Pid>> = Mutex::default();
    // Parents come before their children.
    Recovery::decide(move |info: &ProcessInfo| {
        let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
        let row = &info.row;
        let is_tree = is_tree(row, &moves);
        let has_held_parent = row.parent.is_some_and(|parent| held.contains(&parent));
        if is_tree && !has_held_parent {
            return RecoveryAction::Resume;
        }
        held.insert(row.pid);
        RecoveryAction::Hold
    })
}
