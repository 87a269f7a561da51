//! Imports: the processes of an export as new processes of this kernel.

use std::future::IntoFuture;
use std::io::{Read, Seek};

use dormouse_kernel::process::StartMode;
use dormouse_proto::effect::EffectPolicy;
use dormouse_proto::id::Pid;
use dormouse_proto::label::{Label, labels_of_tree};
use dormouse_proto::process::ExportId;
use futures_util::future::BoxFuture;

use super::kernel::Kernel;
use super::process::Process;
use crate::error::{KernelError, StoreFailure};
use crate::import::{self, Numbering};
use crate::recovery::LoadPurpose;
use crate::supervisor::{BranchRequest, Launch};

/// The most attempts. An attempt is repeated if a garbage collection frees the imported contents
/// before the processes are created.
const MAX_ATTEMPTS: u32 = 3;

/// An import that starts when it is awaited.
#[derive(Debug)]
#[must_use = "an import is made when this is awaited"]
pub struct Import<R> {
    kernel: Kernel,
    file: R,
    start_mode: StartMode,
    launch: Launch,
    effects: Option<EffectPolicy>,
    labels: Vec<Label>,
    numbering: Numbering,
}

/// The result of an import.
#[derive(Clone, Debug)]
pub struct ImportedTree {
    /// The id of the export.
    pub export: ExportId,
    /// The new process for the exported one.
    pub process: Process,
    /// The pid of each process in the exporting store, and its pid in this kernel, sorted by the
    /// latter.
    pub pids: Vec<(Pid, Pid)>,
}

impl Kernel {
    /// Begins to import an export: its processes are created with new pids, all in one commit, with
    /// the temporary files of their tree and the messages in flight between them. The whole file is
    /// checked first, and nothing is imported if any part of it is invalid. Contents become durable
    /// in batches before the processes are created. All process states and the largest content are
    /// in memory.
    ///
    /// The processes resume like those of a [`branch`](Self::branch), and keep the ids in their
    /// conversations. The id of a process that was not exported refers to no process: an imported
    /// process can neither name a process of this kernel that happens to have this pid, nor receive
    /// messages from it. New pids are greater than all pids of the exporting store, unless those are
    /// beyond the [range](super::KernelBuilder::pids) of this kernel. A process keeps
    /// its name if no living process has it. Importing a file runs the programs in it, under the
    /// permissions of this host; importing it twice creates two of each process.
    ///
    /// All processes run, including those that were stopped, unless the import is
    /// [`stopped`](Import::stopped) or [`held`](Import::held).
    ///
    /// # Errors
    /// When awaited: [`ExportFailure::Unusable`](crate::ExportFailure::Unusable) for a file that
    /// was truncated, altered, written by a later version, or is not an export;
    /// [`ExportFailure::File`](crate::ExportFailure::File) if it cannot be read;
    /// [`StoreFailure::Load`](crate::StoreFailure::Load) if a program needs a tool or a price that
    /// this kernel lacks; [`StoreFailure::NoStore`](crate::StoreFailure::NoStore),
    /// [`StoreFailure::NotDurable`](crate::StoreFailure::NotDurable); [`KernelError::Label`] for
    /// [labels](Import::labels) that no tree can have. After an error, no process was created.
    pub fn import<R: Read + Seek + Send + 'static>(&self, file: R) -> Import<R> {
        Import {
            kernel: self.clone(),
            file,
            start_mode: StartMode::Running,
            launch: Launch::Run,
            effects: None,
            labels: Vec::new(),
            numbering: Numbering::Foreign,
        }
    }
}

impl<R: Read + Seek + Send + 'static> Import<R> {
    /// The processes start stopped, and begin nothing until they are continued.
    pub fn stopped(mut self) -> Self {
        self.start_mode = StartMode::Stopped;
        self
    }

    /// The processes are held, like those of a store that was just opened: they do not run until
    /// they are resumed or receive an input. Until then their tools may be missing in this kernel.
    pub fn held(mut self) -> Self {
        self.launch = Launch::Hold;
        self
    }

    /// The processes that were stopped stay stopped, and the others run: for a tree that moves here.
    pub fn as_original(mut self) -> Self {
        self.start_mode = StartMode::AsOriginal;
        self
    }

    /// The exporting kernel is a [peer](super::KernelBuilder::peers), and no pid is in its range and in
    /// that of this kernel: outside of the tree a pid names the same process for the imported processes
    /// as for all others, so that they can go on to write to those that they know.
    pub fn from_peer(mut self) -> Self {
        self.numbering = Numbering::Peer;
        self
    }

    /// Gives the tree labels, in the commit that creates it. An export has none.
    pub fn labels(mut self, labels: impl IntoIterator<Item = Label>) -> Self {
        self.labels.extend(labels);
        self
    }

    /// Names what happens to calls that repeat what the exported processes did beyond the position
    /// of the export, as [`Branch::effects`](super::Branch::effects) does.
    pub fn effects(mut self, policy: EffectPolicy) -> Self {
        self.effects = Some(policy);
        self
    }

    async fn run(self) -> Result<ImportedTree, KernelError> {
        let Self {
            kernel,
            mut file,
            start_mode,
            launch,
            effects,
            labels,
            numbering,
        } = self;
        let labels = labels_of_tree(labels)?;
        if !kernel.context.has_store {
            return Err(StoreFailure::NoStore.into());
        }
        let purpose = match launch {
            Launch::Run => LoadPurpose::Run,
            Launch::Hold => LoadPurpose::Inspect,
        };
        let mut attempt = 1;
        loop {
            let context = kernel.context.clone();
            let store_contents = move || {
                let checked = import::check_export(&context, &mut file, purpose)?;
                import::store_contents(&context, &mut file, &checked)?;
                Ok::<_, KernelError>((file, checked))
            };
            let (returned_file, checked) = tokio::task::spawn_blocking(store_contents).await??;
            file = returned_file;
            let mut processes =
                import::processes(&kernel.context, &checked, (start_mode, numbering), effects);
            if let Some(root) = processes.first_mut() {
                root.row.labels = labels.clone();
            }
            let temp_files = import::temp_files(&kernel.context, &checked);
            let exported_pids: Vec<Pid> = processes.iter().map(|process| process.row.pid).collect();
            let request = |reply| BranchRequest {
                processes,
                requested_index: 0,
                temp_files,
                drop_checkpoint: None,
                launch,
                reply,
            };
            match kernel.create_branch(request).await {
                Ok((process, new_pids)) => {
                    let pids = exported_pids.into_iter().zip(new_pids).collect();
                    return Ok(ImportedTree {
                        export: checked.manifest.id,
                        process,
                        pids,
                    });
                }
                Err(error @ KernelError::Store(StoreFailure::NotDurable(_)))
                    if attempt < MAX_ATTEMPTS =>
                {
                    let context = kernel.context.clone();
                    let has_all = tokio::task::spawn_blocking(move || {
                        import::has_all_contents(&context, &checked)
                    });
                    if has_all.await? {
                        return Err(error);
                    }
                    attempt += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl<R: Read + Seek + Send + 'static> IntoFuture for Import<R> {
    type Output = Result<ImportedTree, KernelError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}
