//! Runs the audit of `examples/audit` on a cluster, kills a node in the middle, and compares what comes
//! out with the same audit in one kernel. `examples/cluster/audit` calls it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use clap::Parser;
use dormouse::host::{LocalHost, Permissions};
use dormouse::id::Pid;
use dormouse::models::ScriptedProvider;
use dormouse::process::{Exit, ExitStatus};
use dormouse::{Kernel, ProcessView};
use dormouse_cluster::{Cluster, ClusterProcess, ProgramFiles, shard_of};
use dormouse_postgres::DatabaseOptions;
use futures_util::future::try_join_all;

/// The folder of the audit, from the working directory, which is also that of the nodes.
const AUDIT: &str = "examples/audit";
const ENTRY: &str = "auditor.toml";
const FILES: [&str; 3] = [ENTRY, "editor.toml", "audit.script.toml"];

/// How long an audit may take until it has forked its workers.
const FORK_LIMIT: Duration = Duration::from_secs(60);

/// The most processes of the shards that are listed; an audit has five.
const LISTED: usize = 4096;

/// Audits on a cluster, compared with one audit in one kernel.
#[derive(Parser)]
struct Arguments {
    /// The database of the cluster, without a password.
    #[arg(long)]
    store: String,
    /// The folder for the reports, which the nodes may write.
    #[arg(long)]
    reports: PathBuf,
    /// The folder with NAME.pid of each node.
    #[arg(long)]
    pids: PathBuf,
    /// How many audits run at once.
    #[arg(long, default_value_t = 6)]
    audits: usize,
}

/// A line of the table of processes.
struct Row {
    name: String,
    status: String,
    /// Facts, messages, descriptors, characters that tools returned, characters in a context.
    numbers: [u64; 5],
}

const COLUMNS: [&str; 5] = ["FACTS", "MESSAGES", "FDS", "TOOL CHARS", "CONTEXT"];

/// A process of a tree: what its row of the process table says, and its numbers.
struct Listed {
    pid: Pid,
    parent: Option<Pid>,
    program: String,
    status: String,
    numbers: [u64; 5],
}

/// What an audit has left.
struct Outcome {
    rows: Vec<Row>,
    report: String,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    ensure!(arguments.audits > 0, "--audits is at least 1");
    let alone = alone(&arguments.reports).await?;
    print(&format!("On one machine:\n{}\n", table(&alone.rows)))?;

    let cluster = Cluster::connect(DatabaseOptions::without_password(&arguments.store)?).await?;
    let starts = (1..=arguments.audits).map(|number| {
        let report = arguments.reports.join(format!("audit-{number}.md"));
        start(&cluster, report)
    });
    let begun = Instant::now();
    let processes = try_join_all(starts).await?;
    let first = &processes[0];
    let node = kill_in_the_middle(&cluster, first, &arguments.pids).await?;
    let on_it = "its processes continue elsewhere once its lease has ended";
    print(&format!("Killed {node} with kill -9 while audit 1 ran there: {on_it}.\n\n"))?;

    let exits = try_join_all(processes.iter().map(ClusterProcess::wait)).await?;
    let took = begun.elapsed();
    for (exit, number) in exits.iter().zip(1..) {
        ensure_done(exit).with_context(|| format!("audit {number}"))?;
    }
    let mut outcomes = Vec::new();
    for (process, number) in processes.iter().zip(1..) {
        let report = arguments.reports.join(format!("audit-{number}.md"));
        outcomes.push(outcome(&cluster, process, &report).await?);
    }
    let successor = first.node().await?.unwrap_or_default();
    let shard = shard_of(first.pid());
    print(&format!(
        "On the cluster, audit 1, in {shard}: begun on {node}, ended on {successor}:\n{}\n",
        table(&outcomes[0].rows)
    ))?;
    print(&format!(
        "{} audits took {:.1} s, the loss of a node included.\n\n",
        outcomes.len(),
        took.as_secs_f64()
    ))?;
    compare(&alone, &outcomes)
}

/// The input that names the report.
fn input(report: &Path) -> String {
    let report = report.display();
    format!("Audit the workspace described in {AUDIT}/metadata.json and write the report to {report}")
}

fn files() -> Result<BTreeMap<String, Bytes>> {
    let read = |name: &&str| -> Result<_> {
        let path = Path::new(AUDIT).join(name);
        let text = std::fs::read(&path).with_context(|| path.display().to_string())?;
        Ok(((*name).to_owned(), Bytes::from(text)))
    };
    FILES.iter().map(read).collect()
}

/// The audit in one kernel, in the memory of this program.
async fn alone(reports: &Path) -> Result<Outcome> {
    let permissions = Permissions::none().allow_read(AUDIT).allow_write(reports);
    let host = LocalHost::new(permissions, &std::env::current_dir()?)?;
    let kernel = Kernel::builder()
        .provider("scripted", ScriptedProvider)
        .host(host)
        .build()
        .await?;
    let program = kernel.compile(ENTRY, &files()?);
    let program = program.map_err(|errors| anyhow::anyhow!("{errors}"))?.program;
    let report = reports.join("alone.md");
    let process = kernel.start(program).input(input(&report)).await?;
    ensure_done(&process.wait().await?).context("the audit in one kernel")?;
    let listed = kernel.processes().await?.into_iter().map(|info| Listed {
        pid: info.row.pid,
        parent: info.row.parent,
        program: info.row.program.to_string(),
        status: info.status.word().to_owned(),
        numbers: info.view.as_deref().map(numbers).unwrap_or_default(),
    });
    let outcome = Outcome {
        rows: rows(process.pid(), &listed.collect::<Vec<_>>()),
        report: read(&report)?,
    };
    kernel.shutdown().await?;
    Ok(outcome)
}

fn numbers(view: &ProcessView) -> [u64; 5] {
    [
        view.fact.0,
        view.messages as u64,
        view.descriptors as u64,
        view.output_totals.produced_chars,
        view.output_totals.entered_chars,
    ]
}

async fn start(cluster: &Cluster, report: PathBuf) -> Result<ClusterProcess> {
    // A report of an earlier run would hide that none was written.
    if report.exists() {
        std::fs::remove_file(&report)?;
    }
    let program = ProgramFiles::new(ENTRY, files()?);
    Ok(cluster.start(program).input(input(&report)).await?)
}

/// Kills the node of a process once it has forked its workers. Returns the name of the node.
async fn kill_in_the_middle(
    cluster: &Cluster,
    process: &ClusterProcess,
    pids: &Path,
) -> Result<String> {
    let begun = Instant::now();
    loop {
        let tree = descendants(cluster, process.pid()).await?;
        let has_ended = tree.first().is_some_and(|(_, has_ended)| *has_ended);
        ensure!(!has_ended, "the audit ended before its node was killed: run it again");
        if tree.len() >= 4 {
            break;
        }
        ensure!(begun.elapsed() < FORK_LIMIT, "the audit has not forked in {FORK_LIMIT:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let node = process.node().await?;
    let node = node.context("no node has the shard of the audit")?;
    let file = pids.join(format!("{node}.pid"));
    let pid = read(&file)?;
    let status = Command::new("kill").args(["-KILL", pid.trim()]).status()?;
    ensure!(status.success(), "{node} cannot be killed");
    Ok(node)
}

/// The processes of a tree, its root first, and whether each has ended.
async fn descendants(cluster: &Cluster, root: Pid) -> Result<Vec<(Pid, bool)>> {
    let page = cluster.processes(root.0.checked_sub(1).map(Pid), 8).await?;
    let mut tree: Vec<(Pid, bool)> = Vec::new();
    for info in page {
        let is_child = |pid: Pid| tree.iter().any(|(found, _)| *found == pid);
        if info.row.pid == root || info.row.parent.is_some_and(is_child) {
            tree.push((info.row.pid, info.row.exit.is_some()));
        }
    }
    Ok(tree)
}

async fn outcome(cluster: &Cluster, process: &ClusterProcess, report: &Path) -> Result<Outcome> {
    let root = process.pid();
    let mut tree: Vec<Listed> = Vec::new();
    let mut after = root.0.checked_sub(1).map(Pid);
    'pages: loop {
        let page = cluster.processes(after, LISTED).await?;
        let Some(last) = page.last() else {
            break;
        };
        after = Some(last.row.pid);
        for info in page {
            if shard_of(info.row.pid) != shard_of(root) {
                break 'pages;
            }
            let parent = info.row.parent;
            if info.row.pid != root && !tree.iter().any(|above| Some(above.pid) == parent) {
                continue;
            }
            let view = cluster.process(info.row.pid).inspect().await?;
            tree.push(Listed {
                pid: info.row.pid,
                parent,
                program: info.row.program.to_string(),
                status: info.status,
                numbers: [
                    view.fact.0,
                    view.messages as u64,
                    view.descriptors as u64,
                    view.produced_chars,
                    view.entered_chars,
                ],
            });
        }
    }
    Ok(Outcome {
        rows: rows(root, &tree),
        report: read(report)?,
    })
}

/// The lines of a tree. Processes are numbered within it, since their pids name their shards.
fn rows(root: Pid, processes: &[Listed]) -> Vec<Row> {
    let number = |pid: Pid| processes.iter().position(|listed| listed.pid == pid);
    let line = |listed: &Listed| Row {
        name: format!(
            "{}{} {}",
            if listed.pid == root { "" } else { "└ " },
            number(listed.pid).map_or(0, |at| at + 1),
            listed.program
        ),
        status: listed.status.clone(),
        numbers: listed.numbers,
    };
    processes.iter().map(line).collect()
}

fn table(rows: &[Row]) -> String {
    let line = |name: &str, status: &str, numbers: [String; 5]| {
        let [facts, messages, descriptors, produced, entered] = numbers;
        format!(
            "{name:<28} {status:<14} {facts:>6} {messages:>9} {descriptors:>5} {produced:>12} {entered:>12}\n"
        )
    };
    let mut text = line("PROCESS", "STATUS", COLUMNS.map(str::to_owned));
    for row in rows {
        text += &line(&row.name, &row.status, row.numbers.map(|number| number.to_string()));
    }
    text
}

/// Prints which lines of the cluster's tables and reports differ from those of one machine, and why.
fn compare(alone: &Outcome, outcomes: &[Outcome]) -> Result<()> {
    let mut text = String::new();
    let mut are_equal = true;
    for (outcome, number) in outcomes.iter().zip(1..) {
        if outcome.report != alone.report {
            are_equal = false;
            writeln!(text, "The report of audit {number} differs:")?;
            for line in differing_lines(&alone.report, &outcome.report) {
                writeln!(text, "  {line}")?;
            }
        }
        ensure!(
            outcome.rows.len() == alone.rows.len(),
            "audit {number} has {} processes, and {} on one machine",
            outcome.rows.len(),
            alone.rows.len()
        );
        for (row, other) in outcome.rows.iter().zip(&alone.rows) {
            for (column, (here, there)) in COLUMNS.iter().zip(row.numbers.iter().zip(other.numbers))
            {
                if *here != there {
                    let name = row.name.trim_start_matches("└ ");
                    let why = why(column);
                    writeln!(text, "audit {number}, {name}: {column} {here}, on one machine {there}: {why}")?;
                }
            }
        }
    }
    if are_equal {
        let (reports, lines) = (outcomes.len(), alone.report.lines().count());
        writeln!(text, "All {reports} reports are equal to that of one machine: {lines} lines.")?;
    }
    print(&text)?;
    ensure!(are_equal, "not all reports are equal");
    Ok(())
}

/// Why a number of a process can be another one after the loss of a node.
fn why(column: &str) -> &'static str {
    match column {
        "FACTS" => "what was in flight at the loss is recorded as unknown, and is made again",
        _ => "the loss is shown to the model, which acts on it",
    }
}

/// The lines that differ, with their numbers: `<` one machine, `>` the cluster.
fn differing_lines(alone: &str, cluster: &str) -> Vec<String> {
    let (mut left, mut right) = (alone.lines(), cluster.lines());
    let mut differing = Vec::new();
    for number in 1.. {
        match (left.next(), right.next()) {
            (None, None) => break,
            (here, there) if here == there => {}
            (here, there) => {
                let sides = [("<", here), (">", there)];
                let shown = sides.into_iter().filter_map(|(side, line)| Some((side, line?)));
                differing.extend(shown.map(|(side, line)| format!("{number} {side} {line}")));
            }
        }
    }
    differing
}

fn ensure_done(exit: &Exit) -> Result<()> {
    if exit.status != ExitStatus::Done {
        bail!("it ended as {}: {}", exit.status.word(), exit.message);
    }
    Ok(())
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| path.display().to_string())
}

fn print(text: &str) -> Result<()> {
    std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes())?;
    Ok(())
}
