//! The routes, each with the scope that it needs.
//!
//! Routes are collected by scope, and one layer for each scope guards them. A route that is added to
//! none of the three does not exist.

mod act;
mod at;
mod descriptors;
mod journal;
mod listing;
mod overview;
mod processes;
mod start;

use std::time::Duration;

use aide::axum::ApiRouter;
use aide::openapi::OpenApi;
use axum::Router;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::StatusCode;

use crate::api::ControlApi;
use crate::error::ApiError;
use crate::events;
use crate::openapi;
use crate::scope::Scope;

/// An answer has to be ready within this time. Streams of events have no limit, and neither have
/// calls of tools, which name their own.
const ANSWER_DEADLINE: Duration = Duration::from_secs(60);

/// All routes, and the document that describes them.
pub(crate) fn router() -> (Router<ControlApi>, OpenApi) {
    aide::generate::reset_context();
    let mut document = openapi::head();
    let look = listing::routes()
        .merge(processes::routes())
        .merge(journal::routes())
        .merge(descriptors::routes())
        .merge(overview::routes());
    let router = ApiRouter::new()
        .merge(guarded(look, Scope::Look))
        .merge(guarded(act::speaking_routes(), Scope::Speak))
        .merge(guarded(
            act::control_routes().merge(start::routes()),
            Scope::Control,
        ))
        .layer(axum::middleware::from_fn(with_deadline))
        // Its stream has no end, and its own bounds.
        .merge(guarded(events::routes(), Scope::Look));
    let router = ApiRouter::new()
        .nest("/v1", router)
        .fallback(unknown_route)
        .finish_api(&mut document);
    (router.method_not_allowed_fallback(wrong_method), document)
}

/// Refuses requests whose scope does not suffice, and says in the document which one does.
fn guarded(routes: ApiRouter<ControlApi>, scope: Scope) -> ApiRouter<ControlApi> {
    let documented = routes.with_path_items(|path| {
        path.security_requirement_scopes(openapi::SECURITY_SCHEME, [scope.word()])
    });
    documented.route_layer(axum::middleware::from_fn(
        move |request: Request, next: Next| require_scope(scope, request, next),
    ))
}

async fn require_scope(scope: Scope, request: Request, next: Next) -> Response {
    match request.extensions().get::<Scope>() {
        None => ApiError::unauthorized("send a token: Authorization: Bearer …").into_response(),
        Some(held) if *held < scope => ApiError::forbidden(format!(
            "this needs a token to {scope}, and yours is one to {held}"
        ))
        .into_response(),
        Some(_) if scope > Scope::Look && request.extensions().get::<AtRest>().is_some() => {
            ApiError::read_only().into_response()
        }
        Some(_) => next.run(request).await,
    }
}

/// Among the extensions of each request to a kernel whose store is open for reading only.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtRest;

async fn with_deadline(request: Request, next: Next) -> Response {
    match tokio::time::timeout(ANSWER_DEADLINE, next.run(request)).await {
        Ok(response) => response,
        Err(_) => ApiError::too_slow(
            StatusCode::GATEWAY_TIMEOUT,
            format!(
                "the answer was not ready within {} seconds: ask for less, such as a smaller page",
                ANSWER_DEADLINE.as_secs()
            ),
        )
        .into_response(),
    }
}

async fn unknown_route() -> ApiError {
    ApiError::not_found("there is no such route: GET /v1/openapi.json lists all")
}

async fn wrong_method() -> ApiError {
    ApiError::wrong_method("the route has no such method: GET /v1/openapi.json lists all")
}
