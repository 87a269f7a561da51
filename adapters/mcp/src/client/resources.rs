//! Two tools of ours beside those of a server that has resources: to list them, and to read one. A
//! link in a result can be followed so.

use dormouse_actors::ports::OutputSink;
use dormouse_proto::server::{Offer, Server};
use rmcp::model::{
    ClientRequest, ListResourcesRequest, PaginatedRequestParams, ReadResourceRequest,
    ReadResourceRequestParams, ServerResult,
};

use super::fault::Fault;
use super::listing::reading_policy;
use super::output::{Shown, arguments, link_line};
use super::session::Session;

/// What can be done with the resources of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    List,
    Read,
}

const LIST: &str = r#"{"type":"object","properties":{"cursor":{"type":"string","description":"Where to go on: what the list before ended with."}}}"#;
const READ: &str = r#"{"type":"object","properties":{"uri":{"type":"string","description":"The address of the resource, as a list or a result shows it."}},"required":["uri"]}"#;

/// The tools, for processes that are to have them.
pub(super) fn offers(server: &Server) -> Vec<Offer> {
    let offer = |reading: Reading, description: &str, schema: &str| Offer {
        server: server.name.clone(),
        name: reading.name().into(),
        description: description.into(),
        schema: schema.into(),
        policy: reading_policy(server),
    };
    vec![
        offer(
            Reading::List,
            &format!("Lists the resources of the tool server {}.", server.name),
            LIST,
        ),
        offer(
            Reading::Read,
            &format!(
                "Reads a resource of the tool server {} by its address.",
                server.name
            ),
            READ,
        ),
    ]
}

impl Reading {
    /// What the tool of this name does.
    pub(super) fn of(tool: &str) -> Option<Self> {
        [Self::List, Self::Read]
            .into_iter()
            .find(|reading| reading.name() == tool)
    }

    fn name(self) -> &'static str {
        match self {
            Self::List => "list_resources",
            Self::Read => "read_resource",
        }
    }

    /// Does it.
    ///
    /// # Errors
    /// A text for the model.
    pub(super) async fn run(
        self,
        session: &Session,
        args: &str,
        out: &OutputSink,
    ) -> Result<(), String> {
        let arguments = arguments(args)?;
        let text = |key: &str| {
            arguments
                .get(key)
                .and_then(|value| value.as_str())
                .map(str::to_owned)
        };
        let request = match self {
            Self::List => {
                let params = PaginatedRequestParams::default().with_cursor(text("cursor"));
                ClientRequest::ListResourcesRequest(ListResourcesRequest::with_param(params))
            }
            Self::Read => {
                let uri = text("uri")
                    .ok_or("read_resource takes {\"uri\": \"…\"}: the address of a resource.")?;
                ClientRequest::ReadResourceRequest(ReadResourceRequest::new(
                    ReadResourceRequestParams::new(uri),
                ))
            }
        };
        let of_call = |fault: Fault| fault.of_call(&session.server().name, self.name());
        let mut shown = Shown::default();
        match session.ask(request).await.map_err(of_call)? {
            ServerResult::ReadResourceResult(read) => read
                .contents
                .iter()
                .for_each(|part| shown.take_resource(part)),
            ServerResult::ListResourcesResult(list) => {
                list.resources
                    .iter()
                    .for_each(|resource| shown.say(link_line(resource)));
                shown.say(match (list.next_cursor, list.resources.len()) {
                    (Some(cursor), _) => {
                        format!("There are more: list_resources with cursor {cursor:?}.")
                    }
                    (None, 0) => "It has no resources.".to_owned(),
                    (None, _) => "These are all.".to_owned(),
                });
            }
            _ => return Err(of_call(Fault::Strange)),
        }
        shown.give(out)
    }
}
