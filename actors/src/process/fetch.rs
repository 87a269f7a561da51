//! Reads the files that a spawned child starts with, under the permissions of the host. It runs in
//! a task, so that the actor does not block.

use std::path::Path;

use dormouse_content::{CappedBytes, Content};
use dormouse_kernel::process::{
    Completion, FetchError, Fetched, MAX_PRELOAD_BYTES, PendingSpawn, ShownPreload,
};
use dormouse_proto::id::CallId;
use dormouse_proto::temp_file::{TempFileOp, TempFileReply, TempId};
use futures_util::future::{BoxFuture, FutureExt, join_all};

use super::RunningProcess;
use super::effects::TempFileResult;
use crate::ports::Host;

impl RunningProcess {
    pub(super) fn fetch_spawn_files(&mut self, call: CallId, pending: PendingSpawn) {
        let requests = pending.temp_files.iter().map(|id| {
            self.request_temp_file(call, TempFileOp::Read { id: *id }, MAX_PRELOAD_BYTES)
        });
        let temp_files: Vec<_> = requests.collect();
        let host = self.context.host.clone();
        let paths = pending.files.clone();
        let ids = pending.temp_files.clone();
        let work = async move {
            let temp_files = await_contents(temp_files).await?;
            let read = tokio::task::spawn_blocking(move || {
                let files = paths
                    .iter()
                    .map(|path| read_file(&*host, path))
                    .collect::<Result<_, _>>()?;
                let to_preload = |(id, (version, content)): (TempId, (u64, Content))| {
                    ShownPreload::temp_file(id, version, &content.unlimited_reader())
                        .map_err(FetchError::Unreadable)
                };
                let temp_files = ids
                    .into_iter()
                    .zip(temp_files)
                    .map(to_preload)
                    .collect::<Result<_, _>>()?;
                Ok(Fetched { files, temp_files })
            });
            read.await
                .unwrap_or_else(|error| Err(FetchError::Internal(error.to_string())))
        };
        let completion = move |result| Completion::Fetched { pending, result };
        self.spawn_work(work.boxed(), call, completion, |why| {
            Err(FetchError::Internal(why))
        });
    }
}

/// Reads a file. A file that is larger than a child may start with is an error.
fn read_file(host: &dyn Host, path: &str) -> Result<ShownPreload, FetchError> {
    match host
        .collect(Path::new(path), MAX_PRELOAD_BYTES)
        .map_err(FetchError::File)?
    {
        CappedBytes {
            bytes,
            cut_bytes: 0,
        } => Ok(ShownPreload::bytes(path, bytes)),
        CappedBytes { .. } => Err(FetchError::TooLarge {
            path: path.to_owned(),
        }),
    }
}

/// Waits for the contents of the requested temporary files.
async fn await_contents(
    requests: Vec<BoxFuture<'static, TempFileResult>>,
) -> Result<Vec<(u64, Content)>, FetchError> {
    let replies = join_all(requests).await.into_iter();
    let content = |reply: TempFileResult| match reply.map_err(FetchError::TempFile)? {
        TempFileReply::Contents {
            version, content, ..
        } => Ok((version, content)),
        TempFileReply::Changed { id, .. } => {
            Err(FetchError::Internal(format!("{id} was not read")))
        }
    };
    replies.map(content).collect()
}
