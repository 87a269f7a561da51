//! The next request of a process to a model: the conversation, or the prompt of a summary, and the
//! media that belong to it.
//!
//! The reply limit of a request is lowered to the output tokens that the budget has left.

use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_proto::budget::Amount;
use dormouse_proto::id::FdId;
use dormouse_proto::message::{Block, Message};
use dormouse_proto::model::Request;
use dormouse_proto::tool::Answer;
use serde_json::{Map, Value};

use super::State;
use crate::table::attachment::MediaBudget;
use crate::tool::PendingSummary;
use dormouse_content::Content;
use dormouse_program::ModelChoice;

/// The parameter names by which providers limit the tokens of a reply.
const REPLY_LIMIT_NAMES: [&str; 4] = [
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "maxOutputTokens",
];

impl State {
    /// The next request to the model. Costs one pointer per message.
    #[must_use]
    pub fn request(&self) -> Request {
        Request {
            pid: self.pid,
            program: self.program.name().into(),
            model: self.model().name.as_str().into(),
            system: self.system.clone(),
            tools: self.toolbox.specs(),
            provider_tools: self.provider_tools(),
            messages: self.messages.iter().cloned().collect(),
            forked_at: self.forked_at.iter().map(|at| *at as usize).collect(),
            parameters: self.with_reply_limit(self.program.parameters()),
            media: BTreeMap::new(),
        }
    }

    /// Contents of the media that the conversation names, by descriptor. O(blocks).
    ///
    /// If the descriptor of a media block no longer exists, the map has no entry for it, and the
    /// model call fails. Dropping the block instead would change bytes that were sent before
    /// (HIST-1).
    #[must_use]
    pub fn media(&self) -> BTreeMap<FdId, Content> {
        let blocks = self.messages.iter().flat_map(|message| &message.blocks);
        let fds = blocks.filter_map(|block| match block {
            Block::Media { media, .. } => Some(&media.fd),
            _ => None,
        });
        fds.filter_map(|fd| Some((fd.clone(), self.table.get(fd)?.content.clone())))
            .collect()
    }

    /// Adds up the media of the next request: the media of the conversation, of the answers that
    /// are not yet part of the conversation, and of `answer`.
    pub(super) fn measure_shown_media(&self, answer: &Answer) -> MediaBudget {
        let in_conversation = self
            .messages
            .iter()
            .flat_map(|message| &message.blocks)
            .filter_map(|block| match block {
                Block::Media { media, .. } => Some(media),
                _ => None,
            });
        let answers = self
            .pending_calls()
            .iter()
            .filter_map(|pending_call| pending_call.answer.as_ref())
            .chain([answer]);
        let in_answers = answers.flat_map(|answer| &answer.media);
        let mut total = MediaBudget::default();
        for media in in_conversation.chain(in_answers) {
            let entry = self.table.get(&media.fd);
            let bytes = entry.map_or(0, |entry| entry.content.len_bytes());
            total = total.with(media, bytes);
        }
        total
    }

    /// Lowers the reply limit in the parameters to the output tokens that the budget has left. The
    /// limit is found under each of the names that providers use.
    ///
    /// The limit stays above the thinking budget, since providers require that thinking fits into a
    /// reply. Such a call may overshoot the process's budget.
    fn with_reply_limit(&self, parameters: Arc<Map<String, Value>>) -> Arc<Map<String, Value>> {
        let Some(left) = self.budget.remaining(Amount::OutputTokens) else {
            return parameters;
        };
        let thinking = thinking_budget(&parameters);
        let left = left.max(thinking.map_or(0, |thinking| thinking.saturating_add(1)));
        // Gemini nests the reply limit.
        let nested = parameters
            .get("generationConfig")
            .and_then(Value::as_object);
        if !exceeds_limit(&parameters, left) && !nested.is_some_and(|map| exceeds_limit(map, left))
        {
            return parameters;
        }
        let mut lowered = Map::clone(&parameters);
        lower_limit(&mut lowered, left);
        let nested = lowered
            .get_mut("generationConfig")
            .and_then(Value::as_object_mut);
        if let Some(nested) = nested {
            lower_limit(nested, left);
        }
        Arc::new(lowered)
    }

    /// The request for a summary, which is independent of the conversation: one prompt to the
    /// summary model. Only the reply limit is kept of the parameters, since the others concern
    /// conversations and tools.
    pub(super) fn summary_request(
        &self,
        summarizer: &ModelChoice,
        summary: &PendingSummary,
    ) -> Request {
        let parameters = self.with_reply_limit(self.program.parameters());
        let limits = parameters
            .iter()
            .filter(|(key, _)| REPLY_LIMIT_NAMES.contains(&key.as_str()));
        Request {
            pid: self.pid,
            program: self.program.name().into(),
            model: summarizer.name.as_str().into(),
            system: summary.system.into(),
            tools: Arc::new([]),
            provider_tools: Arc::default(),
            messages: vec![Arc::new(Message::user(summary.prompt.clone()))],
            forked_at: Vec::new(),
            parameters: Arc::new(
                limits
                    .map(|(key, value)| (key.clone(), value.clone()))
                    .collect(),
            ),
            media: BTreeMap::new(),
        }
    }

    /// The model for summaries. If the program names one that differs from its first model, it is
    /// called at the provider of that first model; otherwise the current model is used.
    pub(super) fn summarizer(&self) -> ModelChoice {
        let summary_model = self.program.summary_model();
        let first = self.program.model();
        if summary_model == first.name {
            self.model().clone()
        } else {
            ModelChoice {
                name: summary_model.into(),
                ..first.clone()
            }
        }
    }
}

/// The maximum number of tokens for thinking, under whichever name a provider uses; `None` if the
/// parameters set none.
fn thinking_budget(parameters: &Map<String, Value>) -> Option<u64> {
    let read_number = |key: &str, path: &str| parameters.get(key)?.pointer(path)?.as_u64();
    let budgets = [
        read_number("thinking", "/budget_tokens"),
        read_number("reasoning", "/max_tokens"),
        read_number("generationConfig", "/thinkingConfig/thinkingBudget"),
    ];
    budgets.into_iter().flatten().max()
}

/// Whether the parameters permit a reply of more than `left` tokens.
fn exceeds_limit(parameters: &Map<String, Value>, left: u64) -> bool {
    REPLY_LIMIT_NAMES
        .iter()
        .filter_map(|name| parameters.get(*name)?.as_u64())
        .any(|limit| limit > left)
}

/// Lowers each reply limit that exceeds `left` tokens.
fn lower_limit(parameters: &mut Map<String, Value>, left: u64) {
    for name in REPLY_LIMIT_NAMES {
        if let Some(limit) = parameters.get_mut(name)
            && limit.as_u64().is_some_and(|limit| limit > left)
        {
            *limit = left.into();
        }
    }
}
