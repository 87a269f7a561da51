//! Executes calls on a kernel of this node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dormouse::checkpoint::Scope;
use dormouse::id::{Pid, ProcessCallId};
use dormouse::mail::PeerMessage;
use dormouse::record::codec;
use dormouse::{
    Kernel, KernelError, NotFound, Position, Process, ProcessError, ProcessInfo, ProcessStatus,
    StartError, StoreFailure,
};
use dormouse_postgres::ShardId;

use crate::call::{
    Blob, Call, CallError, ClusterPosition, ClusterProcessInfo, FirstInput, Part, Reply, Signal,
    StartCall, WAIT_AT_MOST, input_of,
};
use crate::caller::Caller;
use crate::collections::collect;
use crate::copies;
use crate::database::on_database;
use crate::error::Refusal;
use crate::held::HeldShard;
use crate::random;
use crate::tables::{BegunInput, Tables};

/// The key of the label that holds the id of the request that started a tree.
pub(crate) const REQUEST_LABEL: &str = "dormouse.request";

/// How many rows of the process table are looked through at once.
const ROWS_AT_ONCE: usize = 4096;

/// The name of the fact of an input, as listings of facts show it.
const INPUT_FACT: &str = "message_queued";

/// Executes a call on a shard of this node.
pub(crate) async fn execute(
    caller: &Caller,
    shard: ShardId,
    held: &HeldShard,
    call: Call,
) -> Result<Reply, CallError> {
    let kernel = held.kernel.clone().ok_or_else(|| {
        CallError::NotOwner(format!("{shard} is being opened: try again in a moment"))
    })?;
    if !held.moved.is_empty()
        && let Some(to) = call.pid().and_then(|pid| held.moved.get(&pid))
    {
        return Err(CallError::Moved { to: *to });
    }
    match call {
        Call::Start(start) => {
            let request = start.request.clone();
            let starting = async move { with_kernel(&kernel, self::start(&kernel, *start)).await };
            held.in_flight.run(request, starting).await
        }
        Call::Input {
            pid,
            parts,
            request,
        } => {
            let (tables, id) = (caller.tables.clone(), request.clone());
            let sending =
                async move { with_kernel(&kernel, input(tables, &kernel, pid, parts, id)).await };
            held.in_flight.run(request, sending).await
        }
        Call::Collect { request, what } => {
            let collecting = collect(caller, shard, &kernel, request, what);
            with_kernel(&kernel, collecting).await
        }
        call => with_kernel(&kernel, execute_plain(&kernel, call)).await,
    }
}

/// Whatever fails while the kernel closes may have been done, and is to be asked of the next owner.
async fn with_kernel(
    kernel: &Kernel,
    call: impl Future<Output = Result<Reply, CallError>>,
) -> Result<Reply, CallError> {
    let result = call.await;
    match (result, kernel.close_reason()) {
        (Err(error), Some(reason)) if !matches!(error, CallError::Unknown(_)) => Err(
            CallError::Interrupted(format!("the kernel closed: {reason} ({error})")),
        ),
        (result, _) => result,
    }
}

async fn execute_plain(kernel: &Kernel, call: Call) -> Result<Reply, CallError> {
    match call {
        Call::Wait { pid } => {
            let process = kernel.process(pid).await?;
            match tokio::time::timeout(WAIT_AT_MOST, process.wait()).await {
                Ok(exit) => Ok(Reply::Exit(Some(exit?))),
                Err(_) => Ok(Reply::Exit(None)),
            }
        }
        Call::Signal { pid, signal, scope } => {
            let process = kernel.process(pid).await?;
            send_signal(&process, signal, scope).await?;
            Ok(Reply::Done)
        }
        Call::Checkpoint { pid, label, scope } => {
            let process = kernel.process(pid).await?;
            let made = match scope {
                Scope::Process => process.checkpoint(label).await?,
                Scope::Tree => process.tree().checkpoint(label).await?,
            };
            Ok(Reply::Checkpoint(made))
        }
        Call::Branch {
            pid,
            at,
            is_stopped,
        } => {
            let at = match at {
                ClusterPosition::Now => Position::Now,
                ClusterPosition::Fact(fact) => Position::Fact(fact),
                ClusterPosition::Checkpoint(id) => Position::Checkpoint(id),
            };
            let branch = kernel.branch(pid, at);
            let branch = match is_stopped {
                true => branch.stopped().await?,
                false => branch.await?,
            };
            Ok(Reply::Process(branch.pid()))
        }
        Call::Info { pid } => {
            let before = pid.0.checked_sub(1).map(Pid);
            let page = kernel.process_page(before, 1).await?;
            let found = page.into_iter().find(|info| info.row.pid == pid);
            let info = found
                .ok_or(NotFound::Process(pid))
                .map_err(KernelError::from)?;
            Ok(Reply::Info(Box::new(shown(info))))
        }
        Call::Tree { pid } => Ok(Reply::Processes(tree(kernel, pid).await?)),
        Call::Raise { pid, by } => {
            let process = kernel.process(pid).await?;
            Ok(Reply::Raised(process.raise(by).await?))
        }
        Call::Verdict { pid, call, verdict } => {
            let call = ProcessCallId { pid, call };
            kernel.record_verdict(call, verdict).await?;
            Ok(Reply::Done)
        }
        Call::Inspect { pid } => {
            let view = kernel.inspect(pid).await?;
            Ok(Reply::View((&view).into()))
        }
        Call::Log { pid } => {
            let lines = kernel.log(pid).await?;
            Ok(Reply::Log(lines.into_iter().map(Into::into).collect()))
        }
        Call::Processes { after, limit } => {
            let page = kernel.process_page(after, limit).await?;
            Ok(Reply::Processes(page.into_iter().map(shown).collect()))
        }
        Call::Deliver { message } => {
            let message: PeerMessage = codec::decode(&message.0)
                .map_err(|error| CallError::refused(Refusal::Invalid, error.to_string()))?;
            let answer = kernel.deliver(message).await?;
            let answer = codec::encode(&answer)
                .map_err(|error| CallError::refused(Refusal::Other, error.to_string()))?;
            Ok(Reply::Answer(Blob(answer.into())))
        }
        Call::Import(call) => copies::import(kernel, *call).await,
        Call::ResumeCopy { pids } => copies::resume(kernel, pids).await,
        Call::Export { pid } => {
            let export = copies::export_tree(kernel, pid).await?;
            Ok(Reply::Export(Blob(export)))
        }
        Call::Start(_) | Call::Input { .. } | Call::Collect { .. } => Err(CallError::refused(
            Refusal::Invalid,
            "this call has a request id and runs as a request",
        )),
    }
}

/// The rows of a process and of all below it. Costs a pass over the process table from there on.
async fn tree(kernel: &Kernel, root: Pid) -> Result<Vec<ClusterProcessInfo>, CallError> {
    let mut pids = BTreeSet::from([root]);
    let mut rows = Vec::new();
    let mut after = root.0.checked_sub(1).map(Pid);
    loop {
        let page = kernel.process_page(after, ROWS_AT_ONCE).await?;
        let is_last = page.len() < ROWS_AT_ONCE;
        after = page.last().map(|info| info.row.pid);
        for info in page {
            let row = &info.row;
            // Parents come before their children.
            if row.pid == root || row.parent.is_some_and(|parent| pids.contains(&parent)) {
                pids.insert(row.pid);
                rows.push(shown(info));
            }
        }
        if is_last {
            break;
        }
    }
    match rows.first() {
        Some(first) if first.row.pid == root => Ok(rows),
        _ => Err(KernelError::from(NotFound::Process(root)).into()),
    }
}

async fn send_signal(process: &Process, signal: Signal, scope: Scope) -> Result<(), KernelError> {
    match (scope, signal) {
        (Scope::Process, Signal::Interrupt) => process.interrupt().await,
        (Scope::Process, Signal::Stop) => process.stop().await,
        (Scope::Process, Signal::Continue) => process.cont().await,
        (Scope::Process, Signal::Kill) => process.kill().await,
        (Scope::Tree, Signal::Interrupt) => process.tree().interrupt().await,
        (Scope::Tree, Signal::Stop) => process.tree().stop().await,
        (Scope::Tree, Signal::Continue) => process.tree().cont().await,
        (Scope::Tree, Signal::Kill) => process.tree().kill().await,
    }
}

/// Starts a process, unless an earlier attempt has: the id of the request is in the record of its
/// birth.
async fn start(kernel: &Kernel, call: StartCall) -> Result<Reply, CallError> {
    if call.may_have_begun
        && let Some(pid) = find_started(kernel, &call.request).await?
    {
        return Ok(Reply::Process(pid));
    }
    let files: BTreeMap<String, _> = call
        .files
        .into_iter()
        .map(|(name, bytes)| (name, bytes.0))
        .collect();
    let (entry, compiler) = (call.entry, kernel.clone());
    // Files of any size are parsed here.
    let compiled = tokio::task::spawn_blocking(move || compiler.compile(&entry, &files));
    let compiled = compiled
        .await
        .map_err(|error| CallError::refused(Refusal::Other, error.to_string()))?;
    let compiled = compiled.map_err(|errors| {
        CallError::refused(
            Refusal::Invalid,
            format!("the program is not valid: {errors}"),
        )
    })?;
    let mut start = kernel
        .start(compiled.program)
        .label(REQUEST_LABEL, &*call.request);
    for (key, value) in call.labels {
        start = start.label(key, value);
    }
    start = match call.input {
        FirstInput::OfProgram => start,
        FirstInput::Nothing => start.without_input(),
        FirstInput::Parts(parts) => start.input(input_of(parts)),
    };
    if call.is_session {
        start = start.session();
    }
    if let Some(name) = call.name {
        start = start.name(name);
    }
    Ok(Reply::Process(start.await?.pid()))
}

/// The process that a request has started. Costs a pass over the process table of the shard.
async fn find_started(kernel: &Kernel, request: &str) -> Result<Option<Pid>, CallError> {
    let mut after = None;
    loop {
        let page = kernel.process_page(after, ROWS_AT_ONCE).await?;
        let is_started = |info: &&ProcessInfo| {
            let mut labels = info.row.labels.iter();
            info.row.branched_from.is_none()
                && labels.any(|label| label.key() == REQUEST_LABEL && label.value() == request)
        };
        if let Some(found) = page.iter().find(is_started) {
            return Ok(Some(found.row.pid));
        }
        if page.len() < ROWS_AT_ONCE {
            return Ok(None);
        }
        after = page.last().map(|info| info.row.pid);
    }
}

/// Sends an input, unless an earlier attempt has.
async fn input(
    tables: Tables,
    kernel: &Kernel,
    pid: Pid,
    parts: Vec<Part>,
    request: Arc<str>,
) -> Result<Reply, CallError> {
    let process = kernel.process(pid).await?;
    let shard = crate::shard::shard_of(pid);
    let begin = move || tables.begin_input(&request, shard, pid.0, &random::id()?);
    let begun = on_database(begin).await?;
    if let Some(begun) = begun
        && has_arrived(kernel, pid, begun).await?
    {
        return Ok(Reply::Done);
    }
    process.input(input_of(parts)).await?;
    Ok(Reply::Done)
}

/// Whether an input that was begun has arrived. Since then, an earlier owner of the shard can have
/// committed it, but none can any more.
async fn has_arrived(kernel: &Kernel, pid: Pid, begun: BegunInput) -> Result<bool, CallError> {
    let facts = kernel.log(pid).await?;
    let inputs_since = |commit: u64| {
        let inputs = facts.iter().filter(|fact| {
            fact.commit.0 > commit && fact.name == INPUT_FACT && fact.summary.starts_with("host: ")
        });
        inputs.count() as u64
    };
    if inputs_since(begun.last_commit) == 0 {
        return Ok(false);
    }
    // Each arrives once, so that as many as were begun are all of them.
    if inputs_since(begun.first_commit) >= begun.inputs {
        return Ok(true);
    }
    Err(CallError::Unknown(format!(
        "other inputs to process {pid} were begun at about the same time, and the journal does not \
         show which of them arrived"
    )))
}

fn shown(info: ProcessInfo) -> ClusterProcessInfo {
    use ProcessStatus::{Acting, Asking, Starting, Thinking};
    let is_at_rest = match (info.status, &info.view) {
        // Messages that have arrived wait for the person as well.
        (Asking, _) => true,
        (Starting, _) => false,
        (_, Some(view)) => view.rests,
        (status, None) => !matches!(status, Thinking | Acting),
    };
    ClusterProcessInfo {
        status: info.status.word().to_owned(),
        rests: is_at_rest,
        fact: info.view.map(|view| view.fact),
        row: info.row,
    }
}

impl From<KernelError> for CallError {
    fn from(error: KernelError) -> Self {
        let kind = match &error {
            KernelError::Closed
            | KernelError::LeaseLost
            | KernelError::Panicked(_)
            | KernelError::Process(ProcessError::Unanswered(_))
            | KernelError::Store(StoreFailure::NotDurable(_)) => {
                return Self::Interrupted(error.to_string());
            }
            KernelError::NotFound(_) => Refusal::NotFound,
            KernelError::Process(ProcessError::Ended(_) | ProcessError::NotReopened { .. }) => {
                Refusal::Ended
            }
            KernelError::Process(ProcessError::Held { .. }) => Refusal::Held,
            KernelError::Process(ProcessError::Busy { .. }) => Refusal::Busy,
            KernelError::Process(
                ProcessError::EmptyInput(_)
                | ProcessError::NotAnswered { .. }
                | ProcessError::NotRaised { .. },
            )
            | KernelError::Name(_)
            | KernelError::Label(_)
            | KernelError::Start(StartError::UnmetRequirement(_) | StartError::Unpriced(_)) => {
                Refusal::Invalid
            }
            _ => Refusal::Other,
        };
        Self::refused(kind, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use dormouse::Kernel;
    use dormouse::id::Pid;
    use futures_util::FutureExt;

    use super::with_kernel;
    use crate::call::CallError;
    use crate::error::Refusal;

    #[tokio::test]
    async fn what_fails_while_the_kernel_closes_is_asked_of_the_next_owner() {
        let kernel = Kernel::builder().build().await.expect("it needs nothing");
        kernel.clone().shutdown().await.expect("nothing runs");
        let answered = tokio::spawn(async move {
            // A task that is run right after the one that woke it has what that has left of the
            // time of both, which can be nothing: then no future of the runtime is ready.
            while tokio::task::coop::consume_budget().now_or_never().is_some() {}
            let held = format!("process {} is held", Pid(1));
            let failed = async { Err(CallError::refused(Refusal::Held, held)) };
            with_kernel(&kernel, failed).await
        });
        let answer = answered.await.expect("no panic");
        assert!(
            matches!(answer, Err(CallError::Interrupted(_))),
            "{answer:?}"
        );
    }
}
