//! Answers the requests of a client: translates each request into calls of the session's process,
//! and the outcome into a response of the protocol.
//!
//! `session_process.rs` says which process a request gets, `session_tools.rs` lists and calls its
//! tools, `upstream.rs` asks the tool servers behind it, and `session_client.rs` passes on what
//! those servers ask or tell the client.

use std::sync::Arc;

use dormouse_actors::handle::Process;
use rmcp::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult, DiscoverResult,
    ErrorData, GetPromptRequestParams, GetPromptResponse, Implementation, InitializeRequestParams,
    InitializeResult, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult,
    ListToolsResult, PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams,
    ReadResourceResponse, ReadResourceResult, ServerConfig, SetLevelRequestMethod,
    SubscribeRequestParams, UnsubscribeRequestParams,
};
use rmcp::service::{NotificationContext, Peer, RequestContext, RoleServer};
use serde_json::json;

use crate::capabilities::{capabilities, own_capabilities};
use crate::notifications::forward_notifications;
use crate::prompts;
use crate::resources::{self, ResourceError};
use crate::server_resources;
use crate::session_client::SessionClient;
use crate::session_process::{NoProcess, SessionProcess, current_view};
use crate::session_tools::SessionTools;
use crate::upstream::{Introductions, ServerIntroduction, Upstream};

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
    tools: Arc<SessionTools>,
}

impl Handler {
    pub(crate) fn new(session_process: Arc<SessionProcess>, sessions: Sessions) -> Self {
        Self {
            session_process,
            sessions,
            tools: Arc::new(SessionTools::new()),
        }
    }

    /// The process that executes calls: that of the session. A request outside of a session is
    /// handled by a `Handler` of its own, and so has a process of its own: nothing tells which
    /// requests come from the same client.
    async fn calling_process(&self) -> Result<Process, ErrorData> {
        self.session_process
            .for_session()
            .await
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }

    /// The process whose tools and descriptors are listed for this client.
    async fn process(&self, context: &RequestContext<RoleServer>) -> Result<Process, ErrorData> {
        let process = if self.is_sessionless(context) {
            self.session_process.shared().await.map_err(NoProcess::from)
        } else {
            self.session_process.for_session().await
        };
        process.map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }

    /// Whether a request belongs to no session.
    fn is_sessionless(&self, context: &RequestContext<RoleServer>) -> bool {
        let version = context.protocol_version();
        self.sessions == Sessions::OldVersionsOnly
            && version
                .is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
    }

    /// The process of the request's session, and the servers behind it.
    async fn upstream(&self, context: &RequestContext<RoleServer>) -> Result<Upstream, ErrorData> {
        Upstream::of(self.process(context).await?).await
    }

    fn client(&self) -> &Arc<SessionClient> {
        self.session_process.client()
    }

    /// The instructions for a client: how to use descriptors, and those of the servers.
    fn instructions(&self, upstream: &Upstream, introductions: &Introductions) -> String {
        let own = self.session_process.instructions(&upstream.view().system);
        let introduced = introductions.introduced.iter();
        [own.into()]
            .into_iter()
            .chain(introduced.filter_map(ServerIntroduction::shown_instructions))
            .chain(introductions.not_ready())
            .collect::<Vec<_>>()
            .join("\n\n")
    }

    /// Forwards the notifications of the servers to the client, from its handshake on.
    fn forward_notifications(&self, upstream: &Upstream, peer: Peer<RoleServer>) {
        if let Some(notifications) = self.client().take_notifications() {
            tokio::spawn(forward_notifications(
                notifications,
                peer,
                upstream.process().clone(),
                Arc::downgrade(&self.tools),
            ));
        }
    }
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let server_info = Implementation::new("dormouse", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(own_capabilities()).with_server_info(server_info)
    }

    async fn initialize(
        &self,
        mut request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        let mut result = self.negotiate_initialize(&request)?;
        // The process depends on the negotiated version, not on the requested one, so that later
        // requests find the same process.
        request.protocol_version = result.protocol_version.clone();
        let peer = context.peer.clone();
        if let Some(head) = context.extensions.get::<http::request::Parts>() {
            self.client().keep_headers(head.headers.clone());
        }
        self.client().connect(
            peer.clone(),
            &request.capabilities,
            &result.protocol_version,
        );
        context.peer.set_peer_info(request);
        let upstream = self.upstream(&context).await?;
        let introductions = upstream.introductions().await;
        result.capabilities = capabilities(&introductions);
        result.instructions = Some(self.instructions(&upstream, &introductions));
        self.forward_notifications(&upstream, peer);
        Ok(result)
    }

    async fn discover(
        &self,
        context: RequestContext<RoleServer>,
    ) -> Result<DiscoverResult, ErrorData> {
        let upstream = self.upstream(&context).await?;
        let introductions = upstream.introductions().await;
        let mut info = self.get_info();
        info.capabilities = capabilities(&introductions);
        info.instructions = Some(self.instructions(&upstream, &introductions));
        let versions = self.supported_protocol_versions().into_owned();
        Ok(DiscoverResult::from_server_info(versions, info))
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let process = self.process(&context).await?;
        if self.is_sessionless(&context)
            && let Err(error) = process.update_mcp_tools().await
        {
            // No notification reaches the process of lists: it keeps what it has.
            tracing::warn!("the tools of the servers cannot be listed: {error}");
        }
        let upstream = Upstream::of(process).await?;
        let tools = self.tools.list(&upstream, &self.session_process).await;
        let (tools, next_cursor) = list_page(&tools, request)?;
        Ok(ListToolsResult {
            next_cursor,
            ..ListToolsResult::with_all_items(tools.to_vec())
        })
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let process = self.calling_process().await?;
        let upstream = Upstream::of(process).await?;
        let result = self
            .tools
            .call(&upstream, &self.session_process, request, &context)
            .await?;
        Ok(result.into())
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let all = prompts::list_prompts(&self.upstream(&context).await?).await;
        let (prompts, next_cursor) = list_page(&all, request)?;
        Ok(ListPromptsResult {
            next_cursor,
            ..ListPromptsResult::with_all_items(prompts.to_vec())
        })
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        prompts::get_prompt(&self.upstream(&context).await?, request).await
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        prompts::complete(&self.upstream(&context).await?, request).await
    }

    #[expect(
        deprecated,
        reason = "servers and clients of earlier versions log by it"
    )]
    async fn set_level(
        &self,
        request: rmcp::model::SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let upstream = self.upstream(&context).await?;
        let servers = upstream
            .servers_with(|capabilities| capabilities.logging.is_some())
            .await;
        if servers.is_empty() {
            return Err(ErrorData::method_not_found::<SetLevelRequestMethod>());
        }
        let params = json!(request);
        let mut result = Ok(());
        for enabled in servers {
            let answer = upstream
                .request(&enabled.server, "logging/setLevel", params.clone())
                .await;
            // A server that refuses does not keep the level from the others.
            result = result.and(answer.map(drop));
        }
        result
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let upstream = self.upstream(&context).await?;
        let (params, uri) = (json!(request), &request.uri);
        server_resources::request_resource(&upstream, "resources/subscribe", &params, uri).await?;
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let upstream = self.upstream(&context).await?;
        let (params, uri) = (json!(request), &request.uri);
        server_resources::request_resource(&upstream, "resources/unsubscribe", &params, uri)
            .await?;
        Ok(())
    }

    async fn on_roots_list_changed(&self, _context: NotificationContext<RoleServer>) {
        if let Ok(process) = self.session_process.for_session().await {
            process
                .notify_servers("notifications/roots/list_changed", json!({}))
                .await;
        }
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let upstream = self.upstream(&context).await?;
        let mut all = resources::list(upstream.view());
        all.extend(server_resources::list(&upstream).await);
        let (resources, next_cursor) = list_page(&all, request)?;
        Ok(ListResourcesResult {
            next_cursor,
            ..ListResourcesResult::with_all_items(resources.to_vec())
        })
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let upstream = self.upstream(&context).await?;
        let mut all = vec![resources::page_template()];
        all.extend(server_resources::list_templates(&upstream).await);
        Ok(ListResourceTemplatesResult::with_all_items(all))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        if !resources::is_descriptor(&request.uri) {
            return server_resources::read(&self.upstream(&context).await?, request).await;
        }
        let outputs = self.session_process.outputs.as_ref();
        let (process, uri) = match outputs.zip(resources::kept_name(&request.uri)) {
            Some((outputs, name)) => {
                let process = self.calling_process().await?;
                let opened = outputs.descriptor(&process, &name).await;
                let id = opened
                    .map_err(|error| ErrorData::resource_not_found(error.to_string(), None))?;
                (process, request.uri.replace(name.as_str(), &id.to_string()))
            }
            None => (self.process(&context).await?, request.uri.clone()),
        };
        let view = current_view(&process).await;
        let view = view.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        let page_chars = self.session_process.page_chars();
        let reading = tokio::task::spawn_blocking(move || {
            resources::read(&view, &uri, &request.uri, page_chars)
        });
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
                    format!("'{cursor}' is not a cursor of this list: begin again without one"),
                    None,
                )
            })?,
    };
    let end = all.len().min(first + LIST_PAGE_ENTRIES);
    Ok((&all[first..end], (end < all.len()).then(|| end.to_string())))
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
