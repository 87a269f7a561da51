//! Joins the parts of the tool calls of a streamed reply. Servers differ in how a part names its
//! call, so these rules apply:
//!
//! * A part belongs to the call with its index. Without an index, it belongs to the call with its
//!   id, or to the call that was extended last.
//! * A part with a name begins a new call if it has another id, or if the arguments of the call so
//!   far are complete. Calls are therefore distinguished even if all have the same index, or none.
//! * A repeated id or name does not begin a call. A part without a name continues its call even if
//!   its id differs: the first id counts.
//! * A name may come in pieces, so a call is reported when its arguments begin, or at the end of the
//!   reply.

use dormouse_proto::model::{Delta, ModelError};
use serde_json::value::RawValue;

use super::partial_object::PartialObject;
use crate::wire::excerpt::{check_count, malformed_in};
use crate::wire::json_fields::{Fields, as_string, to_raw};

/// The most calls of a reply. No real reply has so many.
const MAX_CALLS: usize = 1024;

/// The calls so far, in the order in which they began.
#[derive(Clone, Debug, Default)]
pub(super) struct Calls {
    calls: Vec<Call>,
    /// The call that was extended last.
    last: usize,
}

#[derive(Clone, Debug, Default)]
struct Call {
    index: u64,
    /// The position of the call in the reply: its index, or the end if another call has that index.
    position: u64,
    id: String,
    arguments: Nesting,
    fields: PartialObject,
    kind: CallKind,
    function: PartialObject,
    is_reported: bool,
}

/// The kind of tool that is called, which is also the name of the field that says what is called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CallKind {
    /// A function, which takes an object.
    #[default]
    Function,
    /// A custom tool, which takes a text.
    Custom,
}

impl CallKind {
    fn field(self) -> &'static str {
        match self {
            Self::Function => "function",
            Self::Custom => "custom",
        }
    }
}

/// A part of a call, with the fields that say to which call it belongs.
#[derive(Clone, Debug)]
struct Part {
    index: Option<u64>,
    /// The position of the part among the parts of its event; none if it is the only one.
    event_position: Option<u64>,
    id: String,
    name: String,
    fields: Fields,
    kind: CallKind,
    function: Fields,
}

impl Calls {
    /// Adds the parts of one event.
    pub(super) fn add_parts(
        &mut self,
        parts: &RawValue,
        deltas: &dyn Fn(Delta),
    ) -> Result<(), ModelError> {
        let parts: Vec<Fields> = serde_json::from_str(parts.get())
            .map_err(|error| malformed_in("call", parts.get(), &error))?;
        let has_several = parts.len() > 1;
        for (event_position, fields) in (0..).zip(parts) {
            let part = Part::parse(fields, Some(event_position).filter(|_| has_several))?;
            let continued_call = self.continued_call(&part);
            self.last = match continued_call {
                Some(at) => at,
                None => self.begin_call(&part)?,
            };
            let call = &mut self.calls[self.last];
            call.add_part(&part)?;
            if part.has_text("arguments") || part.has_text("input") {
                call.report(deltas);
            }
        }
        Ok(())
    }

    /// Reports the calls that are not reported yet. All parts have been added.
    pub(super) fn report_rest(&mut self, deltas: &dyn Fn(Delta)) {
        for call in &mut self.calls {
            call.report(deltas);
        }
    }

    /// The call that a part continues; none if the part begins a new call.
    fn continued_call(&self, part: &Part) -> Option<usize> {
        let has_index = |call: &Call| part.index.is_none_or(|index| call.index == index);
        let has_id = |call: &Call| !part.id.is_empty() && call.id == part.id && has_index(call);
        if let Some(at) = self.calls.iter().rposition(has_id) {
            return Some(at);
        }
        let at = match part.index.or(part.event_position) {
            Some(index) => self.calls.iter().rposition(|call| call.index == index)?,
            None => self.last,
        };
        self.calls
            .get(at)
            .filter(|call| !call.ends_before(part))
            .map(|_| at)
    }

    fn begin_call(&mut self, part: &Part) -> Result<usize, ModelError> {
        check_count(self.calls.len() + 1, MAX_CALLS, "calls")?;
        let end = self
            .calls
            .iter()
            .map(|call| call.position.saturating_add(1))
            .max()
            .unwrap_or_default();
        let index = part.index.or(part.event_position).unwrap_or(end);
        let position = if self.calls.iter().any(|call| call.position == index) {
            end
        } else {
            index
        };
        self.calls.push(Call {
            index,
            position,
            ..Call::default()
        });
        Ok(self.calls.len() - 1)
    }

    /// Whether there is no call yet.
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// The calls in the form of a complete reply.
    pub(super) fn finish(mut self) -> Vec<Fields> {
        self.calls.sort_by_key(|call| call.position);
        self.calls.into_iter().map(Call::finish).collect()
    }
}

impl Part {
    fn parse(fields: Fields, event_position: Option<u64>) -> Result<Self, ModelError> {
        let given = |kind: CallKind| {
            let value = fields.get(kind.field());
            value.filter(|value| value.get() != "null")
        };
        let kind = match given(CallKind::Custom) {
            Some(_) => CallKind::Custom,
            None => CallKind::Function,
        };
        let function = given(kind).map_or("{}", RawValue::get);
        let function: Fields = serde_json::from_str(function)
            .map_err(|error| malformed_in("call", function, &error))?;
        Ok(Self {
            index: fields
                .get("index")
                .and_then(|index| serde_json::from_str(index.get()).ok()),
            event_position,
            id: fields.text("id").unwrap_or_default(),
            name: function.text("name").unwrap_or_default(),
            kind,
            fields,
            function,
        })
    }

    /// Whether a field of the function is there, and is not empty.
    fn has_text(&self, field: &str) -> bool {
        self.function
            .get(field)
            .is_some_and(|text| !matches!(text.get(), "null" | "\"\""))
    }
}

impl Call {
    /// Whether a part begins a new call, although it has the index of this call, or follows it
    /// without an index. The part does not have the id of this call.
    fn ends_before(&self, part: &Part) -> bool {
        let has_other_id = !self.id.is_empty() && !part.id.is_empty();
        let repeats_name = part.name == self.function.text("name") && !part.has_text("arguments");
        !part.name.is_empty()
            && (has_other_id || self.arguments == Nesting::Closed && !repeats_name)
    }

    fn add_part(&mut self, part: &Part) -> Result<(), ModelError> {
        let is_present = |value: &RawValue| !matches!(value.get(), "null" | "\"\"");
        for (name, value) in part.fields.iter().filter(|(_, value)| is_present(value)) {
            match name {
                "index" | "function" | "custom" => {}
                "id" if self.id.is_empty() => {
                    self.id.clone_from(&part.id);
                    self.fields.replace(name, value)?;
                }
                "id" => {}
                "type" => self.fields.replace(name, value)?,
                _ => self.fields.extend(name, value)?,
            }
        }
        if part.kind == CallKind::Custom {
            self.kind = part.kind;
        }
        for (name, value) in part
            .function
            .iter()
            .filter(|(_, value)| value.get() != "null")
        {
            match name {
                "name" if part.name.is_empty() || part.name == self.function.text("name") => {}
                "arguments" => {
                    // Some servers send the object itself instead of its text.
                    self.arguments
                        .advance(as_string(value).as_deref().unwrap_or(value.get()));
                    self.function.extend(name, value)?;
                }
                _ => self.function.extend(name, value)?,
            }
        }
        Ok(())
    }

    /// Reports the call, once it has a name.
    fn report(&mut self, deltas: &dyn Fn(Delta)) {
        let name = self.function.text("name");
        if !self.is_reported && !name.is_empty() {
            deltas(Delta::ToolUse(name.to_owned()));
            self.is_reported = true;
        }
    }

    fn finish(self) -> Fields {
        let mut call = self.fields.finish();
        call.set(self.kind.field(), to_raw(&self.function.finish()));
        call
    }
}

/// The nesting at the end of a partial JSON text. Each part of the text is read only once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Nesting {
    /// The object has not begun.
    #[default]
    Before,
    /// In an object or a list at this depth.
    Inside(usize),
    /// In a string at this depth.
    Quoted(usize),
    /// After a backslash in a string.
    Escaped(usize),
    /// The object is closed.
    Closed,
}

impl Nesting {
    fn advance(&mut self, text: &str) {
        *self = text.bytes().fold(*self, Self::step);
    }

    fn step(self, byte: u8) -> Self {
        match (self, byte) {
            (Self::Before, b'{') => Self::Inside(1),
            (Self::Inside(depth), b'"') => Self::Quoted(depth),
            (Self::Inside(depth), b'{' | b'[') => Self::Inside(depth + 1),
            (Self::Inside(1), b'}' | b']') => Self::Closed,
            (Self::Inside(depth), b'}' | b']') => Self::Inside(depth - 1),
            (Self::Quoted(depth), b'\\') => Self::Escaped(depth),
            (Self::Quoted(depth), b'"') => Self::Inside(depth),
            (Self::Escaped(depth), _) => Self::Quoted(depth),
            (position, _) => position,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Joins the parts of `events` and compares the calls: id, name and arguments.
    fn check(events: &[&str], expected: &[(&str, &str, &str)]) {
        let reported = RefCell::new(Vec::new());
        let mut calls = Calls::default();
        for event in events {
            let parts = RawValue::from_string(format!("[{event}]")).unwrap();
            calls
                .add_parts(&parts, &|delta| reported.borrow_mut().push(delta))
                .unwrap();
        }
        calls.report_rest(&|delta| reported.borrow_mut().push(delta));
        let names = expected
            .iter()
            .map(|(_, name, _)| Delta::ToolUse((*name).to_owned()));
        let names: Vec<_> = names.collect();
        assert_eq!(reported.into_inner(), names, "{events:?}");
        let found: Vec<_> = calls.finish().iter().map(parts_of).collect();
        let found: Vec<_> = found
            .iter()
            .map(|(id, name, args)| (id.as_str(), name.as_str(), args.as_str()))
            .collect();
        assert_eq!(found, expected, "{events:?}");
    }

    fn parts_of(call: &Fields) -> (String, String, String) {
        let function: Fields = serde_json::from_str(call.get("function").unwrap().get()).unwrap();
        let args = function
            .text("arguments")
            .or_else(|| Some(function.get("arguments")?.get().to_owned()));
        (
            call.text("id").unwrap_or_default(),
            function.text("name").unwrap(),
            args.unwrap_or_default(),
        )
    }

    #[test]
    fn calls_with_equal_or_missing_indexes_are_not_joined() {
        let ollama = [
            r#"{"index":0,"id":"a","type":"function","function":{"name":"ls","arguments":"{\"n\":1}"}}"#,
            r#"{"index":0,"id":"b","type":"function","function":{"name":"ls","arguments":"{\"n\":2}"}}"#,
        ];
        let unnumbered = ollama.map(|part| part.replace(r#""index":0,"#, ""));
        let unnamed = ollama.map(|part| {
            part.replace(r#""id":"a","#, "")
                .replace(r#""id":"b","#, r#""id":"","#)
        });
        let neither = unnamed
            .clone()
            .map(|part| part.replace(r#""index":0,"#, ""));
        let object = neither.clone().map(|part| {
            part.replace(r#""{\"n\":"#, r#"{"n":"#)
                .replace("}\"}", "}}")
        });
        let same = [r#"{"n":1}"#, r#"{"n":2}"#];
        for (events, ids) in [
            (ollama.map(str::to_owned), ["a", "b"]),
            (unnumbered, ["a", "b"]),
            (unnamed, ["", ""]),
            (neither, ["", ""]),
            (object, ["", ""]),
        ] {
            let expected = [(ids[0], "ls", same[0]), (ids[1], "ls", same[1])];
            check(&[&events[0], &events[1]], &expected);
            if !events[0].contains("index") {
                check(&[&events.join(",")], &expected);
            }
        }
        let bare = r#"{"function":{"name":"ls","arguments":""}},{"function":{"name":"cd","arguments":""}}"#;
        check(&[bare], &[("", "ls", ""), ("", "cd", "")]);
        let third = r#"{"index":1,"id":"c","function":{"name":"cd","arguments":"{}"}}"#;
        check(
            &[ollama[0], ollama[1], third],
            &[
                ("a", "ls", same[0]),
                ("b", "ls", same[1]),
                ("c", "cd", "{}"),
            ],
        );
    }

    #[test]
    fn repeated_or_missing_ids_and_names_continue_a_call() {
        let begun = r#"{"index":0,"id":"a","type":"function","function":{"name":"ls","arguments":"{\"n\""}}"#;
        let ends = [
            r#"{"index":0,"id":"a","type":"function","function":{"name":"ls","arguments":":1}"}}"#,
            r#"{"index":0,"function":{"name":"ls","arguments":":1}"}}"#,
            r#"{"index":0,"id":"","type":"","function":{"name":"","arguments":":1}"}}"#,
            r#"{"index":0,"id":null,"function":{"name":null,"arguments":":1}"}}"#,
            r#"{"index":0,"id":"made-up","function":{"arguments":":1}"}}"#,
            r#"{"function":{"arguments":":1}"}}"#,
        ];
        for end in ends {
            let last = end.replace(":1}", "");
            check(&[begun, end, &last], &[("a", "ls", r#"{"n":1}"#)]);
        }
        let second = r#"{"index":0,"id":"b","function":{"name":"cd","arguments":"{"}}"#;
        let late = [
            r#"{"index":0,"id":"a","function":{"arguments":":1}"}}"#,
            r#"{"id":"b","function":{"arguments":"}"}}"#,
        ];
        check(
            &[begun, second, late[0], late[1]],
            &[("a", "ls", r#"{"n":1}"#), ("b", "cd", "{}")],
        );
        let pieces = [
            r#"{"index":0,"id":"a","function":{"name":"l"}}"#,
            r#"{"index":0,"function":{"name":"s"}}"#,
        ];
        check(&pieces, &[("a", "ls", "")]);
        let named_late = [
            r#"{"index":0,"function":{"name":"ls"}}"#,
            r#"{"index":0,"id":"a"}"#,
        ];
        check(&named_late, &[("a", "ls", "")]);
    }

    #[test]
    fn arguments_are_complete_when_their_object_is_closed() {
        let cases = [
            (&["{", "}"][..], true),
            (&[" {\"a\":[{}", "]} "], true),
            (&["{\"}\\", "\"}\""], false),
            (&["{\"}\\", "\"}\":{}}"], true),
            (&["{\"\\\\\":1}"], true),
            (&["", "null", "7"], false),
        ];
        for (parts, is_closed) in cases {
            let mut nesting = Nesting::default();
            parts.iter().for_each(|part| nesting.advance(part));
            assert_eq!(nesting == Nesting::Closed, is_closed, "{parts:?}");
        }
    }
}
