//! Lists and calls the tools of a session's process, within the limits of calls that run and wait.
//! `tool_descriptions.rs` describes a tool to a client, `call_result.rs` builds the result of a
//! call, and `session_outputs.rs` keeps the descriptors that the call opened beyond the session.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use dormouse_actors::ports::CallObserver;
use dormouse_proto::tool::{Answer, Progress};
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ContentBlock, ErrorData, JsonObject, RequestMetaObject,
    Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Map, Value};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::call_result::{OutputSchema, build_result};
use crate::progress::forward_progress;
use crate::session_outputs::explain_unknown;
use crate::session_process::SessionProcess;
use crate::tool_descriptions::{ListedTools, describe_tool, list_tools_of_servers};
use crate::upstream::{Upstream, parse};

/// The most calls of a session that run at once. Further calls wait in order of arrival.
const MAX_RUNNING_CALLS: usize = 32;

/// The most calls of a session that wait. Further calls are refused.
const MAX_WAITING_CALLS: usize = 512;

/// Metadata of a request that concerns the connection of the client alone.
const CONNECTION_META: [&str; 5] = [
    "progressToken",
    "io.modelcontextprotocol/protocolVersion",
    "io.modelcontextprotocol/clientInfo",
    "io.modelcontextprotocol/clientCapabilities",
    "io.modelcontextprotocol/logLevel",
];

/// The tools of one session.
#[derive(Debug)]
pub(crate) struct SessionTools {
    call_permits: Arc<Semaphore>,
    waiting_calls: Arc<AtomicUsize>,
    /// What the servers say of their tools, as it was last listed.
    listed_tools: Mutex<Option<Arc<ListedTools>>>,
}

impl SessionTools {
    pub(crate) fn new() -> Self {
        Self {
            call_permits: Arc::new(Semaphore::new(MAX_RUNNING_CALLS)),
            waiting_calls: Arc::default(),
            listed_tools: Mutex::default(),
        }
    }

    /// The tools of the process, with what their servers say of them now.
    pub(crate) async fn list(
        &self,
        upstream: &Upstream,
        session_process: &SessionProcess,
    ) -> Vec<Tool> {
        let listed_tools = Arc::new(list_tools_of_servers(upstream).await);
        *self.last_listed() = Some(listed_tools.clone());
        let tools = &upstream.view().tools;
        let describe = |spec| {
            let spec: &dormouse_proto::tool::ToolSpec = spec;
            let listed_tool = listed_tools.get(&spec.name);
            let access = tools.access(&spec.name);
            describe_tool(&session_process.describe(spec), access, listed_tool)
        };
        tools.specs().iter().map(describe).collect()
    }

    /// Forgets what was listed: the tools of a server have changed.
    pub(crate) fn forget_list(&self) {
        *self.last_listed() = None;
    }

    /// Calls a tool of the process.
    pub(crate) async fn call(
        &self,
        upstream: &Upstream,
        session_process: &SessionProcess,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let specs = upstream.view().tools.specs();
        if !specs.iter().any(|spec| *spec.name == *request.name) {
            let mut why = format!(
                "there is no tool '{}'. tools/list shows those there are",
                request.name
            );
            for sentence in upstream.introductions().await.not_ready() {
                why = format!("{why}. {sentence}");
            }
            return Err(ErrorData::invalid_params(why, None));
        }
        let _permit = tokio::select! {
            permit = self.call_permit() => permit?,
            () = context.ct.cancelled() => {
                return Err(ErrorData::internal_error("cancelled before it began", None));
            }
        };
        let _running_call = session_process.client().running_call(context.id.clone());
        let output_schema = self.output_schema(upstream, &request.name).await;
        let mut arguments = request.arguments.unwrap_or_default();
        let process = upstream.process();
        let outputs = session_process.outputs.as_ref();
        if let Some(outputs) = outputs
            && let Err(error) = outputs.resolve_arguments(process, &mut arguments).await
        {
            let answer = ContentBlock::text(error.to_string());
            return Ok(CallToolResult::error(vec![answer]));
        }
        let call_arguments = Value::Object(arguments.clone()).to_string();
        let (progress_sender, progress) = watch::channel(None);
        let server_result = Arc::new(OnceLock::new());
        let observer = ClientObserver {
            progress: progress_sender,
            server_result: server_result.clone(),
            meta: passed_meta(&context.meta),
        };
        let cancelled = context.ct.cancelled();
        let calling = process.call_watched(request.name, call_arguments, cancelled, observer);
        let answer = match context.meta.get_progress_token() {
            None => calling.await,
            Some(token) => forward_progress(calling, progress, &context.peer, &token).await,
        };
        let answer = answer.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        let server_result = server_result.get().cloned().and_then(parse);
        let mut result = build_result(process, answer.clone(), server_result, output_schema).await;
        let notice = match outputs {
            Some(_) if answer.is_error => explain_unknown(process, &arguments).await,
            // A result that passed as its server wrote it shows no descriptor.
            Some(outputs) if shows(&result, &answer) => outputs.keep_opened(process, &answer).await,
            _ => None,
        };
        result.content.extend(notice.map(ContentBlock::text));
        Ok(result)
    }

    /// Whether clients know a schema of the tool's results. Lists the tools if a client calls one
    /// without having listed them.
    async fn output_schema(&self, upstream: &Upstream, tool: &str) -> OutputSchema {
        let listed = self.last_listed().clone();
        let listed = match listed {
            Some(listed) => listed,
            None => {
                let listed = Arc::new(list_tools_of_servers(upstream).await);
                *self.last_listed() = Some(listed.clone());
                listed
            }
        };
        match listed
            .get(tool)
            .and_then(|tool| tool.output_schema.as_ref())
        {
            Some(_) => OutputSchema::Declared,
            None => OutputSchema::Absent,
        }
    }

    fn last_listed(&self) -> std::sync::MutexGuard<'_, Option<Arc<ListedTools>>> {
        self.listed_tools
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
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

/// Whether a result begins with the text of the answer.
fn shows(result: &CallToolResult, answer: &Answer) -> bool {
    let first = result.content.first().and_then(ContentBlock::as_text);
    first.is_some_and(|first| *first.text == *answer.text)
}

/// Counts a call as waiting until it is dropped, also if the request is cancelled.
struct WaitingCall(Arc<AtomicUsize>);

impl Drop for WaitingCall {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The client that waits for a call.
struct ClientObserver {
    progress: watch::Sender<Option<Progress>>,
    server_result: Arc<OnceLock<Value>>,
    meta: Option<JsonObject>,
}

impl CallObserver for ClientObserver {
    fn progress(&self, progress: Progress) {
        self.progress.send_replace(Some(progress));
    }

    fn server_result(&self, result: Value) {
        // A call has one result.
        let _ = self.server_result.set(result);
    }

    fn wants_server_result(&self) -> bool {
        true
    }

    fn request_meta(&self) -> Option<Map<String, Value>> {
        self.meta.clone()
    }
}

/// The metadata of a request that its server gets.
fn passed_meta(meta: &RequestMetaObject) -> Option<JsonObject> {
    let mut meta = meta.0.0.clone();
    meta.retain(|key, _| !CONNECTION_META.contains(&key.as_str()));
    (!meta.is_empty()).then_some(meta)
}
