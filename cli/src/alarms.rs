//! `dormouse alarms`: lists the open alarms of a store.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use dormouse::alarm::Alarm;
use dormouse::api::view::AlarmView;
use dormouse::id::Pid;
use dormouse::schedule::format_time;
use serde_json::json;

use crate::args::Store;
use crate::failure::Failure;
use crate::ps::print_losses;
use crate::read_only::Readers;
use crate::terminal;

/// `dormouse alarms`
#[derive(Debug, Args)]
pub(crate) struct Alarms {
    #[command(flatten)]
    pub(crate) store: Store,
    /// Print one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Lists the open alarms of all processes, the earliest first. Reads the journals of the processes
/// that have not ended. Exits with 3 if one cannot be read, or if a process may be missing.
pub(crate) async fn alarms(args: Alarms) -> Result<ExitCode, Failure> {
    let mut readers = Readers::open(&args.store).await?;
    let (mut open, mut unreadable) = (Vec::new(), Vec::new());
    while let Some(kernel) = readers.next().await? {
        unreadable.extend_from_slice(kernel.losses());
        for info in kernel.processes().await? {
            let pid = info.row.pid;
            if info.row.exit.is_some() {
                continue;
            }
            match kernel.inspect(pid).await {
                Ok(view) => open.extend(view.alarms.into_iter().map(|alarm| (pid, alarm))),
                Err(error) => unreadable.push(format!("process {pid}: {error}")),
            }
        }
        kernel.shutdown().await?;
    }
    open.sort_by_key(|(pid, alarm)| (alarm.due_ms, *pid, alarm.id));
    let mut out = terminal::stdout();
    if !args.json {
        writeln!(
            out,
            "{:<9} {:<9} {:<21} {:<28} NOTE",
            "PROCESS", "ALARM", "DUE", "REPEATS"
        )?;
    }
    for (pid, alarm) in &open {
        if args.json {
            writeln!(
                out,
                "{}",
                terminal::escaped_json(&json!(AlarmView::new(*pid, alarm)))
            )?;
        } else {
            writeln!(out, "{}", alarm_line(*pid, alarm))?;
        }
    }
    print_losses(&mut out, &unreadable, args.json)?;
    Ok(if unreadable.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(3)
    })
}

fn alarm_line(pid: Pid, alarm: &Alarm) -> String {
    let repeat = match &alarm.repeat {
        Some(repeat) => format!("{} {}", repeat.cron, repeat.zone),
        None => "once".to_owned(),
    };
    format!(
        "{:<9} {:<9} {:<21} {:<28} {}",
        pid.to_string(),
        alarm.id.to_string(),
        format_time(alarm.due_ms),
        terminal::one_line(&repeat),
        terminal::one_line(&alarm.note)
    )
}
