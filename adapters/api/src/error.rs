//! Errors as answers: a status, a word for programs, and a sentence for people.

use aide::OperationOutput;
use aide::generate::GenContext;
use aide::openapi::{Operation, Response as ApiResponse, StatusCode as ApiStatus};
use axum::Json;
use axum::response::{IntoResponse, Response};
use dormouse_actors::ports::StoreError;
use dormouse_actors::{
    KernelError, LoadError, NameError, NotFound, ProcessError, ServerQuestionError, StoreFailure,
};
use dormouse_content::Unreadable;
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The body of every answer that is an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorBody {
    /// What went wrong.
    pub error: ErrorDetail,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorDetail {
    /// A word for programs: `not_found`, `invalid`, `unauthorized`, `forbidden`, `conflict`,
    /// `read_only`, `busy`, `too_large`, `too_slow`, `gone`, `unreadable`, `unavailable` or
    /// `internal`.
    pub kind: String,
    /// A sentence for people: what was asked, what is valid, what to try.
    pub message: String,
}

/// An error that is answered to a client.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    kind: &'static str,
    message: String,
}

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            kind,
            message: message.into(),
        }
    }

    /// The request is not valid.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid", message)
    }

    /// What the request names does not exist.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    /// No token, or an unknown one.
    pub(crate) fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
    }

    /// The client may not do this.
    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", message)
    }

    /// The store is open for reading only.
    pub(crate) fn read_only() -> Self {
        let message = "the store is open for reading only, since no kernel runs here: nothing can be \
                       started, sent or decided. Open the store with a kernel (dormouse resume, \
                       dormouse run), and ask that one";
        Self::new(StatusCode::CONFLICT, "read_only", message)
    }

    /// The body or what it holds is too large.
    pub(crate) fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
    }

    /// The request or its answer takes too long.
    pub(crate) fn too_slow(status: StatusCode, message: impl Into<String>) -> Self {
        Self::new(status, "too_slow", message)
    }

    /// Something that existed is no longer kept.
    pub(crate) fn gone(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "gone", message)
    }

    /// A limit is reached; the client may try again.
    pub(crate) fn busy(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message)
    }

    /// The route has no such method.
    pub(crate) fn wrong_method(message: impl Into<String>) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "invalid", message)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = ErrorBody {
            error: ErrorDetail {
                kind: self.kind.to_owned(),
                message: self.message,
            },
        };
        let mut response = (self.status, Json(body)).into_response();
        let headers = response.headers_mut();
        match self.status {
            StatusCode::UNAUTHORIZED => {
                let bearer = http::HeaderValue::from_static("Bearer");
                headers.insert(http::header::WWW_AUTHENTICATE, bearer);
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(
                    http::header::RETRY_AFTER,
                    http::HeaderValue::from_static("5"),
                );
            }
            _ => {}
        }
        response
    }
}

impl OperationOutput for ApiError {
    type Inner = ErrorBody;

    fn operation_response(ctx: &mut GenContext, operation: &mut Operation) -> Option<ApiResponse> {
        Json::<ErrorBody>::operation_response(ctx, operation)
    }

    fn inferred_responses(
        ctx: &mut GenContext,
        operation: &mut Operation,
    ) -> Vec<(Option<ApiStatus>, ApiResponse)> {
        let error = Self::operation_response(ctx, operation);
        error.map(|error| (None, error)).into_iter().collect()
    }
}

impl From<Unreadable> for ApiError {
    fn from(error: Unreadable) -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "unreadable",
            error.to_string(),
        )
    }
}

impl From<KernelError> for ApiError {
    fn from(error: KernelError) -> Self {
        let (status, kind) = classify(&error);
        Self::new(status, kind, error.to_string())
    }
}

fn classify(error: &KernelError) -> (StatusCode, &'static str) {
    let invalid = (StatusCode::BAD_REQUEST, "invalid");
    let not_found = (StatusCode::NOT_FOUND, "not_found");
    let conflict = (StatusCode::CONFLICT, "conflict");
    let unavailable = (StatusCode::SERVICE_UNAVAILABLE, "unavailable");
    match error {
        KernelError::NotFound(NotFound::MayBeLost { .. }) => unreadable(),
        KernelError::NotFound(_) => not_found,
        KernelError::Name(NameError::Taken { .. }) => conflict,
        KernelError::Name(_) | KernelError::Label(_) | KernelError::Start(_) => invalid,
        KernelError::Process(error) => match error {
            ProcessError::Busy { .. } => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
            ProcessError::EmptyInput(_) => invalid,
            _ => conflict,
        },
        KernelError::Store(StoreFailure::Store(error)) => classify_store(error),
        KernelError::Store(StoreFailure::Load(error)) => match &**error {
            LoadError::Store(error) => classify_store(error),
            _ => unreadable(),
        },
        KernelError::Store(StoreFailure::NoStore) => conflict,
        KernelError::Store(StoreFailure::NotDurable(_)) => unavailable,
        KernelError::ServerQuestion(ServerQuestionError::Closed(_)) => not_found,
        KernelError::ServerQuestion(_) | KernelError::Race(_) => invalid,
        KernelError::Model(_) => (StatusCode::BAD_GATEWAY, "unavailable"),
        KernelError::Closed | KernelError::LeaseLost => unavailable,
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
    }
}

fn classify_store(error: &StoreError) -> (StatusCode, &'static str) {
    match error {
        StoreError::UnknownProcess(_)
        | StoreError::UnknownFact { .. }
        | StoreError::UnknownCheckpoint(_)
        | StoreError::UnknownContent(_) => (StatusCode::NOT_FOUND, "not_found"),
        StoreError::DeletedFact { .. } => (StatusCode::GONE, "gone"),
        StoreError::ReadOnly { .. } => (StatusCode::CONFLICT, "read_only"),
        _ => unreadable(),
    }
}

fn unreadable() -> (StatusCode, &'static str) {
    (StatusCode::INTERNAL_SERVER_ERROR, "unreadable")
}
