//! `dormouse checkpoint`, `dormouse branch` and `dormouse restore`: naming a point, and going on from one as other processes.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;

use dormouse::id::Pid;
use dormouse::{Kernel, Process};

use crate::args::{Branch, Checkpoint, Going, Restore, Store};
use crate::compose::Composition;
use crate::requirements::tell_of_missing;
use crate::resume::hold_others;
use crate::run::finish;
use crate::status::Failure;
use crate::stop::StopSignals;
use crate::terminal;
use crate::watch::{Output, Watch};

/// Makes a checkpoint, and prints its number.
pub(crate) async fn checkpoint(args: Checkpoint) -> Result<ExitCode, Failure> {
    let kernel = Composition::on(&args.store).existing().await?;
    let process = kernel.process(Pid(args.pid)).await?;
    let label = args.label.unwrap_or_default();
    let kept = if args.tree { process.tree().checkpoint(label).await } else { process.checkpoint(label).await };
    drop(process);
    kernel.shutdown().await;
    writeln!(terminal::stdout(), "{}", kept?.id)?;
    Ok(ExitCode::SUCCESS)
}

/// Goes on from a point of a process as other processes, to their end.
pub(crate) async fn branch(args: Branch) -> Result<ExitCode, Failure> {
    let point = args.of;
    go_on(&args.store, args.going, |kernel| kernel.branch(point.pid, point.at)).await
}

/// Goes on from a checkpoint as other processes, to their end.
pub(crate) async fn restore(args: Restore) -> Result<ExitCode, Failure> {
    go_on(&args.store, args.going, |kernel| kernel.restore(args.checkpoint)).await
}

/// Born stopped, so that what is said to the process is there before it goes on.
async fn go_on(
    store: &Store,
    going: Going,
    branch: impl FnOnce(&Kernel) -> dormouse::Branch,
) -> Result<ExitCode, Failure> {
    let kernel = Composition::on(store).permissions(&going.permissions).models(&going.models).existing().await?;
    let watch = Watch::begin(&kernel, Output::of(going.json));
    let stop = StopSignals::listen()?;
    hold_others(&kernel, &[]).await?;
    let process = branch(&kernel).stopped().await?;
    if let Some(input) = going.input {
        process.input(input).await?;
    }
    let root = root_of(&kernel, &process).await?;
    drop(process);
    tell_of_missing(&kernel, &[kernel.inspect(root.pid()).await?.program]);
    if root.exit().is_none() {
        root.tree().cont().await?;
    }
    finish(kernel, vec![root], watch, stop, Some(&store.folder)).await
}

/// The process that its tree begins with.
async fn root_of(kernel: &Kernel, process: &Process) -> Result<Process, Failure> {
    let rows = kernel.processes().await?.into_iter().map(|info| (info.row.pid, info.row.parent));
    let parents: BTreeMap<Pid, Option<Pid>> = rows.collect();
    let mut pid = process.pid();
    while let Some(Some(parent)) = parents.get(&pid) {
        pid = *parent;
    }
    Ok(kernel.process(pid).await?)
}
