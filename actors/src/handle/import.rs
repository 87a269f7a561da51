//! Imports: what an export holds, as new processes of this kernel.

use std::future::IntoFuture;
use std::io::{Read, Seek};

use dormouse_kernel::process::StartMode;
use dormouse_proto::id::Pid;
use dormouse_proto::process::ExportId;
use futures_util::future::BoxFuture;

use super::kernel::Kernel;
use super::process::Process;
use crate::error::{KernelError, StoreFailure};
use crate::import;
use crate::recovery::Purpose;
use crate::supervisor::{Branching, Launch};

/// So often an import is tried whose contents are swept before its processes are born.
const TRIES: u32 = 3;

/// An import about to be made: `.await` makes it.
#[derive(Debug)]
#[must_use = "an import is made when this is awaited"]
pub struct Import<R> {
    kernel: Kernel,
    file: R,
    beginning: StartMode,
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
            beginning: StartMode::Running,
            launch: Launch::Run,
        }
    }
}

impl<R: Read + Seek + Send + 'static> Import<R> {
    /// Its processes are born stopped, and begin nothing before they are continued.
    pub fn stopped(mut self) -> Self {
        self.beginning = StartMode::Stopped;
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
        if !kernel.context.is_kept {
            return Err(StoreFailure::NoStore.into());
        }
        let purpose = match launch {
            Launch::Run => Purpose::Run,
            Launch::Hold => Purpose::Look,
        };
        let mut tries = 1;
        loop {
            let context = kernel.context.clone();
            let bring = move || {
                let plan = import::plan(&context, &mut file, purpose)?;
                import::bring(&context, &mut file, &plan)?;
                Ok::<_, KernelError>((file, plan))
            };
            let (read, plan) = tokio::task::spawn_blocking(bring)
                .await
                .map_err(|_| KernelError::Closed)??;
            file = read;
            let (grafts, files) = (
                import::grafts(&kernel.context, &plan, beginning),
                import::files(&kernel.context, &plan),
            );
            let there: Vec<Pid> = grafts.iter().map(|graft| graft.row.pid).collect();
            let branching = |reply| Branching {
                grafts,
                asked: 0,
                files,
                done_with: None,
                launch,
                reply,
            };
            match kernel.grown(branching).await {
                Ok((process, here)) => {
                    let pids = there.into_iter().zip(here).collect();
                    return Ok(Imported {
                        export: plan.manifest.id,
                        process,
                        pids,
                    });
                }
                Err(error @ KernelError::Store(StoreFailure::NotDurable(_))) if tries < TRIES => {
                    let context = kernel.context.clone();
                    let has_all =
                        tokio::task::spawn_blocking(move || import::has_all(&context, &plan));
                    if has_all.await.map_err(|_| KernelError::Closed)? {
                        return Err(error);
                    }
                    tries += 1;
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
