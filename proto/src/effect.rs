//! The policy for repeated effects.
//!
//! A process can go back to an earlier point (by `goto`, a restore or a branch). What it did
//! outside of itself after that point is still done; these effects are called *beyond* the point. A
//! call that would do the same again repeats such an effect. `kernel/machine/src/process/fence.rs`
//! recognises these calls and applies the policy.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::program::{Keyword, Section};

/// What happens to a call that repeats an effect beyond a point that the process went back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, Keyword)]
#[serde(rename_all = "lowercase")]
pub enum EffectPolicy {
    /// The call does not run. Its answer is the one that was recorded, and says so.
    Recorded,
    /// The call is held until a person decides.
    Ask,
    /// The call runs anew.
    Run,
    /// The call does not run, and is answered with an error.
    Refuse,
}

impl EffectPolicy {
    /// All policies.
    pub const ALL: [Self; 4] = [Self::Recorded, Self::Ask, Self::Run, Self::Refuse];

    /// The word in program files and at the command line.
    #[must_use]
    pub fn word(self) -> &'static str {
        Keyword::word(self)
    }
}

impl fmt::Display for EffectPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for EffectPolicy {
    type Err = UnknownPolicy;

    fn from_str(word: &str) -> Result<Self, UnknownPolicy> {
        let mut policies = Self::ALL.into_iter();
        policies
            .find(|policy| policy.word() == word)
            .ok_or_else(|| UnknownPolicy(word.to_owned()))
    }
}

/// A word that names no [`EffectPolicy`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no policy. Valid: recorded, ask, run, refuse")]
pub struct UnknownPolicy(pub String);

/// How repeated calls of one tool are recognised, and what happens to them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Section)]
pub struct RepeatRule {
    /// What happens to a repeated call of the tool, in place of the policy of the program.
    pub policy: Option<EffectPolicy>,
    /// The arguments that may differ between two calls that do the same, such as a time or the
    /// number of a request: names, or JSON pointers such as `/options/nonce`.
    #[key(max_items = 64)]
    pub volatile: Vec<String>,
    /// The arguments that say which effect a call has: two calls with equal ones do the same,
    /// whatever their other arguments are. Names, or JSON pointers.
    #[key(max_items = 64)]
    pub key: Vec<String>,
}
