//! A primary of PostgreSQL and its streaming standby, which are killed, and of which the one takes
//! the place of the other.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use tokio_postgres::{NoTls, SimpleQueryMessage};

use crate::node::signal;

/// How long an asynchronous standby receives nothing before it takes over, so that there is
/// something to lose: on one machine it would have received nearly everything.
const ASYNC_LAG: Duration = Duration::from_secs(1);

/// How long a server may take until it answers.
const START_LIMIT: Duration = Duration::from_secs(90);

/// What the primary waits for before it acknowledges a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Replication {
    /// The standby has applied the commit: a promotion loses nothing.
    Sync,
    /// Its own disk: a promotion loses what the standby has not received.
    Async,
}

/// A server. Killed when it is dropped.
struct Server {
    child: Child,
    port: u16,
    folder: PathBuf,
}

/// The servers.
pub(crate) struct Postgres {
    binaries: PathBuf,
    /// The user that the servers run as, since PostgreSQL refuses root; `None` if that is not root.
    user: Option<String>,
    folder: PathBuf,
    pub(crate) replication: Replication,
    primary: Server,
    standby: Option<Server>,
    next_folder: u32,
}

impl Postgres {
    pub(crate) async fn start(
        binaries: &Path,
        user: Option<String>,
        folder: &Path,
        replication: Replication,
    ) -> Result<Self> {
        let data = folder.join("server-0");
        let mut initdb = command(user.as_deref(), &binaries.join("initdb"));
        initdb
            .args([
                "--username",
                "dormouse",
                "--auth",
                "trust",
                "--encoding",
                "UTF8",
            ])
            .args(["--no-locale", "--no-sync", "--pgdata"])
            .arg(&data);
        run(&mut initdb)?;
        let primary = spawn(binaries, user.as_deref(), &data, free_port()?)?;
        let mut postgres = Self {
            binaries: binaries.to_owned(),
            user,
            folder: folder.to_owned(),
            replication,
            primary,
            standby: None,
            next_folder: 1,
        };
        postgres.until_it_answers().await?;
        for role in ["client", "a", "b", "c"] {
            let sql = format!("CREATE ROLE {role} SUPERUSER LOGIN");
            postgres.sql(&sql).await?;
        }
        postgres.attach_standby().await?;
        Ok(postgres)
    }

    /// The port of the primary.
    pub(crate) fn port(&self) -> u16 {
        self.primary.port
    }

    /// Executes SQL at the primary. Returns the rows.
    pub(crate) async fn sql(&self, sql: &str) -> Result<Vec<Vec<String>>> {
        query(self.primary.port, sql).await
    }

    async fn until_it_answers(&self) -> Result<()> {
        let begun = Instant::now();
        while let Err(error) = self.sql("SELECT 1").await {
            if begun.elapsed() > START_LIMIT {
                return Err(error.context("the primary does not answer"));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    /// Makes a standby of a copy of the primary, and lets commits wait for it if they should.
    pub(crate) async fn attach_standby(&mut self) -> Result<()> {
        self.standby = None;
        let data = self.folder.join(format!("server-{}", self.next_folder));
        self.next_folder += 1;
        let port = self.primary.port.to_string();
        let mut copy = command(self.user.as_deref(), &self.binaries.join("pg_basebackup"));
        copy.args([
            "--host",
            "127.0.0.1",
            "--port",
            &port,
            "--username",
            "dormouse",
        ])
        .args([
            "--write-recovery-conf",
            "--wal-method",
            "stream",
            "--checkpoint",
            "fast",
        ])
        .args(["--no-sync", "--pgdata"])
        .arg(&data);
        tokio::task::spawn_blocking(move || run(&mut copy)).await??;
        let standby = spawn(&self.binaries, self.user.as_deref(), &data, free_port()?)?;
        self.standby = Some(standby);
        self.until_streaming().await?;
        self.wait_for_standby(true).await
    }

    async fn until_streaming(&self) -> Result<()> {
        let begun = Instant::now();
        while !self.is_streaming().await? {
            if begun.elapsed() > START_LIMIT {
                bail!("the standby does not receive what the primary writes");
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    async fn is_streaming(&self) -> Result<bool> {
        let rows = self.sql("SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'");
        Ok(!rows.await?.is_empty())
    }

    /// Whether a promotion of the standby loses nothing, or is meant to.
    pub(crate) async fn can_promote(&self) -> Result<bool> {
        if self.standby.is_none() {
            return Ok(false);
        }
        let rows =
            self.sql("SELECT 1 FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')");
        match self.replication {
            Replication::Sync => Ok(!rows.await?.is_empty()),
            Replication::Async => self.is_streaming().await,
        }
    }

    /// Lets commits wait for the standby from now on, or no more.
    async fn wait_for_standby(&self, waits: bool) -> Result<()> {
        if self.replication == Replication::Async {
            return Ok(());
        }
        // A commit that waits for a standby that has gone would never end.
        let names = if waits { "*" } else { "" };
        self.sql(&format!(
            "ALTER SYSTEM SET synchronous_standby_names = '{names}'"
        ))
        .await?;
        self.sql("ALTER SYSTEM SET synchronous_commit = 'remote_apply'")
            .await?;
        self.sql("SELECT pg_reload_conf()").await?;
        let begun = Instant::now();
        while waits && !self.can_promote().await? && begun.elapsed() < START_LIMIT {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Kills the primary, and starts it again after a while.
    pub(crate) async fn kill_primary(&mut self, down: Duration) -> Result<()> {
        self.primary.kill();
        tokio::time::sleep(down).await;
        let begun = Instant::now();
        loop {
            // Until the last process of the killed server has gone, a new one ends at once.
            let (folder, port) = (self.primary.folder.clone(), self.primary.port);
            self.primary = spawn(&self.binaries, self.user.as_deref(), &folder, port)?;
            while self.primary.is_running() {
                if self.sql("SELECT 1").await.is_ok() {
                    return Ok(());
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            anyhow::ensure!(
                begun.elapsed() < START_LIMIT,
                "the primary does not start again"
            );
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    /// Kills the primary, and makes the standby the primary. It has no standby yet.
    pub(crate) async fn promote(&mut self) -> Result<()> {
        let standby = self.standby.take().context("there is no standby")?;
        if self.replication == Replication::Async {
            query(standby.port, "ALTER SYSTEM SET primary_conninfo = ''").await?;
            query(standby.port, "SELECT pg_reload_conf()").await?;
            tokio::time::sleep(ASYNC_LAG).await;
        }
        self.primary.kill();
        self.primary = standby;
        let begun = Instant::now();
        loop {
            let promoted = self.sql("SELECT pg_promote(true, 60)").await;
            let is_primary = self.sql("SELECT 1 WHERE NOT pg_is_in_recovery()").await;
            if is_primary.is_ok_and(|rows| !rows.is_empty()) {
                break;
            }
            if begun.elapsed() > START_LIMIT {
                bail!("the standby was not promoted: {promoted:?}");
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.wait_for_standby(false).await
    }

    /// Stops the standby for a while: commits that wait for it hang. It is not killed.
    pub(crate) async fn pause_standby(&mut self, pause: Duration) -> Result<()> {
        let Some(standby) = &self.standby else {
            return Ok(());
        };
        // Its processes form a session of their own.
        let pids = standby.processes()?;
        for pid in &pids {
            signal(*pid, "STOP")?;
        }
        tokio::time::sleep(pause).await;
        for pid in &pids {
            // One that has ended meanwhile needs no signal.
            let _ = signal(*pid, "CONT");
        }
        Ok(())
    }
}

impl Server {
    fn kill(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn is_running(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_none())
    }

    /// The main process and its children.
    fn processes(&self) -> Result<Vec<u32>> {
        let main = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{main}/task/{main}/children"))?;
        let children = children
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok());
        Ok(std::iter::once(main).chain(children).collect())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn command(user: Option<&str>, program: &Path) -> Command {
    let mut command = match user {
        Some(user) => {
            let mut command = Command::new("setpriv");
            command
                .args([
                    &format!("--reuid={user}"),
                    "--regid=nogroup",
                    "--clear-groups",
                    "--",
                ])
                .arg(program);
            command
        }
        None => Command::new(program),
    };
    command.stdin(Stdio::null()).env_remove("LD_PRELOAD");
    command
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{command:?} failed: {said}");
    Ok(())
}

fn spawn(binaries: &Path, user: Option<&str>, folder: &Path, port: u16) -> Result<Server> {
    let mut log = folder.as_os_str().to_owned();
    log.push(".log");
    let log = File::options().create(true).append(true).open(log)?;
    let mut server = command(user, &binaries.join("postgres"));
    server.arg("-D").arg(folder).args(["-p", &port.to_string()]);
    for setting in [
        "listen_addresses=127.0.0.1",
        "unix_socket_directories=",
        "max_connections=120",
        "shared_buffers=64MB",
        "wal_keep_size=512MB",
        "max_wal_size=2GB",
        "wal_retrieve_retry_interval=500ms",
        "wal_sender_timeout=20s",
        "wal_receiver_timeout=20s",
    ] {
        server.args(["-c", setting]);
    }
    let child = server.stdout(log.try_clone()?).stderr(log).spawn()?;
    let folder = folder.to_owned();
    Ok(Server {
        child,
        port,
        folder,
    })
}

/// Where a server is.
pub(crate) fn url(port: u16) -> String {
    format!("host=127.0.0.1 port={port} user=dormouse dbname=postgres connect_timeout=5")
}

/// Executes SQL at a server. Returns the rows.
pub(crate) async fn query(port: u16, sql: &str) -> Result<Vec<Vec<String>>> {
    let (client, connection) = tokio_postgres::connect(&url(port), NoTls).await?;
    let driver = tokio::spawn(connection);
    let limit = Duration::from_secs(120);
    let messages = tokio::time::timeout(limit, client.simple_query(sql)).await;
    driver.abort();
    let row = |message| match message {
        SimpleQueryMessage::Row(row) => {
            let column = |index| row.get(index).unwrap_or_default().to_owned();
            Some((0..row.len()).map(column).collect())
        }
        _ => None,
    };
    Ok(messages??.into_iter().filter_map(row).collect())
}

fn free_port() -> Result<u16> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    Ok(listener.local_addr()?.port())
}
