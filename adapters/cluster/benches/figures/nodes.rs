//! Nodes as programs. What a node is called and which words it gets is here, and nowhere else.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::schema::Schema;

/// The variable that names the program of a node, `dormouse` with clusters, as `.ci/cluster` builds
/// it.
const PROGRAM: &str = "DORMOUSE_PROGRAM";

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
        let program =
            std::env::var(PROGRAM).context("DORMOUSE_PROGRAM: run .ci/cluster-figures")?;
        let child = Command::new(&program)
            .args(["node", "--store"])
            .arg(format!("{user}@{tail}?schema={}", schema.name))
            .args(["--name", name, "--reach", "everyone"])
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
