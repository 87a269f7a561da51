//! Collects what a process needs before it is created: the information about the environment that
//! its program requests (`[env_info]`), and the tools that its tool servers offer. Both become part
//! of the image of the process and are never collected again.
//!
//! Environment variables and commands go through the host, which decides what is permitted. If a
//! variable or a command is denied or fails, the system prompt says so in its place, and the
//! process starts anyway. If a required tool server cannot be reached, the process is not created.

use std::collections::BTreeMap;
use std::env;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use dormouse_kernel::process::{
    Child, GatheredEnvironment, HostContext, Image, MissingMcpTool, add_environment, add_mcp_tools,
};
use dormouse_kernel::program::{EnvCommand, EnvVar, Program};
use dormouse_proto::command::Command;
use dormouse_proto::id::Pid;
use dormouse_proto::process::Origin;
use dormouse_proto::server::OfferedTool;
use dormouse_proto::tool::{ToolOutput, ToolPolicy};
use futures_util::future::{FutureExt, join, join_all};

use crate::clock::now_ms;
use crate::context::KernelContext;
use crate::error::StartError;
use crate::ports::{OffersTo, OutputSink, ToolError};
use crate::process::tool_call;
use crate::servers;

/// The most milliseconds that a command may run; then it is ended.
const DEADLINE_MS: u64 = 5_000;
/// The most bytes of a variable, or of the output of a command, that a model is shown. The reason
/// why a command failed follows its output, and may have as many bytes again.
const MAX_TEXT_BYTES: usize = 4 << 10;
/// The most bytes of output that a command may write; then it is ended.
const OUTPUT_CAP_BYTES: u64 = 1 << 20;

/// The standard information: entries that every program can request by name. They describe the
/// operating system process that the kernel runs in.
pub(crate) fn standard_env_info() -> BTreeMap<String, String> {
    let directory = env::current_dir()
        .ok()
        .map(|path| path.display().to_string());
    let env_info = [
        ("working_directory", directory),
        (
            "platform",
            Some(format!("{} ({})", env::consts::OS, env::consts::ARCH)),
        ),
        (
            "username",
            env::var("USER").or_else(|_| env::var("USERNAME")).ok(),
        ),
        ("hostname", env::var("HOSTNAME").ok()),
    ];
    env_info
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
}

/// Collects the variables and the command outputs that a program requests in addition to the
/// standard information. The commands run concurrently, each up to the deadline. Dropping the
/// future ends them.
async fn gather_env_info(context: &KernelContext, program: &Program) -> GatheredEnvironment {
    let requested = program.environment();
    let commands = join_all(
        requested
            .commands
            .iter()
            .map(|command| run_command(context, program, command)),
    );
    let gathered = async {
        let env_vars = requested
            .env_vars
            .iter()
            .map(|var| read_variable(context, program, var))
            .collect();
        GatheredEnvironment {
            env_vars,
            commands: commands.await,
        }
    };
    // If the host panics, the process starts without this information.
    AssertUnwindSafe(gathered)
        .catch_unwind()
        .await
        .unwrap_or_default()
}

/// Whether a process of this program needs environment information or tool offers before it is
/// created.
fn needs_gathering(program: &Program) -> bool {
    program.environment().needs_gathering() || !program.servers().is_empty()
}

/// Why a process cannot be created: a tool server that its program requires cannot be used, or
/// lacks a tool that the program selects.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartContextError {
    #[error("the tool server `{name}` cannot be used: {error}")]
    Server { name: Arc<str>, error: ToolError },
    #[error(transparent)]
    Tool(#[from] MissingMcpTool),
}

impl From<StartContextError> for StartError {
    fn from(error: StartContextError) -> Self {
        Self::UnmetRequirement(error.to_string())
    }
}

/// The environment information and the tool offers that were collected for a process that is about
/// to be created.
#[derive(Default)]
pub(crate) struct StartContext {
    env_info: Option<GatheredEnvironment>,
    offers: Vec<OfferedTool>,
}

/// Collects environment information, and the tools that servers offer `to` a process of `program`.
/// Dropping the future ends the collection.
///
/// # Errors
/// A tool server that the program requires cannot be used.
pub(crate) async fn gather_start_context(
    context: &KernelContext,
    program: &Program,
    to: OffersTo,
) -> Result<StartContext, StartContextError> {
    let env_info = async {
        match program.environment().needs_gathering() {
            true => Some(gather_env_info(context, program).await),
            false => None,
        }
    };
    let (env_info, offers) = join(env_info, servers::list_offers(context, program, &to)).await;
    Ok(StartContext {
        env_info,
        offers: offers?,
    })
}

impl StartContext {
    /// Adds the information and the tools to the image that the process starts from.
    ///
    /// # Errors
    /// A tool server does not offer a tool that the program selects.
    pub(crate) fn apply_to(
        self,
        image: &mut Image,
        program: &Program,
        host_context: &HostContext,
    ) -> Result<(), StartContextError> {
        if let Some(env_info) = self.env_info {
            add_environment(image, program, host_context, &env_info, now_ms());
        }
        Ok(add_mcp_tools(image, program, &self.offers)?)
    }
}

/// Whether environment information or tool offers must be collected for this child. A fork inherits
/// those of its parent.
pub(crate) fn needs_start_context(child: &Child) -> bool {
    let is_spawned = matches!(child.origin, Origin::Spawned { .. } | Origin::Judge { .. });
    is_spawned && needs_gathering(&child.program)
}

/// Collects and applies the start context of each child that needs one. The tools are listed for the
/// tree with the root `root`, because the calls of a child go over the connections of its tree.
///
/// # Errors
/// The reason why one of the children cannot be created.
pub(crate) async fn prepare_children(
    context: &KernelContext,
    root: Pid,
    mut children: Vec<Child>,
) -> Result<Vec<Child>, StartContextError> {
    for child in children
        .iter_mut()
        .filter(|child| needs_start_context(child))
    {
        let start_context =
            gather_start_context(context, &child.program, OffersTo::Tree(root)).await?;
        start_context.apply_to(&mut child.image, &child.program, &context.host_context)?;
    }
    Ok(children)
}

fn read_variable(context: &KernelContext, program: &Program, var: &EnvVar) -> Option<String> {
    match context.host.variable(&var.name) {
        Ok(value) => value
            .map(|value| truncate_text(value.as_bytes(), MAX_TEXT_BYTES, 0))
            .filter(|value| !value.is_empty()),
        Err(why) => {
            tracing::warn!(program = program.name(), "env_info.env_vars: {why}");
            Some(format!("not known: {why}"))
        }
    }
}

async fn run_command(context: &KernelContext, program: &Program, command: &EnvCommand) -> String {
    let Some(argv) = &command.argv else {
        return "not run: the command needs a shell, and commands are started without one."
            .to_owned();
    };
    let command = Command {
        name: argv.first().cloned().unwrap_or_default(),
        description: String::new(),
        argv: argv.clone(),
        parameters: Vec::new(),
        env: Vec::new(),
        policy: ToolPolicy {
            deadline_ms: DEADLINE_MS,
            output_cap_bytes: OUTPUT_CAP_BYTES,
            ..ToolPolicy::default()
        },
        limits: program.limits().commands,
    };
    let tool = context.host.command(&command);
    let name = command.name.as_str().into();
    let policy = command.policy;
    let sink = OutputSink::with_limits(MAX_TEXT_BYTES as u64, policy.output_cap_bytes);
    let ToolOutput {
        bytes,
        is_error,
        cut_bytes,
        attached: _,
    } = tool_call::run(
        name,
        policy,
        Box::new(move |out| tool.call("{}".to_owned(), out)),
        sink,
    )
    .await;
    let max_bytes = if is_error {
        2 * MAX_TEXT_BYTES
    } else {
        MAX_TEXT_BYTES
    };
    let text = truncate_text(&bytes, max_bytes, cut_bytes);
    if is_error {
        tracing::warn!(program = program.name(), "env_info.commands: {text}");
    }
    text
}

/// The first `max_bytes` of a text, followed by the number of bytes that are left out. `cut_bytes`
/// is the number of bytes that were dropped before.
fn truncate_text(bytes: &[u8], max_bytes: usize, cut_bytes: u64) -> String {
    let past_limit = bytes.len().saturating_sub(max_bytes);
    let beginning = String::from_utf8_lossy(&bytes[..bytes.len() - past_limit]);
    match cut_bytes + past_limit as u64 {
        0 => beginning.trim_end().to_owned(),
        left_out => format!("{}\n… {left_out} more bytes", beginning.trim_end()),
    }
}
