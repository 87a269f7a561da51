//! Words that can be followed: every text that comes into the world carries one, and is known by it
//! wherever it turns up.
//!
//! A token is ten characters, `~`, six digits, two of a check, `~`: what was cut in the middle of
//! one is none.

use dormouse_proto::id::Pid;

pub(crate) type Token = u32;

/// Who each token was made for; it is told to nobody else by the world.
#[derive(Default)]
pub(crate) struct Tokens(Vec<Option<Pid>>);

impl Tokens {
    /// A new token for a process; for none where everybody may know it.
    pub(crate) fn make(&mut self, owner: Option<Pid>) -> String {
        let token = self.0.len() as Token;
        self.0.push(owner);
        written(token)
    }

    pub(crate) fn is_for(&self, token: Token, pid: Pid) -> bool {
        match self.0.get(token as usize) {
            Some(Some(owner)) => *owner == pid,
            Some(None) => true,
            None => false,
        }
    }

    pub(crate) fn is_public(&self, token: Token) -> bool {
        self.0.get(token as usize).is_some_and(Option::is_none)
    }
}

pub(crate) fn written(token: Token) -> String {
    format!("~{token:06x}{:02x}~", check(token))
}

fn check(token: Token) -> u32 {
    token.wrapping_mul(0x9E37_79B1).wrapping_add(0x5A5A_5A5A) >> 24
}

/// Hands every token in `text` to `found`.
pub(crate) fn tokens_in(text: &str, found: &mut impl FnMut(Token)) {
    let mut rest = text;
    while let Some(at) = rest.find('~') {
        rest = &rest[at + 1..];
        let Some(digits) = rest
            .get(..8)
            .filter(|_| rest.as_bytes().get(8) == Some(&b'~'))
        else {
            continue;
        };
        if let (Ok(token), Ok(given)) = (
            u32::from_str_radix(&digits[..6], 16),
            u32::from_str_radix(&digits[6..], 16),
        ) && given == check(token)
        {
            found(token);
        }
    }
}
