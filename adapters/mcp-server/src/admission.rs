//! Decides which clients are admitted over HTTP: by host name, origin, token and number of
//! sessions.

use std::time::Duration;
use std::{fmt, io};

/// The host names that a client may use in the header `Host`. This protects against DNS rebinding:
/// a web page whose name was bound to this machine sends its own name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// The names of this machine: `localhost`, `127.0.0.1` and `::1`.
    Loopback,
    /// Any name. A token is required.
    Any,
}

/// How clients are served over HTTP.
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// The host names that requests may use.
    pub hosts: Hosts,
    /// Origins of web pages that may send requests, in addition to the origins of this machine:
    /// `https://app.example:443`. Clients other than browsers send no origin.
    pub origins: Vec<String>,
    /// The token that each request must carry as `Authorization: Bearer …`; none: no token is
    /// needed.
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

/// A secret that clients send. It is kept as a hash, compared in constant time, and never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(blake3::Hash);

impl Token {
    /// The token with these characters.
    #[must_use]
    pub fn new(secret: &str) -> Self {
        Self(blake3::hash(secret.as_bytes()))
    }

    /// A token that nobody can guess, and its characters: 32 bytes drawn by the operating system,
    /// as hexadecimal digits.
    ///
    /// # Errors
    /// Where the operating system gives no random bytes.
    pub fn draw() -> io::Result<(Self, String)> {
        let mut bytes = [0; 32];
        getrandom::getrandom(&mut bytes)?;
        let secret = blake3::Hash::from_bytes(bytes).to_hex().to_string();
        Ok((Self::new(&secret), secret))
    }

    /// Whether the header `Authorization` carries this token.
    pub(crate) fn matches_header(&self, authorization: Option<&[u8]>) -> bool {
        let shown = authorization.and_then(|header| {
            let (scheme, token) = header.split_at_checked(7)?;
            scheme
                .eq_ignore_ascii_case(b"bearer ")
                .then(|| blake3::hash(token.trim_ascii()))
        });
        shown.is_some_and(|shown| shown == self.0)
    }
}

/// Whether pages of an origin may send requests: pages of this machine, at any port, and pages of
/// the `known` origins.
pub(crate) fn is_origin_allowed(origin: &[u8], known: &[String]) -> bool {
    let parsed = Origin::parse(origin);
    let is_local = parsed
        .as_ref()
        .is_some_and(|origin| LOCAL_MACHINES.contains(&&*origin.machine));
    let is_same = |known: &String| {
        known.as_bytes() == origin
            || (parsed.is_some() && Origin::parse(known.as_bytes()) == parsed)
    };
    is_local || known.iter().any(is_same)
}

/// The names of this machine in an origin.
const LOCAL_MACHINES: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// The origin of a page, from the header `Origin`.
#[derive(PartialEq, Eq)]
struct Origin {
    scheme: &'static str,
    machine: String,
    port: u16,
}

impl Origin {
    /// Parses `scheme://machine` or `scheme://machine:port`. Without a port, the default port of
    /// the scheme is meant.
    fn parse(written: &[u8]) -> Option<Self> {
        let (scheme, rest) = str::from_utf8(written).ok()?.split_once("://")?;
        let (scheme, implied) = [("http", 80), ("https", 443)]
            .into_iter()
            .find(|(name, _)| *name == scheme)?;
        let name_end = if rest.starts_with('[') {
            rest.find(']')? + 1
        } else {
            rest.find(':').unwrap_or(rest.len())
        };
        let (machine, port) = rest.split_at(name_end);
        let port = match port.strip_prefix(':') {
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().ok()?
            }
            None if port.is_empty() => implied,
            _ => return None,
        };
        Some(Self {
            scheme,
            machine: machine.to_ascii_lowercase(),
            port,
        })
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_itself_is_let_in_and_nobody_sees_it() {
        let token = Token::new("open sesame");
        assert!(
            token.matches_header(Some(b"Bearer open sesame"))
                && token.matches_header(Some(b"bearer  open sesame "))
        );
        for wrong in [
            None,
            Some(&b"Bearer "[..]),
            Some(b"Bearer open"),
            Some(b"open sesame"),
            Some(b"Basic open sesame"),
        ] {
            assert!(!token.matches_header(wrong));
        }
        let ((drawn, secret), (_, other)) = (Token::draw().unwrap(), Token::draw().unwrap());
        assert!(drawn.matches_header(Some(format!("Bearer {secret}").as_bytes())));
        assert!(
            secret != other
                && secret.len() == 64
                && secret.bytes().all(|byte| byte.is_ascii_hexdigit())
        );
        assert!(
            !format!(
                "{:?}",
                HttpSettings {
                    token: Some(token),
                    ..HttpSettings::default()
                }
            )
            .contains("sesame")
        );
    }
}
