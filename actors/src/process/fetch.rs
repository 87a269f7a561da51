//! Reads the files that a spawned child starts with, under the permissions of the host. It runs in
//! a task, so that the actor does not block.

use std::path::Path;

use dormouse_content::{CappedBytes, Content};
use dormouse_kernel::process::{
    Completion, FetchError, FetchedFile, MAX_PRELOAD_BYTES, PendingSpawn,
};
use dormouse_proto::id::CallId;
use dormouse_proto::temp_file::{TempFileOp, TempFileReply};
use futures_util::future::{BoxFuture, FutureExt, join_all};

use super::RunningProcess;
use super::temp_file_op::TempFileResult;
use crate::clock::now_ms;
use crate::ports::Host;

impl RunningProcess {
    pub(super) fn fetch_spawn_files(&mut self, call: CallId, pending: PendingSpawn) {
        let requests = pending.temp_files.iter().map(|id| {
            self.request_temp_file(call, TempFileOp::Read { id: *id }, MAX_PRELOAD_BYTES)
        });
        let temp_files: Vec<_> = requests.collect();
        let host = self.context.host.clone();
        let requested = pending.clone();
        let work = async move {
            let temp_files = await_contents(temp_files).await?;
            let read = tokio::task::spawn_blocking(move || {
                let files = requested.files.iter().map(|path| read_file(&*host, path));
                let temp_files = requested.temp_files.iter().zip(temp_files);
                let temp_files = temp_files.map(|(&id, (version, content))| {
                    Ok(FetchedFile::TempFile {
                        id,
                        version,
                        content,
                    })
                });
                let files = files.chain(temp_files).collect::<Result<_, _>>()?;
                requested.place(files, now_ms())
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
fn read_file(host: &dyn Host, path: &str) -> Result<FetchedFile, FetchError> {
    match host
        .read_capped(Path::new(path), MAX_PRELOAD_BYTES)
        .map_err(FetchError::File)?
    {
        CappedBytes {
            bytes,
            cut_bytes: 0,
        } => Ok(FetchedFile::File {
            path: path.to_owned(),
            content: Content::new(bytes),
        }),
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
