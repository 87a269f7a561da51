//! What a kernel has acknowledged to the outside: told by one process of the operating system
//! before it is killed, and looked up in the store by the next.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use dormouse::content::Content;
use dormouse::id::{FactNumber, Pid};
use dormouse::ports::{Journal, Store, StoreError};
use dormouse::record::codec::{self, CodecError};
use dormouse::{Event, Fact};

/// One thing that was acknowledged, as a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line(String);

impl Line {
    /// What an event acknowledges, if it acknowledges anything.
    ///
    /// # Errors
    /// Those of encoding a fact.
    pub fn of(event: &Event) -> Result<Option<Self>, CodecError> {
        Ok(match event {
            Event::Started { pid, .. } => Some(Self(format!("born {pid}"))),
            Event::Fact { pid, number, fact } => {
                Some(Self::fact(*pid, number.0, &codec::encode(&**fact)?))
            }
            Event::Exited { pid, exit } => {
                Some(Self(format!("exited {pid} {}", exit.status.word())))
            }
            Event::Text { .. }
            | Event::Thinking { .. }
            | Event::ToolCalled { .. }
            | Event::ServerToolCalled { .. }
            | Event::ToolProgress { .. }
            | Event::Retrying { .. }
            | Event::ModelSwitched { .. }
            | Event::CallHeld { .. }
            | Event::HeldCallAnswered { .. }
            | Event::ServerAsks { .. }
            | Event::ServerQuestionClosed { .. }
            | Event::LimitReached { .. }
            | Event::LabelReached { .. }
            | Event::LimitRaised { .. }
            | Event::TurnEnded { .. }
            | Event::Hibernated { .. }
            | Event::Woke { .. }
            | Event::Reopened { .. }
            | Event::Lagged { .. } => None,
        })
    }

    fn fact(pid: Pid, number: u64, bytes: &[u8]) -> Self {
        Self(format!(
            "fact {pid} {number} {}",
            Content::new(bytes.to_vec()).hash()
        ))
    }
}

impl Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a store holds, as far as it is to be found there.
#[derive(Debug, Default)]
pub struct Held {
    lines: BTreeSet<String>,
    /// Facts that a snapshot stands at: there is an image after them, and their bytes cannot be
    /// asked for.
    in_snapshots: BTreeSet<(Pid, u64)>,
    facts: BTreeMap<(Pid, u64), Vec<u8>>,
}

impl Held {
    /// All that `store` holds, read back to the birth of each process.
    ///
    /// # Errors
    /// Those of the store.
    pub fn of(store: &impl Store) -> Result<Self, StoreError> {
        let mut held = Self::default();
        for row in store.processes()?.rows {
            held.lines.insert(format!("born {}", row.pid));
            held.lines.extend(
                row.exit
                    .map(|exit| format!("exited {} {}", row.pid, exit.status.word())),
            );
            let mut up_to = None;
            loop {
                let Journal { base, facts, .. } = store.journal(row.pid, up_to)?;
                for (number, fact) in (base.0 + 1..).zip(facts) {
                    held.lines.insert(Line::fact(row.pid, number, &fact).0);
                    held.facts.insert((row.pid, number), fact);
                }
                let Some(before) = base.0.checked_sub(1) else {
                    break;
                };
                held.in_snapshots.insert((row.pid, base.0));
                up_to = Some(FactNumber(before));
            }
        }
        Ok(held)
    }

    /// The first of `acknowledged` that is not there as it was told.
    #[must_use]
    pub fn lost<'a>(&self, acknowledged: &'a str) -> Option<&'a str> {
        acknowledged
            .lines()
            .find(|line| !self.lines.contains(*line) && !self.is_in_snapshot(line))
    }

    fn is_in_snapshot(&self, line: &str) -> bool {
        let mut words = line.split(' ');
        let (Some("fact"), Some(pid), Some(number)) = (words.next(), words.next(), words.next())
        else {
            return false;
        };
        let (pid, number) = (pid.parse().map(Pid), number.parse());
        matches!((pid, number), (Ok(pid), Ok(number)) if self.in_snapshots.contains(&(pid, number)))
    }

    /// All facts whose bytes are there; `None` where a snapshot hides one.
    #[must_use]
    pub fn all_facts(&self) -> Option<impl Iterator<Item = Result<Fact, CodecError>>> {
        self.in_snapshots
            .is_empty()
            .then(|| self.facts.values().map(|bytes| codec::decode(bytes)))
    }
}
