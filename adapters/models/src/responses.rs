//! OpenAI's Responses API, and compatible servers.
//!
//! The provider stores nothing (`store` is false): each request contains the whole conversation,
//! and the reasoning of the model in encrypted form. Each item of a reply is one block, and is sent
//! back unchanged.

mod decode;
mod encode;
mod stream;

use dormouse_proto::model::{ModelError, Reply, Request};
use serde::Deserialize;

pub use self::stream::StreamDecoder;
use crate::wire::{Caching, Client, Codec, Purpose, Service, Turn, Version};

/// The name of the wire format in [`Raw`](dormouse_proto::message::Raw) blocks.
pub const FORMAT: &str = "openai-responses";

/// A model behind the Responses API: the key in `OPENAI_API_KEY`, another server in
/// `OPENAI_BASE_URL`. An address with a path is taken as it is, one without gets `/v1`.
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
        version: Version::WhereBare("/v1"),
        key_header: "authorization",
        key_scheme: "Bearer ",
        headers: &[],
        key_variables: &["OPENAI_API_KEY"],
        url_variable: "OPENAI_BASE_URL",
    };
    type Decoder = StreamDecoder;

    fn path(&self, _request: &Request, purpose: Purpose) -> Result<Option<String>, ModelError> {
        Ok(Some(match purpose {
            Purpose::Reply(_) => "/responses".to_owned(),
            Purpose::Count => "/responses/input_tokens".to_owned(),
        }))
    }

    fn head(
        &self,
        request: &Request,
        purpose: Purpose,
        _caching: Caching,
    ) -> Result<String, ModelError> {
        encode::head(request, purpose)
    }

    fn turn(&self, turn: Turn<'_>) -> Result<String, ModelError> {
        encode::turn(turn)
    }

    fn tail(&self, request: &Request, purpose: Purpose) -> Result<String, ModelError> {
        Ok(encode::tail(request, purpose))
    }

    fn decode(&self, json: &str) -> Result<Reply, ModelError> {
        decode::response(json)
    }

    fn decode_count(&self, json: &str) -> Option<u64> {
        #[derive(Deserialize)]
        struct Counted {
            input_tokens: u64,
        }
        serde_json::from_str(json)
            .map(|Counted { input_tokens }| input_tokens)
            .ok()
    }
}
