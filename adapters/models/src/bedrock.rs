//! Anthropic's models at Amazon Bedrock: the Messages API with the model in the path, signed
//! requests (or a bearer token) and binary event streams. Bodies and events are encoded and decoded
//! by the codec of the Messages API itself (`anthropic.rs`).
//!
//! Bedrock does not cache a conversation by itself: what is cached are tools, system prompt and the
//! parts that forks share. It counts no tokens in this format, so counts are estimates.

pub(crate) mod event_stream;
mod signature;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::SystemTime;

use dormouse_proto::model::{ModelError, Reply, Request};
use dormouse_proto::program::CacheTtl;

pub use self::signature::AwsCredentials;
use crate::anthropic::{self, Dialect, Messages, StreamDecoder};
use crate::wire::cloud_name::{checked, path_segment};
use crate::wire::excerpt::invalid;
use crate::wire::{
    Authenticator, Client, CloudLocation, Codec, Delivery, MessageContext, Purpose, Service,
    Version,
};

/// A model of Anthropic at Amazon Bedrock. The environment variables `AWS_ACCESS_KEY_ID`,
/// `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN` hold the credentials, or
/// `AWS_BEARER_TOKEN_BEDROCK` a token; `AWS_REGION` or `AWS_DEFAULT_REGION` names the region, and
/// `ANTHROPIC_BEDROCK_BASE_URL` may name another server.
///
/// ```no_run
/// use dormouse_models::Bedrock;
///
/// let hosted = Bedrock::from_env()?;
/// # Ok::<(), dormouse_proto::model::ModelError>(())
/// ```
pub type Bedrock = Client<BedrockMessages>;

/// Where to write the region.
const REGION_HELP: &str = "`region` in [model], or AWS_REGION";

/// The codec of the Messages API at Amazon Bedrock.
#[derive(Clone, Debug, Default)]
pub struct BedrockMessages {
    region: Option<String>,
}

impl Codec for BedrockMessages {
    const FORMAT: &'static str = anthropic::FORMAT;
    const SERVICE: Service = Service {
        name: "Bedrock",
        base_url: "",
        version: Version::IfNoPath(""),
        key_header: "authorization",
        key_scheme: "Bearer ",
        headers: &[],
        key_variables: &[],
        token_variable: Some("AWS_BEARER_TOKEN_BEDROCK"),
        url_variable: "ANTHROPIC_BEDROCK_BASE_URL",
    };
    const MAX_CALL_ID_BYTES: usize = Messages::MAX_CALL_ID_BYTES;
    const REGION_VARIABLES: &'static [&'static str] = &["AWS_REGION", "AWS_DEFAULT_REGION"];
    const FURTHER_CREDENTIALS: Option<&'static str> =
        Some("AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY");
    type Decoder = StreamDecoder;

    fn in_location(self, location: &CloudLocation) -> Self {
        let region = location.region.clone();
        Self { region }
    }

    fn base_url(&self) -> Result<Cow<'static, str>, ModelError> {
        let region = checked("region", self.region.as_deref(), &[], REGION_HELP)?;
        let domain = if region.starts_with("cn-") {
            "amazonaws.com.cn"
        } else {
            "amazonaws.com"
        };
        Ok(format!("https://bedrock-runtime.{region}.{domain}").into())
    }

    fn authenticator(variable: &dyn Fn(&str) -> Option<String>) -> Option<Arc<dyn Authenticator>> {
        let credentials = AwsCredentials::from_variables(variable)?;
        Some(Arc::new(credentials))
    }

    fn path(&self, request: &Request, purpose: Purpose) -> Result<Option<String>, ModelError> {
        let verb = match purpose {
            Purpose::Reply(Delivery::Stream) => "invoke-with-response-stream",
            Purpose::Reply(Delivery::Whole) => "invoke",
            Purpose::Count => return Ok(None),
        };
        // A name of dots would be another path.
        if request.model.is_empty() || request.model.starts_with('.') {
            return Err(invalid(
                "the name of the model is not one that Bedrock can have",
            ));
        }
        Ok(Some(format!(
            "/model/{}/{verb}",
            path_segment(&request.model)
        )))
    }

    fn encode_head(
        &self,
        request: &Request,
        purpose: Purpose,
        cache_ttl: Option<CacheTtl>,
    ) -> Result<String, ModelError> {
        anthropic::encode_head(request, purpose, cache_ttl, Dialect::Bedrock)
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
}

#[cfg(test)]
mod tests;
