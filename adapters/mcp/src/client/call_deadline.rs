//! The deadline of a call: it begins anew with each progress that the server reports, and does not
//! run while the server waits for the downstream client (the MCP client that the kernel itself
//! serves). The kernel bounds the whole call (`max_duration` of the server).

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

/// Waits for the answer; `None` if for the time `idle` there was neither an answer nor progress.
/// `progress` changes with each progress, `downstream_requests` is the number of requests of the
/// server that wait for the downstream client.
pub(super) async fn answer_within<T>(
    answer: impl Future<Output = T>,
    mut progress: watch::Receiver<u64>,
    mut downstream_requests: watch::Receiver<usize>,
    idle: Duration,
) -> Option<T> {
    let mut answer = pin!(answer);
    loop {
        let waits_for_client = *downstream_requests.borrow_and_update() > 0;
        tokio::select! {
            biased;
            answer = &mut answer => return Some(answer),
            Ok(()) = progress.changed() => {}
            Ok(()) = downstream_requests.changed() => {}
            () = sleep(idle), if !waits_for_client => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(120);

    #[tokio::test(start_paused = true)]
    async fn progress_postpones_the_deadline() {
        let (reported, progress) = watch::channel(0);
        let (_open, downstream_requests) = watch::channel(0);
        let reports = async {
            for _ in 0..30 {
                sleep(IDLE / 2).await;
                reported.send_modify(|reports| *reports += 1);
            }
            sleep(IDLE / 2).await;
            "done"
        };
        assert_eq!(
            answer_within(reports, progress, downstream_requests, IDLE).await,
            Some("done")
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_runs_out_of_time_unless_it_waits_for_the_client() {
        let (_reported, progress) = watch::channel(0);
        let (open, downstream_requests) = watch::channel(0);
        let begun = tokio::time::Instant::now();
        let never = std::future::pending::<()>();
        let end = answer_within(never, progress.clone(), downstream_requests.clone(), IDLE).await;
        assert_eq!((end, begun.elapsed()), (None, IDLE));
        let asks = async {
            open.send_replace(1);
            sleep(IDLE * 10).await;
            open.send_replace(0);
            sleep(IDLE / 2).await;
            "answered"
        };
        assert_eq!(
            answer_within(asks, progress, downstream_requests, IDLE).await,
            Some("answered")
        );
    }
}
