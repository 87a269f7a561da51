//! The prompts of the tool servers. They keep their names, after the prefix that the program gives
//! to the server. If several servers have a prompt of one name, it is called `server__prompt`.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_kernel::program::EnabledServer;
use futures_util::future::join_all;
use rmcp::model::{
    CompleteRequestParams, CompleteResult, ContentBlock, ErrorData, GetPromptRequestParams,
    GetPromptResponse, GetPromptResult, Prompt, Reference, ResourceContents,
};
use serde_json::json;

use crate::upstream::{Upstream, parse_result};

/// A prompt of a server, under the name that clients know.
struct NamedPrompt {
    enabled: EnabledServer,
    /// The name at the server.
    own_name: String,
    prompt: Prompt,
}

/// The prompts of all servers.
pub(crate) async fn list_prompts(upstream: &Upstream) -> Vec<Prompt> {
    let named = named_prompts(upstream, prompt_servers(upstream).await).await;
    named.into_iter().map(|named| named.prompt).collect()
}

async fn prompt_servers(upstream: &Upstream) -> Vec<EnabledServer> {
    upstream
        .servers_with(|capabilities| capabilities.prompts.is_some())
        .await
}

/// The prompts of these servers. One whose name another server has as well is called
/// `server__prompt`.
async fn named_prompts(upstream: &Upstream, servers: Vec<EnabledServer>) -> Vec<NamedPrompt> {
    let lists = servers.into_iter().map(|enabled| async move {
        let server = &enabled.server;
        let prompts: Vec<Prompt> = upstream.list(server, "prompts/list", "prompts").await;
        (enabled, prompts)
    });
    let lists = join_all(lists).await;
    let mut servers_by_name: BTreeMap<String, usize> = BTreeMap::new();
    for (enabled, prompts) in &lists {
        let names: BTreeSet<_> = prompts.iter().map(|prompt| &prompt.name).collect();
        for name in names {
            let name = format!("{}{name}", enabled.prefix);
            *servers_by_name.entry(name).or_default() += 1;
        }
    }
    let mut named = Vec::new();
    for (enabled, prompts) in lists {
        for mut prompt in prompts {
            let own_name = prompt.name.clone();
            prompt.name = format!("{}{own_name}", enabled.prefix);
            if servers_by_name
                .get(&prompt.name)
                .is_some_and(|servers| *servers > 1)
            {
                prompt.name = format!("{}__{own_name}", enabled.server.name);
            }
            named.push(NamedPrompt {
                enabled: enabled.clone(),
                own_name,
                prompt,
            });
        }
    }
    named
}

/// A prompt with its arguments filled in. Its texts are placed in the context like outputs of
/// tools: a large one becomes a descriptor.
pub(crate) async fn get_prompt(
    upstream: &Upstream,
    mut request: GetPromptRequestParams,
) -> Result<GetPromptResponse, ErrorData> {
    let source = format!("prompt:{}", request.name);
    let (enabled, name) = prompt_server(upstream, &request.name).await?;
    request.name = name;
    let result = upstream
        .request(&enabled.server, "prompts/get", json!(request))
        .await?;
    let mut prompt: GetPromptResult = parse_result(result)?;
    for message in &mut prompt.messages {
        if let Some(text) = text_of(&mut message.content) {
            *text = upstream.place_text(&source, std::mem::take(text)).await?;
        }
    }
    Ok(prompt.into())
}

fn text_of(content: &mut ContentBlock) -> Option<&mut String> {
    match content {
        ContentBlock::Text(text) => Some(&mut text.text),
        ContentBlock::Resource(embedded) => match &mut embedded.resource {
            ResourceContents::TextResourceContents { text, .. } => Some(text),
            _ => None,
        },
        _ => None,
    }
}

/// The server of a prompt, and the name of the prompt there.
async fn prompt_server(
    upstream: &Upstream,
    requested_name: &str,
) -> Result<(EnabledServer, String), ErrorData> {
    let servers = prompt_servers(upstream).await;
    // The name at a single server follows from the requested name.
    if let [enabled] = &servers[..]
        && let Some(own_name) = requested_name.strip_prefix(enabled.prefix.as_str())
    {
        return Ok((enabled.clone(), own_name.to_owned()));
    }
    let named = named_prompts(upstream, servers).await;
    let found = named
        .into_iter()
        .find(|named| named.prompt.name == requested_name);
    let found = found.ok_or_else(|| {
        let why = format!("there is no prompt '{requested_name}'. prompts/list names the prompts");
        ErrorData::invalid_params(why, None)
    })?;
    Ok((found.enabled, found.own_name))
}

/// The values that the server of a prompt or of a resource template suggests for an argument.
pub(crate) async fn complete(
    upstream: &Upstream,
    mut request: CompleteRequestParams,
) -> Result<CompleteResult, ErrorData> {
    let completes = |enabled: &EnabledServer, completing: &[EnabledServer]| {
        completing
            .iter()
            .any(|other| other.server == enabled.server)
    };
    let completing = upstream
        .servers_with(|capabilities| capabilities.completions.is_some())
        .await;
    // Some clients ask for suggestions whatever a server declares.
    if completing.is_empty() {
        return Ok(CompleteResult::default());
    }
    let servers = match &mut request.r#ref {
        Reference::Prompt(prompt) => {
            let (enabled, name) = prompt_server(upstream, &prompt.name).await?;
            prompt.name = name;
            vec![enabled]
        }
        Reference::Resource(_) => upstream.servers_with_resources().await,
        // A later version of the protocol may refer to something else.
        _ => Vec::new(),
    };
    let servers: Vec<_> = servers
        .into_iter()
        .filter(|enabled| completes(enabled, &completing))
        .collect();
    if servers.is_empty() {
        return Ok(CompleteResult::default());
    }
    let unknown = ErrorData::invalid_params("no tool server completes this reference", None);
    let params = json!(request);
    let (_, result) = upstream
        .request_first(&servers, ("completion/complete", &params), unknown)
        .await?;
    parse_result(result)
}
