//! `dormouse log`, `dormouse diff` and `dormouse checkpoints`: what was, and at which points one
//! can begin again.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use dormouse::Kernel;
use dormouse::id::Pid;
use serde_json::json;

use crate::args::Store;
use crate::compose::reading;
use crate::point::PointOf;
use crate::ps::show_missing;
use crate::status::Failure;
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
    /// One point: PID, PID@FACT or PID@cp:N.
    #[arg(value_name = "POINT")]
    pub(crate) left: PointOf,
    /// The other.
    #[arg(value_name = "POINT")]
    pub(crate) right: PointOf,
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

/// Lists the facts of a process, as far as they can be read. Exits with 3 where one that was asked
/// for cannot.
pub(crate) async fn log(args: Log) -> Result<ExitCode, Failure> {
    let kernel = looking(&args.store).await?;
    let log = kernel.readable_log(Pid(args.pid)).await;
    kernel.shutdown().await;
    let (lines, lost) = log?;
    let last = lines.last().map_or(0, |line| line.number.0);
    let mut out = terminal::stdout();
    let is_asked = |number: u64| args.from <= number && args.to.is_none_or(|to| number <= to);
    for line in lines.into_iter().filter(|line| is_asked(line.number.0)) {
        let (number, commit, at_ms) = (line.number.0, line.commit.0, line.at_ms);
        if args.json {
            let (name, gist) = (line.name, line.gist);
            let line = json!({ "fact": number, "commit": commit, "at_ms": at_ms, "name": name, "gist": gist });
            writeln!(out, "{}", terminal::json(&line))?;
        } else {
            writeln!(
                out,
                "{number:>6}  {}  {:<18} {}",
                time(at_ms),
                line.name,
                terminal::line(&line.gist)
            )?;
        }
    }
    match lost {
        Some(lost) if args.to.is_none_or(|to| to > last) => Err(lost.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Shows what differs between two points.
pub(crate) async fn diff(args: Diff) -> Result<ExitCode, Failure> {
    let kernel = looking(&args.store).await?;
    let diff = kernel
        .diff(
            (args.left.pid, args.left.at),
            (args.right.pid, args.right.at),
        )
        .await;
    kernel.shutdown().await;
    let mut out = terminal::stdout();
    if args.json {
        writeln!(out, "{}", terminal::json(&json!(diff?)))?
    } else {
        write!(out, "{}", diff?)?
    }
    Ok(ExitCode::SUCCESS)
}

/// Lists the checkpoints of a store. Exits with 3 where some may be missing.
pub(crate) async fn checkpoints(args: Checkpoints) -> Result<ExitCode, Failure> {
    let kernel = looking(&args.store).await?;
    let checkpoints = kernel.checkpoints().await;
    let lost = kernel.lost().to_vec();
    kernel.shutdown().await;
    let mut out = terminal::stdout();
    for kept in checkpoints? {
        if args.json {
            writeln!(out, "{}", terminal::json(&json!(kept)))?;
        } else {
            let members: Vec<_> = kept
                .members
                .iter()
                .map(|member| format!("{}@{}", member.pid, member.at))
                .collect();
            writeln!(
                out,
                "{}  {}  {}  {}",
                kept.id,
                time(kept.at_ms),
                members.join(" "),
                terminal::line(&kept.label)
            )?;
        }
    }
    show_missing(&mut out, &lost, args.json)?;
    Ok(if lost.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(3)
    })
}

/// A kernel to look into a store.
pub(crate) async fn looking(store: &Store) -> Result<Kernel, Failure> {
    reading(&store.folder, &store.key).await
}

/// A time of day, UTC.
pub(crate) fn time(at_ms: u64) -> String {
    let (seconds, ms) = (at_ms / 1_000 % 86_400, at_ms % 1_000);
    format!(
        "{:02}:{:02}:{:02}.{ms:03}",
        seconds / 3_600,
        seconds / 60 % 60,
        seconds % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_shown_as_one_of_the_day() {
        assert_eq!(time(0), "00:00:00.000");
        assert_eq!(time(86_400_000 + 3_600_000 + 62_005), "01:01:02.005");
    }
}
