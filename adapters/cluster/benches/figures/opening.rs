//! Opening a shard of many processes, with histories of two lengths.
//!
//! The rows and pages that the database read are those of its own counters
//! (`pg_stat_user_tables`, `pg_statio_user_tables`), which are exact once the connections that read
//! are closed.

use std::fmt;
use std::ops::Sub;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dormouse::id::Pid;
use dormouse::{Kernel, KernelBuilder, ProcessStatus, ProcessView, Recovery};
use dormouse_cluster::pids_of;
use dormouse_postgres::{ClaimMode, Database, PostgresLog, ShardId};
use dormouse_records::RecordStore;
use futures_util::{StreamExt, TryStreamExt};
use tokio_postgres::Client;

use crate::programs::{ENTRY, answering_files};
use crate::report::{Durations, print_head, print_row};
use crate::schema::{Schema, plain_kernel};

const PROCESSES: usize = 10_000;
/// How many turns each process has had at each measurement.
const TURNS: [usize; 2] = [1, 10];
const OPENINGS: usize = 5;
const SHARD: ShardId = ShardId(0);
const LEASE: Duration = Duration::from_secs(60);
/// How many turns run at once.
const AT_ONCE: usize = 512;

/// What the database has read from the table of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reads {
    scans: i64,
    rows: i64,
    pages: i64,
}

impl Sub for Reads {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            scans: self.scans - before.scans,
            rows: self.rows - before.rows,
            pages: self.pages - before.pages,
        }
    }
}

impl fmt::Display for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scans, rows, pages } = self;
        write!(f, "{scans} scans, {rows} rows, {pages} pages")
    }
}

/// How the processes were left.
#[derive(Clone, Copy)]
enum Left {
    /// Their kernel was drained: all had hibernated.
    Drained,
    /// Their kernel was cut off: none had.
    CutOff,
}

pub(crate) async fn measure() -> Result<()> {
    let schema = Schema::new()?;
    let database = schema.database(1).await?;
    let client = schema.client().await?;
    let mut pids = Vec::new();
    let mut turns_before = 0;
    for turns in TURNS {
        let (kernel, _) = open(&database, Recovery::Hold).await?;
        if pids.is_empty() {
            pids = start(&kernel).await?;
        }
        let begun = Instant::now();
        for turn in turns_before..turns {
            each_has_a_turn(&kernel, &pids, turn + 1).await?;
        }
        let facts = client
            .query_one("SELECT count(*) FROM record WHERE kind = 3", &[])
            .await?
            .get::<_, i64>(0);
        println!(
            "{PROCESSES} processes with {turns} turns: {facts} facts ({:.0} turns a second)",
            ((turns - turns_before) * PROCESSES) as f64 / begun.elapsed().as_secs_f64()
        );
        turns_before = turns;
        // The next owner takes the shard from the kernel, which can write no more.
        measure_openings(&schema, &client, &pids, Left::CutOff).await?;
        // It has lost its store: that is its reason to end, and no failure here.
        let _ = kernel.shutdown().await;
        let (kernel, _) = open(&database, Recovery::Hold).await?;
        kernel.drain(Duration::from_secs(60)).await?;
        measure_openings(&schema, &client, &pids, Left::Drained).await?;
    }
    Ok(())
}

async fn measure_openings(
    schema: &Schema,
    client: &Client,
    pids: &[Pid],
    left: Left,
) -> Result<()> {
    let what = match left {
        Left::Drained => "drained",
        Left::CutOff => "cut off",
    };
    let (mut opened, mut served) = (Durations::default(), Durations::default());
    let mut alone = Durations::default();
    let before = settled_reads(client).await?;
    let mut read_by_one = Reads::default();
    for opening in 0..OPENINGS {
        if opening > 0 {
            alone.push(read_rows(client).await?);
        }
        // The connections are new, as those of a node are.
        let database = schema.database(1).await?;
        let (kernel, took) = open(&database, Recovery::Hold).await?;
        opened.push(took);
        let begun = Instant::now();
        let process = kernel.resume(pids[PROCESSES / 2]).await?;
        process.wait_for(ProcessView::is_idle).await?;
        served.push(begun.elapsed());
        drop(process);
        kernel.shutdown().await?;
        drop(database);
        if opening == 0 {
            read_by_one = settled_reads(client).await? - before;
        }
    }
    // As a node opens it: all that has not ended goes on.
    let before = settled_reads(client).await?;
    let database = schema.database(1).await?;
    let begun = Instant::now();
    let (kernel, _) = open(&database, Recovery::Resume).await?;
    while count_held(&kernel).await? > 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let resumed = Durations(vec![begun.elapsed()]);
    kernel.shutdown().await?;
    drop(database);
    let read_by_all = settled_reads(client).await? - before;
    print_head();
    let name = "the same rows, one SELECT";
    print_row(format!("opened after it was {what}"), &opened, name, &alone);
    print_row("  then one process loaded", &served, name, &alone);
    print_row("  all processes resumed", &resumed, name, &alone);
    println!("  read until one was loaded: {read_by_one}; until all were resumed: {read_by_all}");
    Ok(())
}

async fn count_held(kernel: &Kernel) -> Result<usize> {
    let processes = kernel.processes().await?;
    let held = processes
        .iter()
        .filter(|info| info.status == ProcessStatus::Held);
    Ok(held.count())
}

/// Claims the shard and opens a kernel as a node does. Returns how long that took.
async fn open(database: &Database, recovery: Recovery) -> Result<(Kernel, Duration)> {
    let begun = Instant::now();
    let claiming = database.clone();
    let claim = move || claiming.claim_shard(SHARD, "figures", LEASE, ClaimMode::Force);
    let claim = tokio::task::spawn_blocking(claim).await??;
    let claim = claim.context("a claim by force succeeds")?;
    let store = RecordStore::new_on(PostgresLog::claimed(database, &claim));
    let kernel = builder()
        .store(store)
        .pids(pids_of(SHARD))
        .recovery(recovery)
        .build()
        .await?;
    Ok((kernel, begun.elapsed()))
}

fn builder() -> KernelBuilder {
    plain_kernel().hibernate_after(Duration::from_secs(60))
}

async fn start(kernel: &Kernel) -> Result<Vec<Pid>> {
    let program = kernel.compile(ENTRY, &answering_files())?.program;
    let starts = futures_util::stream::iter(0..PROCESSES).map(|_| {
        let start = kernel.start(program.clone()).session().without_input();
        async move { start.await.map(|process| process.pid()) }
    });
    Ok(starts.buffered(AT_ONCE).try_collect().await?)
}

/// Each process has its turn of this number, from 1.
async fn each_has_a_turn(kernel: &Kernel, pids: &[Pid], turn: usize) -> Result<()> {
    let turns = futures_util::stream::iter(pids).map(|pid| async {
        let process = kernel.process(*pid).await?;
        process
            .input("What do you think of this, and what follows from it?")
            .await?;
        let is_over = |view: &ProcessView| view.is_idle() && view.messages == 2 * turn;
        process.wait_for(is_over).await.map(drop)
    });
    Ok(turns.buffer_unordered(AT_ONCE).try_collect().await?)
}

/// Reads the rows of the process table, which an opening has to, by a bare client.
async fn read_rows(client: &Client) -> Result<Duration> {
    let sql = "SELECT id, number, in_commit, at_ms, bytes FROM record WHERE shard = 0 AND kind = 1 ORDER BY id, number";
    let statement = client.prepare(sql).await?;
    let begun = Instant::now();
    client.query(&statement, &[]).await?;
    Ok(begun.elapsed())
}

/// The counters, once every connection that read has ended or told its own.
async fn settled_reads(client: &Client) -> Result<Reads> {
    let mut last = reads(client).await?;
    let mut since = Instant::now();
    while since.elapsed() < Duration::from_millis(1500) {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = reads(client).await?;
        if now != last {
            last = now;
            since = Instant::now();
        }
    }
    Ok(last)
}

async fn reads(client: &Client) -> Result<Reads> {
    client
        .execute("SELECT pg_stat_force_next_flush()", &[])
        .await?;
    let sql = "SELECT (coalesce(idx_scan, 0) + seq_scan)::bigint, (coalesce(idx_tup_fetch, 0) + seq_tup_read)::bigint,
            (heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read)::bigint
        FROM pg_stat_user_tables JOIN pg_statio_user_tables USING (relid)
        WHERE relid = 'record'::regclass";
    let row = client.query_one(sql, &[]).await?;
    Ok(Reads {
        scans: row.get(0),
        rows: row.get(1),
        pages: row.get(2),
    })
}
