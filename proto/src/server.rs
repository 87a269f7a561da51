//! Tool servers: programs and machines that offer tools by the Model Context Protocol, as a program
//! names them.
//!
//! Nothing here connects to one. Values that may be secrets show themselves to nobody:
//! [`ServerValue`] prints as dots.

use std::fmt;
use std::sync::Arc;

use crate::command::CommandLimits;
use crate::tool::ToolPolicy;

/// How long a server may take to be there, in milliseconds, where nothing is said.
pub const DEFAULT_CONNECT_MS: u64 = 30_000;

/// A server, and how it is reached. Two that are equal are one: their processes share a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    /// The name that the program calls it by.
    pub name: Arc<str>,
    /// How it is reached.
    pub transport: Transport,
    /// Whether processes are born without its tools where it cannot be reached.
    pub optional: bool,
    /// After so many milliseconds of beginning, or of listing its tools, it counts as unreachable.
    pub connect_ms: u64,
    /// After so many milliseconds a call of a tool is abandoned.
    pub deadline_ms: u64,
}

/// How a server is reached.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// A program of the host, spoken to through its standard input and output.
    Stdio(ServerCommand),
    /// A machine, spoken to by HTTP.
    Http {
        /// Where it listens.
        url: String,
        /// Headers that every request carries, in the order written.
        headers: Vec<(String, ServerValue)>,
    },
}

/// A program that is a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerCommand {
    /// The program, as a command names it.
    pub program: String,
    /// Its arguments, as they are.
    pub args: Vec<String>,
    /// Variables of its environment beside the few that every command gets, in the order written.
    pub env: Vec<(String, ServerValue)>,
    /// Its working directory, if not the kernel's.
    pub cwd: Option<String>,
    /// What it may use of the machine.
    pub limits: CommandLimits,
}

/// A text for a server, which may be a secret: `${NAME}` in it stands for a variable of the host,
/// `${NAME:-else}` for `else` where that is not set.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ServerValue(String);

impl ServerValue {
    /// The text as it is written.
    #[must_use]
    pub fn new(written: impl Into<String>) -> Self {
        Self(written.into())
    }

    /// The text, if no variable stands in it.
    #[must_use]
    pub fn literal(&self) -> Option<&str> {
        self.variables().is_empty().then_some(&self.0)
    }

    /// The variables that it names.
    #[must_use]
    pub fn variables(&self) -> Vec<String> {
        let mut names = Vec::new();
        // Nothing fails that is always set.
        let _ = self.filled(|name| {
            names.push(name.to_owned());
            Ok(Some(String::new()))
        });
        names
    }

    /// The text, with what `variable` says in the place of each name.
    ///
    /// # Errors
    /// What `variable` fails with; a variable that is not set and has nothing in its place, by
    /// name.
    pub fn filled(
        &self,
        mut variable: impl FnMut(&str) -> Result<Option<String>, String>,
    ) -> Result<String, String> {
        let (mut filled, mut rest) = (String::new(), self.0.as_str());
        while let Some((before, after)) = rest.split_once("${") {
            filled.push_str(before);
            let Some((inner, behind)) = after.split_once('}') else {
                rest = &rest[before.len()..];
                break;
            };
            let (name, other) = inner
                .split_once(":-")
                .map_or((inner, None), |(name, other)| (name, Some(other)));
            match (variable(name), other) {
                (Ok(Some(value)), _) => filled.push_str(&value),
                (_, Some(other)) => filled.push_str(other),
                (Ok(None), None) => {
                    return Err(format!("the environment variable {name} is not set"));
                }
                (Err(why), None) => return Err(why),
            }
            rest = behind;
        }
        filled.push_str(rest);
        Ok(filled)
    }
}

impl fmt::Debug for ServerValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"…\"")
    }
}

/// A tool that a server offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The server, by the name that the program calls it by.
    pub server: Arc<str>,
    /// The tool, by the name that the server calls it by: any text.
    pub name: Arc<str>,
    /// What it does and when to use it.
    pub description: Arc<str>,
    /// JSON schema of the arguments, an object, as JSON text.
    pub schema: Arc<str>,
    /// How it is run.
    pub policy: ToolPolicy,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_stand_for_their_values_and_nothing_else_does() {
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
            assert_eq!(
                filled.as_deref().map_err(String::as_str),
                expected,
                "{written}"
            );
        }
        assert_eq!(ServerValue::new("${A}-${B:-c}-$D").variables(), ["A", "B"]);
    }

    #[test]
    fn a_value_shows_itself_to_nobody() {
        let transport = Transport::Http {
            url: "http://x".into(),
            headers: vec![("a".into(), ServerValue::new("s3cret"))],
        };
        assert!(!format!("{transport:?}").contains("s3cret"));
    }
}
