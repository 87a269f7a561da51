//! Forwards the progress of a tool to a client that asked for it. Many clients wait at most a
//! minute for an answer, and longer if they receive progress.

use std::future::Future;
use std::pin::pin;

use dormouse_proto::tool::Progress;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RoleServer};
use tokio::sync::watch;

/// Awaits `call`, and meanwhile notifies the client of each value of `progress`. A client that
/// reads slowly gets only the latest value.
pub(crate) async fn forward_progress<T>(
    call: impl Future<Output = T>,
    mut progress: watch::Receiver<Option<Progress>>,
    peer: &Peer<RoleServer>,
    token: &ProgressToken,
) -> T {
    let mut call = pin!(call);
    let mut last = f64::NEG_INFINITY;
    loop {
        tokio::select! {
            // The answer is polled first, so that a tool which reports progress without end cannot
            // delay it.
            biased;
            answer = &mut call => {
                notify_latest(&mut progress, &mut last, peer, token).await;
                return answer;
            }
            Ok(()) = progress.changed() => notify_latest(&mut progress, &mut last, peer, token).await,
        }
    }
}

/// Notifies the client of the latest progress, if it is greater than the `last` one it was sent.
async fn notify_latest(
    progress: &mut watch::Receiver<Option<Progress>>,
    last: &mut f64,
    peer: &Peer<RoleServer>,
    token: &ProgressToken,
) {
    let latest = progress.borrow_and_update().clone();
    // The protocol requires that progress increases. Not every tool reports it so.
    let Some(progress) = latest.filter(|progress| progress.done > *last) else {
        return;
    };
    *last = progress.done;
    // If the client is gone, the notification is dropped, and its call is cancelled elsewhere.
    let _ = peer.notify_progress(notification(token, &progress)).await;
}

fn notification(token: &ProgressToken, progress: &Progress) -> ProgressNotificationParam {
    let mut notification = ProgressNotificationParam::new(token.clone(), progress.done);
    notification.total = progress.total;
    notification.message = Some(progress.message.to_string()).filter(|message| !message.is_empty());
    notification
}
