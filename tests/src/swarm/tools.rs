//! The tools of the swarm, and the ledger in which the one that must not run twice counts its runs
//! itself.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dormouse::tool::Access;
use dormouse::{FnTool, KernelBuilder};
use schemars::JsonSchema;
use serde::Deserialize;

/// How long a tool takes before and after what it does, so that a kill finds it at work.
const WORK: Duration = Duration::from_millis(10);

/// The file with one line for each run of `record`: the id that it was called with.
#[derive(Clone, Debug)]
pub struct Ledger(PathBuf);

impl Ledger {
    /// That of the swarm in this folder.
    #[must_use]
    pub fn of(folder: &Path) -> Self {
        Self(folder.join("ledger"))
    }

    /// All ids, in the order of the runs.
    ///
    /// # Errors
    /// Those of the file.
    pub fn ids(&self) -> std::io::Result<Vec<String>> {
        match std::fs::read_to_string(&self.0) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            text => Ok(text?.lines().map(str::to_owned).collect()),
        }
    }

    /// One write and one sync: a kill leaves the line or leaves it not.
    fn append(&self, id: &str) -> std::io::Result<()> {
        let mut file: File = OpenOptions::new().append(true).create(true).open(&self.0)?;
        file.write_all(format!("{id}\n").as_bytes())?;
        file.sync_all()
    }
}

#[derive(Deserialize, JsonSchema)]
struct Id {
    id: String,
}

#[derive(Deserialize, JsonSchema)]
struct Survey {
    topic: String,
    lines: usize,
}

/// `record` runs at most once for each call; `look` and `survey` may run again.
pub(super) fn with_tools(builder: KernelBuilder, ledger: &Ledger) -> KernelBuilder {
    let (written, read) = (Arc::new(ledger.clone()), Arc::new(ledger.clone()));
    let record = FnTool::new(
        "record",
        "Records it in the ledger.",
        move |Id { id }: Id| {
            let ledger = written.clone();
            async move {
                tokio::time::sleep(WORK).await;
                ledger.append(&id).map_err(|error| error.to_string())?;
                tokio::time::sleep(WORK).await;
                Ok::<_, String>(format!("recorded {id}"))
            }
        },
    );
    let look = FnTool::new(
        "look",
        "Says whether it stands in the ledger.",
        move |Id { id }: Id| {
            let ledger = read.clone();
            async move {
                let ids = ledger.ids().map_err(|error| error.to_string())?;
                Ok::<_, String>(if ids.contains(&id) { "yes" } else { "no" })
            }
        },
    );
    let survey = FnTool::new(
        "survey",
        "Describes it at length.",
        |Survey { topic, lines }: Survey| async move {
            tokio::time::sleep(WORK).await;
            let line = |number| {
                format!("line {number} of the survey of {topic}: as far as the eye can see\n")
            };
            Ok::<_, String>((1..=lines).map(line).collect::<String>())
        },
    );
    builder
        .tool(record)
        .tool(look.idempotent().access(Access::Read))
        .tool(survey.idempotent())
}
