//! Speaking with processes, and controlling them.
//!
//! An answer says that what was asked for is durable.

use aide::axum::ApiRouter;
use aide::axum::routing::{delete_with, post_with, put_with};
use axum::Json as JsonAnswer;
use axum::extract::State;
use base64::Engine as _;
use dormouse_actors::handle::Process;
use dormouse_kernel::process::Verdict;
use dormouse_kernel::program::{parse_bytes, parse_duration_ms, parse_money};
use dormouse_proto::budget::Budget;
use dormouse_proto::label::{Label, LabelBudget};
use dormouse_proto::user_input::{InputPart, USER_INPUT, UserInput};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::at::{CallPath, CheckpointPath, ProcessPath, checkpoint, position};
use crate::api::ControlApi;
use crate::error::ApiError;
use crate::extract::{Json, Path};
use crate::view::{CheckpointView, PausedView};

/// The routes that need the scope to speak.
pub(super) fn speaking_routes() -> ApiRouter<ControlApi> {
    ApiRouter::new()
        .api_route(
            "/processes/{pid}/input",
            post_with(input, |operation| {
                operation
                    .id("sendInput")
                    .summary("Send an input to a process")
                    .description(
                        "A process in a turn gets it at the end of the turn, a hibernated one wakes.",
                    )
            }),
        )
        .api_route(
            "/processes/{pid}/calls/{call}/answer",
            post_with(answer, |operation| {
                operation.id("answerQuestion").summary("Answer a question of a model")
            }),
        )
        .api_route(
            "/server-questions/{question}",
            post_with(answer_server, |operation| {
                operation
                    .id("answerServerQuestion")
                    .summary("Answer or decline a question of a tool server")
            }),
        )
}

/// The routes that need the scope to control.
pub(super) fn control_routes() -> ApiRouter<ControlApi> {
    ApiRouter::new()
        .api_route(
            "/processes/{pid}/calls/{call}/verdict",
            post_with(verdict, |operation| {
                operation.id("decideCall").summary("Approve or refuse a held call").description(
                    "The verdict on a process that was not loaded since the kernel was opened is \
                     recorded, and takes effect when the process is resumed.",
                )
            }),
        )
        .api_route(
            "/processes/{pid}/signal",
            post_with(signal, |operation| {
                operation
                    .id("signal")
                    .summary("Interrupt, stop, continue or kill a process or its tree")
            }),
        )
        .api_route(
            "/processes/{pid}/raise",
            post_with(raise, |operation| {
                operation.id("raise").summary("Raise limits of a process")
            }),
        )
        .api_route(
            "/processes/{pid}/hibernate",
            post_with(hibernate, |operation| {
                operation
                    .id("hibernate")
                    .summary("Take a process out of memory")
            }),
        )
        .api_route(
            "/processes/{pid}/wake",
            post_with(wake, |operation| {
                operation
                    .id("wake")
                    .summary("Load a process that is not in memory, and run it")
            }),
        )
        .api_route(
            "/processes/{pid}/goto",
            post_with(goto, |operation| {
                operation
                    .id("goto")
                    .summary("Return a process to an earlier message of its conversation")
            }),
        )
        .api_route(
            "/processes/{pid}/choose",
            post_with(choose, |operation| {
                operation
                    .id("choose")
                    .summary("Choose a speculative branch")
            }),
        )
        .api_route(
            "/processes/{pid}/checkpoint",
            post_with(make_checkpoint, |operation| {
                operation
                    .id("makeCheckpoint")
                    .summary("Make a checkpoint of a process or its tree")
            }),
        )
        .api_route(
            "/processes/{pid}/restore",
            post_with(restore, |operation| {
                operation
                    .id("restore")
                    .summary("Return a process to a checkpoint, in place")
            }),
        )
        .api_route(
            "/processes/{pid}/branch",
            post_with(branch, |operation| {
                operation
                    .id("branch")
                    .summary("Make new processes that continue from a position of these")
            }),
        )
        .api_route(
            "/checkpoints/{checkpoint}",
            delete_with(drop_checkpoint, |operation| {
                operation
                    .id("dropCheckpoint")
                    .summary("Delete a checkpoint")
            }),
        )
        .api_route(
            "/labels/{label}",
            put_with(set_label, |operation| {
                operation
                    .id("setLabelBudget")
                    .summary("Set the budget of a label")
            })
            .delete_with(remove_label, |operation| {
                operation
                    .id("removeLabelBudget")
                    .summary("Remove the budget of a label")
            }),
        )
}

/// What was asked for is done, and durable.
#[derive(Debug, Serialize, JsonSchema)]
struct Done {
    /// The process that it was done to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u64>,
    /// Always true: what is not done is answered by an error.
    done: bool,
}

impl Done {
    fn to(pid: u64) -> JsonAnswer<Self> {
        JsonAnswer(Self {
            pid: Some(pid),
            done: true,
        })
    }

    fn nothing_more() -> JsonAnswer<Self> {
        JsonAnswer(Self {
            pid: None,
            done: true,
        })
    }
}

/// A process that was made.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Made {
    /// The process.
    pub(super) pid: u64,
}

/// A body of which every field may be left out.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct InputBody {
    /// A text that a person typed.
    pub(super) text: Option<String>,
    /// Further parts, such as files. Each large part becomes a descriptor.
    #[serde(default)]
    pub(super) parts: Vec<PartBody>,
}

/// A part of an input.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PartBody {
    /// Where it comes from, such as `file:build.log`.
    source: String,
    /// Its text.
    text: Option<String>,
    /// Its bytes, in place of a text.
    base64: Option<String>,
}

impl InputBody {
    /// The input; `None` if there are no parts.
    pub(super) fn user_input(self) -> Result<Option<UserInput>, ApiError> {
        let mut parts: Vec<_> = self.text.into_iter().map(InputPart::text).collect();
        for part in self.parts {
            let bytes = match (part.text, part.base64) {
                (Some(text), None) => text.into_bytes(),
                (None, Some(encoded)) => base64::engine::general_purpose::STANDARD
                    .decode(encoded)
                    .map_err(|error| {
                        ApiError::invalid(format!("part '{}' is not base64: {error}", part.source))
                    })?,
                _ => {
                    return Err(ApiError::invalid(format!(
                        "part '{}' needs either a `text` or `base64`",
                        part.source
                    )));
                }
            };
            parts.push(InputPart::new(part.source, bytes));
        }
        if let [only_part] = &mut parts[..] {
            only_part.source = USER_INPUT.into();
        }
        Ok((!parts.is_empty()).then_some(UserInput { parts }))
    }
}

async fn process(api: &ControlApi, path: &ProcessPath) -> Result<Process, ApiError> {
    Ok(api.kernel().process(path.pid()).await?)
}

async fn input(
    State(api): State<ControlApi>,
    Path(path): Path<ProcessPath>,
    Json(body): Json<InputBody>,
) -> Result<JsonAnswer<Done>, ApiError> {
    let user_input = body.user_input()?;
    let user_input = user_input
        .ok_or_else(|| ApiError::invalid("the input is empty: give it a `text` or `parts`"))?;
    process(&api, &path).await?.input(user_input).await?;
    Ok(Done::to(path.pid))
}

/// The answer to a question.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AnswerBody {
    /// A value that the choices or the schema of the question accept.
    value: Value,
}

async fn answer(
    State(api): State<ControlApi>,
    Path(path): Path<CallPath>,
    Json(AnswerBody { value }): Json<AnswerBody>,
) -> Result<JsonAnswer<Done>, ApiError> {
    let verdict = Verdict::Answer { value };
    api.kernel().record_verdict(path.id()?, verdict).await?;
    Ok(Done::to(path.pid))
}

/// The question in a path.
#[derive(Debug, Deserialize, JsonSchema)]
struct QuestionPath {
    /// The number of the question.
    question: u64,
}

/// The answer to a question of a tool server.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ServerAnswerBody {
    /// A value that the schema of the question accepts; `null` for one that asks for a visit.
    value: Option<Value>,
    /// Whether the question is declined, in place of a value.
    #[serde(default)]
    decline: bool,
}

async fn answer_server(
    State(api): State<ControlApi>,
    Path(path): Path<QuestionPath>,
    Json(body): Json<ServerAnswerBody>,
) -> Result<JsonAnswer<Done>, ApiError> {
    match (body.decline, body.value) {
        (true, Some(_)) => return Err(ApiError::invalid("give a `value` or `decline`, not both")),
        (true, None) => api.kernel().decline_server(path.question)?,
        (false, value) => {
            let value = value.unwrap_or(Value::Null);
            api.kernel().answer_server(path.question, value)?;
        }
    }
    Ok(Done::nothing_more())
}

/// What a person decides about a held call.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "verdict", rename_all = "snake_case", deny_unknown_fields)]
enum VerdictBody {
    /// The call runs.
    Approve {
        /// The arguments, in place of those of the model: a JSON object.
        args: Option<Value>,
    },
    /// The call does not run, and the model reads why.
    Refuse {
        /// Why.
        #[serde(default)]
        why: String,
    },
    /// The call, which repeats one that ran before, gets the recorded answer.
    Recall {},
}

async fn verdict(
    State(api): State<ControlApi>,
    Path(path): Path<CallPath>,
    Json(body): Json<VerdictBody>,
) -> Result<JsonAnswer<Done>, ApiError> {
    let verdict = match body {
        VerdictBody::Approve { args } => Verdict::Approve {
            args: args.map(|args| args.to_string()),
        },
        VerdictBody::Refuse { why } => Verdict::Refuse { why },
        VerdictBody::Recall {} => Verdict::Recall,
    };
    api.kernel().record_verdict(path.id()?, verdict).await?;
    Ok(Done::to(path.pid))
}

/// A signal.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum SignalWord {
    /// The turn ends; calls in flight are abandoned.
    Interrupt,
    /// Nothing further begins.
    Stop,
    /// What was stopped goes on.
    Continue,
    /// It ends.
    Kill,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SignalBody {
    /// The signal.
    signal: SignalWord,
    /// Whether it is sent to the processes below as well.
    #[serde(default)]
    tree: bool,
}

async fn signal(
    State(api): State<ControlApi>,
    Path(path): Path<ProcessPath>,
    Json(body): Json<SignalBody>,
) -> Result<JsonAnswer<Done>, ApiError> {
    let process = process(&api, &path).await?;
    let tree = process.tree();
    match (body.signal, body.tree) {
        (SignalWord::Interrupt, false) => process.interrupt().await?,
        (SignalWord::Interrupt, true) => tree.interrupt().await?,
        (SignalWord::Stop, false) => process.stop().await?,
        (SignalWord::Stop, true) => tree.stop().await?,
        (SignalWord::Continue, false) => process.cont().await?,
        (SignalWord::Continue, true) => tree.cont().await?,
        (SignalWord::Kill, false) => process.kill().await?,
        (SignalWord::Kill, true) => tree.kill().await?,
    }
    Ok(Done::to(path.pid))
}

/// Amounts, as in the table `[budget]` of a program.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BudgetBody {
    /// Money, in the currency of the price table, such as `"1.50"`.
    cost: Option<String>,
    /// Input tokens.
    input_tokens: Option<u64>,
    /// Output tokens.
    output_tokens: Option<u64>,
    /// The time to run, such as `"90s"` or `"10m"`.
    wall_time: Option<String>,
    /// Processes that live at the same time.
    processes: Option<u64>,
    /// Levels of processes below.
    depth: Option<u64>,
    /// The size of the contents, such as `"10mb"`.
    resident_bytes: Option<String>,
}

impl BudgetBody {
    pub(super) fn budget(&self) -> Result<Budget, ApiError> {
        let invalid = |key: &str, error: String| ApiError::invalid(format!("{key}: {error}"));
        let cost = self.cost.as_deref().map(parse_money).transpose();
        let wall_time = self.wall_time.as_deref().map(parse_duration_ms).transpose();
        let bytes = self.resident_bytes.as_deref().map(parse_bytes).transpose();
        Ok(Budget {
            cost_nanos: cost.map_err(|error| invalid("cost", error.to_string()))?,
            wall_time_ms: wall_time.map_err(|error| invalid("wall_time", error.to_string()))?,
            resident_bytes: bytes.map_err(|error| invalid("resident_bytes", error.to_string()))?,
            input_tokens: self.input_tokens,
            output_tokens: self.output_tokens,
            processes: self.processes,
            depth: self.depth,
        })
    }
}

/// What came of a raise.
#[derive(Debug, Serialize, JsonSchema)]
struct Raised {
    /// The process.
    pid: u64,
    /// The limit that it is still paused at.
    paused: Option<PausedView>,
}

async fn raise(
    State(api): State<ControlApi>,
    Path(path): Path<ProcessPath>,
    Json(body): Json<BudgetBody>,
) -> Result<JsonAnswer<Raised>, ApiError> {
    let by = body.budget()?;
    if by == Budget::default() {
        return Err(ApiError::invalid(
            "name at least one amount, such as \"cost\": \"1.50\"",
        ));
    }
    let paused = process(&api, &path).await?.raise(by).await?;
    Ok(JsonAnswer(Raised {
        pid: path.pid,
        paused: paused.as_ref().map(PausedView::from),
    }))
}

async fn hibernate(
    State(api): State<ControlApi>,
    Path(path): Path<ProcessPath>,
) -> Result<JsonAnswer<Done>, ApiError> {
    process(&api, &path).await?.hibernate().await?;
    Ok(Done::to(path.pid))
}

async fn wake(
    State(api): State<ControlApi>,
    Path(path): Path<ProcessPath>,
) -> Result<JsonAnswer<Done>, ApiError> {
    api.kernel().resume(path.pid()).await?;
    Ok(Done::to(path.pid))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GotoBody {
    /// The message that becomes the last one, such as `msg:3`.
    position: String,
    /// The message that follows it.
    message: String,
}

/// What the process answered.
#[derive(Debug, Serialize, JsonSchema)]
struct AnswerView {
    /// The process.
    pid: u64,
    /// The text that its model reads.
    text: String,
}

async fn goto(
    State(api): State<ControlApi>,
    Path(path): Path<ProcessPath>,
    Json(body): Json<GotoBody>,
) -> Result<JsonAnswer<AnswerView>, ApiError> {
    let process = process(&api, &path).await?;
    let answer = process.goto(body.position, body.message).await?;
    answer_view(path.pid, &answer)
}

fn answer_view(
    pid: u64,
    answer: &dormouse_proto::tool::Answer,
) -> Result<JsonAnswer<AnswerView>, ApiError> {
    match answer.is_error {
        true => Err(ApiError::invalid(answer.text.to_string())),
        false => Ok(JsonAnswer(AnswerView {
            pid,
            text: answer.text.to_string(),
        })),
    }
}

async fn choose(
    State(api): State<ControlApi>,
    Path(path): Path<ProcessPath>,
) -> Result<JsonAnswer<Done>, ApiError> {
    process(&api, &path).await?.choose().await?;
    Ok(Done::to(path.pid))
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CheckpointBody {
    /// A label; may be empty.
    #[serde(default)]
    label: String,
    /// Whether it covers the processes below as well.
    #[serde(default)]
    tree: bool,
}

async fn make_checkpoint(
    State(api): State<ControlApi>,
    Path(path): Path<ProcessPath>,
    Json(body): Json<CheckpointBody>,
) -> Result<JsonAnswer<CheckpointView>, ApiError> {
    let process = process(&api, &path).await?;
    let checkpoint = match body.tree {
        true => process.tree().checkpoint(body.label).await?,
        false => process.checkpoint(body.label).await?,
    };
    Ok(JsonAnswer(CheckpointView::from(&checkpoint)))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RestoreBody {
    /// The checkpoint, such as `cp:3`.
    checkpoint: String,
}

async fn restore(
    State(api): State<ControlApi>,
    Path(path): Path<ProcessPath>,
    Json(body): Json<RestoreBody>,
) -> Result<JsonAnswer<AnswerView>, ApiError> {
    let id = checkpoint(&body.checkpoint)?;
    let answer = process(&api, &path).await?.restore(id).await?;
    answer_view(path.pid, &answer)
}

/// Where a branch begins, and how.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BranchBody {
    /// The position: the number of a fact, or a checkpoint such as `cp:3`. Without it, the present.
    at: Option<String>,
    /// Whether the new processes are stopped.
    #[serde(default)]
    stopped: bool,
    /// Whether they are speculative: they act outside of themselves only once they are chosen.
    #[serde(default)]
    speculative: bool,
    /// What happens to calls that repeat an effect beyond the position: `recorded`, `ask`, `run` or
    /// `refuse`.
    effects: Option<String>,
    /// What the process and those below it may use from the position on.
    budget: Option<BudgetBody>,
}

async fn branch(
    State(api): State<ControlApi>,
    Path(path): Path<ProcessPath>,
    Json(body): Json<BranchBody>,
) -> Result<JsonAnswer<Made>, ApiError> {
    let at = body.at.as_deref().map(position).transpose()?;
    let at = at.unwrap_or(dormouse_actors::handle::Position::Now);
    let mut branch = api.kernel().branch(path.pid(), at);
    if body.stopped {
        branch = branch.stopped();
    }
    if body.speculative {
        branch = branch.speculative();
    }
    if let Some(policy) = &body.effects {
        let policy = policy.parse().map_err(|_| {
            ApiError::invalid(format!(
                "effects is '{policy}': valid are recorded, ask, run and refuse"
            ))
        })?;
        branch = branch.effects(policy);
    }
    if let Some(budget) = &body.budget {
        branch = branch.budget(budget.budget()?);
    }
    let made = branch.await?;
    Ok(JsonAnswer(Made { pid: made.pid().0 }))
}

async fn drop_checkpoint(
    State(api): State<ControlApi>,
    Path(path): Path<CheckpointPath>,
) -> Result<JsonAnswer<Done>, ApiError> {
    api.kernel().drop_checkpoint(path.id()?).await?;
    Ok(Done::nothing_more())
}

/// The label in a path.
#[derive(Debug, Deserialize, JsonSchema)]
struct LabelPath {
    /// The label, such as `user=anna`.
    label: String,
}

impl LabelPath {
    fn label(&self) -> Result<Label, ApiError> {
        self.label
            .parse()
            .map_err(|error: dormouse_proto::label::LabelError| {
                ApiError::invalid(error.to_string())
            })
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LabelBody {
    /// How long the budget lasts: `day` or `month`.
    per: String,
    /// The time zone in which a period begins, by its IANA name; UTC by default.
    zone: Option<String>,
    /// Money, in the currency of the price table, such as `"1.50"`.
    cost: Option<String>,
    /// Input tokens.
    input_tokens: Option<u64>,
    /// Output tokens.
    output_tokens: Option<u64>,
}

async fn set_label(
    State(api): State<ControlApi>,
    Path(path): Path<LabelPath>,
    Json(body): Json<LabelBody>,
) -> Result<JsonAnswer<Done>, ApiError> {
    let limits = BudgetBody {
        cost: body.cost,
        input_tokens: body.input_tokens,
        output_tokens: body.output_tokens,
        ..BudgetBody::default()
    };
    let per = body.per.parse().map_err(|_| {
        ApiError::invalid(format!("per is '{}': valid are day and month", body.per))
    })?;
    let budget = LabelBudget {
        per,
        zone: body.zone.unwrap_or_else(|| "UTC".to_owned()).into(),
        limits: limits.budget()?,
    };
    api.kernel().set_label_budget(path.label()?, budget).await?;
    Ok(Done::nothing_more())
}

async fn remove_label(
    State(api): State<ControlApi>,
    Path(path): Path<LabelPath>,
) -> Result<JsonAnswer<Done>, ApiError> {
    let label = path.label()?;
    if api
        .kernel()
        .labels()
        .iter()
        .all(|status| status.label != label)
    {
        return Err(ApiError::not_found(format!(
            "the label {label} has no budget: GET /v1/labels lists those that have one"
        )));
    }
    api.kernel().remove_label_budget(label).await?;
    Ok(Done::nothing_more())
}
