//! A race: several speculative branches of one point, of which one is chosen.
//!
//! Each branch runs until it has come to rest: its turn has ended, or it stands at a call that acts
//! outside of it (SPEC-1). There it is judged. The winner is chosen, so that its calls are made, and
//! the others are ended. Which one wins is decided by [`dormouse_kernel::race`]. In a beam search
//! there are several *levels*: new branches continue the best ones of the level before.
//!
//! `race/contender.rs` runs one branch until it can be judged, `race/judge.rs` asks the judge, and
//! `race/loser.rs` says why a branch did not win.
//!
//! A race itself is not stored. If the host stops in the middle, its branches are in the store as
//! speculative processes, none of which acts outside of itself.

mod contender;
mod judge;
mod loser;

use std::future::{Future, IntoFuture};
use std::sync::Arc;
use std::time::Duration;

use dormouse_kernel::program::{Program, ValueSchema};
use dormouse_kernel::race::{self, Judgement, RacePolicy};
use dormouse_proto::budget::Budget;
use dormouse_proto::checkpoint::Scope;
use dormouse_proto::effect::EffectPolicy;
use dormouse_proto::id::Pid;
use dormouse_proto::user_input::UserInput;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, try_join_all};
use futures_util::stream::{FuturesUnordered, StreamExt};

pub use self::contender::Candidate;
use self::contender::{Contender, KillGuard, NoCandidate};
use self::judge::Judge;
pub use self::judge::JudgeError;
pub use self::loser::{Loser, LossReason};
use super::branch::Position;
use super::kernel::Kernel;
use super::process::Process;
use super::temporary_checkpoint::TemporaryCheckpoint;
use crate::error::{KernelError, RaceError};

/// The most branches of one level.
const MAX_BRANCHES: u32 = 1_000;
/// How long a judge may take for one candidate, unless the race says otherwise.
const JUDGE_LIMIT: Duration = Duration::from_secs(120);
/// The input by which a branch of a later level continues, if the race gives none.
const CONTINUE: &str = "Continue.";

/// A race to be run: `.await` runs it, and returns once a branch has won and the others have ended.
/// If the future is dropped, all branches are ended.
#[derive(Debug)]
#[must_use = "a race is run when this is awaited"]
pub struct Race {
    kernel: Kernel,
    pid: Pid,
    at: Position,
    branches: u32,
    inputs: Vec<UserInput>,
    budget: Option<Budget>,
    effects: Option<EffectPolicy>,
    judge: Judge,
    judge_limit: Duration,
    deadline: Option<Duration>,
    policy: RacePolicy,
    original: Original,
}

/// What becomes of the tree that the branches are made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Original {
    Stays,
    IsEnded,
}

/// What came of a race that a branch has won.
#[derive(Debug)]
pub struct RaceResult {
    /// The branch that was chosen. It goes on: its calls are made, under the rules of its program.
    pub winner: Process,
    /// The winner as it was judged.
    pub candidate: Candidate,
    /// What the judge said about it.
    pub judgement: Judgement,
    /// The other branches, which have ended, in the order in which they were made.
    pub losers: Vec<Loser>,
}

/// A branch that was judged, or that cannot be.
struct Judged {
    contender: Contender,
    kill_guard: KillGuard,
    outcome: Result<(Candidate, Judgement), LossReason>,
}

impl Judged {
    fn judgement(&self) -> Option<Judgement> {
        let (_, judgement) = self.outcome.as_ref().ok()?;
        Some(*judgement)
    }
}

impl Race {
    /// The inputs that the branches get before they continue, in turn: the first branch gets the
    /// first input. With fewer inputs than branches they are used again. Without an input, each
    /// branch continues as the original would have.
    pub fn inputs<I: Into<UserInput>>(mut self, inputs: impl IntoIterator<Item = I>) -> Self {
        self.inputs = inputs.into_iter().map(Into::into).collect();
        self
    }

    /// What each branch may use from the point on, with its descendants. Limits of the original hold
    /// as well.
    pub fn budget(mut self, budget: Budget) -> Self {
        self.budget = Some(budget);
        self
    }

    /// A function of the embedder judges each branch.
    pub fn judge<F, R>(mut self, function: F) -> Self
    where
        F: Fn(Candidate) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Judgement, JudgeError>> + Send + 'static,
    {
        self.judge = Judge::Function(Arc::new(move |candidate| function(candidate).boxed()));
        self
    }

    /// A command judges each branch: program and arguments. It runs under the permissions of the
    /// host, as any command, and reads the candidate as JSON ([`Candidate::json`]) from its standard
    /// input. With exit code 0 the branch passes; if the last word that it prints is a number, that
    /// is the score.
    pub fn judge_command<S: Into<String>>(mut self, argv: impl IntoIterator<Item = S>) -> Self {
        self.judge = Judge::Command(argv.into_iter().map(Into::into).collect());
        self
    }

    /// A branch passes if the schema accepts the arguments of the calls at which it stands, or its
    /// result, or its message as JSON.
    pub fn judge_schema(mut self, schema: ValueSchema) -> Self {
        self.judge = Judge::Schema(schema);
        self
    }

    /// A process of this program judges each branch: its input is the candidate as JSON
    /// ([`Candidate::json`]), and it submits `{"pass": true, "score": 0.5}`, for which the program
    /// has a `[result]` schema. `score` may be left out.
    pub fn judge_program(mut self, program: Program) -> Self {
        self.judge = Judge::Program(program);
        self
    }

    /// How long a judge may take for one branch, 2 minutes by default. After that the branch does
    /// not pass.
    pub fn judge_limit(mut self, limit: Duration) -> Self {
        self.judge_limit = limit;
        self
    }

    /// How long a branch may take until it is judged; by default there is no limit but its budget.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// How the winner is found: by default the first branch that passes wins.
    pub fn policy(mut self, policy: RacePolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Names what happens to calls that repeat what the original did beyond the point, as
    /// [`Branch::effects`](super::Branch::effects) does.
    pub fn effects(mut self, policy: EffectPolicy) -> Self {
        self.effects = Some(policy);
        self
    }

    /// Ends the original tree once a branch has won, which then stands in its place. A name that the
    /// original has is not handed over.
    pub fn replace_original(mut self) -> Self {
        self.original = Original::IsEnded;
        self
    }

    async fn run(self) -> Result<RaceResult, KernelError> {
        if !(1..=MAX_BRANCHES).contains(&self.branches) {
            let limit = MAX_BRANCHES;
            return Err(RaceError::Branches { limit }.into());
        }
        self.judge.check(&self.kernel).map_err(RaceError::Judge)?;
        let mut losers = Vec::new();
        let mut kept = self.first_level(&mut losers).await?;
        for level in 2..=self.policy.depth() {
            if !kept.iter().any(can_continue) {
                break;
            }
            kept = self.next_level(level, kept, &mut losers).await?;
        }
        self.finish(kept, losers).await
    }

    /// Makes the branches of the point, and runs and judges them.
    async fn first_level(&self, losers: &mut Vec<Loser>) -> Result<Vec<Judged>, KernelError> {
        let (at, temporary) = self.fix_point().await?;
        let branches = (0..self.branches).map(|_| self.make((self.pid, at)));
        let branches = try_join_all(branches).await?;
        drop(temporary);
        let contenders = numbered(branches, 1);
        let judged = self.judge_all(contenders, &self.inputs).await;
        self.keep(judged, losers).await
    }

    /// Continues the branches that were kept by new ones. Those that stand at a call stay as they
    /// are.
    async fn next_level(
        &self,
        level: u32,
        kept: Vec<Judged>,
        losers: &mut Vec<Loser>,
    ) -> Result<Vec<Judged>, KernelError> {
        let (parents, mut judged): (Vec<_>, Vec<_>) = kept.into_iter().partition(can_continue);
        let of_parents = race::parents_of_level(self.branches as usize, parents.len());
        let mut branches = Vec::new();
        for parent in of_parents {
            let parent = parents[parent].contender.process.pid();
            branches.push(self.make((parent, Position::Now)).await?);
        }
        let contenders = numbered(branches, level);
        for parent in parents {
            losers.push(self.end(parent, LossReason::Continued).await?);
        }
        let inputs = match self.inputs.is_empty() {
            true => &[CONTINUE.into()],
            false => &self.inputs[..],
        };
        judged.extend(self.judge_all(contenders, inputs).await);
        self.keep(judged, losers).await
    }

    /// The point of the race. The present is fixed by a checkpoint, so that all branches begin with
    /// the same bytes.
    async fn fix_point(&self) -> Result<(Position, Option<TemporaryCheckpoint>), KernelError> {
        if self.at != Position::Now {
            return Ok((self.at, None));
        }
        let root = self.kernel.process_tree(self.pid).await?.root;
        let made = self
            .kernel
            .make_checkpoint(root, Scope::Tree, "race".into());
        let (checkpoint, guard) = made.await?;
        let temporary = TemporaryCheckpoint::new(&self.kernel, Some(guard));
        Ok((checkpoint.id.into(), Some(temporary)))
    }

    /// Makes a branch, with a guard that ends it. That happens in a task of its own: the branch gets
    /// its guard also if this future is dropped while the branch is made.
    async fn make(
        &self,
        (pid, at): (Pid, Position),
    ) -> Result<(Contender, KillGuard), KernelError> {
        let mut branch = self.kernel.branch(pid, at).speculative().stopped();
        if let Some(budget) = self.budget {
            branch = branch.budget(budget);
        }
        if let Some(effects) = self.effects {
            branch = branch.effects(effects);
        }
        let making = async move {
            let contender = Contender::new(branch.await?).await?;
            let guard = contender.guard();
            Ok::<_, KernelError>((contender, guard))
        };
        tokio::spawn(making).await?
    }

    /// Runs and judges branches concurrently, and returns them in the order in which they were
    /// made. If one wins at once, the others are not waited for.
    async fn judge_all(
        &self,
        contenders: Vec<(Contender, KillGuard)>,
        inputs: &[UserInput],
    ) -> Vec<Judged> {
        let mut outcomes: Vec<_> = contenders
            .iter()
            .map(|_| Err(LossReason::Overtaken))
            .collect();
        let running = contenders.iter().enumerate().map(|(at, (contender, _))| {
            let input = inputs.get(at % inputs.len().max(1)).cloned();
            self.run_and_judge(contender, input)
                .map(move |outcome| (at, outcome))
        });
        let mut running: FuturesUnordered<_> = running.collect();
        while let Some((at, outcome)) = running.next().await {
            let judgement = outcome.as_ref().ok().map(|(_, judgement)| *judgement);
            outcomes[at] = outcome;
            if judgement.is_some_and(|judgement| self.policy.wins_at_once(&judgement)) {
                break;
            }
        }
        drop(running);
        let judged = contenders.into_iter().zip(outcomes);
        judged
            .map(|((contender, kill_guard), outcome)| Judged {
                contender,
                kill_guard,
                outcome,
            })
            .collect()
    }

    async fn run_and_judge(
        &self,
        contender: &Contender,
        input: Option<UserInput>,
    ) -> Result<(Candidate, Judgement), LossReason> {
        let candidate = contender.run(input, self.deadline).await;
        let candidate = candidate.map_err(|reason| match reason {
            NoCandidate::Ended(exit) => LossReason::Ended(exit),
            NoCandidate::Overdue(deadline) => LossReason::Overdue(deadline),
            NoCandidate::Paused(paused) => LossReason::Paused(paused),
            NoCandidate::Kernel(error) => LossReason::Failed(error.to_string()),
        })?;
        let judging = self
            .judge
            .judge(&self.kernel, candidate.clone(), self.judge_limit);
        match judging.await {
            Ok(judgement) => Ok((candidate, judgement)),
            Err(error) => Err(LossReason::NotJudged(error)),
        }
    }

    /// Ends the branches that the policy does not keep. Returns those that it keeps, best first.
    async fn keep(
        &self,
        judged: Vec<Judged>,
        losers: &mut Vec<Loser>,
    ) -> Result<Vec<Judged>, KernelError> {
        let judgements: Vec<_> = judged.iter().map(Judged::judgement).collect();
        let best = self.policy.kept(&judgements);
        let mut judged: Vec<_> = judged.into_iter().map(Some).collect();
        let kept = best.iter().filter_map(|at| judged[*at].take()).collect();
        let mut lost = Vec::new();
        for judged in judged.into_iter().flatten() {
            let reason = LossReason::of(&judged.outcome);
            lost.push(self.end(judged, reason).await?);
        }
        losers.extend(lost);
        Ok(kept)
    }

    /// Chooses the winner among the branches that were kept, and ends the others.
    async fn finish(
        &self,
        mut kept: Vec<Judged>,
        mut losers: Vec<Loser>,
    ) -> Result<RaceResult, KernelError> {
        let judgements: Vec<_> = kept.iter().map(Judged::judgement).collect();
        let mut won = None;
        if let Some(at) = race::winner(&judgements) {
            let mut winner = kept.remove(at);
            // The choice comes before the end of the original: if the host stops in between, both
            // are there, never neither.
            winner.contender.process.choose().await?;
            winner.kill_guard.release();
            let process = winner.contender.process;
            won = winner.outcome.ok().map(|outcome| (process, outcome));
        }
        for judged in kept {
            let reason = LossReason::of(&judged.outcome);
            losers.push(match won.is_some() {
                true => self.end_after_choice(judged, reason).await,
                false => self.end(judged, reason).await?,
            });
        }
        losers.sort_by_key(|loser| loser.pid);
        let Some((winner, (candidate, judgement))) = won else {
            return Err(RaceError::NonePassed { losers }.into());
        };
        if self.original == Original::IsEnded {
            let root = self.kernel.process_tree(self.pid).await?.root;
            let original = self.kernel.process(root).await?;
            if original.exit().is_none() {
                original.tree().kill().await?;
            }
        }
        Ok(RaceResult {
            winner,
            candidate,
            judgement,
            losers,
        })
    }

    /// Ends a branch, and lists what it did.
    async fn end(&self, mut judged: Judged, reason: LossReason) -> Result<Loser, KernelError> {
        let calls = judged.contender.calls();
        judged.contender.kill().await?;
        judged.kill_guard.release();
        Loser::of(&self.kernel, judged, (reason, calls)).await
    }

    /// As [`end`](Self::end), after the choice of the winner. The winner acts, whatever fails for a
    /// loser.
    async fn end_after_choice(&self, judged: Judged, reason: LossReason) -> Loser {
        let pid = judged.contender.process.pid();
        let calls = judged.contender.calls();
        let outcome = judged.outcome.as_ref().ok();
        let candidate = outcome.map(|(candidate, _)| candidate.clone());
        match self.end(judged, reason).await {
            Ok(loser) => loser,
            // The guard of a branch that could not be ended has tried it again.
            Err(error) => Loser {
                pid,
                reason: LossReason::Failed(error.to_string()),
                calls,
                candidate,
                effects: Vec::new(),
            },
        }
    }
}

/// Numbers the branches of a level in the order of their pids. They were made at the same time.
fn numbered(mut branches: Vec<(Contender, KillGuard)>, level: u32) -> Vec<(Contender, KillGuard)> {
    branches.sort_by_key(|(contender, _)| contender.process.pid());
    for (branch, (contender, _)) in (1..).zip(&mut branches) {
        contender.branch = branch;
        contender.level = level;
    }
    branches
}

fn can_continue(judged: &Judged) -> bool {
    let outcome = judged.outcome.as_ref();
    outcome.is_ok_and(|(candidate, _)| candidate.can_continue())
}

impl IntoFuture for Race {
    type Output = Result<RaceResult, KernelError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl Kernel {
    /// Begins a race between `branches` branches of a point, at most 1,000: each is a
    /// [speculative](super::Branch::speculative) branch of the tree of `pid`, and begins with the
    /// same bytes, so that a provider's cache serves all of them. A branch runs until its turn has
    /// ended or it stands at a call that acts outside of it; then it is judged. The winner is chosen,
    /// which makes its calls, and the others are ended. Nothing that a loser asked for is done:
    /// each stands in [`RaceResult::losers`] with its calls and its effects.
    ///
    /// By default every branch passes, and the first one that has come to rest wins. The original is
    /// not affected, and the caller goes on with [`RaceResult::winner`], unless
    /// [`replace_original`](Race::replace_original) ends it.
    ///
    /// A branch whose children, made before the point, stand at their writes does not come to rest:
    /// give such a race a [`deadline`](Race::deadline).
    ///
    /// Costs a [branch](Kernel::branch) for each one, and what the models and the judge cost.
    ///
    /// # Errors
    /// When awaited: those of [`Kernel::branch`], and [`KernelError::Race`]:
    /// [`NonePassed`](RaceError::NonePassed) with all branches and why each one lost,
    /// [`Judge`](RaceError::Judge) if the judge cannot be asked, which is found out before a branch
    /// is made.
    pub fn race(&self, pid: Pid, at: impl Into<Position>, branches: u32) -> Race {
        Race {
            kernel: self.clone(),
            pid,
            at: at.into(),
            branches,
            inputs: Vec::new(),
            budget: None,
            effects: None,
            judge: Judge::PassesAll,
            judge_limit: JUDGE_LIMIT,
            deadline: None,
            policy: RacePolicy::default(),
            original: Original::Stays,
        }
    }
}
