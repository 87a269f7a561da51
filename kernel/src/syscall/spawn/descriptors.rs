//! Selects the descriptors of the parent that a child gets, under the same ids.
//!
//! `transferred.rs` resolves what the call names. A `ShownPreload` is the element by which the
//! child's system prompt shows a descriptor: its content, or a preview of what is long.

use dormouse_proto::descriptor::HintableTools;
use dormouse_proto::id::FdId;
use dormouse_proto::record::Entry;

use super::super::args::Args;
use super::super::transferred::transferred_descriptors;
use super::super::{Call, Refusal};
use super::FDS;
use crate::process::{ShownPreload, TransferredDescriptor};
use crate::program::Program;
use dormouse_content::Content;

/// Id and entry of a descriptor of the child, and its element in the system prompt.
type Preload = (FdId, Entry<Content>, ShownPreload);

/// Resolves the descriptors in the call, in order, for a process of the program `child`.
pub(super) fn preloads(
    args: &Args,
    call: &Call<'_>,
    child: &Program,
) -> Result<Vec<Preload>, Refusal> {
    let mut preloads: Vec<Preload> = Vec::new();
    for TransferredDescriptor {
        id,
        part,
        mut entry,
    } in transferred_descriptors(args, FDS, call)?
    {
        check_message_id(&id, child, call.settings.hintable_tools)?;
        if preloads.iter().any(|(known, ..)| *known == id) {
            let hint = call.settings.hintable_tools.hint("read_fd", EXTRACT_HINT);
            return Err(format!(
                "'{FDS}' names {id} twice, and the child would have one id for two contents.{hint}"
            )
            .into());
        }
        if let Some(part) = &part {
            entry.source = format!("{id} {part} of the parent").into();
        }
        // A part was chosen to be shown. Without descriptors, the child could not read the rest.
        let shown = match child.descriptors().filter(|_| part.is_none()) {
            Some(settings) => ShownPreload::readable_descriptor(&id, &entry, settings, call.quota),
            None => ShownPreload::descriptor(&id, &entry, call.quota),
        };
        let shown = shown
            .map_err(|error| format!("Nothing was started: a preload cannot be read. {error}"))?;
        preloads.push((id, entry, shown));
    }
    Ok(preloads)
}

const EXTRACT_HINT: &str = "Make a part a descriptor of its own (read_fd with \
                            extract_to_new_fd), then name that.";

/// Refuses `msg:N` if the child has message descriptors of its own, since the id would be
/// ambiguous.
fn check_message_id(id: &FdId, child: &Program, tools: HintableTools) -> Result<(), Refusal> {
    if !matches!(id, FdId::Message { .. }) || !child.message_references() {
        return Ok(());
    }
    let extract = format!(
        "Make it a descriptor first: read_fd with fd=\"{id}\", read_all=true and \
         extract_to_new_fd=true."
    );
    Err(format!(
        "{id} cannot be preloaded, since program '{}' has messages of its own under such names.{}",
        child.name(),
        tools.hint("read_fd", &extract)
    )
    .into())
}
