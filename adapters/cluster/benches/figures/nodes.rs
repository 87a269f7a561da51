//! Nodes as programs. What a node is called and which words it gets is here, and nowhere else.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::schema::Schema;

/// The program of a node.
const PROGRAM: &str = env!("CARGO_BIN_EXE_dormouse-node");

/// Names another build of it, so that two can be compared in turns.
const OTHER_PROGRAM: &str = "DORMOUSE_FIGURES_NODE";

/// A node as a program. It is killed when it is dropped.
pub(crate) struct NodeProgram(Child);

/// The settings of a node.
#[derive(Clone, Copy)]
pub(crate) struct NodeSettings {
    pub(crate) shards: u32,
    pub(crate) lease: Duration,
    pub(crate) model_calls: usize,
}

impl NodeProgram {
    pub(crate) fn start(schema: &Schema, name: &str, settings: NodeSettings) -> Result<Self> {
        let (head, tail) = schema.url.rsplit_once('@').context("an address")?;
        let (user, password) = head.rsplit_once(':').context("a password")?;
        let program = std::env::var(OTHER_PROGRAM).unwrap_or_else(|_| PROGRAM.to_owned());
        let child = Command::new(&program)
            .args(["--store", &format!("{user}@{tail}")])
            .args(["--schema", &schema.name])
            .args(["run", "--name", name, "--reach", "everyone"])
            .args(["--shards", &settings.shards.to_string()])
            .args(["--lease", &settings.lease.as_secs_f64().to_string()])
            .args(["--model-calls", &settings.model_calls.to_string()])
            .env("PGPASSWORD", password)
            .env("DORMOUSE_LOG", "error")
            .stdin(Stdio::null())
            .spawn()
            .with_context(|| format!("{program} cannot be started"))?;
        Ok(Self(child))
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// `kill -9`, and waits until the program is gone.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }

    /// Asks the node to drain.
    pub(crate) fn terminate(&self) -> Result<()> {
        let status = Command::new("kill")
            .args(["-TERM", &self.0.id().to_string()])
            .status()?;
        ensure!(status.success(), "the node is gone already");
        Ok(())
    }

    /// Waits for the end of the program, which must have drained.
    pub(crate) async fn ended(mut self) -> Result<()> {
        loop {
            if let Some(status) = self.0.try_wait()? {
                ensure!(status.success(), "the node did not drain: {status}");
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for NodeProgram {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
