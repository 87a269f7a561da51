//! The branches that did not win, and why.

use std::fmt;
use std::time::Duration;

use dormouse_kernel::race::Judgement;
use dormouse_proto::budget::Paused;
use dormouse_proto::id::Pid;
use dormouse_proto::process::Exit;

use super::Judged;
use super::contender::Candidate;
use super::judge::JudgeError;
use crate::error::KernelError;
use crate::handle::effects::ProcessEffect;
use crate::handle::kernel::Kernel;
use crate::held_call::HeldCall;

/// A branch that did not win. It has ended.
#[derive(Clone, Debug)]
pub struct Loser {
    /// The process.
    pub pid: Pid,
    /// Why it lost.
    pub reason: LossReason,
    /// The calls at which it stood. They were not made.
    pub calls: Vec<HeldCall>,
    /// The branch as it was judged. `None` if it was not judged.
    pub candidate: Option<Candidate>,
    /// What it did outside of itself all the same, with the processes of its tree: nothing, unless
    /// the host called a tool of it.
    pub effects: Vec<ProcessEffect>,
}

/// Why a branch did not win.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LossReason {
    /// Another branch won before this one was judged.
    Overtaken,
    /// The judge did not pass it.
    NotPassed(Judgement),
    /// Another branch is better.
    Beaten(Judgement),
    /// The judge has no answer, or its command or schema refused the branch.
    NotJudged(JudgeError),
    /// Its turn failed.
    Ended(Exit),
    /// It did not come to rest in time.
    Overdue(Duration),
    /// It is paused at this limit, or, without one, a process above it is.
    Paused(Option<Paused>),
    /// New branches continue it in a beam search.
    Continued,
    /// The kernel could not run it, or could not end it and list what it did once another branch had
    /// won. The text says why.
    Failed(String),
}

impl LossReason {
    /// The reason of a branch that was not kept or not chosen.
    pub(super) fn of(outcome: &Result<(Candidate, Judgement), Self>) -> Self {
        match outcome {
            Ok((_, judgement)) if judgement.passes => Self::Beaten(*judgement),
            Ok((_, judgement)) => Self::NotPassed(*judgement),
            Err(reason) => reason.clone(),
        }
    }
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overtaken => f.write_str("another branch won before it was judged"),
            Self::NotPassed(judgement) => {
                write!(f, "the judge did not pass it (score {})", judgement.score)
            }
            Self::Beaten(judgement) => {
                write!(
                    f,
                    "another branch is better than its score {}",
                    judgement.score
                )
            }
            Self::NotJudged(error) => error.fmt(f),
            Self::Ended(exit) => {
                let (status, message) = (exit.status.word(), &exit.message);
                write!(f, "it ended as {status}: {message}")
            }
            Self::Overdue(deadline) => write!(f, "it did not come to rest within {deadline:?}"),
            Self::Paused(Some(paused)) => write!(f, "it is paused: {paused}"),
            Self::Paused(None) => f.write_str("a process above it is paused at a limit"),
            Self::Continued => f.write_str("other branches continue it"),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl Loser {
    /// The loser, with the effects of its tree. It has ended.
    pub(super) async fn of(
        kernel: &Kernel,
        judged: Judged,
        (reason, calls): (LossReason, Vec<HeldCall>),
    ) -> Result<Self, KernelError> {
        let pid = judged.contender.process.pid();
        let root = kernel.process_tree(pid).await?.root;
        let mut effects = Vec::new();
        for row in kernel.process_tree(root).await?.rows {
            effects.extend(kernel.effects(row.pid, None).await?.effects);
        }
        Ok(Self {
            pid,
            reason,
            calls,
            candidate: judged.outcome.ok().map(|(candidate, _)| candidate),
            effects,
        })
    }
}
