//! Lists the tools that a server offers: its own tools, and two tools of this client that list and
//! read its resources.
//!
//! Lists are bounded. The server's `readOnlyHint` decides which access a process needs to call a
//! tool, unless the program says otherwise. No hint makes a call repeatable after a restart.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use dormouse_actors::ports::{Host, ToolError};
use dormouse_proto::server::{OfferedTool, Server};
use dormouse_proto::tool::{Access, ToolPolicy};
use rmcp::model::{ClientRequest, ListToolsRequest, PaginatedRequestParams, ServerResult, Tool};

use super::connection::Connection;
use super::list_source::ListSource;
use super::request_error::RequestError;
use super::resources;
use super::session::Session;

const MAX_PAGES: usize = 100;
const MAX_TOOLS: usize = 1_000;
/// The longest description of a tool, in characters.
const MAX_DESCRIPTION_CHARS: usize = 16_000;
/// The longest schema of a tool, in bytes. A tool with a longer one is not offered.
const MAX_SCHEMA_BYTES: usize = 256 << 10;
const MAX_NAME_BYTES: usize = 128;
/// The most bytes of names, descriptions and schemas of one server: models get them with every
/// request.
const MAX_LISTING_BYTES: usize = 2 << 20;
/// The largest output of a tool.
const OUTPUT_CAP_BYTES: u64 = 64 << 20;

/// Lists the tools that the server offers now, or those that it offered last if it does not run
/// ([`list_source`](super::list_source)).
///
/// # Errors
/// Why the tools cannot be listed.
pub(super) async fn offers(
    connection: &Arc<Connection>,
    host: &Arc<dyn Host>,
    max_start_wait: Option<Duration>,
) -> Result<Vec<OfferedTool>, ToolError> {
    let session = match connection.list_source(host, max_start_wait).await? {
        ListSource::Session(session) => session,
        ListSource::Known(lists) => {
            let server = connection.server();
            return Ok(to_offers(server, &lists.tools(), lists.has_resources()));
        }
    };
    let tools = list_tools(&session)
        .await
        .map_err(|error| format!("its tools cannot be listed: {error}."))?;
    if session.tool_changes() > 0 {
        tokio::spawn(connection.clone().fetch_changed_lists(session.clone()));
    }
    Ok(to_offers(session.server(), &tools, session.has_resources()))
}

/// The offers of a server with these tools.
fn to_offers(server: &Server, tools: &[Tool], has_resources: bool) -> Vec<OfferedTool> {
    let mut bytes_left = MAX_LISTING_BYTES;
    let mut offers: Vec<OfferedTool> = Vec::new();
    for offer in tools.iter().filter_map(|tool| to_offer(server, tool)) {
        match bytes_left
            .checked_sub(offer.name.len() + offer.description.len() + offer.schema.len())
        {
            Some(left) => bytes_left = left,
            None => {
                tracing::warn!(
                    server = &*server.name,
                    "the tools of a server are described at too great length: some are left out"
                );
                break;
            }
        }
        offers.push(offer);
    }
    if has_resources {
        let resource_tools = resources::offers(server);
        offers.extend(
            resource_tools
                .into_iter()
                .filter(|added| !tools.iter().any(|tool| *tool.name == *added.name)),
        );
    }
    offers
}

/// Lists the tools of the server. Of several tools with one name, only the first is listed.
pub(super) async fn list_tools(session: &Session) -> Result<Vec<Tool>, RequestError> {
    let changes = session.tool_changes();
    let mut tools = Vec::new();
    let mut names = BTreeSet::new();
    let mut cursor = None;
    for _ in 0..MAX_PAGES {
        if !session.has_tools() {
            break;
        }
        let params = PaginatedRequestParams::default().with_cursor(cursor.take());
        let request = ClientRequest::ListToolsRequest(ListToolsRequest::with_param(params));
        let ServerResult::ListToolsResult(page) = session
            .request_within(request, session.server().connect_ms)
            .await?
        else {
            return Err(RequestError::UnexpectedResult);
        };
        let new_tools = page
            .tools
            .into_iter()
            .filter(|tool| names.insert(tool.name.to_string()));
        tools.extend(new_tools.take(MAX_TOOLS - tools.len()));
        cursor = page.next_cursor;
        if cursor.is_none() || tools.len() == MAX_TOOLS {
            break;
        }
    }
    if cursor.is_some() {
        tracing::warn!(
            server = &*session.server().name,
            tools = tools.len(),
            "a server lists too many tools: some are left out"
        );
    }
    session.remember_own_tools(changes, names);
    Ok(tools)
}

/// Describes a tool as an offer; `None` if its name or schema is not usable.
fn to_offer(server: &Server, tool: &Tool) -> Option<OfferedTool> {
    let schema =
        serde_json::to_string(&*tool.input_schema).expect("what was read from JSON is JSON");
    let is_named =
        (1..=MAX_NAME_BYTES).contains(&tool.name.len()) && !tool.name.contains(char::is_control);
    if schema.len() > MAX_SCHEMA_BYTES || !is_named {
        tracing::warn!(
            server = &*server.name,
            "a tool is left out: its schema is too large, or its name is not valid"
        );
        return None;
    }
    let hints = tool.annotations.as_ref();
    let is_read_only = hints.is_some_and(|hints| hints.read_only_hint == Some(true));
    let title = || {
        hints
            .and_then(|hints| hints.title.clone())
            .or_else(|| tool.title.clone())
    };
    let description = tool
        .description
        .as_deref()
        .map(str::to_owned)
        .or_else(title)
        .unwrap_or_default();
    let access = if is_read_only {
        Access::Read
    } else {
        Access::Write
    };
    Some(OfferedTool {
        server: server.name.clone(),
        name: tool.name.as_ref().into(),
        description: description
            .chars()
            .take(MAX_DESCRIPTION_CHARS)
            .collect::<String>()
            .into(),
        schema: schema.into(),
        policy: tool_policy(server, access),
    })
}

/// The policy of a tool of the server. A call that was in flight when the kernel stopped is not
/// repeated, even if the server hints that it may be, since a hint is not a promise (CALL-2).
fn tool_policy(server: &Server, access: Access) -> ToolPolicy {
    let output_cap_bytes = OUTPUT_CAP_BYTES;
    ToolPolicy {
        access,
        idempotent: false,
        // The adapter ends a call earlier if the server is silent (`Session::call`).
        deadline_ms: server.max_duration_ms,
        output_cap_bytes,
    }
}

/// The policy of the tools that read resources. By the protocol, reading changes nothing, so a call
/// may be repeated.
pub(super) fn reading_policy(server: &Server) -> ToolPolicy {
    ToolPolicy {
        idempotent: true,
        ..tool_policy(server, Access::Read)
    }
}
