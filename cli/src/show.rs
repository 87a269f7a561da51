//! `dormouse show`: checks an export, and prints what it holds.
//!
//! The file is read as a stream, which keeps one line for each process. Nothing is printed before
//! the whole file was checked, so `--log` reads the facts in a second pass.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Seek, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use dormouse::checkpoint::Scope;
use dormouse::export::{ExportVisitor, Facts, Manifest, Member, Redaction, log_lines, skim};
use dormouse::id::{ContentHash, Pid};
use dormouse::process::ProcessRow;
use dormouse::program::Requirement;
use dormouse::record::Phase;
use dormouse::{KernelError, LogLine};
use serde_json::json;
use time::OffsetDateTime;

use crate::export::unusable;
use crate::history::time;
use crate::requirements::{self, as_json, compile_exported, quoted, words};
use crate::status::Failure;
use crate::terminal;

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

/// Checks an export and prints its processes. Exits with 2 if it is not whole.
pub(crate) fn show(args: &Show) -> Result<ExitCode, Failure> {
    let mut file = File::open(&args.file).map_err(|error| unusable(&args.file, &error))?;
    let mut collected = Contents {
        reads_facts: args.log,
        processes: Vec::new(),
        failed: None,
    };
    let manifest = skim(&file, &mut collected)?;
    if let Some(error) = collected.failed {
        return Err(error.into());
    }
    let mut out = BufWriter::new(terminal::stdout());
    let form = if args.json { Form::Json } else { Form::Text };
    let named = collected
        .processes
        .iter()
        .map(|line| (line.bundle, &*line.key));
    let requirements =
        compile_exported(named, &manifest.programs).map(|programs| requirements::of_all(&programs));
    match form {
        Form::Json => writeln!(
            out,
            "{}",
            terminal::json(&head_json(
                &manifest,
                collected.processes.len(),
                &requirements
            ))
        )?,
        Form::Text => {
            head(&mut out, &manifest)?;
            needs(&mut out, &requirements)?;
        }
    }
    processes(&mut out, &manifest, &collected.processes, form)?;
    if args.log {
        file.rewind()
            .map_err(|error| unusable(&args.file, &error))?;
        let mut printer = Printer {
            out: &mut out,
            form,
            done: Ok(()),
        };
        let again = skim(&file, &mut printer)?;
        printer.done?;
        if again.id != manifest.id {
            return Err(Failure::Usage(format!(
                "{}: it was replaced by another while it was read",
                args.file.display()
            )));
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Deeper processes are not indented further, so that no file makes its lines ever longer.
const MOST_INDENTED: usize = 64;

/// How something is printed.
#[derive(Clone, Copy)]
enum Form {
    Text,
    /// One object a line.
    Json,
}

/// The line of a process.
struct Line {
    row: ProcessRow,
    /// Its program: the bundle of files, and the key of the program in it.
    bundle: ContentHash,
    key: String,
    status: &'static str,
    messages: usize,
    descriptors: usize,
}

fn processes(
    out: &mut impl Write,
    manifest: &Manifest,
    lines: &[Line],
    form: Form,
) -> std::io::Result<()> {
    if let Form::Text = form {
        writeln!(
            out,
            "{:<32} {:<16} {:>7} {:>9} {:>5}",
            "PROCESS", "STATUS", "FACTS", "MESSAGES", "FDS"
        )?;
    }
    let depths = depths(lines);
    for Line {
        row,
        status,
        messages,
        descriptors,
        ..
    } in lines
    {
        let (pid, known_as, program) = (row.pid.0, row.known_as().0, &*row.program);
        let facts = manifest.facts.get(&row.pid).copied().unwrap_or_default();
        match form {
            Form::Json => {
                let (parent, name) = (row.parent.map(|pid| pid.0), row.name.as_deref());
                let line = json!({
                    "pid": pid, "parent": parent, "known_as": known_as, "program": program, "name": name,
                    "status": status, "facts": facts, "messages": messages, "descriptors": descriptors,
                });
                writeln!(out, "{}", terminal::json(&line))?;
            }
            Form::Text => {
                let name = row.name.iter().map(|name| format!(" {}", named(name)));
                let known_as = (known_as != pid).then(|| format!(", known as {known_as}"));
                let notes: String = name.chain(known_as).collect();
                let indented = "  ".repeat(depths[&row.pid].min(MOST_INDENTED));
                let who = terminal::line(&format!("{indented}{pid} {}{notes}", quoted(program)));
                writeln!(
                    out,
                    "{who:<32} {status:<16} {facts:>7} {messages:>9} {descriptors:>5}"
                )?;
            }
        }
    }
    Ok(())
}

/// The name of a process, in a way that it cannot imitate columns behind it.
fn named(name: &str) -> String {
    let is_plain = !name.contains(['\'', '"', '\\']) && !name.contains("  ");
    if is_plain {
        format!("'{name}'")
    } else {
        format!("{name:?}")
    }
}

fn fact(out: &mut impl Write, pid: Pid, line: &LogLine, form: Form) -> std::io::Result<()> {
    let LogLine {
        number,
        at_ms,
        name,
        gist,
        ..
    } = line;
    match form {
        Form::Json => {
            let (pid, fact) = (pid.0, number.0);
            let line =
                json!({ "pid": pid, "fact": fact, "at_ms": at_ms, "name": name, "gist": gist });
            writeln!(out, "{}", terminal::json(&line))
        }
        Form::Text => {
            writeln!(
                out,
                "{:>4}@{:<6}  {}  {name:<18} {}",
                pid.0,
                number.0,
                time(*at_ms),
                terminal::line(gist)
            )
        }
    }
}

/// Collects the lines of the processes and, if facts are asked for, checks that all of them can be
/// decoded.
struct Contents {
    reads_facts: bool,
    processes: Vec<Line>,
    failed: Option<KernelError>,
}

impl ExportVisitor for Contents {
    fn member(&mut self, member: &Member) {
        let Member { row, image, .. } = member;
        let (status, messages, descriptors) = (
            status(&image.phase),
            image.messages.len(),
            image.table.len(),
        );
        let (bundle, key) = (image.bundle.hash, image.program.to_string());
        self.processes.push(Line {
            row: row.clone(),
            bundle,
            key,
            status,
            messages,
            descriptors,
        });
    }

    fn facts(&mut self, facts: Facts) {
        if self.reads_facts && self.failed.is_none() {
            self.failed = log_lines(&facts).find_map(Result::err);
        }
    }
}

/// Prints facts as they come.
struct Printer<'a, W> {
    out: &'a mut W,
    form: Form,
    done: Result<(), Failure>,
}

impl<W: Write> ExportVisitor for Printer<'_, W> {
    fn facts(&mut self, facts: Facts) {
        if self.done.is_ok() {
            self.done = log_lines(&facts)
                .try_for_each(|line| Ok(fact(self.out, facts.pid, &line?, self.form)?));
        }
    }
}

fn head(out: &mut impl Write, manifest: &Manifest) -> std::io::Result<()> {
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
        head.of,
        moment(head.at_ms)
    )?;
    writeln!(
        out,
        "made by {}, {} bytes",
        terminal::line(&head.made_by),
        manifest.bytes
    )?;
    let held: u64 = manifest.contents.values().sum();
    let (contents, files) = (manifest.contents.len(), manifest.files.len());
    writeln!(
        out,
        "{contents} contents of {held} bytes, {files} changes of temporary files"
    )
}

/// What the programs start and reach on the machine that runs them.
fn needs(
    out: &mut impl Write,
    requirements: &Result<Vec<Requirement>, String>,
) -> std::io::Result<()> {
    match requirements {
        Err(why) => {
            writeln!(
                out,
                "What its programs start and reach is not known: {}",
                terminal::line(why)
            )
        }
        Ok(none) if none.is_empty() => writeln!(
            out,
            "its programs start nothing and reach nothing but their models"
        ),
        Ok(all) => {
            writeln!(out, "{:<20} {:<28} STARTS OR REACHES", "PROGRAM", "BY")?;
            all.iter()
                .try_for_each(|requirement| writeln!(out, "{}", words(requirement)))
        }
    }
}

fn head_json(
    manifest: &Manifest,
    processes: usize,
    requirements: &Result<Vec<Requirement>, String>,
) -> serde_json::Value {
    let head = &manifest.head;
    let held: u64 = manifest.contents.values().sum();
    json!({
        "export": manifest.id.to_string(),
        "of": head.of.0,
        "scope": match head.scope { Scope::Process => "process", Scope::Tree => "tree" },
        "redacted": head.redaction == Redaction::Redacted,
        "at_ms": head.at_ms,
        "made_by": head.made_by,
        "bytes": manifest.bytes,
        "processes": processes,
        "contents": manifest.contents.len(),
        "content_bytes": held,
        "temp_file_changes": manifest.files.len(),
        "requirements": requirements.as_ref().ok().map(|all| all.iter().map(as_json).collect::<Vec<_>>()),
        "requirements_unknown": requirements.as_ref().err(),
    })
}

fn status(phase: &Phase) -> &'static str {
    match phase {
        Phase::Idle => "idle",
        Phase::Thinking { .. } => "thinking",
        Phase::Acting { .. } => "acting",
        Phase::Ready { .. } => "ready",
        Phase::Ended { exit } => exit.status.word(),
    }
}

/// By process, how many of its ancestors are in the export.
fn depths(lines: &[Line]) -> BTreeMap<Pid, usize> {
    let mut depths = BTreeMap::new();
    for Line { row, .. } in lines {
        let above = row
            .parent
            .and_then(|parent| depths.get(&parent))
            .map_or(0, |depth| depth + 1);
        depths.insert(row.pid, above);
    }
    depths
}

/// A date and a time of day, UTC.
fn moment(at_ms: u64) -> String {
    let seconds = i64::try_from(at_ms / 1_000).unwrap_or_default();
    let date = OffsetDateTime::from_unix_timestamp(seconds).map(|moment| moment.date());
    let date = date.map(|date| {
        format!(
            "{}-{:02}-{:02} ",
            date.year(),
            u8::from(date.month()),
            date.day()
        )
    });
    date.unwrap_or_default() + &time(at_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_imitates_the_columns_behind_it() {
        for (name, shown) in [
            ("notes", "'notes'"),
            ("two words", "'two words'"),
            ("a'  done", "\"a'  done\""),
            ("a   done", "\"a   done\""),
        ] {
            assert_eq!(named(name), shown);
        }
    }

    #[test]
    fn a_moment_is_shown_as_a_date_and_a_time() {
        assert_eq!(moment(951_782_400_000 + 62_005), "2000-02-29 00:01:02.005");
    }
}
