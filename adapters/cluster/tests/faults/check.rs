//! Checks a history against the final database, the files of the calls, and what the database saw.

mod calls;
mod clients;
mod journals;
mod writes;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use dormouse::checkpoint::Scope;
use dormouse::id::Pid;
use dormouse::models::ScriptedProvider;
use dormouse::process::ProcessRow;
use dormouse::{Conversation, Kernel, LogLine, Position};
use dormouse_cluster::pids_of;
use dormouse_objects::{ObjectContents, ObjectOptions};
use dormouse_postgres::{Database, DatabaseOptions, PostgresLog, ShardId};
use dormouse_records::RecordStore;

use crate::history::History;
use crate::node::{Objects, SHARDS};
use crate::observer::ShardWrite;

/// From this length on nodes keep contents in the object store.
const LARGE_BYTES: usize = 64 << 10;

/// Something that must not be.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) name: &'static str,
    pub(crate) evidence: String,
}

/// What a check found.
#[derive(Default)]
pub(crate) struct Findings {
    pub(crate) violations: Vec<Violation>,
    pub(crate) counts: BTreeMap<&'static str, u64>,
}

impl Findings {
    pub(crate) fn violate(&mut self, name: &'static str, evidence: impl Into<String>) {
        let evidence = evidence.into();
        self.violations.push(Violation { name, evidence });
    }

    pub(crate) fn count(&mut self, name: &'static str, number: u64) {
        *self.counts.entry(name).or_default() += number;
    }
}

/// A process of the final database.
pub(crate) struct FinalProcess {
    pub(crate) row: ProcessRow,
    pub(crate) log: Vec<LogLine>,
    /// `None` for a session that never heard anything.
    pub(crate) conversation: Option<Conversation>,
}

/// The final database.
#[derive(Default)]
pub(crate) struct FinalState {
    pub(crate) processes: BTreeMap<Pid, FinalProcess>,
    /// The checkpoints, with the shards that have them.
    pub(crate) checkpoints: Vec<(u32, dormouse::checkpoint::Checkpoint)>,
}

/// Where everything is that is checked.
pub(crate) struct Evidence {
    pub(crate) history: History,
    pub(crate) writes: BTreeMap<u32, Vec<ShardWrite>>,
    pub(crate) ledger: PathBuf,
    pub(crate) database: DatabaseOptions,
    pub(crate) objects: Objects,
}

/// Checks everything. No node may run any more.
pub(crate) async fn check(evidence: &Evidence, findings: &mut Findings) -> Result<()> {
    let epochs = writes::check(&evidence.writes, findings);
    let state = read_state(evidence, findings).await?;
    findings.count("processes", state.processes.len() as u64);
    journals::check(&state, &epochs, findings);
    calls::check(&state, &read_ledger(&evidence.ledger)?, findings);
    clients::check(&state, &evidence.history, findings);
    Ok(())
}

/// Reads all that the kernels of the shards can read.
async fn read_state(evidence: &Evidence, findings: &mut Findings) -> Result<FinalState> {
    let (options, objects) = (evidence.database.clone(), evidence.objects.clone());
    let opened = tokio::task::spawn_blocking(move || -> Result<_> {
        let mut of_objects = ObjectOptions::new(objects.url());
        if let Objects::Server { port, .. } = objects {
            of_objects = of_objects.endpoint(format!("http://127.0.0.1:{port}"));
        }
        let objects = Arc::new(ObjectContents::open(of_objects)?);
        Ok((Database::connect(&options)?, objects))
    });
    let (database, objects) = opened.await??;
    let mut state = FinalState::default();
    for shard in (0..SHARDS).map(ShardId) {
        let log =
            PostgresLog::unleased(&database, shard).large_contents(objects.clone(), LARGE_BYTES);
        let kernel = Kernel::open(RecordStore::new_on(log))
            .provider("scripted", ScriptedProvider)
            .pids(pids_of(shard))
            .build()
            .await;
        let kernel = match kernel {
            Ok(kernel) => kernel,
            Err(error) => {
                findings.violate("shard-does-not-open", format!("{shard}: {error}"));
                continue;
            }
        };
        read_shard(&kernel, shard, &mut state, findings).await?;
        kernel.shutdown().await.context("the kernel of the check")?;
    }
    Ok(state)
}

async fn read_shard(
    kernel: &Kernel,
    shard: ShardId,
    state: &mut FinalState,
    findings: &mut Findings,
) -> Result<()> {
    for loss in kernel.losses() {
        findings.violate("record-damaged", format!("{shard}: {loss}"));
    }
    for info in kernel.processes().await? {
        let pid = info.row.pid;
        let log = match kernel.log(pid).await {
            Ok(log) => log,
            Err(error) => {
                findings.violate("journal-cannot-be-read", format!("process {pid}: {error}"));
                continue;
            }
        };
        let mut conversation = None;
        if log.len() > 1 {
            match kernel.conversation(pid, Position::Now).await {
                Ok(read) => conversation = Some(read),
                Err(error) => {
                    let evidence = format!("process {pid}: {error}");
                    findings.violate("journal-cannot-be-read", evidence);
                }
            }
            // Reads every content that the process refers to.
            let export = kernel
                .export(pid, Scope::Process)
                .write(std::io::sink())
                .await;
            if let Err(error) = export {
                findings.violate("content-lost", format!("process {pid}: {error}"));
            }
        }
        let process = FinalProcess {
            row: info.row,
            log,
            conversation,
        };
        state.processes.insert(pid, process);
    }
    let checkpoints = kernel.checkpoints().await?;
    state.checkpoints.extend(
        checkpoints
            .into_iter()
            .map(|checkpoint| (shard.0, checkpoint)),
    );
    Ok(())
}

/// The lines of each call that ran.
fn read_ledger(folder: &Path) -> Result<BTreeMap<String, Vec<String>>> {
    let mut ledger = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let text = std::fs::read_to_string(entry.path())?;
        let lines = text.lines().map(str::to_owned).collect();
        ledger.insert(entry.file_name().to_string_lossy().into_owned(), lines);
    }
    Ok(ledger)
}
