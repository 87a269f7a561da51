//! The form that a question of a tool server becomes: its fields are asked for one by one. Pure.
//!
//! A server asks for an object of simple values: texts, numbers, yes or no, choices. The user can
//! also type the whole object as JSON.

use dormouse::WantedAnswer;
use dormouse::program::ValueSchema;
use serde_json::{Map, Value};

use crate::terminal::one_line;

/// A question as a form.
#[derive(Debug)]
pub(super) struct Form {
    fields: Vec<Field>,
    /// What was typed so far.
    values: Map<String, Value>,
    /// The field that is asked for.
    at: usize,
}

/// What a typed line means.
#[derive(Debug, PartialEq)]
pub(super) enum Typed {
    /// The line is the value of the field: the next one is asked for.
    Value,
    /// The line is no value of the field, which is asked for again.
    Wrong(String),
    /// The answer is complete.
    Answer(Value),
    /// The user does not answer.
    Declined,
}

#[derive(Debug)]
struct Field {
    name: String,
    schema: Value,
    is_required: bool,
}

impl Form {
    pub(super) fn new(wanted: &WantedAnswer) -> Self {
        let fields = match wanted {
            WantedAnswer::Value(schema) => fields_of(schema.json()),
            _ => Vec::new(),
        };
        Self {
            fields,
            values: Map::new(),
            at: 0,
        }
    }

    /// How to fill the form in.
    pub(super) fn help(&self) -> &'static str {
        match self.fields.is_empty() {
            true => "  Ctrl-D declines.",
            false => {
                "  Type each value, or all of them as a JSON object. An empty line leaves out what is \
                 optional, Ctrl-D declines."
            }
        }
    }

    /// What is asked for now.
    pub(super) fn prompt(&self) -> String {
        match self.fields.get(self.at) {
            Some(field) => one_line(&field.prompt()),
            None => "  Agree? [y/N] ".to_owned(),
        }
    }

    /// Takes a typed line.
    pub(super) fn take(&mut self, line: &str) -> Typed {
        let line = line.trim();
        let Some(field) = self.fields.get(self.at) else {
            return match yes_or_no(line) {
                Some(true) => Typed::Answer(Value::Object(Map::new())),
                Some(false) | None => Typed::Declined,
            };
        };
        if self.at == 0
            && line.starts_with('{')
            && let Ok(object @ Value::Object(_)) = serde_json::from_str(line)
        {
            return Typed::Answer(object);
        }
        match field.parse(line) {
            Err(why) => return Typed::Wrong(why),
            Ok(Some(value)) => drop(self.values.insert(field.name.clone(), value)),
            Ok(None) => {}
        }
        self.at += 1;
        match self.at < self.fields.len() {
            true => Typed::Value,
            false => Typed::Answer(Value::Object(std::mem::take(&mut self.values))),
        }
    }
}

fn fields_of(schema: &Value) -> Vec<Field> {
    let is_required = |name: &String| {
        let required = schema["required"].as_array();
        required
            .is_some_and(|required| required.iter().any(|it| it.as_str() == Some(name.as_str())))
    };
    let properties = schema["properties"].as_object().into_iter().flatten();
    let fields = properties.map(|(name, schema)| Field {
        name: name.clone(),
        is_required: is_required(name),
        schema: schema.clone(),
    });
    fields.collect()
}

impl Field {
    fn prompt(&self) -> String {
        let text = |key: &str| self.schema[key].as_str();
        let about = text("description").or(text("title"));
        let about = about.map_or_else(String::new, |about| format!(" - {about}"));
        let mut notes = match self.choices() {
            choices if choices.is_empty() => {
                vec![text("type").unwrap_or("JSON").to_owned()]
            }
            choices => vec![choices.join(" | ")],
        };
        match &self.schema["default"] {
            Value::Null if self.is_required => {}
            Value::Null => notes.push("optional".to_owned()),
            default => notes.push(format!("default {}", shown(default))),
        }
        format!("  {}{about} ({}): ", self.name, notes.join(", "))
    }

    /// The values that a choice has; empty if the field is none.
    fn choices(&self) -> Vec<String> {
        let of = |schema: &Value| {
            let plain = schema["enum"].as_array();
            let titled = schema["oneOf"].as_array().or(schema["anyOf"].as_array());
            match (plain, titled) {
                (Some(plain), _) => plain.iter().map(shown).collect(),
                (None, Some(titled)) => titled.iter().map(|it| shown(&it["const"])).collect(),
                (None, None) => Vec::new(),
            }
        };
        match self.schema["type"].as_str() {
            Some("array") => of(&self.schema["items"]),
            _ => of(&self.schema),
        }
    }

    /// The value that a line means; `None` if the field is left out.
    fn parse(&self, line: &str) -> Result<Option<Value>, String> {
        if line.is_empty() {
            return match &self.schema["default"] {
                Value::Null if self.is_required => Err("A value is required.".to_owned()),
                Value::Null => Ok(None),
                default => Ok(Some(default.clone())),
            };
        }
        let json = || serde_json::from_str::<Value>(line).ok();
        let text = || Value::String(line.to_owned());
        let value = match self.schema["type"].as_str() {
            Some("string") => json().filter(Value::is_string).unwrap_or_else(text),
            Some("boolean") => yes_or_no(line).ok_or("Type yes or no.")?.into(),
            Some("array") => json().filter(Value::is_array).unwrap_or_else(|| {
                let items = line.split(',').map(|item| Value::from(item.trim()));
                items.collect()
            }),
            _ => json().unwrap_or_else(text),
        };
        // What is wrong is told before the next field is asked for.
        if let Ok(schema) = ValueSchema::parse(self.schema.clone())
            && let Err(violations) = schema.check(&value)
        {
            let violations: Vec<_> = violations.iter().map(ToString::to_string).collect();
            return Err(violations.join("; "));
        }
        Ok(Some(value))
    }
}

fn yes_or_no(line: &str) -> Option<bool> {
    match &*line.to_ascii_lowercase() {
        "y" | "yes" | "true" => Some(true),
        "n" | "no" | "false" => Some(false),
        _ => None,
    }
}

/// A value as the user types it.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn form() -> Form {
        let schema = ValueSchema::parse(json!({
            "type": "object",
            "properties": {
                "version": { "type": "string", "description": "The version" },
                "stage": { "type": "string", "enum": ["test", "live"] },
                "copies": { "type": "integer", "minimum": 1, "default": 2 },
                "notify": { "type": "boolean" },
                "tags": { "type": "array", "items": { "enum": ["a", "b"] } },
            },
            "required": ["version", "stage"],
        }));
        Form::new(&WantedAnswer::Value(schema.unwrap()))
    }

    #[test]
    fn fields_are_asked_for_one_by_one_and_checked() {
        let mut form = form();
        assert_eq!(form.prompt(), "  version - The version (string): ");
        assert_eq!(form.take("\n"), Typed::Wrong("A value is required.".into()));
        assert_eq!(form.take("2.0\n"), Typed::Value);
        assert_eq!(form.prompt(), "  stage (test | live): ");
        assert!(matches!(form.take("prod"), Typed::Wrong(_)));
        assert_eq!(form.take("live"), Typed::Value);
        assert_eq!(form.prompt(), "  copies (integer, default 2): ");
        assert!(matches!(form.take("0"), Typed::Wrong(_)));
        assert!(matches!(form.take("many"), Typed::Wrong(_)));
        assert_eq!(form.take(""), Typed::Value);
        assert_eq!(form.prompt(), "  notify (boolean, optional): ");
        assert_eq!(form.take("perhaps"), Typed::Wrong("Type yes or no.".into()));
        assert_eq!(form.take(" Y "), Typed::Value);
        assert_eq!(form.prompt(), "  tags (a | b, optional): ");
        let answer = json!({ "version": "2.0", "stage": "live", "copies": 2, "notify": true, "tags": ["a", "b"] });
        assert_eq!(form.take("a, b"), Typed::Answer(answer));
    }

    #[test]
    fn an_answer_can_be_typed_as_json() {
        let answer = json!({ "version": "1", "stage": "test" });
        assert_eq!(form().take(&answer.to_string()), Typed::Answer(answer));
        assert_eq!(form().take("{not json"), Typed::Value, "it is a text");
    }

    #[test]
    fn a_question_without_fields_asks_for_agreement() {
        let visit = || Form::new(&WantedAnswer::Visit("https://a.example".to_owned()));
        assert_eq!(visit().prompt(), "  Agree? [y/N] ");
        assert_eq!(visit().take("yes\n"), Typed::Answer(json!({})));
        assert_eq!(visit().take("\n"), Typed::Declined);
    }
}
