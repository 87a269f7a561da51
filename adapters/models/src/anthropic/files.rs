//! The files that the provider's tools made, which their results name.

use dormouse_proto::message::Block;
use serde_json::Value;

use super::FORMAT;
use crate::wire::{FileLink, is_path_segment};

/// The files that these blocks name.
pub(super) fn links(blocks: &[Block]) -> Vec<FileLink> {
    let mut links = Vec::new();
    for block in blocks {
        let Block::Opaque(raw) = block else { continue };
        if *raw.format != *FORMAT || !raw.json.contains("\"file_id\"") {
            continue;
        }
        let json: Value = serde_json::from_str(&raw.json).unwrap_or_default();
        let kind = json["type"].as_str().unwrap_or_default();
        if let Some(tool) = kind.strip_suffix("_tool_result") {
            // A result holds a list of outputs, next to what was printed.
            let outputs = json["content"]["content"].as_array();
            let ids = outputs
                .into_iter()
                .flatten()
                .map(|output| &output["file_id"]);
            links.extend(ids.filter_map(Value::as_str).map(|id| link(tool, id)));
        }
    }
    links
}

fn link(tool: &str, id: &str) -> FileLink {
    let path = is_path_segment(id).then(|| format!("/files/{id}"));
    FileLink {
        tool: tool.to_owned(),
        id: id.to_owned(),
        name: None,
        path: path.as_ref().map(|path| format!("{path}/content")),
        description_path: path,
        header: Some(("anthropic-beta", "files-api-2025-04-14")),
    }
}
