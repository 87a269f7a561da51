//! The files that the provider's tools made, which texts cite.

use dormouse_proto::message::Block;
use serde_json::Value;

use super::FORMAT;
use crate::wire::{FileLink, is_path_segment};

/// The files in containers that these blocks cite.
pub(super) fn links(blocks: &[Block]) -> Vec<FileLink> {
    let mut links = Vec::new();
    for block in blocks {
        let Block::Text { raw: Some(raw), .. } = block else {
            continue;
        };
        if *raw.format != *FORMAT || !raw.json.contains("\"container_file_citation\"") {
            continue;
        }
        let json: Value = serde_json::from_str(&raw.json).unwrap_or_default();
        let parts = json["content"].as_array().into_iter().flatten();
        let annotations = parts
            .filter_map(|part| part["annotations"].as_array())
            .flatten();
        links.extend(annotations.filter_map(link));
    }
    links
}

fn link(citation: &Value) -> Option<FileLink> {
    if citation["type"] != "container_file_citation" {
        return None;
    }
    let (container, id) = (
        citation["container_id"].as_str()?,
        citation["file_id"].as_str()?,
    );
    let is_valid = is_path_segment(container) && is_path_segment(id);
    Some(FileLink {
        tool: "code_interpreter".to_owned(),
        id: id.to_owned(),
        name: citation["filename"].as_str().map(str::to_owned),
        path: is_valid.then(|| format!("/containers/{container}/files/{id}/content")),
        description_path: None,
        header: None,
    })
}
