//! The body of a request: pieces that are shared with other requests, and copied a few at a time as
//! they leave.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use dormouse_proto::message::{Block, Message};
use dormouse_proto::model::{ModelError, Request};
use http_body::{Frame, SizeHint};

use super::codec::{Caching, Codec, Mark, Purpose, Turn};
use super::encoded::{Encoded, Place};
use super::media;

/// So many forks have a breakpoint behind what they share, those that most processes descend from:
/// more than four breakpoints are not taken, and two are needed elsewhere. Which have one never
/// changes (FORK-2).
const MOST_FORKS: usize = 2;

/// Pieces are sent together up to so many bytes: each that is sent by itself costs a call of the
/// system, or a part of one.
const SENT_TOGETHER_BYTES: usize = 64 << 10;

/// The bytes of a request, in pieces.
#[derive(Debug, Default)]
pub struct Body {
    /// In order; none is empty.
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

    /// What leaves next: a large piece as it is, small ones together.
    fn sent_next(&mut self) -> Option<Bytes> {
        let mut bytes = 0;
        let fitting = self.pieces.iter().take_while(|piece| {
            bytes += piece.len();
            bytes <= SENT_TOGETHER_BYTES
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

    /// How many bytes it has.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.bytes
    }

    /// All of it in one piece. Copies.
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
        Poll::Ready(self.sent_next().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes)
    }
}

/// A request in the format of `codec`, by itself: nothing is shared or kept. O(the conversation).
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
    put_together(codec, request, purpose, caching, &Encoded::default()).map(Body::into_text)
}

/// Puts a request together, of messages that were encoded before and of those that are new. O(the
/// number of messages, and the bytes of the new ones).
pub(super) fn put_together<C: Codec>(
    codec: &C,
    request: &Request,
    purpose: Purpose,
    caching: Caching,
    encoded: &Encoded,
) -> Result<Body, ModelError> {
    let head = codec.head(request, purpose, caching)?;
    let mut is_first = head.ends_with('[');
    let mut body = Body::default();
    body.push(head.into());
    for turn in turns(codec, request, caching, encoded)? {
        // Each begins with its comma, which the first does not need.
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
    encoded: &Encoded,
) -> Result<Vec<Bytes>, ModelError> {
    let places: Vec<_> = (0..request.messages.len())
        .map(|at| place(request, at, caching))
        .collect();
    let mut new = Vec::new();
    let mut turns = Vec::with_capacity(places.len());
    for (place, found) in places.iter().zip(encoded.find(&places)) {
        let turn = match found {
            Some(found) => found,
            None => {
                let turn = encode_one(codec, request, place)?;
                // The bytes of media are kept by who holds the descriptor, and not here again.
                if !has_media(place.message) {
                    new.push((*place, turn.clone()));
                }
                turn
            }
        };
        turns.push(turn);
    }
    encoded.keep(new);
    Ok(turns)
}

fn place(request: &Request, at: usize, caching: Caching) -> Place<'_> {
    let mut forks = request.forked_at.iter().take(MOST_FORKS);
    let is_behind_the_shared =
        at > 0 && forks.any(|fork| *fork == at) && caching == Caching::Automatic;
    let mark = if is_behind_the_shared {
        Mark::Breakpoint
    } else {
        Mark::None
    };
    let before = at.checked_sub(1).map(|before| &request.messages[before]);
    Place {
        message: &request.messages[at],
        before,
        mark,
    }
}

fn encode_one<C: Codec>(
    codec: &C,
    request: &Request,
    place: &Place<'_>,
) -> Result<Bytes, ModelError> {
    media::check(&place.message.blocks, &request.media)?;
    let before = place.before.map(|before| &**before);
    let turn = Turn {
        message: place.message,
        before,
        media: &request.media,
        mark: place.mark,
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
    fn small_pieces_leave_together_and_large_ones_as_they_are() {
        let mut body = Body::default();
        let lens = [
            10,
            20,
            SENT_TOGETHER_BYTES - 30,
            1,
            SENT_TOGETHER_BYTES,
            SENT_TOGETHER_BYTES + 1,
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
        let sent: Vec<_> = std::iter::from_fn(|| body.sent_next()).collect();
        let lens: Vec<_> = sent.iter().map(Bytes::len).collect();
        assert_eq!(
            lens,
            [
                SENT_TOGETHER_BYTES,
                1,
                SENT_TOGETHER_BYTES,
                SENT_TOGETHER_BYTES + 1,
                11
            ]
        );
        assert_eq!((sent.concat(), body.len_bytes()), (all, 0));
    }
}
