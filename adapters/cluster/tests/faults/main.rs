//! Faults on a cluster of nodes: kills, pauses, cut links, lost servers of the database, a slow and
//! lying object store, wrong clocks, chosen by a seed; and a check of the whole history afterwards.
//!
//! What is checked: no acknowledged fact is lost; no call that must not repeat runs twice; no cut
//! mixes epochs; every tree ends once the faults have ended. `.ci/cluster-faults` runs it.

#![expect(clippy::print_stdout, reason = "a program that reports")]

mod check;
mod faults;
mod history;
mod link;
mod node;
mod observer;
mod postgres;
mod programs;
mod random;
mod report;
mod run;
mod swarm;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Mutex;

use node::Objects;
use postgres::{Postgres, Replication};
use report::Report;
use run::Plan;

/// How long the faults of one history last.
const UNDER_FAULTS: Duration = Duration::from_secs(240);

/// How many sessions only wait: in one history of a run, and in the others.
const MANY_IDLE: usize = 10_000;
const FEW_IDLE: usize = 200;

/// Runs histories under faults, and reports.
#[derive(Parser)]
struct Arguments {
    /// For how many minutes histories are begun.
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    /// Chooses the faults. The first history has this seed, the next one the next number.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The folder of the programs of PostgreSQL.
    #[arg(long)]
    postgres: PathBuf,
    /// The user that PostgreSQL runs as; none if that is the present one.
    #[arg(long)]
    postgres_user: Option<String>,
    /// What commits wait for.
    #[arg(long, value_enum, default_value = "sync")]
    replication: Replication,
    /// The port of a server of the S3 protocol with a bucket `contents`. Without one contents are
    /// in a folder, as they are in every second history.
    #[arg(long)]
    s3_port: Option<u16>,
    /// The library that changes clocks.
    #[arg(long)]
    faketime: Option<PathBuf>,
    /// The program of a node: `dormouse` with the feature `cluster`.
    #[arg(long)]
    node: PathBuf,
    /// Where the histories, the logs and the report are kept. PostgreSQL has to be able to enter
    /// it.
    #[arg(long)]
    folder: PathBuf,
    /// Only faults of these kinds.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Begin no history after one with violations.
    #[arg(long)]
    until_found: bool,
    /// How many sessions only wait, in every history.
    #[arg(long)]
    idle: Option<usize>,
}

/// What the program ends with if it found violations.
const FOUND: u8 = 3;

fn main() -> Result<ExitCode> {
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::ERROR)
        .with_writer(std::io::stderr)
        .init();
    let runtime = tokio::runtime::Runtime::new()?;
    let has_violations = runtime.block_on(execute(Arguments::parse()))?;
    Ok(match has_violations {
        true => ExitCode::from(FOUND),
        false => ExitCode::SUCCESS,
    })
}

async fn execute(arguments: Arguments) -> Result<bool> {
    std::fs::create_dir_all(&arguments.folder)?;
    let mut report = Report::new(arguments.seed, arguments.replication);
    let (mut terminate, mut interrupt) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    );
    let outcome = tokio::select! {
        outcome = run_all(&arguments, &mut report) => outcome,
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    };
    report.write(&arguments.folder)?;
    println!("{}", report.text());
    outcome?;
    Ok(report.has_violations())
}

async fn run_all(arguments: &Arguments, report: &mut Report) -> Result<()> {
    let begun = Instant::now();
    let limit = Duration::from_secs_f64(arguments.minutes * 60.0);
    // A short run is one short history.
    let under_faults = UNDER_FAULTS.min(limit.mul_f64(0.6));
    let servers = tempfile::Builder::new()
        .prefix("dormouse-faults")
        .tempdir()?;
    let user = arguments.postgres_user.as_deref();
    open_to(servers.path(), user)?;
    let postgres = Postgres::start(
        &arguments.postgres,
        user.map(str::to_owned),
        servers.path(),
        arguments.replication,
    );
    let postgres = Arc::new(Mutex::new(postgres.await?));
    let mut number = 0;
    while begun.elapsed() < limit && !(arguments.until_found && report.has_violations()) {
        let plan = plan(arguments, number, under_faults);
        println!(
            "history {number}, seed {}, contents {}",
            plan.seed,
            plan.objects.url()
        );
        std::fs::create_dir_all(&plan.folder)?;
        let outcome = run::run(&plan, postgres.clone()).await?;
        let faults = outcome.history.faults();
        let promotions = faults.get("promote-standby").copied().unwrap_or_default();
        for (kind, count) in faults {
            *report.faults.entry(kind).or_default() += count;
        }
        report.under_faults += plan.under_faults;
        let is_clean = report.add(plan.seed, outcome.findings, promotions);
        report.write(&arguments.folder)?;
        println!("{}", report.text());
        keep(&plan, is_clean, arguments, &*postgres.lock().await).await?;
        number += 1;
    }
    Ok(())
}

fn plan(arguments: &Arguments, number: u64, under_faults: Duration) -> Plan {
    let seed = arguments.seed + number;
    let schema = format!("h{number}");
    let folder = arguments.folder.join(format!("seed-{seed}"));
    let objects = match arguments.s3_port {
        Some(port) if number.is_multiple_of(2) => Objects::Server {
            port,
            // Other runs use the same bucket.
            prefix: format!("run-{}-{seed}", std::process::id()),
        },
        _ => Objects::Folder(folder.join("objects")),
    };
    let idle = if number == 1 { MANY_IDLE } else { FEW_IDLE };
    Plan {
        seed,
        schema,
        folder,
        under_faults,
        idle: arguments.idle.unwrap_or(idle),
        only: arguments.only.clone(),
        program: arguments.node.clone(),
        faketime: arguments.faketime.clone(),
        objects,
    }
}

/// Keeps the database of a history that has violations, and nothing but its history of another one.
async fn keep(
    plan: &Plan,
    is_clean: bool,
    arguments: &Arguments,
    postgres: &Postgres,
) -> Result<()> {
    if is_clean {
        for name in ["ledger", "objects"] {
            let folder = plan.folder.join(name);
            if folder.exists() {
                std::fs::remove_dir_all(folder)?;
            }
        }
    } else {
        let dump = std::process::Command::new(arguments.postgres.join("pg_dump"))
            .args([
                "--host",
                "127.0.0.1",
                "--username",
                "dormouse",
                "--dbname",
                "postgres",
            ])
            .args([
                "--port",
                &postgres.port().to_string(),
                "--schema",
                &plan.schema,
            ])
            .arg("--file")
            .arg(plan.folder.join("database.sql"))
            .status()?;
        anyhow::ensure!(dump.success(), "the database was not kept");
    }
    postgres
        .sql(&format!("DROP SCHEMA {} CASCADE", plan.schema))
        .await?;
    Ok(())
}

/// Lets the user of the servers have a folder.
fn open_to(folder: &Path, user: Option<&str>) -> Result<()> {
    if let Some(user) = user {
        let status = std::process::Command::new("chown")
            .arg(user)
            .arg(folder)
            .status()?;
        anyhow::ensure!(status.success(), "the folder cannot be given to {user}");
    }
    Ok(())
}
