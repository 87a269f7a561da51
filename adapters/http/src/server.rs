//! What servers of ours share: which clients are admitted, and how many connections there are.

mod admission;
mod body;
mod connections;

use std::io;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

pub use self::admission::{Hosts, Token, is_origin_allowed};
pub use self::body::{BodyError, read_body};
pub use self::connections::{Connections, RequestGuard, Slot};

/// A listener for connections.
pub trait Listener: Send + Sync {
    /// A connection.
    type Stream: Send;

    /// Waits for the next connection.
    fn next(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<TcpStream> {
        let (stream, _) = self.accept().await?;
        // If this fails, small messages are sent with a delay, which is harmless.
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }
}

#[cfg(unix)]
impl Listener for tokio::net::UnixListener {
    type Stream = tokio::net::UnixStream;

    async fn next(&self) -> io::Result<tokio::net::UnixStream> {
        self.accept().await.map(|(stream, _)| stream)
    }
}

/// Accepts the next connection of a listener. A connection that fails immediately is skipped. If the
/// system is out of resources, waits and tries again.
///
/// # Errors
/// If the listener cannot accept connections at all.
pub async fn accept<L: Listener>(listener: &L) -> io::Result<L::Stream> {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, InvalidInput};
    loop {
        match listener.next().await {
            Ok(stream) => return Ok(stream),
            Err(error)
                if matches!(
                    error.kind(),
                    ConnectionAborted | ConnectionReset | Interrupted
                ) => {}
            Err(error) if error.kind() == InvalidInput => return Err(error),
            Err(error) => {
                tracing::warn!("no connection can be accepted: {error}");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
}
