//! Commits of several shards in one statement.
//!
//! A write of records alone is sent at once if few statements are on their way. Otherwise it waits
//! until one of them returns, and is sent together with all that have waited: the more shards
//! write, the fewer transactions and syncs each of their commits costs. The database accepts or
//! refuses each write of a statement by itself. A refused one is returned to its writer, who asks
//! for the reason (`write.rs`).

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dormouse_actors::ports::{StoreError, SyncLevel};
use tokio_postgres::Row;

use crate::batch::RecordColumns;
use crate::connections::{Connections, Parameters, parameters};
use crate::error::{AttemptError, store_error};

/// The most writes, and bytes of records, that one statement carries; a single write may have more
/// bytes.
const GROUP_WRITES: usize = 64;
const GROUP_BYTES: usize = 1024 * 1024;

/// The records of one commit of a shard.
#[derive(Debug)]
pub(crate) struct RecordWrite {
    pub(crate) shard: i32,
    pub(crate) epoch: i64,
    /// The number of writes of the shard that this one follows.
    pub(crate) writes: i64,
    pub(crate) nonce: i64,
    pub(crate) at_ms: i64,
    pub(crate) records: RecordColumns,
}

/// What became of a write.
pub(crate) enum GroupAnswer {
    Written {
        writes: i64,
        commit: i64,
    },
    /// The write was refused, or the statement failed for a reason that may be that of another
    /// write.
    NotWritten(RecordWrite),
}

/// The writes of one level that wait, and the number of statements on their way.
pub(crate) struct GroupQueue {
    sync_level: SyncLevel,
    max_statements: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    statements: usize,
}

struct Waiting {
    write: RecordWrite,
    answer: SyncSender<Result<GroupAnswer, StoreError>>,
}

impl GroupQueue {
    pub(crate) fn new(sync_level: SyncLevel, max_statements: usize) -> Self {
        Self {
            sync_level,
            max_statements,
            state: Mutex::default(),
        }
    }

    /// Adds a write. The answer arrives at the receiver. If the second value is `true`, the caller
    /// starts a task that calls [`send_waiting`].
    pub(crate) fn push(
        &self,
        write: RecordWrite,
    ) -> (Receiver<Result<GroupAnswer, StoreError>>, bool) {
        let (answer, receiver) = sync_channel(1);
        let mut state = self.state();
        state.waiting.push_back(Waiting { write, answer });
        let starts_task = state.statements < self.max_statements;
        state.statements += usize::from(starts_task);
        (receiver, starts_task)
    }

    /// The writes of the next statement. If none waits, the task of the caller ends.
    fn next_group(&self) -> Option<Vec<Waiting>> {
        let mut state = self.state();
        let mut bytes = 0;
        let mut count = 0;
        for waiting in state.waiting.iter().take(GROUP_WRITES) {
            bytes += waiting.write.records.byte_count();
            if count > 0 && bytes > GROUP_BYTES {
                break;
            }
            count += 1;
        }
        if count == 0 {
            state.statements -= 1;
            return None;
        }
        Some(state.waiting.drain(..count).collect())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sql(&self) -> &'static str {
        match self.sync_level {
            SyncLevel::Written => WRITE_WRITTEN,
            SyncLevel::Synced => WRITE_SYNCED,
        }
    }
}

/// The statement, with how it chooses `synchronous_commit` for its transaction.
macro_rules! write_records {
    ($level:literal) => {
        concat!(
            "WITH written AS (
                UPDATE {schema}.shard AS s
                SET writes = s.writes + 1, nonce = w.nonce, last_commit = s.last_commit + 1
                FROM unnest($1::integer[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
                    WITH ORDINALITY AS w (shard, epoch, writes, nonce, at_ms, n)
                WHERE s.id = w.shard AND s.epoch = w.epoch AND s.writes = w.writes
                RETURNING w.n, s.id, w.at_ms, s.writes, s.last_commit, ",
            $level,
            "
            ), records AS (
                INSERT INTO {schema}.record (shard, kind, id, number, in_commit, at_ms, bytes)
                SELECT w.id, r.kind, r.id, r.number, w.last_commit, w.at_ms, r.bytes
                FROM unnest($6::bigint[], $7::smallint[], $8::bigint[], $9::bigint[], $10::bytea[])
                    AS r (n, kind, id, number, bytes)
                JOIN written AS w ON w.n = r.n
                ON CONFLICT (shard, kind, id, number)
                DO UPDATE SET in_commit = excluded.in_commit, at_ms = excluded.at_ms, bytes = excluded.bytes
            )
            SELECT n, writes, last_commit FROM written"
        )
    };
}

const WRITE_WRITTEN: &str = write_records!("set_config('synchronous_commit', 'off', true)");
const WRITE_SYNCED: &str = write_records!(
    "CASE current_setting('synchronous_commit') WHEN 'off'
        THEN set_config('synchronous_commit', 'on', true) END"
);

/// Sends what waits, one statement after another, until nothing does.
pub(crate) async fn send_waiting(queue: Arc<GroupQueue>, connections: Connections) {
    while let Some(group) = queue.next_group() {
        let parameters = columns(&group);
        let rows = connections
            .query("write commits", queue.sql(), parameters)
            .await;
        answer(group, rows);
    }
}

/// The writes and their records, a column for each field. The records name their write by its
/// number from 1.
fn columns(group: &[Waiting]) -> Parameters {
    let write_column = |field: fn(&RecordWrite) -> i64| -> Vec<i64> {
        group.iter().map(|waiting| field(&waiting.write)).collect()
    };
    let shards: Vec<_> = group.iter().map(|waiting| waiting.write.shard).collect();
    let mut numbers: Vec<i64> = Vec::new();
    let mut all = RecordColumns::default();
    for (waiting, number) in group.iter().zip(1..) {
        let records = &waiting.write.records;
        numbers.resize(numbers.len() + records.kinds.len(), number);
        all.extend(records);
    }
    parameters![
        shards,
        write_column(|write| write.epoch),
        write_column(|write| write.writes),
        write_column(|write| write.nonce),
        write_column(|write| write.at_ms),
        numbers,
        all.kinds,
        all.ids,
        all.numbers,
        all.bytes,
    ]
}

/// Tells each writer what became of its write. A writer that has gone is ignored.
fn answer(group: Vec<Waiting>, rows: Result<Vec<Row>, AttemptError>) {
    let rows = match rows {
        Ok(rows) => rows,
        Err(error) if error.is_transient() => {
            for waiting in group {
                let _ = waiting
                    .answer
                    .send(Err(store_error("write a commit", &error)));
            }
            return;
        }
        Err(_) => Vec::new(),
    };
    let mut written = vec![None; group.len()];
    for row in &rows {
        let number = row.get::<_, i64>(0) as usize;
        if let Some(written) = written.get_mut(number.wrapping_sub(1)) {
            *written = Some((row.get(1), row.get(2)));
        }
    }
    for (waiting, written) in group.into_iter().zip(written) {
        let answer = match written {
            Some((writes, commit)) => GroupAnswer::Written { writes, commit },
            None => GroupAnswer::NotWritten(waiting.write),
        };
        let _ = waiting.answer.send(Ok(answer));
    }
}
