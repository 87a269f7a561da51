//! Adds the tools of MCP servers to the image of a new process.
//!
//! The tools are chosen once, from those that the servers offer when the process is created, and
//! are stored in the image. Neither a later change on the server nor a restart of the kernel
//! therefore changes the bytes that are sent to the model (HIST-1). The host can replace the tools
//! of a process whose conversation has not begun, such as one that only executes calls of the host.

use std::collections::BTreeSet;
use std::sync::Arc;

use dormouse_proto::effect::RepeatRule;
use dormouse_proto::record::Fact;
use dormouse_proto::server::OfferedTool;
use dormouse_proto::tool::{Answer, ExternalTool, ToolSpec};

use super::decide::Draft;
use super::program_cache::ProgramCache;
use super::toolbox::{HostContext, apply_overrides};
use super::{Effect, Image, offered_tool};
use dormouse_program::{
    EnabledServer, EnabledTool, Program, ServedTools, is_tool_name, replace_invalid_chars,
};

/// Maximum length of a tool name that providers accept, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// The program selects a tool that the server does not offer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the tool server `{server}` offers no tool `{tool}`. It offers: {offered}")]
pub struct MissingMcpTool {
    /// Name of the server.
    pub server: Arc<str>,
    /// Name of the missing tool.
    pub tool: String,
    /// The tools that the server offers, as a comma-separated list.
    pub offered: String,
}

/// Adds the tools of tool servers that the program selects to the image of a new process. `offers`
/// holds every tool of every server. A tool gets the alias that the program sets, or its own name
/// with the prefix of its server; names are unique, also among the tools that the provider runs. If
/// tools of several servers would get the same name, none of them gets it: which tool a name means
/// does not depend on the order of the servers, nor on which of them can be reached.
///
/// # Errors
/// [`MissingMcpTool`] if a selected tool is missing and its server is not optional.
pub fn add_mcp_tools(
    image: &mut Image,
    program: &Program,
    offers: &[OfferedTool],
) -> Result<(), MissingMcpTool> {
    let tools = (&*image.tools, &*image.external);
    (image.tools, image.external) = with_mcp_tools(tools, program, offers)?;
    Ok(())
}

/// The tools of a process: their descriptions, and those of them that run outside of the machine.
pub type ProcessTools = (Arc<[ToolSpec]>, Arc<[ExternalTool]>);

/// The tools that a new process of the program would get.
///
/// # Errors
/// As [`add_mcp_tools`].
pub fn tools_of_new_process(
    program: &Program,
    host: &HostContext,
    offers: &[OfferedTool],
) -> Result<ProcessTools, MissingMcpTool> {
    let toolbox = &ProgramCache::for_program(program, host).toolbox;
    let tools = (&*toolbox.specs(), &*toolbox.external_tools());
    with_mcp_tools(tools, program, offers)
}

/// Adds the tools of tool servers that the program selects to the other tools of a process.
fn with_mcp_tools(
    (specs, external): (&[ToolSpec], &[ExternalTool]),
    program: &Program,
    offers: &[OfferedTool],
) -> Result<ProcessTools, MissingMcpTool> {
    let mut tool_list = ToolList {
        reserved: specs
            .iter()
            .map(|spec| spec.name.clone())
            .chain(aliases(program))
            .chain(program.provider_tool_names().map(Arc::from))
            .chain(ambiguous_names(program, offers))
            .collect(),
        specs: specs.to_vec(),
        external: external.to_vec(),
    };
    for enabled_server in program.servers() {
        let offered: Vec<&OfferedTool> = offers
            .iter()
            .filter(|offer| offer.server == enabled_server.server.name)
            .collect();
        match &enabled_server.served {
            ServedTools::All => offered.iter().for_each(|offer| {
                tool_list.add_tool(
                    enabled_server,
                    offer,
                    &EnabledTool::plain(offer.name.to_string()),
                )
            }),
            ServedTools::Named(tools) => {
                for tool in tools {
                    match offered.iter().find(|offer| *offer.name == *tool.name) {
                        Some(offer) => tool_list.add_tool(enabled_server, offer, tool),
                        None if enabled_server.server.optional => {}
                        None => return Err(missing_tool_error(enabled_server, tool, &offered)),
                    }
                }
            }
        }
    }
    Ok((tool_list.specs.into(), tool_list.external.into()))
}

impl Draft {
    /// Replaces the tools of the process, unless its conversation has begun: the next request would
    /// not begin with the bytes of the one before (HIST-1).
    pub(super) fn replace_tools_for_host(
        &mut self,
        request_id: Arc<str>,
        tools: Arc<[ToolSpec]>,
        external: Arc<[ExternalTool]>,
    ) {
        let answer = if self.state.messages.is_empty() {
            self.emit(Fact::ToolsReplaced { tools, external });
            Answer::shown("The tools were replaced.")
        } else {
            Answer::failed(
                "its conversation has begun, and its model keeps the tools that it knows",
            )
        };
        self.schedule(Effect::AnswerHost { request_id, answer });
    }
}

/// The aliases that the program gives to tools of tool servers.
fn aliases(program: &Program) -> impl Iterator<Item = Arc<str>> {
    let named = program
        .servers()
        .iter()
        .flat_map(|enabled_server| enabled_server.served.named());
    named.filter_map(|tool| tool.alias.as_deref().map(Arc::from))
}

/// The names that tools of several servers would get.
fn ambiguous_names(program: &Program, offers: &[OfferedTool]) -> BTreeSet<Arc<str>> {
    let (mut names, mut ambiguous) = (BTreeSet::new(), BTreeSet::new());
    for enabled_server in program.servers() {
        let is_served = |offer: &&OfferedTool| {
            offer.server == enabled_server.server.name
                && match &enabled_server.served {
                    ServedTools::All => true,
                    ServedTools::Named(tools) => tools
                        .iter()
                        .any(|tool| tool.alias.is_none() && *tool.name == *offer.name),
                }
        };
        let of_this_server: BTreeSet<Arc<str>> = offers
            .iter()
            .filter(is_served)
            .map(|offer| short_name(enabled_server, &offer.name).into())
            .collect();
        ambiguous.extend(names.intersection(&of_this_server).cloned());
        names.extend(of_this_server);
    }
    ambiguous
}

/// The name of a tool with the prefix of its server.
fn short_name(enabled_server: &EnabledServer, tool: &str) -> String {
    let name = replace_invalid_chars(&format!("{}{tool}", enabled_server.prefix));
    with_suffix(&name, "")
}

/// The tools of a new process while tools of tool servers are added.
struct ToolList {
    /// Names that a further tool must not get.
    reserved: BTreeSet<Arc<str>>,
    specs: Vec<ToolSpec>,
    external: Vec<ExternalTool>,
}

impl ToolList {
    fn add_tool(
        &mut self,
        enabled_server: &EnabledServer,
        offer: &OfferedTool,
        tool: &EnabledTool,
    ) {
        let name = match &tool.alias {
            Some(alias) => alias.as_str().into(),
            None => self.reserve_unused_name(enabled_server, &offer.name),
        };
        // The description of a renamed tool states the original name, since the server's
        // instructions and its other tools refer to that name.
        let is_renamed =
            tool.alias.is_none() && *name != format!("{}{}", enabled_server.prefix, offer.name);
        let name_note = is_renamed.then(|| format!("(Its server calls it `{}`.)", offer.name));
        let (description, schema) = offered_tool::escape_tool(offer, name_note);
        let spec = ToolSpec {
            name,
            description,
            schema,
        };
        let spec = apply_overrides(spec, tool);
        let mut policy = offer.policy;
        policy.access = tool.access.unwrap_or(policy.access);
        let server = Some(offer.server.clone());
        let name = offer.name.clone();
        self.external.push(ExternalTool {
            name_for_model: spec.name.clone(),
            server,
            name,
            policy,
            repeat: RepeatRule::default(),
        });
        self.specs.push(spec);
    }

    /// Chooses and reserves a valid name: prefix and tool name; if that is taken, `server__tool`;
    /// if that is taken as well, `server__tool_2` and so on.
    fn reserve_unused_name(&mut self, enabled_server: &EnabledServer, tool: &str) -> Arc<str> {
        let qualified_name =
            replace_invalid_chars(&format!("{}__{tool}", enabled_server.server.name));
        let numbered =
            (2..).map(|number: usize| with_suffix(&qualified_name, &format!("_{number}")));
        let candidates = [
            short_name(enabled_server, tool),
            with_suffix(&qualified_name, ""),
        ];
        let unused = candidates
            .into_iter()
            .chain(numbered)
            .map(Arc::<str>::from)
            .find(|name| !name.is_empty() && !self.reserved.contains(name))
            .expect("there are more names than tools");
        debug_assert!(is_tool_name(&unused), "{unused}");
        self.reserved.insert(unused.clone());
        unused
    }
}

/// Appends a suffix to an ASCII name, which is truncated so that both fit into the maximum length.
fn with_suffix(name: &str, suffix: &str) -> String {
    let len = name.len().min(MAX_NAME_BYTES - suffix.len());
    format!("{}{suffix}", &name[..len])
}

fn missing_tool_error(
    enabled_server: &EnabledServer,
    tool: &EnabledTool,
    offered: &[&OfferedTool],
) -> MissingMcpTool {
    let names: Vec<&str> = offered.iter().map(|offer| &*offer.name).collect();
    let offered = if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    };
    MissingMcpTool {
        server: enabled_server.server.name.clone(),
        tool: tool.name.clone(),
        offered,
    }
}
