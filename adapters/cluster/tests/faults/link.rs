//! A link that can be cut: a TCP proxy between a node and the server of its database or its
//! objects.
//!
//! What is sent in a direction that is cut arrives when the cut ends, as it does in a network that
//! sends lost packets again. So a statement can arrive long after its sender has given it up.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What happens to bytes of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Way {
    #[default]
    Open,
    /// Each piece arrives this much later.
    Slow(Duration),
    /// Nothing arrives.
    Cut,
}

/// What happens to new connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Greeting {
    #[default]
    Connect,
    /// They are closed at once.
    Close,
    /// They get an answer of HTTP that says that the server is overloaded.
    Overloaded,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkState {
    pub(crate) target: u16,
    /// From the node to the server.
    pub(crate) up: Way,
    /// From the server to the node.
    pub(crate) down: Way,
    pub(crate) greeting: Greeting,
    /// Connections that began under another number are closed.
    generation: u64,
}

/// A link to a port of this machine. It ends with the program.
#[derive(Clone)]
pub(crate) struct Link {
    pub(crate) port: u16,
    state: watch::Sender<LinkState>,
}

impl Link {
    pub(crate) async fn to(target: u16) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let state = watch::Sender::new(LinkState {
            target,
            up: Way::Open,
            down: Way::Open,
            greeting: Greeting::Connect,
            generation: 0,
        });
        let link = Self { port, state };
        let accepting = link.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, accepting.state.subscribe()));
            }
        });
        Ok(link)
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut LinkState)) {
        self.state.send_modify(change);
    }

    /// Closes all connections.
    pub(crate) fn reset(&self) {
        self.change(|state| state.generation += 1);
    }

    /// Leads to another server from now on. Connections to the earlier one are closed.
    pub(crate) fn lead_to(&self, target: u16) {
        self.change(|state| {
            state.target = target;
            state.generation += 1;
        });
    }

    /// Ends all faults.
    pub(crate) fn heal(&self) {
        self.change(|state| {
            (state.up, state.down) = (Way::Open, Way::Open);
            state.greeting = Greeting::Connect;
        });
    }
}

async fn serve(mut client: TcpStream, state: watch::Receiver<LinkState>) {
    let LinkState {
        target,
        greeting,
        generation,
        ..
    } = *state.borrow();
    match greeting {
        Greeting::Connect => {}
        Greeting::Close => return,
        Greeting::Overloaded => {
            let answer =
                b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            let mut request = [0; 4096];
            // How far the client gets does not matter.
            let _ = client.read(&mut request).await;
            let _ = client.write_all(answer).await;
            return;
        }
    }
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, target));
    let Ok(server) = TcpStream::connect(address).await else {
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let ((from_client, to_client), (from_server, to_server)) =
        (client.into_split(), server.into_split());
    let mut ended = state.clone();
    tokio::select! {
        () = forward(from_client, to_server, state.clone(), |state| state.up) => {}
        () = forward(from_server, to_client, state, |state| state.down) => {}
        _ = ended.wait_for(|state| state.generation != generation) => {}
    }
}

async fn forward(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut state: watch::Receiver<LinkState>,
    way: fn(&LinkState) -> Way,
) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let open = state.wait_for(|state| way(state) != Way::Cut).await;
        let delay = match open.map(|state| way(&state)) {
            Ok(Way::Slow(delay)) => delay,
            Ok(_) => Duration::ZERO,
            Err(_) => return,
        };
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
