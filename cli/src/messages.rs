//! `dormouse messages`: prints the conversation of a process at any position. It opens the store
//! read-only.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use dormouse::Conversation;
use dormouse::message::{Block, Message, Raw, Role};
use dormouse::server_tool::{ServerBlock, server_blocks};
use serde_json::{Value, json};

use crate::args::Store;
use crate::failure::Failure;
use crate::process_position::ProcessPosition;
use crate::read_only::open_read_only;
use crate::terminal;

/// `dormouse messages`
#[derive(Debug, Args)]
pub(crate) struct Messages {
    /// The position: PID, PID@FACT or PID@cp:N.
    #[arg(value_name = "POSITION")]
    pub(crate) position: ProcessPosition,
    #[command(flatten)]
    pub(crate) store: Store,
    /// Print the system prompt as well.
    #[arg(long)]
    pub(crate) system: bool,
    /// Print every message as it was, the compacted ones included, instead of the summary in their
    /// place.
    #[arg(long)]
    pub(crate) all: bool,
    /// Print one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Prints a conversation. The contents of descriptors are not part of it: a conversation only holds
/// the previews that the model was shown.
pub(crate) async fn messages(args: Messages) -> Result<ExitCode, Failure> {
    let kernel = open_read_only(&args.store, args.position.pid).await?;
    let conversation = kernel
        .conversation(args.position.pid, args.position.at)
        .await;
    let all = match args.all {
        true => Some(
            kernel
                .all_messages(args.position.pid, args.position.at)
                .await,
        ),
        false => None,
    };
    kernel.shutdown().await?;
    let conversation = conversation?;
    let all = all.transpose()?;
    let numbered: Vec<_> = match &all {
        Some(messages) => (1..).map(Some).zip(messages).collect(),
        None => conversation.numbered().collect(),
    };
    let Conversation {
        system, compacted, ..
    } = &conversation;
    let mut out = terminal::stdout();
    if args.system && args.json {
        let line = json!({ "role": "system", "blocks": [{ "type": "text", "text": **system }] });
        writeln!(out, "{}", terminal::escaped_json(&line))?;
    } else if args.system {
        writeln!(out, "── system\n{}\n", terminal::printable(system))?;
    }
    for (number, message) in numbered {
        if args.json {
            let blocks: Vec<_> = message.blocks.iter().map(as_json).collect();
            let mut line = json!({ "message": number, "role": role(message), "blocks": blocks });
            if number.is_none() {
                line["summary_of"] = json!([1, compacted]);
            }
            writeln!(out, "{}", terminal::escaped_json(&line))?;
        } else {
            match number {
                Some(number) => writeln!(out, "── {number} {}", role(message))?,
                None => writeln!(out, "── summary of 1-{compacted}")?,
            }
            for block in &message.blocks {
                writeln!(out, "{}", terminal::printable(&as_text(block)))?;
            }
            writeln!(out)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn role(message: &Message) -> &'static str {
    match message.role {
        Role::User => "user",
        Role::Assistant => "assistant",
    }
}

fn as_text(block: &Block) -> String {
    match block {
        Block::Text { text, .. } => match server_blocks(block) {
            blocks if blocks.is_empty() => text.to_string(),
            blocks => format!("{}\n{text}", server_text(&blocks)),
        },
        Block::ToolUse { id, name, args, .. } => format!("[calls {name} as {id}] {args}"),
        Block::ToolResult { id, text, is_error } => {
            let kind = if *is_error { "error" } else { "answer" };
            format!("[{kind} of {id}] {text}")
        }
        Block::Media { media, .. } => format!("[{} {}]", media.media_type, media.fd),
        Block::Opaque(raw) => match server_blocks(block) {
            blocks if blocks.is_empty() => match Raw::adapter_block_in(block) {
                Some(json) => format!("[note] {json}"),
                None => format!("[{} only] {}", raw.format, raw.json),
            },
            blocks => server_text(&blocks),
        },
    }
}

/// The most characters of a result that are shown as text. `--json` prints all of them.
const SHOWN_CHARS: usize = 400;

/// What the provider's tools did, a line for each call and each result.
fn server_text(blocks: &[ServerBlock]) -> String {
    let mut lines = Vec::new();
    for ServerBlock {
        tool,
        calls,
        input,
        output,
    } in blocks
    {
        match calls {
            0 => {}
            1 => lines.push(format!("[the provider ran {tool}] {input}")),
            calls => lines.push(format!("[the provider ran {tool} {calls} times] {input}")),
        }
        let Some(output) = output else { continue };
        let kind = if output.is_error { "error" } else { "result" };
        let chars = output.text.chars().count();
        let shown: String = output.text.chars().take(SHOWN_CHARS).collect();
        let rest = match chars > SHOWN_CHARS {
            true => format!(" … ({chars} characters)"),
            false => String::new(),
        };
        let media = output.media.iter().map(|media| match &media.name {
            Some(name) => format!(" [{name}, {}]", media.media_type),
            None => format!(" [{}]", media.media_type),
        });
        let missing = output.missing.iter().map(|file| format!(" [{file}]"));
        let media: String = media.chain(missing).collect();
        lines.push(format!("[{kind} of {tool}] {shown}{rest}{media}"));
    }
    lines.join("\n")
}

fn server_json(block: &ServerBlock) -> Value {
    let output = block.output.as_ref().map(|output| {
        let media: Vec<_> = output.media.iter().map(|media| &media.media_type).collect();
        json!({
            "text": output.text, "is_error": output.is_error, "media": media,
            "missing": output.missing,
        })
    });
    json!({ "tool": block.tool, "calls": block.calls, "args": block.input, "output": output })
}

fn as_json(block: &Block) -> Value {
    match block {
        Block::Text { text, .. } => json!({ "type": "text", "text": **text }),
        Block::ToolUse { id, name, args, .. } => {
            json!({ "type": "tool_use", "id": **id, "name": **name, "args": **args })
        }
        Block::ToolResult { id, text, is_error } => {
            json!({ "type": "tool_result", "id": **id, "text": **text, "is_error": is_error })
        }
        Block::Media { media, .. } => json!({
            "type": "media", "fd": media.fd.to_string(), "media_type": *media.media_type,
        }),
        Block::Opaque(raw) => {
            let mut line = json!({ "type": "opaque", "format": *raw.format, "json": *raw.json });
            let blocks = server_blocks(block);
            if !blocks.is_empty() {
                line["server_tools"] = blocks.iter().map(server_json).collect();
            }
            line
        }
    }
}
