//! `dormouse move`: moves a tree to another shard of its cluster.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use dormouse::id::Pid;
use dormouse_postgres::ShardId;

use super::database::DatabaseUrl;
use crate::failure::Failure;
use crate::terminal;

/// `dormouse move`
#[derive(Debug, Args)]
pub(crate) struct MoveTree {
    /// The root of the tree. Given again after a move, it names the tree where that went.
    #[arg(value_name = "TREE")]
    root: u64,
    /// The number of the shard. The shard of a process is its pid divided by 2^40, without the
    /// rest.
    #[arg(value_name = "SHARD")]
    shard: u32,
    #[command(flatten)]
    database: DatabaseUrl,
}

/// Moves a tree, waits until it runs in the other shard, and prints its new pid.
pub(super) async fn move_tree(args: MoveTree) -> Result<ExitCode, Failure> {
    let cluster = args.database.connect().await?;
    let moved = cluster
        .move_tree(Pid(args.root), ShardId(args.shard))
        .await?;
    writeln!(terminal::stdout(), "{}  was {}", moved.pid(), args.root)?;
    Ok(ExitCode::SUCCESS)
}
