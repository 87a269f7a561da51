//! Servers that answer nothing, or the same to everything.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use dormouse_objects::ObjectContents;
use dormouse_objects::ObjectOptions;

/// A server until the test ends, and how many connections it got.
pub(crate) struct FakeServer {
    pub(crate) endpoint: String,
    pub(crate) connections: Arc<AtomicUsize>,
}

impl FakeServer {
    /// Accepts connections and says nothing.
    pub(crate) fn silent() -> Self {
        Self::start(None)
    }

    /// Answers everything with a status and a text.
    pub(crate) fn answering(status: &'static str, text: impl Into<String>) -> Self {
        Self::start(Some((status, text.into())))
    }

    fn start(answer: Option<(&'static str, String)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let connections = Arc::new(AtomicUsize::new(0));
        let count = connections.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                let mut client = client.unwrap();
                count.fetch_add(1, Ordering::Relaxed);
                let answer = answer.clone();
                thread::spawn(move || {
                    let mut request = vec![0; 64 << 10];
                    let _length = client.read(&mut request);
                    if let Some((status, text)) = answer {
                        let length = text.len();
                        let head = format!(
                            "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
                        );
                        let _sent = client.write_all((head + &text).as_bytes());
                    } else {
                        thread::sleep(Duration::from_secs(60));
                    }
                });
            }
        });
        Self {
            endpoint,
            connections,
        }
    }

    pub(crate) fn open(&self) -> ObjectContents {
        impatient(&self.endpoint)
    }
}

/// A store whose requests end soon.
pub(crate) fn impatient(endpoint: &str) -> ObjectContents {
    let options = ObjectOptions::new("s3://bucket/prefix")
        .endpoint(endpoint)
        .request_timeout(Duration::from_millis(300))
        .retry_for(Duration::from_millis(600));
    ObjectContents::open(options).unwrap()
}
