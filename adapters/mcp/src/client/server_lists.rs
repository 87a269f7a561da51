//! What a server said of itself when it last ran: its introduction, and its lists of tools, prompts
//! and resources, as it wrote them.

use std::collections::BTreeMap;

use dormouse_actors::ports::ServerRequestError;
use rmcp::model::Tool;
use serde_json::{Value, json};

use super::protocol;
use super::session::Session;

/// The most pages of one list.
const MAX_PAGES: usize = 100;
/// The most entries of one list. Further ones are left out.
const MAX_ENTRIES: usize = 10_000;

/// A list that servers have, and the notification that it has changed.
struct ListKind {
    method: &'static str,
    /// The key of the entries in a page.
    key: &'static str,
    /// The capability of servers that have the list.
    capability: &'static str,
    changed: &'static str,
}

const LISTS: [ListKind; 4] = [
    ListKind {
        method: "tools/list",
        key: "tools",
        capability: "tools",
        changed: "notifications/tools/list_changed",
    },
    ListKind {
        method: "prompts/list",
        key: "prompts",
        capability: "prompts",
        changed: "notifications/prompts/list_changed",
    },
    ListKind {
        method: "resources/list",
        key: "resources",
        capability: "resources",
        changed: "notifications/resources/list_changed",
    },
    ListKind {
        method: "resources/templates/list",
        key: "resourceTemplates",
        capability: "resources",
        changed: "notifications/resources/list_changed",
    },
];

/// Whether this method asks for a list.
pub(super) fn is_list(method: &str) -> bool {
    LISTS.iter().any(|list| list.method == method)
}

/// The introduction and the lists of one server.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ServerLists {
    introduction: Value,
    /// The entries of each list, by its method.
    entries: BTreeMap<String, Vec<Value>>,
}

impl ServerLists {
    /// Asks the server for all its lists. A list that it refuses is empty.
    ///
    /// # Errors
    /// The server does not answer.
    pub(super) async fn fetch(session: &Session) -> Result<Self, ServerRequestError> {
        let introduction = session.introduction();
        let mut entries = BTreeMap::new();
        for list in &LISTS {
            if introduction["capabilities"][list.capability].is_object() {
                entries.insert(list.method.to_owned(), fetch_list(session, list).await?);
            }
        }
        Ok(Self {
            introduction,
            entries,
        })
    }

    pub(super) fn introduction(&self) -> &Value {
        &self.introduction
    }

    /// The answer to a request for a list, in one page.
    pub(super) fn answer(&self, method: &str) -> Value {
        let key = LISTS.iter().find(|list| list.method == method);
        key.map_or(
            Value::Null,
            |list| json!({ list.key: self.entries.get(method).map_or(&[][..], Vec::as_slice) }),
        )
    }

    /// The tools of the server.
    pub(super) fn tools(&self) -> Vec<Tool> {
        let tools = self.entries.get("tools/list").into_iter().flatten();
        tools
            .filter_map(|tool| serde_json::from_value(tool.clone()).ok())
            .collect()
    }

    pub(super) fn has_resources(&self) -> bool {
        self.introduction["capabilities"]["resources"].is_object()
    }

    /// The notifications for a client that knows these lists, and has to learn of `newer` ones.
    pub(super) fn changes_to(&self, newer: &Self) -> Vec<&'static str> {
        let mut changes: Vec<_> = LISTS
            .iter()
            .filter(|list| self.answer(list.method) != newer.answer(list.method))
            .map(|list| list.changed)
            .collect();
        changes.dedup();
        changes
    }

    /// As JSON text, for a file.
    pub(super) fn to_json(&self) -> String {
        json!({ "introduction": self.introduction, "entries": self.entries }).to_string()
    }

    /// From JSON text; `None` if it is something else.
    pub(super) fn from_json(text: &[u8]) -> Option<Self> {
        let mut parsed: Value = serde_json::from_slice(text).ok()?;
        Some(Self {
            introduction: parsed.get_mut("introduction")?.take(),
            entries: serde_json::from_value(parsed.get_mut("entries")?.take()).ok()?,
        })
    }
}

async fn fetch_list(session: &Session, list: &ListKind) -> Result<Vec<Value>, ServerRequestError> {
    let mut entries = Vec::new();
    let mut params = json!({});
    for _ in 0..MAX_PAGES {
        let mut page = match protocol::request(session, list.method, params).await {
            Ok(page) => page,
            Err(ServerRequestError::Refused { .. }) => break,
            Err(error) => return Err(error),
        };
        if let Value::Array(more) = page[list.key].take() {
            entries.extend(more);
        }
        match page["nextCursor"].take() {
            Value::String(cursor) if entries.len() < MAX_ENTRIES => {
                params = json!({ "cursor": cursor });
            }
            _ => break,
        }
    }
    entries.truncate(MAX_ENTRIES);
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(tools: Value, templates: Value) -> ServerLists {
        let text = json!({
            "introduction": { "capabilities": { "tools": {}, "resources": {} } },
            "entries": { "tools/list": tools, "resources/templates/list": templates },
        });
        ServerLists::from_json(text.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn a_client_is_notified_of_each_kind_of_list_that_changed() {
        let old = lists(json!([{ "name": "a" }]), json!([]));
        let newer = lists(
            json!([{ "name": "b" }]),
            json!([{ "uriTemplate": "x://{y}" }]),
        );
        assert!(old.changes_to(&old).is_empty());
        assert_eq!(
            old.changes_to(&newer),
            [
                "notifications/tools/list_changed",
                "notifications/resources/list_changed"
            ]
        );
        let nothing = ServerLists::default();
        assert_eq!(
            nothing.changes_to(&old),
            ["notifications/tools/list_changed"]
        );
    }

    #[test]
    fn lists_are_read_as_they_were_written() {
        let lists = lists(json!([{ "name": "a", "inputSchema": {} }]), json!([]));
        assert_eq!(
            ServerLists::from_json(lists.to_json().as_bytes()),
            Some(lists.clone())
        );
        assert_eq!(lists.tools()[0].name, "a");
        assert_eq!(lists.answer("prompts/list"), json!({ "prompts": [] }));
        for wrong in ["", "[]", "{}", r#"{"introduction": {}, "entries": []}"#] {
            assert_eq!(ServerLists::from_json(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
