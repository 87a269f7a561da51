//! Clusters: nodes, and the commands whose store is a database that nodes share.
//!
//! Only builds with the feature `cluster` have this module. A command on a cluster runs no process:
//! it asks the nodes, or reads the database.

mod commands;
mod database;
mod events;
mod failure;
mod follow;
mod garbage;
mod labels;
mod moves;
mod node;
mod nodes;
mod readers;
mod whole_stores;

use std::io::Write;
use std::process::ExitCode;

use clap::Subcommand;
use dormouse_cluster::ClusterProcess;

use self::commands::{SendSignal, Wait};
use self::moves::MoveTree;
pub(crate) use self::node::Node;
use self::nodes::{Drain, Nodes};
pub(crate) use self::readers::ShardReaders;
use self::whole_stores::{ExportStore, ImportStore};
use crate::args::Command;
use crate::failure::Failure;
use crate::terminal;

/// The commands that only clusters have.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Run a node of a cluster, until SIGTERM or SIGINT drains it.
    Node(Box<Node>),
    /// List the live nodes of a cluster.
    Nodes(Nodes),
    /// Ask a node to give up its shards and to leave, and wait until it has.
    Drain(Drain),
    /// Follow processes of a cluster until they have ended or can do nothing more by themselves.
    Wait(Wait),
    /// Interrupt, stop, continue or kill a process of a cluster, or a tree.
    Signal(SendSignal),
    /// Move a tree to another shard of its cluster. Its processes get new pids.
    Move(MoveTree),
    /// Bring all trees of a store into a cluster, where they go on.
    ImportStore(ImportStore),
    /// Bring all trees of a cluster into a store, held. Those of the cluster stay and go on.
    ExportStore(ExportStore),
}

/// Executes one of these commands.
pub(crate) async fn execute(command: ClusterCommand) -> Result<ExitCode, Failure> {
    match command {
        ClusterCommand::Node(node) => node::node(*node).await,
        ClusterCommand::Nodes(nodes) => nodes::nodes(nodes).await,
        ClusterCommand::Drain(drain) => nodes::drain(drain).await,
        ClusterCommand::Wait(wait) => commands::wait(wait).await,
        ClusterCommand::Signal(signal) => commands::signal(signal).await,
        ClusterCommand::Move(tree) => moves::move_tree(tree).await,
        ClusterCommand::ImportStore(import) => whole_stores::import(import).await,
        ClusterCommand::ExportStore(export) => whole_stores::export(export).await,
    }
}

/// Executes a command of all stores whose store is a cluster.
pub(crate) async fn execute_on_cluster(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Run(run) => commands::run(run).await,
        Command::Send(send) => commands::send(send).await,
        Command::Resume(resume) => commands::resume(resume).await,
        Command::Approve(args) => {
            commands::decide(&args.store.folder, args.call, vec![args.verdict()]).await
        }
        Command::Refuse(args) => {
            commands::decide(&args.store.folder, args.call, vec![args.verdict()]).await
        }
        Command::Answer(args) => {
            commands::decide(&args.store.folder, args.call, args.verdicts()).await
        }
        Command::Raise(raise) => commands::raise(raise).await,
        Command::Label(label) => labels::label(label.action).await,
        Command::Checkpoint(checkpoint) => commands::checkpoint(checkpoint).await,
        Command::Branch(branch) => commands::branch(branch).await,
        Command::Import(import) => commands::import(import).await,
        Command::Gc(args) => garbage::gc(args).await,
        command => match refusal(&command) {
            Some(why) => Err(Failure::Usage(why.to_owned())),
            // It only shows something.
            None => crate::execute(command).await,
        },
    }
}

/// Why a command has no meaning on a cluster, and what to do instead.
fn refusal(command: &Command) -> Option<&'static str> {
    Some(match command {
        Command::Restore(_) => {
            "a checkpoint of a cluster has its number in its shard: name a process of it, by dormouse branch \
             PID@cp:N"
        }
        Command::Race(_) => {
            "a race runs in one program, and not on a cluster: dormouse export --tree writes the tree to a \
             file, and dormouse import brings it into a folder where it can race"
        }
        Command::Call(_) => {
            "the calls run in this program, and not on a cluster: leave --store out, or name a folder"
        }
        Command::Mcp(_) => {
            "the server runs in this program, and not on a cluster: leave --store out, or name a folder"
        }
        Command::Fsck(_) => {
            "a cluster is checked where it is read, record by record: dormouse ps says what cannot be read. \
             The files are those of the database: pg_amcheck and pg_checksums check them"
        }
        _ => return None,
    })
}

/// Prints the pids of processes that nobody waits for here.
fn print_pids(processes: &[ClusterProcess]) -> Result<ExitCode, Failure> {
    for process in processes {
        writeln!(terminal::stdout(), "{}", process.pid())?;
    }
    Ok(ExitCode::SUCCESS)
}
