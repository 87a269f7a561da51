//! What hosts do: start, speak, signal, branch, copy, take back, look, and lose interest halfway.

use std::sync::Arc;
use std::time::Duration;

use dormouse::id::{FactNumber, Pid};
use dormouse::ports::StoreError;
use dormouse::process::Origin;
use dormouse::{Kernel, KernelError, Position, ProcessInfo, StoreFailure};
use dormouse_tests::random::Random;
use tokio::time::{sleep, timeout};

use super::{CROWD, Soak, is_expected, within};

/// What each process runs.
pub(super) const PROGRAM: &str = "[model]\nname = \"m\"\nprovider = \"scripted\"\nmax_iterations = \
40\n[tools]\nenabled = [\"once\", \"large\", \"read_fd\", \"goto\", \"send_message\", \
\"receive_messages\", \"wait\", \"checkpoint_process\", \"restore_process\", \"create_temp_file\", \
\"append_temp_file\", \"fork\", \"spawn\"]\n[file_descriptor]\nmax_direct_output_chars = \
2000\ndefault_page_size = 400\n[linked_programs]\nmain = \"main.toml\"\n[limits]\nmax_depth = \
2\nmax_children = 3\nmax_restores = 3\n";

pub(super) async fn act(soak: Arc<Soak>, mut random: Random) {
    while !soak.is_over() {
        sleep(Duration::from_millis(random.one_of(&[0, 0, 2, 10, 30]))).await;
        let open = soak.open().await;
        let rows = within(&soak.folder, "a list of processes", open.kernel.processes())
            .await
            .unwrap();
        let living: Vec<_> = rows
            .iter()
            .filter(|info| info.row.exit.is_none())
            .map(|info| info.row.pid)
            .collect();
        soak.figures.counted(rows.len(), living.len());
        // Some who ask do not wait for the answer.
        let patience = random
            .percent(5)
            .then(|| Duration::from_micros(random.below(3_000)));
        let asked = one(&open.kernel, &mut random, &rows, &living);
        let done = match patience {
            Some(patience) => timeout(patience, asked).await.unwrap_or(Ok(())),
            None => within(&soak.folder, "what a host asked for", asked).await,
        };
        match done {
            Ok(()) => soak.figures.acted(),
            Err(error) if is_expected(&error) => soak.figures.refused(),
            Err(error) => soak.calls.fault(format!("a host was told: {error:?}")),
        }
    }
}

/// One act, on one that lives.
async fn one(
    kernel: &Kernel,
    random: &mut Random,
    rows: &[ProcessInfo],
    living: &[Pid],
) -> Result<(), KernelError> {
    let is_crowded = living.len() >= CROWD;
    let Some(pid) = random.pick(living).filter(|_| living.len() > CROWD / 2) else {
        return start(kernel, random).await;
    };
    let process = kernel.process(pid).await?;
    // A branch carries the conversation and the changes of files of all that it goes on from:
    // endless lines of them would grow.
    let is_tired = goes_on_from_another(rows, pid) && random.percent(80);
    match random.below(100) {
        0..20 if !is_crowded => start(kernel, random).await,
        20..35 => process.input("go on").await,
        35..39 => process.interrupt().await,
        39..45 => process.stop().await,
        45..57 => process.cont().await,
        57..60 => process.tree().stop().await,
        60..65 => process.tree().cont().await,
        65..67 => process.hibernate().await,
        67..69 => process.goto("msg:1", "from the beginning").await.map(drop),
        69..71 => process.checkpoint("host").await.map(drop),
        71..73 => process.tree().checkpoint("host").await.map(drop),
        73..85 if is_tired => process.input("go on").await,
        73..76 if !is_crowded => process.fork().await.map(drop),
        76..79 if !is_crowded => kernel
            .copy(pid, fact(kernel, random, pid).await?)
            .await
            .map(drop),
        79..82 if !is_crowded => match fact(kernel, random, pid).await? {
            Some(fact) => kernel.branch(pid, fact).await.map(drop),
            None => kernel.branch(pid, Position::Now).await.map(drop),
        },
        82..85 => take_back(kernel, random, rows, pid).await,
        85..88 => look(kernel, random, rows).await,
        88..90 => process
            .open("notes", "a line of notes\n".repeat(400), None)
            .await
            .map(drop),
        _ if is_crowded => process.tree().kill().await,
        _ => process.kill().await,
    }
}

async fn start(kernel: &Kernel, random: &mut Random) -> Result<(), KernelError> {
    let program = kernel.load("main.toml").expect("it compiles").program;
    let start = kernel.start(program).input("begin");
    let start = if random.percent(50) {
        start.session()
    } else {
        start
    };
    start.await.map(drop)
}

/// Any of the latest facts of a process.
async fn fact(
    kernel: &Kernel,
    random: &mut Random,
    pid: Pid,
) -> Result<Option<FactNumber>, KernelError> {
    let log = kernel.log(pid).await?;
    let recent = &log[log.len().saturating_sub(40)..];
    Ok(if recent.is_empty() || random.percent(20) {
        None
    } else {
        Some(recent[random.index(recent.len())].number)
    })
}

/// Takes a process back in place, or branches what a checkpoint covers.
async fn take_back(
    kernel: &Kernel,
    random: &mut Random,
    rows: &[ProcessInfo],
    pid: Pid,
) -> Result<(), KernelError> {
    let checkpoints = kernel.checkpoints().await?;
    let of = checkpoints
        .iter()
        .rfind(|checkpoint| checkpoint.position_of(pid).is_some());
    let of_the_first = checkpoints
        .iter()
        .filter(|checkpoint| !goes_on_from_another(rows, checkpoint.pid));
    let any = random.pick(
        &of_the_first
            .map(|checkpoint| checkpoint.id)
            .collect::<Vec<_>>(),
    );
    let done = match (of, any) {
        (Some(checkpoint), _) => kernel
            .process(pid)
            .await?
            .restore(checkpoint.id)
            .await
            .map(drop),
        (None, Some(any)) => kernel.restore(any).await.map(drop),
        (None, None) => Ok(()),
    };
    match done {
        // A collection may give one up after it was listed here; whoever makes one, as a branch
        // does, never finds it gone.
        Err(KernelError::Store(StoreFailure::Store(StoreError::UnknownCheckpoint(_)))) => Ok(()),
        done => done,
    }
}

/// Whether a process is a branch, a copy or a fork by its host.
fn goes_on_from_another(rows: &[ProcessInfo], pid: Pid) -> bool {
    let row = rows
        .iter()
        .find(|info| info.row.pid == pid)
        .map(|info| &info.row);
    row.is_none_or(|row| row.branched_from.is_some() || matches!(row.origin, Origin::Copied { .. }))
}

/// Looks at one that lives or has ended.
async fn look(
    kernel: &Kernel,
    random: &mut Random,
    rows: &[ProcessInfo],
) -> Result<(), KernelError> {
    let Some(info) = rows.get(random.index(rows.len().max(1))) else {
        return Ok(());
    };
    kernel.inspect(info.row.pid).await.map(drop)
}
