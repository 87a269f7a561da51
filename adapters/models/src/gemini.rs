//! Google's Gemini API.
//!
//! Each part of a reply is one block, and is sent back unchanged, with the thought signature that
//! it may have.

mod decode;
mod encode;
mod metadata;
mod names;
mod partial_calls;
mod stream;

use std::time::SystemTime;

use dormouse_proto::model::{ModelError, Reply, Request};
use dormouse_proto::program::CacheTtl;
use serde::Deserialize;
use serde_json::value::RawValue;

pub use self::stream::StreamDecoder;
use crate::wire::call_ids;
use crate::wire::json_fields::Fields;
use crate::wire::{Client, Codec, Delivery, MessageContext, Purpose, Service, Version};

/// The name of the wire format in [`Raw`](dormouse_proto::message::Raw) blocks.
pub const FORMAT: &str = "gemini";

/// A model behind the Gemini API. The environment variable `GEMINI_API_KEY` or `GOOGLE_API_KEY`
/// holds the key, and `GEMINI_BASE_URL` may name another server, without `/v1beta`.
///
/// ```no_run
/// use dormouse_models::Gemini;
///
/// let hosted = Gemini::from_env()?;
/// # Ok::<(), dormouse_proto::model::ModelError>(())
/// ```
pub type Gemini = Client<GenerateContent>;

/// The codec of the Gemini API.
#[derive(Clone, Copy, Debug, Default)]
pub struct GenerateContent;

impl Codec for GenerateContent {
    const FORMAT: &'static str = FORMAT;
    const SERVICE: Service = Service {
        name: "Gemini",
        base_url: "https://generativelanguage.googleapis.com",
        version: Version::Always("/v1beta"),
        key_header: "x-goog-api-key",
        key_scheme: "",
        headers: &[],
        key_variables: &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
        token_variable: None,
        url_variable: "GEMINI_BASE_URL",
    };
    // An id that the format generates is not sent, so it may have any length.
    const MAX_CALL_ID_BYTES: usize = usize::MAX;
    type Decoder = StreamDecoder;

    fn path(&self, request: &Request, purpose: Purpose) -> Result<Option<String>, ModelError> {
        let verb = match purpose {
            Purpose::Reply(Delivery::Stream) => "streamGenerateContent?alt=sse",
            Purpose::Reply(Delivery::Whole) => "generateContent",
            Purpose::Count => "countTokens",
        };
        Ok(Some(format!(
            "/{}:{verb}",
            names::model_path(&request.model)?
        )))
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
        purpose: Purpose,
        _now: SystemTime,
    ) -> Result<String, ModelError> {
        encode::encode_tail(request, purpose)
    }

    fn decode(&self, json: &str) -> Result<Reply, ModelError> {
        decode::decode_reply(json)
    }

    fn with_call_id(&self, raw: &str, _index: usize, id: &str) -> Option<String> {
        let mut part: Fields = serde_json::from_str(raw).ok()?;
        let call = call_ids::with_field(part.get("functionCall")?.get(), "id", id)?;
        part.set("functionCall", RawValue::from_string(call).ok()?);
        Some(part.to_json())
    }

    fn decode_count(&self, json: &str) -> Option<u64> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct CountResponse {
            total_tokens: u64,
        }
        serde_json::from_str(json)
            .map(|CountResponse { total_tokens }| total_tokens)
            .ok()
    }
}
