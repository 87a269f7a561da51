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
const OPENINGS: usize = 4;
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
    let (mut pids, mut turns_before) = (Vec::new(), 0);
    for turns in TURNS {
        let (kernel, _) = open(&database, Recovery::Hold).await?;
        if pids.is_empty() {
            pids = start(&kernel, PROCESSES).await?;
        }
        // Has no turns but those that are measured.
        let probe = start(&kernel, 1).await?[0];
        let begun = Instant::now();
        for turn in turns_before..turns {
            each_has_a_turn(&kernel, &pids, turn + 1).await?;
        }
        let sql = "SELECT count(*) FROM record WHERE kind = 3";
        let facts: i64 = client.query_one(sql, &[]).await?.get(0);
        println!(
            "{PROCESSES} processes with {turns} turns: {facts} facts ({:.0} turns a second)",
            ((turns - turns_before) * PROCESSES) as f64 / begun.elapsed().as_secs_f64()
        );
        turns_before = turns;
        let mut probe = Probe {
            pid: probe,
            inputs: 0,
        };
        // The next owner takes the shard from the kernel, which can write no more, as if it was
        // killed.
        let cut_off = measure_openings(&schema, &client, &mut probe, Left::CutOff).await?;
        // It has lost its store: that is its reason to end, and no failure here.
        let _ = kernel.shutdown().await;
        cut_off.drain(Duration::from_secs(60)).await?;
        let drained = measure_openings(&schema, &client, &mut probe, Left::Drained).await?;
        drained.shutdown().await?;
    }
    Ok(())
}

/// A process that is given an input after each opening.
struct Probe {
    pid: Pid,
    inputs: usize,
}

impl Probe {
    /// Until the answer to an input.
    async fn answer(&mut self, kernel: &Kernel) -> Result<Duration> {
        let begun = Instant::now();
        self.inputs += 1;
        let process = kernel.process(self.pid).await?;
        process.input("Are you there?").await?;
        let is_over = |view: &ProcessView| view.is_idle() && view.messages == 2 * self.inputs;
        process.wait_for(is_over).await?;
        Ok(begun.elapsed())
    }
}

/// Opens the shard some times as a node does, with all its processes going on. Returns the last
/// kernel.
async fn measure_openings(
    schema: &Schema,
    client: &Client,
    probe: &mut Probe,
    left: Left,
) -> Result<Kernel> {
    let (mut opened, mut answered) = (Durations::default(), Durations::default());
    let (mut resumed, mut alone) = (Durations::default(), Durations::default());
    let read_by_opening = count_reads_of_opening(schema, client).await?;
    let before = settled_reads(client).await?;
    let mut read_by_resuming = None;
    let mut last: Option<Kernel> = None;
    for opening in 0..OPENINGS {
        // The connections are new, as those of a node are.
        let database = schema.database(1).await?;
        let begun = Instant::now();
        let (kernel, took) = open(&database, Recovery::Resume).await?;
        opened.push(took);
        answered.push(probe.answer(&kernel).await?);
        while count_held(&kernel).await? > 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        resumed.push(begun.elapsed());
        if let Some(lost) = last.replace(kernel) {
            // It has lost its store.
            let _ = lost.shutdown().await;
        }
        if opening == 0 {
            // Its connections have told their counters when they were idle for a while.
            tokio::time::sleep(Duration::from_secs(11)).await;
            read_by_resuming = Some(settled_reads(client).await? - before);
        }
        alone.push(read_rows(client).await?);
    }
    print_head();
    let name = "the same rows, one SELECT";
    let what = match left {
        Left::Drained => "opened after it was drained",
        Left::CutOff => "opened after it was cut off",
    };
    print_row(what, &opened, name, &alone);
    print_row("  then an input is answered", &answered, name, &alone);
    print_row(
        "  all processes loaded, from the beginning",
        &resumed,
        name,
        &alone,
    );
    println!(
        "  read to open: {read_by_opening}; to load all and answer: {}",
        read_by_resuming.context("it was opened")?
    );
    last.context("it was opened")
}

/// What is read until the kernel is open, if none of its processes goes on: what a node reads
/// before it serves the shard.
async fn count_reads_of_opening(schema: &Schema, client: &Client) -> Result<Reads> {
    let before = settled_reads(client).await?;
    let database = schema.database(1).await?;
    let (kernel, _) = open(&database, Recovery::Hold).await?;
    kernel.shutdown().await?;
    drop(database);
    Ok(settled_reads(client).await? - before)
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

async fn start(kernel: &Kernel, count: usize) -> Result<Vec<Pid>> {
    let program = kernel.compile(ENTRY, &answering_files())?.program;
    let starts = futures_util::stream::iter(0..count).map(|_| {
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
