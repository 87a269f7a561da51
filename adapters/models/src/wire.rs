//! What every wire format shares: the HTTP client, the body of a request, failures by kind.
//!
//! A [`Codec`] knows one format: how a request becomes bytes and an answer a reply. [`Client`] is a
//! codec behind a server. One call is one HTTP request: nothing is repeated, no redirect is
//! followed (the key would travel along), and nothing is kept between calls but open connections
//! and what was encoded. The key stands in one header and never in an error or in debug output.
//!
//! A slow server is bounded by the time between two bytes ([`Builder::idle_timeout`]), an endless
//! one by [`Builder::reply_cap_bytes`]; how long a whole call may take is the kernel's to say.

mod body;
mod builder;
mod client;
mod codec;
mod encoded;
pub(crate) mod excerpt;
pub(crate) mod failure;
pub(crate) mod fields;
pub(crate) mod ids;
pub(crate) mod media;
pub(crate) mod parameters;
mod retry;
pub(crate) mod schema;
pub(crate) mod usage;

pub use self::body::{Body, encode};
pub use self::builder::Builder;
pub(crate) use self::builder::server;
pub use self::client::Client;
pub use self::codec::{
    Caching, Codec, Decoder, Delivery, Mark, Progress, Purpose, Service, Turn, Version,
};

#[cfg(test)]
mod tests;
