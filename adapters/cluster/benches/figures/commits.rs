//! A commit of one fact, and one INSERT of the same bytes, in turns.
//!
//! Commits a second of many shards are measured by the bench of the store
//! (`adapters/postgres/benches/commits.rs`), which `.ci/cluster-figures` also runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use dormouse::ports::{OwnerToken, SyncLevel};
use dormouse_postgres::{PostgresLog, ShardId};
use dormouse_records::{RecordBatch, RecordLog, RecordOp, Stream, StreamKind};

use crate::baseline::{PlainInsert, RECORD_BYTES};
use crate::report::{Durations, print_head, print_row};
use crate::schema::Schema;

const COMMITS: u64 = 3000;
/// The first ones fill caches.
const WARM_UP: u64 = 200;

pub(crate) async fn measure() -> Result<()> {
    print_head();
    for sync_level in [SyncLevel::Synced, SyncLevel::Written] {
        let schema = Schema::new()?;
        let database = schema.database(1).await?;
        let log = Arc::new(PostgresLog::unleased(&database, ShardId(0)));
        let claimed = log.clone();
        let owner = tokio::task::spawn_blocking(move || claimed.claim()).await??;
        let mut plain = PlainInsert::new(&schema, sync_level).await?;
        let (mut ours, mut alone) = (Durations::default(), Durations::default());
        for number in 1..=WARM_UP + COMMITS {
            let log = log.clone();
            let commit =
                tokio::task::spawn_blocking(move || commit(&log, owner, number, sync_level));
            let (commit, insert) = (commit.await??, plain.once().await?);
            if number > WARM_UP {
                ours.push(commit);
                alone.push(insert);
            }
        }
        let what = format!("commit of one fact, {sync_level:?}");
        print_row(what, &ours, "one INSERT", &alone);
    }
    Ok(())
}

fn commit(
    log: &PostgresLog,
    owner: OwnerToken,
    number: u64,
    sync_level: SyncLevel,
) -> Result<Duration> {
    let op = RecordOp::Put {
        stream: Stream {
            kind: StreamKind::Fact,
            id: 1,
        },
        number,
        bytes: Bytes::from(vec![0xa5; RECORD_BYTES]),
    };
    let batch = RecordBatch {
        contents: &[],
        ops: &[op],
        at_ms: 1_700_000_000_000,
        sync_level,
    };
    let begun = Instant::now();
    log.append(owner, &batch)?;
    Ok(begun.elapsed())
}
