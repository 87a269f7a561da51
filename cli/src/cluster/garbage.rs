//! `dormouse gc` on a cluster: each shard is collected at its node, and then the object store.

use std::io::Write;
use std::process::ExitCode;

use dormouse::ports::SweepMode;
use dormouse_cluster::{ClusterCollection, OBJECT_GRACE};

use super::database::connect;
use crate::failure::Failure;
use crate::gc::{Gc, check_rules, freed, print_deletions, retention};
use crate::stop_signals::StopSignals;
use crate::terminal::{self, one_line};

/// Collects garbage, or counts it, and prints the result. A signal ends the command, and the shards
/// that are being collected go on to their end. Exits with 3 if a shard was not collected.
pub(super) async fn gc(args: Gc) -> Result<ExitCode, Failure> {
    if args.live_percent.is_some() || args.despite_damage {
        return Err(Failure::Usage(
            "--live-percent and --despite-damage are for stores in a folder: a cluster has no \
             segments, and a shard that cannot be read keeps its contents"
                .to_owned(),
        ));
    }
    check_rules(&args)?;
    let mut stop = StopSignals::listen()?;
    let cluster = connect(&args.store.folder).await?;
    let mode = args.mode();
    let collection = tokio::select! {
        collection = cluster.collect_garbage(retention(&args), mode, OBJECT_GRACE) => collection?,
        code = stop.next() => return Ok(ExitCode::from(code)),
    };
    print(&collection, mode)?;
    Ok(match collection.failed.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(3),
    })
}

fn print(collection: &ClusterCollection, mode: SweepMode) -> std::io::Result<()> {
    let shards = &collection.shards;
    let mut out = terminal::stdout();
    print_deletions(
        &mut out,
        mode,
        [shards.checkpoints, shards.processes, shards.histories],
    )?;
    let freed = freed(mode);
    writeln!(
        out,
        "{freed}  {} contents of {} bytes in the shards; {} contents are referenced",
        shards.freed_contents, shards.freed_bytes, shards.live_contents
    )?;
    if let Some(objects) = &collection.objects {
        writeln!(
            out,
            "{freed}  {} of {} objects; {} bytes",
            objects.deleted, objects.objects, objects.deleted_bytes
        )?;
    }
    for (shard, what) in &collection.unreadable {
        writeln!(
            out,
            "unreadable, so {shard} keeps all its contents: {}",
            one_line(what)
        )?;
    }
    for (shard, error) in &collection.failed {
        writeln!(
            out,
            "not collected, so all of {shard} is kept: {}",
            one_line(&error.to_string())
        )?;
    }
    Ok(())
}
