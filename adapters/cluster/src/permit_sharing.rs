//! How a node shares the limits of servers of models with other nodes.
//!
//! A node uses no more than its share of a limit, and all shares together are at most the limit.
//! Each second, and when a call waits, the node reports what it uses and wants, and gets a share in
//! proportion (`migrations/3.sql`). A share that is to get smaller is left in force at the database
//! until what is used fits the smaller one. Without the database the node goes on with its shares
//! until their lease ends; then no call begins.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dormouse::permits::{ModelServer, PermitShare, PermitTicket, ServerDemand, TokenShare};

use crate::database::on_database;
use crate::node::{Node, Phase};
use crate::permit_tables::{GrantedShare, Resource, ShareReport};

/// How often shares are reported at least, and at most.
const EVERY: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(250);

/// The share of a server at which no call may begin yet.
const NOTHING: TokenShare = TokenShare { tokens: 0, of: 0 };

/// Which limits nodes share.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedLimits {
    /// Calls at a time, at each server.
    pub(crate) calls: Option<usize>,
    /// The same for single providers.
    pub(crate) calls_of: BTreeMap<String, usize>,
    /// Whether `tokens_per_minute` of programs holds for all nodes.
    pub(crate) has_tokens: bool,
}

impl SharedLimits {
    /// Whether anything is shared.
    pub(crate) fn is_any(&self) -> bool {
        self.calls.is_some() || !self.calls_of.is_empty() || self.has_tokens
    }

    /// The most calls to a provider, if that is shared.
    fn calls_to(&self, provider: &str) -> Option<usize> {
        self.calls_of.get(provider).copied().or(self.calls)
    }

    /// What a server begins with. A server whose calls are not shared gets its share with the first
    /// answer.
    pub(crate) fn first_share(&self) -> PermitShare {
        if !self.is_any() {
            return PermitShare::default();
        }
        PermitShare {
            calls: Some(0),
            tokens: self.has_tokens.then_some(NOTHING),
        }
    }
}

/// What the node knows of a server from one round to the next.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// The call that came next, and since when.
    next: Option<PermitTicket>,
    since: Instant,
    /// The limit of tokens that was seen last.
    per_minute: Option<u64>,
}

impl Node {
    /// Shares the limits of servers until the node leaves.
    pub(crate) async fn share_permits(self: Arc<Self>) {
        let mut sequence = 0;
        let mut servers: BTreeMap<ModelServer, Seen> = BTreeMap::new();
        let mut until = Instant::now();
        while self.phase() != Phase::Left {
            let demands = self.permits.demands();
            let reports = self.reports_of(&demands, &mut servers);
            let reporting = self.reporting.lock().await;
            if self.phase() == Phase::Left {
                return;
            }
            let (begun, lease) = (Instant::now(), self.options.lease);
            sequence += 1;
            let answers = match reports.is_empty() {
                true => Some(Vec::new()),
                false => self.send_reports(sequence, reports.clone()).await,
            };
            drop(reporting);
            match answers {
                Some(answers) => {
                    until = begun + lease;
                    self.set_shares(&demands, &reports, &answers);
                }
                None if Instant::now() >= until => self.set_shares(&demands, &[], &[]),
                None => {}
            }
            tokio::time::sleep(PAUSE).await;
            tokio::select! {
                () = tokio::time::sleep(EVERY - PAUSE) => {}
                () = self.permits.waiting() => {}
            }
        }
    }

    /// What is to be reported of each server. The calls come before the tokens.
    fn reports_of(
        &self,
        demands: &[ServerDemand],
        servers: &mut BTreeMap<ModelServer, Seen>,
    ) -> Vec<ShareReport> {
        let limits = &self.options.shared_limits;
        let mut reports = Vec::new();
        for of_server in demands {
            let (demand, share) = (&of_server.demand, &of_server.share);
            let new = Seen {
                next: None,
                since: Instant::now(),
                per_minute: None,
            };
            let seen = servers.entry(of_server.server.clone()).or_insert(new);
            if seen.next != demand.next {
                (seen.next, seen.since) = (demand.next, Instant::now());
            }
            seen.per_minute = demand.per_minute.or(seen.per_minute);
            let waited = demand.next.map(|_| seen.since.elapsed());
            if let Some(calls) = limits.calls_to(&of_server.server.provider) {
                reports.push(ShareReport {
                    server: of_server.server.clone(),
                    resource: Resource::Calls,
                    keep: demand.granted.max(share.calls.unwrap_or(0)) as u64,
                    demand: (demand.granted + demand.waiting) as u64,
                    need: 1,
                    total: Some(calls.max(1) as u64),
                    waited,
                });
            }
            if limits.has_tokens {
                let total = seen.per_minute;
                let shared = share.tokens.unwrap_or(NOTHING);
                reports.push(ShareReport {
                    server: of_server.server.clone(),
                    resource: Resource::Tokens,
                    keep: demand.tokens.max(shared.tokens),
                    demand: demand.tokens.saturating_add(demand.waiting_tokens),
                    need: total.map_or(0, |total| demand.next_tokens.min(total)),
                    total,
                    waited: waited.filter(|_| demand.next_tokens > 0),
                });
            }
        }
        reports
    }

    /// `None` if the database does not answer soon.
    async fn send_reports(
        &self,
        sequence: u64,
        reports: Vec<ShareReport>,
    ) -> Option<Vec<Option<GrantedShare>>> {
        let (tables, node, lease) = (
            self.caller.tables.clone(),
            self.id.clone(),
            self.options.lease,
        );
        let sharing = on_database(move || tables.share_permits(&node, sequence, lease, &reports));
        match tokio::time::timeout(lease / 3, sharing).await {
            Ok(Ok(answers)) => Some(answers),
            Ok(Err(error)) => {
                tracing::warn!(%error, "the limits of servers were not shared");
                None
            }
            Err(_) => None,
        }
    }

    /// Sets the shares of all servers by the answers. A server without an answer begins no call.
    fn set_shares(
        &self,
        demands: &[ServerDemand],
        reports: &[ShareReport],
        answers: &[Option<GrantedShare>],
    ) {
        let limits = &self.options.shared_limits;
        for of_server in demands {
            let server = &of_server.server;
            let answer = |resource| {
                let mut both = reports.iter().zip(answers);
                let found = both.find(|(it, _)| it.server == *server && it.resource == resource);
                found.and_then(|(_, answer)| *answer)
            };
            let in_force = |granted: GrantedShare| granted.share.min(granted.target);
            let calls = limits.calls_to(&server.provider).map(|_| {
                let calls = answer(Resource::Calls).map_or(0, in_force);
                usize::try_from(calls).unwrap_or(usize::MAX)
            });
            let tokens = limits.has_tokens.then(|| {
                answer(Resource::Tokens).map_or(NOTHING, |granted| TokenShare {
                    tokens: in_force(granted),
                    of: granted.total,
                })
            });
            self.permits
                .set_share(server, PermitShare { calls, tokens });
        }
    }

    /// Gives back all shares. No call runs any more.
    pub(crate) async fn return_permits(&self) {
        if !self.options.shared_limits.is_any() {
            return;
        }
        let (tables, node) = (self.caller.tables.clone(), self.id.clone());
        if let Err(error) = on_database(move || tables.return_permits(&node)).await {
            tracing::warn!(%error, "the shares of this node end by themselves");
        }
    }
}
