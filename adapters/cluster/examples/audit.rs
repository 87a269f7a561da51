//! Runs the audit of `examples/audit` on a cluster, kills a node in the middle, and compares what
//! comes out with the same audit in one kernel. `examples/cluster/audit` calls it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use bytes::Bytes;
use clap::Parser;
use dormouse::Kernel;
use dormouse::host::{LocalHost, Permissions};
use dormouse::id::Pid;
use dormouse::models::ScriptedProvider;
use dormouse::process::{Exit, ExitStatus};
use dormouse_cluster::{
    Cluster, ClusterProcess, ClusterProcessView, ProgramFiles, pids_of, shard_of,
};
use dormouse_postgres::DatabaseOptions;
use dormouse_records::{MemoryLog, RecordStore};
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
    /// The folder of the cluster: NAME.pid of each node, and the folder `report`, which nodes may
    /// write.
    #[arg(long)]
    folder: PathBuf,
    /// How many audits run at once.
    #[arg(long, default_value_t = 6)]
    audits: usize,
}

/// A process of a tree: its row of the process table, its numbers, and its facts.
struct Listed {
    pid: Pid,
    parent: Option<Pid>,
    program: String,
    status: String,
    /// Facts, messages, descriptors, characters that tools returned, characters in a context.
    numbers: [u64; 5],
    /// The name of each fact.
    facts: Vec<String>,
}

const COLUMNS: [&str; 5] = ["FACTS", "MESSAGES", "FDS", "TOOL CHARS", "CONTEXT"];

/// What an audit has left: its tree, the root first, and the report.
struct Outcome {
    tree: Vec<Listed>,
    report: String,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    ensure!(arguments.audits > 0, "--audits is at least 1");
    let report = |number: usize| arguments.folder.join(format!("report/audit-{number}.md"));
    let numbers = 1..=arguments.audits;

    let cluster = Cluster::connect(DatabaseOptions::without_password(&arguments.store)?).await?;
    let begun = Instant::now();
    let starts = numbers
        .clone()
        .map(|number| start(&cluster, report(number)));
    let processes = try_join_all(starts).await?;
    let first = &processes[0];
    let node = kill_in_the_middle(&cluster, first, &arguments.folder).await?;
    print(&format!(
        "{} audits run. Killed {node} with kill -9, where audit 1 has forked its workers.\n",
        processes.len()
    ))?;
    let exits = try_join_all(processes.iter().map(ClusterProcess::wait)).await?;
    let took = begun.elapsed().as_secs_f64();
    for (exit, number) in exits.iter().zip(numbers.clone()) {
        ensure_done(exit).with_context(|| format!("audit {number}"))?;
    }
    let successor = first.node().await?.unwrap_or_default();
    print(&format!(
        "All are done after {took:.1} s. Audit 1 went on at {successor}.\n\n"
    ))?;

    let mut text = String::new();
    let mut are_equal = true;
    for (process, number) in processes.iter().zip(numbers.clone()) {
        let outcome = outcome(&cluster, process, &report(number)).await?;
        // A folder whose name is as long: paths are in the conversations too.
        let single = arguments.folder.join(format!("single/audit-{number}.md"));
        let alone = alone(process.pid(), single).await?;
        if number == 1 {
            let shard = shard_of(process.pid());
            print(&format!("Audit 1 in one kernel:\n{}\n", table(&alone.tree)))?;
            print(&format!(
                "Audit 1 on the cluster, in {shard}:\n{}\n",
                table(&outcome.tree)
            ))?;
        }
        are_equal &= compare(number, &alone, &outcome, &mut text)?;
    }
    print("Lines that differ:\n")?;
    print(match text.is_empty() {
        true => "  none\n",
        false => &text,
    })?;
    ensure!(
        are_equal,
        "not all reports are equal to those of one kernel"
    );
    print(&format!(
        "All {} reports are equal to those of one kernel.\n",
        processes.len()
    ))
}

/// The input that names the report.
fn input(report: &Path) -> String {
    let report = report.display();
    format!(
        "Audit the workspace described in {AUDIT}/metadata.json and write the report to {report}"
    )
}

fn files() -> Result<BTreeMap<String, Bytes>> {
    let read = |name: &&str| -> Result<_> {
        let path = Path::new(AUDIT).join(name);
        let text = std::fs::read(&path).with_context(|| path.display().to_string())?;
        Ok(((*name).to_owned(), Bytes::from(text)))
    };
    FILES.iter().map(read).collect()
}

/// The audit in one kernel, with its store in the memory of this program and the pids that the
/// audit has on the cluster: the conversations name them.
async fn alone(root: Pid, report: PathBuf) -> Result<Outcome> {
    let folder = report.parent().context("the report is in a folder")?;
    std::fs::create_dir_all(folder)?;
    let permissions = Permissions::none().allow_read(AUDIT).allow_write(folder);
    let host = LocalHost::new(permissions, &std::env::current_dir()?)?;
    let kernel = Kernel::open(RecordStore::new_on(MemoryLog::default()))
        .provider("scripted", ScriptedProvider)
        .pids(root..=*pids_of(shard_of(root)).end())
        .host(host)
        .build()
        .await?;
    let program = kernel.compile(ENTRY, &files()?);
    let program = program.map_err(|errors| anyhow!("{errors}"))?.program;
    let process = kernel.start(program).input(input(&report)).await?;
    ensure_done(&process.wait().await?).context("the audit in one kernel")?;
    let mut tree = Vec::new();
    for info in kernel.processes().await? {
        let facts = kernel.log(info.row.pid).await?;
        let view = kernel.inspect(info.row.pid).await?;
        tree.push(Listed {
            pid: info.row.pid,
            parent: info.row.parent,
            program: info.row.program.to_string(),
            status: info.status.word().to_owned(),
            numbers: numbers(&(&view).into()),
            facts: facts.iter().map(|fact| fact.name.to_owned()).collect(),
        });
    }
    let report = read(&report)?;
    kernel.shutdown().await?;
    Ok(Outcome { tree, report })
}

fn numbers(view: &ClusterProcessView) -> [u64; 5] {
    [
        view.fact.0,
        view.messages as u64,
        view.descriptors as u64,
        view.produced_chars,
        view.entered_chars,
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
    folder: &Path,
) -> Result<String> {
    let begun = Instant::now();
    loop {
        let tree = descendants(cluster, process.pid()).await?;
        let has_ended = tree.first().is_some_and(|(_, has_ended)| *has_ended);
        ensure!(
            !has_ended,
            "the audit ended before its node was killed: run it again"
        );
        if tree.len() >= 4 {
            break;
        }
        ensure!(
            begun.elapsed() < FORK_LIMIT,
            "the audit has not forked in {FORK_LIMIT:?}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let node = process.node().await?;
    let node = node.context("no node has the shard of the audit")?;
    let file = folder.join(format!("{node}.pid"));
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
            let process = cluster.process(info.row.pid);
            let facts = process.log().await?;
            tree.push(Listed {
                pid: info.row.pid,
                parent,
                program: info.row.program.to_string(),
                status: info.status,
                numbers: numbers(&process.inspect().await?),
                facts: facts.into_iter().map(|fact| fact.name).collect(),
            });
        }
    }
    let report = read(report)?;
    Ok(Outcome { tree, report })
}

fn table(tree: &[Listed]) -> String {
    let line = |name: &str, status: &str, numbers: [String; 5]| {
        let [facts, messages, descriptors, produced, entered] = numbers;
        format!(
            "{name:<28} {status:<14} {facts:>6} {messages:>9} {descriptors:>5} {produced:>12} {entered:>12}\n"
        )
    };
    let above = |pid: Pid| tree.iter().find(|listed| listed.pid == pid)?.parent;
    let mut text = line("PROCESS", "STATUS", COLUMNS.map(str::to_owned));
    for listed in tree {
        let depth = std::iter::successors(above(listed.pid), |pid| above(*pid)).count();
        let indent = match depth {
            0 => String::new(),
            depth => "  ".repeat(depth - 1) + "└ ",
        };
        let name = format!("{indent}{} {}", listed.pid, listed.program);
        let numbers = listed.numbers.map(|number| number.to_string());
        text += &line(&name, &listed.status, numbers);
    }
    text
}

/// Writes which lines of an audit differ from those of one kernel, and why. Returns whether the
/// reports are equal.
fn compare(number: usize, alone: &Outcome, cluster: &Outcome, text: &mut String) -> Result<bool> {
    let (here, there) = (cluster.tree.len(), alone.tree.len());
    ensure!(
        here == there,
        "audit {number} has {here} processes, and {there} in one kernel"
    );
    for (here, there) in cluster.tree.iter().zip(&alone.tree) {
        let differing: Vec<String> = COLUMNS
            .iter()
            .zip(here.numbers.iter().zip(there.numbers))
            .filter(|(_, (here, there))| *here != there)
            .map(|(column, (here, there))| format!("{column} {here}, in one kernel {there}"))
            .collect();
        if differing.is_empty() {
            continue;
        }
        let (pid, differing) = (here.pid, differing.join("; "));
        writeln!(text, "  audit {number}, process {pid}: {differing}")?;
        // Facts are as many whatever the pids are.
        if here.numbers[1..] != there.numbers[1..] && pids(cluster) != pids(alone) {
            let why =
                "the processes of two audits alternate in the shard, and conversations name pids";
            writeln!(text, "    {why}: {}", pids(cluster))?;
        }
        for line in differing_facts(&there.facts, &here.facts) {
            writeln!(text, "    {line}")?;
        }
    }
    let lines = differing_lines(&alone.report, &cluster.report);
    for line in &lines {
        writeln!(text, "  audit {number}, report: {line}")?;
    }
    Ok(lines.is_empty())
}

fn pids(outcome: &Outcome) -> String {
    let pids = outcome.tree.iter().map(|listed| listed.pid.to_string());
    pids.collect::<Vec<_>>().join(", ")
}

/// The facts that one of two journals has more of, and why.
fn differing_facts(alone: &[String], cluster: &[String]) -> Vec<String> {
    let mut names: BTreeMap<&str, i64> = BTreeMap::new();
    for (facts, one) in [(cluster, 1), (alone, -1)] {
        for name in facts {
            *names.entry(name).or_default() += one;
        }
    }
    let differing = names.into_iter().filter(|(_, more)| *more != 0);
    let line = |(name, more)| {
        let why = match name {
            "model_called" => ": in flight at the loss, and made again by the next owner",
            "tool_called" => {
                ": in flight at the loss, repeatable, and made again by the next owner"
            }
            _ => "",
        };
        format!("{more:+} {name}{why}")
    };
    differing.map(line).collect()
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
                let shown = sides
                    .into_iter()
                    .filter_map(|(side, line)| Some((side, line?)));
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
