//! The body of a request. It consists of pieces that are shared with other requests, and are copied
//! only a few at a time while the body is sent.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use dormouse_proto::message::{Block, Message};
use dormouse_proto::model::{ModelError, Request};
use http_body::{Frame, SizeHint};

use super::codec::{Caching, Codec, Mark, Purpose, Turn};
use super::media;
use super::message_cache::{MessageCache, MessageKey};

/// How many forks have a cache breakpoint after the part that they share: the ones that most
/// processes descend from. Providers accept four breakpoints, and two are needed elsewhere. Which
/// forks have one never changes (FORK-2).
const MAX_FORKS: usize = 2;

/// Small pieces are sent together up to this size, since each frame may cost a system call.
const FRAME_BYTES: usize = 64 << 10;

/// The bytes of a request body, in pieces.
#[derive(Debug, Default)]
pub struct Body {
    /// In order. No piece is empty.
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

/// Encodes a request in the format of `codec`, without a cache. O(the conversation).
///
/// # Errors
/// [`InvalidRequest`](dormouse_proto::model::ModelErrorKind::InvalidRequest) where it cannot be
/// sent.
pub fn encode<C: Codec>(
    codec: &C,
    request: &Request,
    purpose: Purpose,
    caching: Caching,
) -> Result<String, ModelError> {
    assemble(codec, request, purpose, caching, &MessageCache::default()).map(Body::into_text)
}

/// Assembles a request from cached messages, and encodes the messages that are new. O(the number of
/// messages, and the bytes of the new ones).
pub(super) fn assemble<C: Codec>(
    codec: &C,
    request: &Request,
    purpose: Purpose,
    caching: Caching,
    cache: &MessageCache,
) -> Result<Body, ModelError> {
    let caching = caching.of_request(request);
    let head = codec.head(request, purpose, caching)?;
    let mut is_first = head.ends_with('[');
    let mut body = Body::default();
    body.push(head.into());
    for turn in turns(codec, request, caching, cache)? {
        // Each message begins with a comma, which the first one drops.
        let from = usize::from(is_first && !turn.is_empty());
        is_first &= turn.is_empty();
        body.push(turn.slice(from..));
    }
    body.push(codec.tail(request, purpose)?.into());
    Ok(body)
}

fn turns<C: Codec>(
    codec: &C,
    request: &Request,
    caching: Caching,
    cache: &MessageCache,
) -> Result<Vec<Bytes>, ModelError> {
    let keys: Vec<_> = (0..request.messages.len())
        .map(|at| message_key(request, at, caching))
        .collect();
    let mut newly_encoded = Vec::new();
    let mut turns = Vec::with_capacity(keys.len());
    for (key, found) in keys.iter().zip(cache.find(&keys)) {
        let turn = match found {
            Some(found) => found,
            None => {
                let turn = encode_one(codec, request, key)?;
                // The descriptor keeps the bytes of media; the cache does not hold them a second
                // time.
                if !has_media(key.message) {
                    newly_encoded.push((*key, turn.clone()));
                }
                turn
            }
        };
        turns.push(turn);
    }
    cache.keep(newly_encoded);
    Ok(turns)
}

fn message_key(request: &Request, at: usize, caching: Caching) -> MessageKey<'_> {
    let mut forks = request.forked_at.iter().take(MAX_FORKS);
    let follows_shared_part = at > 0 && forks.any(|fork| *fork == at);
    let ttl = caching.ttl().filter(|_| follows_shared_part);
    let mark = ttl.map_or(Mark::None, Mark::Breakpoint);
    let before = at.checked_sub(1).map(|before| &request.messages[before]);
    MessageKey {
        message: &request.messages[at],
        before,
        mark,
    }
}

fn encode_one<C: Codec>(
    codec: &C,
    request: &Request,
    key: &MessageKey<'_>,
) -> Result<Bytes, ModelError> {
    media::check(&key.message.blocks, &request.media)?;
    let before = key.before.map(|before| &**before);
    let turn = Turn {
        message: key.message,
        before,
        media: &request.media,
        mark: key.mark,
    };
    let turn = codec.turn(turn)?;
    Ok(if turn.is_empty() {
        Bytes::new()
    } else {
        format!(",{turn}").into()
    })
}

fn has_media(message: &Message) -> bool {
    message
        .blocks
        .iter()
        .any(|block| matches!(block, Block::Media { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

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
