//! The trait [`Codec`], which each wire format implements.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use dormouse_proto::id::FdId;
use dormouse_proto::message::Message;
use dormouse_proto::model::{Delta, ModelError, Reply, Request};
use dormouse_proto::program::CacheTtl;
use serde::Deserialize;

use super::authentication::{Authenticator, CloudLocation};
use super::files::FileLink;

/// How a reply is delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// As events, while the model writes.
    #[default]
    Stream,
    /// In one piece, when it is complete.
    Whole,
}

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A reply.
    Reply(Delivery),
    /// The number of its input tokens.
    Count,
}

/// A message with everything that its encoding may depend on. The encoding depends on nothing else,
/// so each message is encoded only once.
#[derive(Clone, Copy, Debug)]
pub struct MessageContext<'a> {
    /// The message.
    pub message: &'a Message,
    /// The message before it in the conversation, if there is one.
    pub previous: Option<&'a Message>,
    /// The bytes of the media that the message references.
    pub media: &'a BTreeMap<FdId, Bytes>,
    /// The lifetime of the cache breakpoint on the first block of the message; `None` without a
    /// breakpoint. A breakpoint is a mark that asks the provider to cache the request up to there.
    /// A message has one if the messages before it are shared with other processes. Formats without
    /// breakpoints ignore it.
    pub breakpoint: Option<CacheTtl>,
}

/// How to reach a provider. Compatible servers use the same headers and variables.
#[derive(Clone, Copy, Debug)]
pub struct Service {
    /// The name of the provider in debug output.
    pub name: &'static str,
    /// The URL of its own server. Empty for a cloud, whose URL depends on the region
    /// ([`Codec::base_url`]).
    pub base_url: &'static str,
    /// The version of the API, between the base URL and the path.
    pub version: Version,
    /// The header that holds the key.
    pub key_header: &'static str,
    /// The prefix of the key in that header.
    pub key_scheme: &'static str,
    /// Further headers of every request.
    pub headers: &'static [(&'static str, &'static str)],
    /// The environment variables that may hold the key. The first one that is set counts.
    pub key_variables: &'static [&'static str],
    /// The environment variable that may hold a token, which is sent as `Authorization: Bearer` if
    /// no key is set.
    pub token_variable: Option<&'static str>,
    /// The environment variable that names another server.
    pub url_variable: &'static str,
}

/// The part of a path that names the version of an API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The version is appended to every base URL that does not end with it.
    Always(&'static str),
    /// The version is appended to a base URL without a path. A base URL with a path is complete.
    IfNoPath(&'static str),
}

/// One wire format.
///
/// A body consists of the head, the messages with commas between them, and the tail. The body of a
/// longer conversation therefore starts with the bytes of the shorter one, up to the bracket that
/// closes the messages (HIST-1, FORK-2).
pub trait Codec: Clone + Default + Send + Sync + 'static {
    /// The name of the format in [`Raw`](dormouse_proto::message::Raw) blocks.
    const FORMAT: &'static str;
    /// The provider that defined the format.
    const SERVICE: Service;
    /// Whether the usage is sent after the end of a streamed reply. A stream that is cut between
    /// the two then still contains a complete reply.
    const USAGE_FOLLOWS: bool = false;
    /// The environment variables that may name the project of a cloud.
    const PROJECT_VARIABLES: &'static [&'static str] = &[];
    /// The environment variables that may name the region of a cloud.
    const REGION_VARIABLES: &'static [&'static str] = &[];
    /// What else authenticates requests, for the error about missing keys.
    const FURTHER_CREDENTIALS: Option<&'static str> = None;
    /// The longest id of a call that the provider accepts, in bytes.
    const MAX_CALL_ID_BYTES: usize;
    /// The decoder of streamed replies.
    type Decoder: Decoder;

    /// Adapts the codec to the server at `host`, since some servers use a dialect of the format.
    #[must_use]
    fn for_host(self, _host: &str) -> Self {
        self
    }

    /// Adapts the codec to the project and the region of a cloud.
    #[must_use]
    fn in_location(self, _location: &CloudLocation) -> Self {
        self
    }

    /// The URL of the provider's own server.
    ///
    /// # Errors
    /// It depends on the region of a cloud, which is not known or not valid.
    fn base_url(&self) -> Result<Cow<'static, str>, ModelError> {
        Ok(Self::SERVICE.base_url.into())
    }

    /// What authenticates requests where no key in a header does. `variable` reads the environment.
    fn authenticator(_variable: &dyn Fn(&str) -> Option<String>) -> Option<Arc<dyn Authenticator>> {
        None
    }

    /// The path of the request after the base URL. None if the format cannot count tokens.
    ///
    /// # Errors
    /// The name of the model is not valid.
    fn path(&self, request: &Request, purpose: Purpose) -> Result<Option<String>, ModelError>;

    /// Encodes the body up to the messages, including the opening bracket and elements that are not
    /// part of the conversation, such as a system message.
    ///
    /// # Errors
    /// A parameter is reserved, or a schema is not JSON.
    fn encode_head(
        &self,
        request: &Request,
        purpose: Purpose,
        cache_ttl: Option<CacheTtl>,
    ) -> Result<String, ModelError>;

    /// Encodes a message as one or several elements with commas between them. The text is empty if
    /// there is nothing to send.
    ///
    /// # Errors
    /// The original text of a block is not JSON.
    fn encode_message(&self, context: MessageContext<'_>) -> Result<String, ModelError>;

    /// Encodes the body after the messages, including the closing bracket. `now` decides whether
    /// what the provider keeps for a while can still be named.
    ///
    /// # Errors
    /// As [`Codec::encode_head`].
    fn encode_tail(
        &self,
        request: &Request,
        purpose: Purpose,
        now: SystemTime,
    ) -> Result<String, ModelError>;

    /// Decodes a complete reply.
    ///
    /// # Errors
    /// The text is not a reply, or it reports an error of the provider.
    fn decode(&self, json: &str) -> Result<Reply, ModelError>;

    /// The files that a reply names and its provider keeps. They are fetched after the reply.
    fn files(&self, _reply: &Reply) -> Vec<FileLink> {
        Vec::new()
    }

    /// The original JSON `raw` with another id for its call number `index`, counted from 0 among
    /// the calls of `raw`; none if the call has no id there.
    fn with_call_id(&self, raw: &str, index: usize, id: &str) -> Option<String>;

    /// Decodes the response to a request that counts tokens. None if the response has no count.
    fn decode_count(&self, _json: &str) -> Option<u64> {
        None
    }
}

/// The count in a response of the form `{"input_tokens": 12}`.
pub(crate) fn input_tokens_in(json: &str) -> Option<u64> {
    #[derive(Deserialize)]
    struct CountResponse {
        input_tokens: u64,
    }
    let response: CountResponse = serde_json::from_str(json).ok()?;
    Some(response.input_tokens)
}

/// How complete a streamed reply is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completeness {
    /// Further events must follow.
    Open,
    /// The reply has ended; its usage may follow.
    Ended,
    /// No event can follow.
    Complete,
}

/// Decodes a streamed reply, event by event.
pub trait Decoder: Default + Send {
    /// Decodes one event, and passes what is new to those who watch the reply (`deltas`).
    ///
    /// # Errors
    /// The event is not valid at this point, or the provider reports an error. The decoder cannot
    /// be used after that.
    fn feed(&mut self, data: &str, deltas: &dyn Fn(Delta)) -> Result<(), ModelError>;

    /// How complete the reply is.
    fn completeness(&self) -> Completeness;

    /// The decoded reply.
    ///
    /// # Errors
    /// [`CutStream`](dormouse_proto::model::ModelErrorKind::CutStream) if the events ended before
    /// the reply was complete, [`Malformed`](dormouse_proto::model::ModelErrorKind::Malformed) if
    /// the events are not a reply.
    fn finish(self) -> Result<Reply, ModelError>;
}
