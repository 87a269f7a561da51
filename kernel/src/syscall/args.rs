//! Parsing and checking of tool arguments, which are JSON text of a model.
//!
//! An unknown key or a value of a wrong type is an error that names the key and what is accepted. A
//! null is the same as an absent parameter. What models write on their own is accepted where it has
//! one meaning: other names of a parameter ([`names`]), and numbers, booleans and lists as strings
//! ([`convert`]).

mod names;

use std::collections::BTreeMap;

use dormouse_machine::tool::argument::{Arg, convert};
use dormouse_proto::descriptor::{FdError, FdErrorKind};
use serde_json::{Map, Value};

use super::parameter::{self, OfferedParameters, Parameter};
use super::{TOOL_SET, Tool};
use crate::program::Program;
use dormouse_content::Unreadable;

/// The longest label or name, in characters.
const MAX_LABEL_CHARS: usize = 64;

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
        let fd_text = |fd: &Value| fd.as_str().map_or_else(|| fd.to_string(), str::to_owned);
        // An error about the names of parameters already carries the descriptor.
        args.fd = object.get("fd").map(fd_text);
        let named = args.name_parameters(&object)?;
        args.fd = named.get("fd").map(|(_, fd)| fd_text(fd));
        for (name, (parameter, value)) in named {
            let Some(arg) = convert(value, parameter.kind) else {
                return Err(args.invalid_error(format!(
                    "Parameter '{name}' must be {}, not {value}.{}",
                    parameter.kind.accepted(),
                    parameter.type_hint()
                )));
            };
            args.values.insert(name, arg);
        }
        Ok(args)
    }

    /// The sentence of an error that lists the accepted parameters.
    fn list_accepted(&self) -> String {
        let names: Vec<_> = parameter::names(self.parameters, self.offered).collect();
        if names.is_empty() {
            return format!("{} takes no parameters.", self.tool);
        }
        format!("{} accepts: {}.", self.tool, names.join(", "))
    }

    /// Creates arguments that contain only `fd`. Errors about a descriptor that no call names are
    /// built from them.
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

    /// An integer of at least `min`; `default` if it is missing.
    ///
    /// # Errors
    /// `invalid_range`.
    pub(super) fn integer_at_least(
        &self,
        key: &str,
        min: u64,
        default: u64,
    ) -> Result<u64, FdError> {
        let Some(requested) = self.integer(key) else {
            return Ok(default);
        };
        let found = u64::try_from(requested)
            .ok()
            .filter(|number| *number >= min);
        found.ok_or_else(|| {
            self.error(
                FdErrorKind::InvalidRange,
                format!("Invalid {key} {requested}: it must be {min} or more."),
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

    /// The first and the last number of a range; the last is `None` for a range without an end.
    pub(super) fn range(&self, key: &str) -> Option<(i64, Option<i64>)> {
        match self.values.get(key)? {
            Arg::Range(first, last) => Some((*first, *last)),
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

    pub(super) fn object(&self, key: &str) -> Option<&Map<String, Value>> {
        match self.values.get(key)? {
            Arg::Object(fields) => Some(fields),
            _ => None,
        }
    }

    pub(super) fn error(&self, kind: FdErrorKind, message: impl Into<String>) -> FdError {
        FdError::new(kind, self.fd.clone(), message)
    }

    /// The error for a content that cannot be read.
    pub(super) fn unreadable_error(&self, Unreadable { message }: Unreadable) -> FdError {
        self.error(FdErrorKind::ContentUnreadable, &*message)
    }

    pub(super) fn invalid_error(&self, message: impl Into<String>) -> FdError {
        self.error(FdErrorKind::InvalidParameter, message)
    }
}

#[cfg(test)]
mod tests;
