//! Serves one session over a pipe: each line is a JSON-RPC message, in both directions.

use std::sync::Arc;

use rmcp::service::{ServerInitializeError, serve_server_with_ct};
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::bounded_lines::BoundedLines;
use crate::handler::{Handler, Sessions};
use crate::server::{McpServer, ServeError};

/// The longest message of a client. A longer one ends its session.
const MAX_LINE_BYTES: usize = 64 << 20;

impl McpServer {
    /// Serves one client, which writes to `input` and reads from `output`, until `input` ends or
    /// `until` resolves. Calls that are in flight when `input` ends are cancelled after five
    /// seconds.
    ///
    /// Only messages of the protocol are written to `output`.
    ///
    /// # Errors
    /// [`ServeError::Session`] if the client sends anything else before the handshake.
    pub async fn serve_pipe(
        &self,
        input: impl AsyncRead + Send + Unpin + 'static,
        output: impl AsyncWrite + Send + Unpin + 'static,
        until: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let input = BoundedLines::new(input, MAX_LINE_BYTES);
        let transport =
            AsyncRwTransport::new_server(input, output).with_max_line_length(MAX_LINE_BYTES + 1);
        let session_process = Arc::new(self.new_session(Arc::new(Semaphore::new(1))));
        let stop = CancellationToken::new();
        let serving = async {
            match serve_server_with_ct(
                Handler::new(session_process, Sessions::PerConnection),
                transport,
                stop.clone(),
            )
            .await
            {
                Ok(running) => match running.waiting().await {
                    Ok(_) => Ok(()),
                    Err(error) => Err(ServeError::Session(error.to_string())),
                },
                // The client left before it sent anything.
                Err(
                    ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled,
                ) => Ok(()),
                Err(error) => Err(ServeError::Session(error.to_string())),
            }
        };
        let mut serving = std::pin::pin!(serving);
        tokio::select! {
            end = &mut serving => end,
            () = until => {
                stop.cancel();
                serving.await
            }
        }
    }
}
