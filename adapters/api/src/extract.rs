//! The parts of a request, with errors that say what is valid.
//!
//! Each wraps the extractor of axum of the same name, and answers its rejections as [`ApiError`]s.

use aide::OperationInput;
use aide::generate::GenContext;
use aide::openapi::Operation;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Request};
use http::StatusCode;
use http::request::Parts;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::error::ApiError;

/// The parameters in the path.
pub(crate) struct Path<T>(pub(crate) T);

/// The parameters in the query.
pub(crate) struct Query<T>(pub(crate) T);

/// The body, as JSON.
pub(crate) struct Json<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let extracted = axum::extract::Path::from_request_parts(parts, state).await;
        let extracted = extracted.map_err(|error: PathRejection| {
            ApiError::invalid(format!("the path is not valid: {}", error.body_text()))
        });
        extracted.map(|axum::extract::Path(value)| Self(value))
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let extracted = axum::extract::Query::from_request_parts(parts, state).await;
        let extracted = extracted.map_err(|error: QueryRejection| {
            ApiError::invalid(format!("the query is not valid: {}", error.body_text()))
        });
        extracted.map(|axum::extract::Query(value)| Self(value))
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let extracted = axum::Json::from_request(request, state).await;
        let extracted = extracted.map_err(|error: JsonRejection| match error.status() {
            StatusCode::PAYLOAD_TOO_LARGE => ApiError::too_large(error.body_text()),
            StatusCode::UNSUPPORTED_MEDIA_TYPE => ApiError::invalid(
                "the body has to be JSON: send the header Content-Type: application/json",
            ),
            _ => ApiError::invalid(format!("the body is not valid: {}", error.body_text())),
        });
        extracted.map(|axum::Json(value)| Self(value))
    }
}

impl<T: JsonSchema> OperationInput for Path<T> {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        axum::extract::Path::<T>::operation_input(ctx, operation);
    }
}

impl<T: JsonSchema> OperationInput for Query<T> {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        axum::extract::Query::<T>::operation_input(ctx, operation);
    }
}

impl<T: JsonSchema> OperationInput for Json<T> {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        axum::Json::<T>::operation_input(ctx, operation);
    }
}
