//! `dormouse log`, `dormouse diff` and `dormouse checkpoints`: show the history of processes and
//! the points from which they can be branched. They open the store read-only.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use dormouse::id::Pid;
use serde_json::json;

use crate::args::Store;
use crate::failure::Failure;
use crate::process_position::ProcessPosition;
use crate::ps::print_losses;
use crate::read_only::{Readers, open_read_only};
use crate::terminal;

/// `dormouse log`
#[derive(Debug, Args)]
pub(crate) struct Log {
    /// The process.
    #[arg(value_name = "PID")]
    pub(crate) pid: u64,
    #[command(flatten)]
    pub(crate) store: Store,
    /// The first fact that is listed.
    #[arg(long, value_name = "FACT", default_value_t = 0)]
    pub(crate) from: u64,
    /// The last fact that is listed.
    #[arg(long, value_name = "FACT")]
    pub(crate) to: Option<u64>,
    /// Print one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `dormouse diff`
#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// One position: PID, PID@FACT or PID@cp:N.
    #[arg(value_name = "POSITION")]
    pub(crate) left: ProcessPosition,
    /// The other.
    #[arg(value_name = "POSITION")]
    pub(crate) right: ProcessPosition,
    #[command(flatten)]
    pub(crate) store: Store,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `dormouse checkpoints`
#[derive(Debug, Args)]
pub(crate) struct Checkpoints {
    #[command(flatten)]
    pub(crate) store: Store,
    /// Print one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Lists the facts of a process, as far as they can be read. Exits with 2 if none of the requested
/// facts exists, and with 3 if one cannot be read.
pub(crate) async fn log(args: Log) -> Result<ExitCode, Failure> {
    let kernel = open_read_only(&args.store, Pid(args.pid)).await?;
    let log = kernel.readable_log(Pid(args.pid)).await;
    kernel.shutdown().await?;
    let (mut lines, loss) = log?;
    let readable = lines.first().zip(lines.last());
    let readable = readable.map(|(first, last)| (first.number.0, last.number.0));
    let last_readable = readable.map_or(0, |(_, last)| last);
    let is_requested = |number: u64| args.from <= number && args.to.is_none_or(|to| number <= to);
    lines.retain(|line| is_requested(line.number.0));
    let names_facts = args.from > 0 || args.to.is_some();
    if lines.is_empty() && loss.is_none() && names_facts {
        return Err(Failure::Usage(no_such_facts_message(&args, readable)));
    }
    let mut out = terminal::stdout();
    for line in lines {
        let number = line.number.0;
        if args.json {
            let line = json!({
                "fact": number, "commit": line.commit.0, "at_ms": line.at_ms, "name": line.name,
                "summary": line.summary,
            });
            writeln!(out, "{}", terminal::escaped_json(&line))?;
        } else {
            writeln!(
                out,
                "{number:>6}  {}  {:<18} {}",
                time_of_day(line.at_ms),
                line.name,
                terminal::one_line(&line.summary)
            )?;
        }
    }
    match loss {
        Some(loss) if args.to.is_none_or(|to| to > last_readable) => Err(loss.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// The message for a range that holds no fact of a process with these first and last facts.
fn no_such_facts_message(args: &Log, facts: Option<(u64, u64)>) -> String {
    let Log { pid, from, to, .. } = args;
    let requested = match to {
        Some(to) => format!("{from} to {to}"),
        None => format!("{from} or later"),
    };
    let known = match facts {
        Some((first, last)) => format!("it has facts {first} to {last}"),
        None => "it has none".to_owned(),
    };
    format!("process {pid} has no fact {requested}: {known}")
}

/// Shows what differs between two points.
pub(crate) async fn diff(args: Diff) -> Result<ExitCode, Failure> {
    let kernel = open_read_only(&args.store, args.left.pid).await?;
    let left = (args.left.pid, args.left.at);
    let right = (args.right.pid, args.right.at);
    let diff = kernel.diff(left, right).await;
    kernel.shutdown().await?;
    let diff = diff?;
    let mut out = terminal::stdout();
    if args.json {
        writeln!(out, "{}", terminal::escaped_json(&json!(diff)))?
    } else {
        write!(out, "{diff}")?
    }
    Ok(ExitCode::SUCCESS)
}

/// Lists the checkpoints of a store. Exits with 3 if some may be missing from the list.
pub(crate) async fn checkpoints(args: Checkpoints) -> Result<ExitCode, Failure> {
    let mut readers = Readers::open(&args.store).await?;
    let (mut checkpoints, mut lost) = (Vec::new(), Vec::new());
    while let Some(kernel) = readers.next().await? {
        let found = kernel.checkpoints().await;
        lost.extend_from_slice(kernel.losses());
        kernel.shutdown().await?;
        checkpoints.extend(found?);
    }
    let mut out = terminal::stdout();
    for checkpoint in checkpoints {
        if args.json {
            writeln!(out, "{}", terminal::escaped_json(&json!(checkpoint)))?;
        } else {
            let members: Vec<_> = checkpoint
                .members
                .iter()
                .map(|member| format!("{}@{}", member.pid, member.at))
                .collect();
            writeln!(
                out,
                "{}  {}  {}  {}",
                checkpoint.id,
                time_of_day(checkpoint.at_ms),
                members.join(" "),
                terminal::one_line(&checkpoint.label)
            )?;
        }
    }
    print_losses(&mut out, &lost, args.json)?;
    Ok(if lost.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(3)
    })
}

/// A time of day, UTC.
pub(crate) fn time_of_day(at_ms: u64) -> String {
    let seconds = at_ms / 1_000 % 86_400;
    format!(
        "{:02}:{:02}:{:02}.{:03}",
        seconds / 3_600,
        seconds / 60 % 60,
        seconds % 60,
        at_ms % 1_000
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_formatted_as_time_of_day() {
        assert_eq!(time_of_day(0), "00:00:00.000");
        assert_eq!(time_of_day(86_400_000 + 3_600_000 + 62_005), "01:01:02.005");
    }
}
