//! The `dormouse` program: runs swarms, brings them back, branches and moves them, shows what a
//! store holds, and calls tools by hand.
//!
//! This is the composition root: it chooses the store, the models and the host, and hands them to
//! the kernel.

mod args;
#[cfg(test)]
mod book;
mod branch;
mod call;
mod compose;
mod export;
mod findings;
mod finish;
mod front;
mod fsck;
mod gc;
mod history;
mod key;
mod mcp;
mod messages;
mod models;
mod page;
mod permissions;
mod point;
mod progress;
mod ps;
mod rate;
mod report;
mod requirements;
mod resume;
mod run;
mod schema;
mod show;
mod status;
mod stop;
mod terminal;
mod trees;
mod watch;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::PanicHookInfo;
use std::process::ExitCode;

use args::{Arguments, Command};
use clap::Parser;
use mimalloc::MiMalloc;
use status::Failure;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    // Before anything else: this program may have been started as the guard of a command.
    dormouse::host::guard::enter();
    dormouse::host::hide_this_process();
    std::panic::set_hook(Box::new(tell_of_panic));
    match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime.block_on(run_command()),
        Err(error) => complain(&Failure::Run(format!("the program cannot run: {error}"))),
    }
}

async fn run_command() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error),
    };
    log_to_stderr();
    let end = match arguments.command {
        Command::Run(run) => run::run(run).await,
        Command::Resume(resume) => resume::resume(resume).await,
        Command::Ps(ps) => ps::ps(ps).await,
        Command::Gc(gc) => gc::gc(gc).await,
        Command::Fsck(fsck) => fsck::run(fsck).await,
        Command::Log(log) => history::log(log).await,
        Command::Messages(messages) => messages::messages(messages).await,
        Command::Diff(diff) => history::diff(diff).await,
        Command::Checkpoint(checkpoint) => branch::checkpoint(checkpoint).await,
        Command::Checkpoints(checkpoints) => history::checkpoints(checkpoints).await,
        Command::Branch(branch) => branch::branch(branch).await,
        Command::Restore(restore) => branch::restore(restore).await,
        Command::Export(export) => export::export(export).await,
        Command::Import(import) => export::import(import).await,
        Command::Show(show) => show::show(&show),
        Command::Call(call) => call::call(call).await,
        Command::Mcp(mcp) => mcp::mcp(mcp).await,
        Command::Page(page) => page::page(&page),
        Command::Schema(schema) => schema::schema(schema),
    };
    end.unwrap_or_else(|failure| complain(&failure))
}

fn log_to_stderr() {
    use tracing_subscriber::{EnvFilter, fmt};
    let filter = EnvFilter::try_from_env("DORMOUSE_LOG")
        .unwrap_or_else(|_| EnvFilter::new("error,dormouse_store::progress=info"));
    fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(terminal::stderr)
        .init();
}

/// An error quotes arguments, which may come from elsewhere, so it is made visible. Help and
/// version quote nothing.
fn refuse(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        terminal::tell(error.render().to_string().trim_end());
    } else {
        // Nothing can be shown if standard output is closed.
        let _ = error.print();
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// A panic message may quote text from outside, so it is made visible. The store's index may panic,
/// which the store recovers from and reports itself.
fn tell_of_panic(panic: &PanicHookInfo<'_>) {
    if dormouse::store::catches_panic_here() {
        return;
    }
    terminal::tell(&panic.to_string());
    let trace = Backtrace::capture();
    if trace.status() == BacktraceStatus::Captured {
        terminal::tell(&trace.to_string());
    }
}

fn complain(failure: &Failure) -> ExitCode {
    failure.tell();
    failure.code()
}
