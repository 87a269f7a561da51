//! Processor time, by `/proc`: of nodes, of the database server with all its processes, and of this
//! program.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio_postgres::Client;

/// Linux counts the time of programs in hundredths of a second, for every program that asks.
const TICK: Duration = Duration::from_millis(10);

/// The fields of `/proc/PID/stat` that are used here.
struct Stat {
    parent: u32,
    own: Duration,
    /// That of children that have ended.
    ended_children: Duration,
}

fn stat(id: &str) -> Result<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat"))?;
    // The name of the program, in parentheses, may have spaces.
    let (_, fields) = text.rsplit_once(')').context("a line of /proc")?;
    let fields: Vec<i64> = fields
        .split_whitespace()
        .skip(1)
        .map_while(|field| field.parse().ok())
        .collect();
    let field = |number: usize| fields.get(number - 4).copied().unwrap_or_default();
    let ticks = |number| TICK * field(number) as u32;
    Ok(Stat {
        parent: field(4) as u32,
        own: ticks(14) + ticks(15),
        ended_children: ticks(16) + ticks(17),
    })
}

/// The processor time of programs so far.
pub(crate) fn of_programs(ids: impl IntoIterator<Item = u32>) -> Result<Duration> {
    let each = ids.into_iter().map(|id| Ok(stat(&id.to_string())?.own));
    each.sum()
}

/// The database server, by its first process.
pub(crate) struct ServerCpu {
    postmaster: u32,
}

impl ServerCpu {
    pub(crate) async fn new(client: &Client) -> Result<Self> {
        let row = client.query_one("SELECT pg_backend_pid()", &[]).await?;
        let own: i32 = row.get(0);
        let postmaster = stat(&own.to_string())?.parent;
        Ok(Self { postmaster })
    }

    /// The processor time of all its processes so far.
    pub(crate) fn so_far(&self) -> Result<Duration> {
        let first = stat(&self.postmaster.to_string())?;
        let mut sum = first.own + first.ended_children;
        for entry in std::fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let name = name.to_string_lossy();
            if !name.starts_with(|first: char| first.is_ascii_digit()) {
                continue;
            }
            // A program may have ended meanwhile.
            if let Ok(stat) = stat(&name)
                && stat.parent == self.postmaster
            {
                sum += stat.own;
            }
        }
        Ok(sum)
    }
}
