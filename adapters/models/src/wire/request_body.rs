//! The body of a request: head, messages and tail, which the codec encodes. The messages are pieces
//! that are shared with other requests (`message_cache.rs`). While the body is sent, only a few
//! small pieces at a time are copied.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::SystemTime;

use bytes::Bytes;
use dormouse_proto::model::{ModelError, Request};
use dormouse_proto::program::CacheTtl;
use http_body::{Frame, SizeHint};

use super::codec::{Codec, MessageContext, Purpose};
use super::media;
use super::message_cache::{MessageCache, MessageKey};

/// The most forks with a cache breakpoint (a mark up to which the provider is asked to cache) after
/// the part of the conversation that they share: the first forks, from which most processes
/// descend. Providers accept four breakpoints, and two are needed elsewhere
/// (`anthropic/encode.rs`). A fork never gains or loses its breakpoint (FORK-2).
const MAX_FORKS: usize = 2;

/// Small pieces are joined up to this size, since each frame may cost a system call.
const FRAME_BYTES: usize = 64 << 10;

/// The system prompt of a request; `None` if it says nothing: then no field is sent for it.
pub(crate) fn system_prompt(request: &Request) -> Option<&str> {
    Some(&*request.system).filter(|system| !system.trim().is_empty())
}

/// The bytes of a request body that are still to be sent, in pieces.
#[derive(Debug, Default)]
pub struct Body {
    /// The pieces in order. None of them is empty.
    pieces: std::collections::VecDeque<Bytes>,
    bytes: u64,
}

impl Body {
    fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.bytes += piece.len() as u64;
            self.pieces.push_back(piece);
        }
    }

    /// The next frame: a large piece as it is, or several small ones joined.
    fn next_frame(&mut self) -> Option<Bytes> {
        let mut bytes = 0;
        let fitting = self.pieces.iter().take_while(|piece| {
            bytes += piece.len();
            bytes <= FRAME_BYTES
        });
        let sent = match fitting.count() {
            0 | 1 => self.pieces.pop_front()?,
            count => self
                .pieces
                .drain(..count)
                .collect::<Vec<_>>()
                .concat()
                .into(),
        };
        self.bytes -= sent.len() as u64;
        Some(sent)
    }

    /// The remaining pieces, in order.
    pub fn pieces(&self) -> impl Iterator<Item = &Bytes> {
        self.pieces.iter()
    }

    /// The remaining bytes.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.bytes
    }

    /// The whole body as text. Copies it.
    #[must_use]
    pub fn into_text(self) -> String {
        let bytes = Vec::from(self.pieces).concat();
        String::from_utf8(bytes).expect("JSON was written as text")
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.next_frame().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes)
    }
}

/// Encodes a request in the format of `codec`, without a cache. O(n) in the conversation.
///
/// # Errors
/// [`InvalidRequest`](dormouse_proto::model::ModelErrorKind::InvalidRequest) if the
/// request cannot be encoded.
pub fn encode<C: Codec>(
    codec: &C,
    request: &Request,
    purpose: Purpose,
    cache_ttl: Option<CacheTtl>,
) -> Result<String, ModelError> {
    assemble(codec, request, purpose, cache_ttl, &MessageCache::default()).map(Body::into_text)
}

/// Assembles a request from cached messages, and encodes the messages that are not in the cache.
/// Costs a lookup for each message, and O(n) in the bytes of the messages to encode.
pub(super) fn assemble<C: Codec>(
    codec: &C,
    request: &Request,
    purpose: Purpose,
    cache_ttl: Option<CacheTtl>,
    cache: &MessageCache,
) -> Result<Body, ModelError> {
    let cache_ttl = cache_ttl.map(|ttl| ttl.in_request(&request.parameters));
    let head = codec.encode_head(request, purpose, cache_ttl)?;
    let mut is_first = head.ends_with('[');
    let mut body = Body::default();
    body.push(head.into());
    for message in encoded_messages(codec, request, cache_ttl, cache)? {
        // Each encoded message begins with a comma, which is left out of the first message.
        let start = usize::from(is_first && !message.is_empty());
        is_first &= message.is_empty();
        body.push(message.slice(start..));
    }
    let tail = codec.encode_tail(request, purpose, SystemTime::now())?;
    body.push(tail.into());
    Ok(body)
}

fn encoded_messages<C: Codec>(
    codec: &C,
    request: &Request,
    cache_ttl: Option<CacheTtl>,
    cache: &MessageCache,
) -> Result<Vec<Bytes>, ModelError> {
    let keys: Vec<_> = (0..request.messages.len())
        .map(|index| message_key(request, index, cache_ttl))
        .collect();
    let mut newly_encoded = Vec::new();
    let mut encoded_messages = Vec::with_capacity(keys.len());
    for (key, cached) in keys.iter().zip(cache.get_all(&keys)) {
        let encoded = match cached {
            Some(cached) => cached,
            None => {
                let encoded = encode_message(codec, request, key)?;
                newly_encoded.push((*key, encoded.clone()));
                encoded
            }
        };
        encoded_messages.push(encoded);
    }
    cache.insert(newly_encoded);
    Ok(encoded_messages)
}

fn message_key(request: &Request, index: usize, cache_ttl: Option<CacheTtl>) -> MessageKey<'_> {
    let mut forks = request.forked_at.iter().take(MAX_FORKS);
    let follows_shared_part = index > 0 && forks.any(|fork| *fork == index);
    let breakpoint = cache_ttl.filter(|_| follows_shared_part);

    let previous = index
        .checked_sub(1)
        .map(|previous| &request.messages[previous]);
    MessageKey {
        message: &request.messages[index],
        previous,
        breakpoint,
    }
}

fn encode_message<C: Codec>(
    codec: &C,
    request: &Request,
    key: &MessageKey<'_>,
) -> Result<Bytes, ModelError> {
    media::check_present(&key.message.blocks, &request.media)?;
    let previous = key.previous.map(|previous| &**previous);
    let context = MessageContext {
        message: key.message,
        previous,
        media: &request.media,
        breakpoint: key.breakpoint,
    };
    let encoded = codec.encode_message(context)?;
    Ok(if encoded.is_empty() {
        Bytes::new()
    } else {
        format!(",{encoded}").into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_with_an_image_is_encoded_once() {
        let media = dormouse_proto::message::Media {
            fd: dormouse_proto::id::FdId::Fd(1),
            media_type: "image/png".into(),
            side_px: 1,
        };
        let shown = dormouse_proto::message::Block::Media {
            answers: None,
            media,
        };
        let said = crate::testing::message(dormouse_proto::message::Role::User, vec![shown]);
        let mut request = crate::testing::request(vec![said], serde_json::json!({}));
        let image = Bytes::from(vec![7; 100_000]);
        request.media = [(dormouse_proto::id::FdId::Fd(1), image)].into();
        let (codec, cache) = (crate::anthropic::Messages, MessageCache::default());
        let largest = || {
            let purpose = Purpose::Reply(crate::wire::Delivery::Whole);
            let body = assemble(&codec, &request, purpose, None, &cache).unwrap();
            body.pieces.into_iter().max_by_key(Bytes::len).unwrap()
        };
        let (first, second) = (largest(), largest());
        let is_shared = first.as_ptr() == second.as_ptr();
        assert!(is_shared, "the same bytes, not a second encoding");
    }

    #[test]
    fn small_chunks_are_sent_joined_and_large_ones_unchanged() {
        let mut body = Body::default();
        let lens = [
            10,
            20,
            FRAME_BYTES - 30,
            1,
            FRAME_BYTES,
            FRAME_BYTES + 1,
            5,
            0,
            6,
        ];
        let all: Vec<u8> = lens
            .iter()
            .zip(0..)
            .flat_map(|(len, byte)| vec![byte; *len])
            .collect();
        for (len, byte) in lens.into_iter().zip(0..) {
            body.push(vec![byte; len].into());
        }
        let sent: Vec<_> = std::iter::from_fn(|| body.next_frame()).collect();
        let lens: Vec<_> = sent.iter().map(Bytes::len).collect();
        assert_eq!(lens, [FRAME_BYTES, 1, FRAME_BYTES, FRAME_BYTES + 1, 11]);
        assert_eq!((sent.concat(), body.len_bytes()), (all, 0));
    }
}
