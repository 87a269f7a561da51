//! OpenAI's Chat Completions API, and the many compatible servers.
//!
//! In this format a reply is one message, without blocks. The first block that is decoded from a
//! reply keeps the original message as its raw form, which is sent back unchanged. The other blocks
//! have no raw form.

mod cited;
mod decode;
mod encode;
mod generated_ids;
mod stream;

use std::time::SystemTime;

use dormouse_proto::model::{ModelError, Reply, Request};
use dormouse_proto::program::CacheTtl;
use serde_json::value::RawValue;

pub use self::stream::StreamDecoder;
use crate::wire::address::is_azure_openai;
use crate::wire::call_ids;
use crate::wire::json_fields::{Fields, to_raw};
use crate::wire::{Client, Codec, MessageContext, Purpose, Service, Version};

/// The name of the wire format in [`Raw`](dormouse_proto::message::Raw) blocks.
pub const FORMAT: &str = "openai-chat";

/// A model behind the Chat Completions API. The environment variable `OPENAI_API_KEY` holds the
/// key, and `OPENAI_BASE_URL` may name another server. An address without a path gets `/v1`, an
/// address with a path is unchanged.
///
/// ```no_run
/// use dormouse_models::OpenAiChat;
///
/// let local = OpenAiChat::builder().base_url("http://127.0.0.1:11434/v1").build()?;
/// # Ok::<(), dormouse_proto::model::ModelError>(())
/// ```
pub type OpenAiChat = Client<Completions>;

/// The codec of the Chat Completions API.
#[derive(Clone, Copy, Debug, Default)]
pub struct Completions {
    dialect: Dialect,
}

/// The dialect of a server: the name of the field to which `max_tokens` is translated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Dialect {
    /// `max_completion_tokens`: OpenAI and Azure, whose newer models refuse the older name.
    OpenAi,
    /// `max_tokens`: all other servers.
    #[default]
    Compatible,
}

impl Codec for Completions {
    const FORMAT: &'static str = FORMAT;
    const USAGE_FOLLOWS: bool = true;
    const SERVICE: Service = Service {
        name: "OpenAiChat",
        base_url: "https://api.openai.com",
        version: Version::IfNoPath("/v1"),
        key_header: "authorization",
        key_scheme: "Bearer ",
        headers: &[],
        key_variables: &["OPENAI_API_KEY"],
        token_variable: None,
        url_variable: "OPENAI_BASE_URL",
    };
    const MAX_CALL_ID_BYTES: usize = encode::MAX_ID_BYTES;
    type Decoder = StreamDecoder;

    fn for_host(self, host: &str) -> Self {
        let is_openai =
            host == "api.openai.com" || host.ends_with(".api.openai.com") || is_azure_openai(host);
        Self {
            dialect: if is_openai {
                Dialect::OpenAi
            } else {
                Dialect::Compatible
            },
        }
    }

    fn path(&self, _request: &Request, purpose: Purpose) -> Result<Option<String>, ModelError> {
        Ok(match purpose {
            Purpose::Reply(_) => Some("/chat/completions".to_owned()),
            Purpose::Count => None,
        })
    }

    fn encode_head(
        &self,
        request: &Request,
        purpose: Purpose,
        _cache_ttl: Option<CacheTtl>,
    ) -> Result<String, ModelError> {
        encode::encode_head(request, purpose)
    }

    fn encode_message(&self, context: MessageContext<'_>) -> Result<String, ModelError> {
        encode::encode_message(context)
    }

    fn encode_tail(
        &self,
        request: &Request,
        _purpose: Purpose,
        _now: SystemTime,
    ) -> Result<String, ModelError> {
        Ok(encode::encode_tail(request, self.dialect))
    }

    fn decode(&self, json: &str) -> Result<Reply, ModelError> {
        decode::decode_completion(json)
    }

    fn with_call_id(&self, raw: &str, index: usize, id: &str) -> Option<String> {
        let mut message: Fields = serde_json::from_str(raw).ok()?;
        let mut calls: Vec<Box<RawValue>> =
            serde_json::from_str(message.get("tool_calls")?.get()).ok()?;
        let call = calls.get_mut(index)?;
        *call = RawValue::from_string(call_ids::with_field(call.get(), "id", id)?).ok()?;
        message.set("tool_calls", to_raw(&calls));
        Some(message.to_json())
    }
}
