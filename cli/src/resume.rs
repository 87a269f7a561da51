//! `dormouse resume`: runs the process trees of a store, all of them or those that the user names.
//!
//! The permissions of this command apply to the resumed trees only. Every other tree stays held,
//! even if a resumed tree sends a message to it. An imported tree runs for the first time only if
//! the user names it, or asks for all imported trees with `--imported`. A stopped tree continues
//! only if the user names it.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use dormouse::id::Pid;
use dormouse::{Kernel, KernelError, ProcessError, ProcessStatus, StoreFailure};

use crate::args::{RunFlags, Store};
use crate::event_printer::EventPrinter;
use crate::failure::Failure;
use crate::kernel_setup::KernelSetup;
use crate::process_table::{is_acknowledged_loss, is_loss};
use crate::process_trees::{Trees, isolate_others, unjudged_branches};
use crate::requirements::warn_of_missing_permissions;
use crate::run_to_end::{Roots, WhenAsleep, run_to_end};
use crate::sleepers::now_ms;
use crate::stop_signals::StopSignals;
use crate::store_address::is_cluster;
use crate::terminal::print_stderr;

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

/// How the processes of a store go on, for people.
pub(crate) fn how_to_continue(store: &Path) -> String {
    if is_cluster(store) {
        return "The cluster goes on with it.".to_owned();
    }
    format!(
        "Continue with: dormouse resume --store {} and the same --allow flags.",
        store.display()
    )
}

/// What is to be done after a decision about a process, for people. The nodes of a cluster go on by
/// themselves.
pub(crate) fn then_resume(store: &Path) -> Option<String> {
    let then = || format!("Then: dormouse resume --store {}", store.display());
    (!is_cluster(store)).then(then)
}

/// Missing permissions are looked up for this many trees at most, since each lookup reads a
/// journal.
const MAX_INSPECTED: usize = 32;

/// Resumes the chosen trees and runs them to their end. If all trees have ended, shows the newest
/// result again. Exits with 3 if processes of the store may be missing, or if one cannot be loaded.
pub(crate) async fn resume(args: Resume) -> Result<ExitCode, Failure> {
    let kernel = KernelSetup::on(&args.store)
        .run_flags(&args.flags)
        .open_existing()
        .await?;
    let events = EventPrinter::of_run(&kernel, &args.flags);
    let stop = StopSignals::listen()?;
    let trees = Trees::new(kernel.processes().await?);
    let folder = args.store.folder.display();
    if trees.is_empty() {
        return Err(match kernel.losses() {
            [] => Failure::Usage(format!(
                "the store {folder} holds no process: run a program"
            )),
            [lost, ..] => Failure::Store(format!(
                "the store {folder} holds no process that can be read: {lost}"
            )),
        });
    }
    let chosen = match &args.pids[..] {
        [] => {
            let left_out = if args.imported {
                Vec::new()
            } else {
                trees.imported_never_run(&kernel).await
            };
            for root in &left_out {
                print_stderr(&format!(
                    "{}, stays held: it never ran here. Resume it by dormouse resume {root} \
                     --store {folder}",
                    trees.describe(*root)
                ));
            }
            let mut chosen = trees.living_roots_except(&left_out)?;
            let unjudged = unjudged_branches(&kernel, &chosen).await;
            for root in &unjudged {
                print_stderr(&format!(
                    "{}, stays held: it is a branch of a race that has ended, and nobody judges it. \
                     Run it up to its first write by dormouse resume {root} --store {folder}",
                    trees.describe(*root)
                ));
            }
            chosen.retain(|root| !unjudged.contains(root));
            if chosen.is_empty() {
                return Err(Failure::Usage(
                    "nothing is resumed: name the branches to resume".to_owned(),
                ));
            }
            chosen
        }
        pids => trees.roots_of(&kernel, pids).await?,
    };
    let Resumable { chosen, loss } = exclude_lost_trees(&kernel, &trees, chosen).await;
    if chosen.is_empty() {
        return Err(Failure::Store(
            "nothing is resumed: each tree to resume has lost something".to_owned(),
        ));
    }
    isolate_others(&kernel, &chosen).await?;
    let living_roots: Vec<Pid> = chosen
        .iter()
        .copied()
        .filter(|root| trees.is_alive(*root))
        .collect();
    // Nothing is to be done for a tree that is asleep. Its alarms fire in a run that waits.
    let now_ms = now_ms();
    let (mut asleep, mut awake): (Vec<Pid>, Vec<Pid>) = living_roots
        .iter()
        .partition(|root| trees.asleep_until(**root).is_some_and(|at| at > now_ms));
    if !args.pids.is_empty() {
        // A tree that the user names is continued if it was stopped.
        for root in std::mem::take(&mut asleep) {
            match has_stopped_member(&kernel, &trees, root).await {
                true => awake.push(root),
                false => asleep.push(root),
            }
        }
        awake.sort_unstable();
    }
    for root in &awake {
        print_stderr(&format!("resumes {}", trees.describe(*root)));
    }
    let mut programs = Vec::new();
    for root in awake.iter().take(MAX_INSPECTED) {
        // A journal that cannot be read is reported when its process is resumed.
        if let Ok(view) = kernel.inspect(*root).await {
            programs.push(view.program);
        }
    }
    warn_of_missing_permissions(&kernel, &programs);
    let when_asleep = WhenAsleep::from_flags(&args.flags, Some(&args.store.folder));
    if when_asleep == WhenAsleep::Wait {
        kernel.resume_lazily(trees.living_members(&asleep))?;
    }
    let to_run: Vec<Pid> = chosen
        .iter()
        .copied()
        .filter(|root| !asleep.contains(root))
        .collect();
    let mut not_loaded = BTreeSet::new();
    for pid in trees.living_members(&to_run) {
        match kernel.resume(pid).await {
            // The others go on without it.
            Err(KernelError::Store(StoreFailure::Load(why))) => {
                print_stderr(&format!("process {pid} is not resumed: {why}"));
                not_loaded.insert(pid);
            }
            resumed => drop(resumed?),
        }
    }
    let is_loaded = |pid: &Pid| !not_loaded.contains(pid);
    let is_whole = |root: &Pid| trees.living_members(&[*root]).iter().all(is_loaded);
    let whole: Vec<Pid> = to_run.into_iter().filter(is_whole).collect();
    continue_stopped(&kernel, &trees, &whole, &args).await?;
    // If every chosen root has ended, their results are shown again.
    let roots_to_wait_for = if living_roots.is_empty() {
        chosen
    } else {
        awake
    };
    let mut roots = Roots {
        awake: Vec::new(),
        asleep,
    };
    for root in roots_to_wait_for {
        roots.awake.push(kernel.process(root).await?);
    }
    let losses = kernel.losses().to_vec();
    let store = Some(args.store.folder.as_path());
    let code = run_to_end(kernel, roots, when_asleep, events, stop, store).await?;
    let code = report_losses(&losses, &args.store.folder, code);
    Ok(match loss {
        Loss::NoneOrAcknowledged if not_loaded.is_empty() => code,
        Loss::NoneOrAcknowledged | Loss::New => ExitCode::from(3),
    })
}

/// Whether a process of a tree was stopped. Only its journal says that of a process that is not
/// loaded: costs a read of each.
async fn has_stopped_member(kernel: &Kernel, trees: &Trees, root: Pid) -> bool {
    for pid in trees.living_members(&[root]) {
        // A journal that cannot be read is reported when the process is loaded.
        if kernel.inspect(pid).await.is_ok_and(|view| view.stopped) {
            return true;
        }
    }
    false
}

/// Says what the store has lost, after a run that ended with `code`. Returns the exit code of the
/// command: 3 if something is lost.
pub(crate) fn report_losses(losses: &[String], folder: &Path, code: ExitCode) -> ExitCode {
    for lost in losses {
        print_stderr(&format!(
            "missing: {lost}. dormouse fsck --store {} says what can be done",
            folder.display()
        ));
    }
    match losses {
        [] => code,
        _ => ExitCode::from(3),
    }
}

/// The chosen trees that can be resumed.
pub(crate) struct Resumable {
    /// Their roots: no record of these trees is lost. Empty if each chosen tree has lost something.
    pub(crate) chosen: Vec<Pid>,
    /// Whether a chosen tree that cannot be resumed has lost something that nobody has
    /// acknowledged.
    loss: Loss,
}

/// Whether something is lost that nobody has acknowledged yet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    NoneOrAcknowledged,
    New,
}

/// Leaves out the *lost trees*, those that have lost something, and says so: such a tree may have
/// continued in the lost part, and would repeat its calls. Reads journals only if the store has
/// lost something.
pub(crate) async fn exclude_lost_trees(
    kernel: &Kernel,
    trees: &Trees,
    chosen: Vec<Pid>,
) -> Resumable {
    let mut resumable = Resumable {
        chosen: Vec::new(),
        loss: Loss::NoneOrAcknowledged,
    };
    if kernel.losses().is_empty() && kernel.acknowledged_losses().is_empty() {
        resumable.chosen = chosen;
        return resumable;
    }
    for root in chosen {
        let mut first_loss = None;
        for pid in trees.living_members(&[root]) {
            first_loss = kernel.inspect(pid).await.err().filter(is_loss);
            if first_loss.is_some() {
                break;
            }
        }
        let Some(why) = first_loss else {
            resumable.chosen.push(root);
            continue;
        };
        print_stderr(&format!(
            "{}, is not resumed: {why}. dormouse branch continues from the last point that can be \
             read",
            trees.describe(root)
        ));
        if !is_acknowledged_loss(&why) {
            resumable.loss = Loss::New;
        }
    }
    resumable
}

/// Continues stopped trees if the user named them: a branch that was killed before it got its
/// input, or a tree that an embedder stopped. Otherwise says which trees stay stopped.
///
/// A tree of which only a part is stopped continues in any case: the command that was continuing it
/// was killed, and its root would wait for the stopped part forever.
async fn continue_stopped(
    kernel: &Kernel,
    trees: &Trees,
    chosen: &[Pid],
    args: &Resume,
) -> Result<(), Failure> {
    let processes = kernel.processes().await?;
    let stopped: BTreeSet<Pid> = processes
        .iter()
        .filter(|info| info.status == ProcessStatus::Stopped)
        .map(|info| info.row.pid)
        .collect();
    for root in chosen.iter().filter(|root| trees.is_alive(**root)) {
        let is_stopped = stopped.contains(root);
        let members = trees.living_members(&[*root]);
        let is_partly_stopped = !is_stopped && members.iter().any(|pid| stopped.contains(pid));
        if is_partly_stopped || !args.pids.is_empty() {
            match kernel.process(*root).await?.tree().cont().await {
                // The root has an outcome already, which is printed at the end.
                Ok(())
                | Err(KernelError::Process(ProcessError::Ended(_) | ProcessError::Held { .. })) => {
                }
                Err(error) => return Err(error.into()),
            }
        } else if is_stopped {
            print_stderr(&format!(
                "{}, stays stopped. Continue it by dormouse resume {root} --store {}",
                trees.describe(*root),
                args.store.folder.display()
            ));
        }
    }
    Ok(())
}
