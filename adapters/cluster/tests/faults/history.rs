//! The history: what the clients of a cluster asked for, and what they learned, as it happened.
//!
//! Each operation is invoked, and then acknowledged, refused, or of unknown outcome. In the file it
//! is a line of JSON for each of the two. What was seen to be durable is acknowledged as well.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::Result;
use dormouse::id::{CheckpointId, FactNumber, Pid};
use dormouse_cluster::ClusterError;
use serde::Serialize;

/// What a client asks for.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Asked {
    Start { request: String },
    Input { pid: Pid, text: String },
    Checkpoint { pid: Pid, label: String },
    StopAndContinue { pid: Pid },
    Wait { pid: Pid },
    End { pid: Pid },
}

/// What a client learns.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Acknowledged(Learned),
    /// Nothing was done.
    Refused(String),
    /// It may have been done.
    Unknown(String),
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Learned {
    Nothing,
    Process(Pid),
    Checkpoint(CheckpointId),
    Exit(String),
}

/// An operation. Without an outcome it was cut off, which is as unknown.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) asked: Asked,
    pub(crate) outcome: Option<Outcome>,
}

#[derive(Serialize)]
struct Line<'a> {
    at_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<usize>,
    #[serde(flatten)]
    event: Event<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Event<'a> {
    Invoked(&'a Asked),
    Completed(&'a Outcome),
    Seen {
        pid: Pid,
        fact: FactNumber,
        name: &'a str,
    },
    Fault(&'a str),
}

#[derive(Default)]
struct Contents {
    operations: Vec<Operation>,
    /// The facts of processes that were seen to be durable.
    seen: BTreeMap<Pid, BTreeMap<u64, String>>,
    faults: BTreeMap<&'static str, usize>,
}

/// A history that is being written. Clones are the same.
#[derive(Clone)]
pub(crate) struct History {
    begun: Instant,
    file: Arc<Mutex<BufWriter<File>>>,
    contents: Arc<Mutex<Contents>>,
}

impl History {
    pub(crate) fn create(path: &Path) -> Result<Self> {
        Ok(Self {
            begun: Instant::now(),
            file: Arc::new(Mutex::new(BufWriter::new(File::create(path)?))),
            contents: Arc::default(),
        })
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, operation: Option<usize>, event: Event<'_>) {
        let at_ms = self.begun.elapsed().as_millis() as u64;
        let line = Line {
            at_ms,
            operation,
            event,
        };
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let written = serde_json::to_writer(&mut *file, &line).map_err(std::io::Error::from);
        if let Err(error) = written.and_then(|()| writeln!(file)) {
            tracing::error!(%error, "the history was not written");
        }
    }

    /// Runs an operation, and records it.
    pub(crate) async fn record<T>(
        &self,
        asked: Asked,
        operation: impl Future<Output = Result<T, ClusterError>>,
        learned: impl FnOnce(&T) -> Learned,
    ) -> Result<T, ClusterError> {
        let number = {
            let mut contents = self.contents();
            let operations = &mut contents.operations;
            operations.push(Operation {
                asked: asked.clone(),
                outcome: None,
            });
            operations.len() - 1
        };
        self.write(Some(number), Event::Invoked(&asked));
        let result = operation.await;
        let outcome = match &result {
            Ok(value) => Outcome::Acknowledged(learned(value)),
            Err(error @ ClusterError::OutcomeUnknown { .. }) => Outcome::Unknown(error.to_string()),
            Err(error) => Outcome::Refused(error.to_string()),
        };
        self.write(Some(number), Event::Completed(&outcome));
        self.contents().operations[number].outcome = Some(outcome);
        result
    }

    /// Records a fact that a watcher was told is durable.
    pub(crate) fn saw(&self, pid: Pid, fact: FactNumber, name: &str) {
        self.write(None, Event::Seen { pid, fact, name });
        let mut contents = self.contents();
        let facts = contents.seen.entry(pid).or_default();
        facts.insert(fact.0, name.to_owned());
    }

    /// Records a fault, which counts under its kind.
    pub(crate) fn fault(&self, kind: &'static str, description: &str) {
        println!(
            "{:8.1} s  {description}",
            self.begun.elapsed().as_secs_f64()
        );
        self.write(None, Event::Fault(description));
        *self.contents().faults.entry(kind).or_default() += 1;
    }

    pub(crate) fn operations(&self) -> Vec<Operation> {
        self.contents().operations.clone()
    }

    pub(crate) fn seen(&self) -> BTreeMap<Pid, BTreeMap<u64, String>> {
        self.contents().seen.clone()
    }

    pub(crate) fn faults(&self) -> BTreeMap<&'static str, usize> {
        self.contents().faults.clone()
    }

    pub(crate) fn flush(&self) -> Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(file.flush()?)
    }
}
