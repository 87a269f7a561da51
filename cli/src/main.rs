//! The `dormouse` program: runs processes, resumes, branches and moves them, shows what a store
//! holds, and calls tools by hand.
//!
//! This crate is the composition root: it chooses the store, the models and the host, and gives
//! them to the kernel. Each command has a module of its own, with its arguments and its behaviour.

mod alarms;
mod approval;
mod args;
#[cfg(test)]
mod book_tests;
mod branch;
mod call;
#[cfg(feature = "cluster")]
mod cluster;
mod control_api;
mod effects;
mod event_printer;
mod export;
mod failure;
mod findings;
mod fsck;
mod gc;
mod history;
mod kernel_setup;
mod label;
mod mcp;
mod mcp_install;
mod mcp_login;
mod messages;
mod models;
mod page;
mod permissions;
mod process_position;
mod process_table;
mod process_trees;
mod progress;
mod proxied_servers;
mod ps;
mod race;
mod raise;
mod read_only;
mod read_rate;
mod requirements;
mod resume;
mod run;
mod run_to_end;
mod schema;
mod send;
mod serve;
mod server_questions;
mod show;
mod sleepers;
mod stop_signals;
mod store_address;
mod store_key;
mod temporary_store;
mod terminal;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::PanicHookInfo;
use std::process::ExitCode;

use args::{Arguments, Command};
use clap::Parser;
use failure::Failure;
use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    // First of all: the host starts this same program as the guard of each command, which must do
    // nothing else.
    dormouse::host::guard::enter();
    dormouse::host::hide_this_process();
    std::panic::set_hook(Box::new(print_panic));
    match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime.block_on(run_command()),
        Err(error) => exit_with(&Failure::Run(format!("the program cannot run: {error}"))),
    }
}

async fn run_command() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return print_usage(&error),
    };
    let command = arguments.command;
    log_to_stderr(command.default_log());
    let is_on_cluster = command.store().is_some_and(store_address::is_cluster);
    let result = match is_on_cluster {
        true => execute_on_cluster(command).await,
        false => execute(command).await,
    };
    match result {
        Ok(code) => code,
        Err(failure) => exit_with(&failure),
    }
}

/// Executes a command whose store is a cluster.
#[cfg(feature = "cluster")]
async fn execute_on_cluster(command: Command) -> Result<ExitCode, Failure> {
    cluster::execute_on_cluster(command).await
}

#[cfg(not(feature = "cluster"))]
async fn execute_on_cluster(_: Command) -> Result<ExitCode, Failure> {
    Err(Failure::Usage(
        "--store names a cluster, and this build of dormouse has none: build it with the feature \
         `cluster` (cargo install --features cluster), or name a folder"
            .to_owned(),
    ))
}

/// Executes a command. Those that only show something also take a cluster.
async fn execute(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Run(run) => run::run(run).await,
        Command::Resume(resume) => resume::resume(resume).await,
        Command::Send(send) => send::send(send).await,
        Command::Pending(pending) => approval::pending(pending).await,
        Command::Approve(approve) => approval::approve(approve).await,
        Command::Refuse(refuse) => approval::refuse(refuse).await,
        Command::Answer(answer) => approval::answer(answer).await,
        Command::Raise(raise) => raise::raise(raise).await,
        Command::Label(label) => label::label(label).await,
        Command::Ps(ps) => ps::ps(ps).await,
        Command::Alarms(alarms) => alarms::alarms(alarms).await,
        Command::Gc(gc) => gc::gc(gc).await,
        Command::Fsck(fsck) => fsck::run(fsck).await,
        Command::Log(log) => history::log(log).await,
        Command::Messages(messages) => messages::messages(messages).await,
        Command::Diff(diff) => history::diff(diff).await,
        Command::Effects(effects) => effects::effects(effects).await,
        Command::Checkpoint(checkpoint) => branch::checkpoint(checkpoint).await,
        Command::Checkpoints(checkpoints) => history::checkpoints(checkpoints).await,
        Command::Branch(branch) => branch::branch(branch).await,
        Command::Race(race) => race::race(race).await,
        Command::Restore(restore) => branch::restore(restore).await,
        Command::Export(export) => export::export(export).await,
        Command::Import(import) => export::import(import).await,
        Command::Show(show) => show::show(&show),
        Command::Call(call) => call::call(call).await,
        Command::Serve(serve) => serve::serve(serve).await,
        Command::Mcp(mcp) => mcp::mcp(mcp).await,
        Command::Page(page) => page::page(&page),
        Command::Schema(schema) => schema::schema(schema),
        #[cfg(feature = "cluster")]
        Command::Cluster(command) => cluster::execute(command).await,
    }
}

/// Logs what DORMOUSE_LOG asks for, or else `default`.
fn log_to_stderr(default: &str) {
    use tracing_subscriber::{EnvFilter, fmt};
    let filter =
        EnvFilter::try_from_env("DORMOUSE_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(terminal::stderr)
        .init();
}

/// Prints the help, the version, or what is wrong with the arguments.
fn print_usage(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        // The error quotes arguments, which may come from outside, so it is made visible.
        terminal::print_stderr(error.render().to_string().trim_end());
    } else {
        // Help and version quote nothing. If standard output is closed, they cannot be shown.
        let _ = error.print();
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// Prints a panic as visible text, since its message may quote text from outside. A panic of the
/// store's index is left out: the store recovers from it and reports it.
fn print_panic(panic: &PanicHookInfo<'_>) {
    if dormouse::store::catches_panic_here() {
        return;
    }
    terminal::print_stderr(&panic.to_string());
    let trace = Backtrace::capture();
    if trace.status() == BacktraceStatus::Captured {
        terminal::print_stderr(&trace.to_string());
    }
}

fn exit_with(failure: &Failure) -> ExitCode {
    failure.print();
    failure.code()
}
