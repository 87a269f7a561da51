//! Processes: lines of a table, and everything that is known of one.

use std::collections::BTreeMap;

use dormouse_actors::ProcessView;
use dormouse_actors::handle::ProcessInfo;
use dormouse_kernel::budget::Account;
use dormouse_proto::budget::{Amount, Paused};
use dormouse_proto::process::{Origin, Priority};
use dormouse_proto::record::{PendingCall, Speculation};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::alarm::AlarmView;
use super::usage::UsageView;

/// One process of a table, as `dormouse ps --json` prints it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessLine {
    /// The process.
    pub pid: u64,
    /// The process that made it.
    pub parent: Option<u64>,
    /// The name of its program.
    pub program: String,
    /// What it does, what it waits for, or what holds it up: `thinking`, `acting`, `idle`, `held`,
    /// and so on; of an ended process, how it ended.
    pub status: String,
    /// The number of its last fact.
    pub facts: u64,
    /// Messages of its conversation.
    pub messages: usize,
    /// Descriptors in its table.
    pub descriptors: usize,
    /// Characters that its tools returned.
    pub produced_chars: u64,
    /// The part of these characters that entered its context.
    pub entered_chars: u64,
    /// Input tokens that it used itself, cached ones included.
    pub input_tokens: u64,
    /// Output tokens that it used itself.
    pub output_tokens: u64,
    /// Input tokens that were read from the provider's cache.
    #[serde(default)]
    pub cache_read_tokens: u64,
    /// The name that others can write to it by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The first model of its program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Whether it is in memory.
    #[serde(default)]
    pub loaded: bool,
    /// The calls of tools that it waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<OpenCallView>,
    /// The calls of tools that the provider ran, by tool.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub server_tool_calls: BTreeMap<String, u32>,
    /// How often it was opened again after it had ended.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reopenings: u32,
    /// When the next of its alarms is due: milliseconds since the epoch, UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_alarm_ms: Option<u64>,
    /// The limit that it is paused at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<PausedView>,
    /// The labels of its tree. Only roots have them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// The label that it waits for, with the limit that is reached and the end of the period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for_label: Option<String>,
    /// In the currency of the price table; absent if the table has no price for its model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<String>,
    /// Why its journal cannot be read. The other fields are then as its row says, or zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// A limit that a process is paused at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PausedView {
    /// The amount: `cost`, `input_tokens`, `output_tokens`, `wall_time` and so on.
    pub amount: String,
    /// What was used of it.
    pub used: String,
    /// The limit.
    pub limit: String,
}

impl From<&Paused> for PausedView {
    fn from(paused: &Paused) -> Self {
        let Paused {
            amount,
            used,
            limit,
        } = *paused;
        Self {
            amount: amount.word().to_owned(),
            used: amount.show(used),
            limit: amount.show(limit),
        }
    }
}

/// A call of a tool without an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OpenCallView {
    /// The call, such as `0.7`.
    pub call: String,
    /// The tool, as the model calls it.
    pub tool: String,
    /// Whether it was begun.
    pub started: bool,
    /// Whether it waits for a person.
    pub held: bool,
}

impl OpenCallView {
    fn open(calls: &[PendingCall]) -> Vec<Self> {
        let open = calls.iter().filter(|call| call.answer.is_none());
        let view = |call: &PendingCall| Self {
            call: call.call.to_string(),
            tool: call.tool.to_string(),
            started: call.started,
            held: call.hold().is_some(),
        };
        open.map(view).collect()
    }
}

impl ProcessLine {
    /// The line of a process with this status. Without a view, only what its row says.
    pub(super) fn new(info: &ProcessInfo, status: &str, view: Option<&ProcessView>) -> Self {
        let row = &info.row;
        let output_totals = view.map(|view| view.output_totals).unwrap_or_default();
        let usage = view.map(|view| view.usage).unwrap_or_default();
        let server_tool_calls = view.into_iter().flat_map(|view| &view.server_tool_calls);
        Self {
            pid: row.pid.0,
            parent: row.parent.map(|pid| pid.0),
            program: row.program.to_string(),
            status: status.to_owned(),
            facts: view.map_or(0, |view| view.fact.0),
            messages: view.map_or(0, |view| view.messages),
            descriptors: view.map_or(0, |view| view.descriptors),
            produced_chars: output_totals.produced_chars,
            entered_chars: output_totals.entered_chars,
            input_tokens: usage.all_input_tokens(),
            output_tokens: usage.output_tokens,
            cache_read_tokens: usage.cache_read_tokens,
            name: row.name.as_deref().map(str::to_owned),
            model: view.map(|view| view.program.model().name.to_string()),
            loaded: info.view.as_ref().is_some_and(|view| !view.hibernated) && row.exit.is_none(),
            calls: view.map_or_else(Vec::new, |view| {
                OpenCallView::open(view.phase.pending_calls())
            }),
            server_tool_calls: server_tool_calls
                .map(|(tool, calls)| (tool.to_string(), *calls))
                .collect(),
            reopenings: row.reopenings,
            next_alarm_ms: view.and_then(|view| view.alarms.iter().map(|alarm| alarm.due_ms).min()),
            paused: view.and_then(|view| view.paused.as_ref().map(PausedView::from)),
            labels: row.labels.iter().map(ToString::to_string).collect(),
            waits_for_label: None,
            cost: (usage.cost_nanos > 0).then(|| Amount::Cost.show(usage.cost_nanos)),
            unreadable: None,
        }
    }
}

/// A part of the table of processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessPage {
    /// The processes.
    pub processes: Vec<ProcessLine>,
    /// How many processes match, on all pages.
    pub total: usize,
    /// The parameter `after` for the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Records of the store that are lost, so that processes may be missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<String>,
}

/// Everything that is known of a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessDetail {
    /// The line of the process.
    #[serde(flatten)]
    pub line: ProcessLine,
    /// How it was created: `started`, `forked`, `spawned`, `copied` or `judge`.
    pub origin: String,
    /// The process and the fact that it continues from, if it is of a branch or import:
    /// `PID@FACT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branched_from: Option<String>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_message: Option<String>,
    /// Whether its exit message is a result that it submitted: JSON text.
    #[serde(default)]
    pub is_result: bool,
    /// Whether a signal stopped it.
    pub stopped: bool,
    /// Whether it is one of several branches of which one is to be chosen.
    pub speculative: bool,
    /// Messages that wait for its next turn.
    pub waiting_messages: usize,
    /// Children whose end it has not received.
    pub children: usize,
    /// What it used itself.
    pub usage: UsageView,
    /// Its budget, which covers all processes below it, by amount. Amounts without a limit are left
    /// out unless something was used.
    pub budget: BTreeMap<String, AmountView>,
    /// Its open alarms.
    pub alarms: Vec<AlarmView>,
    /// The names of its tools, as its model sees them.
    pub tools: Vec<String>,
}

/// An amount of a budget.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AmountView {
    /// The limit; `null` if there is none.
    pub limit: Option<String>,
    /// What the process and all below it used.
    pub used: String,
    /// What is reserved for children that live.
    pub reserved: String,
    /// What is left to the process; `null` if there is no limit.
    pub remaining: Option<String>,
}

impl ProcessDetail {
    /// The detail of a process, from its line and its state.
    pub(crate) fn new(line: ProcessLine, info: &ProcessInfo, view: &ProcessView) -> Self {
        let row = &info.row;
        let exit = row.exit.as_ref();
        Self {
            line,
            origin: origin_word(&row.origin).to_owned(),
            branched_from: row
                .branched_from
                .as_ref()
                .map(|from| format!("{}@{}", from.pid, from.fact)),
            exit_message: exit.map(|exit| exit.message.to_string()),
            is_result: exit.is_some_and(|exit| exit.is_result),
            stopped: view.stopped,
            speculative: view.speculation != Speculation::None,
            waiting_messages: view.waiting_messages,
            children: view.children,
            usage: UsageView::from(view.usage),
            budget: budget(&view.budget),
            alarms: view
                .alarms
                .iter()
                .map(|alarm| AlarmView::new(row.pid, alarm))
                .collect(),
            tools: view
                .tools
                .specs()
                .iter()
                .map(|tool| tool.name.to_string())
                .collect(),
        }
    }
}

fn budget(account: &Account) -> BTreeMap<String, AmountView> {
    let amount = |amount: Amount| {
        let limit = account.limits().limit(amount);
        let used = account.used(amount);
        (limit.is_some() || used > 0).then(|| {
            let view = AmountView {
                limit: limit.map(|limit| amount.show(limit)),
                used: amount.show(used),
                reserved: amount.show(account.reserved(amount)),
                remaining: account.remaining(amount).map(|left| amount.show(left)),
            };
            (amount.word().to_owned(), view)
        })
    };
    Amount::ALL.into_iter().filter_map(amount).collect()
}

fn origin_word(origin: &Origin) -> &'static str {
    match origin {
        Origin::Started => "started",
        Origin::Forked { .. } => "forked",
        Origin::Spawned { .. } => "spawned",
        Origin::Copied { .. } => "copied",
        Origin::Judge { .. } => "judge",
    }
}

/// The priority that a word names.
pub(crate) fn priority(word: &str) -> Option<Priority> {
    match word {
        "low" => Some(Priority::Low),
        "normal" => Some(Priority::Normal),
        "high" => Some(Priority::High),
        _ => None,
    }
}
