//! The command line: all commands, and the flags that several commands share.
//!
//! The module of a command declares its arguments. Flags that need more than a declaration have a
//! module of their own: `store_key`, `permissions`, `models`, `process_position`.

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
use dormouse::Budget;
use dormouse::program::parse_money;

use crate::alarms::Alarms;
use crate::approval::{AnswerCall, Approve, Pending, Refuse};
use crate::branch::{Branch, Checkpoint, Restore};
use crate::call::Call;
#[cfg(feature = "cluster")]
use crate::cluster::ClusterCommand;
use crate::control_api::Listen;
use crate::effects::Effects;
use crate::export::{Export, Import};
use crate::fsck::Fsck;
use crate::gc::Gc;
use crate::history::{Checkpoints, Diff, Log};
use crate::label::{LabelAction, LabelArgs, ListBudgets, RemoveBudget, SetBudget};
use crate::mcp::Mcp;
use crate::messages::Messages;
use crate::models::Models;
use crate::page::Page;
use crate::permissions::Permissions;
use crate::ps::Ps;
use crate::race::Race;
use crate::raise::Raise;
use crate::resume::Resume;
use crate::run::Run;
use crate::schema::Schema;
use crate::send::Send;
use crate::serve::Serve;
use crate::show::Show;
use crate::store_key::Key;

/// A process kernel for LLM agents.
#[derive(Debug, Parser)]
#[command(
    name = "dormouse",
    version,
    after_help = "Exit codes: 0 done; 1 a process ended without finishing its task (model failure, \
         limit, refusal); 2 the command line or a program is wrong; 3 the store cannot be used; 4 \
         calls wait for a person (dormouse pending), or processes are paused at a limit (dormouse \
         raise); 5 nothing is left to do before the next alarm, or before a label has a budget again; \
         129, 130, 143 stopped by SIGHUP, Ctrl-C, SIGTERM, with a store it can be resumed. On a \
         terminal, characters that would control it, or reorder or hide text, are shown by signs \
         (␛, \\u{202e}); in a pipe or a file, an answer is exact, and JSON has them as \\u escapes \
         always. DORMOUSE_LOG=debug shows what happens inside. DORMOUSE_STORE_KEY holds the key of \
         an encrypted store, where --key-file names none."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a program to its end.
    Run(Run),
    /// Resume the processes of a store that have not ended, or the named trees only.
    Resume(Resume),
    /// Send a message to a process of a store and run its tree: one that has ended is opened again.
    Send(Send),
    /// List the calls of a store that wait for a person: approvals and questions.
    Pending(Pending),
    /// Approve a call that waits: it runs when its process is resumed.
    Approve(Approve),
    /// Refuse a call that waits.
    Refuse(Refuse),
    /// Answer a question that waits.
    Answer(AnswerCall),
    /// Raise limits of a process by amounts: one that is paused at a limit goes on when it is
    /// resumed.
    Raise(Raise),
    /// Set, remove and list the budgets of labels, which all trees with a label share.
    Label(LabelArgs),
    /// List the processes of a store.
    Ps(Ps),
    /// List the open alarms of a store: when its processes wake.
    Alarms(Alarms),
    /// Collect the garbage of a store: delete what the rules select, and free the space that
    /// nothing needs any more.
    Gc(Gc),
    /// Check a store. Exits with 0 if nothing new is wrong, 1 if it is damaged and nothing is lost,
    /// 3 if something is lost or it cannot be read.
    Fsck(Fsck),
    /// List the facts of a process: a branch can begin after each of them.
    Log(Log),
    /// Print the conversation of a process at any position, as its model read it.
    Messages(Messages),
    /// Show what differs between two points of one process or two.
    Diff(Diff),
    /// List what a process did outside of itself: the calls of tools with write access, files,
    /// messages, children.
    Effects(Effects),
    /// Give the present position of a process a name.
    Checkpoint(Checkpoint),
    /// List the checkpoints of a store.
    Checkpoints(Checkpoints),
    /// Continue from any position of a process as new processes; the process itself does not
    /// change.
    Branch(Branch),
    /// Make several branches of a position, of which none acts outside of itself, choose the best
    /// one by a judge, and run it to its end.
    Race(Race),
    /// Continue from a checkpoint as new processes.
    Restore(Restore),
    /// Write a process, or a tree, to one file, which another store can import.
    Export(Export),
    /// Import an export as new processes, which are held until you resume them by pid.
    Import(Import),
    /// Check an export, and show what it holds.
    Show(Show),
    /// Execute tool calls against a process, without a model.
    Call(Call),
    /// Serve the control API of a store at rest over HTTP: everything in it can be looked at.
    Serve(Serve),
    /// Serve the tools of a program, and those of descriptors, to any client of the Model Context
    /// Protocol.
    Mcp(Mcp),
    /// Show a file in pages, as a model would see it.
    Page(Page),
    /// Print the JSON Schema of program files: with it an editor completes and checks them.
    Schema(Schema),
    #[cfg(feature = "cluster")]
    #[command(flatten)]
    Cluster(ClusterCommand),
}

impl Command {
    /// What the command logs unless DORMOUSE_LOG says otherwise: a node says what it does.
    pub(crate) fn default_log(&self) -> &'static str {
        match self {
            #[cfg(feature = "cluster")]
            Self::Cluster(ClusterCommand::Node(_)) => "info",
            _ => "error,dormouse_store::progress=info",
        }
    }

    /// What `--store` names, if the command has that flag and it was given. Commands that only
    /// clusters have are left out.
    pub(crate) fn store(&self) -> Option<&Path> {
        Some(match self {
            Self::Run(Run { store, .. })
            | Self::Call(Call { store, .. })
            | Self::Mcp(Mcp { store, .. }) => store.as_deref()?,
            Self::Export(Export { store, .. }) | Self::Import(Import { store, .. }) => store,
            Self::Resume(Resume { store, .. })
            | Self::Send(Send { store, .. })
            | Self::Pending(Pending { store, .. })
            | Self::Approve(Approve { store, .. })
            | Self::Refuse(Refuse { store, .. })
            | Self::Answer(AnswerCall { store, .. })
            | Self::Raise(Raise { store, .. })
            | Self::Ps(Ps { store, .. })
            | Self::Alarms(Alarms { store, .. })
            | Self::Gc(Gc { store, .. })
            | Self::Fsck(Fsck { store, .. })
            | Self::Log(Log { store, .. })
            | Self::Messages(Messages { store, .. })
            | Self::Diff(Diff { store, .. })
            | Self::Effects(Effects { store, .. })
            | Self::Checkpoint(Checkpoint { store, .. })
            | Self::Checkpoints(Checkpoints { store, .. })
            | Self::Branch(Branch { store, .. })
            | Self::Race(Race { store, .. })
            | Self::Restore(Restore { store, .. })
            | Self::Serve(Serve { store, .. }) => &store.folder,
            Self::Label(LabelArgs { action }) => match action {
                LabelAction::Set(SetBudget { store, .. })
                | LabelAction::Remove(RemoveBudget { store, .. })
                | LabelAction::List(ListBudgets { store, .. }) => &store.folder,
            },
            Self::Show(_) | Self::Page(_) | Self::Schema(_) => return None,
            #[cfg(feature = "cluster")]
            Self::Cluster(_) => return None,
        })
    }
}

/// A text for a process, in which something is said.
pub(crate) fn parse_text(text: &str) -> anyhow::Result<String> {
    anyhow::ensure!(
        !text.trim().is_empty(),
        "it is empty: give a text that says something"
    );
    Ok(text.to_owned())
}

/// The flags of commands that run processes.
#[derive(Debug, Args)]
pub(crate) struct RunFlags {
    #[command(flatten)]
    pub(crate) permissions: Permissions,
    #[command(flatten)]
    pub(crate) models: Models,
    /// Print events and the results as one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
    /// Keep running while processes only wait for an alarm, until none is left or the run is
    /// stopped. Without it, a run on a store then ends with exit code 5.
    #[arg(long)]
    pub(crate) wait: bool,
    /// Nobody answers: a call that repeats what ran beyond a point that its process went back to
    /// gets the recorded answer, unless a policy says otherwise.
    #[arg(long)]
    pub(crate) unattended: bool,
    #[command(flatten)]
    pub(crate) listen: Listen,
    /// On a cluster: print the pid, and do not wait for what becomes of it.
    #[arg(long)]
    pub(crate) detach: bool,
}

/// An existing store.
#[derive(Debug, Args)]
pub(crate) struct Store {
    /// The store's folder; or the database of a cluster: postgres://USER@HOST/DATABASE.
    #[arg(long = "store", value_name = "STORE")]
    pub(crate) folder: PathBuf,
    #[command(flatten)]
    pub(crate) key: Key,
}

/// The amounts that calls of models use. At least one of the group `amounts` has to be named, which
/// a command may extend by further amounts.
#[derive(Debug, Args)]
#[group(id = "amounts", required = true, multiple = true)]
pub(crate) struct ModelAmounts {
    /// Money, in the currency of the price table, such as 1.50.
    #[arg(long, value_name = "MONEY", value_parser = parse_money)]
    cost: Option<u64>,
    /// Input tokens.
    #[arg(long, value_name = "TOKENS")]
    input_tokens: Option<u64>,
    /// Output tokens.
    #[arg(long, value_name = "TOKENS")]
    output_tokens: Option<u64>,
}

impl ModelAmounts {
    /// A budget of these amounts.
    pub(crate) fn budget(&self) -> Budget {
        Budget {
            cost_nanos: self.cost,
            input_tokens: self.input_tokens,
            output_tokens: self.output_tokens,
            ..Budget::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raise_and_a_budget_of_a_label_name_at_least_one_amount() {
        let cases = [
            ("raise 1", false),
            ("raise 1 --cost 1.50", true),
            ("raise 1 --processes 2", true),
            ("raise 1 --wall-time 90s --output-tokens 5", true),
            ("label set user=anna --per day", false),
            ("label set user=anna --per day --cost 1", true),
            (
                "label set user=anna --per day --cost 1 --input-tokens 5",
                true,
            ),
            ("label set user=anna --per day --processes 2", false),
        ];
        for (words, is_valid) in cases {
            let line = format!("dormouse {words} --store s");
            let parsed = Arguments::try_parse_from(line.split_whitespace());
            assert_eq!(parsed.is_ok(), is_valid, "{line}: {parsed:?}");
        }
    }

    #[test]
    fn each_amount_of_a_raise_is_one_of_its_budget() {
        let line = "dormouse raise 1 --store s --cost 1.50 --input-tokens 2 --output-tokens 3 \
                    --wall-time 4s --resident-bytes 5 --processes 6";
        let parsed = Arguments::try_parse_from(line.split_whitespace()).unwrap();
        let Command::Raise(raise) = parsed.command else {
            panic!("{line}");
        };
        let expected = Budget {
            cost_nanos: Some(1_500_000_000),
            input_tokens: Some(2),
            output_tokens: Some(3),
            wall_time_ms: Some(4_000),
            resident_bytes: Some(5),
            processes: Some(6),
            depth: None,
        };
        assert_eq!(raise.amounts.budget(), expected);
    }
}
