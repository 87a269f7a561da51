//! A proxy in front of a server: counts requests, and cuts connections.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::stores::TestStore;

/// A proxy of one server, until the test ends.
pub(crate) struct Proxy {
    traffic: Arc<Mutex<Traffic>>,
}

#[derive(Default)]
struct Traffic {
    /// The method, the key and the query of each request.
    requests: Vec<String>,
    /// What becomes of the answer to the next request that contains these texts.
    faults: Vec<([&'static str; 2], Fault)>,
}

/// What a client gets in place of the answer of the server, which has done what it was asked.
#[derive(Clone, Copy)]
pub(crate) enum Fault {
    /// The connection ends.
    Cut,
    /// Nothing comes.
    Silence,
    /// Another answer.
    Answer(&'static str),
}

impl Proxy {
    /// A proxy in front of the server of a store, whose endpoint becomes the proxy.
    pub(crate) fn before(store: &mut TestStore) -> Self {
        let endpoint = store.endpoint.take().expect("the store is on a server");
        let server = endpoint
            .strip_prefix("http://")
            .expect("it speaks HTTP")
            .to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let traffic = Arc::<Mutex<Traffic>>::default();
        let shared = traffic.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(&server).unwrap());
                forward(client, server, &shared);
            }
        });
        store.endpoint = Some(format!("http://{address}"));
        Self { traffic }
    }

    /// The requests since the last call.
    pub(crate) fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.traffic.lock().unwrap().requests)
    }

    /// Replaces the answer to the next request with this method and part of a query.
    pub(crate) fn spoil(&self, method: &'static str, query: &'static str, fault: Fault) {
        self.traffic
            .lock()
            .unwrap()
            .faults
            .push(([method, query], fault));
    }

    pub(crate) fn has_spoiled_all(&self) -> bool {
        self.traffic.lock().unwrap().faults.is_empty()
    }
}

fn forward(mut client: TcpStream, mut server: TcpStream, traffic: &Arc<Mutex<Traffic>>) {
    let (mut from_server, mut to_client) =
        (server.try_clone().unwrap(), client.try_clone().unwrap());
    let latest = Arc::<Mutex<String>>::default();
    let (shared, shared_latest) = (traffic.clone(), latest.clone());
    thread::spawn(move || {
        let mut seen = Vec::new();
        let mut buffer = vec![0; 64 << 10];
        while let Ok(length @ 1..) = client.read(&mut buffer) {
            seen.extend(&buffer[..length]);
            while let Some(request) = next_request(&mut seen) {
                shared_latest.lock().unwrap().clone_from(&request);
                shared.lock().unwrap().requests.push(request);
            }
            if server.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        let _closed = server.shutdown(Shutdown::Both);
    });
    let traffic = traffic.clone();
    thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(length @ 1..) = from_server.read(&mut buffer) {
            let mut traffic = traffic.lock().unwrap();
            let request = latest.lock().unwrap().clone();
            let concerns =
                |(texts, _): &([&str; 2], Fault)| texts.iter().all(|text| request.contains(text));
            if let Some(at) = traffic.faults.iter().position(concerns) {
                let (_, fault) = traffic.faults.remove(at);
                drop(traffic);
                match fault {
                    Fault::Cut => {}
                    Fault::Silence => thread::sleep(Duration::from_secs(60)),
                    Fault::Answer(answer) => to_client.write_all(answer.as_bytes()).unwrap(),
                }
                break;
            }
            drop(traffic);
            if to_client.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        let _closed = to_client.shutdown(Shutdown::Both);
        let _closed = from_server.shutdown(Shutdown::Both);
    });
}

/// The next request in what a client sent, without its protocol. Forgets what precedes it.
fn next_request(seen: &mut Vec<u8>) -> Option<String> {
    const END: &[u8] = b" HTTP/1.1\r\n";
    let end = seen.windows(END.len()).position(|window| window == END);
    let Some(end) = end else {
        // The longest line of a request is shorter.
        let start = seen.len().saturating_sub(4 << 10);
        seen.drain(..start);
        return None;
    };
    let line = &seen[..end];
    let start = ["GET /", "PUT /", "POST /", "HEAD /", "DELETE /"]
        .iter()
        .filter_map(|method| {
            let method = method.as_bytes();
            line.windows(method.len())
                .rposition(|window| window == method)
        })
        .max();
    let request = String::from_utf8_lossy(&line[start.expect("a request has a method")..]);
    let request = request.into_owned();
    seen.drain(..end + END.len());
    Some(request)
}
