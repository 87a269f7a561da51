//! Faults, chosen by the seed, several of them at the same time: at most one of each node and of
//! the database.
//!
//! What is checked (`check.rs`) holds whatever happens. Some kinds aim at one claim:
//!
//! * `kill-hibernating-node` (`run.rs`): of ten thousand sessions that hibernate none is lost, and those
//!   that are written to wake up elsewhere.
//! * `pause-node` and `end-leases-early`: two nodes that both believe to own a shard. The database takes
//!   the commits of one of them.
//! * `pause-after-commit`: a node stands still between a commit and its effect. The successor does not
//!   make the effect, and names it as unknown; the node makes it once or not at all.
//! * `wrong-clock`: a node whose clock is wrong by an hour. Leases end by the clock of the database.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::history::History;
use crate::link::{Greeting, Link, Way};
use crate::node::{LEASE, Node};
use crate::observer::until_commit;
use crate::postgres::{Postgres, query};
use crate::random::Random;

/// The kinds of faults, as the report names them, each with how often it is chosen.
const KINDS: &[(&str, usize)] = &[
    ("kill-node", 10),
    ("pause-node", 10),
    ("pause-node-often", 8),
    ("pause-after-commit", 8),
    ("end-leases-early", 6),
    ("kill-draining-node", 4),
    ("wrong-clock", 4),
    ("cut-database-link", 10),
    ("slow-database-link", 6),
    ("reset-database-link", 6),
    ("kill-database", 4),
    ("promote-standby", 4),
    ("pause-standby", 3),
    ("slow-objects", 4),
    ("refuse-objects", 4),
    ("lose-objects", 4),
];

/// The time between two faults.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(8));

/// By how many seconds a clock is wrong.
const CLOCK_OFFSETS: [i32; 2] = [-3600, 3600];

/// What faults happen to.
#[derive(Clone)]
pub(crate) struct Victims {
    pub(crate) nodes: Vec<Arc<Mutex<Node>>>,
    pub(crate) postgres: Arc<Mutex<Postgres>>,
    pub(crate) schema: String,
    /// The links of the nodes and of the clients to the database.
    pub(crate) database_links: Vec<Link>,
    pub(crate) history: History,
    /// Whether clocks can be changed.
    pub(crate) has_faketime: bool,
    /// Only faults of these kinds, if there are any.
    pub(crate) only: Vec<String>,
}

impl Victims {
    /// Makes faults until the end. Then everything works again, and all nodes run.
    pub(crate) async fn suffer(&self, end: Instant, mut random: Random) -> Result<()> {
        let mut under_way = JoinSet::new();
        while Instant::now() < end {
            let kind = self.choose(&mut random);
            let (victims, random_of_fault) = (self.clone(), random.split());
            under_way.spawn(async move { victims.fail(kind, random_of_fault).await });
            tokio::time::sleep(random.between(PAUSE.0, PAUSE.1)).await;
            while let Some(ended) = under_way.try_join_next() {
                ended??;
            }
            self.restart_ended()?;
        }
        while let Some(ended) = under_way.join_next().await {
            ended??;
        }
        self.heal().await
    }

    /// Starts the nodes again that ended by themselves, as a service manager does: one that finds
    /// no database when it starts gives up after a minute.
    fn restart_ended(&self) -> Result<()> {
        for node in &self.nodes {
            if let Ok(mut node) = node.try_lock()
                && !node.is_running()
            {
                self.log("node-ended-by-itself", node.name);
                node.start(0)?;
            }
        }
        Ok(())
    }

    fn choose(&self, random: &mut Random) -> &'static str {
        let is_chosen =
            |kind: &str| self.only.is_empty() || self.only.iter().any(|only| only == kind);
        let kinds: Vec<_> = KINDS.iter().filter(|(kind, _)| is_chosen(kind)).collect();
        let total = kinds.iter().map(|(_, weight)| weight).sum::<usize>().max(1);
        let mut number = random.below(total);
        for (kind, weight) in kinds {
            if number < *weight {
                return kind;
            }
            number -= weight;
        }
        "none"
    }

    async fn fail(&self, kind: &'static str, mut random: Random) -> Result<()> {
        match kind {
            "kill-database" | "promote-standby" | "pause-standby" => {
                self.fail_database(kind, random).await
            }
            _ => {
                // A node that has a fault already is left alone.
                match random.pick(&self.nodes).try_lock() {
                    Ok(mut node) => self.fail_node(kind, &mut node, random).await,
                    Err(_) => Ok(()),
                }
            }
        }
    }

    fn log(&self, kind: &'static str, description: &str) {
        self.history.fault(kind, &format!("{kind}: {description}"));
    }

    async fn fail_node(
        &self,
        kind: &'static str,
        node: &mut Node,
        mut random: Random,
    ) -> Result<()> {
        let name = node.name;
        match kind {
            "kill-node" => {
                let down = random.between(Duration::ZERO, 2 * LEASE);
                self.log(kind, &format!("{name}, started again after {down:?}"));
                node.kill();
                tokio::time::sleep(down).await;
                node.start(0)?;
            }
            "pause-node" => {
                let pause = around_lease(&mut random);
                self.log(kind, &format!("{name}, for {pause:?}"));
                pause_node(node, pause).await?;
            }
            "pause-node-often" => {
                let times = 10 + random.below(30);
                self.log(
                    kind,
                    &format!("{name}, {times} times for less than half a second"),
                );
                for _ in 0..times {
                    pause_node(node, random.millis(400)).await?;
                    tokio::time::sleep(random.millis(400)).await;
                }
            }
            "pause-after-commit" => self.pause_after_commit(kind, node, random).await?,
            "end-leases-early" => self.end_leases_early(kind, name).await,
            "kill-draining-node" => {
                let after = random.millis(1500);
                self.log(
                    kind,
                    &format!("{name}, killed {after:?} after it began to drain"),
                );
                node.signal("TERM")?;
                tokio::time::sleep(after).await;
                node.kill();
                tokio::time::sleep(random.between(Duration::ZERO, LEASE)).await;
                node.start(0)?;
            }
            "wrong-clock" if self.has_faketime => {
                let offset = *random.pick(&CLOCK_OFFSETS);
                self.log(
                    kind,
                    &format!("{name} is killed, and runs with its clock off by {offset} s"),
                );
                node.kill();
                node.start(offset)?;
            }
            "wrong-clock" => {}
            "slow-objects" | "refuse-objects" | "lose-objects" => {
                self.fail_objects(kind, node, random).await;
            }
            _ => self.fail_link(kind, node, random).await,
        }
        Ok(())
    }

    /// Stops a node between a commit and what it does because of it: the commit is made, and its
    /// answer is on its way or has just arrived.
    async fn pause_after_commit(
        &self,
        kind: &'static str,
        node: &mut Node,
        mut random: Random,
    ) -> Result<()> {
        let Some(port) = self.database_port() else {
            return Ok(());
        };
        let (delay, pause) = (random.millis(8), around_lease(&mut random));
        node.database.change(|state| state.down = Way::Slow(delay));
        let committed = until_commit(port, &self.schema, node.name).await;
        if committed.is_ok() {
            node.signal("STOP")?;
        }
        node.database.heal();
        // The database was killed meanwhile, or the node has no shard.
        if committed.is_err() {
            return Ok(());
        }
        let name = node.name;
        let description = format!("{name}, its answer {delay:?} late, for {pause:?}");
        self.log(kind, &description);
        tokio::time::sleep(pause).await;
        node.signal("CONT")
    }

    /// Ends the leases of a node for all but the node itself, which runs on: until it looks, two
    /// nodes own its shards, as each believes.
    async fn end_leases_early(&self, kind: &'static str, name: &str) {
        let Some(port) = self.database_port() else {
            return;
        };
        let schema = &self.schema;
        let sql = format!(
            "DELETE FROM {schema}.node WHERE name = '{name}';
            UPDATE {schema}.lease SET until = clock_timestamp() WHERE node LIKE '{name}#%'"
        );
        // The database may be killed meanwhile.
        if query(port, &sql).await.is_ok() {
            self.log(kind, name);
        }
    }

    /// The port of the database, unless that has a fault.
    fn database_port(&self) -> Option<u16> {
        Some(self.postgres.try_lock().ok()?.port())
    }

    async fn fail_link(&self, kind: &'static str, node: &Node, mut random: Random) {
        let (name, link) = (node.name, &node.database);
        if kind == "reset-database-link" {
            let times = 1 + random.below(8);
            self.log(kind, &format!("{name}, all connections, {times} times"));
            for _ in 0..times {
                link.reset();
                tokio::time::sleep(random.millis(500)).await;
            }
            return;
        }
        let time = random.between(Duration::from_millis(500), 2 * LEASE);
        let way = match kind {
            "slow-database-link" => Way::Slow(random.millis(700)),
            _ => Way::Cut,
        };
        let (is_up, is_down) = *random.pick(&[(true, true), (true, false), (false, true)]);
        let direction = match (is_up, is_down) {
            (true, true) => "both ways",
            (true, false) => "to the server",
            _ => "from the server",
        };
        // Half of the cuts end with new connections, as if the machine in between restarted.
        let then_reset = random.chance(50);
        self.log(
            kind,
            &format!("{name}, {way:?}, {direction}, for {time:?}, reset: {then_reset}"),
        );
        link.change(|state| {
            state.up = if is_up { way } else { Way::Open };
            state.down = if is_down { way } else { Way::Open };
        });
        tokio::time::sleep(time).await;
        if then_reset {
            link.reset();
        }
        link.heal();
    }

    async fn fail_objects(&self, kind: &'static str, node: &Node, mut random: Random) {
        let Some(link) = &node.objects else {
            return;
        };
        let name = node.name;
        let time = random.between(Duration::from_secs(1), Duration::from_secs(20));
        let (up, down, greeting) = match kind {
            "slow-objects" => (Way::Slow(random.millis(1500)), Way::Open, Greeting::Connect),
            "refuse-objects" => {
                let greeting = *random.pick(&[Greeting::Close, Greeting::Overloaded]);
                (Way::Open, Way::Open, greeting)
            }
            // The put is lost, or it is done and its answer is lost.
            _ => match random.chance(50) {
                true => (Way::Cut, Way::Open, Greeting::Connect),
                false => (Way::Open, Way::Cut, Greeting::Connect),
            },
        };
        self.log(
            kind,
            &format!("{name}, {up:?}, {down:?}, {greeting:?}, for {time:?}"),
        );
        link.change(|state| (state.up, state.down, state.greeting) = (up, down, greeting));
        if kind != "slow-objects" {
            link.reset();
        }
        tokio::time::sleep(time).await;
        if kind == "lose-objects" {
            // What was cut is lost for good.
            link.reset();
        }
        link.heal();
    }

    async fn fail_database(&self, kind: &'static str, mut random: Random) -> Result<()> {
        let Ok(mut postgres) = self.postgres.try_lock() else {
            return Ok(());
        };
        match kind {
            "kill-database" => {
                let down = random.millis(4000);
                self.log(kind, &format!("started again after {down:?}"));
                postgres.kill_primary(down).await
            }
            "pause-standby" => {
                let pause = random.between(Duration::from_secs(1), LEASE);
                self.log(kind, &format!("for {pause:?}"));
                postgres.pause_standby(pause).await
            }
            _ => {
                if !postgres.can_promote().await? {
                    return Ok(());
                }
                self.log(
                    kind,
                    "the primary is killed, and its standby takes its place",
                );
                postgres.promote().await?;
                for link in &self.database_links {
                    link.lead_to(postgres.port());
                }
                tokio::time::sleep(random.millis(5000)).await;
                postgres.attach_standby().await
            }
        }
    }

    /// Ends all faults.
    async fn heal(&self) -> Result<()> {
        for node in &self.nodes {
            let mut node = node.lock().await;
            node.database.heal();
            if let Some(objects) = &node.objects {
                objects.heal();
            }
            node.signal("CONT")?;
            node.start(0)?;
        }
        Ok(())
    }
}

/// Many pauses end right when the lease does.
fn around_lease(random: &mut Random) -> Duration {
    let second = Duration::from_secs(1);
    match random.chance(40) {
        true => random.between(LEASE - second, LEASE + 2 * second),
        false => random.between(2 * LEASE, 3 * LEASE),
    }
}

async fn pause_node(node: &mut Node, pause: Duration) -> Result<()> {
    node.signal("STOP")?;
    tokio::time::sleep(pause).await;
    node.signal("CONT")
}
