//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Parser, Subcommand};
use dormouse::Point;
use dormouse::id::{CheckpointId, FactNumber, Pid};

/// A process kernel for LLM agents.
#[derive(Debug, Parser)]
#[command(
    name = "dormouse",
    version,
    after_help = "Exit codes: 0 done; 1 a process ended without finishing its task (model failure, limit, refusal); \
                  2 the command line or a program is wrong; 3 the store cannot be used; 129, 130, 143 stopped by \
                  SIGHUP, Ctrl-C, SIGTERM, with a store it can be resumed. On a terminal, characters that would control it, or \
                  reorder or hide text, are shown by signs (␛, \\u{202e}); in a pipe or a file, an answer is exact, and JSON \
                  has them as \\u escapes always. DORMOUSE_LOG=debug shows what happens inside. \
                  DORMOUSE_STORE_KEY holds the key of an encrypted store, where --key-file names none."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What can be done.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a program to its end.
    Run(Run),
    /// Go on with what has not ended in a store, or with the trees that are named.
    Resume(Resume),
    /// List the processes of a store.
    Ps(Ps),
    /// Collect the garbage of a store: give up what the rules say, and the room that nothing needs any more.
    Gc(Gc),
    /// Look a store over. Exits with 0 where it is whole, 1 where damage was found, 2 where it cannot be opened.
    Fsck(Fsck),
    /// List the facts of a process: each is a point to branch from.
    Log(Log),
    /// Show what differs between two points of one process or two.
    Diff(Diff),
    /// Name the point where a process stands.
    Checkpoint(Checkpoint),
    /// List the checkpoints of a store.
    Checkpoints(Checkpoints),
    /// Go on from any point of a process as other processes; it stays as it is.
    Branch(Branch),
    /// Go on from a checkpoint as other processes.
    Restore(Restore),
    /// Write a process, or a tree, into one file: to move it to another store, or to show it to somebody.
    Export(Export),
    /// Take in what an export holds, as new processes, which are held until they are resumed by name.
    Import(Import),
    /// Look into an export, and check it.
    Show(Show),
    /// Execute tool calls against a process, without a model.
    Call(Call),
    /// Serve the tools of a program, and those of descriptors, to any client of the Model Context Protocol.
    Mcp(Mcp),
    /// Show a file in pages, as a model would see it.
    Page(Page),
}

/// `dormouse run`
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The program file.
    pub(crate) program: PathBuf,
    #[command(flatten)]
    pub(crate) input: Input,
    /// Keep everything durable in this folder, so that the run survives a crash and can be resumed.
    #[arg(long, value_name = "DIR")]
    pub(crate) store: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) key: Key,
    #[command(flatten)]
    pub(crate) permissions: Permissions,
    #[command(flatten)]
    pub(crate) models: Models,
    /// Print events and the result as one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is said to the process first: a text, then files, then standard input, each a part of its own.
#[derive(Debug, Args)]
pub(crate) struct Input {
    /// The first input; without any, the program's own `user` prompt.
    #[arg(long, value_name = "TEXT")]
    pub(crate) input: Option<String>,
    /// Read the first input from a file, or add a file to it; may be given several times.
    #[arg(long, value_name = "FILE")]
    pub(crate) input_file: Vec<PathBuf>,
    /// `-` reads the first input from standard input, or adds that to it.
    #[arg(value_parser = ["-"], value_name = "-")]
    pub(crate) stdin: Option<String>,
}

/// `dormouse resume`
#[derive(Debug, Args)]
pub(crate) struct Resume {
    /// Go on with the trees of these processes only, and hold all others. Permissions that are given now are for them. Without any,
    /// all trees go on but those that were imported and never ran here.
    #[arg(value_name = "PID", conflicts_with = "imported")]
    pub(crate) pids: Vec<u64>,
    /// Go on with imported trees too that never ran here: under the permissions that are given now.
    #[arg(long)]
    pub(crate) imported: bool,
    #[command(flatten)]
    pub(crate) store: Store,
    #[command(flatten)]
    pub(crate) permissions: Permissions,
    #[command(flatten)]
    pub(crate) models: Models,
    /// Print events and the results as one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `dormouse ps`
#[derive(Debug, Args)]
pub(crate) struct Ps {
    #[command(flatten)]
    pub(crate) store: Store,
    /// Print one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `dormouse gc`
#[derive(Debug, Args)]
pub(crate) struct Gc {
    #[command(flatten)]
    pub(crate) store: Store,
    /// Write nothing, and say what would be given up and freed. The store may be in use meanwhile.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Give up checkpoints but the last N of each process, and those that another rule keeps.
    #[arg(long, value_name = "N")]
    pub(crate) keep_checkpoints: Option<usize>,
    /// Give up checkpoints that are older than this, but those that another rule keeps: 30d, 12h, 15m.
    #[arg(long, value_name = "AGE", value_parser = crate::gc::age)]
    pub(crate) older_than: Option<u64>,
    /// Keep the checkpoints of this label, whatever the other rules say; may be given several times.
    #[arg(long, value_name = "LABEL")]
    pub(crate) pin: Vec<String>,
    /// Give up trees of processes that have all ended so long ago, and that no checkpoint needs.
    #[arg(long, value_name = "AGE", value_parser = crate::gc::age)]
    pub(crate) drop_ended: Option<u64>,
    /// Give up what lies before the oldest checkpoint that is kept of a process.
    #[arg(long)]
    pub(crate) shorten: bool,
    /// Sweep the segments of the log of which at most so many percent are live.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) live_percent: u8,
    /// Drop contents although parts of journals cannot be read that may refer to them, and give processes up although records
    /// of checkpoints cannot be.
    #[arg(long)]
    pub(crate) despite_damage: bool,
}

/// `dormouse fsck`
#[derive(Debug, Args)]
pub(crate) struct Fsck {
    #[command(flatten)]
    pub(crate) store: Store,
    /// Mend what can be: build the index again, give up damaged snapshots that can be replayed, note what is lost.
    #[arg(long)]
    pub(crate) repair: bool,
}

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

/// `dormouse checkpoint`
#[derive(Debug, Args)]
pub(crate) struct Checkpoint {
    /// The process.
    #[arg(value_name = "PID")]
    pub(crate) pid: u64,
    #[command(flatten)]
    pub(crate) store: Store,
    /// What the checkpoint is called.
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// Of all processes below it too.
    #[arg(long)]
    pub(crate) tree: bool,
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

/// `dormouse branch`
#[derive(Debug, Args)]
pub(crate) struct Branch {
    /// Where to begin: PID (as it stands), PID@FACT or PID@cp:N. The whole tree of the process goes with it.
    #[arg(value_name = "POINT")]
    pub(crate) of: PointOf,
    #[command(flatten)]
    pub(crate) store: Store,
    #[command(flatten)]
    pub(crate) going: Going,
}

/// `dormouse restore`
#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// The checkpoint, such as cp:3.
    #[arg(value_name = "CHECKPOINT")]
    pub(crate) checkpoint: CheckpointId,
    #[command(flatten)]
    pub(crate) store: Store,
    #[command(flatten)]
    pub(crate) going: Going,
}

/// How processes go on that are made from others.
#[derive(Debug, Args)]
pub(crate) struct Going {
    /// What is said to the process before it goes on.
    #[arg(long, value_name = "TEXT")]
    pub(crate) input: Option<String>,
    #[command(flatten)]
    pub(crate) permissions: Permissions,
    #[command(flatten)]
    pub(crate) models: Models,
    /// Print events and the result as one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A point of a process, written `PID`, `PID@FACT` or `PID@cp:N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PointOf {
    pub(crate) pid: Pid,
    pub(crate) at: Point,
}

impl FromStr for PointOf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || format!("'{text}' is not a point: write PID, PID@FACT or PID@cp:N");
        let (pid, at) = text.split_once('@').map_or((text, None), |(pid, at)| (pid, Some(at)));
        let at = match at {
            None => Point::Now,
            Some(at) if at.starts_with("cp:") => Point::Checkpoint(at.parse().map_err(|_| wrong())?),
            Some(at) => Point::Fact(FactNumber(at.parse().map_err(|_| wrong())?)),
        };
        Ok(Self { pid: Pid(pid.parse().map_err(|_| wrong())?), at })
    }
}

/// `dormouse export`
#[derive(Debug, Args)]
pub(crate) struct Export {
    /// What is exported: PID (as it stands), PID@FACT or PID@cp:N.
    #[arg(value_name = "POINT")]
    pub(crate) of: PointOf,
    /// The file, such as planner.dormouse. Only its owner can read it.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The store's folder. It may be in use.
    #[arg(long, value_name = "DIR")]
    pub(crate) store: PathBuf,
    #[command(flatten)]
    pub(crate) key: Key,
    /// With all processes below it, and the messages that are on their way between them.
    #[arg(long)]
    pub(crate) tree: bool,
    /// Mask what matches, in every text that leaves; may be given several times. Lengths and line breaks stay.
    #[arg(long, value_name = "REGEX")]
    pub(crate) redact: Vec<regex::bytes::Regex>,
}

/// `dormouse import`
#[derive(Debug, Args)]
pub(crate) struct Import {
    /// The file that `dormouse export` made. To resume what it holds is to run the programs in it: `dormouse show` lists what
    /// they start and reach.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The store's folder; made where there is none.
    #[arg(long, value_name = "DIR")]
    pub(crate) store: PathBuf,
    #[command(flatten)]
    pub(crate) key: Key,
    /// Go on with what was taken in, and with nothing else in the store, to its end. Permissions and models are for that.
    #[arg(long)]
    pub(crate) resume: bool,
    #[command(flatten)]
    pub(crate) permissions: Permissions,
    #[command(flatten)]
    pub(crate) models: Models,
    /// Print events and the result as one JSON object a line.
    #[arg(long, requires = "resume")]
    pub(crate) json: bool,
}

impl Import {
    /// Whether something was said that is of use only where what is taken in goes on.
    pub(crate) fn is_to_run(&self) -> bool {
        let Permissions { allow_run, allow_env, allow_net, allow_read, allow_write, allow_unconfined } =
            &self.permissions;
        let names = [allow_run, allow_env].into_iter().any(|given| !given.is_empty());
        let names = names || allow_net.is_some() || allow_unconfined.is_some();
        let folders = [allow_read, allow_write].into_iter().any(|given| !given.is_empty());
        let Models { record, replay, redact, prices } = &self.models;
        let models = record.is_some() || replay.is_some() || prices.is_some() || !redact.is_empty();
        names || folders || models
    }
}

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

/// `dormouse call`
#[derive(Debug, Args)]
pub(crate) struct Call {
    /// The program file.
    pub(crate) program: PathBuf,
    /// The calls, one JSON object a line: {"tool": NAME, "args": {…}} or {"open": {"file": PATH, "page_size": N}}. `-`
    /// reads them from standard input.
    #[arg(long, value_name = "FILE.jsonl")]
    pub(crate) calls: PathBuf,
    /// Keep everything durable in this folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) store: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) key: Key,
    #[command(flatten)]
    pub(crate) permissions: Permissions,
}

/// `dormouse mcp`
///
/// Over standard input and output, until the input ends; with --http, until it is stopped. What is too large for a context
/// comes back as a descriptor, which the client reads page by page. No model is asked.
#[derive(Debug, Args)]
pub(crate) struct Mcp {
    /// The program file whose tools are served.
    #[arg(conflicts_with_all = ["config", "server"])]
    pub(crate) program: Option<PathBuf>,
    /// Serve the tools of the servers in this file, as other clients keep it: {"mcpServers": {…}}. To name it permits what it
    /// names: its commands, its machines, its variables.
    #[arg(long, value_name = "FILE", conflicts_with = "server")]
    pub(crate) config: Option<PathBuf>,
    /// Serve the tools of this server, a command that speaks the protocol over its standard streams.
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) server: Vec<String>,
    /// Outputs of more characters become descriptors, in front of servers.
    #[arg(long, value_name = "CHARS", default_value_t = 8000, conflicts_with = "program", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) threshold: u32,
    /// Characters of a page, in front of servers.
    #[arg(long, value_name = "CHARS", default_value_t = 4000, conflicts_with = "program", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) page_size: u32,
    /// Serve over HTTP at this address, and print the URL; in a second line, print what a client has to be configured with: a token
    /// is drawn for each start, and who does not show it is refused. Without an address: at any free port of this machine, for
    /// this machine alone.
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 0..=1, require_equals = true, default_missing_value = "127.0.0.1:0")]
    pub(crate) http: Option<SocketAddr>,
    /// Serve pages of the web that come from here, beside those of this machine: https://app.example:443.
    #[arg(long, value_name = "ORIGIN,…", value_delimiter = ',', requires = "http", value_parser = crate::mcp::origin)]
    pub(crate) allow_origin: Vec<String>,
    /// Serve other machines too. Whoever has the token may call every tool, and it goes over the net as it is: put a server
    /// that speaks TLS in front.
    #[arg(long, requires_all = ["http", "token_env"])]
    pub(crate) allow_remote: bool,
    /// Serve only who shows the token that this environment variable holds, as `Authorization: Bearer …`, in place of one that is
    /// drawn.
    #[arg(long, value_name = "NAME", requires = "http")]
    pub(crate) token_env: Option<String>,
    /// Ask for no token: every program and every user of this machine may call every tool.
    #[arg(long, requires = "http", conflicts_with_all = ["allow_remote", "token_env"])]
    pub(crate) no_token: bool,
    /// Serve so many sessions at once.
    #[arg(long, value_name = "N", default_value_t = 64, requires = "http", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) max_sessions: u16,
    /// End a session in which nothing was said for so long: 15m, 12h, 1d.
    #[arg(long, value_name = "AGE", default_value = "1h", value_parser = crate::gc::age, requires = "http")]
    pub(crate) idle: u64,
    /// Keep descriptors in this folder, and go on with them whenever it is served from again. All sessions share them.
    #[arg(long, value_name = "DIR")]
    pub(crate) store: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) key: Key,
    #[command(flatten)]
    pub(crate) permissions: Permissions,
}

/// `dormouse page`
#[derive(Debug, Args)]
pub(crate) struct Page {
    /// The file.
    pub(crate) file: PathBuf,
    /// Characters per page.
    #[arg(long, value_name = "N", default_value_t = 4000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) page_size: u32,
    /// Print one JSON object a page: page, lines, continued, truncated, text.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A store that is there.
#[derive(Debug, Args)]
pub(crate) struct Store {
    /// The store's folder.
    #[arg(long = "store", value_name = "DIR")]
    pub(crate) folder: PathBuf,
    #[command(flatten)]
    pub(crate) key: Key,
}

/// The key of a store that is encrypted. It is never an argument itself: those can be seen by everybody.
#[derive(Debug, Default, Args)]
pub(crate) struct Key {
    /// The file with the key of an encrypted store, or of one that is to be made so: 64 hexadecimal digits, or 32 bytes that
    /// were drawn at random. `openssl rand -hex 32` makes one. Without it, DORMOUSE_STORE_KEY may hold the digits.
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
}

/// Who answers, and what it costs. A real run that is recorded can be repeated offline, and put into a bug report.
#[derive(Debug, Default, Args)]
pub(crate) struct Models {
    /// Write what models are asked and what they reply to a new file, which only its owner can read.
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    pub(crate) record: Option<PathBuf>,
    /// Ask no model, and serve what was recorded. A request that was never made fails, with the byte that differs.
    #[arg(long, value_name = "FILE")]
    pub(crate) replay: Option<PathBuf>,
    /// Mask what matches in the recording, and in requests that are compared with it; may be given several times.
    #[arg(long, value_name = "REGEX")]
    pub(crate) redact: Vec<regex::bytes::Regex>,
    /// What models cost: a TOML file with [prices], as a program may have it, for models that no program prices. It goes
    /// before the table that is built in.
    #[arg(long, value_name = "FILE")]
    pub(crate) prices: Option<PathBuf>,
}

/// What programs may do to this machine. Nothing, unless it is said here.
#[derive(Debug, Default, Args)]
pub(crate) struct Permissions {
    /// Permit to run these programs.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub(crate) allow_run: Vec<String>,
    /// Permit to tell programs that ask for them these environment variables.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub(crate) allow_env: Vec<String>,
    /// Permit to connect to these machines, where a program names one by its address: 127.0.0.1:8082, models.example. The names hold
    /// for the kernel itself; commands and servers may then connect by IP, to these ports where all are named with one.
    /// Without names: permit everything, sockets of this machine included.
    #[arg(long, value_name = "MACHINE,…", value_delimiter = ',', num_args = 0.., require_equals = true)]
    pub(crate) allow_net: Option<Vec<String>>,
    /// Permit to read files below these folders.
    #[arg(long, value_name = "DIR,…", value_delimiter = ',')]
    pub(crate) allow_read: Vec<PathBuf>,
    /// Permit to write files below these folders; they are made where they are absent.
    #[arg(long, value_name = "DIR,…", value_delimiter = ',')]
    pub(crate) allow_write: Vec<PathBuf>,
    /// Permit these programs, as commands or tool servers, to run unconfined: to do all that you can. Without names: permit to run
    /// commands and servers also where this system cannot confine them.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', num_args = 0.., require_equals = true)]
    pub(crate) allow_unconfined: Option<Vec<String>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_a_process_and_where_it_stood() {
        let point = |pid, at| Ok(PointOf { pid: Pid(pid), at });
        assert_eq!("3".parse(), point(3, Point::Now));
        assert_eq!("3@12".parse(), point(3, Point::Fact(FactNumber(12))));
        assert_eq!("3@cp:2".parse(), point(3, Point::Checkpoint(CheckpointId(2))));
        for text in ["", "x", "3@", "3@x", "3@cp:0", "@3", "-1"] {
            assert!(text.parse::<PointOf>().unwrap_err().contains("PID@FACT"), "{text}");
        }
    }
}
