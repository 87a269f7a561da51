//! `dormouse show`: checks an export, and prints what it holds.
//!
//! The file is read as a stream, and only a summary of each process is kept in memory. Nothing is
//! printed before the whole file was checked, so `--log` reads the facts in a second pass.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Seek, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use dormouse::checkpoint::Scope;
use dormouse::export::{ExportVisitor, Facts, Manifest, Member, Redaction, log_lines, scan_export};
use dormouse::id::{ContentHash, Pid};
use dormouse::process::ProcessRow;
use dormouse::program::Requirement;
use dormouse::record::Phase;
use dormouse::{KernelError, LogLine};
use serde_json::json;
use time::OffsetDateTime;

use crate::failure::{Failure, file_failure};
use crate::history::time_of_day;
use crate::requirements::{self, as_json, compile_exported, format_table_line, quoted};
use crate::terminal::{self, OutputFormat};

/// `dormouse show`
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// The file that `dormouse export` made.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// List the facts of its processes as well.
    #[arg(long)]
    pub(crate) log: bool,
    /// Print one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Checks an export and prints its processes. Exits with 2 if the file is incomplete or damaged.
pub(crate) fn show(args: &Show) -> Result<ExitCode, Failure> {
    let mut file = File::open(&args.file).map_err(|error| file_failure(&args.file, &error))?;
    let mut summaries = SummaryCollector {
        decodes_facts: args.log,
        processes: Vec::new(),
        failed: None,
    };
    let manifest = scan_export(&file, &mut summaries)?;
    if let Some(error) = summaries.failed {
        return Err(error.into());
    }
    let processes = summaries.processes;
    let programs = processes
        .iter()
        .map(|process| (process.bundle, &*process.program_key));
    let requirements = compile_exported(programs, &manifest.programs)
        .map(|programs| requirements::collect_requirements(&programs));
    let mut out = BufWriter::new(terminal::stdout());
    let format = OutputFormat::from_json_flag(args.json);
    match format {
        OutputFormat::Json => {
            let head = head_json(&manifest, processes.len(), &requirements);
            writeln!(out, "{}", terminal::escaped_json(&head))?;
        }
        OutputFormat::Text => {
            print_head(&mut out, &manifest)?;
            print_requirements(&mut out, &requirements)?;
        }
    }
    print_processes(&mut out, &manifest, &processes, format)?;
    if args.log {
        file.rewind()
            .map_err(|error| file_failure(&args.file, &error))?;
        let mut printer = FactPrinter {
            out: &mut out,
            format,
            result: Ok(()),
        };
        let second_pass = scan_export(&file, &mut printer)?;
        printer.result?;
        if second_pass.id != manifest.id {
            return Err(Failure::Usage(format!(
                "{}: another file replaced it while it was read",
                args.file.display()
            )));
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Deeper processes are not indented further, so that no file makes its lines ever longer.
const MAX_INDENTED_DEPTH: usize = 64;

/// The data of one process that is printed.
struct ProcessSummary {
    row: ProcessRow,
    /// The bundle of files that holds its program.
    bundle: ContentHash,
    /// The key of its program in the bundle.
    program_key: String,
    status: &'static str,
    messages: usize,
    descriptors: usize,
}

fn print_processes(
    out: &mut impl Write,
    manifest: &Manifest,
    processes: &[ProcessSummary],
    format: OutputFormat,
) -> std::io::Result<()> {
    if format == OutputFormat::Text {
        writeln!(
            out,
            "{:<32} {:<16} {:>7} {:>9} {:>5}",
            "PROCESS", "STATUS", "FACTS", "MESSAGES", "FDS"
        )?;
    }
    let depths = depths(processes);
    for process in processes {
        let row = &process.row;
        let ProcessSummary {
            status,
            messages,
            descriptors,
            ..
        } = process;
        let pid = row.pid.0;
        // The number by which other processes of the export know this one.
        let local_id = row.local_id().0;
        let program = &*row.program;
        let facts = manifest.facts.get(&row.pid).copied().unwrap_or_default();
        match format {
            OutputFormat::Json => {
                let parent = row.parent.map(|pid| pid.0);
                let name = row.name.as_deref();
                let line = json!({
                    "pid": pid, "parent": parent, "local_id": local_id, "program": program, "name": name,
                    "status": status, "facts": facts, "messages": messages, "descriptors": descriptors,
                });
                writeln!(out, "{}", terminal::escaped_json(&line))?;
            }
            OutputFormat::Text => {
                let mut process = "  ".repeat(depths[&row.pid].min(MAX_INDENTED_DEPTH));
                process += &format!("{pid} {}", quoted(program));
                if let Some(name) = &row.name {
                    process += &format!(" {}", quoted_name(name));
                }
                if local_id != pid {
                    process += &format!(", known as {local_id}");
                }
                let process = terminal::one_line(&process);
                writeln!(
                    out,
                    "{process:<32} {status:<16} {facts:>7} {messages:>9} {descriptors:>5}"
                )?;
            }
        }
    }
    Ok(())
}

/// The name of a process in quotes, so that it cannot imitate the columns after it.
fn quoted_name(name: &str) -> String {
    let is_plain = !name.contains(['\'', '"', '\\']) && !name.contains("  ");
    if is_plain {
        format!("'{name}'")
    } else {
        format!("{name:?}")
    }
}

fn print_fact(
    out: &mut impl Write,
    pid: Pid,
    line: &LogLine,
    format: OutputFormat,
) -> std::io::Result<()> {
    let LogLine {
        number,
        at_ms,
        name,
        summary,
        ..
    } = line;
    match format {
        OutputFormat::Json => {
            let line = json!({
                "pid": pid.0, "fact": number.0, "at_ms": at_ms, "name": name, "summary": summary,
            });
            writeln!(out, "{}", terminal::escaped_json(&line))
        }
        OutputFormat::Text => {
            writeln!(
                out,
                "{:>4}@{:<6}  {}  {name:<18} {}",
                pid.0,
                number.0,
                time_of_day(*at_ms),
                terminal::one_line(summary)
            )
        }
    }
}

/// Collects a summary of each process. If facts will be printed, also checks that all of them can
/// be decoded, so that a damaged file is refused before anything is printed.
struct SummaryCollector {
    decodes_facts: bool,
    processes: Vec<ProcessSummary>,
    failed: Option<KernelError>,
}

impl ExportVisitor for SummaryCollector {
    fn member(&mut self, member: &Member) {
        let Member { row, image, .. } = member;
        self.processes.push(ProcessSummary {
            row: row.clone(),
            bundle: image.bundle.hash,
            program_key: image.program.to_string(),
            status: status_word(&image.phase),
            messages: image.last_message_number(),
            descriptors: image.table.len(),
        });
    }

    fn facts(&mut self, facts: Facts) {
        if self.decodes_facts && self.failed.is_none() {
            self.failed = log_lines(&facts).find_map(Result::err);
        }
    }
}

/// Prints facts while the file is read.
struct FactPrinter<'a, W> {
    out: &'a mut W,
    format: OutputFormat,
    /// The first failure; nothing is printed after it.
    result: Result<(), Failure>,
}

impl<W: Write> FactPrinter<'_, W> {
    fn print(&mut self, facts: &Facts) -> Result<(), Failure> {
        for line in log_lines(facts) {
            print_fact(self.out, facts.pid, &line?, self.format)?;
        }
        Ok(())
    }
}

impl<W: Write> ExportVisitor for FactPrinter<'_, W> {
    fn facts(&mut self, facts: Facts) {
        if self.result.is_ok() {
            self.result = self.print(&facts);
        }
    }
}

fn print_head(out: &mut impl Write, manifest: &Manifest) -> std::io::Result<()> {
    let head = &manifest.head;
    let scope = match head.scope {
        Scope::Process => "alone",
        Scope::Tree => "and all below it",
    };
    let redacted = match head.redaction {
        Redaction::Whole => "",
        Redaction::Redacted => ", redacted",
    };
    writeln!(out, "export {}, whole", manifest.id)?;
    writeln!(
        out,
        "of process {} {scope}{redacted}, as it stood at {}",
        head.exported_pid,
        date_and_time(head.at_ms)
    )?;
    writeln!(
        out,
        "made by {}, {} bytes",
        terminal::one_line(&head.made_by),
        manifest.bytes
    )?;
    let content_bytes: u64 = manifest.contents.values().sum();
    writeln!(
        out,
        "{} contents of {content_bytes} bytes, {} changes of temporary files",
        manifest.contents.len(),
        manifest.files.len()
    )
}

/// Prints what the programs start and reach on the machine that runs them.
fn print_requirements(
    out: &mut impl Write,
    requirements: &anyhow::Result<Vec<Requirement>>,
) -> std::io::Result<()> {
    match requirements {
        Err(error) => {
            writeln!(
                out,
                "what its programs start and reach is unknown: {}",
                terminal::one_line(&error.to_string())
            )
        }
        Ok(all) if all.is_empty() => writeln!(
            out,
            "its programs start nothing and reach nothing but their models"
        ),
        Ok(all) => {
            writeln!(out, "{:<20} {:<28} STARTS OR REACHES", "PROGRAM", "BY")?;
            for requirement in all {
                writeln!(out, "{}", format_table_line(requirement))?;
            }
            Ok(())
        }
    }
}

fn head_json(
    manifest: &Manifest,
    processes: usize,
    requirements: &anyhow::Result<Vec<Requirement>>,
) -> serde_json::Value {
    let head = &manifest.head;
    let content_bytes: u64 = manifest.contents.values().sum();
    let known_requirements: Option<Vec<_>> = requirements
        .as_ref()
        .ok()
        .map(|all| all.iter().map(as_json).collect());
    json!({
        "export": manifest.id.to_string(),
        "of": head.exported_pid.0,
        "scope": match head.scope { Scope::Process => "process", Scope::Tree => "tree" },
        "redacted": head.redaction == Redaction::Redacted,
        "at_ms": head.at_ms,
        "made_by": head.made_by,
        "bytes": manifest.bytes,
        "processes": processes,
        "contents": manifest.contents.len(),
        "content_bytes": content_bytes,
        "temp_file_changes": manifest.files.len(),
        "requirements": known_requirements,
        "requirements_unknown": requirements.as_ref().err().map(ToString::to_string),
    })
}

fn status_word(phase: &Phase) -> &'static str {
    match phase {
        Phase::Idle => "idle",
        Phase::Thinking { .. } => "thinking",
        Phase::Acting { .. } => "acting",
        Phase::Ready { .. } => "ready",
        Phase::Ended { exit } => exit.status.word(),
    }
}

/// For each process, how many of its ancestors are in the export.
fn depths(processes: &[ProcessSummary]) -> BTreeMap<Pid, usize> {
    let mut depths = BTreeMap::new();
    // The export lists parents before their children.
    for ProcessSummary { row, .. } in processes {
        let parent_depth = row.parent.and_then(|parent| depths.get(&parent));
        let depth = parent_depth.map_or(0, |depth| depth + 1);
        depths.insert(row.pid, depth);
    }
    depths
}

/// A date and a time of day, UTC. A date that cannot be represented is left out.
fn date_and_time(at_ms: u64) -> String {
    let time = time_of_day(at_ms);
    let seconds = i64::try_from(at_ms / 1_000).unwrap_or_default();
    match OffsetDateTime::from_unix_timestamp(seconds) {
        Ok(date) => format!(
            "{}-{:02}-{:02} {time}",
            date.year(),
            u8::from(date.month()),
            date.day()
        ),
        Err(_) => time,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_imitates_the_columns_after_it() {
        for (name, shown) in [
            ("notes", "'notes'"),
            ("two words", "'two words'"),
            ("a'  done", "\"a'  done\""),
            ("a   done", "\"a   done\""),
        ] {
            assert_eq!(quoted_name(name), shown);
        }
    }

    #[test]
    fn a_timestamp_is_formatted_as_date_and_time() {
        assert_eq!(
            date_and_time(951_782_400_000 + 62_005),
            "2000-02-29 00:01:02.005"
        );
    }
}
