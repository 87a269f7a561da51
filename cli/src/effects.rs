//! `dormouse effects`: lists what a process did outside of itself, such as a branch that is given
//! up.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use dormouse::ProcessEffect;
use dormouse::api::view::EffectView;
use dormouse::id::Pid;
use dormouse::record::EffectPlace;
use serde_json::{Value, json};

use crate::args::Store;
use crate::failure::Failure;
use crate::process_position::ProcessPosition;
use crate::read_only::open_read_only;
use crate::terminal::{self, one_line, print_stderr};

/// `dormouse effects`
#[derive(Debug, Args)]
pub(crate) struct Effects {
    /// The process.
    #[arg(value_name = "PID")]
    pub(crate) pid: u64,
    #[command(flatten)]
    pub(crate) store: Store,
    /// List only what was done after this position: a fact, or a checkpoint such as cp:3.
    #[arg(long, value_name = "POSITION")]
    pub(crate) since: Option<String>,
    /// Print one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Lists the effects of a process, oldest first.
pub(crate) async fn effects(args: Effects) -> Result<ExitCode, Failure> {
    let since = match &args.since {
        None => None,
        Some(since) => {
            let position: Result<ProcessPosition, _> = format!("{}@{since}", args.pid).parse();
            let position = position.map_err(|_| {
                Failure::Usage(format!("'{since}' is not a position: write FACT or cp:N"))
            })?;
            Some(position.at)
        }
    };
    let kernel = open_read_only(&args.store, Pid(args.pid)).await?;
    let listed = kernel.effects(Pid(args.pid), since).await;
    kernel.shutdown().await?;
    let listed = listed?;
    let mut out = terminal::stdout();
    if listed.dropped > 0 {
        print_stderr(&format!(
            "{} older effects are not kept; the log of the process has their calls",
            listed.dropped
        ));
    }
    for effect in &listed.effects {
        match args.json {
            true => writeln!(out, "{}", terminal::escaped_json(&effect_json(effect)))?,
            false => writeln!(out, "{}", one_line(&effect_line(effect)))?,
        }
    }
    if listed.effects.is_empty() && !args.json {
        print_stderr("no effects");
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn effect_line(effect: &ProcessEffect) -> String {
    let fact = match effect.fact {
        Some(fact) => format!("fact {fact}"),
        None => "fact -".to_owned(),
    };
    let place = match effect.place {
        EffectPlace::Ran { .. } => "",
        place => &format!("[{}] ", EffectView::place_word(place)),
    };
    let answer = match (&effect.answer, effect.is_error) {
        (None, _) => "its answer is not known".to_owned(),
        (Some(answer), true) => format!("failed: {}", answer.trim_end()),
        (Some(answer), false) => answer.trim_end().to_owned(),
    };
    let ProcessEffect {
        call,
        tool,
        access,
        args,
        ..
    } = effect;
    format!(
        "{call} {fact} {place}{tool} ({}) {args} -> {answer}",
        access.word()
    )
}

/// An effect as JSON. Scripts read it: `docs/fence.md`.
pub(crate) fn effect_json(effect: &ProcessEffect) -> Value {
    json!(EffectView::from(effect))
}
