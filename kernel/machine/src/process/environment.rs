//! The `<env_info>` element of a system prompt. It describes the environment (date, platform,
//! output of commands …), is composed when the process is created, and never changes.
//!
//! This module does no I/O. The shell reads environment variables and runs commands, both of which
//! need the user's permission, and passes the values as [`GatheredEnvironment`].

use dormouse_proto::program::Variable;
use dormouse_proto::xml::Element;
use time::OffsetDateTime;

use super::Image;
use super::toolbox::HostContext;
use dormouse_program::{EnvironmentChoice, Program};

/// Values that the shell gathered for one process before the process was created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatheredEnvironment {
    /// The value of each of [`EnvironmentChoice::env_vars`], in their order; `None` if the variable
    /// is not set.
    pub env_vars: Vec<Option<String>>,
    /// For each of [`EnvironmentChoice::commands`], in their order: its output, or the reason why
    /// it failed.
    pub commands: Vec<String>,
}

/// Appends the environment that the program requests to the system prompt of a new process. The
/// element comes last: everything before it is the same on every machine, so that providers can
/// cache that prefix of the prompt.
pub fn add_environment(
    image: &mut Image,
    program: &Program,
    host: &HostContext,
    gathered: &GatheredEnvironment,
    now_ms: u64,
) {
    let lines = environment_lines(program.environment(), host, gathered, now_ms);
    if lines.is_empty() {
        return;
    }
    let element = Element::new("env_info").text(lines.join("\n")).to_xml();
    image.system = match &*image.system {
        "" => element.into(),
        system => format!("{system}\n\n{element}").into(),
    };
}

/// Formats one line for each available value; a command has one line for itself and one for each
/// line of its output.
fn environment_lines(
    choice: &EnvironmentChoice,
    host: &HostContext,
    gathered: &GatheredEnvironment,
    now_ms: u64,
) -> Vec<String> {
    let variables = choice.variables.iter().filter_map(|variable| {
        let value = match variable {
            Variable::Date => Some(format_date(now_ms)),
            other => host.environment.get(other.word()).cloned(),
        };
        Some(format!("{}: {}", variable.word(), value?))
    });
    let custom = choice
        .custom
        .iter()
        .map(|(label, text)| format!("{label}: {text}"));
    let env_vars = choice.env_vars.iter().zip(&gathered.env_vars);
    let env_vars =
        env_vars.filter_map(|(var, value)| Some(format!("{}: {}", var.label, value.as_ref()?)));
    let commands = choice.commands.iter().zip(&gathered.commands);
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

/// Formats the UTC date of a time, such as `2026-01-31`.
fn format_date(now_ms: u64) -> String {
    let seconds = i64::try_from(now_ms / 1000).unwrap_or(i64::MAX);
    OffsetDateTime::from_unix_timestamp(seconds)
        .map_or_else(|_| "unknown".to_owned(), |time| time.date().to_string())
}

#[cfg(test)]
mod tests {
    use super::format_date;

    #[test]
    fn a_time_is_formatted_as_its_utc_date() {
        let cases = [
            (0, "1970-01-01"),
            (86_399_999, "1970-01-01"),
            (1_709_164_800_000, "2024-02-29"),
            (u64::MAX, "unknown"),
        ];
        for (now_ms, expected) in cases {
            assert_eq!(format_date(now_ms), expected);
        }
    }
}
