//! The `<env_info>` element of a system prompt: facts of the environment, composed once at birth
//! and never changed.
//!
//! This module looks nothing up. Values that need the user's permission (variables, commands)
//! arrive as [`GatheredEnvironment`]; a value that could not be obtained is replaced by a text that
//! says so.

use dormouse_proto::program::Variable;
use dormouse_proto::xml::Element;
use time::OffsetDateTime;

use super::Image;
use super::toolbox::HostContext;
use dormouse_program::{EnvironmentChoice, Program};

/// What was gathered for one process before its birth.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatheredEnvironment {
    /// The value of each of [`EnvironmentChoice::env_vars`], in their order; `None` if it is not
    /// set.
    pub env_vars: Vec<Option<String>>,
    /// The output of each of [`EnvironmentChoice::commands`], or the reason why it failed, in their
    /// order.
    pub commands: Vec<String>,
}

/// Appends the environment that the program asks for to the system prompt of an unborn process. It
/// is the last element, after everything that is the same on every machine, so that providers can
/// cache the prompt before it.
pub fn add_environment(
    image: &mut Image,
    program: &Program,
    host: &HostContext,
    found: &GatheredEnvironment,
    now_ms: u64,
) {
    let lines = lines(program.environment(), host, found, now_ms);
    if lines.is_empty() {
        return;
    }
    let element = Element::new("env_info").text(lines.join("\n")).to_xml();
    image.system = match &*image.system {
        "" => element.into(),
        system => format!("{system}\n\n{element}").into(),
    };
}

/// One line for each known fact; several for a command.
fn lines(
    choice: &EnvironmentChoice,
    host: &HostContext,
    found: &GatheredEnvironment,
    now_ms: u64,
) -> Vec<String> {
    let variables = choice.variables.iter().filter_map(|variable| {
        let value = match variable {
            Variable::Date => Some(date(now_ms)),
            other => host.environment.get(other.word()).cloned(),
        };
        Some(format!("{}: {}", variable.word(), value?))
    });
    let custom = choice
        .custom
        .iter()
        .map(|(label, text)| format!("{label}: {text}"));
    let env_vars = choice.env_vars.iter().zip(&found.env_vars);
    let env_vars =
        env_vars.filter_map(|(var, value)| Some(format!("{}: {}", var.label, value.as_ref()?)));
    let commands = choice.commands.iter().zip(&found.commands);
    let commands = commands.map(|(command, output)| {
        format!("> {}\n{output}", command.written)
            .trim_end()
            .to_owned()
    });
    variables
        .chain(custom)
        .chain(env_vars)
        .chain(commands)
        .collect()
}

/// The date of a time, UTC, such as `2026-01-31`.
fn date(now_ms: u64) -> String {
    let seconds = i64::try_from(now_ms / 1000).unwrap_or(i64::MAX);
    OffsetDateTime::from_unix_timestamp(seconds)
        .map_or_else(|_| "unknown".to_owned(), |time| time.date().to_string())
}

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn days_have_their_dates() {
        let cases = [
            (0, "1970-01-01"),
            (86_399_999, "1970-01-01"),
            (1_709_164_800_000, "2024-02-29"),
            (u64::MAX, "unknown"),
        ];
        for (now_ms, expected) in cases {
            assert_eq!(date(now_ms), expected);
        }
    }
}
