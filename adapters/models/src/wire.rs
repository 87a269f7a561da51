//! The parts that all wire formats share: the HTTP client, the body of a request, and the
//! classification of failures.
//!
//! A [`Codec`] implements one format: it encodes requests and decodes replies. [`Client`] combines
//! a codec with a server. One call is one HTTP request: nothing is retried, no redirect is followed
//! (a redirect would send the key to another server), and only open connections and encoded
//! messages are kept between calls. The key is sent in one header, and never appears in an error or
//! in debug output.
//!
//! [`Builder::idle_timeout`] bounds the time between two bytes, [`Builder::reply_cap_bytes`] the
//! size of a reply. The kernel decides how long a whole call may take.

pub(crate) mod address;
mod authentication;
pub(crate) mod body;
mod builder;
pub(crate) mod call_ids;
mod client;
#[cfg(any(feature = "bedrock", feature = "vertex"))]
pub(crate) mod cloud_name;
mod codec;
mod events;
pub(crate) mod excerpt;
mod exchange;
pub(crate) mod failure;
mod files;
pub(crate) mod json_fields;
pub(crate) mod media;
mod message_cache;
pub(crate) mod parameters;
mod request_body;
mod retry_after;
pub(crate) mod schema;
pub(crate) mod sources;
mod strict_args;
mod strict_schema;
mod surrogates;
pub(crate) mod tools;
pub(crate) mod usage;

pub use self::authentication::{Authenticator, CloudLocation, UnsignedRequest};
pub use self::builder::Builder;
pub(crate) use self::builder::{Credential, Header};
pub use self::client::Client;
pub(crate) use self::codec::input_tokens_in;
pub use self::codec::{
    Codec, Completeness, Decoder, Delivery, MessageContext, Purpose, Service, Version,
};
pub use self::files::FileLink;
pub(crate) use self::files::is_path_segment;
pub(crate) use self::request_body::system_prompt;
pub use self::request_body::{Body, encode};

#[cfg(test)]
mod tests;
