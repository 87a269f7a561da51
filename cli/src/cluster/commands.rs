//! The commands of all stores on a cluster, as nodes are asked to do them.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use dormouse::checkpoint::Scope;
use dormouse::id::{Pid, ProcessCallId};
use dormouse::store::MemoryStore;
use dormouse::{Position, Verdict};
use dormouse_cluster::{
    Cluster, ClusterError, ClusterPosition, ClusterProcess, ProgramFiles, Refusal, Runs, Signal,
};

use super::database::{DatabaseUrl, connect};
use super::follow::Follower;
use crate::branch::{Branch, Checkpoint};
use crate::export::{Import, with_policy};
use crate::failure::{Failure, file_failure};
use crate::kernel_setup::{KernelSetup, load_program};
use crate::raise::{Raise, print_how_to_raise};
use crate::resume::{Resume, how_to_continue};
use crate::run::{Run, input_parts, no_input_message};
use crate::send::{Send, read_message};
use crate::store_key::Key;
use crate::terminal::{self, print_stderr};

/// `dormouse wait`
#[derive(Debug, Args)]
pub(crate) struct Wait {
    /// The processes.
    #[arg(value_name = "PID", required = true)]
    pids: Vec<u64>,
    #[command(flatten)]
    database: DatabaseUrl,
    #[command(flatten)]
    key: Key,
    /// Print events and the results as one JSON object a line.
    #[arg(long)]
    json: bool,
    /// Keep waiting while processes only wait for an alarm.
    #[arg(long)]
    wait: bool,
}

/// `dormouse signal`
#[derive(Debug, Args)]
pub(crate) struct SendSignal {
    /// What the process is to do.
    #[arg(value_enum)]
    signal: SignalWord,
    /// The process.
    pid: u64,
    /// Send it to all processes below it too.
    #[arg(long)]
    tree: bool,
    #[command(flatten)]
    database: DatabaseUrl,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SignalWord {
    /// End the current turn.
    Interrupt,
    /// Begin nothing more.
    Stop,
    /// Go on after a stop.
    Continue,
    /// End, with all processes below it.
    Kill,
}

impl From<SignalWord> for Signal {
    fn from(word: SignalWord) -> Self {
        match word {
            SignalWord::Interrupt => Self::Interrupt,
            SignalWord::Stop => Self::Stop,
            SignalWord::Continue => Self::Continue,
            SignalWord::Kill => Self::Kill,
        }
    }
}

/// Follows processes that run already.
pub(super) async fn wait(args: Wait) -> Result<ExitCode, Failure> {
    let store = &args.database.url;
    let follower = Follower::new(store, &args.key, args.json, args.wait).await?;
    let pids = args.pids.into_iter().map(Pid);
    let processes = pids.map(|pid| follower.cluster.process(pid)).collect();
    follower.follow(processes).await
}

pub(super) async fn signal(args: SendSignal) -> Result<ExitCode, Failure> {
    let process = args.database.connect().await?.process(Pid(args.pid));
    process.signal(args.signal.into(), scope(args.tree)).await?;
    Ok(ExitCode::SUCCESS)
}

fn scope(tree: bool) -> Scope {
    match tree {
        true => Scope::Tree,
        false => Scope::Process,
    }
}

/// Starts a program. It is compiled here too, so that what is wrong with it is shown in its files.
pub(super) async fn run(args: Run) -> Result<ExitCode, Failure> {
    let store = args.store.as_deref().unwrap_or(Path::new(""));
    let follower = Follower::of_run(store, &args.key, &args.flags).await?;
    let compiler = KernelSetup::new(None, &args.key).build().await?;
    let program = load_program(&compiler, &args.program)?;
    compiler.shutdown().await?;
    let bundle = program.bundle();
    let names = bundle.names();
    let files = names.filter_map(|name| Some((name.to_owned(), bundle.file(name)?.clone())));
    let files = ProgramFiles::new(bundle.entry(), files.collect());
    let mut start = follower.cluster.start(files);
    for label in &args.label {
        start = start.label(label.key(), label.value());
    }
    match input_parts(args.input)? {
        Some(input) => start = start.input(input),
        None if program.user().is_none() => {
            return Err(Failure::Usage(no_input_message(program.name())));
        }
        None => {}
    }
    let process = start.await?;
    follower.follow(vec![process]).await
}

/// Sends a message, and follows the tree of the process.
pub(super) async fn send(args: Send) -> Result<ExitCode, Failure> {
    let pid = Pid(args.pid);
    let message = read_message(pid, args.text, args.input_file)?;
    let store = &args.store;
    let follower = Follower::of_run(&store.folder, &store.key, &args.flags).await?;
    let process = follower.cluster.process(pid);
    process.input(message).await?;
    let root = root_of(&follower.cluster, pid).await?;
    follower.follow(vec![root]).await
}

/// The root of the tree of a process.
async fn root_of(cluster: &Cluster, pid: Pid) -> Result<ClusterProcess, Failure> {
    let mut root = pid;
    loop {
        let info = cluster.process(root).info().await?;
        match info.row.parent {
            Some(parent) => root = parent,
            None => return Ok(cluster.process(info.row.pid)),
        }
    }
}

/// Continues trees that were stopped, and follows them.
pub(super) async fn resume(args: Resume) -> Result<ExitCode, Failure> {
    if args.pids.is_empty() || args.imported {
        return Err(Failure::Usage(
            "the nodes of a cluster resume its processes by themselves: name the trees to continue that \
             were stopped, or follow some by dormouse wait PID"
                .to_owned(),
        ));
    }
    let store = &args.store;
    let follower = Follower::of_run(&store.folder, &store.key, &args.flags).await?;
    let mut roots = Vec::new();
    for pid in args.pids {
        let root = root_of(&follower.cluster, Pid(pid)).await?;
        match root.signal(Signal::Continue, Scope::Tree).await {
            // The result of one that has ended is shown again.
            Ok(())
            | Err(ClusterError::Refused {
                kind: Refusal::Ended,
                ..
            }) => {}
            Err(error) => return Err(error.into()),
        }
        roots.push(root);
    }
    follower.follow(roots).await
}

pub(super) async fn checkpoint(args: Checkpoint) -> Result<ExitCode, Failure> {
    let process = connect(&args.store.folder).await?.process(Pid(args.pid));
    let label = args.label.unwrap_or_default();
    let checkpoint = process.checkpoint(label, scope(args.tree)).await?;
    writeln!(terminal::stdout(), "{}", checkpoint.id)?;
    Ok(ExitCode::SUCCESS)
}

/// Makes a branch, gives it its input, and follows it.
pub(super) async fn branch(args: Branch) -> Result<ExitCode, Failure> {
    let Branch {
        position,
        store,
        continuation,
    } = args;
    if continuation.effects.is_some() {
        return Err(Failure::Usage(
            "--effects is not to be had on a cluster: the policies of the programs hold there"
                .to_owned(),
        ));
    }
    let follower = Follower::of_run(&store.folder, &store.key, &continuation.flags).await?;
    let at = match position.at {
        Position::Now => ClusterPosition::Now,
        Position::Fact(fact) => ClusterPosition::Fact(fact),
        Position::Checkpoint(checkpoint) => ClusterPosition::Checkpoint(checkpoint),
    };
    let origin = follower.cluster.process(position.pid);
    // Stopped, so that its process gets the input before it continues.
    let branch = origin.branch(at, Runs::Stopped).await?;
    if let Some(input) = continuation.input {
        branch.input(input).await?;
    }
    let root = root_of(&follower.cluster, branch.pid()).await?;
    root.signal(Signal::Continue, Scope::Tree).await?;
    follower.follow(vec![root]).await
}

/// Decides about a call by the first of the verdicts that applies.
pub(super) async fn decide(
    store: &Path,
    call: ProcessCallId,
    verdicts: Vec<Verdict>,
) -> Result<ExitCode, Failure> {
    let process = connect(store).await?.process(call.pid);
    let mut first_error = None;
    for verdict in verdicts {
        match process.decide(call.call, verdict).await {
            Ok(()) => {
                print_stderr(&how_to_continue(store));
                return Ok(ExitCode::SUCCESS);
            }
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    match first_error {
        Some(error) => Err(error.into()),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Raises limits. Exits with 4 if the process stays paused.
pub(super) async fn raise(args: Raise) -> Result<ExitCode, Failure> {
    let store = &args.store.folder;
    let process = connect(store).await?.process(Pid(args.pid));
    Ok(match process.raise(args.amounts.budget()).await? {
        None => {
            print_stderr(&how_to_continue(store));
            ExitCode::SUCCESS
        }
        Some(paused) => {
            print_how_to_raise(process.pid(), &paused, Some(store));
            ExitCode::from(4)
        }
    })
}

/// Imports an export, whose processes run at once: it comes as a store of its own.
pub(super) async fn import(args: Import) -> Result<ExitCode, Failure> {
    if !args.resume {
        return Err(Failure::Usage(
            "what is imported into a cluster runs at once, in nodes and with their permissions: say so by \
             --resume. dormouse show lists what it starts and reaches"
                .to_owned(),
        ));
    }
    if !args.permissions.is_empty() || !args.models.is_empty() {
        return Err(Failure::Usage(
            "permissions and models are those of the nodes: dormouse node --help".to_owned(),
        ));
    }
    let file = File::open(&args.file).map_err(|error| file_failure(&args.file, &error))?;
    let follower = Follower::new(&args.store, &args.key, args.json, false).await?;
    let source = KernelSetup::new(None, &args.key).builder()?;
    let source = source.store(MemoryStore::new()).build().await?;
    let imported = with_policy(source.import(file), args.effects)
        .held()
        .await?;
    let name = format!("file/{}", random_name()?);
    let brought = follower.cluster.import_store(&name, &source).await?.pids;
    source.shutdown().await?;
    for (exported, held) in &imported.pids {
        if let Some(pid) = brought.get(held) {
            print_stderr(&format!("imports process {pid}, which was {exported}"));
        }
    }
    let root = brought.get(&imported.process.pid());
    let roots = root.map(|root| follower.cluster.process(*root));
    follower.follow(roots.into_iter().collect()).await
}

/// A name that no other import has.
fn random_name() -> Result<String, Failure> {
    let mut bytes = [0; 16];
    getrandom::getrandom(&mut bytes).map_err(|error| Failure::Run(error.to_string()))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
