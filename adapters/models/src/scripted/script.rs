//! Parses and checks the script file. The head of `scripted.rs` lists its keys.

use std::time::Duration;

use dormouse_proto::model::{ModelErrorKind, StopReason};
use minijinja::Value;
use serde::Deserialize;
use toml::Spanned;

use super::captures::{Capture, CaptureEntry};
use super::conditions::{Conditions, WhenEntry};
use super::error::{ScriptError, ScriptText};
use super::history::History;
use super::render::{self, Call, RenderError};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptFile {
    #[serde(default)]
    capture: Vec<CaptureEntry>,
    #[serde(default)]
    turn: Vec<Spanned<TurnEntry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TurnEntry {
    name: Option<String>,
    #[serde(default)]
    when: WhenEntry,
    text: Option<Spanned<String>>,
    #[serde(default)]
    calls: Vec<CallEntry>,
    calls_json: Option<Spanned<String>>,
    #[serde(default)]
    delay_ms: u64,
    stop: Option<Spanned<String>>,
    fail: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallEntry {
    tool: String,
    args: Option<Spanned<serde_json::Map<String, serde_json::Value>>>,
}

/// A checked script.
pub(crate) struct Script {
    pub(crate) name: String,
    pub(crate) turns: Vec<Turn>,
    captures: Vec<Capture>,
}

/// A checked turn.
pub(crate) struct Turn {
    pub(crate) name: String,
    pub(crate) when: Conditions,
    pub(crate) delay: Duration,
    pub(crate) fail: Option<ModelErrorKind>,
    stop: Option<StopReason>,
    text: Option<String>,
    calls: Calls,
}

/// The calls of a turn.
enum Calls {
    /// From `calls`: the tool, and its arguments with templates in their strings.
    List(Vec<(String, serde_json::Value)>),
    /// From `calls_json`: a template of the whole list.
    Template(String),
}

/// The text and the calls of a turn, rendered.
pub(crate) struct ScriptedReply {
    pub(crate) text: String,
    pub(crate) calls: Vec<Call>,
    /// Why the model stops. None: the stop reason follows from whether the reply has calls.
    pub(crate) stop: Option<StopReason>,
}

/// The words of `stop`.
const STOPS: [(&str, StopReason); 4] = [
    ("refusal", StopReason::Refusal),
    ("max_tokens", StopReason::MaxTokens),
    ("context_window", StopReason::ContextWindow),
    ("pause", StopReason::Pause),
];

impl Script {
    /// Parses and checks a script. `name` is its name in errors.
    ///
    /// # Errors
    /// The first mistake, with its location and what is valid there.
    pub(crate) fn parse(toml_text: &str, name: &str) -> Result<Self, ScriptError> {
        let text = ScriptText {
            name,
            text: toml_text,
        };
        let file: ScriptFile = toml::from_str(toml_text).map_err(|error| {
            text.error_at(error.span().unwrap_or_default(), error.message().trim_end())
        })?;
        if file.turn.is_empty() {
            return Err(text.error_at(
                0..0,
                "a script needs a [[turn]] with text, calls, calls_json or fail",
            ));
        }
        let captures = check_captures(file.capture, &text)?;
        let turns = file.turn.into_iter().enumerate();
        let turns = turns
            .map(|(index, entry)| Turn::check(index + 1, entry, &text))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            name: name.to_owned(),
            turns,
            captures,
        })
    }

    /// The variables that have a value in this conversation. Costs one search with each pattern in
    /// the texts of its source.
    pub(crate) fn variables(&self, history: &History<'_>, last: &str) -> Value {
        let built_in = [
            ("prompt", Value::from(history.prompt())),
            ("last", Value::from(last)),
            ("program", Value::from(history.program())),
            ("turn", Value::from(history.turn())),
            ("round", Value::from(history.round())),
        ];
        let captured = self
            .captures
            .iter()
            .filter_map(|c| Some((c.name.as_str(), c.value(history)?)));
        built_in.into_iter().chain(captured).collect()
    }

    /// The first turn whose conditions hold.
    ///
    /// # Errors
    /// A condition that cannot be evaluated, with the name of its turn.
    pub(crate) fn turn(
        &self,
        history: &History<'_>,
        last: &str,
        variables: &Value,
    ) -> Result<Option<&Turn>, TurnError> {
        for turn in &self.turns {
            if turn
                .when
                .hold(history, last, variables)
                .map_err(|error| turn.error(error))?
            {
                return Ok(Some(turn));
            }
        }
        Ok(None)
    }
}

/// A condition or a template of a turn that failed.
#[derive(Debug, thiserror::Error)]
#[error("{turn}: {error}")]
pub(crate) struct TurnError {
    turn: String,
    error: RenderError,
}

impl Turn {
    fn check(
        number: usize,
        entry: Spanned<TurnEntry>,
        text: &ScriptText<'_>,
    ) -> Result<Self, ScriptError> {
        let span = entry.span();
        let TurnEntry {
            name,
            when,
            text: reply_text,
            calls,
            calls_json,
            delay_ms,
            stop,
            fail,
        } = entry.into_inner();
        let name = name.unwrap_or_else(|| format!("turn {number}"));
        let error_at = |message: &str| text.error_at(span.clone(), format!("{name}: {message}"));
        let has_reply =
            reply_text.is_some() || !calls.is_empty() || calls_json.is_some() || stop.is_some();
        if !has_reply && fail.is_none() {
            return Err(error_at(
                "says nothing: give it text, calls, calls_json, stop or fail",
            ));
        }
        if has_reply && fail.is_some() {
            return Err(error_at(
                "fails and speaks: fail stands alone, in place of a reply. To say something and \
                 end as failed, give it text and stop = \"refusal\"",
            ));
        }
        if let Some(reply_text) = &reply_text {
            render::check_template(reply_text, text)?;
        }
        let calls = match calls_json {
            Some(_) if !calls.is_empty() => {
                return Err(error_at("has both calls and calls_json: keep one"));
            }
            Some(template) => {
                render::check_template(&template, text)?;
                Calls::Template(template.into_inner())
            }
            None => Calls::List(
                calls
                    .into_iter()
                    .map(|call| check_call(call, text))
                    .collect::<Result<_, _>>()?,
            ),
        };
        let when = Conditions::check(when, text)?;
        let stop = stop.map(|word| check_stop(&word, text)).transpose()?;
        let fail = fail.map(|word| check_failure(&word, text)).transpose()?;
        let delay = Duration::from_millis(delay_ms);
        Ok(Self {
            name,
            when,
            delay,
            fail,
            stop,
            text: reply_text.map(Spanned::into_inner),
            calls,
        })
    }

    /// Renders the turn for this conversation.
    ///
    /// # Errors
    /// A template that fails, with the name of the turn.
    pub(crate) fn render(&self, variables: &Value) -> Result<ScriptedReply, TurnError> {
        let text = self
            .text
            .as_deref()
            .map_or(Ok(String::new()), |text| render::text(text, variables));
        let calls = match &self.calls {
            Calls::Template(template) => render::calls(template, variables),
            Calls::List(calls) => calls
                .iter()
                .map(|(tool, args)| Ok((tool.clone(), render::args(args, variables)?)))
                .collect(),
        };
        let with_turn = |error| self.error(error);
        Ok(ScriptedReply {
            text: text.map_err(with_turn)?,
            calls: calls.map_err(with_turn)?,
            stop: self.stop,
        })
    }

    fn error(&self, error: RenderError) -> TurnError {
        TurnError {
            turn: self.name.clone(),
            error,
        }
    }
}

fn check_captures(
    entries: Vec<CaptureEntry>,
    text: &ScriptText<'_>,
) -> Result<Vec<Capture>, ScriptError> {
    let mut captures: Vec<Capture> = Vec::with_capacity(entries.len());
    for entry in entries {
        let span = entry.name.span();
        let capture = Capture::check(entry, text)?;
        if captures.iter().any(|other| other.name == capture.name) {
            let message = format!(
                "a capture '{}' stands above already: give each its own name",
                capture.name
            );
            return Err(text.error_at(span, message));
        }
        captures.push(capture);
    }
    Ok(captures)
}

fn check_call(
    call: CallEntry,
    text: &ScriptText<'_>,
) -> Result<(String, serde_json::Value), ScriptError> {
    let Some(args) = call.args else {
        return Ok((call.tool, serde_json::Value::Object(serde_json::Map::new())));
    };
    let span = args.span();
    let args = serde_json::Value::Object(args.into_inner());
    render::check_args(&args, span, text)?;
    Ok((call.tool, args))
}

/// The stop reason with this word.
fn check_stop(word: &Spanned<String>, text: &ScriptText<'_>) -> Result<StopReason, ScriptError> {
    let found = STOPS.into_iter().find(|(known, _)| known == word.get_ref());
    found.map(|(_, stop)| stop).ok_or_else(|| {
        let words = STOPS.map(|(known, _)| format!("`{known}`")).join(", ");
        text.error_at(
            word.span(),
            format!("unknown reason to stop, expected one of {words}"),
        )
    })
}

/// The failure with this word.
fn check_failure(
    word: &Spanned<String>,
    text: &ScriptText<'_>,
) -> Result<ModelErrorKind, ScriptError> {
    let found = ModelErrorKind::ALL
        .into_iter()
        .find(|kind| kind.word() == word.get_ref());
    found.ok_or_else(|| {
        let words = ModelErrorKind::ALL
            .map(|kind| format!("`{}`", kind.word()))
            .join(", ");
        text.error_at(
            word.span(),
            format!("unknown failure, expected one of {words}"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An invalid script, the line and column of the diagnostic, and what it says.
    fn check(script: &str, (line, column): (usize, usize), parts: &[&str]) {
        let error = Script::parse(script, "s.toml").map(|_| ()).unwrap_err();
        let diagnostic = error.diagnostic().unwrap();
        assert_eq!(
            (diagnostic.line(), diagnostic.column()),
            (line, column),
            "{error}"
        );
        for part in parts {
            assert!(
                error.to_string().contains(part),
                "{part:?} is not in: {error}"
            );
        }
    }

    #[test]
    fn an_error_points_into_the_file_and_lists_what_is_valid() {
        let turn = "[[turn]]\ntext = 'x'\n";
        check("", (1, 1), &["s.toml:1:1", "[[turn]]", "calls_json"]);
        check("[[turns]]\n", (1, 3), &["unknown field `turns`", "`turn`"]);
        check(
            "[[turn]]\ntext = 'x'\ndelay = 3\n",
            (3, 1),
            &["unknown field `delay`", "`delay_ms`"],
        );
        check(
            "[[turn]]\nname = 'idle'\n",
            (1, 1),
            &["idle: says nothing", "text, calls"],
        );
        check(
            "[[turn]]\ntext = 'x'\nfail = 'overloaded'\n",
            (1, 1),
            &["fails and speaks", "stop = \"refusal\""],
        );
        check(
            "[[turn]]\nstop = 'refusal'\nfail = 'overloaded'\n",
            (1, 1),
            &["fails and speaks"],
        );
        check(
            "[[turn]]\nstop = 'end_turn'\n",
            (2, 8),
            &["`refusal`", "`max_tokens`", "in: 'end_turn'"],
        );
        check(
            "[[turn]]\nfail = 'tired'\n",
            (2, 8),
            &["`overloaded`", "`content_refused`", "in: 'tired'"],
        );
        check(
            "[[turn]]\ncalls_json = '[]'\ncalls = [{tool = 'a'}]\n",
            (1, 1),
            &["both calls and calls_json"],
        );
        check(
            "[[turn]]\ntext = 'x'\nwhen = {matches = '(a'}\n",
            (3, 19),
            &["unclosed group", "in: '(a'"],
        );
        check(
            "[[turn]]\ntext = 'x'\nwhen = {holds = 'a >'}\n",
            (3, 17),
            &["syntax error", "in: 'a >'"],
        );
        check(
            "[[turn]]\ntext = '''\nfine\n{% if %}\n'''\n",
            (4, 1),
            &["syntax error", "in: {% if %}"],
        );
        check(
            "[[turn]]\ncalls = [{tool = 'a', args = {b = '{{'}}]\n",
            (2, 30),
            &["argument \"{{\""],
        );
        check(
            &format!("{turn}[[capture]]\nname = 'last'\npattern = ''\n"),
            (4, 8),
            &["known to every template"],
        );
        check(
            &format!("{turn}[[capture]]\nname = 'a-b'\npattern = ''\n"),
            (4, 8),
            &["letters, digits and _"],
        );
        let twice = "[[capture]]\nname = 'a'\npattern = ''\n".repeat(2);
        check(
            &format!("{turn}{twice}"),
            (7, 8),
            &["'a' stands above already"],
        );
        check(
            &format!("{turn}[[capture]]\nname = 'a'\npattern = '['\n"),
            (5, 11),
            &["unclosed character class"],
        );
        check(
            &format!("{turn}[[capture]]\nname = 'a'\npattern = ''\nunique = true\n"),
            (6, 10),
            &["take = \"all\"", "in: true"],
        );
        check(
            &format!("{turn}[[capture]]\nname = 'a'\npattern = ''\nfrom = 'tools'\n"),
            (6, 8),
            &["`results`"],
        );
    }
}
