//! Authenticates requests to clouds, where no fixed key does.

use std::time::SystemTime;

use dormouse_proto::model::ModelError;
use futures_util::future::BoxFuture;
use reqwest::Url;
use reqwest::header::HeaderMap;

use super::request_body::Body;

/// Where a cloud serves a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CloudLocation {
    /// The project that pays for the calls.
    pub project: Option<String>,
    /// The region of the servers.
    pub region: Option<String>,
}

/// A request that is about to be sent, with JSON as its body.
#[derive(Clone, Copy, Debug)]
pub struct UnsignedRequest<'a> {
    /// The address.
    pub url: &'a Url,
    /// The region of the server, if it is known.
    pub region: Option<&'a str>,
    /// The body.
    pub body: &'a Body,
    /// The present time.
    pub now: SystemTime,
}

/// Produces the headers that authenticate a request.
pub trait Authenticator: Send + Sync {
    /// Whether a server on this machine gets these headers too.
    fn is_for_this_machine_too(&self) -> bool;

    /// The secrets among the credentials, which no error may show.
    fn secrets(&self) -> Vec<String>;

    /// The headers of one request. Those that are secret are marked as sensitive.
    ///
    /// # Errors
    /// [`Authentication`](dormouse_proto::model::ModelErrorKind::Authentication) if there are no
    /// valid credentials.
    fn authenticate<'a>(
        &'a self,
        request: UnsignedRequest<'a>,
    ) -> BoxFuture<'a, Result<HeaderMap, ModelError>>;
}
