//! Imports: what an export holds, as new processes of this kernel.

use std::future::IntoFuture;
use std::io::{Read, Seek};

use dormouse_kernel::process::Beginning;
use dormouse_proto::id::Pid;
use dormouse_proto::process::ExportId;
use futures_util::future::BoxFuture;

use super::kernel::Kernel;
use super::process::Process;
use crate::error::{KernelError, StoreFailure};
use crate::import;
use crate::recovery::LoadPurpose;
use crate::supervisor::{BranchRequest, Launch};

/// So often an import is tried whose contents are swept before its processes are born.
const MAX_ATTEMPTS: u32 = 3;

/// An import about to be made: `.await` makes it.
#[derive(Debug)]
#[must_use = "an import is made when this is awaited"]
pub struct Import<R> {
    kernel: Kernel,
    file: R,
    beginning: Beginning,
    launch: Launch,
}

/// What was imported.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The export.
    pub export: ExportId,
    /// What has become of the process that it is of.
    pub process: Process,
    /// Each process by its number in the store that the export is of, and its pid here, by rising
    /// pid.
    pub pids: Vec<(Pid, Pid)>,
}

impl Kernel {
    /// Begins to take in an export: its processes are born here under new pids, all in one commit,
    /// with the temporary files of their tree and the messages that were on their way between them.
    /// All of the file is checked first, and nothing of it is used where anything is wrong.
    /// Contents become durable before the births, in batches. In memory are all images, and the
    /// largest content.
    ///
    /// They go on as those of a branch ([`branch`](Self::branch)), and go on knowing each other by
    /// the numbers in their conversations. Whoever else had a number there is nobody here: of the
    /// processes of this kernel, those with such a number can neither be named to them nor write to
    /// them. New pids are greater than those numbers. A process keeps its name where nobody has it
    /// here. To import a file is to run the programs in it, under what this host permits; importing
    /// it twice makes two of each.
    ///
    /// They run, also those that were stopped, unless they are [`stopped`](Import::stopped) or
    /// [`held`](Import::held).
    ///
    /// # Errors
    /// When awaited: [`ExportFailure::Unusable`](crate::ExportFailure::Unusable) for a file that
    /// was cut off, altered, of a later version, or no export;
    /// [`ExportFailure::File`](crate::ExportFailure::File) where it cannot be read;
    /// [`StoreFailure::Load`](crate::StoreFailure::Load) where a program needs a tool or a price
    /// that this kernel lacks; [`StoreFailure::NoStore`](crate::StoreFailure::NoStore),
    /// [`StoreFailure::NotDurable`](crate::StoreFailure::NotDurable). Nothing was born then.
    pub fn import<R: Read + Seek + Send + 'static>(&self, file: R) -> Import<R> {
        Import {
            kernel: self.clone(),
            file,
            beginning: Beginning::Running,
            launch: Launch::Run,
        }
    }
}

impl<R: Read + Seek + Send + 'static> Import<R> {
    /// Its processes are born stopped, and begin nothing before they are continued.
    pub fn stopped(mut self) -> Self {
        self.beginning = Beginning::Stopped;
        self
    }

    /// Its processes are held: they do not run before they are resumed or spoken to, as those of a
    /// store that was just opened. Tools of theirs may be missing here until then.
    pub fn held(mut self) -> Self {
        self.launch = Launch::Hold;
        self
    }

    async fn make(self) -> Result<Imported, KernelError> {
        let Self {
            kernel,
            mut file,
            beginning,
            launch,
        } = self;
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
            let (read, checked) = tokio::task::spawn_blocking(store_contents)
                .await
                .map_err(|_| KernelError::Closed)??;
            file = read;
            let (processes, files) = (
                import::processes(&kernel.context, &checked, beginning),
                import::temp_files(&kernel.context, &checked),
            );
            let exported_pids: Vec<Pid> = processes.iter().map(|process| process.row.pid).collect();
            let request = |reply| BranchRequest {
                processes,
                requested: 0,
                files,
                drop_checkpoint: None,
                launch,
                reply,
            };
            match kernel.create_branch(request).await {
                Ok((process, here)) => {
                    let pids = exported_pids.into_iter().zip(here).collect();
                    return Ok(Imported {
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
                    if has_all.await.map_err(|_| KernelError::Closed)? {
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
    type Output = Result<Imported, KernelError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.make())
    }
}
