//! Checks declared commands: unique names, placeholders that match parameters, a fixed program.
//!
//! The model never chooses the program that runs: the first argument is literal.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_proto::command::{Command, CommandLimits, Parameter};
use dormouse_proto::program::{
    CommandSection, Diagnostic, Diagnostics, Named, Placeholder, Span, WithSpan, is_parameter_name,
    listed, placeholders, shorten,
};

use super::kernel_tool::{self, KnownTools};
use super::tools::{VALID_NAME, is_tool_name};

/// The commands in the order written.
pub(super) fn check(
    written: Vec<CommandSection>,
    limits: CommandLimits,
    known: KnownTools<'_>,
    diagnostics: &mut Diagnostics,
) -> Vec<Command> {
    let mut names = BTreeMap::new();
    for section in &written {
        check_name(&section.name, known, &mut names, diagnostics);
        check_argv(section, diagnostics);
        check_parameters(section, diagnostics);
        check_environment(&section.env, diagnostics);
    }
    let commands = written.into_iter();
    commands
        .map(|section| to_command(section, limits))
        .collect()
}

fn to_command(section: CommandSection, limits: CommandLimits) -> Command {
    let texts = |texts: Vec<WithSpan<String>>| texts.into_iter().map(|text| text.value).collect();
    let parameters = section.parameters.into_iter();
    let parameters = parameters.map(|Named { name, value }| Parameter {
        name: name.value,
        ..value
    });
    Command {
        name: section.name.value,
        description: section.description,
        argv: texts(section.argv.unwrap_or_default()),
        parameters: parameters.collect(),
        env: texts(section.env),
        policy: section.policy,
        limits,
    }
}

fn check_name<'a>(
    name: &'a WithSpan<String>,
    known: KnownTools<'_>,
    names: &mut BTreeMap<&'a str, &'a Span>,
    diagnostics: &mut Diagnostics,
) {
    let WithSpan { value, span } = name;
    let taken_error = |message| {
        name.error(message, "taken")
            .help("choose a name that no tool has")
    };
    if value.is_empty() {
        // The missing name was reported before.
    } else if !is_tool_name(value) {
        let invalid = name.error("the name of the command is not valid", "not a valid name");
        diagnostics.push(invalid.help(VALID_NAME));
    } else if kernel_tool::find(known.kernel, value).is_some() {
        diagnostics.push(taken_error(format!(
            "`{value}` is the name of a built-in tool"
        )));
    } else if known.host.contains(&value.as_str()) {
        let message = format!("`{value}` is the name of a tool of the host");
        diagnostics.push(taken_error(message));
    } else if let Some(first) = names.insert(value, span) {
        let duplicate = taken_error(format!("two commands are named `{value}`"));
        diagnostics.push(duplicate.label(first.clone(), "first declared here"));
    }
}

fn check_argv(section: &CommandSection, diagnostics: &mut Diagnostics) {
    let Some(argv) = &section.argv else { return };
    for argument in argv.iter().filter(|argument| argument.value.contains('\0')) {
        let message = "an argument cannot hold the character NUL";
        diagnostics.push(argument.error(message, "holds NUL"));
    }
    let no_program = "the command has no program to run";
    match argv.first() {
        None => {
            let empty = Diagnostic::error(section.span.clone(), no_program, "`argv` is empty");
            let help = "write the program and its arguments: argv = [\"cargo\", \"metadata\"]";
            diagnostics.push(empty.help(help));
        }
        Some(program) if program.value.trim().is_empty() => {
            diagnostics.push(program.error(no_program, "empty"));
        }
        Some(program) if placeholders(&program.value).next().is_some() => {
            let message = "which program runs cannot be left to the model";
            let open = program.error(message, "a placeholder in the first argument");
            let help = "write the program's name; placeholders may stand in the arguments after it";
            diagnostics.push(open.help(help));
        }
        Some(_) => {}
    }
}

fn check_parameters(section: &CommandSection, diagnostics: &mut Diagnostics) {
    let Some(argv) = &section.argv else { return };
    let declared = section.parameters.iter().map(|parameter| &parameter.name);
    let names: Vec<_> = declared.clone().map(|name| name.value.as_str()).collect();
    let mut used = BTreeSet::new();
    for argument in argv {
        for Placeholder { name, .. } in placeholders(&argument.value) {
            used.insert(name);
            if !names.contains(&name) {
                diagnostics.push(undeclared_error(name, argument, &names));
            }
        }
    }
    for written in declared {
        let name = written.value.as_str();
        if !is_parameter_name(name) {
            let message = "the name of the parameter is not valid";
            let help = "valid: a letter or _, then up to 63 letters, digits and _";
            diagnostics.push(written.error(message, "not a valid name").help(help));
        } else if !used.contains(name) {
            let message = format!("the parameter `{name}` is not used in `argv`");
            let help = format!("write {{{name}}} where its value belongs");
            diagnostics.push(written.error(message, "never used").help(help));
        }
    }
}

fn undeclared_error(name: &str, argument: &WithSpan<String>, declared: &[&str]) -> Diagnostic {
    let declared: Vec<_> = declared.iter().map(|name| shorten(name)).collect();
    let declared: Vec<_> = declared.iter().map(String::as_str).collect();
    let list = listed(&declared);
    let help = format!(
        "declare it: parameters.{name} = {{ type = \"string\" }}; declared: {list}. Braces around \
         anything but a name are ordinary characters"
    );
    let message = format!("`{{{name}}}` is not a parameter of the command");
    argument.error(message, "not declared").help(help)
}

fn check_environment(names: &[WithSpan<String>], diagnostics: &mut Diagnostics) {
    for name in names.iter().filter(|name| !is_parameter_name(&name.value)) {
        let message = "`env` takes the names of environment variables";
        let help = "values are taken from the environment of the kernel: env = [\"CARGO_HOME\"]";
        diagnostics.push(name.error(message, "not a valid name").help(help));
    }
}
