//! Taking in an export: it is checked whole before anything of it is used, then its contents become
//! durable, in bounded batches, and then all its processes are born together.
//!
//! It reads a file that somebody else opened, and blocks. Whatever ends it before the births leaves
//! contents that nothing refers to, which garbage collection sweeps.

use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom};

use dormouse_content::Content;
use dormouse_kernel::export::{Birth, Checker, ExportError, ExportVisitor, Keep, Manifest};
use dormouse_kernel::process::{StartMode, State};
use dormouse_kernel::program::Program;
use dormouse_proto::id::ContentHash;
use dormouse_proto::record::ContentRef;
use dormouse_proto::temp_file::TempFileRecord;
use tokio::sync::oneshot;

use crate::checkpoint::{CommitError, LogRecord};
use crate::clock::now_ms;
use crate::context::KernelContext;
use crate::error::{ExportFailure, KernelError};
use crate::recovery::{self, LoadError, Purpose};
use crate::supervisor::ImportedProcess;

/// So much of the file is read at once.
const PART_BYTES: usize = 1 << 20;

/// A commit of contents takes no more of them than are gathered when there are so many bytes, or so
/// many contents.
const BATCH_BYTES: u64 = 8 << 20;
const BATCH_CONTENTS: usize = 256;

/// Reads an export from its beginning and checks all of it; `told` hears what a manifest does not
/// keep. Blocks; costs one pass.
///
/// # Errors
/// [`ExportFailure::Unusable`](crate::ExportFailure::Unusable),
/// [`ExportFailure::File`](crate::ExportFailure::File).
pub fn look(mut file: impl Read, told: &mut impl ExportVisitor) -> Result<Manifest, KernelError> {
    checked(&mut file, Keep::Processes, told, &mut |_| Ok(()))
}

/// The same, and keeps no process, only their programs: what is to be known of a process, `told`
/// hears.
///
/// # Errors
/// As [`look`].
pub fn skim(mut file: impl Read, told: &mut impl ExportVisitor) -> Result<Manifest, KernelError> {
    checked(&mut file, Keep::Programs, told, &mut |_| Ok(()))
}

/// The same; `after` is asked after each part whether to go on.
fn checked<T: ExportVisitor>(
    file: &mut impl Read,
    keep: Keep,
    told: &mut T,
    after: &mut dyn FnMut(&mut T) -> Result<(), KernelError>,
) -> Result<Manifest, KernelError> {
    let (mut checker, mut part) = (Checker::new(keep), vec![0; PART_BYTES]);
    loop {
        let len = match file.read(&mut part) {
            Ok(0) => return Ok(checker.finish()?),
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(source) => return Err(failed(source)),
        };
        checker.feed(&part[..len], told)?;
        after(told)?;
    }
}

fn failed(source: io::Error) -> KernelError {
    KernelError::Export(ExportFailure::File {
        doing: "read",
        source,
    })
}

/// An export that was checked, and the programs of its processes, in their order.
pub(crate) struct Plan {
    pub(crate) manifest: Manifest,
    programs: Vec<Program>,
}

/// Checks an export, and that its processes can live in this kernel: where they are to run, by the
/// tools and prices that it has.
///
/// # Errors
/// [`ExportFailure::Unusable`](crate::ExportFailure::Unusable),
/// [`ExportFailure::File`](crate::ExportFailure::File),
/// [`StoreFailure::Load`](crate::StoreFailure::Load).
pub(crate) fn plan(
    context: &KernelContext,
    file: &mut (impl Read + Seek),
    purpose: Purpose,
) -> Result<Plan, KernelError> {
    rewind(file)?;
    let manifest = look(&mut *file, &mut ())?;
    let mut compiled: BTreeMap<(ContentHash, &str), Program> = BTreeMap::new();
    let mut programs = Vec::new();
    for birth in manifest.births() {
        let (image, pid) = (&birth.member().image, birth.member().row.pid);
        let of = (image.bundle.hash, &*image.program);
        let program = match compiled.get(&of) {
            Some(program) => program.clone(),
            None => {
                let lost = || ExportError::Invalid {
                    what: format!("process {pid} has no program"),
                };
                let bundle = manifest.programs.get(&of.0).ok_or_else(lost)?;
                let program = recovery::compile(context, pid, bundle, of.1, purpose)?;
                compiled.insert(of, program.clone());
                program
            }
        };
        check(context, birth, &program, purpose)?;
        programs.push(program);
    }
    drop(compiled);
    Ok(Plan { manifest, programs })
}

/// That an image makes a process. Nothing of its contents is read.
fn check(
    context: &KernelContext,
    birth: Birth<'_>,
    program: &Program,
    purpose: Purpose,
) -> Result<(), LoadError> {
    let row = birth.row();
    let image = begun(context, birth, StartMode::Running);
    let state = State::from_image(
        row.known_as(),
        program.clone(),
        context.around.clone(),
        image,
    )
    .map_err(|source| LoadError::State {
        pid: row.pid,
        source,
    })?;
    recovery::check_prices(context, &state, purpose).map_err(|reason| LoadError::Program {
        pid: row.pid,
        reason,
    })
}

fn begun(
    context: &KernelContext,
    birth: Birth<'_>,
    beginning: StartMode,
) -> dormouse_kernel::process::Image {
    let mut held = |content: ContentRef| {
        Ok::<_, std::convert::Infallible>(context.content_cache.content(content))
    };
    let Ok(image) = birth.member().image.clone().try_map(&mut held);
    birth.image(image, now_ms(), beginning)
}

/// Makes the contents of an export durable. Holds a batch of them, or the largest.
///
/// # Errors
/// [`StoreFailure::NotDurable`](crate::StoreFailure::NotDurable),
/// [`ExportFailure::File`](crate::ExportFailure::File);
/// [`ExportFailure::Unusable`](crate::ExportFailure::Unusable) where the file is no longer what it
/// was.
pub(crate) fn bring(
    context: &KernelContext,
    file: &mut (impl Read + Seek),
    plan: &Plan,
) -> Result<(), KernelError> {
    rewind(file)?;
    let mut batch = Batch::default();
    let again = checked(
        file,
        Keep::Programs,
        &mut batch,
        &mut |batch| match batch.is_full() {
            true => batch.commit(context),
            false => Ok(()),
        },
    )?;
    batch.commit(context)?;
    if again.id != plan.manifest.id {
        let what = "it was replaced by another while it was read".to_owned();
        return Err(ExportError::Invalid { what }.into());
    }
    Ok(())
}

/// What the processes of an export grow from, once its contents are durable.
pub(crate) fn grafts(
    context: &KernelContext,
    plan: &Plan,
    beginning: StartMode,
) -> Vec<ImportedProcess> {
    let graft = |(birth, program): (Birth<'_>, &Program)| {
        let image = Box::new(begun(context, birth, beginning));
        ImportedProcess {
            row: birth.row(),
            restored: birth.restored(),
            program: program.clone(),
            image,
        }
    };
    plan.manifest
        .births()
        .zip(&plan.programs)
        .map(graft)
        .collect()
}

/// The changes of its temporary files.
pub(crate) fn files(context: &KernelContext, plan: &Plan) -> Vec<TempFileRecord<Content>> {
    let mut held = |content: ContentRef| {
        Ok::<_, std::convert::Infallible>(context.content_cache.content(content))
    };
    let held = |change: &TempFileRecord<ContentRef>| {
        let Ok(change) = change.clone().try_map(&mut held);
        change
    };
    plan.manifest.files.iter().map(held).collect()
}

/// Whether the store still has the contents that were brought: what nothing refers to yet may be
/// swept meanwhile.
pub(crate) fn has_all(context: &KernelContext, plan: &Plan) -> bool {
    let Some(store) = context.store() else {
        return true;
    };
    plan.manifest
        .contents
        .keys()
        .all(|hash| store.content(*hash).is_ok())
}

fn rewind(file: &mut impl Seek) -> Result<(), KernelError> {
    file.seek(SeekFrom::Start(0)).map(drop).map_err(failed)
}

/// Contents that are about to be durable.
#[derive(Default)]
struct Batch {
    coming: Vec<u8>,
    contents: Vec<Content>,
    bytes: u64,
}

impl ExportVisitor for Batch {
    fn part(&mut self, bytes: &[u8]) {
        self.coming.extend_from_slice(bytes);
    }

    fn closed(&mut self, content: ContentRef) {
        self.bytes += content.len;
        self.contents
            .push(Content::new(std::mem::take(&mut self.coming)));
    }
}

impl Batch {
    fn is_full(&self) -> bool {
        self.bytes >= BATCH_BYTES || self.contents.len() >= BATCH_CONTENTS
    }

    /// Awaits that they are written: the births that follow make the disk have them.
    fn commit(&mut self, context: &KernelContext) -> Result<(), KernelError> {
        let entries = std::mem::take(&mut self.contents)
            .into_iter()
            .map(LogRecord::Content)
            .collect();
        self.bytes = 0;
        let (written, heard) = oneshot::channel();
        context.append(
            entries,
            Box::new(move |result: Result<_, CommitError>| drop(written.send(result.map(drop)))),
        );
        Ok(heard.blocking_recv().map_err(|_| KernelError::Closed)??)
    }
}
