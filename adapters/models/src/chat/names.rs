//! Names for calls that came without.

use serde_json::{Value, json};

use super::decode::Call;

/// What a server calls a reply, as it came.
#[derive(Clone, Debug, Default)]
pub(super) struct Origin {
    pub(super) id: Option<Value>,
    pub(super) created: Option<Value>,
}

/// The ids of a reply's calls that have none: always the same for this reply, whether it comes
/// whole or as events, and others in another one. They hold letters, digits and `_`, which every
/// provider takes.
#[derive(Debug)]
pub(super) struct Names(String);

impl Names {
    /// Made of what the server calls the reply, and of what it says: servers that name no calls may
    /// not name replies either.
    pub(super) fn of(origin: &Origin, text: &str, calls: &[Call]) -> Self {
        let calls: Vec<_> = calls.iter().map(Call::said).collect();
        let reply = json!([origin.id, origin.created, text, calls]).to_string();
        Self(
            blake3::hash(reply.as_bytes())
                .to_hex()
                .chars()
                .take(16)
                .collect(),
        )
    }

    /// The id of the call at this place.
    pub(super) fn call(&self, index: usize) -> String {
        format!("call_{}_{index}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(origin: &Origin, text: &str, call: &Value) -> String {
        let call: Call = serde_json::from_value(json!({"function": call})).unwrap();
        Names::of(origin, text, &[call]).call(0)
    }

    #[test]
    fn another_reply_has_other_ids() {
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
