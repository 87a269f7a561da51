//! Parsing and checking of tool arguments, which are JSON text of a model.
//!
//! An unknown key or a value of a wrong type is an error that names the key and what is accepted.
//! Models send numbers and booleans as strings, so a decimal integer and `true` or `false` are
//! accepted in quotes as well.

use std::collections::BTreeMap;

use dormouse_proto::descriptor::{FdError, FdErrorKind};
use serde_json::Value;

use super::parameter::{self, OfferedParameters, Parameter, ParameterKind};
use super::{TOOL_SET, Tool};
use crate::program::Program;
use dormouse_content::Unreadable;

/// The longest label or name, in characters.
const MAX_LABEL_CHARS: usize = 64;

/// The value of an argument, converted to the type of its parameter.
#[derive(Debug)]
enum Arg {
    Text(String),
    /// An integer beyond 64 bits is clamped; it is out of every valid range anyway.
    Integer(i64),
    Flag(bool),
    List(Vec<Value>),
}

/// The arguments of one call. Every key is known and every value has the right type.
#[derive(Debug)]
pub(super) struct Args {
    tool: &'static str,
    parameters: &'static [Parameter],
    offered: OfferedParameters,
    fd: Option<String>,
    values: BTreeMap<&'static str, Arg>,
}

impl Args {
    /// Parses the arguments of a call of `tool`.
    ///
    /// # Errors
    /// `invalid_parameter`: not a JSON object, an unknown parameter, or a wrong type.
    pub(super) fn parse(tool: &'static Tool, text: &str) -> Result<Self, FdError> {
        Self::parse_with(tool.name, tool.parameters, OfferedParameters::ALL, text)
    }

    /// Parses arguments for a process of `program`. The program decides which of the tool's
    /// parameters are offered.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub(super) fn parse_for_program(
        tool: &'static Tool,
        program: &Program,
        text: &str,
    ) -> Result<Self, FdError> {
        Self::parse_with(
            tool.name,
            tool.parameters,
            TOOL_SET.offered_parameters(program),
            text,
        )
    }

    /// Parses arguments against a list of parameters.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub(super) fn parse_with(
        tool: &'static str,
        parameters: &'static [Parameter],
        offered: OfferedParameters,
        text: &str,
    ) -> Result<Self, FdError> {
        let mut args = Self {
            tool,
            parameters,
            offered,
            fd: None,
            values: BTreeMap::new(),
        };
        let object = match serde_json::from_str(text) {
            Ok(Value::Object(object)) => object,
            Ok(_) => {
                return Err(args.invalid_error(format!(
                    "The arguments of {tool} must be a JSON object. {}",
                    args.list_accepted()
                )));
            }
            Err(error) => {
                return Err(
                    args.invalid_error(format!("The arguments of {tool} are not JSON: {error}"))
                );
            }
        };
        args.fd = object
            .get("fd")
            .map(|fd| fd.as_str().map_or_else(|| fd.to_string(), str::to_owned));
        for (name, value) in &object {
            let Parameter { name, kind, .. } = args.find_parameter(name)?;
            let Some(arg) = convert(value, *kind) else {
                return Err(args.invalid_error(format!(
                    "Parameter '{name}' must be {}, not {value}.",
                    kind.accepted()
                )));
            };
            args.values.insert(name, arg);
        }
        Ok(args)
    }

    /// Looks a parameter up by name.
    fn find_parameter(&self, name: &str) -> Result<&'static Parameter, FdError> {
        let known = self
            .parameters
            .iter()
            .filter(|parameter| parameter.is_offered(self.offered));
        if let Some(parameter) = known.clone().find(|parameter| parameter.name == name) {
            return Ok(parameter);
        }
        let listed = parameter::names(self.parameters, self.offered);
        let candidates = listed.map(|known| (strsim::jaro(known, name), known));
        let nearest = candidates
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .filter(|(similarity, _)| *similarity > 0.8);
        let hint = nearest
            .map(|(_, known)| format!(" Did you mean '{known}'?"))
            .unwrap_or_default();
        Err(self.invalid_error(format!(
            "Unknown parameter '{name}'.{hint} {}",
            self.list_accepted()
        )))
    }

    /// The sentence of an error that lists the accepted parameters.
    fn list_accepted(&self) -> String {
        let names: Vec<_> = parameter::names(self.parameters, self.offered).collect();
        if names.is_empty() {
            return format!("{} takes no parameters.", self.tool);
        }
        format!("{} accepts: {}.", self.tool, names.join(", "))
    }

    /// Creates arguments that contain only a descriptor, for errors about a descriptor that is not
    /// an argument of a call.
    pub(super) fn for_descriptor(fd: &str) -> Self {
        Self {
            tool: "",
            parameters: &[],
            offered: OfferedParameters::ALL,
            fd: Some(fd.to_owned()),
            values: BTreeMap::new(),
        }
    }

    /// The descriptor, as the model named it.
    ///
    /// # Errors
    /// `invalid_parameter` if no descriptor is named.
    pub(super) fn fd(&self) -> Result<&str, FdError> {
        self.fd
            .as_deref()
            .ok_or_else(|| self.missing_error("fd", "the descriptor, such as \"fd:1\""))
    }

    /// A required, non-empty text. `what` describes it in the error.
    ///
    /// # Errors
    /// `invalid_parameter`.
    pub(super) fn required_text(&self, key: &'static str, what: &str) -> Result<&str, FdError> {
        match self.text(key) {
            Some("") => Err(self.invalid_error(format!(
                "Parameter '{key}' is missing: its text is empty. Give {what}."
            ))),
            found => found.ok_or_else(|| self.missing_error(key, what)),
        }
    }

    /// Uses the argument `key` as the descriptor if the call has no `fd`.
    pub(super) fn with_fd_from(mut self, key: &'static str) -> Self {
        if self.fd.is_none()
            && let Some(Arg::Text(name)) = self.values.remove(key)
        {
            self.fd = Some(name);
        }
        self
    }

    /// A required label: 1 to [`MAX_LABEL_CHARS`] characters without control characters and without
    /// white space at the ends. `what` describes it in the error.
    ///
    /// # Errors
    /// `invalid_parameter`.
    pub(super) fn label(&self, key: &'static str, what: &str) -> Result<&str, FdError> {
        let label = self.required_text(key, what)?;
        let wrong = match label.chars().count() {
            count if count > MAX_LABEL_CHARS => format!("has {count} characters"),
            _ if label.chars().any(char::is_control) => "holds a control character".to_owned(),
            _ if label.trim() != label => "begins or ends with white space".to_owned(),
            _ => return Ok(label),
        };
        Err(self.invalid_error(format!(
            "Parameter '{key}' {wrong}: give 1 to {MAX_LABEL_CHARS} characters, without control \
             characters and without white space at the ends."
        )))
    }

    /// An integer of at least `least`; `default` if it is missing.
    ///
    /// # Errors
    /// `invalid_range`.
    pub(super) fn integer_at_least(
        &self,
        key: &str,
        least: u64,
        default: u64,
    ) -> Result<u64, FdError> {
        let Some(requested) = self.integer(key) else {
            return Ok(default);
        };
        let found = u64::try_from(requested)
            .ok()
            .filter(|number| *number >= least);
        found.ok_or_else(|| {
            self.error(
                FdErrorKind::InvalidRange,
                format!("Invalid {key} {requested}: it must be {least} or more."),
            )
        })
    }

    /// The error for a missing parameter. `what` describes it.
    pub(super) fn missing_error(&self, key: &str, what: &str) -> FdError {
        self.invalid_error(format!(
            "Parameter '{key}' is missing: {what}. {}",
            self.list_accepted()
        ))
    }

    pub(super) fn contains(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    pub(super) fn integer(&self, key: &str) -> Option<i64> {
        match self.values.get(key)? {
            Arg::Integer(number) => Some(*number),
            _ => None,
        }
    }

    pub(super) fn flag(&self, key: &str) -> Option<bool> {
        match self.values.get(key)? {
            Arg::Flag(flag) => Some(*flag),
            _ => None,
        }
    }

    pub(super) fn text(&self, key: &str) -> Option<&str> {
        match self.values.get(key)? {
            Arg::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The items of a list; empty if it is missing.
    pub(super) fn list(&self, key: &str) -> &[Value] {
        match self.values.get(key) {
            Some(Arg::List(items)) => items,
            _ => &[],
        }
    }

    pub(super) fn error(&self, kind: FdErrorKind, message: impl Into<String>) -> FdError {
        FdError {
            kind,
            fd: self.fd.clone(),
            message: message.into(),
        }
    }

    /// The error for a content that cannot be read.
    pub(super) fn unreadable_error(&self, Unreadable { message }: Unreadable) -> FdError {
        self.error(FdErrorKind::ContentUnreadable, &*message)
    }

    pub(super) fn invalid_error(&self, message: impl Into<String>) -> FdError {
        self.error(FdErrorKind::InvalidParameter, message)
    }
}

/// Converts a value to the type of its parameter. `None` if it has another type.
fn convert(value: &Value, kind: ParameterKind) -> Option<Arg> {
    match (kind, value) {
        (ParameterKind::Text | ParameterKind::Word, Value::String(text)) => {
            Some(Arg::Text(text.clone()))
        }
        (ParameterKind::Word, Value::Number(number)) => Some(Arg::Text(number.to_string())),
        (ParameterKind::Integer, Value::Number(number)) => to_integer(number).map(Arg::Integer),
        (ParameterKind::Integer, Value::String(text)) => parse_decimal(text).map(Arg::Integer),
        (ParameterKind::Flag, Value::Bool(flag)) => Some(Arg::Flag(*flag)),
        (ParameterKind::Flag, Value::String(text)) => text.parse().ok().map(Arg::Flag),
        (ParameterKind::List(_), Value::Array(items)) => Some(Arg::List(items.clone())),
        _ => None,
    }
}

/// Converts a JSON number to an integer. `2.0` is accepted, since JSON has only one number type.
/// The conversion saturates.
fn to_integer(number: &serde_json::Number) -> Option<i64> {
    let whole = |float: f64| (float.fract() == 0.0).then_some(float as i64);
    number.as_i64().or_else(|| number.as_f64().and_then(whole))
}

fn parse_decimal(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_decimal = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let limit = if digits.len() < text.len() {
        i64::MIN
    } else {
        i64::MAX
    };
    is_decimal.then(|| text.parse().unwrap_or(limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMETERS: [Parameter; 3] = [
        Parameter::text("fd", "Which"),
        Parameter::integer("page", "A page"),
        Parameter::flag("read_all", "All"),
    ];

    fn parse(json: &str) -> Result<Args, FdError> {
        Args::parse_with("t", &PARAMETERS, OfferedParameters::ALL, json)
    }

    #[test]
    fn quoted_integers_and_flags_are_accepted() {
        let integers = [
            ("2", 2),
            ("\"2\"", 2),
            ("-1", -1),
            ("\"-1\"", -1),
            ("2.0", 2),
            ("1e3", 1000),
            ("100000000000000000000", i64::MAX),
            ("\"100000000000000000000\"", i64::MAX),
            ("\"-100000000000000000000\"", i64::MIN),
        ];
        for (json, number) in integers {
            let args = parse(&format!(r#"{{"fd": "fd:1", "page": {json}}}"#)).unwrap();
            assert_eq!(args.integer("page"), Some(number), "{json}");
        }
        for (json, flag) in [
            ("true", true),
            ("\"true\"", true),
            ("false", false),
            ("\"false\"", false),
        ] {
            let args = parse(&format!(r#"{{"fd": "fd:1", "read_all": {json}}}"#)).unwrap();
            assert_eq!(args.flag("read_all"), Some(flag), "{json}");
        }
    }

    #[test]
    fn an_invalid_argument_is_an_error_that_names_it() {
        let cases = [
            ("", None, "not JSON"),
            ("[]", None, "must be a JSON object"),
            (r#"{"fd": 1}"#, Some("1"), "'fd' must be a string, not 1"),
            (
                r#"{"fd": "fd:1", "page": "two"}"#,
                Some("fd:1"),
                "'page' must be an integer, not \"two\"",
            ),
            (
                r#"{"fd": "fd:1", "page": "+2"}"#,
                Some("fd:1"),
                "'page' must be an integer",
            ),
            (
                r#"{"fd": "fd:1", "page": ""}"#,
                Some("fd:1"),
                "'page' must be an integer",
            ),
            (
                r#"{"fd": "fd:1", "page": "-"}"#,
                Some("fd:1"),
                "'page' must be an integer",
            ),
            (
                r#"{"fd": "fd:1", "page": 1.5}"#,
                Some("fd:1"),
                "'page' must be an integer, not 1.5",
            ),
            (
                r#"{"fd": "fd:1", "page": null}"#,
                Some("fd:1"),
                "'page' must be an integer, not null",
            ),
            (
                r#"{"fd": "fd:1", "page": true}"#,
                Some("fd:1"),
                "'page' must be an integer, not true",
            ),
            (
                r#"{"fd": "fd:1", "read_all": "yes"}"#,
                Some("fd:1"),
                "'read_all' must be true or false",
            ),
            (
                r#"{"fd": "fd:1", "read_all": 1}"#,
                Some("fd:1"),
                "'read_all' must be true or false",
            ),
            (
                r#"{"fd": "fd:1", "pages": 1}"#,
                Some("fd:1"),
                "Did you mean 'page'? t accepts: fd, page, read_all.",
            ),
            (
                r#"{"fd": "fd:1", "zzz": 1}"#,
                Some("fd:1"),
                "Unknown parameter 'zzz'. t accepts:",
            ),
        ];
        for (json, fd, message) in cases {
            let error = parse(json).unwrap_err();
            assert_eq!(
                (error.kind, error.fd.as_deref()),
                (FdErrorKind::InvalidParameter, fd),
                "{json}"
            );
            assert!(error.message.contains(message), "{json}: {}", error.message);
        }
    }

    #[test]
    fn a_missing_parameter_is_reported_with_the_accepted_ones() {
        let args = parse("{}").unwrap();
        let message = "Parameter 'fd' is missing: the descriptor, such as \"fd:1\". t accepts: fd, \
             page, read_all.";
        assert_eq!(args.fd().unwrap_err().message, message);
        let args = parse(r#"{"fd": "fd:1"}"#).unwrap();
        assert_eq!(args.fd().unwrap(), "fd:1");
        assert!(
            args.required_text("page", "the page")
                .unwrap_err()
                .message
                .starts_with("Parameter 'page' is missing")
        );
    }

    #[test]
    fn a_label_is_short_and_has_no_control_characters() {
        let label = |text: &str| {
            let args = parse(&serde_json::json!({ "fd": text }).to_string()).unwrap();
            args.label("fd", "a name")
                .map(str::to_owned)
                .map_err(|error| error.message)
        };
        for text in ["a", "error logs", "é😀", &"é".repeat(64)] {
            assert_eq!(label(text), Ok(text.to_owned()));
        }
        let cases = [
            ("", "'fd' is missing: its text is empty. Give a name."),
            (&"é".repeat(65), "has 65 characters"),
            ("a\nb", "holds a control character"),
            (" a", "white space"),
            ("a\u{a0}", "white space"),
        ];
        for (text, message) in cases {
            assert!(label(text).unwrap_err().contains(message), "{text:?}");
        }
    }

    #[test]
    fn deep_nesting_is_refused_without_recursion() {
        let json = format!(r#"{{"fd": {}}}"#, "[".repeat(100_000));
        assert_eq!(
            parse(&json).unwrap_err().kind,
            FdErrorKind::InvalidParameter
        );
    }
}
