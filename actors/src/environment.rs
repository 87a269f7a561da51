//! What is found out before a process is born, and never again: facts of the environment that its
//! program asks for by `[env_info]`, and what its tool servers offer.
//!
//! What belongs to the user (environment variables, the output of programs) is asked of the host,
//! which decides what is permitted. What is not, or fails, is told as that, in the place of the
//! fact; a process starts all the same. It does not where a tool server cannot be reached.

use std::collections::BTreeMap;
use std::env;
use std::panic::AssertUnwindSafe;

use dormouse_kernel::process::{Child, Gathered, HostContext, Image, give_tools, tell_environment};
use dormouse_kernel::program::{EnvCommand, EnvVar, Program};
use dormouse_proto::command::Command;
use dormouse_proto::process::Origin;
use dormouse_proto::server::Offer;
use dormouse_proto::tool::{ToolOutput, ToolPolicy};
use futures_util::future::{FutureExt, join, join_all};

use crate::clock::now_ms;
use crate::context::KernelContext;
use crate::ports::OutputSink;
use crate::process::tool_call;
use crate::servers;

/// After so long a command is ended.
const DEADLINE_MS: u64 = 5_000;
/// So much of what a command says is told, and of a variable.
const MAX_TEXT_BYTES: usize = 4 << 10;
/// A command that says more is ended.
const OUTPUT_CAP_BYTES: u64 = 1 << 20;

/// What this process of the operating system knows of its surroundings, by the names that programs
/// use.
pub(crate) fn standard() -> BTreeMap<String, String> {
    let directory = env::current_dir()
        .ok()
        .map(|path| path.display().to_string());
    let facts = [
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
    facts
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
}

/// What a program asks for beyond the standard facts. Its commands run side by side; takes as long
/// as the slowest, and never longer than their deadline. Dropping the future ends them.
async fn gather_facts(context: &KernelContext, program: &Program) -> Gathered {
    let choice = program.environment();
    let commands = join_all(
        choice
            .commands
            .iter()
            .map(|command| run_command(context, program, command)),
    );
    let start_context = async {
        let env_vars = choice
            .env_vars
            .iter()
            .map(|var| read_variable(context, program, var))
            .collect();
        Gathered {
            env_vars,
            commands: commands.await,
        }
    };
    // A host that panics tells nothing; the process starts without its facts.
    AssertUnwindSafe(start_context)
        .catch_unwind()
        .await
        .unwrap_or_default()
}

/// Whether something is to be found out before a process of the program is born: facts, or what
/// tool servers offer.
fn needs_gathering(program: &Program) -> bool {
    program.environment().is_gathered() || !program.servers().is_empty()
}

/// What is found out before a process is born.
#[derive(Default)]
pub(crate) struct StartContext {
    facts: Option<Gathered>,
    offers: Vec<Offer>,
}

/// What is to be found out before a process of `program` is born. Dropping the future ends it.
///
/// # Errors
/// A text: why the process cannot be born.
pub(crate) async fn gather_start_context(
    context: &KernelContext,
    program: &Program,
) -> Result<StartContext, String> {
    let facts = async {
        match program.environment().is_gathered() {
            true => Some(gather_facts(context, program).await),
            false => None,
        }
    };
    let (facts, offers) = join(facts, servers::offers(context, program)).await;
    Ok(StartContext {
        facts,
        offers: offers?,
    })
}

impl StartContext {
    /// Makes it part of what the process starts from.
    ///
    /// # Errors
    /// A text: why the process cannot be born.
    pub(crate) fn apply_to(
        self,
        image: &mut Image,
        program: &Program,
        host_context: &HostContext,
    ) -> Result<(), String> {
        if let Some(facts) = self.facts {
            tell_environment(image, program, host_context, &facts, now_ms());
        }
        give_tools(image, program, &self.offers).map_err(|error| error.to_string())
    }
}

/// Whether a child waits to be told what is found out for it. A fork has its parent's facts.
pub(crate) fn needs_start_context(child: &Child) -> bool {
    matches!(child.origin, Origin::Spawned { .. }) && needs_gathering(&child.program)
}

/// The children, told what was found out for each that [`asks`].
///
/// # Errors
/// A text: why one of them cannot be born.
pub(crate) async fn prepare_children(
    context: &KernelContext,
    mut children: Vec<Child>,
) -> Result<Vec<Child>, String> {
    for child in children
        .iter_mut()
        .filter(|child| needs_start_context(child))
    {
        let start_context = gather_start_context(context, &child.program).await?;
        start_context.apply_to(&mut child.image, &child.program, &context.host_context)?;
    }
    Ok(children)
}

fn read_variable(context: &KernelContext, program: &Program, var: &EnvVar) -> Option<String> {
    match context.host.variable(&var.name) {
        Ok(value) => value
            .map(|value| truncated(value.as_bytes(), 0))
            .filter(|value| !value.is_empty()),
        Err(why) => {
            tracing::warn!(program = program.name(), "env_info.env_vars: {why}");
            Some(format!("not known: {why}"))
        }
    }
}

async fn run_command(context: &KernelContext, program: &Program, command: &EnvCommand) -> String {
    let Some(argv) = &command.argv else {
        return "not run: it asks for a shell, and none reads it.".to_owned();
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
    let (name, policy) = (command.name.as_str().into(), command.policy);
    let sink = OutputSink::keeping(MAX_TEXT_BYTES as u64, policy.output_cap_bytes);
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
    let text = truncated(&bytes, cut_bytes);
    if is_error {
        tracing::warn!(program = program.name(), "env_info.commands: {text}");
    }
    text
}

/// The beginning of what was said, and how much is missing.
fn truncated(bytes: &[u8], cut_bytes: u64) -> String {
    let past_limit = bytes.len().saturating_sub(2 * MAX_TEXT_BYTES);
    let beginning = String::from_utf8_lossy(&bytes[..bytes.len() - past_limit]);
    match cut_bytes + past_limit as u64 {
        0 => beginning.trim_end().to_owned(),
        missing => format!("{}\n… {missing} more bytes", beginning.trim_end()),
    }
}
