//! `dormouse checkpoint`, `dormouse branch` and `dormouse restore`: naming a point, and continuing
//! from one as new processes.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use dormouse::Kernel;
use dormouse::id::{CheckpointId, Pid};

use crate::args::{RunFlags, Store};
use crate::compose::Composition;
use crate::finish::finish;
use crate::point::PointOf;
use crate::requirements::warn_of_missing;
use crate::status::Failure;
use crate::stop::StopSignals;
use crate::terminal;
use crate::trees::{Trees, hold_others};
use crate::watch::{Output, Watch};

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
    #[arg(value_name = "POINT")]
    pub(crate) of: PointOf,
    #[command(flatten)]
    pub(crate) store: Store,
    #[command(flatten)]
    pub(crate) how: Continuation,
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
    pub(crate) how: Continuation,
}

/// How the new processes continue.
#[derive(Debug, Args)]
pub(crate) struct Continuation {
    /// The input that the process gets before it continues.
    #[arg(long, value_name = "TEXT")]
    pub(crate) input: Option<String>,
    #[command(flatten)]
    pub(crate) flags: RunFlags,
}

/// Makes a checkpoint, and prints its number.
pub(crate) async fn checkpoint(args: Checkpoint) -> Result<ExitCode, Failure> {
    let kernel = Composition::on(&args.store).existing().await?;
    let process = kernel.process(Pid(args.pid)).await?;
    let label = args.label.unwrap_or_default();
    let kept = if args.tree {
        process.tree().checkpoint(label).await
    } else {
        process.checkpoint(label).await
    };
    drop(process);
    kernel.shutdown().await;
    writeln!(terminal::stdout(), "{}", kept?.id)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs a branch of a process to its end.
pub(crate) async fn branch(args: Branch) -> Result<ExitCode, Failure> {
    let point = args.of;
    run_branch(&args.store, args.how, |kernel| {
        kernel.branch(point.pid, point.at)
    })
    .await
}

/// Runs a branch of a checkpoint to its end.
pub(crate) async fn restore(args: Restore) -> Result<ExitCode, Failure> {
    run_branch(&args.store, args.how, |kernel| {
        kernel.restore(args.checkpoint)
    })
    .await
}

/// The branch is born stopped, so that the process has its input before it continues.
async fn run_branch(
    store: &Store,
    how: Continuation,
    branch: impl FnOnce(&Kernel) -> dormouse::Branch,
) -> Result<ExitCode, Failure> {
    let kernel = Composition::on(store)
        .run_flags(&how.flags)
        .existing()
        .await?;
    let watch = Watch::begin(&kernel, Output::of(how.flags.json));
    let stop = StopSignals::listen()?;
    hold_others(&kernel, &[]).await?;
    let process = branch(&kernel).stopped().await?;
    if let Some(input) = how.input {
        process.input(input).await?;
    }
    let root = Trees::of(kernel.processes().await?)
        .root_of(process.pid())
        .unwrap_or(process.pid());
    let root = kernel.process(root).await?;
    drop(process);
    warn_of_missing(&kernel, &[kernel.inspect(root.pid()).await?.program]);
    if root.exit().is_none() {
        root.tree().cont().await?;
    }
    finish(kernel, vec![root], watch, stop, Some(&store.folder)).await
}
