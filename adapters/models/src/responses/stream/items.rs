//! Collects the items of a streamed reply.
//!
//! A server reports an item in up to four places: when it begins, in its deltas, when it is
//! complete, and in the response at the end. Not every server sends all of them, so each place is
//! read. If several places report an item, the event that completes it takes precedence, then the
//! response, then the deltas. The response also takes precedence where it says more of an item.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_proto::model::ModelError;
use serde_json::json;
use serde_json::value::RawValue;

use super::super::decode::{MessageKind, Response};
use crate::wire::excerpt::check_count;
use crate::wire::failure;
use crate::wire::json_fields::{Fields, to_raw};

/// The most items of a reply, and the most parts of a message. No real reply has so many.
const MAX_ITEMS: usize = 4096;

/// The items so far, by their position in the reply.
#[derive(Clone, Debug, Default)]
pub(super) struct Items {
    complete: BTreeMap<u64, String>,
    partial: BTreeMap<u64, PartialItem>,
}

/// An item that has begun, whose deltas are arriving.
#[derive(Clone, Debug, Default)]
struct PartialItem {
    fields: Fields,
    arguments: String,
    /// The parts of a message.
    parts: BTreeMap<u64, (MessageKind, String)>,
}

/// The text of an event about an item: the next part of it, or all of it.
#[derive(Debug)]
pub(super) enum ItemText {
    Delta(String),
    Whole(String),
}

impl ItemText {
    fn add_to(self, text: &mut String) {
        match self {
            Self::Delta(delta) => text.push_str(&delta),
            Self::Whole(whole) => *text = whole,
        }
    }
}

impl Items {
    /// The number of complete items.
    pub(super) fn len(&self) -> usize {
        self.complete.len()
    }

    pub(super) fn begin(&mut self, index: Option<u64>, fields: Fields) -> Result<(), ModelError> {
        let index = index.unwrap_or(self.partial.len() as u64);
        self.partial.entry(index).or_default().fields = fields;
        check_count(self.partial.len(), MAX_ITEMS, "items")
    }

    /// Adds text to the arguments of a call.
    pub(super) fn add_arguments(&mut self, index: Option<u64>, text: ItemText) {
        if let Some(item) = self.partial_at(index) {
            text.add_to(&mut item.arguments);
        }
    }

    /// Adds text to a part of a message.
    pub(super) fn add_text(
        &mut self,
        index: Option<u64>,
        part: u64,
        kind: MessageKind,
        text: ItemText,
    ) -> Result<(), ModelError> {
        let Some(item) = self.partial_at(index) else {
            return Ok(());
        };
        let (_, part) = item.parts.entry(part).or_insert((kind, String::new()));
        text.add_to(part);
        check_count(item.parts.len(), MAX_ITEMS, "parts of a message")
    }

    fn partial_at(&mut self, index: Option<u64>) -> Option<&mut PartialItem> {
        match index {
            Some(index) => self.partial.get_mut(&index),
            None => self.partial.values_mut().next_back(),
        }
    }

    pub(super) fn complete(
        &mut self,
        index: Option<u64>,
        item: &RawValue,
    ) -> Result<(), ModelError> {
        let index = index.unwrap_or(self.complete.len() as u64);
        self.complete.insert(index, item.get().to_owned());
        check_count(self.complete.len(), MAX_ITEMS, "items")
    }

    /// All items in order: those that an event completed, those that only the response at the end
    /// contains, and those of which only deltas arrived.
    ///
    /// # Errors
    /// The reply is complete, and has a call whose arguments no place reported. If the reply is
    /// truncated, such a call is left out instead.
    pub(super) fn finish(self, response: &Response) -> Result<Vec<String>, ModelError> {
        let Self { complete, partial } = self;
        let complete = complete.into_iter();
        let mut items: Vec<_> = complete
            .map(|(index, json)| CompleteItem::new(index, json))
            .collect();
        add_output(&mut items, response);
        let ids: BTreeSet<String> = items.iter().flat_map(|item| item.ids.clone()).collect();
        for (index, item) in partial {
            let item_ids = ids_of(&item.fields.to_json());
            let is_complete = items.iter().any(|complete| complete.index == index);
            if is_complete || !item_ids.is_disjoint(&ids) {
                continue;
            }
            match item.finish() {
                Ok(Some(json)) => {
                    let later = items.iter().position(|complete| complete.index > index);
                    let place = later.unwrap_or(items.len());
                    items.insert(place, CompleteItem::new(index, json));
                }
                Ok(None) => {}
                Err(error) if response.is_complete() => return Err(error),
                Err(_) => {}
            }
        }
        Ok(items.into_iter().map(|item| item.json).collect())
    }
}

/// A complete item.
struct CompleteItem {
    /// Its position in the events, or in the response if no event completed it.
    index: u64,
    ids: BTreeSet<String>,
    json: String,
}

impl CompleteItem {
    fn new(index: u64, json: String) -> Self {
        let ids = ids_of(&json);
        Self { index, ids, json }
    }
}

/// Adds what only the response at the end contains: items, each behind the one that is before it
/// there, and fields of items.
fn add_output(items: &mut Vec<CompleteItem>, response: &Response) {
    let output = (0..).zip(&response.output);
    let output: Vec<_> = output
        .map(|(index, item)| CompleteItem::new(index, item.get().to_owned()))
        .collect();
    let output_ids: BTreeSet<String> = output.iter().flat_map(|item| item.ids.clone()).collect();
    let mut place = 0;
    for item in output {
        let same_ids = items
            .iter()
            .position(|known| !known.ids.is_disjoint(&item.ids));
        // Some servers complete an item before all of it is known: the encrypted form of reasoning,
        // the result of a tool.
        if let Some(at) = same_ids
            && has_more_fields(&item.json, &items[at].json)
        {
            items[at].json.clone_from(&item.json);
        }
        // If events have no positions, only completed items are counted, so that another item may
        // have this position: the response has it elsewhere.
        let known = same_ids.or_else(|| {
            items
                .iter()
                .position(|known| known.index == item.index && known.ids.is_disjoint(&output_ids))
        });
        place = match known {
            Some(at) => at + 1,
            None => {
                items.insert(place, item);
                place + 1
            }
        };
    }
}

impl PartialItem {
    /// Builds the item from its deltas. `None` for an item that a request does not need, such as
    /// reasoning without its encrypted content.
    fn finish(mut self) -> Result<Option<String>, ModelError> {
        match self.fields.text("type").as_deref() {
            Some("function_call") => {
                let name = self.fields.text("name").unwrap_or_default();
                let has_arguments = |text: &String| !text.trim().is_empty();
                let initial = self.fields.text("arguments").filter(has_arguments);
                let arguments = Some(self.arguments).filter(has_arguments).or(initial);
                let arguments = arguments.ok_or_else(|| {
                    failure::cut_stream(format!(
                        "the stream has no arguments for the call of '{name}'"
                    ))
                })?;
                self.fields.set("arguments", to_raw(&arguments));
            }
            Some("custom_tool_call") if !self.arguments.is_empty() => {
                self.fields.set("input", to_raw(&self.arguments));
            }
            Some("message") if !self.parts.is_empty() => {
                let parts = self.parts.into_values().map(|(kind, text)| match kind {
                    MessageKind::Refusal => json!({"type": "refusal", "refusal": text}),
                    MessageKind::Answer => {
                        json!({"type": "output_text", "text": text, "annotations": []})
                    }
                });
                self.fields
                    .set("content", to_raw(&parts.collect::<Vec<_>>()));
            }
            _ => return Ok(None),
        }
        if self.fields.get("status").is_some() {
            self.fields.set("status", to_raw("completed"));
        }
        Ok(Some(self.fields.to_json()))
    }
}

/// Whether an item has every field of its `known` form, and others that the known form lacks.
fn has_more_fields(item: &str, known: &str) -> bool {
    let is_given = |value: &RawValue| !matches!(value.get(), "null" | "[]" | "\"\"");
    let given = |json: &str| -> BTreeSet<String> {
        let fields: Fields = serde_json::from_str(json).unwrap_or_default();
        let given = fields.iter().filter(|(_, value)| is_given(value));
        given.map(|(name, _)| name.to_owned()).collect()
    };
    let (item, known) = (given(item), given(known));
    item.len() > known.len() && item.is_superset(&known)
}

/// The ids of an item: its own id, and the id of its call.
fn ids_of(json: &str) -> BTreeSet<String> {
    let fields: Fields = serde_json::from_str(json).unwrap_or_default();
    let ids = ["id", "call_id"].map(|name| fields.text(name));
    ids.into_iter()
        .flatten()
        .filter(|id| !id.is_empty())
        .collect()
}
