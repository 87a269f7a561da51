//! MCP tool servers, as a program file configures them.
//!
//! This module never connects to a server. A [`ServerValue`] may be a secret, so its `Debug` output
//! is an ellipsis.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use crate::command::CommandLimits;
use crate::tool::ToolPolicy;

/// Default connection timeout, in milliseconds.
pub const DEFAULT_CONNECT_MS: u64 = 30_000;

/// A server and its transport. Processes with equal configurations share a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    /// Name within the program.
    pub name: Arc<str>,
    /// How to connect.
    pub transport: Transport,
    /// Whether processes start without its tools if it is unreachable.
    pub optional: bool,
    /// Timeout in milliseconds for connecting and for listing tools.
    pub connect_ms: u64,
    /// Timeout in milliseconds for a tool call.
    pub deadline_ms: u64,
}

/// The transport of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// A program of the host, over standard input and output.
    Stdio(ServerCommand),
    /// A remote server, over HTTP.
    Http {
        /// URL of the server.
        url: String,
        /// Headers of every request, in the order written.
        headers: Vec<(String, ServerValue)>,
    },
}

/// The command that starts a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerCommand {
    /// Program, as in a command tool.
    pub program: String,
    /// Arguments, unchanged.
    pub args: Vec<String>,
    /// Environment variables in addition to those that every command gets, in the order written.
    pub env: Vec<(String, ServerValue)>,
    /// Working directory; `None` for the kernel's.
    pub cwd: Option<String>,
    /// Resource limits.
    pub limits: CommandLimits,
}

/// A configuration value, which may be a secret: `${NAME}` stands for an environment variable of
/// the host, `${NAME:-default}` for `default` if the variable is not set.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ServerValue(String);

impl ServerValue {
    /// The value as it is written.
    #[must_use]
    pub fn new(written: impl Into<String>) -> Self {
        Self(written.into())
    }

    /// The value, if it contains no variable.
    #[must_use]
    pub fn literal(&self) -> Option<&str> {
        self.variables().is_empty().then_some(&self.0)
    }

    /// The variables in the value.
    #[must_use]
    pub fn variables(&self) -> Vec<String> {
        let mut names = Vec::new();
        // Every lookup succeeds here, so the substitution cannot fail.
        let _ = self.filled(|name| {
            names.push(name.to_owned());
            Ok::<_, Infallible>(Some(String::new()))
        });
        names
    }

    /// Substitutes the variables with the results of `variable`.
    ///
    /// # Errors
    /// [`VariableError`], for a variable without a default.
    pub fn filled<E>(
        &self,
        mut variable: impl FnMut(&str) -> Result<Option<String>, E>,
    ) -> Result<String, VariableError<E>> {
        let mut substituted = String::new();
        let mut rest = self.0.as_str();
        while let Some((before, after)) = rest.split_once("${") {
            substituted.push_str(before);
            let Some((reference, remainder)) = after.split_once('}') else {
                rest = &rest[before.len()..];
                break;
            };
            let (name, default) = reference
                .split_once(":-")
                .map_or((reference, None), |(name, default)| (name, Some(default)));
            match (variable(name), default) {
                (Ok(Some(value)), _) => substituted.push_str(&value),
                (_, Some(default)) => substituted.push_str(default),
                (Ok(None), None) => {
                    return Err(VariableError::Unset(name.to_owned()));
                }
                (Err(error), None) => return Err(VariableError::Refused(error)),
            }
            rest = remainder;
        }
        substituted.push_str(rest);
        Ok(substituted)
    }
}

/// Why a [`ServerValue`] cannot be filled in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VariableError<E> {
    /// The variable is not set, and has no default.
    #[error("the environment variable {0} is not set")]
    Unset(String),
    /// The host refuses to reveal its value.
    #[error("{0}")]
    Refused(E),
}

impl fmt::Debug for ServerValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"…\"")
    }
}

/// A tool that a server offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferedTool {
    /// Name of the server within the program.
    pub server: Arc<str>,
    /// Name of the tool at the server: any text.
    pub name: Arc<str>,
    /// Description for the model.
    pub description: Arc<str>,
    /// JSON schema of the arguments, an object, as JSON text.
    pub schema: Arc<str>,
    /// Access, idempotence and limits of its calls.
    pub policy: ToolPolicy,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_variables_are_replaced_by_their_values() {
        let variable = |name: &str| match name {
            "TOKEN" => Ok(Some("s3cret".to_owned())),
            "HIDDEN" => Err("HIDDEN is not permitted".to_owned()),
            _ => Ok(None),
        };
        let cases = [
            ("plain $TOKEN {TOKEN}", Ok("plain $TOKEN {TOKEN}")),
            ("Bearer ${TOKEN}", Ok("Bearer s3cret")),
            ("${TOKEN}${TOKEN}", Ok("s3crets3cret")),
            ("${NONE:-x}/${TOKEN:-y}", Ok("x/s3cret")),
            ("${HIDDEN:-x}", Ok("x")),
            ("${NONE}", Err("the environment variable NONE is not set")),
            ("${HIDDEN}", Err("HIDDEN is not permitted")),
            ("open ${TOKEN", Ok("open ${TOKEN")),
        ];
        for (written, expected) in cases {
            let filled = ServerValue::new(written).filled(variable);
            let filled = filled.map_err(|error| error.to_string());
            assert_eq!(
                filled.as_deref().map_err(String::as_str),
                expected,
                "{written}"
            );
        }
        assert_eq!(ServerValue::new("${A}-${B:-c}-$D").variables(), ["A", "B"]);
    }

    #[test]
    fn debug_output_hides_values() {
        let transport = Transport::Http {
            url: "http://x".into(),
            headers: vec![("a".into(), ServerValue::new("s3cret"))],
        };
        assert!(!format!("{transport:?}").contains("s3cret"));
    }
}
