//! What a wire format has to know.

use std::collections::BTreeMap;

use bytes::Bytes;
use dormouse_proto::id::FdId;
use dormouse_proto::message::Message;
use dormouse_proto::model::{Delta, ModelError, Reply, Request};

/// How a reply is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// As events, while the model writes.
    #[default]
    Stream,
    /// In one piece, when it is complete.
    Whole,
}

/// Whether the provider is asked to cache what it has read, where its format has words for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Caching {
    /// The frozen part of a request, and the conversation as far as it goes.
    #[default]
    Automatic,
    /// Not asked: for servers that refuse it.
    Off,
}

/// What a request is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A reply.
    Reply(Delivery),
    /// The number of its input tokens.
    Count,
}

/// Whether a provider's cache is to end before a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mark {
    /// No point of its own.
    None,
    /// What stands before it is shared with other processes: its first block is a breakpoint, where
    /// the format has such.
    Breakpoint,
}

/// A message of a conversation, with what its encoding may depend on. It depends on nothing else:
/// so it is encoded once.
#[derive(Clone, Copy, Debug)]
pub struct Turn<'a> {
    /// The message.
    pub message: &'a Message,
    /// The one before it, if there is one.
    pub before: Option<&'a Message>,
    /// The bytes of what it names.
    pub media: &'a BTreeMap<FdId, Bytes>,
    /// Whether a provider's cache is to end before it.
    pub mark: Mark,
}

/// A provider, or the provider whose format a compatible server speaks.
#[derive(Clone, Copy, Debug)]
pub struct Service {
    /// How it is called.
    pub name: &'static str,
    /// Its own server.
    pub base_url: &'static str,
    /// What stands behind an address and before a path.
    pub version: Version,
    /// The header that holds the key.
    pub key_header: &'static str,
    /// What stands before the key in it.
    pub key_scheme: &'static str,
    /// Headers of every request.
    pub headers: &'static [(&'static str, &'static str)],
    /// The environment variables that may hold the key, the first that is set counts.
    pub key_variables: &'static [&'static str],
    /// The environment variable that names another server.
    pub url_variable: &'static str,
}

/// The part of a path that names the version of an API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// It follows every address; one that holds it already may.
    Always(&'static str),
    /// It follows an address without a path; where there is a path, that is the whole.
    WhereBare(&'static str),
}

/// One wire format.
///
/// A body is `head`, the messages with commas between them, and `tail`: so a longer conversation
/// starts with the bytes of the shorter one, up to the bracket that closes it (HIST-1, FORK-2).
pub trait Codec: Clone + Default + Send + Sync + 'static {
    /// The name of the format in [`Raw`](dormouse_proto::message::Raw) blocks.
    const FORMAT: &'static str;
    /// Whose format it is.
    const SERVICE: Service;
    /// Whether a streamed reply is whole before what it cost has come: a stream that is cut between
    /// the two is no cut reply.
    const COST_FOLLOWS: bool = false;
    /// Puts streamed replies together.
    type Decoder: Decoder;

    /// The codec for this server: some dialects differ.
    #[must_use]
    fn at(self, _host: &str) -> Self {
        self
    }

    /// Where the request goes, behind the base URL. None where the format cannot count.
    ///
    /// # Errors
    /// Where the model's name is none that can be asked for.
    fn path(&self, request: &Request, purpose: Purpose) -> Result<Option<String>, ModelError>;

    /// The body up to the messages, the opening bracket included, and whatever stands as messages
    /// but is none.
    ///
    /// # Errors
    /// Where a parameter is not the program's to set, or a schema is no JSON.
    fn head(
        &self,
        request: &Request,
        purpose: Purpose,
        caching: Caching,
    ) -> Result<String, ModelError>;

    /// A message, as one or several elements with commas between them; empty where there is nothing
    /// to send.
    ///
    /// # Errors
    /// Where a kept block is no JSON.
    fn turn(&self, turn: Turn<'_>) -> Result<String, ModelError>;

    /// The body behind the messages, the closing bracket included.
    ///
    /// # Errors
    /// As [`Codec::head`].
    fn tail(&self, request: &Request, purpose: Purpose) -> Result<String, ModelError>;

    /// Reads a reply that came whole.
    ///
    /// # Errors
    /// Where the text is no such reply, or the provider's error where it is one.
    fn decode(&self, json: &str) -> Result<Reply, ModelError>;

    /// The number of tokens that an answer to a request for it holds.
    fn decode_count(&self, json: &str) -> Option<u64>;
}

/// How far a streamed reply has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More must come.
    Open,
    /// The reply has ended; what it cost may follow.
    Ended,
    /// Nothing of it can follow.
    Complete,
}

/// Puts a streamed reply together, event by event.
pub trait Decoder: Default + Send {
    /// Takes in the data of one event and tells `deltas` what it brings to watch.
    ///
    /// # Errors
    /// Where the event makes no sense at its place, or the error that the provider sent in
    /// mid-stream. The decoder is of no further use then.
    fn feed(&mut self, data: &str, deltas: &dyn Fn(Delta)) -> Result<(), ModelError>;

    /// How far the reply has come.
    fn progress(&self) -> Progress;

    /// The reply.
    ///
    /// # Errors
    /// [`CutStream`](dormouse_proto::model::ModelErrorKind::CutStream) where the events ended
    /// before the reply did, [`Malformed`](dormouse_proto::model::ModelErrorKind::Malformed) where
    /// what came is no reply.
    fn finish(self) -> Result<Reply, ModelError>;
}
