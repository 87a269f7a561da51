//! The XML elements with which the temporary file tools answer. Each states the version, since the
//! next write needs it.

use super::{TempFileOp, TempId};
use crate::descriptor::HintableTools;
use crate::descriptor::view::Encoding;
use crate::tool::Answer;
use crate::xml::Element;

/// `temp_file` with the content of a file.
#[must_use]
pub fn contents(
    id: TempId,
    version: u64,
    total_chars: u64,
    encoding: Encoding,
    text: &str,
) -> Answer {
    let element = Element::new("temp_file")
        .attribute("id", id)
        .attribute("version", version)
        .attribute("total_chars", total_chars)
        .attribute_if("encoding", encoding.word())
        .attribute_if("replaced_bytes", encoding.replaced_bytes());
    Answer::shown(element.text(text))
}

/// `temp_file` with a message about a change.
#[must_use]
pub fn changed<C>(op: &TempFileOp<C>, id: TempId, version: u64, total_bytes: u64) -> Answer {
    let message = match op {
        TempFileOp::Create { .. } => {
            format!("Created. Every process of this tree can read and change it as {id}.")
        }
        TempFileOp::Append { .. } => "Appended.".to_owned(),
        TempFileOp::Delete { .. } => "Deleted, with all its versions.".to_owned(),
        // A read does not get here: it changes nothing, and is answered with the content.
        TempFileOp::Write { .. } | TempFileOp::Read { .. } => "Written.".to_owned(),
    };
    let element = Element::new("temp_file")
        .attribute("id", id)
        .attribute("version", version)
        .attribute("total_bytes", total_bytes)
        .child(Element::new("message").text(message));
    Answer::shown(element)
}

/// The message that accompanies the preview of a file that became a descriptor. `limit` is the
/// limit in words, such as `8000 characters`.
#[must_use]
pub fn exceeds(id: TempId, version: u64, limit: &str, tools: HintableTools) -> String {
    let hint = tools.hint_to_read();
    format!(
        "Version {version} of {id} exceeds {limit}. This is a copy of it that \
         stays as it is.{hint} To write {id}, give version={version}."
    )
}
