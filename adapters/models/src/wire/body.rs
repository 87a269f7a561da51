//! The body of a request: pieces that are shared with other requests, and never copied into one.

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

/// So many forks have a breakpoint behind what they share, those that most processes descend from: more than four breakpoints are
/// not taken, and two are needed elsewhere. Which have one never changes (FORK-2).
const MOST_FORKS: usize = 2;

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

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.pieces.pop_front();
        self.bytes -= piece.as_ref().map_or(0, |piece| piece.len() as u64);
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
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
/// [`InvalidRequest`](dormouse_proto::model::ModelErrorKind::InvalidRequest) where it cannot be sent.
pub fn encode<C: Codec>(
    codec: &C,
    request: &Request,
    purpose: Purpose,
    caching: Caching,
) -> Result<String, ModelError> {
    put_together(codec, request, purpose, caching, &Encoded::default()).map(Body::into_text)
}

/// Puts a request together, of messages that were encoded before and of those that are new. O(the number of messages, and the
/// bytes of the new ones).
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
    let places: Vec<_> = (0..request.messages.len()).map(|at| place(request, at, caching)).collect();
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
    let is_behind_the_shared = at > 0 && forks.any(|fork| *fork == at) && caching == Caching::Automatic;
    let mark = if is_behind_the_shared { Mark::Breakpoint } else { Mark::None };
    let before = at.checked_sub(1).map(|before| &request.messages[before]);
    Place { message: &request.messages[at], before, mark }
}

fn encode_one<C: Codec>(codec: &C, request: &Request, place: &Place<'_>) -> Result<Bytes, ModelError> {
    media::check(&place.message.blocks, &request.media)?;
    let before = place.before.map(|before| &**before);
    let turn = Turn { message: place.message, before, media: &request.media, mark: place.mark };
    let turn = codec.turn(turn)?;
    Ok(if turn.is_empty() { Bytes::new() } else { format!(",{turn}").into() })
}

fn has_media(message: &Message) -> bool {
    message.blocks.iter().any(|block| matches!(block, Block::Media { .. }))
}
