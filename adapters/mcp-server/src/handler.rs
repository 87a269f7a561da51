//! The requests of a client, one by one: what its process is asked for each, and how the answers go
//! back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dormouse_actors::handle::Process;
use dormouse_actors::{KernelError, View};
use dormouse_proto::tool::{Access, ToolSpec};
use rmcp::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, DiscoverResult, ErrorData, Implementation,
    InitializeRequestParams, InitializeResult, JsonObject, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ProtocolVersion,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ServerCapabilities,
    ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::{RequestContext, RoleServer};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::answer;
use crate::progress::passed_on;
use crate::resources::{self, ResourceError};
use crate::seat::{NoSeat, Seat, standing};

/// Calls of a session that run side by side. Further ones wait for their turn, first come, first
/// served.
const CALLS_AT_ONCE: usize = 32;

/// Calls of a session that wait. One more is refused.
const CALLS_WAITING: usize = 512;

/// Entries of one page of a list.
const LISTED_AT_ONCE: usize = 250;

/// Whether all requests of a client come through one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sessions {
    /// They do: a pipe is one.
    Have,
    /// Those of a version of the protocol that has no sessions come one by one.
    OfOldVersions,
}

/// Answers the requests of one session.
#[derive(Clone, Debug)]
pub(crate) struct Handler {
    seat: Arc<Seat>,
    sessions: Sessions,
    turns: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
}

impl Handler {
    pub(crate) fn new(seat: Arc<Seat>, sessions: Sessions) -> Self {
        let (turns, waiting) = (Arc::new(Semaphore::new(CALLS_AT_ONCE)), Arc::default());
        Self {
            seat,
            sessions,
            turns,
            waiting,
        }
    }

    async fn process(&self, context: &RequestContext<RoleServer>) -> Result<Process, ErrorData> {
        let version = context.protocol_version();
        let has_none = version
            .is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str());
        let process = match self.sessions {
            Sessions::OfOldVersions if has_none => self.seat.shared().await.map_err(NoSeat::from),
            _ => self.seat.own().await,
        };
        process.map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }

    async fn view(&self, context: &RequestContext<RoleServer>) -> Result<View, ErrorData> {
        standing(&self.process(context).await?)
            .await
            .map_err(failed)
    }

    /// A place among the calls that run.
    async fn turn(&self) -> Result<OwnedSemaphorePermit, ErrorData> {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= CALLS_WAITING {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            let why = format!(
                "{CALLS_WAITING} calls of this session wait already: wait for answers, then call \
                 again"
            );
            return Err(ErrorData::internal_error(why, None));
        }
        let _waits = Waits(self.waiting.clone());
        let turn = self.turns.clone().acquire_owned().await;
        turn.map_err(|_| ErrorData::internal_error("the session is over", None))
    }
}

/// Somebody waits for as long as this lives.
struct Waits(Arc<AtomicUsize>);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn failed(error: KernelError) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .build();
        let this = Implementation::new("dormouse", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(capabilities).with_server_info(this)
    }

    async fn initialize(
        &self,
        mut request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        let result = self.negotiate_initialize(&request)?;
        // By the version that was agreed on, so that this is the process that later requests mean.
        request.protocol_version = result.protocol_version.clone();
        context.peer.set_peer_info(request);
        Ok(result.with_instructions(&*self.view(&context).await?.system))
    }

    async fn discover(
        &self,
        context: RequestContext<RoleServer>,
    ) -> Result<DiscoverResult, ErrorData> {
        let instructions = self.view(&context).await?.system;
        let versions = self.supported_protocol_versions().into_owned();
        Ok(DiscoverResult::from_server_info(
            versions,
            self.get_info().with_instructions(&*instructions),
        ))
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let view = self.view(&context).await?;
        let (tools, next_cursor) = page(view.tools.specs(), request)?;
        let tools = tools
            .iter()
            .map(|spec| tool(spec, view.tools.access(&spec.name)))
            .collect();
        Ok(ListToolsResult {
            next_cursor,
            ..ListToolsResult::with_all_items(tools)
        })
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let process = self.process(&context).await?;
        let view = standing(&process).await.map_err(failed)?;
        if !view
            .tools
            .specs()
            .iter()
            .any(|spec| *spec.name == *request.name)
        {
            let why = format!(
                "there is no tool '{}'. tools/list shows those there are",
                request.name
            );
            return Err(ErrorData::invalid_params(why, None));
        }
        let cancelled = context.ct.cancelled();
        let turn = tokio::select! {
            turn = self.turn() => turn?,
            () = cancelled => return Err(ErrorData::internal_error("cancelled before it began", None)),
        };
        let arguments =
            serde_json::Value::Object(request.arguments.unwrap_or_default()).to_string();
        let given_up = context.ct.cancelled();
        let answer = match context.meta.get_progress_token() {
            None => process.call_until(request.name, arguments, given_up).await,
            Some(token) => {
                let (tell, told) = watch::channel(None);
                let watcher = move |progress| drop(tell.send_replace(Some(progress)));
                let calling = process.call_watched(request.name, arguments, given_up, watcher);
                passed_on(calling, told, &context.peer, &token).await
            }
        };
        let answer = answer.map_err(failed)?;
        drop(turn);
        Ok(answer::result(&process, answer).await.into())
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let all = resources::list(&self.view(&context).await?);
        let (resources, next_cursor) = page(&all, request)?;
        Ok(ListResourcesResult {
            next_cursor,
            ..ListResourcesResult::with_all_items(resources.to_vec())
        })
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(vec![
            resources::template(),
        ]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let (view, page_chars) = (self.view(&context).await?, self.seat.page_chars());
        let reading =
            tokio::task::spawn_blocking(move || resources::read(&view, &request.uri, page_chars));
        let read = reading
            .await
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        let contents = read.map_err(|error| match error {
            ResourceError::Unknown(_) => ErrorData::resource_not_found(error.to_string(), None),
            ResourceError::Page { .. } | ResourceError::TooLarge(..) => {
                ErrorData::invalid_params(error.to_string(), None)
            }
            ResourceError::Unreadable(..) => ErrorData::internal_error(error.to_string(), None),
        })?;
        Ok(ReadResourceResult::new(vec![contents]).into())
    }
}

/// The part of a list that a cursor, the number of entries before it, points to, and the cursor
/// behind that.
fn page<T>(
    all: &[T],
    request: Option<PaginatedRequestParams>,
) -> Result<(&[T], Option<String>), ErrorData> {
    let first = match request.and_then(|request| request.cursor) {
        None => 0,
        Some(cursor) => cursor
            .parse()
            .ok()
            .filter(|first| *first <= all.len())
            .ok_or_else(|| {
                ErrorData::invalid_params(
                    format!("'{cursor}' is no cursor of this list: begin again without one"),
                    None,
                )
            })?,
    };
    let end = all.len().min(first + LISTED_AT_ONCE);
    Ok((&all[first..end], (end < all.len()).then(|| end.to_string())))
}

/// A tool as a client is told of it. There is no schema of outputs, since a large output is
/// answered by its preview.
fn tool(spec: &ToolSpec, access: Option<Access>) -> Tool {
    // A schema that is not an object takes anything: the tool itself says what it does not take.
    let schema: JsonObject = serde_json::from_str(&spec.schema).unwrap_or_default();
    let tool = Tool::new(spec.name.to_string(), spec.description.to_string(), schema);
    match access {
        Some(Access::Read) => tool.with_annotations(ToolAnnotations::new().read_only(true)),
        _ => tool,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(cursor: &str) -> Option<PaginatedRequestParams> {
        let mut asked = PaginatedRequestParams::default();
        asked.cursor = Some(cursor.to_owned());
        Some(asked)
    }

    #[test]
    fn a_long_list_comes_in_pages_that_join_to_it() {
        let all: Vec<_> = (0..600).collect();
        let (mut seen, mut request) = (Vec::new(), None);
        loop {
            let (part, next) = page(&all, request).unwrap();
            seen.extend_from_slice(part);
            match next {
                Some(cursor) => request = asks(&cursor),
                None => break,
            }
        }
        assert_eq!(seen, all);
        for wrong in ["x", "-1", "601"] {
            assert!(page(&all, asks(wrong)).is_err(), "{wrong}");
        }
    }
}
