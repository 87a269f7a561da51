//! How a session begins: the server is started or reached, and one of two handshakes is made.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dormouse_actors::ports::{Host, ServerChild, ToolError};
use dormouse_proto::server::{Server, Transport};
use rmcp::model::{ErrorCode, ProtocolVersion};
use rmcp::service::{ClientInitializeError, ClientLifecycleMode, ClientServiceExt, RoleClient};
use tokio::sync::watch;
use tokio::time::timeout;

use super::{ProgressSinks, Session, SessionSettings};
use crate::client::downstream_requests::{self, DownstreamRequests};
use crate::client::http::{self, HttpAddress, HttpTransport};
use crate::client::protocol_handler::ProtocolHandler;
use crate::client::request_error;
use crate::client::stderr;
use crate::client::stdio::StdioTransport;
use crate::client::unsolicited::{AnswersOnly, CloseReason};

/// Where the messages of a server go that answer no request.
struct Inbound {
    server: Arc<str>,
    changes: watch::Sender<u64>,
    progress_sinks: ProgressSinks,
    downstream_requests: DownstreamRequests,
    close_reason: CloseReason,
}

impl Inbound {
    /// The transport that passes on only the answers.
    fn of<T: rmcp::transport::Transport<RoleClient>>(self, transport: T) -> AnswersOnly<T> {
        AnswersOnly::new(
            transport,
            &self.server,
            self.changes,
            self.progress_sinks,
            self.downstream_requests,
            self.close_reason,
        )
    }
}

impl Session {
    /// Starts a session within the time limit of the server's declaration. First tries the
    /// handshake `initialize`, which most servers know. If the server refuses it, tries the newer
    /// protocol, which begins with `server/discover` instead.
    ///
    /// # Errors
    /// A text that says what is not permitted, or what went wrong.
    pub(in crate::client) async fn begin(
        host: &dyn Host,
        server: &Arc<Server>,
        settings: &SessionSettings,
    ) -> Result<Self, ToolError> {
        let limit = Duration::from_millis(server.connect_ms);
        let handshake = timeout(limit, async {
            match Self::begin_with(ClientLifecycleMode::Initialize, host, server, settings).await {
                Err(refusal @ (HandshakeError::Refused(_) | HandshakeError::Unknown(_))) => {
                    let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
                    let discover = ClientLifecycleMode::Discover { preferred_versions };
                    match Self::begin_with(discover, host, server, settings).await {
                        // The server supports neither handshake, so the first refusal says more.
                        Err(HandshakeError::Unknown(_)) => Err(refusal),
                        handshake => handshake,
                    }
                }
                handshake => handshake,
            }
        });
        match handshake.await {
            Ok(Ok(session)) => Ok(session),
            Ok(Err(
                HandshakeError::Unknown(why)
                | HandshakeError::Refused(why)
                | HandshakeError::Failed(why),
            )) => Err(why.into()),
            Err(_) => Err(format!("it was not ready within {} ms.", server.connect_ms).into()),
        }
    }

    /// Starts a session with one of the two handshakes.
    async fn begin_with(
        lifecycle: ClientLifecycleMode,
        host: &dyn Host,
        server: &Arc<Server>,
        settings: &SessionSettings,
    ) -> Result<Self, HandshakeError> {
        let (changes, tool_changes) = watch::channel(0);
        let (open_count, open_downstream_requests) = watch::channel(0);
        let client = settings
            .client
            .as_ref()
            .or(settings.default_client.as_ref());
        let inbound = Inbound {
            server: server.name.clone(),
            changes,
            progress_sinks: ProgressSinks::default(),
            downstream_requests: DownstreamRequests::new(
                server.name.clone(),
                client.cloned(),
                open_count,
            ),
            close_reason: CloseReason::default(),
        };
        let protocol_handler = ProtocolHandler {
            capabilities: downstream_requests::capabilities(client),
        };
        let (progress_sinks, close_reason) =
            (inbound.progress_sinks.clone(), inbound.close_reason.clone());
        let (service, process_guard) = match &server.transport {
            Transport::Stdio(command) => {
                let ServerChild {
                    stdin,
                    stdout,
                    stderr,
                    process_guard,
                } = host
                    .start_server(command)
                    .map_err(|why| HandshakeError::Failed(why.to_string()))?;
                let stderr_task = tokio::spawn(stderr::log_lines(server.name.clone(), stderr));
                let max_bytes = settings.max_message_bytes;
                let transport = StdioTransport::new(stdout, stdin, max_bytes, close_reason.clone());
                let transport = inbound.of(transport);
                let service = protocol_handler
                    .serve_with_lifecycle(transport, lifecycle)
                    .await;
                if service.is_err() {
                    // Ends the server, so that its standard error ends too.
                    drop(process_guard);
                    stderr::log_last_lines(&server.name, stderr_task).await;
                    (service, None)
                } else {
                    (service, Some(process_guard))
                }
            }
            Transport::Http {
                url,
                headers,
                ca_file,
            } => {
                let address = HttpAddress {
                    url,
                    headers,
                    ca_file: ca_file.as_ref(),
                };
                let transport = http::transport(host, server, address, settings)
                    .await
                    .map_err(|error| HandshakeError::Failed(error.into()))?;
                let service = match transport {
                    HttpTransport::Declared(transport) => {
                        let transport = inbound.of(transport);
                        protocol_handler
                            .serve_with_lifecycle(transport, lifecycle)
                            .await
                    }
                    HttpTransport::LoggedIn(transport) => {
                        let transport = inbound.of(transport);
                        protocol_handler
                            .serve_with_lifecycle(transport, lifecycle)
                            .await
                    }
                };
                (service, None)
            }
        };
        let service = service.map_err(|error| match error {
            ClientInitializeError::JsonRpcError(ref refusal)
                if refusal.code == ErrorCode::METHOD_NOT_FOUND =>
            {
                HandshakeError::Unknown(request_error::describe_handshake(&error, &close_reason))
            }
            ClientInitializeError::JsonRpcError(_)
            | ClientInitializeError::ExpectedInitResult(_) => {
                HandshakeError::Refused(request_error::describe_handshake(&error, &close_reason))
            }
            _ => HandshakeError::Failed(request_error::describe_handshake(&error, &close_reason)),
        })?;
        Ok(Self {
            server: server.clone(),
            peer: service.peer().clone(),
            service: Mutex::new(Some(service)),
            process_guard: Mutex::new(process_guard),
            began: Instant::now(),
            liveness: Mutex::default(),
            tool_changes,
            open_downstream_requests,
            progress_sinks,
            close_reason,
            own_tools: Mutex::default(),
        })
    }
}

/// Why a session could not be started.
enum HandshakeError {
    /// The server does not know this handshake.
    Unknown(String),
    /// The server refused the handshake.
    Refused(String),
    /// Anything else.
    Failed(String),
}
