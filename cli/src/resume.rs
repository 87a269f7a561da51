//! `dormouse resume`: runs the process trees of a store, all of them or those that the user names.
//!
//! The permissions of this command apply to the resumed trees only: every other tree stays held,
//! even if a resumed tree writes to it. A tree that was imported runs for the first time only if
//! the user names it, or asks for all with `--imported`. A tree that was stopped continues only if
//! the user names it.

use std::collections::BTreeSet;
use std::process::ExitCode;

use clap::Args;
use dormouse::id::Pid;
use dormouse::{Kernel, KernelError, ProcessError};

use crate::args::{RunFlags, Store};
use crate::compose::Composition;
use crate::finish::finish;
use crate::report::{is_acknowledged, is_loss};
use crate::requirements::warn_of_missing;
use crate::status::Failure;
use crate::stop::StopSignals;
use crate::terminal::tell;
use crate::trees::{Trees, hold_others};
use crate::watch::{Output, Watch};

/// `dormouse resume`
#[derive(Debug, Args)]
pub(crate) struct Resume {
    /// Resume only the trees of these processes, and hold all others. The permissions given here
    /// apply to these trees only. Without a pid, all trees are resumed except imported ones that
    /// never ran here, and those that were stopped.
    #[arg(value_name = "PID", conflicts_with = "imported")]
    pub(crate) pids: Vec<u64>,
    /// Resume imported trees that never ran here too, under the permissions given here.
    #[arg(long)]
    pub(crate) imported: bool,
    #[command(flatten)]
    pub(crate) store: Store,
    #[command(flatten)]
    pub(crate) flags: RunFlags,
}

/// The most trees whose missing permissions are looked up, which reads a journal for each.
const MAX_INSPECTED: usize = 32;

/// Resumes the chosen trees and runs them to their end. If all trees have ended, the newest result
/// is shown again. Exits with 3 if processes of the store may be missing.
pub(crate) async fn resume(args: Resume) -> Result<ExitCode, Failure> {
    let kernel = Composition::on(&args.store)
        .run_flags(&args.flags)
        .existing()
        .await?;
    let watch = Watch::begin(&kernel, Output::of(args.flags.json));
    let stop = StopSignals::listen()?;
    let trees = Trees::of(kernel.processes().await?);
    let folder = args.store.folder.display();
    if trees.is_empty() {
        return Err(Failure::Usage(format!(
            "the store {folder} holds no process: run a program"
        )));
    }
    let chosen = match &args.pids[..] {
        [] => {
            let left_out = if args.imported {
                Vec::new()
            } else {
                trees.never_run(&kernel).await
            };
            for root in &left_out {
                tell(&format!(
                    "{}, stays held: it never ran here. Resume it by dormouse resume {root} \
                     --store {folder}",
                    trees.described(*root)
                ));
            }
            trees.all_but(&left_out)?
        }
        pids => trees.named(pids)?,
    };
    let Readable { chosen, lost } = readable(&kernel, &trees, chosen).await?;
    hold_others(&kernel, &chosen).await?;
    for root in chosen.iter().filter(|root| trees.lives(**root)) {
        tell(&format!("resumes {}", trees.described(*root)));
    }
    let mut programs = Vec::new();
    for root in chosen
        .iter()
        .filter(|root| trees.lives(**root))
        .take(MAX_INSPECTED)
    {
        // A journal that cannot be read is reported when its process is resumed.
        programs.extend(kernel.inspect(*root).await.ok().map(|view| view.program));
    }
    warn_of_missing(&kernel, &programs);
    for pid in trees.living(&chosen) {
        kernel.resume(pid).await?;
    }
    continue_stopped(&kernel, &trees, &chosen, &args).await?;
    let all_ended = !chosen.iter().any(|root| trees.lives(*root));
    let mut roots = Vec::new();
    for root in chosen
        .into_iter()
        .filter(|root| all_ended || trees.lives(*root))
    {
        roots.push(kernel.process(root).await?);
    }
    let is_lost = lost == Loss::New || !kernel.lost().is_empty();
    let missing = kernel.lost().to_vec();
    let code = finish(kernel, roots, watch, stop, Some(&args.store.folder)).await?;
    for missing in &missing {
        tell(&format!(
            "missing: {missing}. dormouse fsck --store {folder} says what can be done"
        ));
    }
    Ok(if is_lost { ExitCode::from(3) } else { code })
}

/// The trees that can be resumed.
struct Readable {
    chosen: Vec<Pid>,
    /// What of the others is lost.
    lost: Loss,
}

/// Whether something is lost that nobody has acknowledged yet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loss {
    NoneOrAcknowledged,
    New,
}

/// Leaves out the trees of which something is lost, and says so: they may have gone on in what is
/// lost, and would repeat their calls. Reads the journals of the rest only where the store has lost
/// something.
///
/// # Errors
/// If none is left.
async fn readable(kernel: &Kernel, trees: &Trees, chosen: Vec<Pid>) -> Result<Readable, Failure> {
    let mut readable = Readable {
        chosen: Vec::new(),
        lost: Loss::NoneOrAcknowledged,
    };
    if kernel.lost().is_empty() && kernel.acknowledged_losses().is_empty() {
        return Ok(Readable { chosen, ..readable });
    }
    for root in chosen {
        let mut why = None;
        for pid in trees.living(&[root]) {
            why = why.or(kernel.inspect(pid).await.err().filter(is_loss));
        }
        let Some(why) = why else {
            readable.chosen.push(root);
            continue;
        };
        tell(&format!(
            "{}, is not resumed: {why}. dormouse branch goes on from there",
            trees.described(root)
        ));
        if !is_acknowledged(&why) {
            readable.lost = Loss::New;
        }
    }
    if readable.chosen.is_empty() {
        return Err(Failure::Store(
            "nothing is resumed: of each tree something is lost".to_owned(),
        ));
    }
    Ok(readable)
}

/// Continues the trees that were stopped, if the user named them: a branch that was killed before
/// it had its input, or what an embedder stopped. Otherwise says which ones stay as they are. A
/// tree of which only a part is stopped is continued in any case: the command that was continuing
/// it was killed, and its root would wait for good.
async fn continue_stopped(
    kernel: &Kernel,
    trees: &Trees,
    chosen: &[Pid],
    args: &Resume,
) -> Result<(), Failure> {
    let infos = kernel
        .processes()
        .await?
        .into_iter()
        .filter(|info| info.status == "stopped");
    let stopped: BTreeSet<Pid> = infos.map(|info| info.row.pid).collect();
    for root in chosen.iter().filter(|root| trees.lives(**root)) {
        let is_stopped = stopped.contains(root);
        let in_part = !is_stopped
            && trees
                .living(&[*root])
                .iter()
                .any(|pid| stopped.contains(pid));
        if in_part || !args.pids.is_empty() {
            match kernel.process(*root).await?.tree().cont().await {
                // It did not wait for this. How it came to rest is shown in the end.
                Ok(())
                | Err(KernelError::Process(ProcessError::Ended(_) | ProcessError::Held { .. })) => {
                }
                Err(error) => return Err(error.into()),
            }
        } else if is_stopped {
            tell(&format!(
                "{}, stays stopped. Continue it by dormouse resume {root} --store {}",
                trees.described(*root),
                args.store.folder.display()
            ));
        }
    }
    Ok(())
}
