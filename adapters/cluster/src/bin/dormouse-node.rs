//! `dormouse-node`: runs a node, and drains one.
//!
//! Without permission flags its processes can reach nothing outside of the kernel. Programs,
//! permissions and secrets are the node's own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use dormouse::host::{LocalHost, Permissions};
use dormouse::mail::Reach;
use dormouse::models::{ScriptedProvider, prices};
use dormouse::ports::Provider;
use dormouse::{Kernel, KernelBuilder};
use dormouse_cluster::{Cluster, ClusterOptions};
use dormouse_objects::{ObjectContents, ObjectOptions};
use dormouse_postgres::DatabaseOptions;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::{EnvFilter, fmt};

/// Contents of at least this length go to the object store.
const LARGE_BYTES: usize = 64 << 10;

/// How long a process rests in memory before it hibernates.
const RESTS_IN_MEMORY: Duration = Duration::from_secs(60);

/// Runs processes of a cluster.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(flatten)]
    store: Store,
    #[command(subcommand)]
    command: Command,
}

/// The database of the cluster.
#[derive(Args)]
struct Store {
    /// The database: postgres://USER@HOST/DATABASE, without a password. PGPASSWORD, or the file
    /// that DORMOUSE_DATABASE_PASSWORD_FILE names, has it.
    #[arg(long, value_name = "URL")]
    store: String,
    /// The schema of the tables.
    #[arg(long, value_name = "NAME", default_value = "dormouse")]
    schema: String,
}

#[derive(Subcommand)]
enum Command {
    /// Runs a node, until SIGTERM or SIGINT drains it.
    Run(Box<Run>),
    /// Asks a node to give up its shards and to leave, and waits until it has.
    Drain {
        /// The name of the node.
        node: String,
    },
    /// Lists the live nodes: name, address, labels.
    Nodes,
}

#[derive(Args)]
struct Run {
    /// The name of the node. It stays over restarts, and no other node has it.
    #[arg(long)]
    name: String,
    /// Labels that programs can need: gpu, repo:main.
    #[arg(long, value_name = "LABEL,…", value_delimiter = ',')]
    label: Vec<String>,
    /// How many shards the database has at least.
    #[arg(long, default_value_t = 64)]
    shards: u32,
    /// How many seconds the node may be silent before others take its shards.
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    lease: f64,
    /// Where other nodes reach this one. What travels is not encrypted: other addresses than those
    /// of this machine are for networks that only nodes and their clients can read.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The host and port by which others reach the node, if they are not those of --listen.
    #[arg(long, value_name = "HOST:PORT")]
    advertise: Option<String>,
    /// How many seconds calls in flight may take before a shard goes to another node.
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    drain_deadline: f64,
    /// Where large contents are kept, the same for all nodes and used by no other cluster:
    /// s3://BUCKET/PREFIX, file:///FOLDER.
    #[arg(long, value_name = "URL")]
    objects: Option<String>,
    /// Which processes can write to each other: relatives, tree, or everyone, in all shards.
    #[arg(long, default_value = "tree", value_parser = reach)]
    reach: Reach,
    /// How many model calls run at once, at each provider.
    #[arg(long, default_value_t = 16)]
    model_calls: usize,
    #[command(flatten)]
    allow: Allow,
}

/// What programs may do to this machine. Without these flags: nothing.
#[derive(Args)]
struct Allow {
    /// Permit running these programs.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    allow_run: Vec<String>,
    /// Permit these programs to run unconfined.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    allow_unconfined: Vec<String>,
    /// Pass these environment variables to the programs that ask for them.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    allow_env: Vec<String>,
    /// Permit connecting to these machines.
    #[arg(long, value_name = "MACHINE,…", value_delimiter = ',')]
    allow_net: Vec<String>,
    /// Permit reading files below these folders.
    #[arg(long, value_name = "DIR,…", value_delimiter = ',')]
    allow_read: Vec<PathBuf>,
    /// Permit writing files below these folders.
    #[arg(long, value_name = "DIR,…", value_delimiter = ',')]
    allow_write: Vec<PathBuf>,
}

fn main() -> ExitCode {
    // First of all: the host starts this same program as the guard of each command.
    dormouse::host::guard::enter();
    let filter = EnvFilter::try_from_env("DORMOUSE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .init();
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Runtime::new().context("the runtime cannot be started");
    let result = runtime.and_then(|runtime| {
        let result = runtime.block_on(execute(arguments));
        // A node that was told to end while it waited for its database waits no longer.
        runtime.shutdown_background();
        result
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn execute(arguments: Arguments) -> Result<()> {
    let Store { store, schema } = &arguments.store;
    let database = DatabaseOptions::without_password(store)?.schema(schema)?;
    match arguments.command {
        Command::Run(run) => run_node(database, *run).await,
        Command::Drain { node } => {
            let cluster = Cluster::connect(database).await?;
            cluster.drain_node(&node).await?;
            while cluster.nodes().await?.iter().any(|live| live.name == node) {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Ok(())
        }
        Command::Nodes => {
            let cluster = Cluster::connect(database).await?;
            let lines = cluster.nodes().await?.into_iter().map(|node| {
                let labels = node.labels.join(",");
                let state = if node.is_draining { "draining" } else { "live" };
                format!("{}\t{}\t{labels}\t{state}\n", node.name, node.address)
            });
            let mut out = std::io::stdout();
            std::io::Write::write_all(&mut out, lines.collect::<String>().as_bytes())?;
            Ok(())
        }
    }
}

async fn run_node(database: DatabaseOptions, run: Run) -> Result<()> {
    let seconds = |seconds| Duration::try_from_secs_f64(seconds).context("a number of seconds");
    let mut options = ClusterOptions::new(database, run.name)
        .labels(run.label)
        .shards(run.shards)
        .lease(seconds(run.lease)?)
        .listen(run.listen)
        .drain_deadline(seconds(run.drain_deadline)?)
        .model_calls(run.model_calls);
    if let Some(address) = run.advertise {
        options = options.advertised(address);
    }
    if let Some(url) = run.objects {
        let objects = move || ObjectContents::open(ObjectOptions::new(url));
        let objects = tokio::task::spawn_blocking(objects).await??;
        options = options.large_contents(Arc::new(objects), LARGE_BYTES);
    }
    let directory = std::env::current_dir().context("no working directory")?;
    let permissions = run.allow.permissions();
    // The permissions are tried before the node joins.
    LocalHost::new(permissions.clone(), &directory)
        .context("the permissions cannot be granted. A folder of --allow-read must exist")?;
    let (mut terminate, mut interrupt) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    );
    let reach = run.reach;
    let joining = Cluster::join(options, move |_shard| {
        let builder = providers().into_iter().fold(
            Kernel::builder()
                .hibernate_after(RESTS_IN_MEMORY)
                .reach(reach)
                .prices(prices()),
            |builder: KernelBuilder, (name, provider)| builder.provider(name, provider),
        );
        match LocalHost::new(permissions.clone(), &directory) {
            Ok(host) => builder.host(host),
            Err(error) => {
                tracing::error!(%error, "the permissions cannot be granted any more");
                builder
            }
        }
    });
    let cluster = tokio::select! {
        joined = joining => joined?,
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    tracing::info!(address = cluster.address(), "the node has joined");
    tokio::select! {
        _ = terminate.recv() => tracing::info!("SIGTERM: the node gives up its shards"),
        _ = interrupt.recv() => tracing::info!("SIGINT: the node gives up its shards"),
        () = cluster.left() => {}
    }
    cluster.drain().await;
    Ok(())
}

fn reach(word: &str) -> Result<Reach, String> {
    match word {
        "relatives" => Ok(Reach::Relatives),
        "tree" => Ok(Reach::Tree),
        "everyone" => Ok(Reach::Everyone),
        other => Err(format!("{other:?} is none of relatives, tree and everyone")),
    }
}

/// The models that programs can name.
fn providers() -> Vec<(&'static str, Arc<dyn Provider>)> {
    #[cfg(feature = "models")]
    use dormouse::models::{
        ServerProvider, anthropic::Messages, chat::Completions, gemini::GenerateContent,
        responses::Responses,
    };
    vec![
        ("scripted", Arc::new(ScriptedProvider)),
        #[cfg(feature = "models")]
        ("anthropic", Arc::new(ServerProvider::<Messages>::default())),
        #[cfg(feature = "models")]
        ("openai", Arc::new(ServerProvider::<Responses>::default())),
        #[cfg(feature = "models")]
        (
            "openai-chat",
            Arc::new(ServerProvider::<Completions>::default()),
        ),
        #[cfg(feature = "models")]
        (
            "gemini",
            Arc::new(ServerProvider::<GenerateContent>::default()),
        ),
    ]
}

impl Allow {
    fn permissions(&self) -> Permissions {
        let mut permissions = Permissions::none();
        for name in &self.allow_run {
            permissions = permissions.allow_run(name);
        }
        for name in &self.allow_unconfined {
            permissions = permissions.allow_unconfined(name);
        }
        for name in &self.allow_env {
            permissions = permissions.allow_env(name);
        }
        for machine in &self.allow_net {
            permissions = permissions.allow_net(machine);
        }
        for folder in &self.allow_read {
            permissions = permissions.allow_read(folder);
        }
        for folder in &self.allow_write {
            permissions = permissions.allow_write(folder);
        }
        permissions
    }
}
