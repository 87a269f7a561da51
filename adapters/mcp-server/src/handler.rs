//! Answers the requests of a client: translates each request into calls of the session's process,
//! and the outcome into a response of the protocol.

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

use crate::call_result;
use crate::progress::forward_progress;
use crate::resources::{self, ResourceError};
use crate::session_process::{NoProcess, SessionProcess, current_view};

/// The most calls of a session that run at once. Further calls wait in order of arrival.
const MAX_RUNNING_CALLS: usize = 32;

/// The most calls of a session that wait. Further calls are refused.
const MAX_WAITING_CALLS: usize = 512;

/// The most entries in one page of a list.
const LIST_PAGE_ENTRIES: usize = 250;

/// Which requests of a client belong to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sessions {
    /// All requests belong to one session, as over a pipe.
    PerConnection,
    /// Over HTTP, only the older versions of the protocol have sessions.
    OldVersionsOnly,
}

/// Answers the requests of one session.
#[derive(Clone, Debug)]
pub(crate) struct Handler {
    session_process: Arc<SessionProcess>,
    sessions: Sessions,
    call_permits: Arc<Semaphore>,
    waiting_calls: Arc<AtomicUsize>,
}

impl Handler {
    pub(crate) fn new(session_process: Arc<SessionProcess>, sessions: Sessions) -> Self {
        Self {
            session_process,
            sessions,
            call_permits: Arc::new(Semaphore::new(MAX_RUNNING_CALLS)),
            waiting_calls: Arc::default(),
        }
    }

    /// The process that executes the requests of this client.
    async fn process(&self, context: &RequestContext<RoleServer>) -> Result<Process, ErrorData> {
        let version = context.protocol_version();
        let is_sessionless = version
            .is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str());
        let process = match self.sessions {
            Sessions::OldVersionsOnly if is_sessionless => {
                self.session_process.shared().await.map_err(NoProcess::from)
            }
            _ => self.session_process.for_session().await,
        };
        process.map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }

    async fn view(&self, context: &RequestContext<RoleServer>) -> Result<View, ErrorData> {
        current_view(&self.process(context).await?)
            .await
            .map_err(internal_error)
    }

    /// Waits for a permit to run another call of the session.
    async fn call_permit(&self) -> Result<OwnedSemaphorePermit, ErrorData> {
        if self.waiting_calls.fetch_add(1, Ordering::Relaxed) >= MAX_WAITING_CALLS {
            self.waiting_calls.fetch_sub(1, Ordering::Relaxed);
            let why = format!(
                "{MAX_WAITING_CALLS} calls of this session wait already: wait for answers, then \
                 call again"
            );
            return Err(ErrorData::internal_error(why, None));
        }
        let _waiting_call = WaitingCall(self.waiting_calls.clone());
        let permit = self.call_permits.clone().acquire_owned().await;
        permit.map_err(|_| ErrorData::internal_error("the session is over", None))
    }
}

/// Counts a call as waiting until it is dropped, also if the request is cancelled.
struct WaitingCall(Arc<AtomicUsize>);

impl Drop for WaitingCall {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn internal_error(error: KernelError) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .build();
        let server_info = Implementation::new("dormouse", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(capabilities).with_server_info(server_info)
    }

    async fn initialize(
        &self,
        mut request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        let result = self.negotiate_initialize(&request)?;
        // The process depends on the negotiated version, not on the requested one, so that later
        // requests find the same process.
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
        let (tools, next_cursor) = list_page(view.tools.specs(), request)?;
        let tools = tools
            .iter()
            .map(|spec| describe_tool(spec, view.tools.access(&spec.name)))
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
        let view = current_view(&process).await.map_err(internal_error)?;
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
        let permit = tokio::select! {
            permit = self.call_permit() => permit?,
            () = cancelled => return Err(ErrorData::internal_error("cancelled before it began", None)),
        };
        let arguments =
            serde_json::Value::Object(request.arguments.unwrap_or_default()).to_string();
        let call_cancelled = context.ct.cancelled();
        let answer = match context.meta.get_progress_token() {
            None => {
                process
                    .call_until(request.name, arguments, call_cancelled)
                    .await
            }
            Some(token) => {
                let (sender, progress) = watch::channel(None);
                let watcher = move |progress| drop(sender.send_replace(Some(progress)));
                let calling =
                    process.call_watched(request.name, arguments, call_cancelled, watcher);
                forward_progress(calling, progress, &context.peer, &token).await
            }
        };
        let answer = answer.map_err(internal_error)?;
        drop(permit);
        Ok(call_result::build_result(&process, answer).await.into())
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let all = resources::list(&self.view(&context).await?);
        let (resources, next_cursor) = list_page(&all, request)?;
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
            resources::page_template(),
        ]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let view = self.view(&context).await?;
        let page_chars = self.session_process.page_chars();
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

/// One page of a list, and the cursor of the next page. A cursor is the number of entries before
/// the page.
fn list_page<T>(
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
    let end = all.len().min(first + LIST_PAGE_ENTRIES);
    Ok((&all[first..end], (end < all.len()).then(|| end.to_string())))
}

/// The description of a tool for clients. It has no output schema: the preview that replaces a
/// large output would not match one.
fn describe_tool(spec: &ToolSpec, access: Option<Access>) -> Tool {
    // A schema that is not an object is sent as an empty one, which accepts anything. The tool
    // itself checks its arguments.
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

    fn with_cursor(cursor: &str) -> Option<PaginatedRequestParams> {
        let mut requested = PaginatedRequestParams::default();
        requested.cursor = Some(cursor.to_owned());
        Some(requested)
    }

    #[test]
    fn the_pages_of_a_long_list_join_to_the_list() {
        let all: Vec<_> = (0..600).collect();
        let (mut seen, mut request) = (Vec::new(), None);
        loop {
            let (part, next) = list_page(&all, request).unwrap();
            seen.extend_from_slice(part);
            match next {
                Some(cursor) => request = with_cursor(&cursor),
                None => break,
            }
        }
        assert_eq!(seen, all);
        for wrong in ["x", "-1", "601"] {
            assert!(list_page(&all, with_cursor(wrong)).is_err(), "{wrong}");
        }
    }
}
