//! The capabilities that this server declares: its own, and those of the tool servers behind it.

use rmcp::model::ServerCapabilities;

use crate::upstream::{Introductions, ServerIntroduction};

/// What this server can do without any tool server.
pub(crate) fn own_capabilities() -> ServerCapabilities {
    ServerCapabilities::builder()
        .enable_tools()
        .enable_tool_list_changed()
        .enable_resources()
        .build()
}

/// What this server and the tool servers behind it can do. Lists can change even if no server says
/// so: one that is shown may be from the last start of a server, and a server that is not ready may
/// have any.
pub(crate) fn capabilities(introductions: &Introductions) -> ServerCapabilities {
    let mut all = own_capabilities();
    for ServerIntroduction { capabilities, .. } in &introductions.introduced {
        all.logging = all.logging.or_else(|| capabilities.logging.clone());
        all.completions = all.completions.or_else(|| capabilities.completions.clone());
        if capabilities.prompts.is_some() {
            all.prompts.get_or_insert_default().list_changed = Some(true);
        }
        if let (Some(all), Some(resources)) = (&mut all.resources, &capabilities.resources) {
            all.list_changed = Some(true);
            all.subscribe = all.subscribe.max(resources.subscribe);
        }
    }
    if introductions.is_incomplete() {
        all.prompts.get_or_insert_default().list_changed = Some(true);
        all.resources.get_or_insert_default().list_changed = Some(true);
    }
    all
}
