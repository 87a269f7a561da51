//! `dormouse messages`: prints the conversation of a process at any position. It opens the store
//! read-only.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use dormouse::Conversation;
use dormouse::message::{Block, Message, Role};
use serde_json::{Value, json};

use crate::args::Store;
use crate::failure::Failure;
use crate::kernel_setup::open_read_only;
use crate::process_position::ProcessPosition;
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
    /// Print one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Prints a conversation. The contents of descriptors are not part of it: a conversation only holds
/// the previews that the model was shown.
pub(crate) async fn messages(args: Messages) -> Result<ExitCode, Failure> {
    let kernel = open_read_only(&args.store).await?;
    let conversation = kernel
        .conversation(args.position.pid, args.position.at)
        .await;
    kernel.shutdown().await?;
    let Conversation {
        system, messages, ..
    } = conversation?;
    let mut out = terminal::stdout();
    if args.system && args.json {
        let line = json!({ "role": "system", "blocks": [{ "type": "text", "text": *system }] });
        writeln!(out, "{}", terminal::escaped_json(&line))?;
    } else if args.system {
        writeln!(out, "── system\n{}\n", terminal::printable(&system))?;
    }
    for (number, message) in (1..).zip(&messages) {
        if args.json {
            let blocks: Vec<_> = message.blocks.iter().map(as_json).collect();
            let line = json!({ "message": number, "role": role(message), "blocks": blocks });
            writeln!(out, "{}", terminal::escaped_json(&line))?;
        } else {
            writeln!(out, "── {number} {}", role(message))?;
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
        Block::Text { text, .. } => text.to_string(),
        Block::ToolUse { id, name, args, .. } => format!("[calls {name} as {id}] {args}"),
        Block::ToolResult { id, text, is_error } => {
            let kind = if *is_error { "error" } else { "answer" };
            format!("[{kind} of {id}] {text}")
        }
        Block::Media { media, .. } => format!("[{} {}]", media.media_type, media.fd),
        Block::Opaque(raw) => format!("[{} only] {}", raw.format, raw.json),
    }
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
        Block::Opaque(raw) => json!({ "type": "opaque", "format": *raw.format, "json": *raw.json }),
    }
}
