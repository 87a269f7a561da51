//! `dormouse pending`, `dormouse approve`, `dormouse refuse` and `dormouse answer`: the calls of a
//! store that wait for a person.
//!
//! The verdict is recorded in the journal of the process, which is not run: the call runs when the
//! process is resumed, under the permissions that are given then.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use dormouse::api::view::CallView;
use dormouse::id::ProcessCallId;
use dormouse::record::HoldReason;
use dormouse::{HeldCall, KernelError, ProcessError, Verdict};
use serde_json::{Value, json};

use crate::args::Store;
use crate::failure::Failure;
use crate::kernel_setup::KernelSetup;
use crate::read_only::Readers;
use crate::resume::{how_to_continue, then_resume};
use crate::terminal::{self, one_line, print_stderr};

/// `dormouse pending`
#[derive(Debug, Args)]
pub(crate) struct Pending {
    #[command(flatten)]
    pub(crate) store: Store,
    /// Print one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `dormouse approve`
#[derive(Debug, Args)]
pub(crate) struct Approve {
    /// The call, as `dormouse pending` names it.
    #[arg(value_name = "CALL")]
    pub(crate) call: ProcessCallId,
    /// Run the call with these arguments, a JSON object, in place of those of the model.
    #[arg(long, value_name = "JSON", conflicts_with = "recorded")]
    pub(crate) args: Option<String>,
    /// Do not run the call, which repeats one that ran before: give its recorded answer.
    #[arg(long)]
    pub(crate) recorded: bool,
    #[command(flatten)]
    pub(crate) store: Store,
}

/// `dormouse refuse`
#[derive(Debug, Args)]
pub(crate) struct Refuse {
    /// The call, as `dormouse pending` names it.
    #[arg(value_name = "CALL")]
    pub(crate) call: ProcessCallId,
    /// Why, for the model.
    #[arg(value_name = "REASON", default_value = "")]
    pub(crate) reason: String,
    #[command(flatten)]
    pub(crate) store: Store,
}

/// `dormouse answer`
#[derive(Debug, Args)]
pub(crate) struct AnswerCall {
    /// The call, as `dormouse pending` names it.
    #[arg(value_name = "CALL")]
    pub(crate) call: ProcessCallId,
    /// The answer, as JSON or as a text.
    #[arg(value_name = "VALUE")]
    pub(crate) value: String,
    #[command(flatten)]
    pub(crate) store: Store,
}

/// Lists what waits for a person. Exits with 3 if a journal cannot be read.
pub(crate) async fn pending(args: Pending) -> Result<ExitCode, Failure> {
    let mut readers = Readers::open(&args.store).await?;
    let (mut calls, mut unreadable) = (Vec::new(), Vec::new());
    while let Some(kernel) = readers.next().await? {
        let pending = kernel.pending().await;
        kernel.shutdown().await?;
        let pending = pending?;
        calls.extend(pending.calls);
        unreadable.extend(pending.unreadable);
    }
    let mut out = terminal::stdout();
    for call in &calls {
        match args.json {
            true => writeln!(out, "{}", terminal::escaped_json(&call_json(call)))?,
            false => writeln!(out, "{}", one_line(&call_line(call)))?,
        }
    }
    if calls.is_empty() && !args.json {
        print_stderr("nothing waits for a person");
    }
    for (pid, reason) in &unreadable {
        print_stderr(&format!("process {pid} cannot be read: {reason}"));
    }
    Ok(match unreadable.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(3),
    })
}

/// Approves a call.
pub(crate) async fn approve(args: Approve) -> Result<ExitCode, Failure> {
    record(&args.store, args.call, vec![args.verdict()]).await
}

/// Refuses a call.
pub(crate) async fn refuse(args: Refuse) -> Result<ExitCode, Failure> {
    record(&args.store, args.call, vec![args.verdict()]).await
}

/// Answers a question.
pub(crate) async fn answer(args: AnswerCall) -> Result<ExitCode, Failure> {
    record(&args.store, args.call, args.verdicts()).await
}

impl Approve {
    /// What is decided.
    pub(crate) fn verdict(&self) -> Verdict {
        match self.recorded {
            true => Verdict::Recall,
            false => Verdict::Approve {
                args: self.args.clone(),
            },
        }
    }
}

impl Refuse {
    /// What is decided.
    pub(crate) fn verdict(&self) -> Verdict {
        Verdict::Refuse {
            why: self.reason.clone(),
        }
    }
}

impl AnswerCall {
    /// What is decided, by the first of these that applies: a value that is JSON and not a valid
    /// answer may still be one as a text, such as the choice `1`.
    pub(crate) fn verdicts(&self) -> Vec<Verdict> {
        let text = Value::String(self.value.clone());
        let json: Option<Value> = serde_json::from_str(&self.value).ok();
        let values = json.into_iter().chain([text]);
        values.map(|value| Verdict::Answer { value }).collect()
    }
}

/// Records the first of the verdicts that applies.
async fn record(
    store: &Store,
    call: ProcessCallId,
    verdicts: Vec<Verdict>,
) -> Result<ExitCode, Failure> {
    let kernel = KernelSetup::on(store).open_existing().await?;
    let mut first_error = None;
    let mut is_recorded = false;
    for verdict in verdicts {
        match kernel.record_verdict(call, verdict).await {
            Ok(()) => {
                is_recorded = true;
                break;
            }
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    kernel.shutdown().await?;
    match first_error.filter(|_| !is_recorded) {
        Some(KernelError::Process(error @ ProcessError::NotAnswered { .. })) => {
            Err(Failure::Usage(error.to_string()))
        }
        Some(error) => Err(error.into()),
        None => {
            print_stderr(&how_to_continue(&store.folder));
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// What waits, and how to answer it, on standard error.
pub(crate) fn print_how_to_answer(calls: &[HeldCall], store: Option<&Path>) {
    for line in how_to_answer(calls, store) {
        print_stderr(&line);
    }
}

fn how_to_answer(calls: &[HeldCall], store: Option<&Path>) -> Vec<String> {
    let mut lines = Vec::new();
    for call in calls {
        let whom = if is_speculative(call) { "" } else { " for you" };
        lines.push(format!("waits{whom}: {}", one_line(&call_line(call))));
    }
    let Some(store) = store else {
        lines.push("Nothing was saved: run with --store to approve and answer calls.".to_owned());
        return lines;
    };
    let then = then_resume(store);
    let store = store.display();
    let is_question = |call: &HeldCall| call.question.is_some();
    let to_approve = calls
        .iter()
        .find(|call| !is_question(call) && !is_speculative(call));
    let approved = to_approve.map(|HeldCall { id, .. }| {
        format!(
            "Approve or refuse: dormouse approve {id} --store {store}, dormouse refuse {id} 'why' \
             --store {store}"
        )
    });
    let asked = calls.iter().find(|call| is_question(call));
    let answered = asked.map(|HeldCall { id, .. }| {
        format!("Answer: dormouse answer {id} 'the answer' --store {store}")
    });
    let has_hint = approved.is_some() || answered.is_some();
    lines.extend(approved.into_iter().chain(answered));
    lines.extend(then.filter(|_| has_hint));
    lines
}

/// Whether the call waits for the choice of its branch, which is not a verdict on the call.
fn is_speculative(call: &HeldCall) -> bool {
    matches!(call.reason, HoldReason::Speculation)
}

/// What a held call repeats, in one line; empty if it is held for another reason.
fn repeats_note(call: &HeldCall) -> String {
    match &call.reason {
        HoldReason::Rule { .. } | HoldReason::Question => String::new(),
        HoldReason::Speculation => {
            " (of a speculative branch: it waits until its branch is chosen)".to_owned()
        }
        HoldReason::Repeats { effect: None } => {
            " (may repeat what ran beyond the point that the process went back to)".to_owned()
        }
        HoldReason::Repeats {
            effect: Some(effect),
        } => match effect.answer.as_deref().map(str::trim_end) {
            Some(answer) => format!(
                " (ran before as {}, and was answered: {answer})",
                effect.call
            ),
            None => format!(
                " (was begun before as {}; its answer is not known)",
                effect.call
            ),
        },
    }
}

/// A held call in one line, for people.
fn call_line(call: &HeldCall) -> String {
    let what = match &call.question {
        None => format!("{} {}{}", call.tool, call.args, repeats_note(call)),
        Some(question) => {
            let choices = match &question.choices[..] {
                [] => String::new(),
                choices => format!(" ({})", choices.join(" | ")),
            };
            let schema = question.schema.as_ref();
            let schema =
                schema.map_or_else(String::new, |schema| format!(" schema: {}", schema.json()));
            format!("asks: {}{choices}{schema}", question.text)
        }
    };
    format!("{} {what}", call.id)
}

/// A held call as JSON. Scripts read it: `docs/approval.md`.
pub(crate) fn call_json(call: &HeldCall) -> Value {
    json!(CallView::from(call))
}

#[cfg(test)]
mod tests {
    use dormouse::id::{CallId, Pid};

    use super::*;

    fn held(seq: u32, reason: HoldReason) -> HeldCall {
        let call = CallId { epoch: 1, seq };
        HeldCall {
            id: ProcessCallId { pid: Pid(2), call },
            tool: "write".into(),
            args: "{}".into(),
            reason,
            question: None,
            since_ms: 0,
            expires_ms: None,
        }
    }

    #[test]
    fn a_call_of_a_speculative_branch_is_not_proposed_for_approval() {
        let rule = HoldReason::Rule {
            rule: "write".into(),
        };
        let calls = [held(1, HoldReason::Speculation), held(2, rule)];
        let store = Some(Path::new("s"));
        let alone = how_to_answer(&calls[..1], store);
        assert_eq!(
            alone,
            [
                "waits: 2/1.1 write {} (of a speculative branch: it waits until its branch is chosen)"
            ]
        );
        let both = how_to_answer(&calls, store);
        assert_eq!(
            both[1..],
            [
                "waits for you: 2/1.2 write {}",
                "Approve or refuse: dormouse approve 2/1.2 --store s, dormouse refuse 2/1.2 'why' \
                 --store s",
                "Then: dormouse resume --store s",
            ]
        );
        assert_eq!(call_json(&calls[0])["speculative"], true);
        assert_eq!(call_json(&calls[1])["speculative"], false);
    }
}
