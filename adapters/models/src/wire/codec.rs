//! The trait [`Codec`], which each wire format implements.

use std::collections::BTreeMap;

use bytes::Bytes;
use dormouse_proto::id::FdId;
use dormouse_proto::message::Message;
use dormouse_proto::model::{Delta, ModelError, Reply, Request};
use dormouse_proto::program::CacheTtl;

/// How a reply is delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// As events, while the model writes.
    #[default]
    Stream,
    /// In one piece, when it is complete.
    Whole,
}

/// Whether the provider is asked to cache prompts, if its format supports that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Caching {
    /// Caches the constant part of a request, and the conversation so far.
    #[default]
    Automatic,
    /// As `Automatic`; the provider keeps what it caches for an hour, if its format lets requests
    /// say so.
    OneHour,
    /// Requests no caching: for servers that refuse such a request.
    Off,
}

impl Caching {
    /// The caching of a request whose parameters may ask for an hour in the provider's words. A
    /// provider refuses a breakpoint of an hour behind one of five minutes, so all of them are then
    /// of an hour.
    pub(super) fn of_request(self, request: &Request) -> Self {
        match (self, CacheTtl::of_parameters(&request.parameters)) {
            (Self::Automatic, Some(CacheTtl::OneHour)) => Self::OneHour,
            _ => self,
        }
    }

    /// How long the provider keeps what it caches; `None` if it is not asked to cache.
    pub(crate) fn ttl(self) -> Option<CacheTtl> {
        match self {
            Self::Automatic => Some(CacheTtl::FiveMinutes),
            Self::OneHour => Some(CacheTtl::OneHour),
            Self::Off => None,
        }
    }
}

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A reply.
    Reply(Delivery),
    /// The number of its input tokens.
    Count,
}

/// Whether a message has a cache breakpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mark {
    /// No breakpoint.
    None,
    /// The messages before it are shared with other processes: its first block is a breakpoint, if
    /// the format has breakpoints.
    Breakpoint(CacheTtl),
}

/// A message, with everything that its encoding may depend on. It depends on nothing else, so it is
/// encoded only once.
#[derive(Clone, Copy, Debug)]
pub struct Turn<'a> {
    /// The message.
    pub message: &'a Message,
    /// The message before it in the conversation, if there is one.
    pub before: Option<&'a Message>,
    /// The bytes of the media that the message references.
    pub media: &'a BTreeMap<FdId, Bytes>,
    /// Whether it has a cache breakpoint.
    pub mark: Mark,
}

/// A provider, or the provider whose format a compatible server speaks.
#[derive(Clone, Copy, Debug)]
pub struct Service {
    /// The name of the provider in messages.
    pub name: &'static str,
    /// The URL of its own server.
    pub base_url: &'static str,
    /// The version of the API, between the base URL and the path.
    pub version: Version,
    /// The header that holds the key.
    pub key_header: &'static str,
    /// The prefix of the key in that header.
    pub key_scheme: &'static str,
    /// Further headers of every request.
    pub headers: &'static [(&'static str, &'static str)],
    /// The environment variables that may hold the key, the first that is set counts.
    pub key_variables: &'static [&'static str],
    /// The environment variable that names another server.
    pub url_variable: &'static str,
}

/// The part of a path that names the version of an API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// It is appended to every base URL that does not end with it.
    Always(&'static str),
    /// It is appended to a base URL without a path. A base URL with a path is complete.
    WhereBare(&'static str),
}

/// One wire format.
///
/// A body is `head`, the messages with commas between them, and `tail`: so a longer conversation
/// starts with the bytes of the shorter one, up to the bracket that closes it (HIST-1, FORK-2).
pub trait Codec: Clone + Default + Send + Sync + 'static {
    /// The name of the format in [`Raw`](dormouse_proto::message::Raw) blocks.
    const FORMAT: &'static str;
    /// The provider that defined the format.
    const SERVICE: Service;
    /// Whether the usage comes after the end of a streamed reply: a stream that ends between the
    /// two still holds a complete reply.
    const COST_FOLLOWS: bool = false;
    /// The decoder of streamed replies.
    type Decoder: Decoder;

    /// Adapts the codec to the server at `host`, since some servers use a dialect of the format.
    #[must_use]
    fn at(self, _host: &str) -> Self {
        self
    }

    /// The path of the request after the base URL. None if the format cannot count tokens.
    ///
    /// # Errors
    /// The name of the model is not valid.
    fn path(&self, request: &Request, purpose: Purpose) -> Result<Option<String>, ModelError>;

    /// The body up to the messages, including the opening bracket, and elements such as a system
    /// message that are not part of the conversation.
    ///
    /// # Errors
    /// A parameter is reserved, or a schema is not JSON.
    fn head(
        &self,
        request: &Request,
        purpose: Purpose,
        caching: Caching,
    ) -> Result<String, ModelError>;

    /// Encodes a message, as one or several elements with commas between them. Empty if there is
    /// nothing to send.
    ///
    /// # Errors
    /// The original text of a block is not JSON.
    fn turn(&self, turn: Turn<'_>) -> Result<String, ModelError>;

    /// The body after the messages, including the closing bracket.
    ///
    /// # Errors
    /// As [`Codec::head`].
    fn tail(&self, request: &Request, purpose: Purpose) -> Result<String, ModelError>;

    /// Decodes a complete reply.
    ///
    /// # Errors
    /// The text is not a reply, or it reports an error of the provider.
    fn decode(&self, json: &str) -> Result<Reply, ModelError>;

    /// Decodes the response to a request that counts tokens.
    fn decode_count(&self, json: &str) -> Option<u64>;
}

/// How complete a streamed reply is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More must come.
    Open,
    /// The reply has ended; its usage may follow.
    Ended,
    /// Nothing can follow.
    Complete,
}

/// Decodes a streamed reply, event by event.
pub trait Decoder: Default + Send {
    /// Decodes one event, and passes its deltas to `deltas`.
    ///
    /// # Errors
    /// The event is not valid at this point, or the provider reports an error. The decoder cannot
    /// be used after that.
    fn feed(&mut self, data: &str, deltas: &dyn Fn(Delta)) -> Result<(), ModelError>;

    /// How complete the reply is.
    fn progress(&self) -> Progress;

    /// The decoded reply.
    ///
    /// # Errors
    /// [`CutStream`](dormouse_proto::model::ModelErrorKind::CutStream) where the events ended
    /// before the reply did, [`Malformed`](dormouse_proto::model::ModelErrorKind::Malformed) where
    /// what came is no reply.
    fn finish(self) -> Result<Reply, ModelError>;
}
