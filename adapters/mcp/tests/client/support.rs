//! A client, and the server in `server.py`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dormouse_actors::ports::{Host, OutputSink, ToolServers};
use dormouse_host::{LocalHost, Permissions};
use dormouse_mcp::McpClient;
use dormouse_proto::command::CommandLimits;
use dormouse_proto::server::{Offer, Server, ServerCommand, ServerValue, Transport};
use dormouse_tests::within;

/// Where `server.py` stands.
pub(crate) fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/client/server.py")
}

pub(crate) fn server(transport: Transport) -> Server {
    Server {
        name: "s".into(),
        transport,
        optional: false,
        connect_ms: 20_000,
        deadline_ms: 20_000,
    }
}

/// The server as a program.
pub(crate) fn program(mode: &str) -> ServerCommand {
    let args = vec![script().display().to_string(), mode.to_owned()];
    ServerCommand {
        program: "python3".into(),
        args,
        env: Vec::new(),
        cwd: None,
        limits: CommandLimits::default(),
    }
}

/// A client, its host, and one server.
pub(crate) struct Place {
    pub(crate) client: McpClient,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) server: Arc<Server>,
    /// Each life of the server is a byte of the file in it.
    pub(crate) folder: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new(client: McpClient, mode: &str) -> Self {
        Self::changed(client, mode, |_| ())
    }

    /// The same, with its declaration changed.
    pub(crate) fn changed(client: McpClient, mode: &str, change: impl FnOnce(&mut Server)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = program(mode);
        let lives = folder.path().join("lives").display().to_string();
        command.env.push(("LIVES".into(), ServerValue::new(lives)));
        let mut server = server(Transport::Stdio(command));
        change(&mut server);
        Self {
            client,
            host: host(folder.path()),
            server: Arc::new(server),
            folder,
        }
    }

    pub(crate) async fn offers(&self) -> Result<Vec<Offer>, String> {
        Ok(within(self.client.offers(&self.host, &self.server)).await?)
    }

    /// What a tool says to `text`.
    pub(crate) async fn call(&self, tool: &str, text: &str) -> Result<String, String> {
        let out = OutputSink::with_cap(64 << 20);
        let args = serde_json::json!({"text": text}).to_string();
        within(
            self.client
                .call(&self.host, &self.server, tool, args, out.clone()),
        )
        .await?;
        Ok(String::from_utf8(out.take().bytes.to_vec()).unwrap())
    }

    /// How often the server was begun.
    pub(crate) fn lives(&self) -> usize {
        std::fs::read(self.folder.path().join("lives")).map_or(0, |lives| lives.len())
    }
}

pub(crate) fn host(folder: &Path) -> Arc<dyn Host> {
    let permissions = Permissions::none()
        .allow_run("python3")
        .allow_env("PATH")
        .allow_net("127.0.0.1");
    // It counts its lives.
    let permissions = permissions.allow_write(".");
    Arc::new(LocalHost::new(permissions, folder).unwrap())
}
