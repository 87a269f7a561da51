//! A model that follows a script, offline and deterministically.
//!
//! A script is a TOML file of turns. The first turn whose conditions hold gives the reply. Its text
//! and its calls are templates ([minijinja](https://docs.rs/minijinja)) over variables that
//! patterns capture from the conversation.
//!
//! A reply depends only on the request: the model keeps no state between calls, reads no clock and
//! uses no random numbers. A restored process, a fork and a repeated call therefore get the same
//! reply as before.
//!
//! ```toml
//! [[capture]]               # a variable: what a pattern finds
//! name = "big"
//! pattern = '<fd_result fd="(?<fd>[^"]+)"'
//! from = "results"          # results (default) | input | system | last | all
//! since = "start"           # start (default) | prompt: ignores everything before the fork or the last input
//! take = "last"             # last (default) | first | all: a list; with unique = true without repetitions
//! default = { fd = "none" } # where nothing is found; without it the variable is undefined (take = "all": an empty list)
//!
//! [[turn]]
//! name = "look"
//! when.program = "auditor"  # the program that the process runs
//! when.prompt = "licences"  # a pattern on the current prompt: the last input, or the prompt of a fork
//! when.tool = "fork"        # the last message answers a use of this tool
//! when.matches = 'fd="'     # a pattern on the last message, tool answers included
//! when.contains = "fd"      # a text in the last message
//! when.round = 1            # the number of replies since the prompt
//! when.holds = "big.fd != 'none'" # an expression over the variables
//! text = "I read {{ big.fd }}."
//! calls = [{ tool = "read_fd", args = { fd = "{{ big.fd }}", page = 2 } }]
//! # calls_json = '[{"tool": "fork", "args": {"prompts": {{ names | tojson }}}}]'  a template of the whole list instead
//! delay_ms = 20
//! # stop = "refusal"        why the model stops: refusal, max_tokens, context_window or pause
//! # fail = "overloaded"     a failure instead of a reply
//! ```
//!
//! Every template has the variables `prompt`, `last` (the text of the last message), `program`,
//! `turn` and `round` (replies of the model so far, and since the prompt).

mod captures;
mod conditions;
mod error;
mod history;
mod provider;
mod render;
mod script;

use std::path::Path;
use std::sync::Arc;

use dormouse_actors::ports::Model;
use dormouse_proto::message::Block;
use dormouse_proto::model::{
    Delta, ModelError, ModelErrorKind, Reply, Request, StopReason, Usage, estimated_tokens,
};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

pub use self::error::{ScriptDiagnostic, ScriptError};
use self::history::History;
pub use self::provider::ScriptedProvider;
use self::script::{Script, ScriptedReply, Turn};

/// The number of deltas in which a text is streamed.
const STREAM_CHUNKS: usize = 4;
/// The maximum number of characters of the last message that an error shows.
const SHOWN_CHARS: usize = 200;

/// A model that follows a script. Cloning shares the script.
///
/// ```
/// use dormouse_models::Scripted;
///
/// let model = Scripted::parse("[[turn]]\ntext = 'Done: {{ prompt }}'", "demo")?;
/// # Ok::<(), dormouse_models::ScriptError>(())
/// ```
#[derive(Clone)]
pub struct Scripted {
    script: Option<Arc<Script>>,
}

impl Scripted {
    /// Reads a script from a file.
    ///
    /// # Errors
    /// [`ScriptError`] if the file cannot be read, or if the script is not valid: the error then
    /// has the line of the mistake.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ScriptError> {
        let path = path.as_ref();
        let read = |source| ScriptError::Read {
            path: path.to_owned(),
            source,
        };
        let text = std::fs::read_to_string(path).map_err(read)?;
        Self::parse(&text, &path.display().to_string())
    }

    /// Parses a script. `name` is the name of the file in errors.
    ///
    /// # Errors
    /// [`ScriptError`] with the line of the mistake.
    pub fn parse(toml_text: &str, name: &str) -> Result<Self, ScriptError> {
        Ok(Self {
            script: Some(Arc::new(Script::parse(toml_text, name)?)),
        })
    }

    /// A model without a script, for programs whose tools are called from outside: every call to it
    /// fails.
    #[must_use]
    pub fn without_script() -> Self {
        Self { script: None }
    }

    fn choose_turn(&self, request: &Request) -> Result<(&Turn, ScriptedReply), ModelError> {
        let script = self
            .script
            .as_ref()
            .ok_or_else(|| unavailable(missing_script_message(request)))?;
        let history = History::of(request);
        let last = history.last();
        let variables = script.variables(&history, &last);
        let script_failure = |error| unavailable(format!("script '{}', {error}", script.name));
        match script
            .turn(&history, &last, &variables)
            .map_err(script_failure)?
        {
            Some(turn) => Ok((turn, turn.render(&variables).map_err(script_failure)?)),
            None => Err(unavailable(no_turn_message(script, request, &last))),
        }
    }
}

impl std::fmt::Debug for Scripted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scripted")
            .field("script", &self.script.as_ref().map(|script| &script.name))
            .finish()
    }
}

impl Model for Scripted {
    fn call<'a>(
        &'a self,
        request: Request,
        deltas: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Reply, ModelError>> {
        async move {
            let (turn, scripted) = self.choose_turn(&request)?;
            if !turn.delay.is_zero() {
                tokio::time::sleep(turn.delay).await;
            }
            if let Some(kind) = turn.fail {
                return Err(ModelError::new(
                    kind,
                    format!("the script's {} fails", turn.name),
                ));
            }
            report_deltas(&scripted, deltas);
            Ok(build_reply(&request, scripted))
        }
        .boxed()
    }
}

fn report_deltas(scripted: &ScriptedReply, deltas: &(dyn Fn(Delta) + Send + Sync)) {
    let chars: Vec<char> = scripted.text.chars().collect();
    for chunk in chars.chunks(chars.len().div_ceil(STREAM_CHUNKS).max(1)) {
        deltas(Delta::Text(chunk.iter().collect()));
    }
    for (tool, _) in &scripted.calls {
        deltas(Delta::ToolUse(tool.clone()));
    }
}

fn build_reply(request: &Request, scripted: ScriptedReply) -> Reply {
    let turn = request
        .messages
        .iter()
        .filter(|m| m.role == dormouse_proto::message::Role::Assistant)
        .count();
    let default_stop = if scripted.calls.is_empty() {
        StopReason::EndTurn
    } else {
        StopReason::ToolUse
    };
    let stop = scripted.stop.unwrap_or(default_stop);
    let text = Some(scripted.text)
        .filter(|text| !text.is_empty())
        .map(Block::text);
    // The number of the reply makes each id unique in its conversation, in a fork as well as in its
    // parent.
    let uses = scripted
        .calls
        .into_iter()
        .enumerate()
        .map(|(index, (name, args))| Block::ToolUse {
            id: format!("toolu_{turn}_{index}").into(),
            name: name.into(),
            args: args.into(),
            raw: None,
        });
    let blocks: Vec<_> = text.into_iter().chain(uses).collect();
    let usage = Usage {
        input_tokens: request.estimated_tokens(),
        output_tokens: estimated_tokens(&blocks),
        ..Usage::default()
    };
    Reply {
        blocks,
        stop,
        usage,
    }
}

fn unavailable(message: String) -> ModelError {
    ModelError::new(ModelErrorKind::Unavailable, message)
}

fn missing_script_message(request: &Request) -> String {
    format!(
        "the program '{}' runs on a scripted model, but no script is named: give the model a \
         script, a TOML file with [[turn]] entries, or choose another provider",
        request.program
    )
}

fn no_turn_message(script: &Script, request: &Request, last: &str) -> String {
    let shown: String = last.chars().take(SHOWN_CHARS).collect();
    let more = if shown.len() < last.len() { "…" } else { "" };
    let turns: String = script
        .turns
        .iter()
        .map(|turn| format!("\n  {}: {}", turn.name, turn.when))
        .collect();
    format!(
        "no turn of the script '{}' answers the program '{}' after: {shown:?}{more}\nturns and \
         their conditions:{turns}",
        script.name, request.program
    )
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
