//! The table of the limits of servers that nodes share. The methods block.

use std::time::Duration;

use dormouse::permits::ModelServer;
use dormouse::ports::StoreError;
use dormouse_postgres::Row;

use crate::tables::{Tables, parameters};

/// What is limited at a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Resource {
    /// Calls at a time.
    Calls,
    /// Tokens that count in a minute.
    Tokens,
}

/// What a node uses of a limit, and wants.
#[derive(Clone, Debug)]
pub(crate) struct ShareReport {
    pub(crate) server: ModelServer,
    pub(crate) resource: Resource,
    /// What is used, or may be used until there is an answer.
    pub(crate) keep: u64,
    /// What is used and what waiting calls need, in all.
    pub(crate) demand: u64,
    /// What the next call needs.
    pub(crate) need: u64,
    /// The limit of all nodes together, if the node knows one.
    pub(crate) total: Option<u64>,
    /// How long the next call has waited, if one waits.
    pub(crate) waited: Option<Duration>,
}

/// The answer to a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GrantedShare {
    /// What counts as used by the node until its next report.
    pub(crate) share: u64,
    /// What the node is to come to.
    pub(crate) target: u64,
    /// The limit of all nodes together.
    pub(crate) total: u64,
}

impl Tables {
    /// Reports what a node uses, and changes its shares. The answers are in the order of the
    /// reports; `None` for a report that came after a later one. One round trip.
    pub(crate) fn share_permits(
        &self,
        node: &str,
        sequence: u64,
        lease: Duration,
        reports: &[ShareReport],
    ) -> Result<Vec<Option<GrantedShare>>, StoreError> {
        // Limits are locked in one order, whatever the order of the reports.
        let mut order: Vec<usize> = (0..reports.len()).collect();
        order.sort_by_key(|at| (&reports[*at].server, reports[*at].resource));
        let sorted = || order.iter().map(|at| &reports[*at]);
        let sql = "SELECT r.place, s.out_share, s.out_target, s.out_total
            FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[])
                AS r (place, server, resource, keep, demand, need, total, waited_ms),
            LATERAL {schema}.share_permits(r.server, r.resource, $9, $10, r.keep, r.demand, r.need, r.total, r.waited_ms, $11) AS s";
        let amounts = |of: &dyn Fn(&ShareReport) -> u64| {
            sorted().map(|it| to_sql(of(it))).collect::<Vec<_>>()
        };
        let waited = |report: &ShareReport| report.waited.map(|waited| waited.as_millis() as i64);
        let parameters = parameters![
            order.iter().map(|at| *at as i64).collect::<Vec<_>>(),
            sorted().map(|it| key(&it.server)).collect::<Vec<_>>(),
            sorted().map(|it| it.resource.word()).collect::<Vec<_>>(),
            amounts(&|report| report.keep),
            amounts(&|report| report.demand),
            amounts(&|report| report.need),
            sorted().map(|it| it.total.map(to_sql)).collect::<Vec<_>>(),
            sorted().map(waited).collect::<Vec<_>>(),
            node.to_owned(),
            sequence as i64,
            lease.as_millis() as i64,
        ];
        let doing = "share the limits of servers";
        let rows = self.0.query_within(lease / 4, doing, sql, parameters)?;
        let mut answers = vec![None; reports.len()];
        let amount = |row: &Row, column| row.get::<_, i64>(column).unsigned_abs();
        for row in &rows {
            if let Some(answer) = answers.get_mut(row.get::<_, i64>(0) as usize) {
                *answer = Some(GrantedShare {
                    share: amount(row, 1),
                    target: amount(row, 2),
                    total: amount(row, 3),
                });
            }
        }
        Ok(answers)
    }

    /// Gives back all shares of a node whose calls have ended.
    pub(crate) fn return_permits(&self, node: &str) -> Result<(), StoreError> {
        let sql = "DELETE FROM {schema}.permit_share WHERE node = $1";
        let parameters = parameters![node.to_owned()];
        self.0
            .query("return the shares of a node", sql, parameters)
            .map(drop)
    }
}

impl Resource {
    fn word(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Tokens => "tokens",
        }
    }
}

/// A server, as one text.
fn key(server: &ModelServer) -> String {
    let ModelServer {
        provider,
        base_url,
        api_key_env,
    } = server;
    let [base_url, api_key_env] = [base_url, api_key_env].map(|it| it.as_deref().unwrap_or(""));
    format!("{provider} {api_key_env} {base_url}")
}

fn to_sql(amount: u64) -> i64 {
    amount.min(1 << 48) as i64
}
