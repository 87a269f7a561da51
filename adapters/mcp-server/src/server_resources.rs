//! The resources of the tool servers, next to the descriptors of the process
//! ([`crate::resources`]). They keep their addresses. If several servers have one address, the
//! first of them that answers a request is asked.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use rmcp::model::{
    ErrorData, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, Resource,
    ResourceContents, ResourceTemplate,
};
use serde_json::{Value, json};

use crate::upstream::{Upstream, parse_result};

/// Resources that a client shows to its user, and to no model: the pages of applications. They pass
/// whole.
const APPLICATION_SCHEME: &str = "ui://";

/// The resources of all servers.
pub(crate) async fn list(upstream: &Upstream) -> Vec<Resource> {
    let servers = upstream.servers_with_resources().await;
    let lists = servers
        .iter()
        .map(|enabled| upstream.list::<Resource>(&enabled.server, "resources/list", "resources"));
    let mut uris = BTreeSet::new();
    let resources = join_all(lists).await.into_iter().flatten();
    resources
        .filter(|resource| uris.insert(resource.uri.clone()))
        .collect()
}

/// The templates of the addresses of resources of all servers.
pub(crate) async fn list_templates(upstream: &Upstream) -> Vec<ResourceTemplate> {
    let servers = upstream.servers_with_resources().await;
    let lists = servers.iter().map(|enabled| {
        upstream.list::<ResourceTemplate>(
            &enabled.server,
            "resources/templates/list",
            "resourceTemplates",
        )
    });
    join_all(lists).await.into_iter().flatten().collect()
}

/// Reads a resource. Its texts are placed in the context like outputs of tools: a large one becomes
/// a descriptor.
pub(crate) async fn read(
    upstream: &Upstream,
    request: ReadResourceRequestParams,
) -> Result<ReadResourceResponse, ErrorData> {
    let params = json!(request);
    let result = request_resource(upstream, "resources/read", &params, &request.uri).await?;
    let mut result: ReadResourceResult = parse_result(result)?;
    for part in &mut result.contents {
        if let ResourceContents::TextResourceContents { uri, text, .. } = part
            && !uri.starts_with(APPLICATION_SCHEME)
        {
            let source = format!("resource:{uri}");
            *text = upstream.place_text(&source, std::mem::take(text)).await?;
        }
    }
    Ok(result.into())
}

/// Sends a request that names the resource `uri` to the server that has it. Servers that list the
/// resource are asked first, so that no other one is started for it.
pub(crate) async fn request_resource(
    upstream: &Upstream,
    method: &str,
    params: &Value,
    uri: &str,
) -> Result<Value, ErrorData> {
    let mut servers = upstream.servers_with_resources().await;
    if servers.len() > 1 {
        let lists = servers.iter().map(|enabled| async {
            let listed: Vec<Resource> = upstream
                .list(&enabled.server, "resources/list", "resources")
                .await;
            listed.iter().any(|resource| resource.uri == uri)
        });
        let mut lists = join_all(lists).await.into_iter();
        let (mut first, others): (Vec<_>, Vec<_>) = servers
            .into_iter()
            .partition(|_| lists.next() == Some(true));
        first.extend(others);
        servers = first;
    }
    let why = format!("there is no resource {uri}. resources/list shows those there are");
    let unknown = ErrorData::resource_not_found(why, None);
    let (_, result) = upstream
        .request_first(&servers, (method, params), unknown)
        .await?;
    Ok(result)
}
