//! `dormouse raise`: raises limits of a process of a store, so that one that is paused goes on.
//!
//! The raise is recorded in the journal of the process, which is not run: it goes on when it is
//! resumed, under the permissions that are given then.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use dormouse::id::Pid;
use dormouse::program::{parse_bytes, parse_duration_ms};
use dormouse::{Amount, Budget, KernelError, Paused, ProcessError};

use crate::args::{ModelAmounts, Store};
use crate::failure::Failure;
use crate::kernel_setup::KernelSetup;
use crate::resume::{how_to_continue, then_resume};
use crate::terminal::print_stderr;

/// `dormouse raise`
#[derive(Debug, Args)]
pub(crate) struct Raise {
    /// The process.
    #[arg(value_name = "PID")]
    pub(crate) pid: u64,
    #[command(flatten)]
    pub(crate) amounts: Amounts,
    #[command(flatten)]
    pub(crate) store: Store,
}

/// What limits are raised by.
#[derive(Debug, Args)]
pub(crate) struct Amounts {
    #[command(flatten)]
    model: ModelAmounts,
    /// The time that it may run, such as 90s or 10m.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration_ms, group = "amounts")]
    wall_time: Option<u64>,
    /// The size of the contents that it may hold, such as 10mb.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, group = "amounts")]
    resident_bytes: Option<u64>,
    /// The number of processes that may live at the same time.
    #[arg(long, value_name = "COUNT", group = "amounts")]
    processes: Option<u64>,
}

impl Amounts {
    pub(crate) fn budget(&self) -> Budget {
        Budget {
            wall_time_ms: self.wall_time,
            processes: self.processes,
            resident_bytes: self.resident_bytes,
            ..self.model.budget()
        }
    }
}

/// Raises limits. Exits with 4 if the process stays paused.
pub(crate) async fn raise(args: Raise) -> Result<ExitCode, Failure> {
    let pid = Pid(args.pid);
    let kernel = KernelSetup::on(&args.store).open_existing().await?;
    let raised = match kernel.process(pid).await {
        Ok(process) => process.raise(args.amounts.budget()).await,
        Err(error) => Err(error),
    };
    kernel.shutdown().await?;
    let still_paused = raised.map_err(|error| match error {
        KernelError::Process(error @ ProcessError::NotRaised { .. }) => {
            Failure::Usage(error.to_string())
        }
        error => error.into(),
    })?;
    Ok(match still_paused {
        None => {
            print_stderr(&how_to_continue(&args.store.folder));
            ExitCode::SUCCESS
        }
        Some(paused) => {
            print_how_to_raise(pid, &paused, Some(&args.store.folder));
            ExitCode::from(4)
        }
    })
}

/// Which limit a process is paused at, and how to raise it, on standard error.
pub(crate) fn print_how_to_raise(pid: Pid, paused: &Paused, store: Option<&Path>) {
    print_stderr(&format!("process {pid} is paused: {paused}"));
    let Some(store) = store else {
        return print_stderr("Nothing was saved: run with --store to raise limits.");
    };
    let flag = paused.amount.word().replace('_', "-");
    let example = match paused.amount {
        Amount::Cost => "1.00",
        Amount::WallTime => "10m",
        Amount::ResidentBytes => "10mb",
        _ => "10000",
    };
    print_stderr(&format!(
        "Raise its limit, by as much as you want: dormouse raise {pid} --{flag} {example} --store \
         {}",
        store.display()
    ));
    if let Some(then) = then_resume(store) {
        print_stderr(&then);
    }
}
