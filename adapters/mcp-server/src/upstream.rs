//! The upstream of a session: the tool servers of its process, which are asked for more than their
//! tools: prompts, resources, completions, log messages. Requests are passed on, and results come
//! back as the servers wrote them, except for texts: they are marked as text from outside, and
//! large ones become descriptors.

use std::sync::Arc;

use dormouse_actors::ProcessView;
use dormouse_actors::handle::Process;
use dormouse_actors::ports::{ServerRequestError, ToolError};
use dormouse_kernel::program::{EnabledServer, ServedTools};
use dormouse_proto::server::Server;
use dormouse_proto::shown::ShownText;
use futures_util::future::join_all;
use rmcp::model::{ErrorCode, ErrorData, ServerCapabilities};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::session_process::current_view;

/// The most pages of one list of a server.
const MAX_LIST_PAGES: usize = 100;
/// The most entries of one list of a server. Further ones are left out.
const MAX_LIST_ENTRIES: usize = 10_000;
/// The most characters of the instructions of one server.
const MAX_INSTRUCTION_CHARS: usize = 16_000;

/// The servers of a process, as its program names them.
pub(crate) struct Upstream {
    process: Process,
    view: ProcessView,
}

/// A server, and what it said of itself.
pub(crate) struct ServerIntroduction {
    pub(crate) enabled: EnabledServer,
    pub(crate) capabilities: ServerCapabilities,
    instructions: Option<String>,
}

/// What the servers of a process say of themselves.
#[derive(Default)]
pub(crate) struct Introductions {
    pub(crate) introduced: Vec<ServerIntroduction>,
    /// The names of the others, and why they cannot be reached.
    not_ready: Vec<(Arc<str>, ToolError)>,
}

impl Upstream {
    /// The servers of a process.
    pub(crate) async fn of(process: Process) -> Result<Self, ErrorData> {
        let view = current_view(&process).await;
        let view = view.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        Ok(Self { process, view })
    }

    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    pub(crate) fn view(&self) -> &ProcessView {
        &self.view
    }

    /// The servers that the program names. Each has the selection of its tools, and the prefix that
    /// the program gives to its names.
    pub(crate) fn servers(&self) -> &[EnabledServer] {
        self.view.program.servers()
    }

    /// What each server says of itself.
    pub(crate) async fn introductions(&self) -> Introductions {
        let introduced = self.servers().iter().map(|enabled| async {
            let introduction = self.process.server_introduction(&enabled.server).await;
            let introduction = introduction.map_err(|why| {
                let name = enabled.server.name.clone();
                tracing::warn!(server = &*name, "not reached: {why}");
                (name, why)
            })?;
            Ok(ServerIntroduction {
                enabled: enabled.clone(),
                capabilities: parse(introduction["capabilities"].clone()).unwrap_or_default(),
                instructions: introduction["instructions"].as_str().map(str::to_owned),
            })
        });
        let mut introductions = Introductions::default();
        for introduced in join_all(introduced).await {
            match introduced {
                Ok(introduced) => introductions.introduced.push(introduced),
                Err(not_ready) => introductions.not_ready.push(not_ready),
            }
        }
        introductions
    }

    /// The servers with a capability.
    pub(crate) async fn servers_with(
        &self,
        has: impl Fn(&ServerCapabilities) -> bool,
    ) -> Vec<EnabledServer> {
        let introduced = self.introductions().await.introduced;
        introduced
            .into_iter()
            .filter(|introduced| has(&introduced.capabilities))
            .map(|introduced| introduced.enabled)
            .collect()
    }

    /// The servers whose resources the program lets clients read.
    pub(crate) async fn servers_with_resources(&self) -> Vec<EnabledServer> {
        let mut servers = self
            .servers_with(|capabilities| capabilities.resources.is_some())
            .await;
        servers.retain(serves_resources);
        servers
    }

    /// Sends a request to a server.
    pub(crate) async fn request(
        &self,
        server: &Arc<Server>,
        method: &str,
        params: Value,
    ) -> Result<Value, ErrorData> {
        let answer = self.process.request_server(server, method, params).await;
        answer.map_err(to_error_data)
    }

    /// Sends a request to one server after the other, until one answers without an error.
    ///
    /// # Errors
    /// That of the last server; without a server, `none`.
    pub(crate) async fn request_first(
        &self,
        servers: &[EnabledServer],
        (method, params): (&str, &Value),
        none: ErrorData,
    ) -> Result<(EnabledServer, Value), ErrorData> {
        let mut last = none;
        for enabled in servers {
            match self.request(&enabled.server, method, params.clone()).await {
                Ok(result) => return Ok((enabled.clone(), result)),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// All entries of a list of a server; each page has its entries in the field `key`. A server
    /// that does not answer has none.
    pub(crate) async fn list<T: DeserializeOwned>(
        &self,
        server: &Arc<Server>,
        method: &str,
        key: &str,
    ) -> Vec<T> {
        let mut entries = Vec::new();
        let mut params = json!({});
        for _ in 0..MAX_LIST_PAGES {
            let page = self.request(server, method, params).await;
            let Ok(mut page) = page.inspect_err(|error| {
                tracing::warn!(server = &*server.name, method, "not listed: {error}");
            }) else {
                break;
            };
            if let Value::Array(page_entries) = page[key].take() {
                entries.extend(page_entries.into_iter().filter_map(parse));
            }
            match page["nextCursor"].take() {
                Value::String(cursor) if entries.len() < MAX_LIST_ENTRIES => {
                    params = json!({ "cursor": cursor });
                }
                _ => break,
            }
        }
        entries.truncate(MAX_LIST_ENTRIES);
        entries
    }

    /// Prepares a text of a server for the context of a client: a text that is too large becomes a
    /// descriptor, and the result is its first page. Any other text is marked as text from outside.
    /// `source` is where the text comes from.
    pub(crate) async fn place_text(&self, source: &str, text: String) -> Result<String, ErrorData> {
        let chars = text.chars().count() as u64;
        let settings = self.view.program.descriptors();
        let exceeded =
            settings.and_then(|settings| settings.exceeded_output_limit(chars, text.len() as u64));
        if exceeded.is_none() {
            return Ok(ShownText::outside(source, text).to_string());
        }
        let answer = self.process.open(source, text, None).await;
        let answer = answer.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        Ok(answer.text.to_string())
    }
}

impl Introductions {
    /// Whether the introduction of a server is missing because the server is not ready.
    pub(crate) fn is_incomplete(&self) -> bool {
        !self.not_ready.is_empty()
    }

    /// A sentence for each server that is not ready.
    pub(crate) fn not_ready(&self) -> impl Iterator<Item = String> {
        self.not_ready.iter().map(|(name, why)| {
            format!(
                "The tool server `{name}` is not ready, and none of its tools can be called: {why}"
            )
        })
    }
}

impl ServerIntroduction {
    /// The instructions of the server, under a line that names it; `None` if it has none.
    pub(crate) fn shown_instructions(&self) -> Option<String> {
        let name = &self.enabled.server.name;
        let instructions = self.instructions.as_deref()?.trim();
        if instructions.is_empty() {
            return None;
        }
        let beginning: String = instructions.chars().take(MAX_INSTRUCTION_CHARS).collect();
        let shown = ShownText::outside(&format!("server:{name}"), beginning);
        Some(format!(
            "Instructions of the tool server `{name}`:\n{shown}"
        ))
    }
}

/// Whether the program lets clients read the resources of this server: a selection of tools has to
/// include the tool that reads them.
pub(crate) fn serves_resources(enabled: &EnabledServer) -> bool {
    match &enabled.served {
        ServedTools::All => true,
        ServedTools::Named(tools) => tools.iter().any(|tool| tool.name == "read_resource"),
    }
}

/// A part of a message, if it has this type.
pub(crate) fn parse<T: DeserializeOwned>(value: Value) -> Option<T> {
    serde_json::from_value(value).ok()
}

/// The result of a server, if it has the type that belongs to the request.
pub(crate) fn parse_result<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value).map_err(|error| {
        let why = format!(
            "the tool server answered with a result of another form than the request has: {error}"
        );
        ErrorData::internal_error(why, None)
    })
}

fn to_error_data(error: ServerRequestError) -> ErrorData {
    match error {
        ServerRequestError::Refused {
            code,
            message,
            data,
        } => ErrorData::new(ErrorCode(code), message, data),
        ServerRequestError::Failed(why) => ErrorData::internal_error(why.to_string(), None),
    }
}
