//! How far a tool has come, for a client that asked to be told. Many clients wait no longer than a
//! minute for an answer, and longer where they hear of progress.

use std::future::Future;
use std::pin::pin;

use dormouse_proto::tool::Progress;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RoleServer};
use tokio::sync::watch;

/// Awaits `calling`, and tells the client meanwhile what `told` says: the latest, where the client
/// takes its time.
pub(crate) async fn passed_on<T>(
    calling: impl Future<Output = T>,
    mut told: watch::Receiver<Option<Progress>>,
    peer: &Peer<RoleServer>,
    token: &ProgressToken,
) -> T {
    let mut calling = pin!(calling);
    let mut last = f64::NEG_INFINITY;
    loop {
        tokio::select! {
            // First, so that a tool that never stops to tell does not hold up its answer.
            biased;
            answer = &mut calling => {
                pass_on(&mut told, &mut last, peer, token).await;
                return answer;
            }
            Ok(()) = told.changed() => pass_on(&mut told, &mut last, peer, token).await,
        }
    }
}

/// Tells the client the latest, where it is more than what it was told `last`.
async fn pass_on(
    told: &mut watch::Receiver<Option<Progress>>,
    last: &mut f64,
    peer: &Peer<RoleServer>,
    token: &ProgressToken,
) {
    let latest = told.borrow_and_update().clone();
    // It grows, says the protocol; not every tool knows.
    let Some(progress) = latest.filter(|progress| progress.done > *last) else {
        return;
    };
    *last = progress.done;
    // A client that has gone is told nothing; its call is cancelled.
    let _ = peer.notify_progress(notification(token, &progress)).await;
}

fn notification(token: &ProgressToken, progress: &Progress) -> ProgressNotificationParam {
    let mut notification = ProgressNotificationParam::new(token.clone(), progress.done);
    notification.total = progress.total;
    notification.message = Some(progress.message.to_string()).filter(|message| !message.is_empty());
    notification
}
