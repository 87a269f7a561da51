//! Who is let in over HTTP: by address, by token, and by how many there are.

use std::time::Duration;
use std::{fmt, io};

/// The names by which clients may call this server, as the header `Host` says: a page of the web
/// that a name was bound to this machine for says another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// Those of this machine: `localhost`, `127.0.0.1` and `::1`.
    Loopback,
    /// Any: only together with a token.
    Any,
}

/// How clients are served over HTTP.
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// By which names.
    pub hosts: Hosts,
    /// The origins, beside those of this machine, whose pages may call: `https://app.example:443`.
    /// Clients that are no browsers say none.
    pub origins: Vec<String>,
    /// What each request must bring as `Authorization: Bearer …`.
    pub token: Option<Token>,
    /// Sessions at once.
    pub max_sessions: usize,
    /// A session in which nothing was said for so long ends. A call that takes longer goes with it.
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

/// A secret that a client shows. It is compared in constant time and shown to nobody.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(blake3::Hash);

impl Token {
    /// The token of these characters.
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

    /// Whether a header `Authorization` shows it.
    pub(crate) fn is_shown_in(&self, authorization: Option<&[u8]>) -> bool {
        let shown = authorization.and_then(|header| {
            let (scheme, token) = header.split_at_checked(7)?;
            scheme
                .eq_ignore_ascii_case(b"bearer ")
                .then(|| blake3::hash(token.trim_ascii()))
        });
        shown.is_some_and(|shown| shown == self.0)
    }
}

/// Whether pages of an origin may call: those of this machine, at any port, and those of `known`
/// origins.
pub(crate) fn is_origin_let_in(origin: &[u8], known: &[String]) -> bool {
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

/// The names of this machine, as an origin writes them.
const LOCAL_MACHINES: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// The origin of a page, as the header `Origin` names it.
#[derive(PartialEq, Eq)]
struct Origin {
    scheme: &'static str,
    machine: String,
    port: u16,
}

impl Origin {
    /// `scheme://machine` or `scheme://machine:port`, and nothing more. A port is digits; without
    /// one it is the scheme's.
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
            token.is_shown_in(Some(b"Bearer open sesame"))
                && token.is_shown_in(Some(b"bearer  open sesame "))
        );
        for wrong in [
            None,
            Some(&b"Bearer "[..]),
            Some(b"Bearer open"),
            Some(b"open sesame"),
            Some(b"Basic open sesame"),
        ] {
            assert!(!token.is_shown_in(wrong));
        }
        let ((drawn, secret), (_, other)) = (Token::draw().unwrap(), Token::draw().unwrap());
        assert!(drawn.is_shown_in(Some(format!("Bearer {secret}").as_bytes())));
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
