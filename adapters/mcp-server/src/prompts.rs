//! The prompts of the tool servers. They keep their names, after the prefix that the program gives
//! to the server. If several servers have a prompt of one name, it is listed as `server__prompt`,
//! a name by which every prompt is found, whichever servers are ready.

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
#[derive(Debug)]
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
    // The name at the only server of the program follows from the requested name.
    if let [enabled] = &servers[..]
        && upstream.servers().len() == 1
        && let Some(own_name) = requested_name.strip_prefix(enabled.prefix.as_str())
    {
        return Ok((enabled.clone(), own_name.to_owned()));
    }
    let named = named_prompts(upstream, servers).await;
    let found = find_prompt(named, requested_name).ok_or_else(|| {
        let why = format!("there is no prompt '{requested_name}'. prompts/list names the prompts");
        ErrorData::invalid_params(why, None)
    })?;
    Ok((found.enabled, found.own_name))
}

/// The prompt that is listed by this name now or, since other servers may have been ready when the
/// client listed the prompts, is called `server__prompt`.
fn find_prompt(mut named: Vec<NamedPrompt>, requested_name: &str) -> Option<NamedPrompt> {
    let is_listed = |named: &NamedPrompt| named.prompt.name == requested_name;
    let is_full_name = |named: &NamedPrompt| {
        requested_name == format!("{}__{}", named.enabled.server.name, named.own_name)
    };
    let position = named.iter().position(is_listed);
    let position = position.or_else(|| named.iter().position(is_full_name))?;
    Some(named.swap_remove(position))
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
    let mut last = Err(ErrorData::invalid_params(
        "no tool server completes this reference",
        None,
    ));
    for enabled in &servers {
        let result = upstream
            .request(&enabled.server, "completion/complete", json!(request))
            .await;
        let completed: Result<CompleteResult, _> = result.and_then(parse_result);
        match &completed {
            Ok(result) if !result.completion.values.is_empty() => return completed,
            // Many servers have no suggestions for what they do not know: the next one may have it.
            Ok(_) => last = completed,
            Err(_) if last.is_err() => last = completed,
            Err(_) => {}
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use dormouse_kernel::program::ServedTools;
    use dormouse_proto::server::{Server, Transport};

    use super::*;

    fn named(server: &str, own_name: &str, name: &str) -> NamedPrompt {
        let server = Server {
            name: server.into(),
            transport: Transport::Http {
                url: "http://h/mcp".to_owned(),
                headers: Vec::new(),
                ca_file: None,
            },
            optional: true,
            connect_ms: 1,
            deadline_ms: 1,
            max_duration_ms: 1,
            shared: None,
        };
        NamedPrompt {
            enabled: EnabledServer {
                server: Arc::new(server),
                served: ServedTools::All,
                prefix: String::new(),
            },
            own_name: own_name.to_owned(),
            prompt: Prompt::new(name, None::<String>, None),
        }
    }

    #[test]
    fn a_prompt_is_found_by_its_full_name_whichever_servers_are_ready() {
        let only_a = || vec![named("a", "x", "x")];
        let both = || vec![named("a", "x", "a__x"), named("b", "x", "b__x")];
        let cases = [
            (only_a(), "x", Some("a")),
            (only_a(), "a__x", Some("a")),
            (only_a(), "b__x", None),
            (both(), "b__x", Some("b")),
            (both(), "x", None),
            // The name that is listed comes first.
            (
                vec![named("a", "x", "x"), named("b", "a__x", "a__x")],
                "a__x",
                Some("b"),
            ),
        ];
        for (prompts, requested_name, expected) in cases {
            let found = find_prompt(prompts, requested_name);
            let server = found.map(|found| found.enabled.server.name.clone());
            assert_eq!(server.as_deref(), expected, "{requested_name}");
        }
    }
}
