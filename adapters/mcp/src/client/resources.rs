//! Two tools that this client adds for a server with resources: one lists the resources, one reads
//! a resource. With them a model can follow a link in a result.

use dormouse_actors::ports::{OutputSink, ToolError};
use dormouse_proto::server::{OfferedTool, Server};
use rmcp::model::{
    ClientRequest, ListResourcesRequest, PaginatedRequestParams, ReadResourceRequest,
    ReadResourceRequestParams, ServerResult,
};

use super::listing::reading_policy;
use super::output::{ModelResult, format_link, parse_arguments};
use super::request_error::RequestError;
use super::session::Session;

/// The tools for the resources of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResourceTool {
    List,
    Read,
}

const LIST_SCHEMA: &str = r#"{"type":"object","properties":{"cursor":{"type":"string","description":"Where to go on: what the list before ended with."}}}"#;
const READ_SCHEMA: &str = r#"{"type":"object","properties":{"uri":{"type":"string","description":"The address of the resource, as a list or a result shows it."}},"required":["uri"]}"#;

/// The descriptions of the tools.
pub(super) fn offers(server: &Server) -> Vec<OfferedTool> {
    let offer = |tool: ResourceTool, description: &str, schema: &str| OfferedTool {
        server: server.name.clone(),
        name: tool.name().into(),
        description: description.into(),
        schema: schema.into(),
        policy: reading_policy(server),
    };
    vec![
        offer(
            ResourceTool::List,
            &format!("Lists the resources of the tool server {}.", server.name),
            LIST_SCHEMA,
        ),
        offer(
            ResourceTool::Read,
            &format!(
                "Reads a resource of the tool server {} by its address.",
                server.name
            ),
            READ_SCHEMA,
        ),
    ]
}

impl ResourceTool {
    /// The tool of this name.
    pub(super) fn by_name(tool: &str) -> Option<Self> {
        [Self::List, Self::Read]
            .into_iter()
            .find(|known| known.name() == tool)
    }

    fn name(self) -> &'static str {
        match self {
            Self::List => "list_resources",
            Self::Read => "read_resource",
        }
    }

    /// Executes a call.
    ///
    /// # Errors
    /// The call was not made, or failed.
    pub(super) async fn run(
        self,
        session: &Session,
        args: &str,
        out: &OutputSink,
    ) -> Result<(), ToolError> {
        let arguments = parse_arguments(args)?;
        let text_argument = |key: &str| {
            arguments
                .get(key)
                .and_then(|value| value.as_str())
                .map(str::to_owned)
        };
        let request = match self {
            Self::List => {
                let params = PaginatedRequestParams::default().with_cursor(text_argument("cursor"));
                ClientRequest::ListResourcesRequest(ListResourcesRequest::with_param(params))
            }
            Self::Read => {
                let uri = text_argument("uri")
                    .ok_or("read_resource takes {\"uri\": \"…\"}: the address of a resource.")?;
                ClientRequest::ReadResourceRequest(ReadResourceRequest::new(
                    ReadResourceRequestParams::new(uri),
                ))
            }
        };
        let call_error =
            |error: RequestError| error.call_error(&session.server().name, self.name());
        let mut model_result = ModelResult::default();
        let limit_ms = session.server().deadline_ms;
        match session
            .request_within(request, limit_ms)
            .await
            .map_err(call_error)?
        {
            ServerResult::ReadResourceResult(read) => read
                .contents
                .iter()
                .for_each(|part| model_result.add_resource(part)),
            ServerResult::ListResourcesResult(list) => {
                list.resources
                    .iter()
                    .for_each(|resource| model_result.add_text(format_link(resource)));
                model_result.add_text(match (list.next_cursor, list.resources.len()) {
                    (Some(cursor), _) => {
                        format!("There are more: list_resources with cursor {cursor:?}.")
                    }
                    (None, 0) => "It has no resources.".to_owned(),
                    (None, _) => "These are all.".to_owned(),
                });
            }
            _ => return Err(call_error(RequestError::UnexpectedResult)),
        }
        model_result.write_to(out)
    }
}
