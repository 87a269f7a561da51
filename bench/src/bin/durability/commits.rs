//! Measures commits: of one fact, and of the facts of many processes that share one sync.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use dormouse::id::{FactNumber, Pid};
use dormouse::model::Request;
use dormouse::ports::{Batch, Store as _, WriteOp};
use dormouse::process::ProcessRow;
use dormouse::store::LogStore;
use dormouse::{Kernel, Process};
use dormouse_bench::{
    FnModel, Outcome, Percentiles, format_duration, print_line, program, ratio, text_reply,
};
use futures_util::future::try_join_all;

use crate::timed;

const FACT_BYTES: usize = 200;
/// The size of a record header, and of the length in front of a fact.
const OVERHEAD_BYTES: usize = 168 + 4;
const ROUNDS: u64 = 4_000;

/// Measures a commit of one small fact, compared with an append and fdatasync of as many bytes; the
/// two alternate.
pub(crate) fn one_fact(folder: &Path) -> Outcome {
    let store = LogStore::open(folder.join("store"))?;
    let owner = store.claim()?;
    let created = WriteOp::ProcessCreated {
        row: Box::new(row()),
        image: vec![0; FACT_BYTES],
    };
    store.commit(owner, Batch::durable(&[created], 0))?;
    let mut file = File::create(folder.join("bare"))?;
    let whole = [7; FACT_BYTES + OVERHEAD_BYTES];
    let (mut commits, mut bare_appends) = (Vec::new(), Vec::new());
    for number in 1..=ROUNDS {
        let fact = WriteOp::Facts {
            pid: Pid(1),
            first: FactNumber(number),
            facts: vec![vec![7; FACT_BYTES]],
        };
        let (done, elapsed) = timed(|| store.commit(owner, Batch::durable(&[fact], number)));
        done?;
        commits.push(elapsed);
        let (done, elapsed) = timed(|| file.write_all(&whole).and_then(|()| file.sync_data()));
        done?;
        bare_appends.push(elapsed);
    }
    let (commits, bare_appends) = (
        Percentiles::from_durations(commits),
        Percentiles::from_durations(bare_appends),
    );
    for (name, ours, bare) in [
        ("p50", commits.median, bare_appends.median),
        ("p99", commits.p99, bare_appends.p99),
    ] {
        let times = ratio(ours, bare);
        print_line(format_args!(
            "{name}: commit {}, append + fdatasync {}: {times:.2}x",
            format_duration(ours),
            format_duration(bare)
        ))?;
    }
    Ok(())
}

fn row() -> ProcessRow {
    ProcessRow::started(Pid(1), "bench")
}

const FACTS: usize = 200;

const PROCESSES: u64 = 32;

/// Measures facts of 32 processes in one commit of the store, compared with 32 commits of one fact.
fn compare_shared_commit(folder: &Path) -> Outcome {
    let store = LogStore::open(folder)?;
    let owner = store.claim()?;
    let created = |pid| WriteOp::ProcessCreated {
        row: Box::new(ProcessRow::started(Pid(pid), "bench")),
        image: vec![0; FACT_BYTES],
    };
    store.commit(
        owner,
        Batch::durable(&(1..=PROCESSES).map(created).collect::<Vec<_>>(), 0),
    )?;
    let (mut alone, mut together) = (Duration::ZERO, Duration::ZERO);
    for round in 0..200 {
        let fact = |pid, number| WriteOp::Facts {
            pid: Pid(pid),
            first: FactNumber(number),
            facts: vec![vec![7; FACT_BYTES]],
        };
        let one_each = |number| {
            (1..=PROCESSES)
                .map(|pid| fact(pid, number))
                .collect::<Vec<_>>()
        };
        let (done, elapsed) = timed(|| {
            let mut each = one_each(2 * round + 1).into_iter();
            each.try_for_each(|fact| store.commit(owner, Batch::durable(&[fact], 0)).map(drop))
        });
        done?;
        alone += elapsed;
        let (done, elapsed) =
            timed(|| store.commit(owner, Batch::durable(&one_each(2 * round + 2), 0)));
        done?;
        together += elapsed;
    }
    print_line(format_args!(
        "in the store: {PROCESSES} facts that share a commit, over {PROCESSES} commits: {:.1}x",
        ratio(alone, together)
    ))?;
    Ok(())
}

/// Measures commits of one fact each through a kernel, by inputs to stopped processes: to 32 of
/// them concurrently, and to one that waits for each commit.
pub(crate) fn many_processes(folder: &Path) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    compare_shared_commit(&folder.join("shared"))?;
    let mut rates = Vec::new();
    for processes in [1, 32] {
        let folder = folder.join(processes.to_string());
        rates.push(runtime.block_on(facts_per_second(&folder, processes))?);
    }
    let times = rates[1] / rates[0];
    print_line(format_args!(
        "through a kernel: {:.0} facts a second of 32 processes at once, {:.0} of one, each in a \
         commit of its own: {times:.1}x",
        rates[1], rates[0]
    ))?;
    Ok(())
}

async fn facts_per_second(folder: &Path, processes: usize) -> Outcome<f64> {
    let model = FnModel(|_: Request| async { text_reply("done") });
    let kernel = Kernel::open(LogStore::open(folder)?)
        .model("m", model)
        .build()
        .await?;
    let program = program(&kernel)?;
    let start = || kernel.start(program.clone()).session().without_input();
    let started: Vec<Process> =
        try_join_all((0..processes).map(|_| async { start().await })).await?;
    try_join_all(started.iter().map(|process| async { process.stop().await })).await?;
    let start = Instant::now();
    let each = started
        .iter()
        .enumerate()
        .map(|(number, process)| async move {
            for fact in 0..FACTS {
                process.input(format!("{number} {fact}")).await?;
            }
            Ok::<_, dormouse::KernelError>(())
        });
    try_join_all(each).await?;
    let elapsed: Duration = start.elapsed();
    kernel.shutdown().await?;
    Ok((processes * FACTS) as f64 / elapsed.as_secs_f64())
}
