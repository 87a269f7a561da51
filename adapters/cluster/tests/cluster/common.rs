//! A schema for each test, nodes as programs, and a ledger of effects.
//!
//! `.ci/cluster` starts the server, and builds the program that is a node. Without it the tests
//! fail.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use dormouse::Kernel;
use dormouse::id::Pid;
use dormouse::models::ScriptedProvider;
use dormouse_cluster::{Cluster, ClusterOptions, ProgramFiles, pids_of, shard_of};
use dormouse_postgres::{Database, DatabaseOptions, PostgresLog, ShardId};
use dormouse_records::RecordStore;

/// The lease of nodes that are lost, so that others take over soon. A machine that is too busy to
/// renew it in time loses effects as if a node were lost.
pub(crate) const SHORT_LEASE: Duration = Duration::from_secs(2);
pub(crate) const LEASE: Duration = Duration::from_secs(5);
pub(crate) const LONG_LEASE: Duration = Duration::from_secs(10);
pub(crate) const SHARDS: u32 = 8;

/// The variable that names the schema to a node that is this program again.
const CHILD_SCHEMA: &str = "DORMOUSE_TEST_SCHEMA";

/// How many effects a process of [`World::steps`] has.
pub(crate) const STEPS: usize = 12;

/// A schema of its own, and a ledger.
pub(crate) struct World {
    url: String,
    schema: String,
    lease: Duration,
    folder: tempfile::TempDir,
}

impl World {
    pub(crate) fn new(lease: Duration) -> Self {
        let urls = std::env::var("DORMOUSE_POSTGRES_URLS");
        let urls = urls.expect("DORMOUSE_POSTGRES_URLS names the server: run .ci/cluster");
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let micros = time.expect("it is later than 1970").as_micros();
        Self {
            url: urls.split(',').next().unwrap().to_owned(),
            schema: format!("c{micros}_{}_{number}", std::process::id()),
            lease,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// The port of the server.
    pub(crate) fn port(&self) -> u16 {
        let (_, rest) = self.url.rsplit_once(':').unwrap();
        rest.split('/').next().unwrap().parse().unwrap()
    }

    /// The same schema, by another port.
    pub(crate) fn at_port(mut self, port: u16) -> Self {
        self.url = self
            .url
            .replace(&format!(":{}/", self.port()), &format!(":{port}/"));
        self
    }

    /// What a node that is a program of its own has said.
    pub(crate) fn log_of(&self, node: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(format!("{node}.log"))).unwrap()
    }

    pub(crate) fn database(&self) -> DatabaseOptions {
        let options = DatabaseOptions::new(&self.url).unwrap();
        options.schema(&self.schema).unwrap()
    }

    /// A program that is no node.
    pub(crate) async fn connect(&self) -> Cluster {
        Cluster::connect(self.database()).await.unwrap()
    }

    pub(crate) fn options(&self, name: &str) -> ClusterOptions {
        let options = ClusterOptions::new(self.database(), name);
        options.shards(SHARDS).lease(self.lease)
    }

    /// A node in this program.
    pub(crate) async fn join(&self, options: ClusterOptions) -> Cluster {
        let reach = dormouse::mail::Reach::Everyone;
        let kernel = move |_| {
            Kernel::builder()
                .provider("scripted", ScriptedProvider)
                .reach(reach)
        };
        Cluster::join(options, kernel).await.unwrap()
    }

    /// A node as a program of its own.
    pub(crate) fn spawn(&self, name: &str, arguments: &[&str]) -> NodeProgram {
        let (head, address) = self.url.rsplit_once('@').unwrap();
        let (user, password) = head.rsplit_once(':').unwrap();
        let log = self.folder.path().join(format!("{name}.log"));
        let log = std::fs::File::options().create(true).append(true).open(log);
        let program = std::env::var("DORMOUSE_PROGRAM");
        let program = program.expect("DORMOUSE_PROGRAM is dormouse with clusters: run .ci/cluster");
        let store = format!("{user}@{address}?schema={}", self.schema);
        let child = Command::new(program)
            .args(["node", "--store", &store])
            .args(["--name", name, "--reach", "everyone"])
            .args(["--shards", &SHARDS.to_string()])
            .args(["--lease", &self.lease.as_secs_f64().to_string()])
            .args(["--allow-run=sh", "--allow-unconfined=sh"])
            .args(arguments)
            .env("PGPASSWORD", password)
            .stdin(Stdio::null())
            .stderr(log.unwrap())
            .spawn()
            .unwrap();
        NodeProgram(child)
    }

    /// This test program again, as the node that the ignored test `program` is.
    pub(crate) fn spawn_test(
        &self,
        name: &str,
        program: &str,
        variables: &[(&str, &OsStr)],
    ) -> NodeProgram {
        let log = self.folder.path().join(format!("{name}.log"));
        let log = std::fs::File::options().create(true).append(true).open(log);
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", program, "--nocapture"])
            .env(CHILD_SCHEMA, &self.schema)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.unwrap())
            .spawn()
            .unwrap();
        NodeProgram(child)
    }

    /// The options of a node that [`spawn_test`](Self::spawn_test) has started.
    pub(crate) fn options_of_child(name: &str, lease: Duration) -> ClusterOptions {
        let mut world = Self::new(lease);
        world.schema = std::env::var(CHILD_SCHEMA).unwrap();
        world.options(name)
    }

    /// Waits until these nodes live, and each shard is held by the node that should.
    pub(crate) async fn settled(&self, cluster: &Cluster, nodes: &[&str]) {
        let begun = std::time::Instant::now();
        loop {
            let mut live: Vec<_> = cluster.nodes().await.unwrap();
            live.sort_by(|a, b| a.name.cmp(&b.name));
            let mut is_settled = live
                .iter()
                .map(|node| &*node.name)
                .eq(nodes.iter().copied());
            for node in &live {
                is_settled &= get(&node.address, "readyz").await == 200;
            }
            if is_settled {
                return;
            }
            if begun.elapsed() > Duration::from_secs(60) {
                panic!("never settled: {live:?}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The node that holds each leased shard, by the database.
    pub(crate) async fn owners(&self) -> BTreeMap<u32, String> {
        let sql = format!(
            "SELECT shard::text || ' ' || split_part(node, '#', 1) FROM {}.lease WHERE until > clock_timestamp()",
            self.schema
        );
        let owner = |row: String| {
            let (shard, node) = row.split_once(' ').unwrap();
            (shard.parse().unwrap(), node.to_owned())
        };
        self.sql(&sql).await.into_iter().map(owner).collect()
    }

    /// Executes SQL in which `{schema}` stands for the schema. Returns the first column.
    pub(crate) async fn sql(&self, sql: &str) -> Vec<String> {
        let connected = tokio_postgres::connect(&self.url, tokio_postgres::NoTls).await;
        let (client, connection) = connected.unwrap();
        tokio::spawn(connection);
        let messages = client
            .simple_query(&sql.replace("{schema}", &self.schema))
            .await;
        let first = |message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => {
                Some(row.get(0).unwrap_or_default().to_owned())
            }
            _ => None,
        };
        messages.unwrap().into_iter().filter_map(first).collect()
    }

    fn ledger_path(&self) -> PathBuf {
        self.folder.path().join("ledger")
    }

    /// The lines of the ledger, with how often each is there.
    pub(crate) fn ledger(&self) -> BTreeMap<String, usize> {
        let text = std::fs::read_to_string(self.ledger_path()).unwrap_or_default();
        let mut lines = BTreeMap::new();
        for line in text.lines() {
            *lines.entry(line.to_owned()).or_default() += 1;
        }
        lines
    }

    /// How many lines of each process the ledger has. No line is there twice.
    pub(crate) fn effects(&self) -> BTreeMap<String, usize> {
        let mut effects = BTreeMap::new();
        for (line, times) in self.ledger() {
            assert_eq!(times, 1, "the effect {line} was made {times} times");
            let name = line.rsplit_once('-').unwrap().0;
            *effects.entry(name.to_owned()).or_default() += 1;
        }
        effects
    }

    /// A program that appends [`STEPS`] lines to the ledger, one command each, and ends.
    pub(crate) fn steps(&self) -> ProgramFiles {
        self.noting(&format!(
            r#"
            [[turn]]
            when.holds = "round < {STEPS}"
            delay_ms = 50
            calls = [{{ tool = "note", args = {{ line = "{{{{ prompt }}}}-{{{{ round }}}}" }} }}]
            [[turn]]
            text = "{{{{ prompt }}}} is done"
            "#
        ))
    }

    /// A program that appends lines to the ledger until it is [told](Self::tell_to_end) to end, and
    /// then says how many commands it has called.
    pub(crate) fn steps_until_told(&self) -> ProgramFiles {
        self.noting(
            r#"
            [[turn]]
            when.contains = "enough"
            text = "{{ round }} steps"
            [[turn]]
            delay_ms = 50
            calls = [{ tool = "note", args = { line = "{{ prompt }}-{{ round }}" } }]
            "#,
        )
    }

    /// Ends what [`steps_until_told`](Self::steps_until_told) has started.
    pub(crate) fn tell_to_end(&self) {
        std::fs::write(self.told_path(), "").unwrap();
    }

    fn told_path(&self) -> PathBuf {
        self.folder.path().join("told")
    }

    /// A program with a command that appends a line to the ledger, and this script.
    fn noting(&self, script: &str) -> ProgramFiles {
        let program = format!(
            r#"
            [model]
            name = "steps"
            provider = "scripted"
            script = "script.toml"
            max_iterations = 10000
            [[tools.command]]
            name = "note"
            description = "Appends a line to the ledger."
            argv = ["sh", "-c", "echo \"$0\" >> {ledger}; sleep 0.05; [ ! -e {told} ] || echo enough", "{{line}}"]
            parameters.line = {{ type = "string", description = "The line." }}
            access = "write"
            "#,
            ledger = self.ledger_path().display(),
            told = self.told_path().display(),
        );
        files(&program, script)
    }

    /// Takes a shard, and opens its kernel in this program: nothing runs in it.
    pub(crate) async fn open_shard(&self, shard: ShardId) -> Kernel {
        let options = self.database();
        let database = tokio::task::spawn_blocking(move || Database::connect(&options));
        let database = database.await.unwrap().unwrap();
        let log = PostgresLog::unleased(&database, shard);
        Kernel::open(RecordStore::new_on(log))
            .provider("scripted", ScriptedProvider)
            .pids(pids_of(shard))
            .build()
            .await
            .unwrap()
    }

    /// The texts of the conversation of a process, read from the database by this program, which
    /// takes the shard for that: no node may be there any more.
    pub(crate) async fn conversation(&self, pid: Pid) -> Vec<String> {
        let kernel = self.open_shard(shard_of(pid)).await;
        let conversation = kernel
            .conversation(pid, dormouse::Position::Now)
            .await
            .unwrap();
        let texts = conversation
            .messages
            .iter()
            .map(|message| message.text().to_string());
        let texts = texts.collect();
        kernel.shutdown().await.unwrap();
        texts
    }
}

impl Drop for World {
    /// Shows what the nodes said if the test fails.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for node in ["a", "b", "c"] {
            let log = self.folder.path().join(format!("{node}.log"));
            if let Ok(log) = std::fs::read_to_string(log) {
                eprintln!("{node}: {log}");
            }
        }
    }
}

/// A program with a script.
pub(crate) fn files(program: &str, script: &str) -> ProgramFiles {
    let file = |name: &str, text: &str| (name.to_owned(), Bytes::from(text.to_owned()));
    let files = [file("program.toml", program), file("script.toml", script)];
    ProgramFiles::new("program.toml", files.into())
}

/// A session that answers each input with it, and the number of its turn.
pub(crate) fn echo() -> ProgramFiles {
    let program = "[model]\nname = 'echo'\nprovider = 'scripted'\nscript = 'script.toml'\n";
    files(
        program,
        "[[turn]]\ntext = 'turn {{ turn }}: {{ prompt }}'\n",
    )
}

/// A client.
pub(crate) fn http() -> reqwest::Client {
    let local = reqwest::Url::parse("http://127.0.0.1").unwrap();
    dormouse_http::client(&local, None)
        .unwrap()
        .build()
        .unwrap()
}

/// The status of a page of a node; 0 if it does not answer.
pub(crate) async fn get(address: &str, page: &str) -> u16 {
    let response = http().get(format!("http://{address}/{page}")).send().await;
    response.map_or(0, |response| response.status().as_u16())
}

/// A node as a program. Killed when it is dropped.
pub(crate) struct NodeProgram(Child);

impl NodeProgram {
    pub(crate) fn signal(&self, signal: &str) {
        let status = Command::new("kill")
            .args([&format!("-{signal}"), &self.0.id().to_string()])
            .status();
        assert!(status.unwrap().success());
    }

    /// Waits for the end of the program, and returns whether it ended well.
    pub(crate) async fn ended_well(mut self) -> bool {
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.success();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
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

/// Waits until something holds.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < Duration::from_secs(90), "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits for something that must come.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    let limit = tokio::time::timeout(Duration::from_secs(120), future);
    limit.await.expect("it takes less than two minutes")
}
