//! `dormouse node`: runs a node of a cluster.
//!
//! Without permission flags its processes can reach nothing outside of the kernel. Programs,
//! permissions, models and secrets are the node's own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use dormouse::mail::Reach;
use dormouse::mcp::McpClient;
use dormouse_cluster::{Cluster, ClusterOptions};
use tokio::signal::unix::{SignalKind, signal};

use super::database::{DatabaseUrl, LARGE_BYTES, open_objects};
use crate::failure::Failure;
use crate::kernel_setup::{KernelSetup, with_logins};
use crate::models::Models;
use crate::permissions::Permissions;
use crate::store_key::{Key, store_secret};

/// How long a process rests in memory before it hibernates.
const RESTS_IN_MEMORY: Duration = Duration::from_secs(60);

/// `dormouse node`
#[derive(Debug, Args)]
pub(crate) struct Node {
    #[command(flatten)]
    database: DatabaseUrl,
    /// How many connections to the database the node has at most.
    #[arg(long, value_name = "N", default_value_t = 8)]
    connections: usize,
    #[command(flatten)]
    key: Key,
    /// The name of the node. It stays over restarts, and no other node has it.
    #[arg(long)]
    name: String,
    /// Labels that programs can need: gpu, repo:main.
    #[arg(long, value_name = "LABEL,…", value_delimiter = ',')]
    label: Vec<String>,
    /// How many shards the database has at least. Without this flag it keeps those that it has, and
    /// a new one gets 64.
    #[arg(long, value_name = "N")]
    shards: Option<u32>,
    /// How many seconds the node may be silent before others take its shards.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = parse_seconds)]
    lease: Duration,
    /// Where other nodes reach this one. What travels is not encrypted: other addresses than those
    /// of this machine are for networks that only nodes and their clients can read.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The host and port by which others reach the node, if they are not those of --listen.
    #[arg(long, value_name = "HOST:PORT")]
    advertise: Option<String>,
    /// How many seconds calls in flight may take before a shard goes to another node.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = parse_seconds)]
    drain_deadline: Duration,
    /// Where large contents are kept, the same for all nodes and used by no other cluster:
    /// s3://BUCKET/PREFIX, file:///FOLDER.
    /// Without this flag, DORMOUSE_OBJECTS may say it.
    #[arg(long, value_name = "URL")]
    objects: Option<String>,
    /// Which processes can write to each other: relatives, tree, or everyone, in all shards.
    #[arg(long, default_value = "tree", value_parser = parse_reach)]
    reach: Reach,
    #[command(flatten)]
    limits: ModelLimits,
    /// A TOML file with [prices], as in a program, for models that the program itself does not
    /// price. It takes precedence over the built-in table.
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
    #[command(flatten)]
    permissions: Permissions,
}

/// How many model calls run at once.
#[derive(Debug, Args)]
struct ModelLimits {
    /// How many model calls of this node run at once, at each provider.
    #[arg(long, value_name = "N", default_value_t = 16)]
    model_calls: usize,
    /// How many model calls of all nodes together run at once, at each provider, in place of
    /// --model-calls. Give all nodes the same number: of different ones the smallest holds.
    #[arg(long, value_name = "N", conflicts_with = "model_calls")]
    shared_model_calls: Option<usize>,
    /// As --shared-model-calls, for single providers, such as anthropic=20. Those that are not
    /// named keep the number of --shared-model-calls or --model-calls.
    #[arg(long, value_name = "PROVIDER=N,…", value_delimiter = ',', value_parser = parse_provider_calls)]
    shared_provider_calls: Vec<(String, usize)>,
    /// The tokens_per_minute of programs hold for the calls of all nodes together, and not for
    /// those of each node.
    #[arg(long)]
    shared_tokens: bool,
}

impl ModelLimits {
    fn apply_to(self, options: ClusterOptions) -> ClusterOptions {
        let mut options = options.model_calls(self.model_calls);
        if let Some(calls) = self.shared_model_calls {
            options = options.shared_model_calls(calls);
        }
        for (provider, calls) in self.shared_provider_calls {
            options = options.shared_provider_calls(provider, calls);
        }
        match self.shared_tokens {
            true => options.shared_tokens(),
            false => options,
        }
    }
}

/// Runs a node until a signal, or `dormouse drain`, has drained it.
pub(super) async fn node(args: Node) -> Result<ExitCode, Failure> {
    let cannot_listen = |error| Failure::Run(format!("signals cannot be received: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(cannot_listen)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot_listen)?;
    let models = Models {
        prices: args.prices,
        ..Models::default()
    };
    // One set of models and permissions for all shards, which is tried before the node joins.
    let kernel = KernelSetup::new(None, &args.key)
        .permissions(&args.permissions)
        .models(&models)
        .builder()?
        .hibernate_after(RESTS_IN_MEMORY)
        .reach(args.reach);
    let database = args.database.options()?.max_connections(args.connections);
    let mut options = ClusterOptions::new(database, args.name)
        .labels(args.label)
        .lease(args.lease)
        .listen(args.listen)
        .drain_deadline(args.drain_deadline);
    options = args.limits.apply_to(options);
    if let Some(shards) = args.shards {
        options = options.shards(shards);
    }
    if let Some(address) = args.advertise {
        options = options.advertised(address);
    }
    if let Some(objects) = open_objects(args.objects).await? {
        options = options.large_contents(objects, LARGE_BYTES);
    }
    if let Some(secret) = store_secret(&args.key)? {
        options = options.store(move |store| store.key(secret.clone()));
    }
    let cluster = Cluster::join(options, move |_shard| {
        kernel
            .clone()
            .tool_servers(with_logins(McpClient::default()))
    });
    let cluster = tokio::select! {
        cluster = cluster => cluster?,
        _ = terminate.recv() => end_before_joining(),
        _ = interrupt.recv() => end_before_joining(),
    };
    tracing::info!(address = cluster.address(), "the node has joined");
    tokio::select! {
        _ = terminate.recv() => tracing::info!("SIGTERM: the node gives up its shards"),
        _ = interrupt.recv() => tracing::info!("SIGINT: the node gives up its shards"),
        () = cluster.left() => {}
    }
    cluster.drain().await;
    Ok(ExitCode::SUCCESS)
}

/// Ends the program of a node that waits for its database, and so has nothing to give up. A return
/// would wait for the thread that asks the database.
fn end_before_joining() -> ! {
    tracing::info!("the node ends before it has joined");
    std::process::exit(0)
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok();
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.ok_or_else(|| format!("{text:?} is no number of seconds, such as 10 or 0.5"))
}

fn parse_reach(word: &str) -> Result<Reach, String> {
    match word {
        "relatives" => Ok(Reach::Relatives),
        "tree" => Ok(Reach::Tree),
        "everyone" => Ok(Reach::Everyone),
        other => Err(format!("{other:?} is none of relatives, tree and everyone")),
    }
}

fn parse_provider_calls(text: &str) -> Result<(String, usize), String> {
    let (provider, calls) = text.split_once('=').unwrap_or_default();
    match calls.parse() {
        Ok(calls) if !provider.is_empty() => Ok((provider.to_owned(), calls)),
        _ => Err(format!(
            "{text:?} names no provider with a number: write it as anthropic=20"
        )),
    }
}
