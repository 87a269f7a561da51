//! The control API of a kernel that a command runs: by a socket in the folder of its store, and by
//! TCP where the command line asks for it.

use std::net::SocketAddr;
use std::path::Path;

use clap::Args;
use dormouse::Kernel;
use dormouse::api::{ControlApi, ControlSocket, Hosts, Scope, TcpSettings, Token, Tokens};
use tokio::net::TcpListener;

use crate::failure::Failure;
use crate::mcp::parse_origin;
use crate::terminal::{one_line, print_stderr};

/// Where the control API is served by TCP, and to whom.
#[derive(Debug, Default, Args)]
pub(crate) struct Listen {
    /// Serve the control API by TCP at this address, such as 127.0.0.1:7777; port 0 lets the system
    /// choose one. The address and a token are printed.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,
    /// Permit --listen an address that other machines reach. The connection is not encrypted: put a
    /// proxy with TLS in front of it.
    #[arg(long, requires = "listen")]
    pub(crate) listen_remote: bool,
    /// Permit the pages of this origin, such as https://app.example, to use the control API; may be
    /// given several times.
    #[arg(long, value_name = "ORIGIN", requires = "listen", value_parser = parse_origin)]
    pub(crate) listen_origin: Vec<String>,
}

/// A port that is open, and what clients need.
pub(crate) struct OpenPort {
    listener: TcpListener,
    settings: TcpSettings,
    /// The address of the API.
    pub(crate) url: String,
    /// The token, to be shown to the user only.
    pub(crate) secret: String,
}

impl Listen {
    /// Opens the port; `None` if none is asked for.
    ///
    /// # Errors
    /// [`Failure::Usage`] for an address that other machines reach, unless that is permitted, and
    /// for one that cannot be listened at.
    pub(crate) async fn open(&self, scope: Scope) -> Result<Option<OpenPort>, Failure> {
        let Some(address) = self.listen else {
            return Ok(None);
        };
        if !address.ip().is_loopback() && !self.listen_remote {
            return Err(Failure::Usage(format!(
                "{address} can be reached from other machines: permit that with --listen-remote, or \
                 listen at 127.0.0.1"
            )));
        }
        let cannot_listen =
            |error: std::io::Error| Failure::Usage(format!("cannot listen at {address}: {error}"));
        let listener = TcpListener::bind(address).await.map_err(cannot_listen)?;
        // The port is known only now if the system chose it.
        let bound = listener.local_addr().map_err(cannot_listen)?;
        let (token, secret) = Token::generate()
            .map_err(|error| Failure::Run(format!("a token cannot be generated: {error}")))?;
        let hosts = match self.listen_remote {
            true => Hosts::Any,
            false => Hosts::Loopback,
        };
        Ok(Some(OpenPort {
            listener,
            settings: TcpSettings {
                hosts,
                origins: self.listen_origin.clone(),
                tokens: Tokens::none().with(token, scope),
            },
            url: format!("http://{bound}/v1"),
            secret,
        }))
    }
}

impl OpenPort {
    /// Serves until the kernel is shut down, or until `until` resolves.
    ///
    /// # Errors
    /// If the port accepts no connections any more.
    pub(crate) async fn serve(
        self,
        kernel: &Kernel,
        until: impl Future<Output = ()>,
    ) -> Result<(), Failure> {
        let api = ControlApi::new(kernel.clone());
        let served = api.serve_tcp(self.listener, self.settings, until).await;
        served.map_err(|error| Failure::Run(error.to_string()))
    }
}

/// Opens the ways in to a kernel that runs processes. Each is closed when the kernel is shut down.
///
/// The socket is left out if commands may run without confinement, of which `unconfined` tells:
/// they could decide about their own calls. A socket that cannot be opened is no reason not to run:
/// the store may be on a file system without sockets.
///
/// # Errors
/// [`Failure::Usage`], as [`Listen::open`].
pub(crate) async fn open(
    kernel: &Kernel,
    store: Option<&Path>,
    unconfined: Option<&str>,
    listen: &Listen,
) -> Result<(), Failure> {
    if let Some(port) = listen.open(Scope::Control).await? {
        print_stderr(&format!("control API: {} token: {}", port.url, port.secret));
        let kernel = kernel.clone();
        tokio::spawn(async move {
            if let Err(failure) = port.serve(&kernel, std::future::pending()).await {
                failure.print();
            }
        });
    }
    let Some(store) = store else { return Ok(()) };
    if let Some(reason) = unconfined {
        let reason = one_line(reason);
        print_stderr(&format!(
            "no control socket is opened, since {reason}: what is not confined could approve its own \
             calls. --listen ADDRESS serves the control API by TCP"
        ));
        return Ok(());
    }
    match ControlSocket::open(store) {
        Ok(socket) => {
            let api = ControlApi::new(kernel.clone());
            tokio::spawn(async move {
                if let Err(error) = api.serve_unix(&socket, std::future::pending()).await {
                    print_stderr(&error.to_string());
                }
            });
        }
        Err(error) => print_stderr(&format!("warning: {}", one_line(&error.to_string()))),
    }
    Ok(())
}
