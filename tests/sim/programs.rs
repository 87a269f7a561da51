//! The programs that the simulated processes run: small limits, so that much happens with little
//! text.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dormouse_kernel::process::{HostContext, HostTool};
use dormouse_kernel::program::{Program, compile};
use dormouse_kernel::syscall::TOOL_SET;
use dormouse_proto::tool::{ToolPolicy, ToolSpec};

const LEAD: &str = r#"
[model]
name = "m"
provider = "scripted"
max_iterations = 8
[prompt]
system = "You lead."
[tools]
enabled = ["read_fd", "search_fd", "diff_fd", "fd_to_file", "summarize_fd", "list_fds", "rename_fd", "mark_fd_section",
    "get_fd_section", "list_fd_sections", "delete_fd_section", "goto", "grep", "look", "create_temp_file", "read_temp_file",
    "write_temp_file", "append_temp_file", "delete_temp_file", "send_message", "receive_messages", "wait", "list_processes", "wake_at", "cancel_alarm", "explore", { name = "fork", access = "write" }, "spawn"]
[linked_programs]
worker = "worker.toml"
plain = "plain.toml"
typed = "typed.toml"
critic = "critic.toml"
[file_descriptor]
max_direct_output_chars = 50
default_page_size = 20
max_input_chars = 60
reference_messages = true
enable_references = true
expand_fds = true
[limits]
max_depth = 2
max_children = 4
max_fork_children = 3
max_mailbox = 4
max_alarms = 4

[context]
window = 100
compact_at = 0.3
keep_messages = 3
summary = "model"
max_summary_chars = 200
"#;

/// Of everything little.
const THRIFTY: &str = r#"
[budget]
input_tokens = 500
output_tokens = 180
cost = "0.0009"
processes = 5
depth = 2
resident_bytes = 3000
[prices.m]
input = 1
output = 2
cache_read = 0.5
"#;

/// Little time.
const HURRIED: &str = r#"
[budget]
wall_time = "4s"
output_tokens = 400
"#;

/// Of some things little, and it waits for more.
const PATIENT: &str = r#"
[budget]
output_tokens = 160
wall_time = "5s"
at_limit = "pause"
[budget.raise]
output_tokens = 40
times = 1
"#;

/// `[tools]` of a program that asks a person.
const ASK: &str = r#"ask = ["grep", { tool = "look", when = { argument = "query", matches = "[02468]" } }, "fd_to_file", "fork"]
ask_expires = "5s"
[linked_programs]
"#;

/// The tools that a process of the asking program asks about, whatever their arguments.
const ASKED_TOOLS: [&str; 3] = ["grep", "fd_to_file", "fork"];

/// Whether a call of the model of a process of this program needs an approval.
pub(crate) fn needs_approval(program: &Program, tool: &str) -> bool {
    program.key() == "asking.toml" && ASKED_TOOLS.contains(&tool)
}

const WORKER: &str = r#"
[model]
name = "m"
provider = "scripted"
max_iterations = 6
[prompt]
system = "You work."
[tools]
enabled = ["read_fd", "search_fd", "rename_fd", "grep", "look", "read_temp_file", "append_temp_file", "create_temp_file",
    "fork", "spawn", "send_message", "receive_messages", "wait", "wake_at"]
[linked_programs]
plain = "plain.toml"
[file_descriptor]
max_direct_output_chars = 40
default_page_size = 16
max_input_chars = 40
[limits]
max_depth = 2
max_children = 3
max_fork_children = 2
max_mailbox = 2
fork_release = "all"
[context]
window = 100
compact_at = 0.3
keep_messages = 1
max_summary_chars = 200
"#;

const PLAIN: &str = r#"
[model]
name = "m"
provider = "scripted"
max_iterations = 3
[prompt]
system = "You are plain."
[tools]
enabled = ["grep", "send_message"]
[budget]
output_tokens = 30
"#;

/// Ends with a value.
const TYPED: &str = r#"
[model]
name = "m"
provider = "scripted"
max_iterations = 6
[prompt]
system = "You count."
[tools]
enabled = ["grep", "send_message"]
[result]
schema = { type = "object", required = ["count"], properties = { count = { type = "integer" }, said = { type = "string" } } }
attempts = 2
"#;

/// The key of the program that judges the children of explorations.
pub(crate) const CRITIC_KEY: &str = "critic.toml";

const CRITIC: &str = r#"
[model]
name = "m"
provider = "scripted"
max_iterations = 4
[prompt]
system = "You judge."
[tools]
enabled = ["grep"]
[result]
schema = { type = "object", required = ["pass"], properties = { pass = { type = "boolean" }, said = { type = "string" } } }
attempts = 2
"#;

/// The tools of the host: `grep` is done once, `look` may be done again.
pub(crate) const HOST_TOOLS: [&str; 2] = ["grep", "look"];

pub(crate) fn is_idempotent(tool: &str) -> bool {
    tool == "look"
}

/// Everything that is the same in all worlds.
pub(crate) struct Programs {
    pub(crate) around: Arc<HostContext>,
    pub(crate) roots: Vec<Program>,
    /// The bytes of each root's bundle.
    bundles: Vec<Bytes>,
}

impl Programs {
    pub(crate) fn new() -> Self {
        let tool = |name: &str| {
            let spec = ToolSpec {
                name: name.into(),
                description: "finds".into(),
                schema: "{}".into(),
            };
            let policy = ToolPolicy {
                idempotent: is_idempotent(name),
                ..ToolPolicy::default()
            };
            (Arc::from(name), HostTool { spec, policy })
        };
        let tools: BTreeMap<_, _> = HOST_TOOLS.into_iter().map(tool).collect();
        let around = Arc::new(HostContext {
            tools,
            ..HostContext::new(&TOOL_SET)
        });
        let roots = [
            "lead.toml",
            "worker.toml",
            "thrifty.toml",
            "hurried.toml",
            "asking.toml",
            "patient.toml",
        ]
        .map(compiled)
        .to_vec();
        let bundles = roots
            .iter()
            .map(|program| program.bundle().to_bytes())
            .collect();
        Self {
            around,
            roots,
            bundles,
        }
    }

    /// The program of a bundle, by its key: compiled once, as every process of one kernel shares
    /// it.
    pub(crate) fn find(&self, bundle: &[u8], key: &str) -> Option<Program> {
        let at = self.bundles.iter().position(|known| *known == bundle)?;
        self.roots[at].by_key(key)
    }
}

fn compiled(entry: &str) -> Program {
    let mut read = |path: &Path| {
        let text = match path.file_name().and_then(|name| name.to_str()) {
            Some("lead.toml") => LEAD.to_owned(),
            Some("thrifty.toml") => format!("{LEAD}{THRIFTY}"),
            Some("hurried.toml") => format!("{LEAD}{HURRIED}"),
            Some("patient.toml") => format!("{LEAD}{PATIENT}"),
            Some("asking.toml") => LEAD
                .replace("\"spawn\"]", "\"spawn\", \"ask_user\"]")
                .replace("[linked_programs]\n", ASK),
            Some("worker.toml") => WORKER.to_owned(),
            Some("typed.toml") => TYPED.to_owned(),
            Some(CRITIC_KEY) => CRITIC.to_owned(),
            _ => PLAIN.to_owned(),
        };
        Ok(Bytes::from(text))
    };
    compile(Path::new(entry), &mut read, &HOST_TOOLS)
        .unwrap_or_else(|errors| panic!("{errors:?}"))
        .program
}
