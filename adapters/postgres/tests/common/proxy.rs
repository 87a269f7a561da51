//! A proxy between a program and its server, which loses one message.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// What happens to the next message of the program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The connection ends, and the server never gets the message.
    LoseRequest,
    /// The server gets the message, and the connection ends before its answer arrives.
    LoseAnswer,
    /// The connection ends for the program, and the server gets the message only on `release`.
    Delay,
}

#[derive(Default)]
struct State {
    next: Option<Fault>,
    is_down: bool,
    delayed: Vec<(TcpStream, Vec<u8>)>,
}

pub(crate) struct Proxy {
    port: u16,
    state: Arc<Mutex<State>>,
}

impl Proxy {
    pub(crate) fn to(server_port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let port = listener.local_addr().expect("it is bound").port();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for program in listener.incoming().flatten() {
                let server = TcpStream::connect(("127.0.0.1", server_port));
                let Ok(server) = server else { continue };
                let shared = Arc::clone(&shared);
                thread::spawn(move || forward(program, server, &shared));
            }
        });
        Self { port, state }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Lets the next message fail.
    pub(crate) fn arm(&self, fault: Fault) {
        self.state.lock().unwrap().next = Some(fault);
    }

    /// Ends all connections at their next message, and refuses new ones; or accepts them again.
    pub(crate) fn set_down(&self, is_down: bool) {
        self.state.lock().unwrap().is_down = is_down;
    }

    /// Whether the fault has happened.
    pub(crate) fn is_disarmed(&self) -> bool {
        self.state.lock().unwrap().next.is_none()
    }

    /// Sends the delayed messages, and returns once the server has answered each.
    pub(crate) fn release(&self) -> usize {
        let delayed = std::mem::take(&mut self.state.lock().unwrap().delayed);
        for (server, message) in &delayed {
            let mut server = server;
            server
                .write_all(message)
                .expect("the server still has the connection");
            let mut answer = [0; 4096];
            assert!(server.read(&mut answer).expect("the server answers") > 0);
        }
        delayed.len()
    }
}

fn forward(mut program: TcpStream, mut server: TcpStream, state: &Mutex<State>) {
    for end in [&program, &server] {
        end.set_nodelay(true).expect("it is a socket");
    }
    let back = (server.try_clone().unwrap(), program.try_clone().unwrap());
    let is_muted = Arc::new(Mutex::new(false));
    let muted = Arc::clone(&is_muted);
    thread::spawn(move || forward_answers(back, &muted));
    let mut buffer = vec![0; 1 << 20];
    while let Ok(count @ 1..) = program.read(&mut buffer) {
        let message = &buffer[..count];
        let fault = {
            let mut state = state.lock().unwrap();
            match state.is_down {
                true => Some(Fault::LoseRequest),
                false => state.next.take(),
            }
        };
        if fault.is_some() {
            *is_muted.lock().unwrap() = true;
        }
        match fault {
            None => {
                if server.write_all(message).is_err() {
                    break;
                }
            }
            Some(Fault::LoseRequest) => break,
            Some(Fault::LoseAnswer) => {
                server.write_all(message).expect("the server is there");
                // The server executes the statement, whose answer is dropped.
                thread::sleep(std::time::Duration::from_millis(300));
                break;
            }
            Some(Fault::Delay) => {
                let kept = server.try_clone().unwrap();
                kept.set_read_timeout(Some(std::time::Duration::from_secs(20)))
                    .unwrap();
                state.lock().unwrap().delayed.push((kept, message.to_vec()));
                let _ = program.shutdown(Shutdown::Both);
                return;
            }
        }
    }
    let _ = server.shutdown(Shutdown::Both);
    let _ = program.shutdown(Shutdown::Both);
}

fn forward_answers((mut server, mut program): (TcpStream, TcpStream), is_muted: &Mutex<bool>) {
    let mut buffer = vec![0; 1 << 20];
    loop {
        // A muted connection leaves its answers to `release`.
        let mut peeked = [0];
        match server.peek(&mut peeked) {
            Ok(1..) if !*is_muted.lock().unwrap() => {}
            _ => break,
        }
        let Ok(count @ 1..) = server.read(&mut buffer) else {
            break;
        };
        if program.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    if !*is_muted.lock().unwrap() {
        let _ = program.shutdown(Shutdown::Both);
        let _ = server.shutdown(Shutdown::Both);
    }
}
