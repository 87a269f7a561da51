//! Waits for the browser, which an authorization server sends back to this machine with a code.
//!
//! Only this machine can connect. Whoever does cannot log in with a code of theirs: the address has
//! to hold the random state of this login, which is checked by those who use the address.

use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::failure::Failure;

const PATH: &str = "/callback";
/// The longest request of a browser. What is longer is not from an authorization server.
const MAX_REQUEST_BYTES: u64 = 64 << 10;
/// How long a connection may take to send its request, so that it does not keep the browser out.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// A listener for one redirect.
pub(super) struct Callback {
    listener: TcpListener,
    port: u16,
}

impl Callback {
    /// Listens on this machine; at any free port if `port` is 0.
    pub(super) async fn listen(port: u16) -> Result<Self, Failure> {
        let cannot_listen = |error: std::io::Error| {
            Failure::Usage(format!("cannot listen at 127.0.0.1:{port}: {error}"))
        };
        let listener = TcpListener::bind(("127.0.0.1", port)).await;
        let listener = listener.map_err(cannot_listen)?;
        let port = listener.local_addr().map_err(cannot_listen)?.port();
        Ok(Self { listener, port })
    }

    /// Where the browser has to be sent.
    pub(super) fn redirect_uri(&self) -> String {
        format!("http://127.0.0.1:{}{PATH}", self.port)
    }

    /// The address to which the browser was sent, or which the user has pasted.
    pub(super) async fn redirected_address(&self) -> Result<String, Failure> {
        tokio::select! {
            target = self.redirected_target() => {
                Ok(format!("http://127.0.0.1:{}{}", self.port, target?))
            }
            pasted = pasted_address() => Ok(pasted),
        }
    }

    async fn redirected_target(&self) -> Result<String, Failure> {
        loop {
            let (stream, _) = self.listener.accept().await?;
            // A connection that fails is that of another program, or is made again.
            if let Ok(Ok(Some(target))) = timeout(REQUEST_TIMEOUT, answer(stream)).await {
                return Ok(target);
            }
        }
    }
}

/// Answers a request, and returns its target if it is the redirect.
async fn answer(mut stream: TcpStream) -> std::io::Result<Option<String>> {
    let (reading, mut writing) = stream.split();
    let mut lines = BufReader::new(reading.take(MAX_REQUEST_BYTES)).lines();
    let first = lines.next_line().await?.unwrap_or_default();
    // A browser takes no answer before it has sent its headers.
    while lines
        .next_line()
        .await?
        .is_some_and(|line| !line.is_empty())
    {}
    let target = redirect_target(&first);
    let (status, text) = match target {
        Some(_) => (
            "200 OK",
            "You can close this page, and go back to the terminal.",
        ),
        None => ("404 Not Found", "Nothing is here."),
    };
    let response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{text}",
        text.len()
    );
    writing.write_all(response.as_bytes()).await?;
    writing.shutdown().await?;
    Ok(target.map(str::to_owned))
}

/// The target of a request, such as `/callback?code=…`, if it is one for the redirect.
fn redirect_target(request_line: &str) -> Option<&str> {
    let target = request_line.strip_prefix("GET ")?.split(' ').next()?;
    let query = target.strip_prefix(PATH)?.strip_prefix('?')?;
    let is_redirect = query
        .split('&')
        .any(|pair| pair.starts_with("code=") || pair.starts_with("error="));
    is_redirect.then_some(target)
}

/// A line of standard input that is an address. Never resolves if there is none.
async fn pasted_address() -> String {
    let (sender, receiver) = oneshot::channel();
    // Not a task of the runtime: that would wait for a line at the end of the program.
    std::thread::spawn(move || {
        let mut lines = std::io::stdin().lines().map_while(Result::ok);
        if let Some(line) = lines.find(|line| line.contains("://")) {
            // The browser may have come first.
            let _ = sender.send(line.trim().to_owned());
        }
    });
    match receiver.await {
        Ok(address) => address,
        Err(_) => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_redirect_with_an_answer_is_taken() {
        let line = "GET /callback?state=s&code=c HTTP/1.1";
        assert_eq!(redirect_target(line), Some("/callback?state=s&code=c"));
        for other in [
            "GET /favicon.ico HTTP/1.1",
            "GET /callback HTTP/1.1",
            "GET /callback?x=1 HTTP/1.1",
            "POST /callback?code=c HTTP/1.1",
            "",
        ] {
            assert_eq!(redirect_target(other), None, "{other}");
        }
    }
}
