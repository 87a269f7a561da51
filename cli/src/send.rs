//! `dormouse send`: sends a message to a process of a store, and runs its tree until nothing is
//! left to do. A process that has ended is opened again, so a conversation can go on for days.
//!
//! The command finds the tree of the process, and sends nothing if that tree has lost something
//! (`exclude_lost_trees`). It isolates all other trees, resumes the living members of this one, and
//! only then sends the message, since a held process takes no input. `run_to_end` then waits until
//! each process of the tree has ended, or the tree is *asleep*: it only waits for alarms.
//!
//! The permissions of this command apply to the tree of the process only, as with `dormouse
//! resume`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use dormouse::id::Pid;
use dormouse::user_input::UserInput;

use crate::args::{RunFlags, Store};
use crate::event_printer::EventPrinter;
use crate::failure::Failure;
use crate::kernel_setup::KernelSetup;
use crate::process_trees::{Trees, isolate_others};
use crate::requirements::warn_of_missing_permissions;
use crate::resume::{exclude_lost_trees, report_losses};
use crate::run::{Input, input_parts};
use crate::run_to_end::{WhenAsleep, run_to_end};
use crate::stop_signals::StopSignals;
use crate::terminal::print_stderr;

/// `dormouse send`
#[derive(Debug, Args)]
pub(crate) struct Send {
    /// The process that gets the message.
    pub(crate) pid: u64,
    /// The message; `-` reads it from standard input.
    pub(crate) text: Option<String>,
    /// Send a file too; may be given several times.
    #[arg(long, value_name = "FILE")]
    pub(crate) input_file: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) store: Store,
    #[command(flatten)]
    pub(crate) flags: RunFlags,
}

/// Sends the message and runs the tree of the process to its end. Exits with 3 if processes of the
/// store may be missing.
pub(crate) async fn send(args: Send) -> Result<ExitCode, Failure> {
    let pid = Pid(args.pid);
    let message = read_message(pid, args.text, args.input_file)?;
    let kernel = KernelSetup::on(&args.store)
        .run_flags(&args.flags)
        .open_existing()
        .await?;
    let trees = Trees::new(kernel.processes().await?);
    let root = trees.find_root(&kernel, pid).await?;
    let resumable = exclude_lost_trees(&kernel, &trees, vec![root]).await;
    if resumable.chosen.is_empty() {
        return Err(Failure::Store(format!(
            "nothing is sent to process {pid}: its tree has lost something"
        )));
    }
    let events = EventPrinter::of_run(&kernel, &args.flags);
    let stop = StopSignals::listen()?;
    if let Ok(view) = kernel.inspect(pid).await {
        warn_of_missing_permissions(&kernel, &[view.program]);
    }
    isolate_others(&kernel, &[root]).await?;
    let living = trees.living_members(&[root]);
    if !living.is_empty() {
        print_stderr(&format!("resumes {}", trees.describe(root)));
    }
    for member in living {
        kernel.resume(member).await?;
    }
    kernel.process(pid).await?.input(message).await?;
    let root = kernel.process(root).await?;
    let losses = kernel.losses().to_vec();
    let store = Some(args.store.folder.as_path());
    let when_asleep = WhenAsleep::from_flags(&args.flags, store);
    let code = run_to_end(kernel, root.into(), when_asleep, events, stop, store).await?;
    Ok(report_losses(&losses, &args.store.folder, code))
}

/// The message to a process: the text, or standard input if that is `-`, and the files.
pub(crate) fn read_message(
    pid: Pid,
    text: Option<String>,
    input_file: Vec<PathBuf>,
) -> Result<UserInput, Failure> {
    let is_stdin = text.as_deref() == Some("-");
    let message = input_parts(Input {
        input: text.filter(|_| !is_stdin),
        input_file,
        // `Input` is what `dormouse run` parses: its last argument is the text `-`.
        stdin: is_stdin.then(|| "-".to_owned()),
    })?;
    message.ok_or_else(|| {
        Failure::Usage(format!(
            "nothing is sent to process {pid}: give a text, - or --input-file FILE"
        ))
    })
}
