//! A schema of its own for each measurement, on the server that `.ci/cluster-figures` starts.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dormouse::Kernel;
use dormouse::mail::Reach;
use dormouse_cluster::{Cluster, ClusterOptions};
use dormouse_postgres::{Database, DatabaseOptions};
use tokio_postgres::{Client, NoTls};

/// A schema. All programs speak to the server without TLS, which `pgbench` does not have here.
pub(crate) struct Schema {
    pub(crate) url: String,
    pub(crate) name: String,
}

impl Schema {
    pub(crate) fn new() -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let urls = std::env::var("DORMOUSE_POSTGRES_URLS");
        let urls = urls.context("no server: run .ci/cluster-figures")?;
        let url = urls.split(',').next_back().context("no server")?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            url: format!("{url}?sslmode=disable"),
            name: format!("figures_{}_{number}", std::process::id()),
        })
    }

    pub(crate) fn options(&self) -> Result<DatabaseOptions> {
        Ok(DatabaseOptions::new(&self.url)?.schema(&self.name)?)
    }

    /// The database with so many shards.
    pub(crate) async fn database(&self, shards: u32) -> Result<Database> {
        let options = self.options()?;
        let connect = move || -> Result<Database> {
            let database = Database::connect(&options)?;
            database.create_shards(shards)?;
            Ok(database)
        };
        tokio::task::spawn_blocking(connect).await?
    }

    /// A connection without anything of ours.
    pub(crate) async fn client(&self) -> Result<Client> {
        let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await?;
        tokio::spawn(connection);
        let path = format!("SET search_path = {}, public", self.name);
        client.batch_execute(&path).await?;
        Ok(client)
    }

    /// A node in this program, with the models that `kernel` adds.
    pub(crate) async fn join(
        &self,
        options: ClusterOptions,
        kernel: impl Fn() -> dormouse::KernelBuilder + Send + Sync + 'static,
    ) -> Result<Cluster> {
        let builder = move |_| kernel().reach(Reach::Everyone);
        Ok(Cluster::join(options, builder).await?)
    }

    /// A program that is no node.
    pub(crate) async fn connect(&self) -> Result<Cluster> {
        Ok(Cluster::connect(self.options()?).await?)
    }

    /// The name of the node that has the lease of each shard.
    pub(crate) async fn owners(&self, client: &Client) -> Result<BTreeMap<u32, String>> {
        let sql =
            "SELECT shard, split_part(node, '#', 1) FROM lease WHERE until > clock_timestamp()";
        let rows = client.query(sql, &[]).await?;
        let owner = |row: &tokio_postgres::Row| (row.get::<_, i32>(0) as u32, row.get(1));
        Ok(rows.iter().map(owner).collect())
    }

    /// Waits until exactly these nodes live, and hold all `shards` shards as placement wants it.
    pub(crate) async fn settled(
        &self,
        cluster: &Cluster,
        client: &Client,
        shards: u32,
        names: &[&str],
    ) -> Result<()> {
        for _ in 0..6000 {
            let mut live = cluster.nodes().await?;
            live.sort_by(|a, b| a.name.cmp(&b.name));
            let mut is_settled = live
                .iter()
                .map(|node| &*node.name)
                .eq(names.iter().copied());
            for node in &live {
                is_settled &= is_ready(&node.address).await;
            }
            if is_settled && self.owners(client).await?.len() == shards as usize {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        ensure!(
            false,
            "the nodes {names:?} do not hold all shards after two minutes"
        );
        Ok(())
    }
}

/// A kernel without models of its own.
pub(crate) fn plain_kernel() -> dormouse::KernelBuilder {
    Kernel::builder().provider("scripted", dormouse::models::ScriptedProvider)
}

/// Whether a node says that it holds what it should.
pub(crate) async fn is_ready(address: &str) -> bool {
    let Ok(local) = reqwest::Url::parse("http://127.0.0.1") else {
        return false;
    };
    let client = dormouse_http::client(&local, None).map(|client| client.build());
    let Ok(Ok(client)) = client else {
        return false;
    };
    let page = client.get(format!("http://{address}/readyz")).send().await;
    page.is_ok_and(|page| page.status().is_success())
}
