//! Loads the temporary files of a tree, and joins the parts of a file into one content. A file
//! consists of the parts that were appended to it.

use bytes::BytesMut;
use dormouse_content::{Content, Unreadable};
use dormouse_kernel::temp_files::{FileParts, TempFiles, evolve};
use dormouse_proto::id::Pid;
use dormouse_proto::record::ContentRef;
use dormouse_proto::record::codec::{self, CodecError};
use dormouse_proto::temp_file::TempFileRecord;

use crate::content_cache::ContentCache;
use crate::ports::{Store, StoreError};

/// Why the temporary files of a tree cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadFilesError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Record(#[from] CodecError),
    /// A defect of the store or of the kernel.
    #[error("{0}")]
    Panicked(String),
}

/// Loads the files of a tree from the store. The contents of the files are not read. Blocks; costs
/// a read for each change.
///
/// # Errors
/// [`LoadFilesError`].
pub(super) fn load_files(
    store: &dyn Store,
    content_cache: &ContentCache,
    root: Pid,
) -> Result<TempFiles<Content>, LoadFilesError> {
    let mut files = TempFiles::default();
    for change in store.temp_files(root)? {
        let record: TempFileRecord<ContentRef> = codec::decode(&change.record)?;
        evolve(
            &mut files,
            &record
                .try_map(&mut |reference| Ok::<_, CodecError>(content_cache.content(reference)))?,
        );
    }
    Ok(files)
}

/// The content of a file that consists of one part. It is shared, with its index.
pub(super) fn single_part(parts: &FileParts<Content>) -> Option<Content> {
    parts.front().filter(|_| parts.len() == 1).cloned()
}

/// The content of a file that consists of several parts. Blocks; copies the bytes.
///
/// # Errors
/// One of the parts cannot be read.
pub(super) fn join_parts(parts: &FileParts<Content>) -> Result<Content, Unreadable> {
    let parts = parts
        .iter()
        .map(|part| part.unlimited_reader().bytes())
        .collect::<Result<Vec<_>, _>>()?;
    let mut whole = BytesMut::with_capacity(parts.iter().map(|part| part.len()).sum());
    parts.iter().for_each(|part| whole.extend_from_slice(part));
    Ok(Content::new(whole.freeze()))
}
