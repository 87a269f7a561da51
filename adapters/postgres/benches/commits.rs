//! Commits a second of many shards on one node, next to `pgbench` with the same bytes, connections,
//! batches and durability on the same server, in turns.
//!
//! ```sh
//! DORMOUSE_POSTGRES=18 .ci/postgres cargo bench
//! ```
//!
//! `pgbench` executes one statement, prepared, that raises the shard's counter and inserts the
//! records: what any store has to do at least.

#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use dormouse_actors::ports::SyncLevel;
use dormouse_postgres::{Database, DatabaseOptions, PostgresLog, ShardId};
use dormouse_records::{RecordBatch, RecordLog, RecordOp, Stream, StreamKind};

const SHARDS: u32 = 64;
const RECORD_BYTES: usize = 256;
const ROUNDS: usize = 3;
const RUN: Duration = Duration::from_secs(5);

/// What is measured.
#[derive(Clone, Copy)]
struct Case {
    shards: u32,
    connections: usize,
    facts: u64,
    sync_level: SyncLevel,
}

/// The result of a run.
struct Measured {
    commits_per_second: f64,
    /// Of each commit, in microseconds, ascending; empty if unknown.
    latencies: Vec<u64>,
}

fn main() {
    let urls = std::env::var("DORMOUSE_POSTGRES_URLS").expect("run .ci/postgres cargo bench");
    let url = urls.split(',').next_back().expect("there is a server");
    // Both without TLS, which this pgbench does not speak.
    let url = &format!("{url}?sslmode=disable");
    let pgbench = std::env::var("DORMOUSE_PGBENCH").expect("run .ci/postgres cargo bench");
    println!("shards connections facts level    ours/s pgbench/s ratio   p50 us   p99 us");
    for sync_level in [SyncLevel::Synced, SyncLevel::Written] {
        for (shards, connections, facts) in
            [(1, 1, 1), (SHARDS, 8, 1), (SHARDS, 8, 10), (SHARDS, 64, 1)]
        {
            let case = Case {
                shards,
                connections,
                facts,
                sync_level,
            };
            let mut ours = Vec::new();
            let mut theirs = Vec::new();
            for round in 0..ROUNDS {
                ours.push(run(
                    url,
                    &format!("bench_{shards}_{connections}_{facts}_{round}"),
                    case,
                ));
                theirs.push(run_pgbench(url, &pgbench, case));
            }
            report(case, ours, theirs);
        }
    }
}

fn report(case: Case, mut ours: Vec<Measured>, mut theirs: Vec<f64>) {
    ours.sort_by(|a, b| a.commits_per_second.total_cmp(&b.commits_per_second));
    theirs.sort_by(f64::total_cmp);
    let (ours, theirs) = (&ours[ROUNDS / 2], theirs[ROUNDS / 2]);
    let at = |part: f64| ours.latencies[((ours.latencies.len() - 1) as f64 * part) as usize];
    println!(
        "{:6} {:11} {:5} {:8} {:6.0} {:9.0} {:4.0}% {:8} {:8}",
        case.shards,
        case.connections,
        case.facts,
        format!("{:?}", case.sync_level),
        ours.commits_per_second,
        theirs,
        100.0 * ours.commits_per_second / theirs,
        at(0.5),
        at(0.99),
    );
}

/// A schema without records.
fn database(url: &str, schema: &str, connections: usize) -> Database {
    let options = DatabaseOptions::new(url).expect("the address is valid");
    let options = options.schema(schema).expect("the name is valid");
    let options = options
        .max_connections(connections)
        .connect_timeout(Duration::from_secs(60));
    let database = Database::connect(&options).expect("the server answers");
    database.create_shards(SHARDS).expect("the server answers");
    database
}

fn run(url: &str, schema: &str, case: Case) -> Measured {
    let schema = format!(
        "{schema}_{}_{}",
        std::process::id(),
        if case.sync_level == SyncLevel::Synced {
            "s"
        } else {
            "w"
        }
    );
    let database = database(url, &schema, case.connections);
    let stop = AtomicBool::new(false);
    let begun = Instant::now();
    let mut latencies: Vec<u64> = thread::scope(|scope| {
        let writers: Vec<_> = (0..case.shards)
            .map(|shard| {
                let (database, stop) = (&database, &stop);
                scope.spawn(move || write(database, ShardId(shard), case, stop))
            })
            .collect();
        thread::sleep(RUN);
        stop.store(true, Ordering::Relaxed);
        writers
            .into_iter()
            .flat_map(|writer| writer.join().expect("a writer ends"))
            .collect()
    });
    let seconds = begun.elapsed().as_secs_f64();
    latencies.sort_unstable();
    Measured {
        commits_per_second: latencies.len() as f64 / seconds,
        latencies,
    }
}

fn write(database: &Database, shard: ShardId, case: Case, stop: &AtomicBool) -> Vec<u64> {
    let log = PostgresLog::unleased(database, shard);
    let owner = log.claim().expect("the server answers");
    let stream = Stream {
        kind: StreamKind::Fact,
        id: 1,
    };
    let bytes = Bytes::from(vec![0xa5; RECORD_BYTES]);
    let mut latencies = Vec::new();
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let ops: Vec<_> = (0..case.facts)
            .map(|_| {
                number += 1;
                RecordOp::Put {
                    stream,
                    number,
                    bytes: bytes.clone(),
                }
            })
            .collect();
        let batch = RecordBatch {
            contents: &[],
            ops: &ops,
            at_ms: 1_700_000_000_000,
            sync_level: case.sync_level,
        };
        let begun = Instant::now();
        log.append(owner, &batch).expect("the server answers");
        latencies.push(begun.elapsed().as_micros() as u64);
    }
    latencies
}

/// Commits a second of `pgbench`, with a shard for each of its clients.
fn run_pgbench(url: &str, pgbench: &str, case: Case) -> f64 {
    let schema = format!("pgbench_{}", std::process::id());
    drop(database(url, &schema, 1));
    let facts: Vec<_> = (0..case.facts)
        .map(|fact| format!("({fact}, :payload{fact}::bytea)"))
        .collect();
    let script = format!(
        "WITH s AS (UPDATE {schema}.shard SET writes = writes + 1, last_commit = last_commit + 1 \
         WHERE id = :client_id AND epoch = 0 RETURNING last_commit) \
         INSERT INTO {schema}.record SELECT :client_id, 3, 1, last_commit * {} + v.n, last_commit, 1700000000000, v.bytes \
         FROM s, (VALUES {}) AS v (n, bytes);",
        case.facts,
        facts.join(", ")
    );
    let file = std::env::temp_dir().join(format!("{schema}.sql"));
    std::fs::write(&file, script).expect("there is room");
    let level = match case.sync_level {
        SyncLevel::Synced => "on",
        SyncLevel::Written => "off",
    };
    let mut command = Command::new(pgbench);
    command
        .env("PGOPTIONS", format!("-c synchronous_commit={level}"))
        .args(["--no-vacuum", "--protocol=prepared", "--jobs=2"])
        .arg(format!("--client={}", case.connections))
        .arg(format!("--time={}", RUN.as_secs()))
        .arg(format!("--file={}", file.display()));
    for fact in 0..case.facts {
        command.arg(format!(
            "--define=payload{fact}=\\x{}",
            "a5".repeat(RECORD_BYTES)
        ));
    }
    let output = command.arg(url).output().expect("pgbench can be run");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let _ = std::fs::remove_file(file);
    let tps = text.lines().find_map(|line| line.strip_prefix("tps = "));
    let tps = tps
        .and_then(|tps| tps.split_whitespace().next())
        .and_then(|tps| tps.parse().ok());
    tps.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)))
}
