//! `dormouse show`: what an export holds, once all of it was checked.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::process::ExitCode;

use dormouse::checkpoint::Scope;
use dormouse::export::{Facts, Manifest, Member, Redaction, Told, log_lines, look};
use dormouse::id::Pid;
use dormouse::program::Requirement;
use dormouse::record::Phase;
use dormouse::{KernelError, LogLine};
use serde_json::json;
use time::OffsetDateTime;

use crate::args::Show;
use crate::export::unusable;
use crate::history::time;
use crate::requirements::{self, as_json, programs, words};
use crate::status::Failure;
use crate::terminal;

/// Checks an export and says who is in it. Exits with 2 where it is not whole.
pub(crate) fn show(args: &Show) -> Result<ExitCode, Failure> {
    let file = File::open(&args.file).map_err(|error| unusable(&args.file, &error))?;
    let mut heard = Heard { is_asked: args.log, lines: Vec::new(), failed: None };
    let manifest = look(file, &mut heard)?;
    if let Some(error) = heard.failed {
        return Err(error.into());
    }
    let mut out = terminal::stdout();
    let form = if args.json { Form::Json } else { Form::Text };
    let requirements = programs(&manifest).map(|programs| requirements::of(&programs));
    match form {
        Form::Json => writeln!(out, "{}", terminal::json(&head_json(&manifest, &requirements)))?,
        Form::Text => {
            head(&mut out, &manifest)?;
            needs(&mut out, &requirements)?;
        }
    }
    processes(&mut out, &manifest, form)?;
    heard.lines.iter().try_for_each(|(pid, line)| fact(&mut out, *pid, line, form))?;
    Ok(ExitCode::SUCCESS)
}

/// How something is printed.
#[derive(Clone, Copy)]
enum Form {
    Text,
    /// One object a line.
    Json,
}

fn processes(out: &mut impl Write, manifest: &Manifest, form: Form) -> std::io::Result<()> {
    if let Form::Text = form {
        writeln!(out, "{:<32} {:<16} {:>7} {:>9} {:>5}", "PROCESS", "STATUS", "FACTS", "MESSAGES", "FDS")?;
    }
    let depths = depths(manifest);
    for Member { row, image, .. } in &manifest.members {
        let (pid, known_as, program) = (row.pid.0, row.known_as().0, &*row.program);
        let facts = manifest.facts.get(&row.pid).copied().unwrap_or_default();
        let (status, messages, descriptors) = (status(&image.phase), image.messages.len(), image.table.len());
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
                let name = row.name.iter().map(|name| format!(" '{name}'"));
                let known_as = (known_as != pid).then(|| format!(", known as {known_as}"));
                let notes: String = name.chain(known_as).collect();
                let who = terminal::line(&format!("{}{pid} {program}{notes}", "  ".repeat(depths[&row.pid])));
                writeln!(out, "{who:<32} {status:<16} {facts:>7} {messages:>9} {descriptors:>5}")?;
            }
        }
    }
    Ok(())
}

fn fact(out: &mut impl Write, pid: Pid, line: &LogLine, form: Form) -> std::io::Result<()> {
    let LogLine { number, at_ms, name, gist, .. } = line;
    match form {
        Form::Json => {
            let (pid, fact) = (pid.0, number.0);
            let line = json!({ "pid": pid, "fact": fact, "at_ms": at_ms, "name": name, "gist": gist });
            writeln!(out, "{}", terminal::json(&line))
        }
        Form::Text => {
            writeln!(out, "{:>4}@{:<6}  {}  {name:<18} {}", pid.0, number.0, time(*at_ms), terminal::line(gist))
        }
    }
}

/// The facts that an export tells, where they are asked for.
struct Heard {
    is_asked: bool,
    lines: Vec<(Pid, LogLine)>,
    failed: Option<KernelError>,
}

impl Told for Heard {
    fn facts(&mut self, facts: Facts) {
        if !self.is_asked {
            return;
        }
        match log_lines(&facts) {
            Ok(lines) => self.lines.extend(lines.into_iter().map(|line| (facts.pid, line))),
            Err(error) => drop(self.failed.get_or_insert(error)),
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
    writeln!(out, "of process {} {scope}{redacted}, as it stood at {}", head.of, moment(head.at_ms))?;
    writeln!(out, "made by {}, {} bytes", terminal::line(&head.made_by), manifest.bytes)?;
    let held: u64 = manifest.contents.values().sum();
    let (contents, files) = (manifest.contents.len(), manifest.files.len());
    writeln!(out, "{contents} contents of {held} bytes, {files} changes of temporary files")
}

/// What its programs start and reach on the machine that they run on.
fn needs(out: &mut impl Write, requirements: &Result<Vec<Requirement>, String>) -> std::io::Result<()> {
    match requirements {
        Err(why) => writeln!(out, "What its programs start and reach is not known: {why}"),
        Ok(none) if none.is_empty() => writeln!(out, "its programs start nothing and reach nothing but their models"),
        Ok(all) => {
            writeln!(out, "{:<20} {:<28} STARTS OR REACHES", "PROGRAM", "BY")?;
            all.iter().try_for_each(|requirement| writeln!(out, "{}", words(requirement)))
        }
    }
}

fn head_json(manifest: &Manifest, requirements: &Result<Vec<Requirement>, String>) -> serde_json::Value {
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
        "processes": manifest.members.len(),
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

/// How many of its ancestors are in the export, of each process.
fn depths(manifest: &Manifest) -> BTreeMap<Pid, usize> {
    let mut depths = BTreeMap::new();
    for Member { row, .. } in &manifest.members {
        let above = row.parent.and_then(|parent| depths.get(&parent)).map_or(0, |depth| depth + 1);
        depths.insert(row.pid, above);
    }
    depths
}

/// A date and a time of day, UTC.
fn moment(at_ms: u64) -> String {
    let seconds = i64::try_from(at_ms / 1_000).unwrap_or_default();
    let date = OffsetDateTime::from_unix_timestamp(seconds).map(|moment| moment.date());
    let date = date.map(|date| format!("{}-{:02}-{:02} ", date.year(), u8::from(date.month()), date.day()));
    date.unwrap_or_default() + &time(at_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_shown_as_a_date_and_a_time() {
        assert_eq!(moment(951_782_400_000 + 62_005), "2000-02-29 00:01:02.005");
    }
}
