//! OpenAI's Chat Completions API, and the many compatible servers.
//!
//! This format has messages, not blocks. The original message of a reply is kept as the raw form of
//! the first block that is decoded from it, and is sent back unchanged. The other blocks have no
//! raw form.

mod decode;
mod encode;
mod generated_ids;
mod stream;

use dormouse_proto::model::{ModelError, Reply, Request};

pub use self::stream::StreamDecoder;
use crate::wire::{Caching, Client, Codec, Purpose, Service, Turn, Version};

/// The name of the wire format in [`Raw`](dormouse_proto::message::Raw) blocks.
pub const FORMAT: &str = "openai-chat";

/// A model behind chat completions: the key in `OPENAI_API_KEY`, another server in
/// `OPENAI_BASE_URL`. An address with a path is taken as it is, one without gets `/v1`.
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

/// The name of the field that limits a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Dialect {
    /// `max_completion_tokens`: OpenAI, whose newer models refuse the older name.
    OpenAi,
    /// `max_tokens`: all other servers.
    #[default]
    Compatible,
}

impl Codec for Completions {
    const FORMAT: &'static str = FORMAT;
    const COST_FOLLOWS: bool = true;
    const SERVICE: Service = Service {
        name: "OpenAiChat",
        base_url: "https://api.openai.com",
        version: Version::WhereBare("/v1"),
        key_header: "authorization",
        key_scheme: "Bearer ",
        headers: &[],
        key_variables: &["OPENAI_API_KEY"],
        url_variable: "OPENAI_BASE_URL",
    };
    type Decoder = StreamDecoder;

    fn at(self, host: &str) -> Self {
        let is_theirs = host == "api.openai.com" || host.ends_with(".api.openai.com");
        Self {
            dialect: if is_theirs {
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

    fn tail(&self, request: &Request, _purpose: Purpose) -> Result<String, ModelError> {
        Ok(encode::tail(request, self.dialect))
    }

    fn decode(&self, json: &str) -> Result<Reply, ModelError> {
        decode::completion(json)
    }

    fn decode_count(&self, _json: &str) -> Option<u64> {
        None
    }
}
