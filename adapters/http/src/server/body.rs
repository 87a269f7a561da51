//! Reads bodies within bounds of size and time.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

/// The whole body must arrive within this time.
const BODY_DEADLINE: Duration = Duration::from_secs(60);

/// How long a client may pause in the middle of a body.
const BODY_PAUSE: Duration = Duration::from_secs(5);

/// A body was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// It did not come, or not all of it.
    #[error("the body did not arrive in time")]
    TooLate,
    /// It is too long.
    #[error("a body has at most {max_bytes} bytes")]
    TooLarge {
        /// The most bytes that it may have.
        max_bytes: usize,
    },
    /// The connection broke, or what came is no body.
    #[error("the body cannot be read")]
    Unreadable,
}

/// Reads a whole body of at most `max_bytes`. One that is announced to be longer is refused before
/// anything of it is read.
///
/// # Errors
/// [`BodyError`].
pub async fn read_body<B>(body: B, max_bytes: usize) -> Result<Bytes, BodyError>
where
    B: Body + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let too_large = BodyError::TooLarge { max_bytes };
    if body.size_hint().lower() > max_bytes as u64 {
        return Err(too_large);
    }
    let mut body = Limited::new(body, max_bytes);
    let reading = async {
        let mut bytes = BytesMut::new();
        while let Some(frame) = tokio::time::timeout(BODY_PAUSE, body.frame())
            .await
            .map_err(|_| BodyError::TooLate)?
        {
            let frame = frame.map_err(|error| match error.is::<LengthLimitError>() {
                true => too_large,
                false => BodyError::Unreadable,
            })?;
            if let Ok(data) = frame.into_data() {
                bytes.extend_from_slice(&bytes_of(data));
            }
        }
        Ok(bytes.freeze())
    };
    tokio::time::timeout(BODY_DEADLINE, reading)
        .await
        .unwrap_or(Err(BodyError::TooLate))
}

fn bytes_of(mut data: impl bytes::Buf) -> Bytes {
    data.copy_to_bytes(data.remaining())
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;

    #[tokio::test]
    async fn a_body_has_a_largest_length() {
        let read = async |length: usize| {
            let body = Full::new(Bytes::from(vec![1; length]));
            read_body(body, 10).await.map(|bytes| bytes.len())
        };
        assert_eq!(read(10).await, Ok(10));
        assert_eq!(read(11).await, Err(BodyError::TooLarge { max_bytes: 10 }));
        assert_eq!(read(0).await, Ok(0));
    }
}
