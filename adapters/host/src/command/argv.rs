//! Builds the argument list: replaces each `{parameter}` in the declared elements. One element
//! always stays one argument, and replaced text is not searched for placeholders again.

use dormouse_actors::ports::ToolError;
use dormouse_proto::command::Parameter;
use dormouse_proto::program::{Placeholder, placeholders};
use dormouse_proto::text::truncate;

use super::arguments::Arguments;

/// Fills the elements. An element is left out if it holds a parameter that is not given and has no
/// default, so `--limit={limit}` vanishes without a limit. Braces around anything but a parameter
/// are plain text.
///
/// # Errors
/// A free argument, whose text the model chose, would begin an element with `-`: the program would
/// take it as an option.
pub(super) fn fill(
    argv: &[String],
    parameters: &[Parameter],
    arguments: &Arguments,
) -> Result<Vec<String>, ToolError> {
    argv.iter()
        .filter_map(|element| fill_element(element, parameters, arguments).transpose())
        .collect()
}

fn fill_element(
    element: &str,
    parameters: &[Parameter],
    arguments: &Arguments,
) -> Result<Option<String>, ToolError> {
    let (mut filled, mut copied_to) = (String::new(), 0);
    let declared = |name: &str| parameters.iter().any(|parameter| parameter.name == name);
    for Placeholder { name, span } in
        placeholders(element).filter(|placeholder| declared(placeholder.name))
    {
        filled.push_str(&element[copied_to..span.start]);
        let Some(argument) = arguments.get(name) else {
            return Ok(None);
        };
        if filled.is_empty() && argument.is_free && argument.text.starts_with('-') {
            return Err(option_error(name, &argument.text));
        }
        filled.push_str(&argument.text);
        copied_to = span.end;
    }
    filled.push_str(&element[copied_to..]);
    Ok(Some(filled))
}

fn option_error(name: &str, text: &str) -> ToolError {
    let start = truncate(text, 40);
    format!(
        "`{name}` may not begin with `-`, since the program would take {start:?} as an option. For \
         a file, write ./-name."
    )
    .into()
}

#[cfg(test)]
mod tests {
    use dormouse_proto::command::ParameterKind;

    use super::*;

    fn parameters() -> Vec<Parameter> {
        let optional = |name: &str, kind| Parameter {
            name: name.into(),
            kind,
            description: String::new(),
            default: None,
            optional: true,
            choices: Vec::new(),
        };
        let mut mode = optional("mode", ParameterKind::String);
        mode.choices = vec!["-q".into(), "-v".into()];
        let mut dflt = optional("dflt", ParameterKind::String);
        dflt.default = Some("--all".into());
        vec![
            optional("a", ParameterKind::String),
            optional("n", ParameterKind::Integer),
            mode,
            dflt,
        ]
    }

    fn check(argv: &[&str], json: &str, expected: Result<&[&str], &str>) {
        let argv: Vec<_> = argv.iter().map(|element| (*element).to_owned()).collect();
        let parameters = parameters();
        let arguments = Arguments::read(json, &parameters).expect(json);
        match (fill(&argv, &parameters, &arguments), expected) {
            (Ok(filled), Ok(expected)) => assert_eq!(filled, expected, "{argv:?} {json}"),
            (Err(error), Err(part)) => {
                assert!(error.to_string().contains(part), "{argv:?} {json}: {error}")
            }
            (got, _) => panic!("{argv:?} {json}: {got:?}, not {expected:?}"),
        }
    }

    #[test]
    fn only_parameters_are_substituted() {
        check(
            &["p", "{a}"],
            r#"{"a":"x y; rm *"}"#,
            Ok(&["p", "x y; rm *"]),
        );
        check(
            &["p", "<{a}|{n}|{a}>"],
            r#"{"a":"é","n":3}"#,
            Ok(&["p", "<é|3|é>"]),
        );
        check(&["p", "{a}"], r#"{"a":"{n}","n":3}"#, Ok(&["p", "{n}"]));
        check(
            &["p", "{}", "{b}", "{print $1}", "{", "}{", "{{a}}"],
            r#"{"a":"x"}"#,
            Ok(&["p", "{}", "{b}", "{print $1}", "{", "}{", "{x}"]),
        );
        check(&["p", "{a}"], r#"{"a":""}"#, Ok(&["p", ""]));
    }

    #[test]
    fn an_element_is_omitted_with_its_parameter() {
        check(&["p", "{a}", "--n={n}", "z"], "{}", Ok(&["p", "z"]));
        check(
            &["p", "{a}", "--n={n}", "z"],
            r#"{"n":7}"#,
            Ok(&["p", "--n=7", "z"]),
        );
    }

    #[test]
    fn text_of_the_model_cannot_become_an_option() {
        check(&["p", "{a}"], r#"{"a":"--exec=x"}"#, Err("`a`"));
        check(&["p", "{a}"], r#"{"a":"-"}"#, Err("`a`"));
        check(&["p", "{a}/x"], r#"{"a":"-r"}"#, Err("`a`"));
        check(&["p", "--f={a}"], r#"{"a":"-x"}"#, Ok(&["p", "--f=-x"]));
        check(&["p", "./{a}"], r#"{"a":"-x"}"#, Ok(&["p", "./-x"]));
        check(&["p", "{n}"], r#"{"n":-4}"#, Ok(&["p", "-4"]));
        check(&["p", "{mode}"], r#"{"mode":"-v"}"#, Ok(&["p", "-v"]));
        check(&["p", "{dflt}"], "{}", Ok(&["p", "--all"]));
        check(&["p", "{dflt}"], r#"{"dflt":"--all"}"#, Err("`dflt`"));
    }
}
