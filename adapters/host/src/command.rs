//! Command tools: programs of this machine that a program file declares as tools.
//!
//! A call goes through four steps, with a module for each: the JSON of the call becomes typed
//! `arguments`; they fill the placeholders of an `argv`; the `launcher` finds the program and
//! checks that it is permitted; `run` forwards its output until it ends. The program runs in a
//! `process_group` (GROUP-1), under a `guard` that applies its `limits` and `confine`s it
//! (CONFINE-2). No shell is involved, and no argument is parsed a second time.

mod arguments;
mod argv;
mod confine;
mod env_file;
mod environment;
pub mod guard;
mod launcher;
mod limits;
mod process_group;
mod run;
mod stderr_tail;
mod temp_folder;
mod tool_server;

#[cfg(test)]
#[path = "../../../tests/confining.rs"]
mod confining;
#[cfg(test)]
mod run_tests;
#[cfg(test)]
#[path = "../../../tests/skip.rs"]
mod skip;

use std::io::Write;
use std::process::Stdio;
use std::sync::Arc;

use bytes::Bytes;
use dormouse_actors::ports::{OutputSink, Tool, ToolError};
use dormouse_proto::command::Command;
use dormouse_proto::tool::{ToolPolicy, ToolSpec};
use futures_util::future::{BoxFuture, FutureExt};

use self::arguments::Arguments;
pub use self::env_file::parse_env_file;
use self::launcher::LaunchRequest;
pub(crate) use self::launcher::Launcher;
pub(crate) use self::tool_server::start_server;

/// Prevents other processes of the same user from inspecting this process: its memory, its open
/// files, and its environment, which may hold keys. The program `dormouse` calls this at its start.
/// As a consequence, no debugger can be attached and no core file is written.
pub fn hide_this_process() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        // If this fails, the confinement still keeps commands away from this process.
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    }
}

/// A command of a program file as a tool. Each call checks whether the command is permitted.
#[derive(Debug)]
pub(crate) struct CommandTool {
    command: Arc<Command>,
    launcher: Arc<Launcher>,
}

impl CommandTool {
    pub(crate) fn new(command: Command, launcher: Arc<Launcher>) -> Self {
        Self {
            command: Arc::new(command),
            launcher,
        }
    }
}

impl Tool for CommandTool {
    fn spec(&self) -> ToolSpec {
        self.command.spec()
    }

    fn policy(&self) -> ToolPolicy {
        self.command.policy
    }

    fn call(&self, args: String, out: OutputSink) -> BoxFuture<'static, Result<(), ToolError>> {
        let (command, launcher) = (Arc::clone(&self.command), Arc::clone(&self.launcher));
        async move {
            let outcome = call(&command, &launcher, (&args, Stdio::null()), &out).await;
            outcome.map_err(|error| format!("{}: {error}", command.name).into())
        }
        .boxed()
    }
}

/// Runs a command without arguments of a model, with this standard input. A command that does not
/// read all of it is not disturbed by the rest.
pub(crate) async fn run_with_input(
    command: Command,
    launcher: Arc<Launcher>,
    input: Bytes,
    out: OutputSink,
) -> Result<(), ToolError> {
    let (reader, mut writer) = std::io::pipe()
        .map_err(|error| format!("{}: there is no pipe for its input: {error}", command.name))?;
    // A command that ends without reading closes the pipe, and the rest is dropped.
    tokio::task::spawn_blocking(move || drop(writer.write_all(&input)));
    call(&command, &launcher, ("{}", reader.into()), &out).await
}

async fn call(
    command: &Command,
    launcher: &Launcher,
    (args, stdin): (&str, Stdio),
    out: &OutputSink,
) -> Result<(), ToolError> {
    let arguments = Arguments::read(args, &command.parameters)?;
    let argv = argv::fill(&command.argv, &command.parameters, &arguments)?;
    let prepared = launcher.prepare(LaunchRequest {
        argv: &argv,
        env: launcher.permitted_variables(&command.env)?,
        access: command.policy.access,
        limits: command.limits,
        stdin,
        folder: None,
    })?;
    run::run(prepared, command.policy.output_cap_bytes, out).await
}
