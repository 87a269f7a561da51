//! A node as a program, which is killed, stopped and started again.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::link::Link;

/// How many shards a cluster has.
pub(crate) const SHARDS: u32 = 16;

/// How long a node may be silent: long enough for a machine that compiles meanwhile.
pub(crate) const LEASE: Duration = Duration::from_secs(6);

/// What all nodes of a history have in common.
#[derive(Clone)]
pub(crate) struct NodeSettings {
    pub(crate) program: PathBuf,
    /// Logs, and the working directory of the nodes.
    pub(crate) folder: PathBuf,
    pub(crate) schema: String,
    pub(crate) objects: Objects,
    /// The library that changes clocks, if there is one.
    pub(crate) faketime: Option<PathBuf>,
    /// Variables of the environment.
    pub(crate) variables: Vec<(String, String)>,
}

/// Where nodes keep large contents.
#[derive(Clone, Debug)]
pub(crate) enum Objects {
    Folder(PathBuf),
    /// The port of a server of the S3 protocol, and the prefix in its bucket `contents`.
    Server {
        port: u16,
        prefix: String,
    },
}

impl Objects {
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Folder(folder) => format!("file://{}", folder.display()),
            Self::Server { prefix, .. } => format!("s3://contents/{prefix}"),
        }
    }
}

/// A node. Its program is killed when this is dropped.
pub(crate) struct Node {
    /// Its name, which is also its role at the database.
    pub(crate) name: &'static str,
    settings: NodeSettings,
    /// The link to the database.
    pub(crate) database: Link,
    /// The link to the object store, if that is a server.
    pub(crate) objects: Option<Link>,
    child: Option<Child>,
}

impl Node {
    pub(crate) async fn new(
        name: &'static str,
        settings: NodeSettings,
        database_port: u16,
    ) -> Result<Self> {
        let objects = match &settings.objects {
            Objects::Folder(_) => None,
            Objects::Server { port, .. } => Some(Link::to(*port).await?),
        };
        Ok(Self {
            name,
            settings,
            database: Link::to(database_port).await?,
            objects,
            child: None,
        })
    }

    pub(crate) fn log_path(folder: &Path, name: &str) -> PathBuf {
        folder.join(format!("node-{name}.log"))
    }

    /// The arguments of the program: the one place that knows how a node is started.
    fn arguments(&self) -> Vec<String> {
        let settings = &self.settings;
        let (name, port) = (self.name, self.database.port);
        let schema = &settings.schema;
        let arguments = [
            ("node", String::new()),
            (
                "--store",
                format!("postgres://{name}@127.0.0.1:{port}/postgres?schema={schema}"),
            ),
            ("--name", name.to_owned()),
            ("--reach", "everyone".to_owned()),
            ("--shards", SHARDS.to_string()),
            ("--lease", LEASE.as_secs().to_string()),
            ("--drain-deadline", "10".to_owned()),
            ("--objects", settings.objects.url()),
            ("--allow-run=sh", String::new()),
            ("--allow-unconfined=sh", String::new()),
        ];
        let words = arguments
            .into_iter()
            .flat_map(|(flag, value)| [flag.to_owned(), value]);
        words.filter(|word| !word.is_empty()).collect()
    }

    /// Starts the program, if it does not run, with a clock that is wrong by this many seconds.
    pub(crate) fn start(&mut self, clock_offset: i32) -> Result<()> {
        if self.is_running() {
            return Ok(());
        }
        let settings = &self.settings;
        let log = Self::log_path(&settings.folder, self.name);
        let log = File::options().create(true).append(true).open(log)?;
        let mut command = Command::new("nice");
        command
            .args(["-n", "5"])
            .arg(&settings.program)
            .args(self.arguments())
            .current_dir(&settings.folder)
            .envs(settings.variables.iter().cloned())
            .stdin(Stdio::null())
            .stderr(log);
        if let Some(link) = &self.objects {
            command.env(
                "AWS_ENDPOINT_URL_S3",
                format!("http://127.0.0.1:{}", link.port),
            );
        }
        if let Some(library) = &settings.faketime
            && clock_offset != 0
        {
            command
                .env("LD_PRELOAD", library)
                .env("FAKETIME", format!("{clock_offset:+}s"))
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        let child = command
            .spawn()
            .context("the program of a node cannot be started")?;
        self.child = Some(child);
        Ok(())
    }

    pub(crate) fn is_running(&mut self) -> bool {
        let child = self.child.as_mut();
        child.is_some_and(|child| child.try_wait().is_ok_and(|status| status.is_none()))
    }

    /// Sends a signal, such as `STOP`, to the program, if it runs.
    pub(crate) fn signal(&mut self, name: &str) -> Result<()> {
        if self.is_running()
            && let Some(child) = &self.child
        {
            signal(child.id(), name)?;
        }
        Ok(())
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Drains the node. Returns whether its program ended in time; it is killed if it did not.
    pub(crate) async fn drain(&mut self, limit: Duration) -> Result<bool> {
        self.signal("TERM")?;
        let begun = std::time::Instant::now();
        while self.is_running() {
            if begun.elapsed() > limit {
                self.kill();
                return Ok(false);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(true)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Sends a signal to one program, by its id.
pub(crate) fn signal(pid: u32, name: &str) -> Result<()> {
    let status = Command::new("kill")
        .args([&format!("-{name}"), &pid.to_string()])
        .status()?;
    anyhow::ensure!(status.success(), "no signal {name} for {pid}");
    Ok(())
}
