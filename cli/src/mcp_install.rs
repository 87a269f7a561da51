//! `dormouse mcp install`: puts `dormouse mcp` into the configuration of editors and coding agents.
//!
//! Every change is shown as a diff first. A file is only written if the user agrees, as a whole,
//! and what was there is kept in a copy.

mod change;
mod clients;
mod document;

use std::collections::BTreeSet;
use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use serde_json::{Map, Value};

use crate::failure::{Failure, file_failure};
use crate::terminal;

use self::change::Change;
use self::clients::{CLIENTS, KnownClient};
use self::document::Document;

/// `dormouse mcp install`
///
/// Adds a server to the configuration of the clients that are found, behind `dormouse mcp`, or puts
/// `dormouse mcp` in front of servers that are there. Shows the changes, and asks before it writes.
#[derive(Debug, Args)]
pub(crate) struct Install {
    /// Only these clients: claude-desktop, claude-code, cursor, vscode, windsurf, zed, codex,
    /// gemini-cli, opencode. Otherwise all that are found.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = parse_client)]
    client: Vec<&'static KnownClient>,
    /// The name of the new entry.
    #[arg(long, value_name = "NAME", default_value = "dormouse")]
    name: String,
    /// Add an entry for the servers in this file.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["server", "wrap", "wrap_all"])]
    config: Option<PathBuf>,
    /// Put `dormouse mcp` in front of these servers, which the clients have already.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', conflicts_with_all = ["server", "wrap_all"])]
    wrap: Vec<String>,
    /// Put `dormouse mcp` in front of all servers that the clients have already and start as a
    /// program.
    #[arg(long, conflicts_with = "server")]
    wrap_all: bool,
    /// Write without asking.
    #[arg(long, conflicts_with = "dry_run")]
    yes: bool,
    /// Only show what would change.
    #[arg(long)]
    dry_run: bool,
    /// Add an entry for this server.
    #[arg(last = true, value_name = "COMMAND")]
    server: Vec<String>,
}

/// What is done to each file.
enum Task<'a> {
    /// Add an entry that runs this command.
    Add { name: &'a str, command: Vec<String> },
    /// Put this command in front of the named servers; of all, if none is named.
    Wrap {
        names: &'a [String],
        prefix: Vec<String>,
    },
}

/// Shows the changes, and writes them if the user agrees.
pub(crate) fn install(args: &Install) -> Result<ExitCode, Failure> {
    let task = task(args)?;
    let found = find_files(&args.client)?;
    let mut changes = Vec::new();
    let mut out = terminal::stdout();
    let opened = found
        .into_iter()
        .map(|(client, path)| Configuration::open(client, path));
    let opened: Vec<_> = opened.collect::<Result<_, _>>()?;
    if let Task::Wrap { names, .. } = &task {
        check_names(names, &opened)?;
    }
    for configuration in opened {
        let (client, path) = (configuration.client, configuration.path.clone());
        match configuration.apply(&task)? {
            Some(change) => {
                writeln!(out, "{}:\n{}", client.name, change.diff())?;
                changes.push(change);
            }
            None => writeln!(
                out,
                "{}: nothing changes in {}",
                client.name,
                path.display()
            )?,
        }
    }
    out.flush()?;
    if changes.is_empty() || args.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    if !args.yes && !is_agreed()? {
        writeln!(out, "nothing was written: --yes writes the changes")?;
        return Ok(ExitCode::SUCCESS);
    }
    for change in changes {
        let path = change.path.display();
        let backup = change
            .write()
            .map_err(|error| Failure::Run(format!("{path} cannot be written: {error}")))?;
        match backup {
            Some(backup) => writeln!(out, "written: {path}. As it was: {}", backup.display())?,
            None => writeln!(out, "written: {path}")?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn task(args: &Install) -> Result<Task<'_>, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::Run(format!("the path of this program is unknown: {error}")))?;
    let program = program.to_string_lossy().into_owned();
    // Clients send the descriptions of tools with every request, so the small set is installed.
    let mut command = vec![
        program,
        "mcp".to_owned(),
        "--descriptor-tools=lean".to_owned(),
    ];
    if args.wrap_all || !args.wrap.is_empty() {
        command.push("--".to_owned());
        return Ok(Task::Wrap {
            names: &args.wrap,
            prefix: command,
        });
    }
    if let Some(config) = &args.config {
        let config = std::path::absolute(config)?;
        command.extend(["--config".to_owned(), config.to_string_lossy().into_owned()]);
    } else if args.server.is_empty() {
        return Err(Failure::Usage(
            "name a server after --, --config FILE, --wrap NAME or --wrap-all".to_owned(),
        ));
    } else {
        command.push("--".to_owned());
        command.extend_from_slice(&args.server);
    }
    Ok(Task::Add {
        name: &args.name,
        command,
    })
}

/// The files of the clients that are asked for, or of all that are found.
fn find_files(
    asked: &[&'static KnownClient],
) -> Result<Vec<(&'static KnownClient, PathBuf)>, Failure> {
    let absolute = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let home = absolute("HOME")
        .ok_or_else(|| Failure::Usage("HOME is not set: no client can be found".to_owned()))?;
    let config = absolute("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config"));
    let find = |client: &'static KnownClient| Some((client, client.find_file(&home, &config)?));
    let found: Vec<_> = match asked {
        [] => CLIENTS.iter().filter_map(find).collect(),
        asked => asked.iter().copied().filter_map(find).collect(),
    };
    if let Some(missing) = asked
        .iter()
        .find(|asked| !found.iter().any(|(client, _)| client.name == asked.name))
    {
        return Err(Failure::Usage(format!(
            "{} is not found below {}: start it once, so that it has a folder there",
            missing.name,
            home.display()
        )));
    }
    if found.is_empty() {
        return Err(Failure::Usage(format!(
            "no client is found below {}. Known are: {}",
            home.display(),
            client_names()
        )));
    }
    Ok(found)
}

/// The configuration of a client.
struct Configuration {
    client: &'static KnownClient,
    path: PathBuf,
    text: String,
    document: Document,
    entries: Vec<(String, Value)>,
}

impl Configuration {
    fn open(client: &'static KnownClient, path: PathBuf) -> Result<Self, Failure> {
        let text = change::read(&path).map_err(|error| file_failure(&path, &error))?;
        let opened = Document::parse(client.syntax, &text)
            .and_then(|document| Ok((document.entries(client.servers_key)?, document)));
        let (entries, document) =
            opened.map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
        Ok(Self {
            client,
            path,
            text,
            document,
            entries,
        })
    }

    /// The change of the file; `None` if nothing changes.
    fn apply(mut self, task: &Task<'_>) -> Result<Option<Change>, Failure> {
        for (name, keys) in self.edits(task) {
            self.document
                .set(self.client.servers_key, &name, &keys)
                .map_err(|error| Failure::Usage(format!("{}: {error}", self.path.display())))?;
        }
        Ok(Change::new(self.path, self.text, self.document.text()))
    }

    /// The entries that change, and the keys that they get.
    fn edits(&self, task: &Task<'_>) -> Vec<(String, Map<String, Value>)> {
        let form = self.client.form;
        let wrap = |(name, entry): &(String, Value), prefix: &[String]| {
            let command = form.command(entry).filter(|command| !is_wrapped(command))?;
            let wrapped: Vec<String> = prefix.iter().cloned().chain(command).collect();
            Some((name.clone(), form.command_keys(&wrapped)))
        };
        match task {
            Task::Add { name, command } => {
                let is_there = self.entries.iter().any(|(entry, _)| entry == name);
                let keys = match is_there {
                    true => form.command_keys(command),
                    false => form.new_entry(command),
                };
                vec![((*name).to_owned(), keys)]
            }
            Task::Wrap { names, prefix } => self
                .entries
                .iter()
                .filter(|(name, _)| names.is_empty() || names.contains(name))
                .filter_map(|entry| wrap(entry, prefix))
                .collect(),
        }
    }
}

/// Refuses names of servers that no client has.
fn check_names(names: &[String], opened: &[Configuration]) -> Result<(), Failure> {
    let known = || {
        let entries = opened
            .iter()
            .flat_map(|configuration| &configuration.entries);
        entries.map(|(name, _)| name.as_str())
    };
    match names
        .iter()
        .find(|name| !known().any(|known| known == *name))
    {
        None => Ok(()),
        Some(absent) => {
            // Several clients can have a server of one name.
            let known: BTreeSet<_> = known().collect();
            let known = match known.is_empty() {
                true => "None of them has a server".to_owned(),
                false => format!("There are: {}", Vec::from_iter(known).join(", ")),
            };
            Err(Failure::Usage(format!(
                "no client has a server '{absent}'. {known}"
            )))
        }
    }
}

/// Whether a command is `dormouse mcp` already.
fn is_wrapped(command: &[String]) -> bool {
    let [program, first, ..] = command else {
        return false;
    };
    Path::new(program)
        .file_stem()
        .is_some_and(|stem| stem == "dormouse")
        && first == "mcp"
}

/// Asks the user on a terminal. Without one, nobody agrees.
fn is_agreed() -> Result<bool, Failure> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Ok(false);
    }
    let mut out = terminal::stdout();
    write!(out, "Write these changes? [y/N] ")?;
    out.flush()?;
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn client_names() -> String {
    CLIENTS.map(|client| client.name).join(", ")
}

fn parse_client(name: &str) -> anyhow::Result<&'static KnownClient> {
    CLIENTS
        .iter()
        .find(|client| client.name == name)
        .with_context(|| format!("known are: {}", client_names()))
}
