//! Adds the tools of MCP servers to the image of a new process.
//!
//! The tools are chosen once, from what the servers offer at birth, and are part of the image. A
//! later change of the offer or a restart of the kernel therefore does not change the bytes that
//! the model is sent (HIST-1).

use std::collections::BTreeSet;
use std::sync::Arc;

use dormouse_proto::server::Offer;
use dormouse_proto::tool::{OutsideTool, ToolSpec};

use super::toolbox::{HostContext, apply_choice};
use super::{Image, offered_tool};
use dormouse_program::{Program, Served, ServerChoice, ToolChoice, is_tool_name};

/// Longest tool name that providers accept, in bytes.
const LONGEST_NAME: usize = 64;

/// The program selects a tool that the server does not offer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the tool server `{server}` offers no tool `{tool}`. It offers: {offered}")]
pub struct MissingServerTool {
    /// Name of the server.
    pub server: Arc<str>,
    /// Name of the missing tool.
    pub tool: String,
    /// The tools that the server offers, as a comma-separated list.
    pub offered: String,
}

/// Adds the server tools that the program selects to the tools of an unborn process. A tool is
/// called `server__tool` unless the program names it; names are unique.
///
/// # Errors
/// [`MissingServerTool`] if a selected tool is missing and its server is not optional.
pub fn add_server_tools(
    image: &mut Image,
    program: &Program,
    host: &HostContext,
    offers: &[Offer],
) -> Result<(), MissingServerTool> {
    let mut list = ToolList {
        // Kernel tool names are reserved even if the program does not use them.
        reserved: image
            .tools
            .iter()
            .map(|spec| spec.name.clone())
            .chain(aliases(program))
            .chain(host.kernel_tools.names().map(Arc::from))
            .collect(),
        specs: image.tools.to_vec(),
        outside: image.outside.to_vec(),
    };
    for choice in program.servers() {
        let offered: Vec<&Offer> = offers
            .iter()
            .filter(|offer| offer.server == choice.server.name)
            .collect();
        match &choice.served {
            Served::All => offered.iter().for_each(|offer| {
                list.add(choice, offer, &ToolChoice::plain(offer.name.to_string()))
            }),
            Served::Named(tools) => {
                for tool in tools {
                    match offered.iter().find(|offer| *offer.name == *tool.name) {
                        Some(offer) => list.add(choice, offer, tool),
                        None if choice.server.optional => {}
                        None => return Err(not_offered(choice, tool, &offered)),
                    }
                }
            }
        }
    }
    (image.tools, image.outside) = (list.specs.into(), list.outside.into());
    Ok(())
}

/// The aliases that the program gives to server tools.
fn aliases(program: &Program) -> impl Iterator<Item = Arc<str>> {
    let named = program
        .servers()
        .iter()
        .filter_map(|choice| match &choice.served {
            Served::All => None,
            Served::Named(tools) => Some(tools),
        });
    named
        .flatten()
        .filter_map(|tool| tool.alias.as_deref().map(Arc::from))
}

struct ToolList {
    reserved: BTreeSet<Arc<str>>,
    specs: Vec<ToolSpec>,
    outside: Vec<OutsideTool>,
}

impl ToolList {
    fn add(&mut self, choice: &ServerChoice, offer: &Offer, tool: &ToolChoice) {
        let name = match &tool.alias {
            Some(alias) => alias.as_str().into(),
            None => self.free_name(choice, &offer.name),
        };
        // The description says how the server calls the tool, since the server's instructions and
        // its other tools refer to that name.
        let is_renamed =
            tool.alias.is_none() && *name != format!("{}{}", choice.prefix, offer.name);
        let remark = is_renamed.then(|| format!("(Its server calls it `{}`.)", offer.name));
        let (description, schema) = offered_tool::escaped(offer, remark);
        let spec = ToolSpec {
            name,
            description,
            schema,
        };
        let spec = apply_choice(spec, tool);
        let mut policy = offer.policy;
        policy.access = tool.access.unwrap_or(policy.access);
        let server = Some(offer.server.clone());
        let name = offer.name.clone();
        self.outside.push(OutsideTool {
            given: spec.name.clone(),
            server,
            name,
            policy,
        });
        self.specs.push(spec);
    }

    /// A valid and unused name: prefix and tool name; if that is reserved, `server__tool`; if that
    /// is reserved as well, the same with a number.
    fn free_name(&mut self, choice: &ServerChoice, tool: &str) -> Arc<str> {
        let short = valid_name(&format!("{}{tool}", choice.prefix));
        let full = valid_name(&format!("{}__{tool}", choice.server.name));
        let numbered = (2..).map(|number: usize| with_suffix(&full, &format!("_{number}")));
        let candidates = [with_suffix(&short, ""), with_suffix(&full, "")];
        let free = candidates
            .into_iter()
            .chain(numbered)
            .map(Arc::<str>::from)
            .find(|name| !name.is_empty() && !self.reserved.contains(name))
            .expect("there are more names than tools");
        debug_assert!(is_tool_name(&free), "{free}");
        self.reserved.insert(free.clone());
        free
    }
}

/// Replaces every character that providers do not accept in a tool name.
fn valid_name(name: &str) -> String {
    name.chars()
        .map(|c| match c {
            '_' | '-' => c,
            c if c.is_ascii_alphanumeric() => c,
            _ => '_',
        })
        .collect()
}

/// The name with a suffix, truncated so that both fit. `name` is ASCII.
fn with_suffix(name: &str, suffix: &str) -> String {
    let len = name.len().min(LONGEST_NAME - suffix.len());
    format!("{}{suffix}", &name[..len])
}

fn not_offered(choice: &ServerChoice, tool: &ToolChoice, offered: &[&Offer]) -> MissingServerTool {
    let names: Vec<&str> = offered.iter().map(|offer| &*offer.name).collect();
    let offered = if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    };
    MissingServerTool {
        server: choice.server.name.clone(),
        tool: tool.name.clone(),
        offered,
    }
}
