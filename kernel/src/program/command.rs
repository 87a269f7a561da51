//! Declared commands: names that are free, placeholders that fit, a program that is fixed.
//!
//! Which program runs is never up to the model: the first argument is literal.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_proto::command::{Command, CommandLimits};
use dormouse_proto::program::{
    At, CommandSection, ParameterSection, Placeholder, Remark, Remarks, Span, is_parameter_name,
    placeholders, shorten,
};

use super::tools::{VALID_NAME, is_tool_name};
use crate::syscall;

/// The commands in the order written.
pub(super) fn check(
    written: &[CommandSection],
    limits: CommandLimits,
    host_tools: &[&str],
    remarks: &mut Remarks,
) -> Vec<Command> {
    let mut names = BTreeMap::new();
    for section in written {
        check_name(&section.name, host_tools, &mut names, remarks);
        check_argv(section, remarks);
        check_parameters(section, remarks);
        check_environment(&section.env, remarks);
    }
    written
        .iter()
        .map(|section| command(section, limits))
        .collect()
}

fn command(section: &CommandSection, limits: CommandLimits) -> Command {
    Command {
        name: section.name.value.clone(),
        description: section.description.clone(),
        argv: section
            .argv
            .iter()
            .flatten()
            .map(|argument| argument.value.clone())
            .collect(),
        parameters: section
            .parameters
            .iter()
            .map(|section| section.parameter.clone())
            .collect(),
        env: section.env.iter().map(|name| name.value.clone()).collect(),
        policy: section.policy,
        limits,
    }
}

fn check_name<'a>(
    name: &'a At<String>,
    host_tools: &[&str],
    names: &mut BTreeMap<&'a str, &'a Span>,
    remarks: &mut Remarks,
) {
    let At { value, span } = name;
    let taken = |message: String| {
        Remark::error(span.clone(), message, "taken").help("choose a name that no tool has")
    };
    if value.is_empty() {
        // That it is missing has been said.
    } else if !is_tool_name(value) {
        let remark = Remark::error(
            span.clone(),
            "the name of the command is not valid",
            "not such a name",
        );
        remarks.push(remark.help(VALID_NAME));
    } else if syscall::tool(value).is_some() {
        remarks.push(taken(format!("`{value}` is the name of a built-in tool")));
    } else if host_tools.contains(&value.as_str()) {
        remarks.push(taken(format!(
            "`{value}` is the name of a tool of the host"
        )));
    } else if let Some(first) = names.insert(value, span) {
        remarks.push(
            taken(format!("two commands are named `{value}`"))
                .label(first.clone(), "first declared here"),
        );
    }
}

fn check_argv(section: &CommandSection, remarks: &mut Remarks) {
    let Some(argv) = &section.argv else { return };
    for argument in argv.iter().filter(|argument| argument.value.contains('\0')) {
        let message = "an argument cannot hold the character NUL";
        remarks.push(Remark::error(argument.span.clone(), message, "holds NUL"));
    }
    match argv.first() {
        None => {
            let message = "the command has no program to run";
            let remark = Remark::error(section.span.clone(), message, "`argv` is empty");
            remarks.push(
                remark
                    .help("write the program and its arguments: argv = [\"cargo\", \"metadata\"]"),
            );
        }
        Some(program) if program.value.trim().is_empty() => {
            remarks.push(Remark::error(
                program.span.clone(),
                "the command has no program to run",
                "empty",
            ));
        }
        Some(program) if placeholders(&program.value).next().is_some() => {
            let message = "which program runs cannot be left to the model";
            let remark = Remark::error(
                program.span.clone(),
                message,
                "a placeholder in the first argument",
            );
            remarks.push(remark.help(
                "write the program's name; placeholders may stand in the arguments after it",
            ));
        }
        Some(_) => {}
    }
}

fn check_parameters(section: &CommandSection, remarks: &mut Remarks) {
    let Some(argv) = &section.argv else { return };
    let mut used = BTreeSet::new();
    for argument in argv {
        for Placeholder { name, .. } in placeholders(&argument.value) {
            used.insert(name);
            if !section
                .parameters
                .iter()
                .any(|declared| declared.parameter.name == name)
            {
                remarks.push(undeclared(name, argument, section));
            }
        }
    }
    for ParameterSection { span, parameter } in &section.parameters {
        if !is_parameter_name(&parameter.name) {
            let remark = Remark::error(
                span.clone(),
                "the name of the parameter is not valid",
                "not such a name",
            );
            remarks.push(remark.help("valid: a letter or _, then up to 63 letters, digits and _"));
        } else if !used.contains(parameter.name.as_str()) {
            let message = format!("the parameter `{}` is not used in `argv`", parameter.name);
            let remark = Remark::error(span.clone(), message, "never used");
            remarks.push(remark.help(format!(
                "write {{{}}} where its value belongs",
                parameter.name
            )));
        }
    }
}

fn undeclared(name: &str, argument: &At<String>, section: &CommandSection) -> Remark {
    let declared: Vec<_> = section
        .parameters
        .iter()
        .map(|section| shorten(&section.parameter.name))
        .collect();
    let list = if declared.is_empty() {
        "none".to_owned()
    } else {
        declared.join(", ")
    };
    let help = format!(
        "declare it: parameters.{name} = {{ type = \"string\" }}; declared: {list}. Braces around \
         anything but a name are ordinary characters"
    );
    Remark::error(
        argument.span.clone(),
        format!("`{{{name}}}` is not a parameter of the command"),
        "not declared",
    )
    .help(help)
}

fn check_environment(names: &[At<String>], remarks: &mut Remarks) {
    for At { span, .. } in names.iter().filter(|name| !is_parameter_name(&name.value)) {
        let message = "`env` takes the names of environment variables";
        let remark = Remark::error(span.clone(), message, "not such a name");
        remarks.push(
            remark.help(
                "values are taken from the environment of the kernel: env = [\"CARGO_HOME\"]",
            ),
        );
    }
}
