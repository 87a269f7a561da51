//! How clients are admitted over HTTP.

use std::time::Duration;

pub use dormouse_http::server::{Hosts, Token};

/// How clients are served over HTTP.
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// The host names that requests may use.
    pub hosts: Hosts,
    /// Origins of web pages that may send requests, in addition to the origins of this machine:
    /// `https://app.example:443`. Clients other than browsers send no origin.
    pub origins: Vec<String>,
    /// The token that each request must carry as `Authorization: Bearer …`; `None` if no token is
    /// required.
    pub token: Option<Token>,
    /// The most sessions that are open at once.
    pub max_sessions: usize,
    /// A session without messages ends after this time, even if a call in it is still running.
    pub idle: Duration,
}

impl Default for HttpSettings {
    fn default() -> Self {
        let idle = Duration::from_secs(60 * 60);
        Self {
            hosts: Hosts::Loopback,
            origins: Vec::new(),
            token: None,
            max_sessions: 64,
            idle,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_do_not_print_their_token() {
        let settings = HttpSettings {
            token: Some(Token::new("open sesame")),
            ..HttpSettings::default()
        };
        assert!(!format!("{settings:?}").contains("sesame"));
    }
}
