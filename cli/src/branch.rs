//! `dormouse checkpoint`, `dormouse branch` and `dormouse restore`: name a position of a process,
//! and continue from a position as new processes. The original processes never change.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use dormouse::Kernel;
use dormouse::effect::EffectPolicy;
use dormouse::id::{CheckpointId, Pid};

use crate::args::{RunFlags, Store, parse_text};
use crate::event_printer::EventPrinter;
use crate::failure::Failure;
use crate::kernel_setup::KernelSetup;
use crate::process_position::ProcessPosition;
use crate::process_trees::{Trees, isolate_others};
use crate::requirements::warn_of_missing_permissions;
use crate::run_to_end::{WhenAsleep, run_to_end};
use crate::stop_signals::StopSignals;
use crate::terminal;

/// `dormouse checkpoint`
#[derive(Debug, Args)]
pub(crate) struct Checkpoint {
    /// The process.
    #[arg(value_name = "PID")]
    pub(crate) pid: u64,
    #[command(flatten)]
    pub(crate) store: Store,
    /// What the checkpoint is called.
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// Include all processes below it.
    #[arg(long)]
    pub(crate) tree: bool,
}

/// `dormouse branch`
#[derive(Debug, Args)]
pub(crate) struct Branch {
    /// Where to begin: PID (as it is now), PID@FACT or PID@cp:N. The whole tree of the process is
    /// branched.
    #[arg(value_name = "POSITION")]
    pub(crate) position: ProcessPosition,
    #[command(flatten)]
    pub(crate) store: Store,
    #[command(flatten)]
    pub(crate) continuation: Continuation,
}

/// `dormouse restore`
#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// The checkpoint, such as cp:3.
    #[arg(value_name = "CHECKPOINT")]
    pub(crate) checkpoint: CheckpointId,
    #[command(flatten)]
    pub(crate) store: Store,
    #[command(flatten)]
    pub(crate) continuation: Continuation,
}

/// How the new processes continue.
#[derive(Debug, Args)]
pub(crate) struct Continuation {
    /// The input that the process gets before it continues.
    #[arg(long, value_name = "TEXT", value_parser = parse_text)]
    pub(crate) input: Option<String>,
    /// What happens to calls that repeat what the original processes did beyond the position, in
    /// place of the policies of their programs: recorded, ask, run or refuse.
    #[arg(long, value_name = "POLICY")]
    pub(crate) effects: Option<EffectPolicy>,
    #[command(flatten)]
    pub(crate) flags: RunFlags,
}

/// Makes a checkpoint, and prints its number.
pub(crate) async fn checkpoint(args: Checkpoint) -> Result<ExitCode, Failure> {
    let kernel = KernelSetup::on(&args.store).open_existing().await?;
    let process = kernel.process(Pid(args.pid)).await?;
    let label = args.label.unwrap_or_default();
    let checkpoint = if args.tree {
        process.tree().checkpoint(label).await
    } else {
        process.checkpoint(label).await
    };
    drop(process);
    let closed = kernel.shutdown().await;
    writeln!(terminal::stdout(), "{}", checkpoint?.id)?;
    closed?;
    Ok(ExitCode::SUCCESS)
}

/// Runs a branch of a process to its end.
pub(crate) async fn branch(args: Branch) -> Result<ExitCode, Failure> {
    let position = args.position;
    run_branch(&args.store, args.continuation, |kernel| {
        kernel.branch(position.pid, position.at)
    })
    .await
}

/// Creates new processes from a checkpoint, and runs them to their end. Unlike `Process::restore`,
/// it takes no existing process back.
pub(crate) async fn restore(args: Restore) -> Result<ExitCode, Failure> {
    run_branch(&args.store, args.continuation, |kernel| {
        kernel.restore(args.checkpoint)
    })
    .await
}

/// Creates a branch, gives it its input, and runs it to its end.
async fn run_branch(
    store: &Store,
    continuation: Continuation,
    branch: impl FnOnce(&Kernel) -> dormouse::Branch,
) -> Result<ExitCode, Failure> {
    let kernel = KernelSetup::on(store)
        .run_flags(&continuation.flags)
        .open_existing()
        .await?;
    let events = EventPrinter::of_run(&kernel, &continuation.flags);
    let stop = StopSignals::listen()?;
    // Only the branch runs: every existing tree is isolated.
    isolate_others(&kernel, &[]).await?;
    // The branch starts stopped, so that its process gets the input before it continues.
    let mut branch = branch(&kernel).stopped();
    if let Some(policy) = continuation.effects {
        branch = branch.effects(policy);
    }
    let process = branch.await?;
    if let Some(input) = continuation.input {
        process.input(input).await?;
    }
    let root = Trees::new(kernel.processes().await?)
        .root_of(process.pid())
        .unwrap_or(process.pid());
    let root = kernel.process(root).await?;
    drop(process);
    warn_of_missing_permissions(&kernel, &[kernel.inspect(root.pid()).await?.program]);
    if root.exit().is_none() {
        root.tree().cont().await?;
    }
    let store = Some(store.folder.as_path());
    let when_asleep = WhenAsleep::from_flags(&continuation.flags, store);
    run_to_end(kernel, root.into(), when_asleep, events, stop, store).await
}
