//! `dormouse messages`: prints the conversation of a process at any position. It opens the store
//! read-only.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use dormouse::Conversation;
use dormouse::api::view::MessageView;
use dormouse::message::{Block, Raw};
use dormouse::server_tool::{ServerBlock, server_blocks};
use serde_json::json;

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
            let line = MessageView::new(number, message, *compacted);
            writeln!(out, "{}", terminal::escaped_json(&json!(line)))?;
        } else {
            match number {
                Some(number) => {
                    writeln!(out, "── {number} {}", MessageView::role_word(message.role))?
                }
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
