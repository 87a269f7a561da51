//! Values in the declaration of a server, which may refer to variables of the environment.

use std::fmt;

/// A configuration value, which may be a secret: `${NAME}` stands for an environment variable of
/// the host, `${NAME:-default}` for `default` if the variable is not set. As editors write them,
/// `${env:NAME}` is the same, and `${input:ID}`, for which an editor asks its user, is the variable
/// [`input_variable`].
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ServerValue {
    written: String,
    references: References,
}

/// Which references of a value are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum References {
    /// All.
    All,
    /// Only `${env:NAME}` and `${input:ID}`: in an argument, `${NAME}` may be meant for a shell
    /// that the server starts.
    Prefixed,
}

/// A reference in a value, between `${` and `}`.
struct Reference<'a> {
    /// The id of an input, if it is one.
    input: Option<&'a str>,
    variable: String,
    default: Option<&'a str>,
    has_prefix: bool,
}

impl<'a> Reference<'a> {
    fn parse(written: &'a str) -> Self {
        let (name, default) = written
            .split_once(":-")
            .map_or((written, None), |(name, default)| (name, Some(default)));
        let (input, of_environment) = (name.strip_prefix("input:"), name.strip_prefix("env:"));
        let variable = match input {
            Some(id) => input_variable(id),
            None => of_environment.unwrap_or(name).to_owned(),
        };
        Self {
            input,
            variable,
            default,
            has_prefix: input.or(of_environment).is_some(),
        }
    }

    fn value<E>(
        self,
        variable: &mut impl FnMut(&str) -> Result<Option<String>, E>,
    ) -> Result<String, VariableError<E>> {
        match (variable(&self.variable), self.default, self.input) {
            (Ok(Some(value)), _, _) => Ok(value),
            (_, Some(default), _) => Ok(default.to_owned()),
            (Ok(None), None, None) => Err(VariableError::Unset(self.variable)),
            (Ok(None), None, Some(id)) => Err(VariableError::UnsetInput {
                id: id.to_owned(),
                variable: self.variable,
            }),
            (Err(error), None, _) => Err(VariableError::Refused(error)),
        }
    }
}

/// The header that a reference names, if it names a header of the downstream client (the MCP client
/// that the kernel serves, and for which it uses the server): `${client:Authorization}`.
#[must_use]
pub fn client_header(reference: &str) -> Option<&str> {
    reference.strip_prefix("client:")
}

/// The environment variable that has the value of an input: `INPUT_` and its id in capitals, with
/// `_` for every character that is neither a letter nor a digit.
#[must_use]
pub fn input_variable(id: &str) -> String {
    let capital = |character: char| match character {
        character if character.is_ascii_alphanumeric() => character.to_ascii_uppercase(),
        _ => '_',
    };
    std::iter::once("INPUT_".to_owned())
        .chain(id.chars().map(|character| capital(character).to_string()))
        .collect()
}

impl ServerValue {
    /// The value as it is written.
    #[must_use]
    pub fn new(written: impl Into<String>) -> Self {
        Self {
            written: written.into(),
            references: References::All,
        }
    }

    /// An argument of a command as it is written: only `${env:NAME}` and `${input:ID}` refer to
    /// variables.
    #[must_use]
    pub fn argument(written: impl Into<String>) -> Self {
        Self {
            written: written.into(),
            references: References::Prefixed,
        }
    }

    /// The value as it is written.
    #[must_use]
    pub fn written(&self) -> &str {
        &self.written
    }

    /// The value, if it contains no variable.
    #[must_use]
    pub fn literal(&self) -> Option<&str> {
        self.referenced().is_empty().then_some(&*self.written)
    }

    /// The variables of the environment in the value.
    #[must_use]
    pub fn variables(&self) -> Vec<String> {
        let mut names = self.referenced();
        names.retain(|name| client_header(name).is_none());
        names
    }

    /// Whether the value refers to a header of the downstream client ([`client_header`]).
    #[must_use]
    pub fn refers_to_client(&self) -> bool {
        let mut names = self.referenced().into_iter();
        names.any(|name| client_header(&name).is_some())
    }

    /// Everything that the value refers to.
    fn referenced(&self) -> Vec<String> {
        let mut names = Vec::new();
        // Every lookup succeeds here, so the substitution cannot fail.
        let _ = self.substitute_variables(|name| {
            names.push(name.to_owned());
            Ok::<_, std::convert::Infallible>(Some(String::new()))
        });
        names
    }

    /// Substitutes the variables with the results of `variable`, which also gets the references to
    /// headers of the client ([`client_header`]).
    ///
    /// # Errors
    /// [`VariableError`], for a variable without a default.
    pub fn substitute_variables<E>(
        &self,
        mut variable: impl FnMut(&str) -> Result<Option<String>, E>,
    ) -> Result<String, VariableError<E>> {
        let mut substituted = String::new();
        let mut rest = self.written.as_str();
        while let Some((before, after)) = rest.split_once("${") {
            substituted.push_str(before);
            let Some((written, remainder)) = after.split_once('}') else {
                rest = &rest[before.len()..];
                break;
            };
            let reference = Reference::parse(written);
            if reference.has_prefix || self.references == References::All {
                substituted.push_str(&reference.value(&mut variable)?);
            } else {
                substituted.push_str(&rest[before.len()..rest.len() - remainder.len()]);
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
    /// The variable that has the value of an input is not set.
    #[error(
        "the input `{id}` has no value, since there is no editor that asks for it: set the \
         environment variable {variable}"
    )]
    UnsetInput {
        /// The id of the input.
        id: String,
        /// The variable.
        variable: String,
    },
    /// The host refuses to reveal its value.
    #[error("{0}")]
    Refused(E),
}

impl fmt::Debug for ServerValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"…\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_variables_are_replaced_by_their_values() {
        let variable = |name: &str| match name {
            "TOKEN" | "INPUT_API_KEY" => Ok(Some("s3cret".to_owned())),
            "HIDDEN" => Err("HIDDEN is not permitted".to_owned()),
            _ => Ok(None),
        };
        let no_input = "the input `other` has no value, since there is no editor that asks for it: \
                        set the environment variable INPUT_OTHER";
        let cases = [
            ("plain $TOKEN {TOKEN}", Ok("plain $TOKEN {TOKEN}")),
            ("Bearer ${TOKEN}", Ok("Bearer s3cret")),
            ("${TOKEN}${TOKEN}", Ok("s3crets3cret")),
            ("${NONE:-x}/${TOKEN:-y}", Ok("x/s3cret")),
            ("${HIDDEN:-x}", Ok("x")),
            ("${NONE}", Err("the environment variable NONE is not set")),
            ("${HIDDEN}", Err("HIDDEN is not permitted")),
            ("open ${TOKEN", Ok("open ${TOKEN")),
            ("${env:TOKEN}-${input:api-key}", Ok("s3cret-s3cret")),
            ("${env:NONE:-x}", Ok("x")),
            ("${input:other}", Err(no_input)),
        ];
        for (written, expected) in cases {
            let filled = ServerValue::new(written).substitute_variables(variable);
            let filled = filled.map_err(|error| error.to_string());
            assert_eq!(
                filled.as_deref().map_err(String::as_str),
                expected,
                "{written}"
            );
        }
        let value = ServerValue::new("${A}-${B:-c}-$D-${env:E}-${input:f.g}${client:Cookie}");
        assert_eq!(value.variables(), ["A", "B", "E", "INPUT_F_G"]);
        assert_eq!(ServerValue::new("${client:Cookie}").literal(), None);
        let argument = ServerValue::argument("${A:-b} ${env:TOKEN} ${input:api-key} ${open");
        assert_eq!(
            argument.substitute_variables(variable).as_deref(),
            Ok("${A:-b} s3cret s3cret ${open")
        );
        assert_eq!(argument.variables(), ["TOKEN", "INPUT_API_KEY"]);
    }

    #[test]
    fn debug_output_hides_values() {
        let value = ("a", ServerValue::new("s3cret"));
        assert!(!format!("{value:?}").contains("s3cret"));
    }
}
