//! The container of a conversation, in which the provider's tools run code.
//!
//! A reply names its container and says until when it lives. Later requests name it again, so that
//! files and variables are still there; a request that answers a call which code in the container
//! made is refused without it. The name is kept in the reply as a *note*: an opaque block that this
//! crate adds, which is stored with the conversation and sent to no provider ([`Raw::note`]). So a
//! fork or a restored process continues in the same container. A compaction moves the latest note
//! into the summary.
//!
//! Requests name it after the messages: it changes from reply to reply, and what comes before the
//! messages may not (HIST-1).

use std::time::{Duration, SystemTime};

use dormouse_proto::message::{Block, Raw};
use dormouse_proto::model::Request;
use dormouse_proto::server_tool::{CONTAINER_NOTE, container_note, latest_container_note};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::wire::json_fields::{Fields, to_raw};

/// The parameter, and the field of replies, that holds a container.
pub(super) const CONTAINER: &str = "container";

/// The container that a reply names.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Container {
    id: Option<String>,
    expires_at: Option<String>,
}

impl Container {
    /// The note that keeps the container with the reply; none if it has no name.
    pub(super) fn into_note(self) -> Option<Block> {
        let id = self.id.filter(|id| !id.is_empty())?;
        let note = Fields::of_type(CONTAINER_NOTE)
            .with("id", &id)
            .with_some("expires_at", self.expires_at.as_ref());
        Some(Block::Opaque(Raw::note(note.to_json())))
    }

    /// The container that a note names; none if the block is another one.
    fn of_note(block: &Block) -> Option<Self> {
        let fields: Fields = serde_json::from_str(container_note(block)?).ok()?;
        Some(Self {
            id: fields.text("id"),
            expires_at: fields.text("expires_at"),
        })
    }

    /// Whether the provider has deleted the container. If the time is not known, the provider can
    /// tell.
    fn is_expired(&self, now: SystemTime) -> bool {
        let until = self.expires_at.as_deref().and_then(parse_utc);
        until.is_some_and(|until| until <= now)
    }
}

/// Reads a container, which is none where it has another form.
pub(super) fn lenient<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Container>, D::Error> {
    Value::deserialize(from).map(|value| serde_json::from_value(value).ok())
}

/// What a request says about its container: what the program says, with the name of the latest
/// container unless the program names one itself.
pub(super) fn of_request(request: &Request, now: SystemTime) -> Option<Value> {
    let messages = request.messages.iter().map(|message| &**message);
    let latest = latest_container_note(messages)
        .and_then(Container::of_note)
        .filter(|latest| !latest.is_expired(now));
    let id = latest.and_then(|latest| latest.id).map(Value::String);
    let mut program = request.parameters.get(CONTAINER).cloned();
    match (&mut program, id) {
        (Some(Value::Object(fields)), Some(id)) if !fields.contains_key("id") => {
            fields.insert("id".to_owned(), id);
            program
        }
        (Some(_), _) => program,
        (None, id) => id,
    }
}

/// The field at the end of a request, with the comma before it; empty without a container.
pub(super) fn field(request: &Request, now: SystemTime) -> String {
    of_request(request, now)
        .map(|container| format!(",\"{CONTAINER}\":{}", to_raw(&container)))
        .unwrap_or_default()
}

/// Parses a time such as `2026-04-24T11:13:36.730129Z`, in whole seconds. None for another form or
/// another time zone.
fn parse_utc(text: &str) -> Option<SystemTime> {
    let text = text.strip_suffix('Z').or(text.strip_suffix("+00:00"))?;
    let (date, time) = text.split_once('T')?;
    let numbers = |text: &str, separator: char| -> Option<[u64; 3]> {
        let parts: Option<Vec<_>> = text
            .split(separator)
            .map(|part| part.parse().ok())
            .collect();
        parts?.try_into().ok()
    };
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(time.split('.').next()?, ':')?;
    let is_date = (1970..10_000).contains(&year) && (1..=12).contains(&month);
    if !is_date || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let leap_days = |year: u64| year / 4 - year / 100 + year / 400;
    let is_leap = leap_days(year) > leap_days(year - 1);
    let days_before_month = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let month_index = usize::try_from(month).ok()? - 1;
    let days = (year - 1970) * 365 + leap_days(year - 1) - leap_days(1969)
        + days_before_month[month_index]
        + u64::from(is_leap && month > 2)
        + (day - 1);
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use dormouse_proto::message::Role;
    use serde_json::json;

    use super::super::{Messages, StreamDecoder};
    use super::*;
    use crate::testing::{decoded, message, request};
    use crate::wire::{Codec, Delivery, Purpose};

    const UNTIL: &str = "2026-04-24T11:13:36.730129Z";
    const UNTIL_S: u64 = 1_777_029_216;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn tail(messages: &[&str], parameters: Value, now_s: u64) -> String {
        let replies = messages.iter().map(|json| {
            let reply = Messages.decode(json).unwrap();
            message(Role::Assistant, reply.blocks)
        });
        let request = request(replies.collect(), parameters);
        let purpose = Purpose::Reply(Delivery::Stream);
        Messages.encode_tail(&request, purpose, at(now_s)).unwrap()
    }

    fn reply(id: &str, until: Value) -> String {
        let container = json!({"id": id, "expires_at": until});
        json!({"content": [], "stop_reason": "end_turn", "container": container}).to_string()
    }

    #[test]
    fn the_latest_container_is_named_until_it_expires() {
        let (first, second) = (reply("c1", json!(UNTIL)), reply("c2", json!(UNTIL)));
        let none = json!({"content": [], "stop_reason": "end_turn", "container": null}).to_string();
        let c2 = r#"],"container":"c2","max_tokens":4096}"#;
        let without = r#"],"max_tokens":4096}"#;
        let all = [&*first, &*second, &*none];
        let cases = [
            (tail(&all, json!({}), UNTIL_S - 1), c2),
            (tail(&all, json!({}), UNTIL_S), without),
            (tail(&[&none], json!({}), 0), without),
            (tail(&[&reply("", json!(UNTIL))], json!({}), 0), without),
            // The provider can tell what we cannot.
            (tail(&[&reply("c2", json!("soon"))], json!({}), UNTIL_S), c2),
            (tail(&[&reply("c2", json!(null))], json!({}), UNTIL_S), c2),
        ];
        for (sent, expected) in cases {
            assert_eq!(sent, expected);
        }
    }

    #[test]
    fn a_summary_names_the_container_of_the_messages_that_it_replaces() {
        let decoded = Messages.decode(&reply("c1", json!(UNTIL))).unwrap();
        let mut blocks = vec![Block::text("so far")];
        blocks.extend(decoded.blocks);
        let request = request(vec![message(Role::User, blocks)], json!({}));
        let body = crate::testing::streamed(&Messages, &request);
        let content = r#""content":[{"type":"text","text":"so far"}]"#;
        assert!(body.contains(content), "{body}");
        let purpose = Purpose::Reply(Delivery::Stream);
        let tail = Messages.encode_tail(&request, purpose, at(0)).unwrap();
        assert_eq!(tail, r#"],"container":"c1","max_tokens":4096}"#);
    }

    #[test]
    fn what_the_program_says_comes_first() {
        let known = reply("c1", json!(UNTIL));
        let cases = [
            (json!("mine"), json!("mine")),
            (json!({"id": "mine"}), json!({"id": "mine"})),
            (json!({"skills": []}), json!({"skills": [], "id": "c1"})),
        ];
        for (written, expected) in cases {
            let sent = tail(&[&known], json!({ "container": written }), 0);
            let expected = format!(r#"],"container":{expected},"max_tokens":4096}}"#);
            assert_eq!(sent, expected);
            let request = request(vec![], json!({ "container": written }));
            let head = Messages.encode_head(&request, Purpose::Reply(Delivery::Whole), None);
            assert!(!head.unwrap().contains("container"));
            let count = Messages.encode_tail(&request, Purpose::Count, at(0));
            assert_eq!(count.unwrap(), "]}");
        }
    }

    #[test]
    fn a_stream_names_its_container_at_its_end_and_the_note_is_never_sent() {
        let start = r#"{"type":"message_start","message":{"content":[]}}"#;
        let delta = json!({"type": "message_delta", "delta": {"stop_reason": "end_turn",
            "container": {"id": "c1", "expires_at": UNTIL}}});
        let stop = r#"{"type":"message_stop"}"#;
        let events = [start, &delta.to_string(), stop];
        let streamed = decoded::<StreamDecoder>(&events).0.unwrap();
        let whole = Messages.decode(&reply("c1", json!(UNTIL))).unwrap();
        assert_eq!(streamed, whole);
        let said = message(Role::Assistant, whole.blocks);
        let body = crate::testing::streamed(&Messages, &request(vec![said], json!({})));
        assert!(body.contains(r#""messages":[]"#), "{body}");
    }

    #[test]
    fn times_are_parsed_in_utc() {
        let cases = [
            ("1970-01-01T00:00:00Z", Some(0)),
            (UNTIL, Some(UNTIL_S)),
            ("2000-02-29T23:59:59.5+00:00", Some(951_868_799)),
            ("2024-03-01T00:00:00Z", Some(1_709_251_200)),
            ("2100-03-01T00:00:00Z", Some(4_107_542_400)),
            ("2026-04-24T11:13:36+02:00", None),
            ("2026-13-01T00:00:00Z", None),
            ("2026-00-01T00:00:00Z", None),
            ("99999999999999999999-01-01T00:00:00Z", None),
            ("2026-04-24", None),
            ("", None),
        ];
        for (text, seconds) in cases {
            assert_eq!(parse_utc(text), seconds.map(at), "{text}");
        }
    }
}
