//! Renders the templates of a turn with the variables of a conversation.
//!
//! A template has no access to a clock, to files or to random numbers: equal variables give equal
//! text. A variable without a value may be tested (`is defined`, `if`), but printing it is an
//! error.

use std::ops::Range;
use std::sync::LazyLock;

use minijinja::{Environment, Error, UndefinedBehavior, Value};
use serde::Deserialize;
use serde_json::Map;
use toml::Spanned;

use super::error::{ScriptError, ScriptText};

static TEMPLATES: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
    // A line that holds only a block tag produces no empty line, so a template looks like its
    // output.
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment
});

/// A call in the JSON list that a template renders.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenCall {
    tool: String,
    #[serde(default)]
    args: Map<String, serde_json::Value>,
}

/// The error of a template or an expression, for the author of the script.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RenderError {
    #[error("{problem} in '{line}'; variables with a value: {known}")]
    Template {
        problem: String,
        line: String,
        /// The names of the variables that have a value.
        known: String,
    },
    /// The output of a template is not a list of calls.
    #[error(
        "calls_json must render to [{{\"tool\": \"…\", \"args\": {{…}}}}, …], but {problem} in: \
         {written}"
    )]
    Calls { problem: String, written: String },
}

/// A rendered call: the tool and its arguments as JSON text.
pub(crate) type Call = (String, String);

/// Checks the syntax of a template of the script.
///
/// # Errors
/// A diagnostic that points at the line of the template.
pub(crate) fn check_template(
    template: &Spanned<String>,
    text: &ScriptText<'_>,
) -> Result<(), ScriptError> {
    match TEMPLATES.template_from_str(template.get_ref()) {
        Ok(_) => Ok(()),
        Err(error) => Err(text.error_in_line(
            template.span(),
            error.line().unwrap_or(1),
            error_text(&error),
        )),
    }
}

/// Checks the syntax of an expression of the script.
///
/// # Errors
/// A diagnostic that points at the expression.
pub(crate) fn check_expression(
    expression: &Spanned<String>,
    text: &ScriptText<'_>,
) -> Result<(), ScriptError> {
    match TEMPLATES.compile_expression(expression.get_ref()) {
        Ok(_) => Ok(()),
        Err(error) => Err(text.error_at(expression.span(), error_text(&error))),
    }
}

/// Checks the templates among the strings of a call's arguments, which are at `span`.
///
/// # Errors
/// A diagnostic that points at the arguments and shows the template.
pub(crate) fn check_args(
    args: &serde_json::Value,
    span: Range<usize>,
    text: &ScriptText<'_>,
) -> Result<(), ScriptError> {
    let checked = map_strings(
        args,
        &mut |string| match TEMPLATES.template_from_str(string) {
            Ok(_) => Ok(String::new()),
            Err(error) => Err(format!("{} in the argument {string:?}", error_text(&error))),
        },
    );
    checked
        .map(drop)
        .map_err(|message| text.error_at(span, message))
}

/// Renders a template to text.
///
/// # Errors
/// [`RenderError::Template`].
pub(crate) fn text(template: &str, variables: &Value) -> Result<String, RenderError> {
    TEMPLATES
        .render_str(template, variables)
        .map_err(|error| template_error(template, &error, variables))
}

/// Whether an expression is true.
///
/// # Errors
/// [`RenderError::Template`].
pub(crate) fn is_true(expression: &str, variables: &Value) -> Result<bool, RenderError> {
    let value = TEMPLATES
        .compile_expression(expression)
        .and_then(|compiled| compiled.eval(variables));
    value
        .map(|value| value.is_true())
        .map_err(|error| template_error(expression, &error, variables))
}

/// Renders the templates among the strings of a call's arguments; everything else is unchanged.
///
/// # Errors
/// [`RenderError::Template`].
pub(crate) fn args(args: &serde_json::Value, variables: &Value) -> Result<String, RenderError> {
    map_strings(args, &mut |string| text(string, variables)).map(|args| args.to_string())
}

/// Renders a template to a JSON list of calls.
///
/// # Errors
/// [`RenderError`].
pub(crate) fn calls(template: &str, variables: &Value) -> Result<Vec<Call>, RenderError> {
    let written = text(template, variables)?;
    let calls: Vec<WrittenCall> = match serde_json::from_str(&written) {
        Ok(calls) => calls,
        Err(error) => {
            let problem = error.to_string();
            return Err(RenderError::Calls { problem, written });
        }
    };
    Ok(calls
        .into_iter()
        .map(|call| (call.tool, serde_json::Value::Object(call.args).to_string()))
        .collect())
}

fn map_strings<E>(
    value: &serde_json::Value,
    render: &mut impl FnMut(&str) -> Result<String, E>,
) -> Result<serde_json::Value, E> {
    use serde_json::Value as Json;
    Ok(match value {
        Json::String(string) if string.contains("{{") || string.contains("{%") => {
            Json::String(render(string)?)
        }
        Json::Array(items) => items
            .iter()
            .map(|item| map_strings(item, render))
            .collect::<Result<_, _>>()?,
        Json::Object(fields) => Json::Object(
            fields
                .iter()
                .map(|(key, value)| Ok((key.clone(), map_strings(value, render)?)))
                .collect::<Result<_, E>>()?,
        ),
        other => other.clone(),
    })
}

fn error_text(error: &Error) -> String {
    match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    }
}

fn template_error(template: &str, error: &Error, variables: &Value) -> RenderError {
    let line = error.line().unwrap_or(1);
    let failed_line = template
        .lines()
        .nth(line.saturating_sub(1))
        .unwrap_or(template)
        .trim();
    let known: Vec<_> = variables
        .try_iter()
        .into_iter()
        .flatten()
        .map(|name| name.to_string())
        .collect();
    RenderError::Template {
        problem: error_text(error),
        line: failed_line.to_owned(),
        known: known.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn variables() -> Value {
        Value::from_serialize(json!({
            "fd": "fd:1",
            "found": [
                {"name": "a", "version": "1", "licence": "MIT"},
                {"name": "a", "version": "2", "licence": "MIT"},
                {"name": "b", "version": "1", "licence": "ISC"},
            ],
        }))
    }

    #[test]
    fn templates_count_group_and_join() {
        let cases = [
            ("{{ found | length }}", "3"),
            (
                "{% for l, of in found | groupby('licence') %}{{ l }}={{ of | length }} {% endfor \
                 %}",
                "ISC=1 MIT=2 ",
            ),
            (
                "{% for n, of in found | groupby('name') if of | length > 1 %}\n  {{ n }}: {{ of | \
                 map(attribute='version') | join(', ') }}\n{% endfor %}",
                "  a: 1, 2\n",
            ),
            (
                "{{ found | map(attribute='name') | unique | sort(reverse=true) | join(' ') }}",
                "b a",
            ),
            ("<a & b>", "<a & b>"),
        ];
        for (template, expected) in cases {
            assert_eq!(
                text(template, &variables()).as_deref(),
                Ok(expected),
                "{template}"
            );
        }
    }

    #[test]
    fn only_strings_that_are_templates_are_rendered_in_arguments() {
        let rendered = args(
            &json!({"fd": "{{ fd }}", "page": 2, "in": ["{{ fd }}", true], "raw": "{ }"}),
            &variables(),
        );
        assert_eq!(
            rendered.unwrap(),
            r#"{"fd":"fd:1","page":2,"in":["fd:1",true],"raw":"{ }"}"#
        );
    }

    #[test]
    fn a_template_can_write_the_list_of_calls() {
        let template = r#"[{"tool": "fork", "args": {"prompts":
            {% set prompts = namespace(all=[]) %}
            {% for name, of in found | groupby("name") %}
            {% set prompts.all = prompts.all + ["look at " ~ name] %}
            {% endfor %}
            {{ prompts.all | tojson }}}}]"#;
        let expected = (
            "fork".to_owned(),
            r#"{"prompts":["look at a","look at b"]}"#.to_owned(),
        );
        assert_eq!(calls(template, &variables()), Ok(vec![expected]));
    }

    #[test]
    fn a_template_error_shows_the_line_and_the_defined_variables() {
        for (rendered, parts) in [
            (
                text("ok\n{{ missing }}", &variables()),
                ["{{ missing }}", "fd, found"],
            ),
            (
                calls("[{}]", &variables()).map(|_| String::new()),
                ["missing field `tool`", "[{}]"],
            ),
            (
                calls("[{\"tool\": \"a\", \"arg\": 1}]", &variables()).map(|_| String::new()),
                ["unknown field", "args"],
            ),
        ] {
            let error = rendered.unwrap_err().to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        }
    }
}
