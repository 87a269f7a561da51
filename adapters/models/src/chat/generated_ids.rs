//! Generates ids for tool calls that a server sent without an id.

use serde_json::{Value, json};

use super::decode::Call;

/// The fields with which a server identifies a reply.
#[derive(Clone, Debug, Default)]
pub(super) struct Origin {
    pub(super) id: Option<Value>,
    pub(super) created: Option<Value>,
}

/// Ids for the calls of one reply. The ids do not depend on whether the reply is streamed, and
/// differ from those of other replies. They consist of letters, digits and `_`, which every
/// provider accepts.
#[derive(Debug)]
pub(super) struct GeneratedIds(String);

impl GeneratedIds {
    /// Derives the ids from the id and the content of the reply. The id alone is not enough, since
    /// a server that sends no ids of calls may send no ids of replies either.
    pub(super) fn for_reply(origin: &Origin, text: &str, calls: &[Call]) -> Self {
        let calls: Vec<_> = calls.iter().map(Call::function_call).collect();
        let reply = json!([origin.id, origin.created, text, calls]).to_string();
        Self(
            blake3::hash(reply.as_bytes())
                .to_hex()
                .chars()
                .take(16)
                .collect(),
        )
    }

    /// The id of the call with this index.
    pub(super) fn call_id(&self, index: usize) -> String {
        format!("call_{}_{index}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(origin: &Origin, text: &str, call: &Value) -> String {
        let call: Call = serde_json::from_value(json!({"function": call})).unwrap();
        GeneratedIds::for_reply(origin, text, &[call]).call_id(0)
    }

    #[test]
    fn different_replies_have_different_call_ids() {
        let origin = |id: &str, created: u64| Origin {
            id: Some(id.into()),
            created: Some(created.into()),
        };
        let ls = json!({"name": "ls", "arguments": "{}"});
        let names = [
            call(&Origin::default(), "", &ls),
            call(&Origin::default(), "so", &ls),
            call(
                &Origin::default(),
                "",
                &json!({"name": "cd", "arguments": "{}"}),
            ),
            call(
                &Origin::default(),
                "",
                &json!({"name": "ls", "arguments": "{\"n\":1}"}),
            ),
            call(&origin("x", 1), "", &ls),
            call(&origin("y", 1), "", &ls),
            call(&origin("x", 2), "", &ls),
        ];
        let different: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(different.len(), names.len(), "{names:?}");
        assert!(names.iter().all(|name| name.len() <= 40));
        assert!(
            names
                .concat()
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '_')
        );
        assert_eq!(names[4], call(&origin("x", 1), "", &ls));
    }
}
