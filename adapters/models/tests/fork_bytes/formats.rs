//! How a script is spoken in each format: with thinking, signed, in front of every reply.

use serde_json::{Value, json};

/// What a model says or asks for.
pub(crate) enum Part {
    Say(&'static str),
    Use(&'static str, Value),
}

#[derive(Clone, Copy)]
pub(crate) struct Format {
    /// The word for it in a program.
    pub(crate) word: &'static str,
    /// The field of the messages.
    pub(crate) messages: &'static str,
    /// What stands behind the messages.
    pub(crate) tail: &'static str,
    /// Whether a message came from the model, or is a part of what did.
    is_reply: fn(&Value) -> bool,
    /// A reply, with its number.
    pub(crate) reply: fn(usize, &[Part]) -> Value,
    /// What only a call, and what only its answer has.
    pub(crate) call_and_answer: (&'static str, &'static str),
    /// The error for a conversation that is too long, in the words of the provider.
    pub(crate) too_long: fn() -> Value,
}

impl Format {
    /// How many replies a request holds.
    pub(crate) fn replies(&self, body: &Value) -> usize {
        body[self.messages]
            .as_array()
            .unwrap()
            .iter()
            .filter(|message| (self.is_reply)(message))
            .count()
    }
}

/// `signed0`, `signed1`, … in base64.
fn signature(reply: usize) -> String {
    format!(
        "c2lnbmVk{}",
        ["MA", "MQ", "Mg", "Mw", "NA", "NQ", "Ng", "Nw"][reply]
    )
}

pub(crate) const ANTHROPIC: Format = Format {
    word: "anthropic",
    messages: "messages",
    tail: "],\"max_tokens\":4096}",
    is_reply: |message| message["role"] == "assistant",
    reply: |reply, parts| {
        let thinking = json!({"type": "thinking", "thinking": "hm", "signature": signature(reply)});
        let part = |(n, part): (usize, &Part)| match part {
            Part::Say(text) => json!({"type": "text", "text": text}),
            Part::Use(name, input) => {
                json!({"type": "tool_use", "id": format!("t{reply}_{n}"), "name": name, "input": input})
            }
        };
        let content: Vec<_> = std::iter::once(thinking)
            .chain(parts.iter().enumerate().map(part))
            .collect();
        json!({"type": "message", "content": content, "stop_reason": "end_turn", "usage": {"input_tokens": 1}})
    },
    call_and_answer: ("\"type\":\"tool_use\"", "\"type\":\"tool_result\""),
    too_long: || json!({"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 208310 tokens > 200000 maximum"}}),
};

pub(crate) const RESPONSES: Format = Format {
    word: "openai",
    messages: "input",
    tail: "],\"max_output_tokens\":4096}",
    is_reply: |item| item["type"] == "reasoning",
    reply: |reply, parts| {
        let thinking = json!({"id": "r", "type": "reasoning", "summary": [], "encrypted_content": signature(reply)});
        let part = |(n, part): (usize, &Part)| match part {
            Part::Say(text) => {
                json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]})
            }
            Part::Use(name, input) => {
                let id = format!("t{reply}_{n}");
                json!({"type": "function_call", "call_id": id, "name": name, "arguments": input.to_string()})
            }
        };
        let output: Vec<_> = std::iter::once(thinking)
            .chain(parts.iter().enumerate().map(part))
            .collect();
        json!({"object": "response", "status": "completed", "output": output, "usage": {"input_tokens": 1}})
    },
    call_and_answer: (
        "\"type\":\"function_call\"",
        "\"type\":\"function_call_output\"",
    ),
    too_long: || json!({"error": {"type": "invalid_request_error", "code": "context_length_exceeded", "message": "Your input exceeds the context window of this model."}}),
};

pub(crate) const CHAT: Format = Format {
    word: "openai-chat",
    messages: "messages",
    tail: "],\"max_tokens\":4096}",
    is_reply: |message| message["role"] == "assistant",
    reply: |reply, parts| {
        let said: String = parts
            .iter()
            .filter_map(|part| {
                if let Part::Say(text) = part {
                    Some(*text)
                } else {
                    None
                }
            })
            .collect();
        let calls: Vec<_> = parts
            .iter()
            .enumerate()
            .filter_map(|(n, part)| match part {
                Part::Say(_) => None,
                Part::Use(name, input) => {
                    let function = json!({"name": name, "arguments": input.to_string()});
                    Some(json!({"id": format!("t{reply}_{n}"), "type": "function", "function": function}))
                }
            })
            .collect();
        let mut message =
            json!({"role": "assistant", "reasoning_content": signature(reply), "content": said});
        if !calls.is_empty() {
            message["tool_calls"] = json!(calls);
        }
        json!({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1}})
    },
    call_and_answer: ("\"type\":\"function\"", "\"role\":\"tool\""),
    too_long: || json!({"error": {"type": "exceed_context_size_error", "code": 400, "message": "the request exceeds the available context size"}}),
};

pub(crate) const GEMINI: Format = Format {
    word: "gemini",
    messages: "contents",
    tail: "],\"generationConfig\":{\"maxOutputTokens\":4096,\"temperature\":0.5}}",
    is_reply: |content| content["role"] == "model",
    reply: |reply, parts| {
        let part = |part: &Part| match part {
            Part::Say(text) => json!({"text": text, "thoughtSignature": signature(reply)}),
            Part::Use(name, args) => {
                json!({"functionCall": {"name": name, "args": args}, "thoughtSignature": signature(reply)})
            }
        };
        let parts: Vec<_> = parts.iter().map(part).collect();
        let candidate = json!({"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": "STOP"});
        json!({"candidates": [candidate], "responseId": format!("r{reply}"), "usageMetadata": {"promptTokenCount": 1}})
    },
    call_and_answer: ("\"functionCall\":", "\"functionResponse\":"),
    too_long: || json!({"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."}}),
};
