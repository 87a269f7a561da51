//! Reads event streams of AWS: binary messages, each with its length, headers and checksums.

use std::pin::Pin;

use aws_smithy_eventstream::frame::{DecodedFrame, MessageFrameDecoder};
use aws_smithy_types::event_stream::Message;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use dormouse_proto::model::ModelError;
use futures_util::{Stream, StreamExt, stream};
use serde_json::{Value, json};

use crate::wire::body::BodyStream;
use crate::wire::excerpt::malformed;
use crate::wire::failure::{self, error_chain};

/// What was read of a body and not yet decoded.
struct Frames {
    body_stream: BodyStream,
    buffer: BytesMut,
    decoder: MessageFrameDecoder,
}

/// The data of the events in a body: what the Messages API itself sends as the data of an event. A
/// body that ends within a message ends the stream before that message.
pub(crate) fn messages(
    body_stream: BodyStream,
) -> Pin<Box<dyn Stream<Item = Result<String, ModelError>> + Send>> {
    let frames = Frames {
        body_stream,
        buffer: BytesMut::new(),
        decoder: MessageFrameDecoder::new(),
    };
    let messages = stream::unfold(frames, |mut frames| async {
        let message = frames.next().await?;
        Some((message, frames))
    });
    Box::pin(
        messages.filter_map(async |message| {
            message.and_then(|message| event_data(&message)).transpose()
        }),
    )
}

impl Frames {
    async fn next(&mut self) -> Option<Result<Message, ModelError>> {
        loop {
            match self.decoder.decode_frame(&mut self.buffer) {
                Ok(DecodedFrame::Complete(message)) => return Some(Ok(message)),
                Ok(DecodedFrame::Incomplete) => {}
                Err(error) => {
                    let why = error_chain(&error);
                    return Some(Err(malformed(format!("the stream cannot be read: {why}"))));
                }
            }
            match self.body_stream.next().await? {
                Ok(chunk) => self.buffer.extend_from_slice(&chunk),
                Err(error) => return Some(Err(error.into_model_error())),
            }
        }
    }
}

/// The data of an event; `None` for a message that is not an event of the reply.
///
/// # Errors
/// The failure that the message reports, or the message is not one of this API.
fn event_data(message: &Message) -> Result<Option<String>, ModelError> {
    let header = |name: &str| {
        let mut headers = message.headers().iter();
        let header = headers.find(|header| header.name().as_str() == name)?;
        let value = header.value().as_string().ok()?;
        Some(value.as_str().to_owned())
    };
    match header(":message-type").as_deref() {
        Some("event") if header(":event-type").as_deref() == Some("chunk") => {
            chunk_data(message.payload()).map(Some)
        }
        Some("exception") => {
            let body: Value = serde_json::from_slice(message.payload()).unwrap_or_default();
            let message = &body["message"];
            let kind = header(":exception-type");
            let error = json!({ "type": kind, "message": message });
            Err(failure::from_error_object(&error))
        }
        Some("error") => {
            let (kind, message) = (header(":error-code"), header(":error-message"));
            let error = json!({ "type": kind, "message": message });
            Err(failure::from_error_object(&error))
        }
        _ => Ok(None),
    }
}

/// The text in the payload of a chunk: `{"bytes": "<base64>"}`.
fn chunk_data(payload: &[u8]) -> Result<String, ModelError> {
    let payload: Value = serde_json::from_slice(payload)
        .map_err(|error| malformed(format!("a chunk of the stream is no JSON: {error}")))?;
    let encoded = payload["bytes"]
        .as_str()
        .ok_or_else(|| malformed("a chunk of the stream has no bytes"))?;
    let bytes = STANDARD
        .decode(encoded)
        .map_err(|error| malformed(format!("a chunk of the stream is no base64: {error}")))?;
    String::from_utf8(bytes)
        .map_err(|error| malformed(format!("a chunk of the stream is no text: {error}")))
}
