//! Writing an export: what a store holds of a process or a tree at a cut, in the form of
//! [`dormouse_kernel::export`].
//!
//! It reads the store and blocks. A process at a time is in memory, and of a content a part. Where
//! something is to be masked, everything is read twice: the names of masked contents are their
//! hashes, and stand in images that come before them.

use std::collections::BTreeMap;
use std::io::{self, Write};

use dormouse_content::Content;
use dormouse_kernel::export::{
    ContentHasher, Framer, MaskError, Masker, Redact, mask_text, masked_bundle, referenced_contents,
};
use dormouse_proto::checkpoint::Scope;
use dormouse_proto::export::{Facts, Head, Member, Record, Redaction};
use dormouse_proto::id::{ContentHash, FactNumber, Pid};
use dormouse_proto::process::{ExportId, ProcessRow};
use dormouse_proto::record::codec::{self, CodecError};
use dormouse_proto::record::masked::Masked;
use dormouse_proto::record::{ContentRef, Fact};

use crate::context::KernelContext;
use crate::error::{ExportFailure, KernelError};
use crate::points::{self, Cut};
use crate::ports::{BlobReader, Store, StoreError, Unreadable, Written};
use crate::recovery::{self, LoadError, Purpose};

/// So much of a content is read at once.
const PART_BYTES: u64 = 1 << 20;

/// What was exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exported {
    /// The name of the export.
    pub id: ExportId,
    /// How many processes it holds.
    pub processes: usize,
    /// How many contents.
    pub contents: usize,
    /// How many bytes it has.
    pub bytes: u64,
}

/// What is to be exported.
pub(crate) struct Order {
    pub(crate) scope: Scope,
    /// The processes that may be in it, the one that it is of first, each other after its parent.
    pub(crate) rows: Vec<ProcessRow>,
    /// The process that their tree begins with.
    pub(crate) root: Pid,
    /// The highest pid of the store.
    pub(crate) last: Pid,
    pub(crate) cut: Cut,
    pub(crate) redact: Option<Box<dyn Redact>>,
}

/// The contents of an export: what each is called there, and what it is.
#[derive(Default)]
struct Contents(BTreeMap<ContentHash, Named>);

#[derive(Clone, Copy)]
struct Named {
    len: u64,
    holds: Holds,
    /// Its name in the export: another where something of it is masked.
    there: ContentHash,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    Program,
    Anything,
}

impl Contents {
    fn note(&mut self, content: ContentRef, holds: Holds) {
        let named = Named {
            len: content.len,
            holds,
            there: content.hash,
        };
        let known = self.0.entry(content.hash).or_insert(named);
        if holds == Holds::Program {
            known.holds = holds;
        }
    }

    /// A reference as it stands in the export. One to a content that is not in it says its length
    /// only, where something is masked: what the content holds could be guessed and tried by its
    /// hash.
    fn there(&self, content: ContentRef) -> ContentRef {
        let there = self
            .0
            .get(&content.hash)
            .map_or(ContentHash([0; 32]), |named| named.there);
        ContentRef {
            hash: there,
            ..content
        }
    }
}

/// Where an export goes.
struct Out<W> {
    framer: Framer,
    to: W,
    bytes: u64,
}

impl<W: Write> Out<W> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), KernelError> {
        self.bytes += bytes.len() as u64;
        self.to.write_all(bytes).map_err(failed)
    }
}

fn failed(source: io::Error) -> KernelError {
    KernelError::Export(ExportFailure::File {
        doing: "written",
        source,
    })
}

/// Writes an export. Gives back what it was written to, flushed.
///
/// # Errors
/// What the store, a journal or `to` fails with.
pub(crate) fn write<W: Write>(
    store: &dyn Store,
    context: &KernelContext,
    order: &Order,
    to: W,
) -> Result<(W, Exported), KernelError> {
    let redact = order.redact.as_deref();
    let files = points::files(store, context, order.root, &order.cut)?;
    let mut refer = |content: Content| Ok::<_, KernelError>(content.reference());
    let files: Vec<_> = files
        .into_iter()
        .map(|file| file.try_map(&mut refer))
        .collect::<Result<_, _>>()?;
    let mut contents = Contents::default();
    let mut note = |content| {
        contents.note(content, Holds::Anything);
        Ok::<_, KernelError>(content)
    };
    files
        .iter()
        .try_for_each(|file| file.clone().try_map(&mut note).map(drop))?;
    if redact.is_some() {
        for row in order.rows() {
            contents.note_member(&order.member(store, context, row)?);
        }
    }
    if let Some(redact) = redact {
        contents.rename(store, redact)?;
    }
    let mask = redact.map(|redact| move |text: &str| mask_text(redact, text));
    let mask = mask
        .as_ref()
        .map(|mask| mask as &dyn Fn(&str) -> Option<String>);
    let (framer, begun) = Framer::begin();
    let mut out = Out {
        framer,
        to,
        bytes: 0,
    };
    out.put(&begun)?;
    let first = order
        .rows()
        .next()
        .ok_or(StoreError::UnknownProcess(order.root))?;
    let record = |out: &mut Out<W>, record: Record, pid: Pid| {
        let encoded = out
            .framer
            .record(&record, mask)
            .map_err(|source| LoadError::Record { pid, source })?;
        out.put(&encoded)
    };
    record(&mut out, Record::Head(order.head(first)), first.pid)?;
    let mut processes = 0;
    for row in order.rows() {
        let mut member = order.member(store, context, row)?;
        if redact.is_none() {
            contents.note_member(&member);
        }
        member.image = member
            .image
            .try_map(&mut |content| Ok::<_, KernelError>(contents.there(content)))?;
        let at = member.at;
        record(&mut out, Record::Member(Box::new(member)), row.pid)?;
        history(store, row.pid, at, &mut |mut facts| {
            if let Some(mask) = mask {
                let masked = |fact: &Vec<u8>| masked_fact(fact, &contents, mask);
                let masked = facts.facts.iter().map(masked).collect::<Result<_, _>>();
                facts.facts = masked.map_err(|source| LoadError::Record {
                    pid: row.pid,
                    source,
                })?;
            }
            record(&mut out, Record::Facts(facts), row.pid)
        })?;
        processes += 1;
    }
    for file in files {
        let file = file.try_map(&mut |content| Ok::<_, KernelError>(contents.there(content)))?;
        record(&mut out, Record::TempFile(file), order.root)?;
    }
    let contents = contents.write(store, redact, &mut out)?;
    let Out {
        framer,
        mut to,
        bytes,
    } = out;
    let (id, end) = framer.end();
    to.write_all(&end)
        .and_then(|()| to.flush())
        .map_err(failed)?;
    Ok((
        to,
        Exported {
            id,
            processes,
            contents,
            bytes: bytes + end.len() as u64,
        },
    ))
}

impl Order {
    /// Those that were born by then.
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
            of: first.known_as(),
            last: self.last,
            redaction: if self.redact.is_some() {
                Redaction::Redacted
            } else {
                Redaction::Whole
            },
        }
    }

    /// A process as it stood at the cut. Tools that it has may be missing here.
    fn member(
        &self,
        store: &dyn Store,
        context: &KernelContext,
        row: &ProcessRow,
    ) -> Result<Member, LoadError> {
        let at = self.cut.members.get(&row.pid).copied();
        let loaded = recovery::load(store, context, row.pid, at, Purpose::Look)?;
        let refer = &mut |content: Content| Ok::<_, LoadError>(content.reference());
        let image = loaded.state.image().try_map(refer)?;
        Ok(Member {
            row: ProcessRow {
                exit: None,
                ..row.clone()
            },
            at: loaded.last,
            image,
        })
    }
}

impl Contents {
    fn note_member(&mut self, member: &Member) {
        referenced_contents(&member.image)
            .into_iter()
            .for_each(|content| self.note(content, Holds::Anything));
        self.note(member.image.bundle, Holds::Program);
    }

    /// Finds out what each is called once it is masked.
    fn rename(&mut self, store: &dyn Store, redact: &dyn Redact) -> Result<(), KernelError> {
        for (hash, named) in &mut self.0 {
            let mut naming = ContentHasher::default();
            read(store, *hash, named, Some(redact), &mut |part| {
                naming.part(part);
                Ok(())
            })?;
            named.there = naming.hash();
        }
        Ok(())
    }

    /// Writes each once. Answers with how many that were.
    fn write<W: Write>(
        &self,
        store: &dyn Store,
        redact: Option<&dyn Redact>,
        out: &mut Out<W>,
    ) -> Result<usize, KernelError> {
        // Two that differ in what is masked only are one. In the order of their new names: that of
        // the others would tell of them.
        let written: BTreeMap<_, _> = self
            .0
            .iter()
            .map(|(hash, named)| (named.there, (hash, named)))
            .collect();
        for (hash, named) in written.values() {
            let header = out.framer.content(named.len);
            out.put(&header)?;
            read(store, **hash, named, redact, &mut |part| {
                out.framer.part(part);
                out.put(part)
            })?;
            let (name, footer) = out.framer.close();
            if name != named.there {
                let what = format!(
                    "content {hash} reads as another ({name}), or is not masked twice in the same \
                     way"
                );
                return Err(StoreError::Damaged { what }.into());
            }
            out.put(&footer)?;
        }
        Ok(written.len())
    }
}

/// Reads a content in parts, masked as it is to be.
fn read(
    store: &dyn Store,
    hash: ContentHash,
    named: &Named,
    redact: Option<&dyn Redact>,
    each: &mut dyn FnMut(&[u8]) -> Result<(), KernelError>,
) -> Result<(), KernelError> {
    let content = store.content(hash)?;
    let unreadable = |error: Unreadable| KernelError::from(LoadError::from(error));
    let Some(redact) = redact else {
        return parts(&*content, named.len, &mut |part| each(part), unreadable);
    };
    if named.holds == Holds::Program {
        let bytes = content.slice(0..named.len).map_err(unreadable)?;
        match masked_bundle(redact, &bytes) {
            Ok(masked) => return each(&masked),
            Err(MaskError::NoBundle) => {}
            Err(MaskError::Alike) => {
                let what =
                    "two files of a program come to have one name: let the mask leave them apart";
                return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, what)));
            }
        }
    }
    let mut masker = Masker::new(redact);
    parts(
        &*content,
        named.len,
        &mut |part| each(&masker.feed(part)),
        unreadable,
    )?;
    each(&masker.finish())
}

fn parts(
    content: &dyn BlobReader,
    len: u64,
    each: &mut dyn FnMut(&[u8]) -> Result<(), KernelError>,
    unreadable: impl Fn(Unreadable) -> KernelError,
) -> Result<(), KernelError> {
    let mut from = 0;
    while from < len {
        let to = len.min(from + PART_BYTES);
        each(&content.slice(from..to).map_err(&unreadable)?)?;
        from = to;
    }
    Ok(())
}

/// The facts of a process that are kept, up to and with `upto`, by commit.
fn history(
    store: &dyn Store,
    pid: Pid,
    upto: FactNumber,
    each: &mut dyn FnMut(Facts) -> Result<(), KernelError>,
) -> Result<(), KernelError> {
    let history = store.history(pid)?.written;
    let Some(first) = history
        .first()
        .map(|written| FactNumber(written.first.0.max(1)))
    else {
        return Ok(());
    };
    if first > upto {
        return Ok(());
    }
    let mut facts = store.facts(pid, first, upto)?.into_iter();
    for written in history {
        let Written {
            commit,
            at_ms,
            first,
            ..
        } = written;
        let first = FactNumber(first.0.max(1));
        let count = (written.last().0.min(upto.0) + 1).saturating_sub(first.0);
        let facts: Vec<_> = facts
            .by_ref()
            .take(usize::try_from(count).unwrap_or(usize::MAX))
            .collect();
        if !facts.is_empty() {
            each(Facts {
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

fn masked_fact(
    fact: &[u8],
    contents: &Contents,
    mask: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<u8>, CodecError> {
    let fact: Fact<ContentRef> = codec::decode(fact)?;
    let fact = fact.try_map(&mut |content| Ok::<_, CodecError>(contents.there(content)))?;
    codec::encode(&Masked::new(&fact, mask))
}
