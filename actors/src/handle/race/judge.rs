//! The judges of a race: what decides whether a candidate may win, and how good it is.
//!
//! A judge only looks. It gets a [`Candidate`] and answers within its time, or the candidate does
//! not win. A judge that fails or panics fails one candidate, never the race.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dormouse_kernel::program::{Program, ValueSchema};
use dormouse_kernel::race::Judgement;
use dormouse_proto::command::{Command, CommandLimits};
use dormouse_proto::tool::{Access, ToolPolicy};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::Value;

use super::contender::{Candidate, KillGuard};
use crate::error::KernelError;
use crate::handle::kernel::Kernel;
use crate::ports::{OutputSink, ToolError};
use crate::process::tool_call::panic_text;

/// The most bytes that a command may print about a candidate.
const MAX_OUTPUT_BYTES: u64 = 64 << 10;
/// The name of a command that judges, in messages.
const COMMAND_NAME: &str = "judge";

/// Why a judge has no answer about a candidate.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JudgeError {
    /// The judge failed. The text says why.
    #[error("the judge failed: {0}")]
    Failed(String),
    /// The command that judges did not exit with code 0.
    #[error("{0}")]
    Refused(ToolError),
    /// The schema does not accept the candidate. The text says where.
    #[error("{0}")]
    Invalid(String),
    /// The judge did not answer in time.
    #[error("the judge did not answer within {0:?}")]
    TimedOut(Duration),
    /// The judge panicked.
    #[error("the judge failed internally: {0}")]
    Panicked(String),
}

impl From<String> for JudgeError {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

impl From<KernelError> for JudgeError {
    fn from(error: KernelError) -> Self {
        Self::Failed(error.to_string())
    }
}

type JudgeFn = dyn Fn(Candidate) -> BoxFuture<'static, Result<Judgement, JudgeError>> + Send + Sync;

/// Who judges.
#[derive(Clone)]
pub(super) enum Judge {
    /// Every branch passes.
    PassesAll,
    Function(Arc<JudgeFn>),
    Command(Vec<String>),
    Schema(ValueSchema),
    Program(Program),
}

impl Judge {
    /// Checks that the judge can be asked at all, before a branch is made.
    ///
    /// # Errors
    /// Why it cannot.
    pub(super) fn check(&self, kernel: &Kernel) -> Result<(), JudgeError> {
        match self {
            Self::PassesAll | Self::Function(_) | Self::Schema(_) => Ok(()),
            Self::Command(argv) => {
                let Some(program) = argv.first() else {
                    return Err(JudgeError::Failed("its command is empty".to_owned()));
                };
                let permitted = kernel.context.host.permits_program(program);
                permitted.map_err(|error| JudgeError::Failed(error.to_string()))
            }
            Self::Program(program) => match program.result().schema {
                Some(_) => Ok(()),
                None => Err(JudgeError::Failed(format!(
                    "program {} has no [result] schema. Give it one with `pass` (boolean), and \
                     `score` (number) if it compares",
                    program.name()
                ))),
            },
        }
    }

    /// Judges a candidate.
    ///
    /// # Errors
    /// The candidate does not pass, or the judge has no answer.
    pub(super) async fn judge(
        &self,
        kernel: &Kernel,
        candidate: Candidate,
        limit: Duration,
    ) -> Result<Judgement, JudgeError> {
        let judging = AssertUnwindSafe(self.ask(kernel, candidate)).catch_unwind();
        match tokio::time::timeout(limit, judging).await {
            Ok(Ok(judgement)) => judgement,
            Ok(Err(panic)) => Err(JudgeError::Panicked(panic_text(&*panic))),
            Err(_) => Err(JudgeError::TimedOut(limit)),
        }
    }

    async fn ask(&self, kernel: &Kernel, candidate: Candidate) -> Result<Judgement, JudgeError> {
        match self {
            Self::PassesAll => Ok(Judgement::PASS),
            Self::Function(function) => function(candidate).await,
            Self::Command(argv) => ask_command(kernel, argv, &candidate).await,
            Self::Schema(schema) => check_schema(schema, &candidate),
            Self::Program(program) => ask_program(kernel, program, &candidate).await,
        }
    }
}

/// Runs a command with the candidate as its input. Exit code 0 passes, and a number that it prints
/// is the score.
async fn ask_command(
    kernel: &Kernel,
    argv: &[String],
    candidate: &Candidate,
) -> Result<Judgement, JudgeError> {
    let command = Command {
        name: COMMAND_NAME.to_owned(),
        description: String::new(),
        argv: argv.to_vec(),
        parameters: Vec::new(),
        env: Vec::new(),
        policy: ToolPolicy {
            access: Access::Write,
            output_cap_bytes: MAX_OUTPUT_BYTES,
            ..ToolPolicy::default()
        },
        limits: CommandLimits::default(),
    };
    let out = OutputSink::with_cap(MAX_OUTPUT_BYTES);
    let input = Bytes::from(candidate.json().to_string());
    let running = kernel
        .context
        .host
        .run_with_input(&command, input, out.clone());
    running.await.map_err(JudgeError::Refused)?;
    let output = out.take().bytes;
    let printed = String::from_utf8_lossy(&output);
    let score = printed.split_whitespace().next_back();
    let score = score.and_then(|score| score.parse().ok());
    Ok(score.map_or(Judgement::PASS, Judgement::score))
}

/// Checks the result of a candidate, or the arguments of each call that it is about to make.
fn check_schema(schema: &ValueSchema, candidate: &Candidate) -> Result<Judgement, JudgeError> {
    for text in candidate.judged_texts() {
        let Some(value) = json_of(text) else {
            return Err(JudgeError::Invalid(format!("it is not JSON: {text:.80}")));
        };
        if let Err(violations) = schema.check(&value) {
            let violations: Vec<_> = violations.iter().map(ToString::to_string).collect();
            return Err(JudgeError::Invalid(violations.join("; ")));
        }
    }
    Ok(Judgement::PASS)
}

/// Runs a program with the candidate as its input. Its process is ended with the judging.
async fn ask_program(
    kernel: &Kernel,
    program: &Program,
    candidate: &Candidate,
) -> Result<Judgement, JudgeError> {
    let start = kernel.start(program.clone());
    let start = start.input(candidate.json().to_string());
    // In a task of its own: the process gets its guard also if the judging is given up while it
    // starts.
    let starting = async move {
        let process = start.await?;
        let guard = KillGuard::new(&process.kernel, process.pid());
        Ok::<_, KernelError>((process, guard))
    };
    let started = tokio::spawn(starting).await.map_err(KernelError::from)?;
    let (process, mut guard) = started?;
    let exit = process.wait().await?;
    guard.release();
    Judgement::of_exit(&exit).map_err(JudgeError::Failed)
}

impl fmt::Debug for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PassesAll => "PassesAll",
            Self::Function(_) => "Function",
            Self::Command(_) => "Command",
            Self::Schema(_) => "Schema",
            Self::Program(_) => "Program",
        })
    }
}

/// The value that a text is, if it is JSON.
pub(super) fn json_of(text: &str) -> Option<Value> {
    serde_json::from_str(text.trim()).ok()
}

#[cfg(test)]
mod tests {
    use dormouse_proto::id::{CallId, Pid, ProcessCallId};
    use dormouse_proto::model::Usage;
    use dormouse_proto::record::HoldReason;
    use serde_json::json;

    use super::*;
    use crate::held_call::HeldCall;

    #[test]
    fn a_text_that_is_not_json_is_the_one_that_is_quoted() {
        let (pid, call) = (Pid(2), CallId { epoch: 1, seq: 3 });
        let call = HeldCall {
            id: ProcessCallId { pid, call },
            tool: "append".into(),
            args: "{line: 1}".into(),
            reason: HoldReason::Speculation,
            question: None,
            since_ms: 0,
            expires_ms: None,
        };
        let mut candidate = Candidate {
            pid,
            branch: 1,
            level: 1,
            end: None,
            message: "I append it.".into(),
            calls: vec![call],
            usage: Usage::default(),
        };
        let schema = ValueSchema::parse(json!({ "type": "object" })).unwrap();
        let quoted =
            |candidate: &Candidate| check_schema(&schema, candidate).unwrap_err().to_string();
        assert_eq!(quoted(&candidate), "it is not JSON: {line: 1}");
        candidate.calls.clear();
        assert_eq!(quoted(&candidate), "it is not JSON: I append it.");
    }
}
