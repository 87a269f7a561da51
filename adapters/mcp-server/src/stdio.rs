//! One session over a pipe: a JSON-RPC message a line, in and out.

use std::sync::Arc;

use rmcp::service::{ServerInitializeError, serve_server_with_ct};
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::handler::{Handler, Sessions};
use crate::line::Lines;
use crate::seat::Seat;
use crate::server::{McpServer, ServeError};

/// What a client may say at once. What it says beyond that ends its session.
const MAX_LINE_BYTES: usize = 64 << 20;

impl McpServer {
    /// Serves one client, which writes to `input` and reads from `output`, until `input` ends or
    /// `until` resolves. Calls that are in flight when `input` ends have five seconds to be
    /// answered; then they are given up.
    ///
    /// Nothing but messages of the protocol is written to `output`.
    ///
    /// # Errors
    /// [`ServeError::Session`] where the client says something else before it begins.
    pub async fn serve_pipe(
        &self,
        input: impl AsyncRead + Send + Unpin + 'static,
        output: impl AsyncWrite + Send + Unpin + 'static,
        until: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let input = Lines::new(input, MAX_LINE_BYTES);
        let transport =
            AsyncRwTransport::new_server(input, output).with_max_line_length(MAX_LINE_BYTES + 1);
        let seat = Arc::new(Seat::new(
            self.processes.clone(),
            Arc::new(Semaphore::new(1)),
        ));
        let stop = CancellationToken::new();
        let serving = async {
            match serve_server_with_ct(Handler::new(seat, Sessions::Have), transport, stop.clone())
                .await
            {
                Ok(running) => match running.waiting().await {
                    Ok(_) => Ok(()),
                    Err(error) => Err(ServeError::Session(error.to_string())),
                },
                // It went before it said anything.
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
