//! Recorded traffic with tools that the provider runs: every block of such a tool is decoded,
//! shown, counted and kept, what a program writes is what was sent, and the next recorded request
//! has the history that we would send.
//!
//! The recordings are no part of the project. They are looked for in `$DORMOUSE_SHARED/data/wire`,
//! or in `../shared` next to the workspace; where there are none, for one format or for all, the
//! test says that it is skipped. `--nocapture` prints a table.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(
    clippy::print_stderr,
    reason = "what was looked at is part of the result"
)]

#[path = "server_tools/blocks.rs"]
mod blocks;
#[path = "server_tools/recordings.rs"]
mod recordings;
#[path = "../../../tests/skip.rs"]
mod skip;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use dormouse_models::anthropic::Messages;
use dormouse_models::chat::Completions;
use dormouse_models::gemini::GenerateContent;
use dormouse_models::responses::Responses;
use dormouse_models::wire::{Codec, Decoder, Delivery, Purpose, encode};
use dormouse_proto::id::Pid;
use dormouse_proto::message::{Block, Message, Role, text_of};
use dormouse_proto::model::{Delta, Reply, Request};
use dormouse_proto::provider_tools::ProviderTools;
use dormouse_proto::server_tool::{ServerBlock, count_calls, server_blocks};
use serde_json::{Map, Value};

use crate::recordings::{Answer, Format, Interaction};
use crate::skip::skip;

/// How Chat Completions switches on its search, which is no tool.
const SEARCH_OPTIONS: &str = "web_search_options";

/// A row of the table: what one interaction shows.
struct Row {
    name: String,
    tools: usize,
    calls: String,
    results: usize,
    sources: usize,
    goes_on: &'static str,
}

#[test]
fn tools_of_anthropic_are_decoded_shown_counted_and_kept() {
    check::<Messages>(Format::Anthropic, "anthropic");
}

#[test]
fn tools_of_responses_are_decoded_shown_counted_and_kept() {
    check::<Responses>(Format::Responses, "openai");
}

#[test]
fn tools_of_chat_completions_are_decoded_shown_counted_and_kept() {
    check::<Completions>(Format::Chat, "openai-chat");
}

#[test]
fn tools_of_gemini_are_decoded_shown_counted_and_kept() {
    check::<GenerateContent>(Format::Gemini, "gemini");
}

fn check<C: Codec>(format: Format, provider: &str) {
    let Some(files) = recordings::files() else {
        return skip(
            "recordings",
            "there are no recordings; DORMOUSE_SHARED names their folder",
        );
    };
    let mut rows = Vec::new();
    for interactions in &files {
        for (at, interaction) in interactions.iter().enumerate() {
            let is_looked_at = interaction.format == Some(format)
                && (!blocks::server_tools(format, &interaction.asked).is_empty()
                    || interaction.asked.get(SEARCH_OPTIONS).is_some()
                    || !blocks::of_answer(format, interaction).is_empty());
            if is_looked_at {
                let mut later = interactions[at + 1..].iter();
                let next = later.find(|next| next.format == Some(format));
                rows.push(look::<C>(format, provider, interaction, next));
            }
        }
    }
    if rows.is_empty() {
        let why = format!("no recording of {} has a tool of the provider", C::FORMAT);
        return skip("recordings", &why);
    }
    eprintln!(
        "{}: {} interactions with tools of the provider",
        C::FORMAT,
        rows.len()
    );
    for row in &rows {
        eprintln!(
            "  {:<72} tools {} results {} sources {:<2} history {:<9} calls {}",
            row.name, row.tools, row.results, row.sources, row.goes_on, row.calls
        );
    }
    let total = |count: fn(&Row) -> usize| rows.iter().map(count).sum::<usize>();
    assert!(total(|row| row.tools) > 0, "some request has such a tool");
}

fn look<C: Codec>(
    format: Format,
    provider: &str,
    interaction: &Interaction,
    next: Option<&Interaction>,
) -> Row {
    let name = &interaction.name;
    let tools = blocks::server_tools(format, &interaction.asked);
    written_as_sent::<C>(name, provider, &tools);
    let options = interaction.asked.get(SEARCH_OPTIONS);
    options
        .iter()
        .for_each(|options| options_as_sent::<C>(name, options));
    let mut row = Row {
        name: name.clone(),
        tools: tools.len() + usize::from(options.is_some()),
        calls: String::new(),
        results: 0,
        sources: 0,
        goes_on: "is last",
    };
    let Some(reply) = decoded::<C>(interaction) else {
        row.goes_on = "no reply";
        return row;
    };
    let came = blocks::of_answer(format, interaction);
    let shown: Vec<_> = reply.blocks.iter().flat_map(server_blocks).collect();
    shown_and_counted(name, format, &came, &reply, &shown);
    if let Some(searches) = blocks::searches_by_usage(interaction) {
        let counted = count_calls(&reply.blocks).into_iter();
        let counted = counted.filter(|(tool, _)| tool == "web_search");
        let counted: u32 = counted.map(|(_, calls)| calls).sum();
        assert_eq!(
            u64::from(counted),
            searches,
            "{name}: as the provider counts"
        );
    }
    let text = text_of(&reply.blocks);
    // A list would make JSON unreadable.
    let addresses = match serde_json::from_str::<Value>(&text) {
        Ok(_) => Vec::new(),
        Err(_) => blocks::cited_addresses(format, interaction),
    };
    let (_, list) = text.rsplit_once("\n\nSources:\n").unwrap_or_default();
    for address in &addresses {
        assert!(
            list.contains(address.as_str()),
            "{name}: {address} is not in {list:?}"
        );
    }
    assert_eq!(list.is_empty(), addresses.is_empty(), "{name}: {list}");
    let sent = sent_back::<C>(&reply);
    let kept: Vec<_> = blocks::within(format, &sent).into_iter().collect();
    assert_eq!(kept, came, "{name}: what came goes back as it came");
    if let Some(next) = next {
        row.goes_on = continues(name, format, &came, &next.asked);
    }
    let calls = count_calls(&reply.blocks).into_iter();
    let calls: Vec<_> = calls
        .map(|(tool, calls)| format!("{tool} {calls}"))
        .collect();
    Row {
        calls: calls.join(", "),
        results: shown.iter().filter(|block| block.output.is_some()).count(),
        sources: addresses.len(),
        ..row
    }
}

/// What a program with these tables sends is what was recorded.
fn written_as_sent<C: Codec>(name: &str, provider: &str, tools: &[Map<String, Value>]) {
    if tools.is_empty() {
        return;
    }
    let list: Vec<_> = tools.iter().cloned().map(Value::Object).collect();
    let tables = toml::to_string(&BTreeMap::from([(
        "tools",
        BTreeMap::from([("server", list)]),
    )]))
    .unwrap();
    let text = format!("[model]\nprovider = \"{provider}\"\nname = \"m\"\n{tables}");
    let mut read = |_: &Path| Ok(bytes::Bytes::from(text.clone()));
    let compiled = dormouse_kernel::program::compile(Path::new("p.toml"), &mut read, &[])
        .unwrap_or_else(|errors| panic!("{name}: {errors:?}\n{text}"));
    let program = compiled.program;
    let request = Request {
        provider_tools: program.provider_tools(program.model()),
        ..request(Vec::new())
    };
    let body = encode(
        &C::default(),
        &request,
        Purpose::Reply(Delivery::Stream),
        None,
    )
    .unwrap();
    let body: Value = serde_json::from_str(&body).unwrap();
    let sent: Vec<_> = body["tools"].as_array().unwrap().clone();
    let recorded: Vec<_> = tools.iter().cloned().map(Value::Object).collect();
    assert_eq!(sent, recorded, "{name}");
}

/// The options of a search are a parameter, which is sent as it is.
fn options_as_sent<C: Codec>(name: &str, options: &Value) {
    let parameters = Map::from_iter([(SEARCH_OPTIONS.to_owned(), options.clone())]);
    let request = Request {
        parameters: Arc::new(parameters),
        ..request(Vec::new())
    };
    let purpose = Purpose::Reply(Delivery::Stream);
    let body = encode(&C::default(), &request, purpose, None).unwrap();
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body[SEARCH_OPTIONS], *options, "{name}");
}

/// The reply, of which a stream tells those who watch the same text.
fn decoded<C: Codec>(interaction: &Interaction) -> Option<Reply> {
    let name = &interaction.name;
    match &interaction.answer {
        Answer::Whole(body) if interaction.is_reply() => {
            let reply = C::default().decode(&body.to_string());
            Some(reply.unwrap_or_else(|error| panic!("{name}: {error}")))
        }
        Answer::Events(events) if interaction.is_reply() => {
            let told = RefCell::new(String::new());
            let mut decoder = C::Decoder::default();
            for event in events {
                let tell = |delta: Delta| {
                    if let Delta::Text(text) = delta {
                        told.borrow_mut().push_str(&text);
                    }
                };
                decoder
                    .feed(&event.to_string(), &tell)
                    .unwrap_or_else(|error| panic!("{name}: {error}"));
            }
            let reply = decoder
                .finish()
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(text_of(&reply.blocks).ends_with(&*told.borrow()), "{name}");
            Some(reply)
        }
        Answer::Whole(_) | Answer::Events(_) | Answer::Nothing => None,
    }
}

/// Each block of a tool is shown as what it is, and the calls are as many as were seen by other
/// means, and as the provider says.
fn shown_and_counted(
    name: &str,
    format: Format,
    came: &[Value],
    reply: &Reply,
    shown: &[ServerBlock],
) {
    let of_tools = came.iter().filter(|block| blocks::is_shown(format, block));
    let opaque = reply
        .blocks
        .iter()
        .filter(|block| matches!(block, Block::Opaque(_)));
    let found = opaque.filter(|block| !server_blocks(block).is_empty());
    assert_eq!(found.count(), of_tools.count(), "{name}: {came:?}");
    assert!(
        shown.iter().all(|block| !block.tool.is_empty()),
        "{name}: {shown:?}"
    );
    for block in shown.iter().filter(|block| block.calls == 0) {
        let output = block.output.as_ref().unwrap();
        let says_something = !output.text.is_empty() || !output.media.is_empty();
        assert!(
            says_something || blocks::may_be_silent(&block.tool),
            "{name}: {block:?} shows nothing"
        );
    }
    let expected = blocks::calls(format, came);
    let counted = count_calls(&reply.blocks).into_iter();
    let counted: u32 = counted
        .filter(|(tool, _)| !matches!(&**tool, "google_search" | "url_context"))
        .map(|(_, calls)| calls)
        .sum();
    assert_eq!(counted as usize, expected, "{name}");
}

/// The message that is sent back, in the form of the format.
fn sent_back<C: Codec>(reply: &Reply) -> Value {
    let said = Message {
        role: Role::Assistant,
        blocks: reply.blocks.clone(),
    };
    let purpose = Purpose::Reply(Delivery::Whole);
    let body = encode(&C::default(), &request(vec![said]), purpose, None).unwrap();
    serde_json::from_str(&body).unwrap()
}

/// Compares what came with the history of the next recorded request. The client that was recorded
/// leaves out some fields and adds nulls, so what both have has to be the same.
fn continues(name: &str, format: Format, came: &[Value], asked: &Value) -> &'static str {
    let ids: BTreeSet<_> = came.iter().filter_map(blocks::id).collect();
    let recorded = blocks::within(format, asked);
    let of_reply: Vec<_> = recorded
        .iter()
        .filter(|block| blocks::id(block).is_some_and(|id| ids.contains(id)))
        .collect();
    for block in &of_reply {
        let ours = came.iter().find(|ours| {
            blocks::id(ours) == blocks::id(block) && blocks::kind(ours) == blocks::kind(block)
        });
        let ours = ours.unwrap_or_else(|| panic!("{name}: we would not send {block}"));
        blocks::agree(name, ours, block);
    }
    match of_reply.len() {
        0 => "elsewhere",
        some if some == came.len() => "the same",
        _ => "a part",
    }
}

fn request(messages: Vec<Message>) -> Request {
    Request {
        pid: Pid(1),
        program: "p".into(),
        model: "m".into(),
        system: "".into(),
        tools: Arc::from([]),
        provider_tools: Arc::new(ProviderTools::default()),
        messages: messages.into_iter().map(Arc::new).collect(),
        parameters: Arc::default(),
        forked_at: Vec::new(),
        media: BTreeMap::new(),
    }
}
