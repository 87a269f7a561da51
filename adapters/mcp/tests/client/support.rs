//! A client that is connected to the server in `server.py`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dormouse_actors::ports::{Host, OffersTo, OutputSink, ToolServers};
use dormouse_host::{LocalHost, Permissions};
use dormouse_mcp::McpClient;
use dormouse_proto::command::CommandLimits;
use dormouse_proto::id::Pid;
use dormouse_proto::server::{OfferedTool, Server, ServerCommand, ServerValue, Transport};
use dormouse_tests::within;

/// The path of `server.py`.
pub(crate) fn script_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/client/server.py")
}

pub(crate) fn server(transport: Transport) -> Server {
    Server {
        name: "s".into(),
        transport,
        optional: false,
        connect_ms: 20_000,
        shared: None,
        deadline_ms: 20_000,
        max_duration_ms: 20_000,
    }
}

/// The command that starts the server.
pub(crate) fn server_command(mode: &str) -> ServerCommand {
    let args = [script_path().display().to_string(), mode.to_owned()];
    ServerCommand {
        program: "python3".into(),
        args: args.map(ServerValue::argument).into(),
        env: Vec::new(),
        env_file: None,
        cwd: None,
        limits: CommandLimits::default(),
    }
}

/// A client, its host, and one server.
pub(crate) struct Fixture {
    pub(crate) client: McpClient,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) server: Arc<Server>,
    /// The folder of the file `starts`, to which the server adds a byte at each start.
    pub(crate) folder: tempfile::TempDir,
}

impl Fixture {
    pub(crate) fn new(client: McpClient, mode: &str) -> Self {
        Self::with_change(client, mode, |_| ())
    }

    /// Like [`new`](Self::new), with a changed declaration of the server.
    pub(crate) fn with_change(
        client: McpClient,
        mode: &str,
        change: impl FnOnce(&mut Server),
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = server_command(mode);
        let starts = folder.path().join("starts").display().to_string();
        command
            .env
            .push(("STARTS_FILE".into(), ServerValue::new(starts)));
        let mut server = server(Transport::Stdio(command));
        change(&mut server);
        Self {
            client,
            host: host(folder.path()),
            server: Arc::new(server),
            folder,
        }
    }

    pub(crate) async fn offers(&self) -> Result<Vec<OfferedTool>, String> {
        Ok(within(
            self.client
                .offers(&self.host, &self.server, OffersTo::AnyTree),
        )
        .await?)
    }

    /// Calls a tool with the argument `text`, and returns its output.
    pub(crate) async fn call(&self, tool: &str, text: &str) -> Result<String, String> {
        self.call_in_tree(Pid(1), tool, text).await
    }

    /// Like [`call`](Self::call), for a process of the tree with the root `root`.
    pub(crate) async fn call_in_tree(
        &self,
        root: Pid,
        tool: &str,
        text: &str,
    ) -> Result<String, String> {
        let out = OutputSink::with_cap(64 << 20);
        let args = serde_json::json!({"text": text}).to_string();
        within(
            self.client
                .call(&self.host, &self.server, root, tool, args, out.clone()),
        )
        .await?;
        Ok(String::from_utf8(out.take().bytes.to_vec()).unwrap())
    }

    /// How often the server was started.
    pub(crate) fn starts(&self) -> usize {
        std::fs::read(self.folder.path().join("starts")).map_or(0, |starts| starts.len())
    }
}

pub(crate) fn host(folder: &Path) -> Arc<dyn Host> {
    let permissions = Permissions::none()
        .allow_run("python3")
        .allow_env("PATH")
        .allow_net("127.0.0.1");
    // The server counts its starts in a file.
    let permissions = permissions.allow_write(".");
    Arc::new(LocalHost::new(permissions, folder).unwrap())
}
