//! `GET /events`: the stream of events.
//!
//! Facts come from the log and have a position, which is the id of their event: a client that
//! connects again with `Last-Event-ID` gets every fact after that position. All other events are
//! sent once, to those who are connected: parts of texts, progress, what begins and ends.
//!
//! * A client that connects without a position gets what happens from then on. The first event,
//!   `opened`, has the position from which that is.
//! * A client that reads too slowly misses events that are not facts, and is told how many
//!   (`lagged`). The facts that it missed are read from the journals.
//! * Facts that are not kept any more, or cannot be read, are named (`collected`, `unreadable`).

mod follower;
mod position;
mod stall;

use std::convert::Infallible;
use std::time::Duration;

use aide::axum::ApiRouter;
use aide::axum::routing::get_with;
use aide::openapi::{MediaType, Response as ApiResponse, SchemaObject};
use axum::Extension;
use axum::extract::State;
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, stream};
use http::HeaderMap;
use schemars::JsonSchema;
use serde::Deserialize;

use self::follower::{Follower, Wanted};
pub use self::position::{InvalidPosition, LogPosition};
use self::stall::StallWatch;
use crate::api::ControlApi;
use crate::error::ApiError;
use crate::extract::Query;
use crate::serve::ConnectionEnd;
use crate::view::EventView;

/// A comment is sent when there was no event for this long, so that both sides notice a broken
/// connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The route of the stream.
pub(crate) fn routes() -> ApiRouter<ControlApi> {
    ApiRouter::new().api_route(
        "/events",
        get_with(events, |operation| {
            operation
                .id("getEvents")
                .summary("Events, as server-sent events")
                .description(
                    "The data of each event is an `EventView`. The id of a fact is its position in \
                     the log, which the header `Last-Event-ID` (or the parameter `after`) takes: \
                     the stream then begins with every fact after it. Costs a look at each journal \
                     if facts are missing.",
                )
                .response_with::<200, axum::Json<EventView>, _>(|mut response| {
                    as_event_stream(response.inner());
                    response.description("A stream of events.")
                })
        }),
    )
}

/// The schema of the data of events stands under the type of a stream.
fn as_event_stream(response: &mut ApiResponse) {
    let data: Option<SchemaObject> = response
        .content
        .swap_remove("application/json")
        .and_then(|json| json.schema);
    let stream = MediaType {
        schema: data,
        ..MediaType::default()
    };
    response
        .content
        .insert("text/event-stream".to_owned(), stream);
}

/// What is sent.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EventsQuery {
    /// Only events of this process.
    pid: Option<u64>,
    /// Whether parts of texts and of thinking are sent; true by default.
    text: Option<bool>,
    /// The position after which facts are sent first, as the header `Last-Event-ID`, which has
    /// precedence.
    after: Option<String>,
}

async fn events(
    State(api): State<ControlApi>,
    Extension(end): Extension<ConnectionEnd>,
    Query(query): Query<EventsQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let permit = api.stream_permit()?;
    let after = match headers.get("last-event-id") {
        Some(id) => Some(
            id.to_str()
                .map_err(|_| InvalidPosition)
                .and_then(str::parse)
                .map_err(|error| ApiError::invalid(format!("Last-Event-ID: {error}")))?,
        ),
        None => {
            let after = query.after.as_deref().map(str::parse).transpose();
            after.map_err(|error: InvalidPosition| ApiError::invalid(format!("after: {error}")))?
        }
    };
    let wanted = Wanted {
        pid: query.pid,
        texts: query.text != Some(false),
    };
    let follower = Follower::open(api.kernel().clone(), after, wanted).await?;
    let sent = stream::unfold(follower, |mut follower| async move {
        let next = follower.next().await?;
        Some((sse_event(next), follower))
    });
    let watch = StallWatch::start(end);
    let watched = with_watch(sent, watch, permit);
    let sse = Sse::new(watched).keep_alive(KeepAlive::new().interval(KEEP_ALIVE));
    Ok(sse.into_response())
}

fn sse_event((id, view): (Option<LogPosition>, EventView)) -> Result<SseEvent, Infallible> {
    let event = SseEvent::default().event(view.word());
    let event = match id {
        Some(id) => event.id(id.to_string()),
        None => event,
    };
    Ok(event
        .json_data(&view)
        .expect("an event is JSON without line ends"))
}

/// Notes each time that the connection takes something, and keeps the permit as long as the stream.
fn with_watch<T>(
    events: impl Stream<Item = T>,
    watch: StallWatch,
    permit: tokio::sync::OwnedSemaphorePermit,
) -> impl Stream<Item = T> {
    let mut events = Box::pin(events);
    stream::poll_fn(move |context| {
        let _held = &permit;
        watch.note_read();
        events.poll_next_unpin(context)
    })
}
