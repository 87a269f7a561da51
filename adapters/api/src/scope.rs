//! What a client may do, and the tokens that say so.

use std::fmt;

use dormouse_http::server::Token;

/// What a client may do. Each scope includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Read everything that the kernel knows: conversations, descriptors, journals, events.
    Look,
    /// Send inputs to processes, and answer their questions.
    Speak,
    /// Do everything else: start, stop, approve, raise, branch, delete.
    Control,
}

impl Scope {
    /// All scopes.
    pub const ALL: [Self; 3] = [Self::Look, Self::Speak, Self::Control];

    /// The word for it, as in the OpenAPI document.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Look => "look",
            Self::Speak => "speak",
            Self::Control => "control",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// The tokens of a server, each with its scope. Without any, every request is refused.
#[derive(Clone, Debug, Default)]
pub struct Tokens(Vec<(Token, Scope)>);

impl Tokens {
    /// No token: nobody is admitted.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Admits clients that send this token, within this scope.
    #[must_use]
    pub fn with(mut self, token: Token, scope: Scope) -> Self {
        self.0.push((token, scope));
        self
    }

    /// Whether nobody is admitted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The widest scope of the tokens that the header `Authorization` carries. All tokens are
    /// compared, each in constant time.
    pub(crate) fn scope(&self, authorization: Option<&[u8]>) -> Option<Scope> {
        let matching = self.0.iter().map(|(token, scope)| {
            let matches = token.matches_header(authorization);
            matches.then_some(*scope)
        });
        matching.fold(None, Option::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_gives_its_scope_and_no_other() {
        let tokens = Tokens::none()
            .with(Token::new("a-token-to-look"), Scope::Look)
            .with(Token::new("a-token-to-control"), Scope::Control);
        let scope = |header: &str| tokens.scope(Some(header.as_bytes()));
        assert_eq!(scope("Bearer a-token-to-look"), Some(Scope::Look));
        assert_eq!(scope("Bearer a-token-to-control"), Some(Scope::Control));
        assert_eq!(scope("Bearer a-token"), None);
        assert_eq!(tokens.scope(None), None);
        assert_eq!(Tokens::none().scope(Some(b"Bearer ")), None);
        assert!(Scope::Look < Scope::Speak && Scope::Speak < Scope::Control);
    }
}
