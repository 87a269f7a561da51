//! `dormouse race`: makes several speculative branches of a position, runs the one that wins to its
//! end, and lists the others, which are ended. Nothing that a loser asked for is done.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use dormouse::effect::EffectPolicy;
use dormouse::program::ValueSchema;
use dormouse::{Budget, Kernel, KernelError, Loser, RaceError, RacePolicy, RaceResult};
use serde_json::{Value, json};

use crate::args::{RunFlags, Store, parse_text};
use crate::effects::{effect_json, effect_line};
use crate::event_printer::EventPrinter;
use crate::failure::Failure;
use crate::kernel_setup::{KernelSetup, load_program};
use crate::process_position::ProcessPosition;
use crate::process_trees::{Trees, isolate_others};
use crate::requirements::warn_of_missing_permissions;
use crate::run_to_end::{WhenAsleep, run_to_end, shut_down_early};
use crate::stop_signals::StopSignals;
use crate::terminal::{self, OutputFormat, one_line, print_stderr};

/// `dormouse race`
#[derive(Debug, Args)]
pub(crate) struct Race {
    /// Where the branches begin: PID (as it is now), PID@FACT or PID@cp:N. The whole tree of the
    /// process is branched.
    #[arg(value_name = "POSITION")]
    pub(crate) position: ProcessPosition,
    #[command(flatten)]
    pub(crate) store: Store,
    /// How many branches there are, in a beam search on each level.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) branches: u32,
    /// The input of a branch before it continues. Given several times, the branches get them in
    /// turn.
    #[arg(long, value_name = "TEXT", value_parser = parse_text)]
    pub(crate) input: Vec<String>,
    /// A command that judges: program and arguments, separated by spaces. It reads the branch as
    /// JSON from its standard input. Exit code 0 passes, and a number as its last word is the score.
    /// It needs the permission of any command: --allow-run.
    #[arg(long, value_name = "COMMAND", group = "judged_by")]
    pub(crate) judge_command: Option<String>,
    /// A file with a JSON Schema: a branch passes if the schema accepts the arguments of its call,
    /// or its result.
    #[arg(long, value_name = "FILE", group = "judged_by")]
    pub(crate) judge_schema: Option<PathBuf>,
    /// A program that judges: it gets the branch as JSON, and its result is
    /// {"pass": true, "score": 0.5}.
    #[arg(long, value_name = "PROGRAM", group = "judged_by")]
    pub(crate) judge: Option<PathBuf>,
    /// How the winner is found.
    #[arg(long, value_enum, default_value_t = Policy::First)]
    pub(crate) policy: Policy,
    /// With --policy beam: how many branches of a level are continued.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) width: u32,
    /// With --policy beam: how many levels there are.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) depth: u32,
    /// The output tokens that each branch may use.
    #[arg(long, value_name = "N")]
    pub(crate) output_tokens: Option<u64>,
    /// How many seconds a branch may take until it is judged.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) deadline: Option<u64>,
    /// End the original once a branch has won.
    #[arg(long)]
    pub(crate) replace: bool,
    /// What happens to calls that repeat what the original did beyond the position: recorded, ask,
    /// run or refuse.
    #[arg(long, value_name = "POLICY")]
    pub(crate) effects: Option<EffectPolicy>,
    #[command(flatten)]
    pub(crate) flags: RunFlags,
}

/// The words of `--policy`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Policy {
    /// The first branch that passes wins.
    First,
    /// The one with the highest score of those that pass wins.
    Best,
    /// The best ones of each level are continued.
    Beam,
}

impl Race {
    fn policy(&self) -> RacePolicy {
        let (width, depth) = (self.width, self.depth);
        match self.policy {
            Policy::First => RacePolicy::FirstToPass,
            Policy::Best => RacePolicy::BestOf,
            Policy::Beam => RacePolicy::Beam { width, depth },
        }
    }

    fn prepare(&self, kernel: &Kernel) -> Result<dormouse::Race, Failure> {
        let ProcessPosition { pid, at } = self.position;
        let mut race = kernel
            .race(pid, at, self.branches)
            .inputs(self.input.iter().map(String::as_str))
            .policy(self.policy());
        if let Some(command) = &self.judge_command {
            race = race.judge_command(command.split_whitespace());
        }
        if let Some(file) = &self.judge_schema {
            race = race.judge_schema(
                read_schema(file)
                    .map_err(|error| Failure::Usage(format!("{}: {error:#}", file.display())))?,
            );
        }
        if let Some(file) = &self.judge {
            race = race.judge_program(load_program(kernel, file)?);
        }
        if let Some(policy) = self.effects {
            race = race.effects(policy);
        }
        if let Some(seconds) = self.deadline {
            race = race.deadline(Duration::from_secs(seconds));
        }
        if self.output_tokens.is_some() {
            race = race.budget(Budget {
                output_tokens: self.output_tokens,
                ..Budget::default()
            });
        }
        Ok(match self.replace {
            true => race.replace_original(),
            false => race,
        })
    }
}

fn read_schema(file: &PathBuf) -> anyhow::Result<ValueSchema> {
    let text = std::fs::read_to_string(file)?;
    let schema = serde_json::from_str(&text).context("it is not JSON")?;
    Ok(ValueSchema::parse(schema)?)
}

/// Runs a race, and the winner to its end. Exits with 1 if no branch passes.
pub(crate) async fn race(args: Race) -> Result<ExitCode, Failure> {
    let kernel = KernelSetup::on(&args.store)
        .run_flags(&args.flags)
        .open_existing()
        .await?;
    let race = args.prepare(&kernel)?;
    let format = OutputFormat::from_json_flag(args.flags.json);
    let events = EventPrinter::of_run(&kernel, &args.flags);
    let mut stop = StopSignals::listen()?;
    let store = Some(args.store.folder.as_path());
    // Only the branches run: every existing tree is isolated.
    isolate_others(&kernel, &[]).await?;
    let program = kernel.inspect(args.position.pid).await?.program;
    warn_of_missing_permissions(&kernel, &[program]);
    let outcome = tokio::select! {
        outcome = async { race.await } => outcome,
        code = stop.next() => return shut_down_early(kernel, events, store, stop, code).await,
    };
    match outcome {
        Ok(RaceResult { winner, losers, .. }) => {
            print_losers(&losers, format)?;
            let root = Trees::new(kernel.processes().await?)
                .root_of(winner.pid())
                .unwrap_or(winner.pid());
            let root = kernel.process(root).await?;
            drop(winner);
            let when_asleep = WhenAsleep::from_flags(&args.flags, store);
            run_to_end(kernel, root.into(), when_asleep, events, stop, store).await
        }
        Err(error) => {
            let closed = kernel.shutdown().await;
            events.finish().await;
            let KernelError::Race(RaceError::NonePassed { losers }) = error else {
                return Err(error.into());
            };
            print_losers(&losers, format)?;
            closed?;
            Err(Failure::Run("no branch passed".to_owned()))
        }
    }
}

fn print_losers(losers: &[Loser], format: OutputFormat) -> Result<(), Failure> {
    let mut out = terminal::stdout();
    for loser in losers {
        match format {
            OutputFormat::Json => writeln!(out, "{}", terminal::escaped_json(&loser_json(loser)))?,
            OutputFormat::Text => {
                let lines = loser_lines(loser);
                lines.iter().for_each(|line| print_stderr(&one_line(line)));
            }
        }
    }
    Ok(())
}

/// Why a branch lost, what it wanted to do and was not done, and what it did all the same.
fn loser_lines(loser: &Loser) -> Vec<String> {
    let pid = loser.pid;
    let mut lines = vec![format!("process {pid} lost: {}", loser.reason)];
    let calls = loser.calls.iter();
    lines.extend(calls.map(|call| format!("  not done: {} {}", call.tool, call.args)));
    let effects = loser.effects.iter();
    lines.extend(effects.map(|effect| format!("  done: {}", effect_line(effect))));
    lines
}

/// A loser as JSON. Scripts read it: `docs/speculation.md`.
fn loser_json(loser: &Loser) -> Value {
    let candidate = loser.candidate.as_ref().map(|candidate| candidate.json());
    let calls = loser.calls.iter().map(|call| {
        let args = serde_json::from_str(&call.args);
        let args: Value = args.unwrap_or_else(|_| (&*call.args).into());
        json!({ "tool": &*call.tool, "args": args })
    });
    let calls: Vec<_> = calls.collect();
    let effects: Vec<_> = loser.effects.iter().map(effect_json).collect();
    json!({
        "event": "lost", "pid": loser.pid.0, "reason": loser.reason.to_string(),
        "candidate": candidate, "calls": calls, "effects": effects,
    })
}

#[cfg(test)]
mod tests {
    use dormouse::id::{CallId, Pid, ProcessCallId};
    use dormouse::record::HoldReason;
    use dormouse::{HeldCall, LossReason};

    use super::*;

    #[test]
    fn a_loser_that_was_not_judged_lists_its_calls() {
        let (pid, call) = (Pid(2), CallId { epoch: 1, seq: 1 });
        let call = HeldCall {
            id: ProcessCallId { pid, call },
            tool: "publish".into(),
            args: r#"{"version": "2.4"}"#.into(),
            reason: HoldReason::Speculation,
            question: None,
            since_ms: 0,
            expires_ms: None,
        };
        let loser = Loser {
            pid,
            reason: LossReason::Overtaken,
            calls: vec![call],
            candidate: None,
            effects: Vec::new(),
        };
        let expected = json!([{ "tool": "publish", "args": { "version": "2.4" } }]);
        assert_eq!(loser_json(&loser)["calls"], expected);
    }
}
