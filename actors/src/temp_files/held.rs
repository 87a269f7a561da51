//! Contents of temporary files: at hand, or in the store and read when somebody reads the file.

use bytes::{Bytes, BytesMut};
use dormouse_kernel::content::Content;
use dormouse_kernel::temp_files::{Piece, Pieces, TempFiles, evolve};
use dormouse_proto::id::Pid;
use dormouse_proto::record::{ContentRef, codec};
use dormouse_proto::temp_file::TempFileRecord;

use crate::ports::Store;

/// A content of a temporary file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// It came in while this kernel runs.
    Here(Content),
    /// An earlier kernel made it durable.
    Stored(ContentRef),
}

impl Piece for Held {
    fn len_bytes(&self) -> u64 {
        match self {
            Self::Here(content) => content.len_bytes(),
            Self::Stored(reference) => reference.len_bytes(),
        }
    }
}

/// The files of a tree as the store has them; none of what they hold is read. Blocks; costs a read for each change.
///
/// # Errors
/// Why the store cannot give them.
pub(super) fn load(store: &dyn Store, root: Pid) -> Result<TempFiles<Held>, String> {
    let mut files = TempFiles::default();
    for change in store.temp_files(root).map_err(|error| error.to_string())? {
        let record: TempFileRecord<ContentRef> = codec::decode(&change.record).map_err(|error| error.to_string())?;
        evolve(&mut files, &record.try_map(&mut |reference| Ok::<_, String>(Held::Stored(reference)))?);
    }
    Ok(files)
}

/// All that a file holds, where that is one content in memory: it is shared, its index too.
pub(super) fn at_hand(pieces: &Pieces<Held>) -> Option<Content> {
    match (pieces.len(), pieces.front()) {
        (1, Some(Held::Here(content))) => Some(content.clone()),
        _ => None,
    }
}

/// All that a file holds. Blocks; costs a copy of what it holds where that is several contents.
///
/// # Errors
/// Why the store cannot give one of them.
pub(super) fn join(store: Option<&dyn Store>, pieces: &Pieces<Held>) -> Result<Content, String> {
    let mut parts = pieces.iter().map(|held| bytes_of(store, held)).collect::<Result<Vec<_>, _>>()?;
    if parts.len() == 1 {
        return Ok(Content::new(parts.remove(0)));
    }
    let mut whole = BytesMut::with_capacity(parts.iter().map(Bytes::len).sum());
    parts.iter().for_each(|part| whole.extend_from_slice(part));
    Ok(Content::new(whole.freeze()))
}

fn bytes_of(store: Option<&dyn Store>, held: &Held) -> Result<Bytes, String> {
    match (held, store) {
        (Held::Here(content), _) => Ok(content.bytes().clone()),
        (Held::Stored(reference), Some(store)) => {
            let stored = store.content(reference.hash).map_err(|error| error.to_string())?;
            stored.slice(0..reference.len).map_err(|error| error.to_string())
        }
        (Held::Stored(_), None) => Err("the kernel is shutting down".to_owned()),
    }
}
