//! Writes an export: all data of a process or a process tree at a consistent cut, in the format of
//! [`dormouse_kernel::export`].
//!
//! Reads the store and blocks. At most one process state and one chunk of a content are in memory.
//! If the export is redacted, all contents are read twice: a masked content is named by the hash of
//! its masked bytes, and that name appears in process states that are written before it.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

use dormouse_content::Content;
use dormouse_kernel::export::{
    ContentHasher, ExportEncoder, MaskError, Masker, Redact, mask_text, masked_bundle,
    referenced_contents,
};
use dormouse_kernel::process::Image;
use dormouse_proto::checkpoint::Scope;
use dormouse_proto::export::{Facts, Head, Member, Record, Redaction};
use dormouse_proto::id::{ContentHash, FactNumber, Pid};
use dormouse_proto::process::{ExportId, ProcessRow};
use dormouse_proto::record::codec::{self, CodecError};
use dormouse_proto::record::masked::Masked;
use dormouse_proto::record::{ContentRef, Fact};

use crate::consistent_cut::{self, ConsistentCut};
use crate::context::KernelContext;
use crate::error::{ExportFailure, KernelError};
use crate::ports::{BlobReader, CommittedFacts, Store, StoreError, Unreadable};
use crate::recovery::{self, LoadError, LoadPurpose};

/// The size of the chunks in which contents are read.
const CHUNK_BYTES: u64 = 1 << 20;

/// Summary of a written export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportSummary {
    /// The name of the export.
    pub id: ExportId,
    /// The number of processes.
    pub processes: usize,
    /// The number of contents.
    pub contents: usize,
    /// The size in bytes.
    pub bytes: u64,
}

/// The parameters of an export.
pub(crate) struct ExportRequest {
    pub(crate) scope: Scope,
    /// Candidate processes: the exported process first, each other after its parent.
    pub(crate) rows: Vec<ProcessRow>,
    /// The root process of the tree.
    pub(crate) root: Pid,
    /// The highest pid of the store.
    pub(crate) last_pid: Pid,
    pub(crate) cut: ConsistentCut,
    pub(crate) redact: Option<Box<dyn Redact>>,
}

/// The contents of an export, by their hash in the store.
#[derive(Default)]
struct ExportedContents(BTreeMap<ContentHash, ExportedContent>);

#[derive(Clone, Copy)]
struct ExportedContent {
    len: u64,
    kind: ContentKind,
    /// The hash in the export, which differs if a part of the content is masked.
    exported_hash: ContentHash,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ContentKind {
    Program,
    Other,
}

fn last_message(image: &Image) -> u32 {
    u32::try_from(image.last_message_number()).unwrap_or(u32::MAX)
}

impl ExportedContents {
    fn add(&mut self, content: ContentRef, kind: ContentKind) {
        let exported = ExportedContent {
            len: content.len,
            kind,
            exported_hash: content.hash,
        };
        let entry = self.0.entry(content.hash).or_insert(exported);
        if kind == ContentKind::Program {
            entry.kind = kind;
        }
    }

    /// A reference as it appears in the export. A reference to a content that is not part of a
    /// redacted export keeps only its length: with the hash, the content could be guessed and
    /// verified.
    fn exported_reference(&self, content: ContentRef) -> ContentRef {
        let exported_hash = self
            .0
            .get(&content.hash)
            .map_or(ContentHash([0; 32]), |content| content.exported_hash);
        ContentRef {
            hash: exported_hash,
            ..content
        }
    }
}

/// The output, framed and counted.
struct ExportWriter<W> {
    encoder: ExportEncoder,
    output: W,
    bytes: u64,
}

impl<W: Write> ExportWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), KernelError> {
        self.bytes += bytes.len() as u64;
        self.output.write_all(bytes).map_err(write_error)
    }
}

fn write_error(source: io::Error) -> KernelError {
    KernelError::Export(ExportFailure::File {
        doing: "written",
        source,
    })
}

/// Writes an export. Returns the flushed output.
///
/// # Errors
/// The errors of the store, of a journal, and of `to`.
pub(crate) fn write_export<W: Write>(
    store: &dyn Store,
    context: &KernelContext,
    request: &ExportRequest,
    output: W,
) -> Result<(W, ExportSummary), KernelError> {
    let redact = request.redact.as_deref();
    let files = consistent_cut::temp_files_at(store, context, request.root, &request.cut)?;
    let mut to_reference = |content: Content| Ok::<_, KernelError>(content.reference());
    let files: Vec<_> = files
        .into_iter()
        .map(|file| file.try_map(&mut to_reference))
        .collect::<Result<_, _>>()?;
    let mut contents = ExportedContents::default();
    let mut add = |content| {
        contents.add(content, ContentKind::Other);
        Ok::<_, KernelError>(content)
    };
    files
        .iter()
        .try_for_each(|file| file.clone().try_map(&mut add).map(drop))?;
    if redact.is_some() {
        for row in request.rows() {
            contents.add_member(&request.member(store, context, row)?);
        }
    }
    if let Some(redact) = redact {
        contents.compute_masked_hashes(store, redact)?;
    }
    let mask = redact.map(|redact| move |text: &str| mask_text(redact, text));
    let mask = mask
        .as_ref()
        .map(|mask| mask as &dyn Fn(&str) -> Option<String>);
    let (encoder, magic) = ExportEncoder::begin();
    let mut out = ExportWriter {
        encoder,
        output,
        bytes: 0,
    };
    out.write(&magic)?;
    let first = request
        .rows()
        .next()
        .ok_or(StoreError::UnknownProcess(request.root))?;
    let write_record = |out: &mut ExportWriter<W>, record: Record, pid: Pid| {
        let encoded = out
            .encoder
            .record(&record, mask)
            .map_err(|source| LoadError::Record { pid, source })?;
        out.write(&encoded)
    };
    write_record(&mut out, Record::Head(request.head(first)), first.pid)?;
    let mut processes = 0;
    for row in request.rows() {
        let mut member = request.member(store, context, row)?;
        if redact.is_none() {
            contents.add_member(&member);
        }
        member.image = member
            .image
            .try_map(&mut |content| Ok::<_, KernelError>(contents.exported_reference(content)))?;
        let at = member.at;
        write_record(&mut out, Record::Member(Box::new(member)), row.pid)?;
        for_each_commit(store, row.pid, at, &mut |mut facts| {
            if let Some(mask) = mask {
                let masked = |fact: &Vec<u8>| mask_fact(fact, &contents, mask);
                let masked = facts.facts.iter().map(masked).collect::<Result<_, _>>();
                facts.facts = masked.map_err(|source| LoadError::Record {
                    pid: row.pid,
                    source,
                })?;
            }
            write_record(&mut out, Record::Facts(facts), row.pid)
        })?;
        processes += 1;
    }
    for file in files {
        let file = file
            .try_map(&mut |content| Ok::<_, KernelError>(contents.exported_reference(content)))?;
        write_record(&mut out, Record::TempFile(file), request.root)?;
    }
    let contents = contents.write(store, redact, &mut out)?;
    let ExportWriter {
        encoder,
        mut output,
        bytes,
    } = out;
    let (id, end) = encoder.end();
    output
        .write_all(&end)
        .and_then(|()| output.flush())
        .map_err(write_error)?;
    Ok((
        output,
        ExportSummary {
            id,
            processes,
            contents,
            bytes: bytes + end.len() as u64,
        },
    ))
}

impl ExportRequest {
    /// The processes that existed at the cut.
    fn rows(&self) -> impl Iterator<Item = &ProcessRow> {
        self.rows
            .iter()
            .filter(|row| self.cut.members.contains_key(&row.pid))
    }

    fn head(&self, first: &ProcessRow) -> Head {
        Head {
            made_by: concat!("dormouse ", env!("CARGO_PKG_VERSION")).to_owned(),
            at_ms: self.cut.at_ms,
            scope: self.scope,
            exported_pid: first.local_id(),
            last_pid: self.last_known_pid(),
            redaction: if self.redact.is_some() {
                Redaction::Redacted
            } else {
                Redaction::Whole
            },
        }
    }

    /// The highest number that the processes can know: one of this store, or of a store that numbers
    /// higher and from which they were imported.
    fn last_known_pid(&self) -> Pid {
        let known = self.rows().flat_map(|row| {
            let import = row.branched_from.and_then(|origin| origin.import);
            [Some(row.local_id()), import.map(|import| import.last_pid)]
        });
        known.flatten().fold(self.last_pid, Pid::max)
    }

    /// The state of a process at the cut. Its tools may be missing in this kernel.
    fn member(
        &self,
        store: &dyn Store,
        context: &KernelContext,
        row: &ProcessRow,
    ) -> Result<Member, LoadError> {
        let at = self.cut.members.get(&row.pid).copied();
        let loaded = recovery::load_process(store, context, row.pid, at, LoadPurpose::Inspect)?;
        let to_reference = &mut |content: Content| Ok::<_, LoadError>(content.reference());
        // What the process did beyond the cut travels with its state.
        let image = loaded.state.image();
        let image = consistent_cut::with_effects_since(store, context, row.pid, image, None);
        let image = match &self.redact {
            None => image,
            // The key of an effect is a hash of arguments that a mask may hide.
            Some(_) => Image {
                effects: image.effects.without_effects(last_message(&image)),
                ..image
            },
        };
        let image = image.try_map(to_reference)?;
        Ok(Member {
            row: ProcessRow {
                exit: None,
                // Labels name users and tenants of this store.
                labels: Arc::default(),
                ..row.clone()
            },
            at: loaded.last_fact,
            image,
        })
    }
}

impl ExportedContents {
    fn add_member(&mut self, member: &Member) {
        referenced_contents(&member.image)
            .into_iter()
            .for_each(|content| self.add(content, ContentKind::Other));
        self.add(member.image.bundle, ContentKind::Program);
    }

    /// Computes the hash of each content after masking.
    fn compute_masked_hashes(
        &mut self,
        store: &dyn Store,
        redact: &dyn Redact,
    ) -> Result<(), KernelError> {
        for (hash, content) in &mut self.0 {
            let mut hasher = ContentHasher::default();
            read_content(store, *hash, content, Some(redact), &mut |part| {
                hasher.part(part);
                Ok(())
            })?;
            content.exported_hash = hasher.hash();
        }
        Ok(())
    }

    /// Writes each content once. Returns their number.
    fn write<W: Write>(
        &self,
        store: &dyn Store,
        redact: Option<&dyn Redact>,
        out: &mut ExportWriter<W>,
    ) -> Result<usize, KernelError> {
        // Contents that differ only in masked parts become one. They are written in the order of
        // their new hashes, because the order of the old hashes would reveal something about them.
        let by_exported_hash: BTreeMap<_, _> = self
            .0
            .iter()
            .map(|(hash, content)| (content.exported_hash, (hash, content)))
            .collect();
        for (hash, content) in by_exported_hash.values() {
            let header = out.encoder.content(content.len);
            out.write(&header)?;
            read_content(store, **hash, content, redact, &mut |part| {
                out.encoder.part(part);
                out.write(part)
            })?;
            let (name, footer) = out.encoder.close();
            if name != content.exported_hash {
                let what = format!(
                    "content {hash} has another hash when it is read ({name}), or the mask is not \
                     deterministic"
                );
                return Err(StoreError::Damaged { what }.into());
            }
            out.write(&footer)?;
        }
        Ok(by_exported_hash.len())
    }
}

/// Reads a content in chunks, masked if the export is redacted.
fn read_content(
    store: &dyn Store,
    hash: ContentHash,
    content: &ExportedContent,
    redact: Option<&dyn Redact>,
    on_chunk: &mut dyn FnMut(&[u8]) -> Result<(), KernelError>,
) -> Result<(), KernelError> {
    let stored = store.content(hash)?;
    let to_load_error = |error: Unreadable| KernelError::from(LoadError::from(error));
    let Some(redact) = redact else {
        return for_each_chunk(
            &*stored,
            content.len,
            &mut |part| on_chunk(part),
            to_load_error,
        );
    };
    if content.kind == ContentKind::Program {
        let bytes = stored.slice(0..content.len).map_err(to_load_error)?;
        match masked_bundle(redact, &bytes) {
            Ok(masked) => return on_chunk(&masked),
            Err(MaskError::NotABundle) => {}
            Err(MaskError::DuplicateName) => {
                let what = "two files of a program have the same name after masking: mask them \
                            differently";
                return Err(write_error(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    what,
                )));
            }
        }
    }
    let mut masker = Masker::new(redact);
    for_each_chunk(
        &*stored,
        content.len,
        &mut |part| on_chunk(&masker.feed(part)),
        to_load_error,
    )?;
    on_chunk(&masker.finish())
}

fn for_each_chunk(
    content: &dyn BlobReader,
    len: u64,
    on_chunk: &mut dyn FnMut(&[u8]) -> Result<(), KernelError>,
    to_load_error: impl Fn(Unreadable) -> KernelError,
) -> Result<(), KernelError> {
    let mut from = 0;
    while from < len {
        let to = len.min(from + CHUNK_BYTES);
        on_chunk(&content.slice(from..to).map_err(&to_load_error)?)?;
        from = to;
    }
    Ok(())
}

/// The retained facts of a process up to and including `up_to`, one call per commit.
fn for_each_commit(
    store: &dyn Store,
    pid: Pid,
    up_to: FactNumber,
    on_commit: &mut dyn FnMut(Facts) -> Result<(), KernelError>,
) -> Result<(), KernelError> {
    let history = store.history(pid)?.commits;
    let Some(first) = history
        .first()
        .map(|committed| FactNumber(committed.first.0.max(1)))
    else {
        return Ok(());
    };
    if first > up_to {
        return Ok(());
    }
    let mut facts = store.facts(pid, first, up_to)?.into_iter();
    for committed in history {
        let CommittedFacts {
            commit,
            at_ms,
            first,
            ..
        } = committed;
        let first = FactNumber(first.0.max(1));
        let count = (committed.last().0.min(up_to.0) + 1).saturating_sub(first.0);
        let facts: Vec<_> = facts
            .by_ref()
            .take(usize::try_from(count).unwrap_or(usize::MAX))
            .collect();
        if !facts.is_empty() {
            on_commit(Facts {
                pid,
                commit,
                at_ms,
                first,
                facts,
            })?;
        }
    }
    Ok(())
}

fn mask_fact(
    fact: &[u8],
    contents: &ExportedContents,
    mask: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<u8>, CodecError> {
    let fact: Fact<ContentRef> = codec::decode(fact)?;
    let fact =
        fact.try_map(&mut |content| Ok::<_, CodecError>(contents.exported_reference(content)))?;
    codec::encode(&Masked::new(&fact, mask))
}
