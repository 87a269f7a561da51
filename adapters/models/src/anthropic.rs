//! Anthropic's Messages API, and compatible servers.

mod container;
mod decode;
mod dialect;
mod encode;
mod files;
mod stream;

use std::time::SystemTime;

use dormouse_proto::model::{ModelError, Reply, Request};
use dormouse_proto::program::CacheTtl;

pub(crate) use self::dialect::Dialect;
#[cfg(any(feature = "bedrock", feature = "vertex"))]
pub(crate) use self::encode::encode_head;
pub use self::stream::StreamDecoder;
use crate::wire::call_ids;
use crate::wire::{
    Client, Codec, Delivery, FileLink, MessageContext, Purpose, Service, Version, input_tokens_in,
};

/// The name of the wire format in [`Raw`](dormouse_proto::message::Raw) blocks.
pub const FORMAT: &str = "anthropic";

/// A model behind the Messages API. The environment variable `ANTHROPIC_API_KEY` holds the key, or
/// `ANTHROPIC_AUTH_TOKEN` a token, and `ANTHROPIC_BASE_URL` may name another server, without `/v1`.
///
/// ```no_run
/// use dormouse_models::Anthropic;
///
/// let hosted = Anthropic::from_env()?;
/// let local = Anthropic::builder().base_url("http://127.0.0.1:8082").build()?;
/// # Ok::<(), dormouse_proto::model::ModelError>(())
/// ```
pub type Anthropic = Client<Messages>;

/// The codec of the Messages API.
#[derive(Clone, Copy, Debug, Default)]
pub struct Messages;

impl Codec for Messages {
    const FORMAT: &'static str = FORMAT;
    const SERVICE: Service = Service {
        name: "Anthropic",
        base_url: "https://api.anthropic.com",
        version: Version::Always("/v1"),
        key_header: "x-api-key",
        key_scheme: "",
        // The version of the API that encoder and decoder are written for.
        headers: &[("anthropic-version", "2023-06-01")],
        key_variables: &["ANTHROPIC_API_KEY"],
        token_variable: Some("ANTHROPIC_AUTH_TOKEN"),
        url_variable: "ANTHROPIC_BASE_URL",
    };
    const MAX_CALL_ID_BYTES: usize = encode::MAX_ID_BYTES;
    type Decoder = StreamDecoder;

    fn path(&self, _request: &Request, purpose: Purpose) -> Result<Option<String>, ModelError> {
        Ok(Some(match purpose {
            Purpose::Reply(Delivery::Stream | Delivery::Whole) => "/messages".to_owned(),
            Purpose::Count => "/messages/count_tokens".to_owned(),
        }))
    }

    fn encode_head(
        &self,
        request: &Request,
        purpose: Purpose,
        cache_ttl: Option<CacheTtl>,
    ) -> Result<String, ModelError> {
        encode::encode_head(request, purpose, cache_ttl, Dialect::Anthropic)
    }

    fn encode_message(&self, context: MessageContext<'_>) -> Result<String, ModelError> {
        encode::encode_message(context)
    }

    fn encode_tail(
        &self,
        request: &Request,
        purpose: Purpose,
        now: SystemTime,
    ) -> Result<String, ModelError> {
        Ok(encode::encode_tail(request, purpose, now))
    }

    fn decode(&self, json: &str) -> Result<Reply, ModelError> {
        decode::decode_message(json)
    }

    fn files(&self, reply: &Reply) -> Vec<FileLink> {
        files::links(&reply.blocks)
    }

    fn with_call_id(&self, raw: &str, _index: usize, id: &str) -> Option<String> {
        call_ids::with_field(raw, "id", id)
    }

    fn decode_count(&self, json: &str) -> Option<u64> {
        input_tokens_in(json)
    }
}
