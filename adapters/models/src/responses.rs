//! OpenAI's Responses API, and compatible servers.
//!
//! The provider stores nothing (`store` is false): each request contains the whole conversation,
//! and the reasoning of the model in encrypted form. Each item of a reply is one block, and is sent
//! back unchanged.

mod decode;
mod encode;
mod files;
mod stream;

use std::time::SystemTime;

use dormouse_proto::model::{ModelError, Reply, Request};
use dormouse_proto::program::CacheTtl;

pub use self::stream::StreamDecoder;
use crate::wire::call_ids;
use crate::wire::{
    Client, Codec, FileLink, MessageContext, Purpose, Service, Version, input_tokens_in,
};

/// The name of the wire format in [`Raw`](dormouse_proto::message::Raw) blocks.
pub const FORMAT: &str = "openai-responses";

/// A model behind the Responses API. The environment variable `OPENAI_API_KEY` holds the key, and
/// `OPENAI_BASE_URL` may name another server. An address without a path gets `/v1`, an address with
/// a path is unchanged.
///
/// ```no_run
/// use dormouse_models::OpenAi;
///
/// let hosted = OpenAi::from_env()?;
/// # Ok::<(), dormouse_proto::model::ModelError>(())
/// ```
pub type OpenAi = Client<Responses>;

/// The codec of the Responses API.
#[derive(Clone, Copy, Debug, Default)]
pub struct Responses;

impl Codec for Responses {
    const FORMAT: &'static str = FORMAT;
    const SERVICE: Service = Service {
        name: "OpenAi",
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

    fn path(&self, _request: &Request, purpose: Purpose) -> Result<Option<String>, ModelError> {
        Ok(Some(match purpose {
            Purpose::Reply(_) => "/responses".to_owned(),
            Purpose::Count => "/responses/input_tokens".to_owned(),
        }))
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
        Ok(encode::encode_tail(request, purpose))
    }

    fn decode(&self, json: &str) -> Result<Reply, ModelError> {
        decode::decode_reply(json)
    }

    fn files(&self, reply: &Reply) -> Vec<FileLink> {
        files::links(&reply.blocks)
    }

    fn with_call_id(&self, raw: &str, _index: usize, id: &str) -> Option<String> {
        call_ids::with_field(raw, "call_id", id)
    }

    fn decode_count(&self, json: &str) -> Option<u64> {
        input_tokens_in(json)
    }
}
