//! `dormouse raise`: raises limits of a process of a store, so that one that is paused goes on.
//!
//! The raise is recorded in the journal of the process, which is not run: it goes on when it is
//! resumed, under the permissions that are given then.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use dormouse::id::Pid;
use dormouse::program::{parse_bytes, parse_duration_ms, parse_money};
use dormouse::{Amount, Budget, KernelError, Paused, ProcessError};

use crate::args::Store;
use crate::failure::Failure;
use crate::kernel_setup::KernelSetup;
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
#[group(required = true, multiple = true)]
pub(crate) struct Amounts {
    /// Raise the limit of money by this, in the currency of the price table, such as 1.50.
    #[arg(long, value_name = "MONEY", value_parser = parse_money)]
    pub(crate) cost: Option<u64>,
    /// Raise the limit of input tokens by this.
    #[arg(long, value_name = "TOKENS")]
    pub(crate) input_tokens: Option<u64>,
    /// Raise the limit of output tokens by this.
    #[arg(long, value_name = "TOKENS")]
    pub(crate) output_tokens: Option<u64>,
    /// Raise the time that it may run by this, such as 90s or 10m.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration_ms)]
    pub(crate) wall_time: Option<u64>,
    /// Raise the size of the contents that it may hold by this, such as 10mb.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) resident_bytes: Option<u64>,
    /// Raise the number of processes that may live at the same time by this.
    #[arg(long, value_name = "COUNT")]
    pub(crate) processes: Option<u64>,
}

impl Amounts {
    pub(crate) fn budget(&self) -> Budget {
        Budget {
            input_tokens: self.input_tokens,
            output_tokens: self.output_tokens,
            cost_nanos: self.cost,
            wall_time_ms: self.wall_time,
            processes: self.processes,
            depth: None,
            resident_bytes: self.resident_bytes,
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
    let folder = args.store.folder.display();
    Ok(match still_paused {
        None => {
            print_stderr(&format!(
                "Continue with: dormouse resume --store {folder} and the same --allow flags."
            ));
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
    let Some(store) = store.map(Path::display) else {
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
         {store}"
    ));
    print_stderr(&format!("Then: dormouse resume --store {store}"));
}
