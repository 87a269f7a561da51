//! The results of a run: the exit code, and what is printed.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use dormouse::id::Pid;
use dormouse::process::ExitStatus;
use dormouse::schedule::format_time;
use serde_json::{Value, json};

use super::outcome::RootOutcome;
use crate::approval::{call_json, print_how_to_answer};
use crate::failure::{Failure, exit_code};
use crate::label::{label_json, print_how_to_go_on};
use crate::process_table::{ProcessLine, paused_json, total_chars};
use crate::raise::print_how_to_raise;
use crate::resume::then_resume;
use crate::sleepers::Sleepers;
use crate::terminal::{self, print_stderr};

/// A held root makes the code 3. Otherwise the first root that ended without finishing its task
/// determines the code. If there is none, a root whose calls wait for a person makes it 4, or else
/// sleeping roots, and those that a label holds up, make it 5.
pub(super) fn code_of_results(results: &[(Pid, RootOutcome)], sleepers: &Sleepers) -> ExitCode {
    let is_at_label =
        |(_, outcome): &(Pid, RootOutcome)| matches!(outcome, RootOutcome::AtLabel(_));
    let mut code = if sleepers.count == 0 && !results.iter().any(is_at_label) {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(5)
    };
    let mut has_failed = false;
    for (_, outcome) in results {
        match outcome {
            RootOutcome::Held(_) => return ExitCode::from(3),
            RootOutcome::Asking(_) if !has_failed => code = ExitCode::from(4),
            RootOutcome::Ended(exit) if exit.status != ExitStatus::Done && !has_failed => {
                code = exit_code(exit.status);
                has_failed = true;
            }
            RootOutcome::Ended(_)
            | RootOutcome::Idle
            | RootOutcome::Asleep(_)
            | RootOutcome::Stopped
            | RootOutcome::AtLabel(_)
            | RootOutcome::Asking(_) => {}
        }
    }
    code
}

pub(super) fn print_json(
    results: &[(Pid, RootOutcome)],
    lines: &[ProcessLine],
) -> Result<(), Failure> {
    let (produced, entered) = total_chars(lines);
    let mut out = terminal::stdout();
    for (pid, outcome) in results {
        let (status, message) = match outcome {
            RootOutcome::Ended(exit) => (exit.status.word(), &*exit.message),
            RootOutcome::Idle => ("idle", "it waits for input"),
            RootOutcome::Asleep(_) => ("asleep", "it waits for its next alarm"),
            RootOutcome::Stopped => ("stopped", "it is stopped"),
            RootOutcome::Asking(waiting) => {
                for (pid, paused) in &waiting.paused {
                    let paused = json!({
                        "event": "paused", "pid": pid.0, "paused": paused_json(paused),
                    });
                    writeln!(out, "{}", terminal::escaped_json(&paused))?;
                }
                for call in &waiting.calls {
                    let mut pending = call_json(call);
                    pending["event"] = "pending".into();
                    writeln!(out, "{}", terminal::escaped_json(&pending))?;
                }
                match waiting.calls.is_empty() && !waiting.paused.is_empty() {
                    true => ("paused", "it is paused at a limit"),
                    false => ("asking", "its calls wait for a person"),
                }
            }
            RootOutcome::AtLabel(label) => {
                let mut event = label_json(label);
                event["event"] = "at_label".into();
                writeln!(out, "{}", terminal::escaped_json(&event))?;
                ("suspended", "a label of its tree has used up its budget")
            }
            RootOutcome::Held(reason) => ("held", reason.as_str()),
        };
        let mut result =
            json!({ "event": "result", "pid": pid.0, "status": status, "message": message });
        if let RootOutcome::Ended(exit) = outcome
            && let Ok(value) = exit.result_as::<Value>()
        {
            result["value"] = value;
        }
        writeln!(out, "{}", terminal::escaped_json(&result))?;
    }
    let tree = json!({
        "event": "tree", "processes": lines, "tool_chars": produced, "context_chars": entered,
    });
    Ok(writeln!(out, "{}", terminal::escaped_json(&tree))?)
}

/// Only the answers of finished roots go to standard output; the rest is about them and goes to
/// standard error.
pub(super) fn print_text(
    results: &[(Pid, RootOutcome)],
    lines: &[ProcessLine],
    store: Option<&Path>,
) -> Result<(), Failure> {
    print_stderr(&format!("\n{}", ProcessLine::header()));
    for line in lines {
        print_stderr(&line.to_string());
    }
    let (produced, entered) = total_chars(lines);
    print_stderr(&format!(
        "\ntools returned {produced} characters, {entered} entered a context\n"
    ));
    for (pid, outcome) in results {
        match outcome {
            RootOutcome::Ended(exit) if exit.status == ExitStatus::Done => {
                writeln!(terminal::stdout(), "{}", exit.message)?;
            }
            RootOutcome::Ended(exit) => {
                let status = exit.status.word();
                print_stderr(&format!(
                    "process {pid} ended as {status}: {}",
                    exit.message
                ));
                if let (ExitStatus::BudgetExhausted, Some(store)) = (exit.status, store) {
                    let then = then_resume(store).unwrap_or_default();
                    print_stderr(&format!(
                        "Let it go on: dormouse raise {pid} --store {} with what its limit is \
                         raised by, such as --output-tokens 10000. {then}",
                        store.display()
                    ));
                }
            }
            RootOutcome::Idle => print_stderr(&format!("process {pid} waits for input")),
            RootOutcome::Asleep(next_alarm_ms) => print_stderr(&format!(
                "process {pid} is asleep until {}",
                format_time(*next_alarm_ms)
            )),
            RootOutcome::Stopped => print_stderr(&format!("process {pid} is stopped")),
            RootOutcome::Asking(waiting) => {
                for (pid, paused) in &waiting.paused {
                    print_how_to_raise(*pid, paused, store);
                }
                if !waiting.calls.is_empty() {
                    print_how_to_answer(&waiting.calls, store);
                }
            }
            RootOutcome::AtLabel(label) => print_how_to_go_on(label, store),
            RootOutcome::Held(reason) => {
                let hint = match store {
                    Some(store) => format!(": dormouse resume --store {}", store.display()),
                    None => String::new(),
                };
                print_stderr(&format!(
                    "process {pid} is held: {reason}. It has not ended, and continues when it is \
                     resumed{hint}"
                ));
            }
        }
    }
    Ok(())
}
