//! Models at Google Vertex AI: Anthropic's and Google's own, with the model, the project and the
//! region in the path, and tokens of Google Cloud.
//!
//! Vertex does not cache a conversation with a model of Anthropic by itself: what is cached are
//! tools, system prompt and the parts that forks share.
//!
//! Both codecs encode and decode by the codec of the maker's own API (`anthropic.rs`, `gemini.rs`).
//! What differs is the address (`location.rs`) and how a request is authenticated (`token.rs`).

mod location;
mod token;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::SystemTime;

use dormouse_proto::model::{ModelError, Reply, Request};
use dormouse_proto::program::CacheTtl;

use self::location::VertexLocation;
use self::token::GoogleTokens;
use crate::anthropic::{self, Dialect, Messages};
use crate::gemini::{self, GenerateContent};
use crate::wire::{
    Authenticator, Client, CloudLocation, Codec, Delivery, MessageContext, Purpose, Service,
    Version,
};

/// A model of Anthropic at Vertex AI. The project and the region are in the environment variables
/// `ANTHROPIC_VERTEX_PROJECT_ID` or `GOOGLE_CLOUD_PROJECT`, and `CLOUD_ML_REGION` or
/// `GOOGLE_CLOUD_LOCATION`. A token is in `GOOGLE_OAUTH_ACCESS_TOKEN`, or is obtained as Google's
/// own tools do: from the key of a service account, the login of `gcloud`, or the machine.
pub type AnthropicVertex = Client<VertexMessages>;

/// A model of Google at Vertex AI, with project, region and token as [`AnthropicVertex`].
pub type GeminiVertex = Client<VertexGenerateContent>;

/// The codec of the Messages API at Vertex AI.
#[derive(Clone, Debug, Default)]
pub struct VertexMessages {
    location: VertexLocation,
}

/// The codec of the Gemini API at Vertex AI.
#[derive(Clone, Debug, Default)]
pub struct VertexGenerateContent {
    location: VertexLocation,
}

const TOKEN_VARIABLE: Option<&str> = Some("GOOGLE_OAUTH_ACCESS_TOKEN");
const PROJECT_VARIABLES: &[&str] = &["ANTHROPIC_VERTEX_PROJECT_ID", "GOOGLE_CLOUD_PROJECT"];
const REGION_VARIABLES: &[&str] = &["CLOUD_ML_REGION", "GOOGLE_CLOUD_LOCATION"];

const fn service(name: &'static str, url_variable: &'static str) -> Service {
    Service {
        name,
        base_url: "",
        version: Version::IfNoPath("/v1"),
        key_header: "authorization",
        key_scheme: "Bearer ",
        headers: &[],
        key_variables: &[],
        token_variable: TOKEN_VARIABLE,
        url_variable,
    }
}

impl Codec for VertexMessages {
    const FORMAT: &'static str = anthropic::FORMAT;
    const SERVICE: Service = service("AnthropicVertex", "ANTHROPIC_VERTEX_BASE_URL");
    const MAX_CALL_ID_BYTES: usize = Messages::MAX_CALL_ID_BYTES;
    const PROJECT_VARIABLES: &'static [&'static str] = PROJECT_VARIABLES;
    const REGION_VARIABLES: &'static [&'static str] = REGION_VARIABLES;
    type Decoder = anthropic::StreamDecoder;

    fn in_location(self, location: &CloudLocation) -> Self {
        let location = VertexLocation::new(location);
        Self { location }
    }

    fn base_url(&self) -> Result<Cow<'static, str>, ModelError> {
        self.location.base_url().map(Cow::Owned)
    }

    fn authenticator(variable: &dyn Fn(&str) -> Option<String>) -> Option<Arc<dyn Authenticator>> {
        Some(Arc::new(GoogleTokens::new(variable)))
    }

    fn path(&self, request: &Request, purpose: Purpose) -> Result<Option<String>, ModelError> {
        let verb = match purpose {
            Purpose::Reply(Delivery::Stream) => "streamRawPredict",
            Purpose::Reply(Delivery::Whole) | Purpose::Count => "rawPredict",
        };
        let model = match purpose {
            Purpose::Count => "count-tokens",
            Purpose::Reply(_) => &*request.model,
        };
        self.location.path("anthropic", model, verb).map(Some)
    }

    fn encode_head(
        &self,
        request: &Request,
        purpose: Purpose,
        cache_ttl: Option<CacheTtl>,
    ) -> Result<String, ModelError> {
        anthropic::encode_head(request, purpose, cache_ttl, Dialect::Vertex)
    }

    fn encode_message(&self, context: MessageContext<'_>) -> Result<String, ModelError> {
        Messages.encode_message(context)
    }

    fn encode_tail(
        &self,
        request: &Request,
        purpose: Purpose,
        now: SystemTime,
    ) -> Result<String, ModelError> {
        Messages.encode_tail(request, purpose, now)
    }

    fn decode(&self, json: &str) -> Result<Reply, ModelError> {
        Messages.decode(json)
    }

    fn with_call_id(&self, raw: &str, index: usize, id: &str) -> Option<String> {
        Messages.with_call_id(raw, index, id)
    }

    fn decode_count(&self, json: &str) -> Option<u64> {
        Messages.decode_count(json)
    }
}

impl Codec for VertexGenerateContent {
    const FORMAT: &'static str = gemini::FORMAT;
    const SERVICE: Service = service("GeminiVertex", "GOOGLE_VERTEX_BASE_URL");
    const MAX_CALL_ID_BYTES: usize = GenerateContent::MAX_CALL_ID_BYTES;
    const PROJECT_VARIABLES: &'static [&'static str] = PROJECT_VARIABLES;
    const REGION_VARIABLES: &'static [&'static str] = REGION_VARIABLES;
    type Decoder = gemini::StreamDecoder;

    fn in_location(self, location: &CloudLocation) -> Self {
        let location = VertexLocation::new(location);
        Self { location }
    }

    fn base_url(&self) -> Result<Cow<'static, str>, ModelError> {
        self.location.base_url().map(Cow::Owned)
    }

    fn authenticator(variable: &dyn Fn(&str) -> Option<String>) -> Option<Arc<dyn Authenticator>> {
        Some(Arc::new(GoogleTokens::new(variable)))
    }

    /// Tokens are estimated: the request that counts them has another form here.
    fn path(&self, request: &Request, purpose: Purpose) -> Result<Option<String>, ModelError> {
        let verb = match purpose {
            Purpose::Reply(Delivery::Stream) => "streamGenerateContent?alt=sse",
            Purpose::Reply(Delivery::Whole) => "generateContent",
            Purpose::Count => return Ok(None),
        };
        self.location.path("google", &request.model, verb).map(Some)
    }

    fn encode_head(
        &self,
        request: &Request,
        purpose: Purpose,
        cache_ttl: Option<CacheTtl>,
    ) -> Result<String, ModelError> {
        GenerateContent.encode_head(request, purpose, cache_ttl)
    }

    fn encode_message(&self, context: MessageContext<'_>) -> Result<String, ModelError> {
        GenerateContent.encode_message(context)
    }

    fn encode_tail(
        &self,
        request: &Request,
        purpose: Purpose,
        now: SystemTime,
    ) -> Result<String, ModelError> {
        GenerateContent.encode_tail(request, purpose, now)
    }

    fn decode(&self, json: &str) -> Result<Reply, ModelError> {
        GenerateContent.decode(json)
    }

    fn with_call_id(&self, raw: &str, index: usize, id: &str) -> Option<String> {
        GenerateContent.with_call_id(raw, index, id)
    }
}

#[cfg(test)]
mod tests;
