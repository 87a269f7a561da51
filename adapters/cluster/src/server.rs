//! The HTTP server of a node: calls of other nodes and of programs, and how the node is.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use dormouse::id::Pid;
use futures_util::StreamExt;
use tokio::net::TcpListener;

use crate::call::{CallError, Reply};
use crate::caller::{AddressedCall, CALL_PATH, MAX_CALL_BYTES};
use crate::events::{EVENTS_PATH, local_events};
use crate::execute::execute;
use crate::health::metrics;
use crate::node::Node;
use crate::shard::shard_of;
use dormouse_postgres::ShardId;

/// How long a call may take, its body included. Longer than callers wait.
const TIMEOUT: Duration = Duration::from_secs(150);

/// Serves until the node has left.
pub(crate) async fn serve(listener: TcpListener, node: Arc<Node>) {
    let authorized = Router::new()
        .route(CALL_PATH, post(call))
        .route(&format!("{EVENTS_PATH}/{{pid}}"), get(events))
        .layer(DefaultBodyLimit::max(MAX_CALL_BYTES))
        .layer(from_fn_with_state(node.clone(), check_token));
    let router = Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .merge(authorized)
        .with_state(node.clone());
    // Connections that are still open when the node has left end with the program.
    tokio::select! {
        served = axum::serve(listener, router) => {
            if let Err(error) = served {
                tracing::error!(%error, "the node no longer answers others");
            }
        }
        () = node.left() => {}
    }
}

/// Refuses a request without the token of the cluster, before its body is read.
async fn check_token(State(node): State<Arc<Node>>, request: Request, next: Next) -> Response {
    let given = request.headers().get(header::AUTHORIZATION);
    let given = given.and_then(|value| value.to_str().ok());
    let given = given.and_then(|value| value.strip_prefix("Bearer "));
    if !is_equal(given.unwrap_or_default(), &node.caller.token) {
        node.counters.refused_calls.fetch_add(1, Ordering::Relaxed);
        let why = "the token is not that of this cluster, which is in its database\n";
        return (StatusCode::UNAUTHORIZED, why).into_response();
    }
    match tokio::time::timeout(TIMEOUT, next.run(request)).await {
        Ok(response) => response,
        Err(_) => StatusCode::REQUEST_TIMEOUT.into_response(),
    }
}

/// Compares two secrets by their hashes, in a time that does not depend on where they differ.
fn is_equal(given: &str, token: &str) -> bool {
    !token.is_empty() && blake3::hash(given.as_bytes()) == blake3::hash(token.as_bytes())
}

async fn call(
    State(node): State<Arc<Node>>,
    Json(AddressedCall { shard, call }): Json<AddressedCall>,
) -> Json<Result<Reply, CallError>> {
    node.counters.calls.fetch_add(1, Ordering::Relaxed);
    let shard = ShardId(shard);
    let caller = &node.caller;
    Json(match caller.held.get(shard) {
        Some(held) => execute(caller, shard, &held, call).await,
        None => Err(CallError::NotOwner(format!(
            "{shard} is not at node {}",
            node.options.name
        ))),
    })
}

/// The events of a process, a line of JSON each.
async fn events(State(node): State<Arc<Node>>, Path(pid): Path<u64>) -> Response {
    let pid = Pid(pid);
    let held = node.caller.held.get(shard_of(pid));
    let moved = held.as_ref().and_then(|held| held.moved.get(&pid));
    if let Some(to) = moved {
        return (StatusCode::NOT_FOUND, Json(CallError::Moved { to: *to })).into_response();
    }
    let Some(kernel) = held.and_then(|held| held.kernel) else {
        return StatusCode::MISDIRECTED_REQUEST.into_response();
    };
    let events = match local_events(&kernel, pid).await {
        Ok(events) => events,
        Err(error) => return (StatusCode::NOT_FOUND, Json(error)).into_response(),
    };
    let lines = events.map(|event| {
        let mut line = serde_json::to_vec(&event).unwrap_or_default();
        line.push(b'\n');
        Ok::<_, Infallible>(Bytes::from(line))
    });
    let body = Body::from_stream(lines);
    ([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response()
}

async fn ready(State(node): State<Arc<Node>>) -> Response {
    match node.is_ready() {
        true => "ready\n".into_response(),
        false => {
            let why = format!("not ready\n{}", node.failures());
            (StatusCode::SERVICE_UNAVAILABLE, why).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_equal;

    #[test]
    fn only_the_token_is_equal_to_it_and_none_is_never() {
        assert!(is_equal("abc", "abc"));
        for (given, token) in [("abd", "abc"), ("", "abc"), ("abc ", "abc"), ("", "")] {
            assert!(!is_equal(given, token), "{given:?} {token:?}");
        }
    }
}
