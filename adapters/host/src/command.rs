//! Command tools: programs of this machine that a program file declares as tools.
//!
//! A call goes through four steps, one file each: its JSON becomes typed `arguments`, they fill the
//! places of an `argv`, the `launcher` finds the program and asks whether it is permitted, and
//! `run` carries its output until it ends, with the whole `group` (GROUP-1), under a `guard` that
//! holds it to its `limits` and `confine`s it (CONFINE-2). There is no shell on the way, and no
//! part of an argument is read twice.

mod arguments;
mod argv;
mod confine;
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

use std::process::Stdio;
use std::sync::Arc;

use dormouse_actors::ports::{OutputSink, Tool, ToolError};
use dormouse_proto::command::Command;
use dormouse_proto::tool::{ToolPolicy, ToolSpec};
use futures_util::future::{BoxFuture, FutureExt};

use self::arguments::Arguments;
use self::launcher::LaunchRequest;
pub(crate) use self::launcher::Launcher;
pub(crate) use self::tool_server::serve;

/// Keeps others of the same user from looking into this process: its memory, its environment, which
/// may hold keys, and its open files. A kernel of the program `dormouse` does so first of all. The
/// price is that no debugger can be attached, and no core is written.
pub fn hide_this_process() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        // It has failed on no system; where it does, the confinement of commands keeps them out.
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    }
}

/// A command of a program file as a tool. What is not permitted is refused at each call.
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
            let outcome = call(&command, &launcher, &args, &out).await;
            outcome.map_err(|why| format!("{}: {why}", command.name).into())
        }
        .boxed()
    }
}

async fn call(
    command: &Command,
    launcher: &Launcher,
    args: &str,
    out: &OutputSink,
) -> Result<(), String> {
    let arguments = Arguments::read(args, &command.parameters)?;
    let argv = argv::fill(&command.argv, &command.parameters, &arguments)?;
    let prepared = launcher.prepare(LaunchRequest {
        argv: &argv,
        env: launcher.named(&command.env)?,
        access: command.policy.access,
        limits: command.limits,
        stdin: Stdio::null(),
        folder: None,
    })?;
    run::run(prepared, command.policy.output_cap_bytes, out).await
}
