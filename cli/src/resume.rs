//! `dormouse resume`: runs the process trees of a store, all of them or those that the user names.
//!
//! The permissions of this command apply to the resumed trees only: every other tree stays held, even if a resumed tree writes to
//! it. A tree that was imported runs for the first time only if the user names it, or asks for all with `--imported`.

use std::process::ExitCode;

use clap::Args;

use crate::args::{RunFlags, Store};
use crate::compose::Composition;
use crate::finish::finish;
use crate::requirements::warn_of_missing;
use crate::status::Failure;
use crate::stop::StopSignals;
use crate::terminal::tell;
use crate::trees::{Trees, hold_others};
use crate::watch::{Output, Watch};

/// `dormouse resume`
#[derive(Debug, Args)]
pub(crate) struct Resume {
    /// Resume only the trees of these processes, and hold all others. The permissions given here apply to these trees only. Without
    /// a pid, all trees are resumed except imported ones that never ran here.
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

/// Resumes the chosen trees and runs them to their end. If all trees have ended, the newest result is shown again. Exits with 3 if
/// processes of the store may be missing.
pub(crate) async fn resume(args: Resume) -> Result<ExitCode, Failure> {
    let kernel = Composition::on(&args.store).run_flags(&args.flags).existing().await?;
    let watch = Watch::begin(&kernel, Output::of(args.flags.json));
    let stop = StopSignals::listen()?;
    let trees = Trees::of(kernel.processes().await?);
    let folder = args.store.folder.display();
    if trees.is_empty() {
        return Err(Failure::Usage(format!("the store {folder} holds no process: run a program")));
    }
    let chosen = match &args.pids[..] {
        [] => {
            let left_out = if args.imported { Vec::new() } else { trees.never_run(&kernel).await };
            for root in &left_out {
                tell(&format!(
                    "{}, stays held: it never ran here. Resume it by dormouse resume {root} --store {folder}",
                    trees.described(*root)
                ));
            }
            trees.all_but(&left_out)?
        }
        pids => trees.named(pids)?,
    };
    hold_others(&kernel, &chosen).await?;
    for root in chosen.iter().filter(|root| trees.lives(**root)) {
        tell(&format!("resumes {}", trees.described(*root)));
    }
    let mut programs = Vec::new();
    for root in chosen.iter().filter(|root| trees.lives(**root)).take(MAX_INSPECTED) {
        // A journal that cannot be read is reported when its process is resumed.
        programs.extend(kernel.inspect(*root).await.ok().map(|view| view.program));
    }
    warn_of_missing(&kernel, &programs);
    for pid in trees.living(&chosen) {
        kernel.resume(pid).await?;
    }
    let all_ended = !chosen.iter().any(|root| trees.lives(*root));
    let mut roots = Vec::new();
    for root in chosen.into_iter().filter(|root| all_ended || trees.lives(*root)) {
        roots.push(kernel.process(root).await?);
    }
    let lost = kernel.lost().to_vec();
    let code = finish(kernel, roots, watch, stop, Some(&args.store.folder)).await?;
    for lost in &lost {
        tell(&format!("missing: {lost}. dormouse fsck --store {folder} says what can be done"));
    }
    Ok(if lost.is_empty() { code } else { ExitCode::from(3) })
}
