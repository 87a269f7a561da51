//! `POST /processes`: starts a program.

use std::collections::BTreeMap;

use aide::axum::ApiRouter;
use aide::axum::routing::post_with;
use axum::Json as JsonAnswer;
use axum::extract::State;
use bytes::Bytes;
use dormouse_kernel::program::{Compiled, ProgramErrors};
use schemars::JsonSchema;
use serde::Deserialize;

use super::act::{BudgetBody, InputBody, Made};
use crate::api::ControlApi;
use crate::error::ApiError;
use crate::extract::Json;
use crate::view;

/// The most errors of a program that one answer names.
const MAX_FINDINGS: usize = 20;

/// The routes of this file.
pub(super) fn routes() -> ApiRouter<ControlApi> {
    ApiRouter::new().api_route(
        "/processes",
        post_with(start, |operation| {
            operation
                .id("startProcess")
                .summary("Start a program")
                .description("What the program may reach is what the kernel was permitted.")
        }),
    )
}

/// A program and how it is started.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct StartBody {
    /// The program file: its path on the machine of the kernel, or its name among `files`.
    program: String,
    /// The text of the program file, and of all files that it names, by name. The kernel then reads
    /// no file for them.
    files: Option<BTreeMap<String, String>>,
    /// The first input; by default the program's own `user` prompt.
    input: Option<InputBody>,
    /// Whether the process waits for further input after each turn.
    #[serde(default)]
    session: bool,
    /// The name by which other processes can write to it.
    name: Option<String>,
    /// Labels of the tree, such as `user=anna`, by key.
    #[serde(default)]
    labels: BTreeMap<String, String>,
    /// `low`, `normal` (by default) or `high`.
    priority: Option<String>,
    /// Limits, in place of those of the program.
    budget: Option<BudgetBody>,
}

async fn start(
    State(api): State<ControlApi>,
    Json(body): Json<StartBody>,
) -> Result<JsonAnswer<Made>, ApiError> {
    let program = compile(&api, &body).await?.program;
    let mut start = api.kernel().start(program.clone());
    let input = match body.input {
        Some(input) => input.user_input()?,
        None => None,
    };
    match input {
        Some(input) if input.is_blank() => {
            return Err(ApiError::invalid(
                "the input is empty: give it a text that says something",
            ));
        }
        Some(input) => start = start.input(input),
        None if program.user().is_none() && !body.session => {
            return Err(ApiError::invalid(format!(
                "program {} has no user prompt: give it an `input`, or start a `session`",
                program.name()
            )));
        }
        None => {}
    }
    if body.session {
        start = start.session();
    }
    if let Some(name) = body.name {
        start = start.name(name);
    }
    for (key, value) in body.labels {
        start = start.label(key, value);
    }
    if let Some(word) = &body.priority {
        let priority = view::priority(word).ok_or_else(|| {
            ApiError::invalid(format!(
                "priority is '{word}': valid are low, normal and high"
            ))
        })?;
        start = start.priority(priority);
    }
    if let Some(budget) = &body.budget {
        start = start.budget(budget.budget()?);
    }
    let process = start.await?;
    Ok(JsonAnswer(Made {
        pid: process.pid().0,
    }))
}

/// Compiles the program on a thread where blocking is allowed.
async fn compile(api: &ControlApi, body: &StartBody) -> Result<Compiled, ApiError> {
    let kernel = api.kernel().clone();
    let entry = body.program.clone();
    let files = body.files.clone();
    let compiling = tokio::task::spawn_blocking(move || match files {
        None => kernel.load(&entry),
        Some(files) => {
            let files = files.into_iter();
            let files = files.map(|(name, text)| (name, Bytes::from(text)));
            kernel.compile(&entry, &files.collect())
        }
    });
    let compiled = compiling
        .await
        .map_err(dormouse_actors::KernelError::from)?;
    compiled.map_err(|errors: ProgramErrors| {
        let findings = errors.errors().iter().take(MAX_FINDINGS);
        let findings: Vec<_> = findings.map(ToString::to_string).collect();
        ApiError::invalid(format!(
            "the program does not compile: {}",
            findings.join("; ")
        ))
    })
}
