//! Parses the arguments of a call: JSON that a model wrote, checked against the parameters of the
//! command.

use std::collections::BTreeMap;

use dormouse_actors::ports::ToolError;
use dormouse_proto::command::{Parameter, ParameterKind};
use dormouse_proto::text::truncate;
use serde_json::{Map, Value};

/// Checked arguments by parameter name. A parameter that is not given and has no default is absent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Arguments {
    by_name: BTreeMap<String, Argument>,
}

/// One argument, as text for an argument list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Argument {
    pub(super) text: String,
    /// Whether the model chose the text freely. A default, a choice from a list, and a typed value
    /// are not free.
    pub(super) is_free: bool,
}

impl Arguments {
    /// Parses the arguments of a call. An empty text means an empty object, `null` means that the
    /// argument is not given, and a number may be written as a decimal string.
    ///
    /// # Errors
    /// Names the key and what is accepted.
    pub(super) fn read(json: &str, parameters: &[Parameter]) -> Result<Self, ToolError> {
        let values = parse_object(json)?;
        if let Some(unknown) = values
            .keys()
            .find(|key| parameters.iter().all(|p| p.name != **key))
        {
            return Err(format!(
                "`{unknown}` is not a parameter. {}",
                format_accepted(parameters)
            )
            .into());
        }
        let mut by_name = BTreeMap::new();
        for parameter in parameters {
            if let Some(argument) = read_argument(parameter, values.get(&parameter.name))? {
                by_name.insert(parameter.name.clone(), argument);
            }
        }
        Ok(Self { by_name })
    }

    pub(super) fn get(&self, name: &str) -> Option<&Argument> {
        self.by_name.get(name)
    }
}

fn parse_object(json: &str) -> Result<Map<String, Value>, ToolError> {
    let json = if json.trim().is_empty() { "{}" } else { json };
    match serde_json::from_str(json) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err("the arguments must be a JSON object.".into()),
        Err(error) => Err(format!("the arguments are not valid JSON: {error}.").into()),
    }
}

fn format_accepted(parameters: &[Parameter]) -> String {
    if parameters.is_empty() {
        return "It takes no parameters.".into();
    }
    let names: Vec<_> = parameters
        .iter()
        .map(|p| format!("`{}` ({})", p.name, kind_word(p.kind)))
        .collect();
    format!("Accepted: {}.", names.join(", "))
}

fn kind_word(kind: ParameterKind) -> &'static str {
    match kind {
        ParameterKind::String => "string",
        ParameterKind::Integer => "integer",
        ParameterKind::Number => "number",
        ParameterKind::Boolean => "boolean",
    }
}

fn read_argument(
    parameter: &Parameter,
    value: Option<&Value>,
) -> Result<Option<Argument>, ToolError> {
    let name = &parameter.name;
    let Some(value) = value.filter(|value| !value.is_null()) else {
        return match &parameter.default {
            Some(default) => Ok(Some(Argument {
                text: default.clone(),
                is_free: false,
            })),
            None if parameter.optional => Ok(None),
            None => Err(format!(
                "`{name}` is missing: it must be given as {}.",
                kind_word(parameter.kind)
            )
            .into()),
        };
    };
    let text = typed_text(parameter.kind, value).ok_or_else(|| {
        format!(
            "`{name}` must be of type {}, not {}.",
            kind_word(parameter.kind),
            excerpt(value)
        )
    })?;
    check_text(parameter, &text)?;
    let is_free = parameter.kind == ParameterKind::String && parameter.choices.is_empty();
    Ok(Some(Argument { text, is_free }))
}

/// The text of a value of the right type.
fn typed_text(kind: ParameterKind, value: &Value) -> Option<String> {
    match (kind, value) {
        (ParameterKind::String, Value::String(text)) => Some(text.clone()),
        (ParameterKind::Boolean, Value::Bool(value)) => Some(value.to_string()),
        (ParameterKind::Integer, Value::Number(number)) if !number.is_f64() => {
            Some(number.to_string())
        }
        (ParameterKind::Integer, Value::String(text)) if is_decimal(text) => {
            text.parse::<i128>().ok().map(|n| n.to_string())
        }
        (ParameterKind::Number, Value::Number(number)) => Some(number.to_string()),
        (ParameterKind::Number, Value::String(text)) if text.split('.').count() <= 2 => {
            let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
            let is_number = is_decimal(whole) && is_decimal(fraction) && !fraction.starts_with('-');
            is_number.then(|| text.clone())
        }
        _ => None,
    }
}

fn is_decimal(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn check_text(parameter: &Parameter, text: &str) -> Result<(), ToolError> {
    let name = &parameter.name;
    if text.contains('\0') {
        return Err(
            format!("`{name}` holds a NUL character, which no argument of a program can.").into(),
        );
    }
    let is_choice = |choice: &String| choice == text || is_same_number(parameter, choice, text);
    if !parameter.choices.is_empty() && !parameter.choices.iter().any(is_choice) {
        let choices = parameter.choices.join(", ");
        return Err(format!(
            "`{name}` must be one of: {choices}; not {}.",
            excerpt(&Value::from(text))
        )
        .into());
    }
    Ok(())
}

/// Whether two texts are the same number, such as the choice `1.50` and the `1.5` of a call.
fn is_same_number(parameter: &Parameter, one: &str, other: &str) -> bool {
    let one = parameter.typed(one).as_f64();
    parameter.kind == ParameterKind::Number
        && one.is_some()
        && one == parameter.typed(other).as_f64()
}

/// A value as JSON, short enough for an error.
fn excerpt(value: &Value) -> String {
    const LONGEST_CHARS: usize = 80;
    truncate(&value.to_string(), LONGEST_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameter(name: &str, kind: ParameterKind) -> Parameter {
        let (name, description) = (name.to_owned(), String::new());
        Parameter {
            name,
            kind,
            description,
            default: None,
            optional: true,
            choices: Vec::new(),
        }
    }

    fn parameters() -> Vec<Parameter> {
        vec![
            Parameter {
                optional: false,
                ..parameter("s", ParameterKind::String)
            },
            parameter("i", ParameterKind::Integer),
            parameter("n", ParameterKind::Number),
            parameter("b", ParameterKind::Boolean),
            Parameter {
                choices: vec!["red".into(), "-green".into()],
                ..parameter("c", ParameterKind::String)
            },
            Parameter {
                choices: vec!["1.50".into(), "2".into()],
                ..parameter("r", ParameterKind::Number)
            },
            Parameter {
                default: Some("-dflt".into()),
                ..parameter("d", ParameterKind::String)
            },
        ]
    }

    #[test]
    fn arguments_of_the_right_type_become_text() {
        let cases = [
            (r#"{"s":"x"}"#, "s", Some(("x", true))),
            (r#"{"s":""}"#, "s", Some(("", true))),
            (r#"{"s":"x"}"#, "i", None),
            (r#"{"s":"x","i":null}"#, "i", None),
            (r#"{"s":"x"}"#, "d", Some(("-dflt", false))),
            (r#"{"s":"x","d":"y"}"#, "d", Some(("y", true))),
            (r#"{"s":"x","i":-5}"#, "i", Some(("-5", false))),
            (r#"{"s":"x","i":"42"}"#, "i", Some(("42", false))),
            (r#"{"s":"x","i":"007"}"#, "i", Some(("7", false))),
            (r#"{"s":"x","n":1.5}"#, "n", Some(("1.5", false))),
            (r#"{"s":"x","n":"-1.5"}"#, "n", Some(("-1.5", false))),
            (r#"{"s":"x","n":3}"#, "n", Some(("3", false))),
            (r#"{"s":"x","b":true}"#, "b", Some(("true", false))),
            (r#"{"s":"x","c":"-green"}"#, "c", Some(("-green", false))),
            (r#"{"s":"x","r":1.5}"#, "r", Some(("1.5", false))),
        ];
        for (json, name, expected) in cases {
            let arguments = Arguments::read(json, &parameters()).expect(json);
            let got = arguments
                .get(name)
                .map(|argument| (argument.text.as_str(), argument.is_free));
            assert_eq!(got, expected, "{json} {name}");
        }
    }

    #[test]
    fn an_invalid_argument_is_reported_with_its_key_and_the_valid_values() {
        let cases = [
            ("", &["`s`", "missing", "string"][..]),
            ("{}", &["`s`", "missing"]),
            (r#"{"s":null}"#, &["`s`", "missing"]),
            ("[1]", &["JSON object"]),
            ("{", &["not valid JSON"]),
            (
                r#"{"s":"x","z":1}"#,
                &["`z`", "`i` (integer)", "`c` (string)"],
            ),
            (r#"{"s":5}"#, &["`s`", "string", "5"]),
            (r#"{"s":"a\u0000b"}"#, &["`s`", "NUL"]),
            (r#"{"s":"x","i":1.5}"#, &["`i`", "integer", "1.5"]),
            (r#"{"s":"x","i":"1x"}"#, &["`i`", "integer", "\"1x\""]),
            (r#"{"s":"x","i":"-"}"#, &["`i`", "integer"]),
            (r#"{"s":"x","i":"+1"}"#, &["`i`", "integer"]),
            (r#"{"s":"x","i":true}"#, &["`i`", "integer", "true"]),
            (r#"{"s":"x","n":"1.-5"}"#, &["`n`", "number"]),
            (r#"{"s":"x","n":"inf"}"#, &["`n`", "number"]),
            (r#"{"s":"x","b":"yes"}"#, &["`b`", "boolean"]),
            (
                r#"{"s":"x","c":"blue"}"#,
                &["`c`", "red, -green", "\"blue\""],
            ),
        ];
        for (json, parts) in cases {
            let error = Arguments::read(json, &parameters())
                .expect_err(json)
                .to_string();
            for part in parts {
                assert!(error.contains(part), "{json}: {part}: {error}");
            }
        }
    }

    #[test]
    fn a_long_value_is_not_repeated_in_full() {
        let json = format!(r#"{{"s":"x","i":"{}"}}"#, "é".repeat(10_000));
        let error = Arguments::read(&json, &parameters()).expect_err("it is no integer");
        assert!(error.to_string().chars().count() < 200, "{error}");
    }
}
