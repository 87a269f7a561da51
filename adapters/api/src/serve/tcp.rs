//! The way in by TCP: only when it is asked for, and never without a token.

use dormouse_http::server::Hosts;
use tokio::net::TcpListener;

use super::{Admission, ServeError, serve};
use crate::api::ControlApi;
use crate::scope::Tokens;

/// Whom a server on TCP admits.
#[derive(Clone, Debug)]
pub struct TcpSettings {
    /// The names that requests may use for this machine. [`Hosts::Any`] is for a server that other
    /// machines reach, which needs TLS or a proxy with TLS in front of it.
    pub hosts: Hosts,
    /// Origins of web pages that may send requests, such as `https://app.example`, in addition to
    /// the address of the server itself. Clients other than browsers send no origin.
    pub origins: Vec<String>,
    /// The tokens. At least one is needed.
    pub tokens: Tokens,
}

impl ControlApi {
    /// Serves clients by TCP, until `until` resolves or the kernel is shut down.
    ///
    /// # Errors
    /// [`ServeError::Settings`] without a token, [`ServeError::Listener`].
    pub async fn serve_tcp(
        &self,
        listener: TcpListener,
        settings: TcpSettings,
        until: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        if settings.tokens.is_empty() {
            return Err(ServeError::Settings(
                "the control API needs a token: every program of this machine can connect. Make one \
                 with `Token::generate`"
                    .to_owned(),
            ));
        }
        let admission = Admission {
            hosts: settings.hosts,
            origins: settings.origins,
            tokens: settings.tokens,
        };
        serve(self, admission, &listener, |_| None, until).await
    }
}
