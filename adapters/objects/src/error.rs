//! Errors of object stores as errors of the store port: what failed for which key, why, and what to
//! try.

use std::io;

use dormouse_actors::ports::StoreError;
use object_store::Error;

use crate::cause::{Cause, Reason};

/// The error for options that cannot be used.
pub(crate) fn invalid_options(why: String) -> StoreError {
    StoreError::Io {
        doing: "open the object store".to_owned(),
        source: io::Error::new(io::ErrorKind::InvalidInput, why),
    }
}

/// The error for a request that failed: `doing` says what to which key and where.
pub(crate) fn request_failed(doing: String, error: &Error) -> StoreError {
    let cause = Cause::of(error);
    let (kind, advice) = advice(error, &cause);
    StoreError::Io {
        doing,
        source: io::Error::new(kind, format!("{cause}. {advice}")),
    }
}

/// The error for something that the store contains and that nobody wrote so.
pub(crate) fn damaged(what: String) -> StoreError {
    StoreError::Damaged { what }
}

/// Whether the same request may succeed later.
pub(crate) fn is_transient(error: &Error) -> bool {
    match error {
        Error::Generic { .. } | Error::JoinError { .. } => match Cause::of(error).reason {
            Reason::Answer { status, .. } => matches!(status, 0 | 408 | 429 | 500..),
            Reason::NoCredentials => false,
            _ => true,
        },
        _ => false,
    }
}

/// Whether the store has no object of this key. A bucket that is absent is another error.
pub(crate) fn is_missing_object(error: &Error) -> bool {
    let is_bucket = || match Cause::of(error).reason {
        Reason::Answer { code, .. } => ["NoSuchBucket", "ContainerNotFound"].contains(&&*code),
        _ => false,
    };
    matches!(error, Error::NotFound { .. }) && !is_bucket()
}

/// Whether the requested range begins after the end of the object.
pub(crate) fn is_outside_of_object(error: &Error) -> bool {
    match Cause::of(error).reason {
        Reason::Answer { status, .. } => status == 416,
        // Of a local folder.
        Reason::Other(text) => text.contains("Requested range was invalid"),
        _ => false,
    }
}

fn advice(error: &Error, cause: &Cause) -> (io::ErrorKind, &'static str) {
    match (error, &cause.reason) {
        (Error::NotSupported { .. } | Error::NotImplemented { .. }, _) => (
            io::ErrorKind::Unsupported,
            "Use a store that offers conditional writes (If-None-Match)",
        ),
        (_, Reason::Answer { status: 404, .. }) => (
            io::ErrorKind::NotFound,
            "Create the bucket, or correct its name and the endpoint",
        ),
        (
            _,
            Reason::NoCredentials
            | Reason::Answer {
                status: 401 | 403, ..
            },
        ) => (
            io::ErrorKind::PermissionDenied,
            "Check the credentials in the environment or in the files of the cloud's tools, their \
             permission to get, put, list and delete objects here, and the clock",
        ),
        (_, Reason::System(kind @ io::ErrorKind::StorageFull)) => (*kind, "Free space on the disk"),
        (_, Reason::System(kind @ io::ErrorKind::PermissionDenied)) => {
            (*kind, "Check the rights of the folder")
        }
        (_, reason) => (
            reason.kind(),
            "Try again; if that fails, check the network, the endpoint and the region",
        ),
    }
}
