//! Runs asynchronous requests for callers that block.

use std::future::Future;
use std::io;
use std::sync::mpsc;

use dormouse_actors::ports::StoreError;
use tokio::runtime::{Builder, Runtime};

/// How many threads perform requests. They only wait for the network; hashing is done by them too.
const THREADS: usize = 2;

/// A runtime of its own, so that a caller on any thread, one of another runtime included, can wait
/// for a request.
#[derive(Debug)]
pub(crate) struct Worker(Option<Runtime>);

impl Worker {
    pub(crate) fn start() -> Result<Self, StoreError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("dormouse-objects")
            .enable_all()
            .build();
        match runtime {
            Ok(runtime) => Ok(Self(Some(runtime))),
            Err(source) => Err(StoreError::Io {
                doing: "start the threads for requests to the object store".to_owned(),
                source,
            }),
        }
    }

    /// Waits until `task` is done. The task goes on if the caller's thread ends.
    pub(crate) fn wait_for<T: Send + 'static>(
        &self,
        task: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let runtime = self.0.as_ref().expect("the runtime ends with the worker");
        runtime.spawn(async move {
            // The caller waits for the answer below.
            let _received = sender.send(task.await);
        });
        receiver.recv().unwrap_or_else(|_| {
            Err(StoreError::Io {
                doing: "finish a request to the object store".to_owned(),
                source: io::Error::other("its task panicked. Report this with the log"),
            })
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Dropping a runtime waits for its threads, which panics on a thread of another runtime.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
