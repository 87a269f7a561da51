//! A claim of a shard, and one UPDATE with the same guard, in turns.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dormouse_postgres::{ClaimMode, ShardId};

use crate::report::{Durations, print_head, print_row};
use crate::schema::Schema;

const CLAIMS: usize = 500;
const LEASE: Duration = Duration::from_secs(60);

pub(crate) async fn measure() -> Result<()> {
    print_head();
    let schema = Schema::new()?;
    let database = schema.database(2).await?;
    let client = schema.client().await?;
    // As the claim: on disk before it is answered.
    client
        .batch_execute(
            "SET synchronous_commit = on;
            CREATE TABLE plain_shard (LIKE shard INCLUDING ALL) WITH (fillfactor = 10);
            INSERT INTO plain_shard (id) VALUES (0)",
        )
        .await?;
    let sql = "UPDATE plain_shard SET epoch = epoch + 1 WHERE id = 0 AND epoch = $1";
    let update = client.prepare(sql).await?;
    let (mut claims, mut renewals) = (Durations::default(), Durations::default());
    let mut alone = Durations::default();
    for epoch in 0..CLAIMS as i64 {
        let database = database.clone();
        let claim = move || -> Result<(Duration, Duration)> {
            let begun = Instant::now();
            let claim = database.claim_shard(ShardId(0), "node", LEASE, ClaimMode::Force)?;
            let claimed = begun.elapsed();
            let claim = claim.context("a claim by force succeeds")?;
            let begun = Instant::now();
            let lost = database.renew(&[claim])?;
            ensure!(lost.is_empty(), "the claim is lost");
            Ok((claimed, begun.elapsed()))
        };
        let (claimed, renewed) = tokio::task::spawn_blocking(claim).await??;
        claims.push(claimed);
        renewals.push(renewed);
        let begun = Instant::now();
        let changed = client.execute(&update, &[&epoch]).await?;
        alone.push(begun.elapsed());
        ensure!(changed == 1, "the guard holds");
    }
    print_row(
        "claim of a shard (2 round trips)",
        &claims,
        "one guarded UPDATE",
        &alone,
    );
    print_row(
        "renewal of its lease",
        &renewals,
        "one guarded UPDATE",
        &alone,
    );
    Ok(())
}
