//! Imports an export. The whole file is checked first; then its contents become durable in bounded
//! batches; then all of its processes are created in one commit (MOVE-1).
//!
//! [`dormouse_kernel::export`] parses and checks the format, and says how each process is born
//! here: its row in the process table, and its image ([`Birth`]).
//!
//! Reads an opened file and blocks. If the import fails before the processes are created, it leaves
//! only contents that no record refers to, which garbage collection sweeps.

use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom};

use dormouse_content::Content;
use dormouse_kernel::export::{Birth, Checker, ExportError, ExportVisitor, Keep, Manifest};
use dormouse_kernel::process::{StartMode, State, with_effect_policy};
use dormouse_kernel::program::Program;
use dormouse_proto::effect::EffectPolicy;
use dormouse_proto::id::{ContentHash, Pid};
use dormouse_proto::process::BranchOrigin;
use dormouse_proto::record::ContentRef;
use dormouse_proto::temp_file::TempFileRecord;
use tokio::sync::oneshot;

use crate::checkpoint::{CommitError, LogRecord};
use crate::clock::now_ms;
use crate::context::KernelContext;
use crate::error::{ExportFailure, KernelError};
use crate::recovery::{self, LoadError, LoadPurpose};
use crate::supervisor::RestoredProcess;

/// The size of the chunks in which the file is read.
const CHUNK_BYTES: usize = 1 << 20;

/// A batch of contents is committed once it has this many bytes, or [`BATCH_CONTENTS`] contents.
const BATCH_BYTES: u64 = 8 << 20;
const BATCH_CONTENTS: usize = 256;

/// Reads an export from its beginning and checks all of it. `visitor` receives the parts that the
/// manifest does not hold. Blocks; costs one pass over the file.
///
/// # Errors
/// [`ExportFailure::Unusable`](crate::ExportFailure::Unusable),
/// [`ExportFailure::File`](crate::ExportFailure::File).
pub fn read_export(
    mut file: impl Read,
    visitor: &mut impl ExportVisitor,
) -> Result<Manifest, KernelError> {
    check_file(&mut file, Keep::Processes, visitor, &mut |_| Ok(()))
}

/// Like [`read_export`], but the manifest keeps only programs and no processes; `visitor` receives
/// the processes.
///
/// # Errors
/// As [`read_export`].
pub fn scan_export(
    mut file: impl Read,
    visitor: &mut impl ExportVisitor,
) -> Result<Manifest, KernelError> {
    check_file(&mut file, Keep::Programs, visitor, &mut |_| Ok(()))
}

/// Like [`read_export`]; `after` runs after each chunk and can stop the check with an error.
fn check_file<T: ExportVisitor>(
    file: &mut impl Read,
    keep: Keep,
    visitor: &mut T,
    after_chunk: &mut dyn FnMut(&mut T) -> Result<(), KernelError>,
) -> Result<Manifest, KernelError> {
    let mut checker = Checker::new(keep);
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let len = match file.read(&mut chunk) {
            Ok(0) => return Ok(checker.finish()?),
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(source) => return Err(read_error(source)),
        };
        checker.feed(&chunk[..len], visitor)?;
        after_chunk(visitor)?;
    }
}

fn read_error(source: io::Error) -> KernelError {
    KernelError::Export(ExportFailure::File {
        doing: "read",
        source,
    })
}

/// An export that was checked, with the programs of its processes in order.
pub(crate) struct CheckedExport {
    pub(crate) manifest: Manifest,
    programs: Vec<Program>,
}

/// Checks that an export is valid, and that its processes can be loaded in this kernel. If they
/// will run, their tools and prices must be available.
///
/// # Errors
/// [`ExportFailure::Unusable`](crate::ExportFailure::Unusable),
/// [`ExportFailure::File`](crate::ExportFailure::File),
/// [`StoreFailure::Load`](crate::StoreFailure::Load).
pub(crate) fn check_export(
    context: &KernelContext,
    file: &mut (impl Read + Seek),
    purpose: LoadPurpose,
) -> Result<CheckedExport, KernelError> {
    rewind(file)?;
    let manifest = read_export(&mut *file, &mut ())?;
    let mut compiled: BTreeMap<(ContentHash, &str), Program> = BTreeMap::new();
    let mut programs = Vec::new();
    for birth in manifest.births() {
        let image = &birth.member().image;
        let pid = birth.member().row.pid;
        let program_key = (image.bundle.hash, &*image.program);
        let program = match compiled.get(&program_key) {
            Some(program) => program.clone(),
            None => {
                let no_program = || ExportError::Invalid {
                    what: format!("process {pid} has no program"),
                };
                let bundle = manifest
                    .programs
                    .get(&program_key.0)
                    .ok_or_else(no_program)?;
                let program =
                    recovery::compile_from_bundle(context, pid, bundle, program_key.1, purpose)?;
                compiled.insert(program_key, program.clone());
                program
            }
        };
        check_image(context, birth, &program, purpose)?;
        programs.push(program);
    }
    drop(compiled);
    Ok(CheckedExport { manifest, programs })
}

/// Checks that an image makes a valid process. Contents are not read.
fn check_image(
    context: &KernelContext,
    birth: Birth<'_>,
    program: &Program,
    purpose: LoadPurpose,
) -> Result<(), LoadError> {
    let row = birth.row();
    let image = initial_image(context, birth, StartMode::Running);
    let state = State::from_image(
        row.local_id(),
        program.clone(),
        context.host_context.clone(),
        image,
    )
    .map_err(|source| LoadError::State {
        pid: row.pid,
        source,
    })?;
    recovery::check_prices(context, row.pid, &state, purpose)
}

fn initial_image(
    context: &KernelContext,
    birth: Birth<'_>,
    start_mode: StartMode,
) -> dormouse_kernel::process::Image {
    let mut to_content = |content: ContentRef| {
        Ok::<_, std::convert::Infallible>(context.content_cache.content(content))
    };
    let Ok(image) = birth.member().image.clone().try_map(&mut to_content);
    birth.image(image, now_ms(), start_mode)
}

/// Makes the contents of an export durable. Holds one batch, or the largest content, in memory.
///
/// # Errors
/// [`StoreFailure::NotDurable`](crate::StoreFailure::NotDurable),
/// [`ExportFailure::File`](crate::ExportFailure::File);
/// [`ExportFailure::Unusable`](crate::ExportFailure::Unusable) if the file has changed in the
/// meantime.
pub(crate) fn store_contents(
    context: &KernelContext,
    file: &mut (impl Read + Seek),
    export: &CheckedExport,
) -> Result<(), KernelError> {
    rewind(file)?;
    let mut batch = ContentBatch::default();
    let second_manifest = check_file(file, Keep::Programs, &mut batch, &mut |batch| match batch
        .is_full()
    {
        true => batch.commit(context),
        false => Ok(()),
    })?;
    batch.commit(context)?;
    if second_manifest.id != export.manifest.id {
        let what = "it was replaced by another while it was read".to_owned();
        return Err(ExportError::Invalid { what }.into());
    }
    Ok(())
}

/// How the pids of the exporting kernel and those of this one go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbering {
    /// A pid can be that of a process here and of another one there.
    Foreign,
    /// No pid is in both.
    Peer,
}

/// The process that a birth continues. To a peer only those ids are foreign that were so before.
fn origin(birth: Birth<'_>, numbering: Numbering) -> BranchOrigin {
    let mut origin = birth.restored();
    if let (Numbering::Peer, Some(import)) = (numbering, &mut origin.import) {
        let before = birth.member().row.branched_from;
        let before = before.and_then(|origin| origin.import);
        import.last_pid = before.map_or(Pid(0), |import| import.last_pid);
    }
    origin
}

/// Builds the processes to create from an export. The contents of the export must be durable.
pub(crate) fn processes(
    context: &KernelContext,
    export: &CheckedExport,
    (start_mode, numbering): (StartMode, Numbering),
    effects: Option<EffectPolicy>,
) -> Vec<RestoredProcess> {
    let process = |(birth, program): (Birth<'_>, &Program)| {
        let image = initial_image(context, birth, start_mode);
        let image = Box::new(with_effect_policy(image, effects));
        RestoredProcess {
            row: birth.row(),
            branched_from: origin(birth, numbering),
            program: program.clone(),
            image,
        }
    };
    export
        .manifest
        .births()
        .zip(&export.programs)
        .map(process)
        .collect()
}

/// The changes of the temporary files, as the export lists them.
pub(crate) fn temp_files(
    context: &KernelContext,
    export: &CheckedExport,
) -> Vec<TempFileRecord<Content>> {
    let mut to_content = |content: ContentRef| {
        Ok::<_, std::convert::Infallible>(context.content_cache.content(content))
    };
    let to_content = |change: &TempFileRecord<ContentRef>| {
        let Ok(change) = change.clone().try_map(&mut to_content);
        change
    };
    export.manifest.files.iter().map(to_content).collect()
}

/// Whether the store still has the imported contents. A garbage collection may have swept them,
/// because no record refers to them before the processes are created.
pub(crate) fn has_all_contents(context: &KernelContext, export: &CheckedExport) -> bool {
    let Some(store) = context.store_handle() else {
        return true;
    };
    export
        .manifest
        .contents
        .keys()
        .all(|hash| store.content(*hash).is_ok())
}

fn rewind(file: &mut impl Seek) -> Result<(), KernelError> {
    file.seek(SeekFrom::Start(0)).map(drop).map_err(read_error)
}

/// Contents that will be committed together.
#[derive(Default)]
struct ContentBatch {
    partial: Vec<u8>,
    contents: Vec<Content>,
    bytes: u64,
}

impl ExportVisitor for ContentBatch {
    fn part(&mut self, bytes: &[u8]) {
        self.partial.extend_from_slice(bytes);
    }

    fn closed(&mut self, content: ContentRef) {
        self.bytes += content.len;
        self.contents
            .push(Content::new(std::mem::take(&mut self.partial)));
    }
}

impl ContentBatch {
    fn is_full(&self) -> bool {
        self.bytes >= BATCH_BYTES || self.contents.len() >= BATCH_CONTENTS
    }

    /// Waits until the contents are written. They need no sync of their own: the commit of the
    /// processes syncs them.
    fn commit(&mut self, context: &KernelContext) -> Result<(), KernelError> {
        let records = std::mem::take(&mut self.contents)
            .into_iter()
            .map(LogRecord::Content)
            .collect();
        self.bytes = 0;
        let (reply, committed) = oneshot::channel();
        context.append_records(
            records,
            Box::new(move |result: Result<_, CommitError>| drop(reply.send(result.map(drop)))),
        );
        Ok(committed
            .blocking_recv()
            .map_err(|_| KernelError::Closed)??)
    }
}
