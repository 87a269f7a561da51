//! Tests of the client against real servers, which `.ci/mcp` installs and runs: the tools that each
//! server offers, calls of these tools, and a large file through a whole kernel. The variable
//! `DORMOUSE_MCP` names the folder of the servers.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "it prints measurements")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dormouse::Kernel;
use dormouse::model::Request;
use dormouse_actors::ports::{Host, OffersTo, OutputSink, ToolServers};
use dormouse_host::{LocalHost, Permissions};
use dormouse_mcp::McpClient;
use dormouse_proto::command::CommandLimits;
use dormouse_proto::id::Pid;
use dormouse_proto::server::{OfferedTool, Server, ServerCommand, ServerValue, Transport};
use dormouse_tests::{FnModel, asks, results, says};

fn peers() -> PathBuf {
    PathBuf::from(
        std::env::var("DORMOUSE_MCP")
            .expect("DORMOUSE_MCP names the folder of the servers: run .ci/mcp"),
    )
}

fn module(name: &str) -> String {
    let path = peers()
        .join("node_modules/@modelcontextprotocol")
        .join(name)
        .join("dist/index.js");
    path.display().to_string()
}

fn python(name: &str) -> String {
    peers().join("venv/bin").join(name).display().to_string()
}

struct Fixture {
    client: McpClient,
    host: Arc<dyn Host>,
    server: Arc<Server>,
}

impl Fixture {
    fn new(folder: &Path, transport: Transport) -> Self {
        let programs = ["mcp-server-git", "mcp-server-time", "mcp-server-fetch"].map(python);
        let permissions = programs.iter().fold(
            Permissions::none().allow_run("node"),
            Permissions::allow_run,
        );
        let host = Arc::new(
            LocalHost::new(permissions.allow_net("127.0.0.1").allow_write("."), folder).unwrap(),
        );
        let server = Server {
            name: "s".into(),
            transport,
            optional: false,
            connect_ms: 60_000,
            shared: None,
            deadline_ms: 60_000,
            max_duration_ms: 60_000,
        };
        Self {
            client: McpClient::default(),
            host,
            server: Arc::new(server),
        }
    }

    fn program(folder: &Path, program: &str, args: &[&str]) -> Self {
        let args = args.iter().copied().map(ServerValue::argument).collect();
        Self::new(
            folder,
            Transport::Stdio(ServerCommand {
                program: program.into(),
                args,
                env: Vec::new(),
                env_file: None,
                cwd: None,
                limits: CommandLimits::default(),
            }),
        )
    }

    async fn offers(&self) -> Vec<OfferedTool> {
        within_a_minute(
            self.client
                .offers(&self.host, &self.server, OffersTo::AnyTree),
        )
        .await
        .unwrap()
    }

    /// Calls a tool. Returns the text of its output, and the media types of its attachments.
    async fn call(
        &self,
        tool: &str,
        args: serde_json::Value,
    ) -> Result<(String, Vec<String>), String> {
        let (began, out) = (Instant::now(), OutputSink::with_cap(64 << 20));
        within_a_minute(self.client.call(
            &self.host,
            &self.server,
            Pid(1),
            tool,
            args.to_string(),
            out.clone(),
        ))
        .await?;
        let text = String::from_utf8(out.take().bytes.to_vec()).unwrap();
        let attached: Vec<_> = out
            .take_attached()
            .iter()
            .map(|one| one.media_type.to_string())
            .collect();
        println!(
            "{tool}: {} bytes, {attached:?}, {} ms",
            text.len(),
            began.elapsed().as_millis()
        );
        Ok((text, attached))
    }
}

async fn within_a_minute<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future)
        .await
        .expect("it is done within a minute")
}

/// A server that is killed when this is dropped.
struct RunningServer(Child);

impl Drop for RunningServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Calls every tool of server-everything, except those that need a capability of the client.
async fn call_every_tool(fixture: &Fixture) {
    let offers = fixture.offers().await;
    let names: Vec<_> = offers.iter().map(|offer| offer.name.to_string()).collect();
    println!("everything offers {names:?}");
    assert!(
        names.iter().any(|name| name == "echo") && names.iter().any(|name| name == "read_resource"),
        "{names:?}"
    );
    let (echo, _) = fixture
        .call("echo", serde_json::json!({"message": "<hi>"}))
        .await
        .unwrap();
    assert!(echo.contains("<hi>"), "{echo}");
    let (resources, _) = fixture
        .call("list_resources", serde_json::json!({}))
        .await
        .unwrap();
    let uri = resources
        .split("[resource ")
        .nth(1)
        .unwrap()
        .split(']')
        .next()
        .unwrap()
        .to_owned();
    assert!(
        !fixture
            .call("read_resource", serde_json::json!({"uri": uri}))
            .await
            .unwrap()
            .0
            .is_empty()
    );
    let mut failed = Vec::new();
    for offer in &offers {
        let args = match &*offer.name {
            "echo" | "read_resource" | "list_resources" => continue,
            "get-sum" | "add" => serde_json::json!({"a": 2, "b": 3}),
            "get-structured-content" | "structuredContent" => {
                serde_json::json!({"location": "New York"})
            }
            "trigger-long-running-operation" | "longRunningOperation" => {
                serde_json::json!({"duration": 1, "steps": 2})
            }
            "get-annotated-message" | "annotatedMessage" => {
                serde_json::json!({"messageType": "error", "includeImage": true})
            }
            "get-resource-links" => serde_json::json!({"count": 3}),
            "get-resource-reference" => {
                serde_json::json!({"resourceType": "Text", "resourceId": 1})
            }
            // The default of this tool is an image from the network.
            "gzip-file-as-resource" => {
                serde_json::json!({"name": "hi.gz", "data": "data:text/plain;base64,aGk="})
            }
            _ => serde_json::json!({}),
        };
        let answer = fixture.call(&offer.name, args).await;
        match (&*offer.name, &answer) {
            ("get-tiny-image", Ok((_, attached))) => {
                assert_eq!(attached, &["image/png"], "{answer:?}")
            }
            ("get-sum", Ok((text, _))) => assert!(text.contains('5'), "{text}"),
            ("get-resource-links", Ok((text, _))) => assert!(text.contains("[resource "), "{text}"),
            ("get-structured-content", Ok((text, _))) => {
                assert_eq!(text.matches("temperature").count(), 1, "{text}")
            }
            // This tool can only be called as a task, which this client does not support.
            ("simulate-research-query", answer) => {
                assert!(
                    answer
                        .as_ref()
                        .is_err_and(|why| why.contains("requires task augmentation")),
                    "{answer:?}"
                );
            }
            (name, Err(why)) => failed.push(format!("{name}: {why}")),
            _ => {}
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

#[tokio::test]
#[ignore = "needs real servers: .ci/mcp"]
async fn server_everything_over_its_standard_streams() {
    let folder = tempfile::tempdir().unwrap();
    let fixture = Fixture::program(
        folder.path(),
        "node",
        &[&module("server-everything"), "stdio"],
    );
    call_every_tool(&fixture).await;
    within_a_minute(fixture.client.close()).await;
}

#[tokio::test]
#[ignore = "needs real servers: .ci/mcp"]
async fn server_everything_over_http() {
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let mut command = Command::new("node");
    command
        .args([&module("server-everything"), "streamableHttp"])
        .env("PORT", port.to_string());
    let running = RunningServer(
        command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let listens = async {
        while tokio::net::TcpStream::connect(("127.0.0.1", port))
            .await
            .is_err()
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    within_a_minute(listens).await;
    let folder = tempfile::tempdir().unwrap();
    let url = format!("http://127.0.0.1:{port}/mcp");
    let fixture = Fixture::new(
        folder.path(),
        Transport::Http {
            url,
            headers: Vec::new(),
            ca_file: None,
        },
    );
    call_every_tool(&fixture).await;
    within_a_minute(fixture.client.close()).await;
    drop(running);
}

/// Writes a file of `bytes` bytes in lines of 100 bytes, and returns its path.
fn write_large_file(folder: &Path, bytes: usize) -> PathBuf {
    let path = std::fs::canonicalize(folder).unwrap().join("large.log");
    let text: String = (0..bytes / 100)
        .map(|line| format!("{line:>10} {}\n", "x".repeat(88)))
        .collect();
    std::fs::write(&path, text).unwrap();
    path
}

#[tokio::test]
#[ignore = "needs real servers: .ci/mcp"]
async fn a_file_of_twenty_megabytes_is_returned_whole_and_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_large_file(folder.path(), 20_000_000);
    let fixture = Fixture::program(
        folder.path(),
        "node",
        &[
            &module("server-filesystem"),
            path.parent().unwrap().to_str().unwrap(),
        ],
    );
    let (text, _) = fixture
        .call("read_text_file", serde_json::json!({"path": path}))
        .await
        .unwrap();
    assert_eq!(text, std::fs::read_to_string(&path).unwrap());
    let error = fixture
        .call("read_text_file", serde_json::json!({"path": "/etc/passwd"}))
        .await
        .unwrap_err();
    assert!(
        error.contains("denied") || error.contains("outside"),
        "{error}"
    );
}

/// Creates a git repository with `commits` commits.
fn create_repository(commits: u32, path: &Path) {
    let git = |args: &[&str]| {
        let who = ["-c", "user.name=n", "-c", "user.email=e"];
        let status = Command::new("git")
            .args(who)
            .arg("-C")
            .arg(path)
            .args(args)
            .status()
            .unwrap();
        assert!(status.success(), "git {args:?}: {status}");
    };
    std::fs::create_dir(path).unwrap();
    git(&["init", "--quiet"]);
    (0..commits).for_each(|number| {
        git(&[
            "commit",
            "--quiet",
            "--allow-empty",
            "--message",
            &format!("number {number}"),
        ])
    });
}

#[tokio::test]
#[ignore = "needs real servers: .ci/mcp"]
async fn tools_of_the_servers_memory_time_git_and_fetch_work() {
    let folder = tempfile::tempdir().unwrap();
    let mut memory = Fixture::program(folder.path(), "node", &[&module("server-memory")]);
    // The server may not write its own folder, which is its default.
    let mut server = Server::clone(&memory.server);
    if let Transport::Stdio(command) = &mut server.transport {
        let file = folder.path().join("memory.jsonl").display().to_string();
        command
            .env
            .push(("MEMORY_FILE_PATH".into(), ServerValue::new(file)));
    }
    memory.server = Arc::new(server);
    let entity =
        serde_json::json!({"entities": [{"name": "n", "entityType": "t", "observations": ["o1"]}]});
    memory.call("create_entities", entity).await.unwrap();
    assert!(
        memory
            .call("read_graph", serde_json::json!({}))
            .await
            .unwrap()
            .0
            .contains("o1")
    );

    let time = Fixture::program(
        folder.path(),
        &python("mcp-server-time"),
        &["--local-timezone", "UTC"],
    );
    assert!(
        time.call("get_current_time", serde_json::json!({"timezone": "UTC"}))
            .await
            .unwrap()
            .0
            .contains("UTC")
    );

    create_repository(60, &folder.path().join("repository"));
    let repository = folder.path().join("repository").canonicalize().unwrap();
    let git = Fixture::program(
        &repository,
        &python("mcp-server-git"),
        &["--repository", repository.to_str().unwrap()],
    );
    let log = git
        .call(
            "git_log",
            serde_json::json!({"repo_path": repository, "max_count": 200}),
        )
        .await
        .unwrap()
        .0;
    assert_eq!(log.matches("number ").count(), 60, "{log}");

    let fetch = Fixture::program(
        folder.path(),
        &python("mcp-server-fetch"),
        &["--ignore-robots-txt"],
    );
    assert!(
        fetch
            .offers()
            .await
            .iter()
            .any(|offer| &*offer.name == "fetch")
    );
    let error = fetch
        .call("fetch", serde_json::json!({"url": "http://127.0.0.1:9/"}))
        .await
        .unwrap_err();
    assert!(
        error.contains("127.0.0.1") || error.contains("Failed"),
        "{error}"
    );
}

#[tokio::test]
#[ignore = "needs real servers: .ci/mcp"]
async fn a_server_that_is_killed_in_a_call_is_restarted() {
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    let script = format!(
        "echo $$ > {}; exec node {} stdio",
        pid.display(),
        module("server-everything")
    );
    let permissions = Permissions::none().allow_run("sh").allow_write(".");
    let fixture = Fixture::program(folder.path(), "sh", &["-c", &script]);
    let fixture = Fixture {
        host: Arc::new(LocalHost::new(permissions, folder.path()).unwrap()),
        ..fixture
    };
    fixture
        .call("echo", serde_json::json!({"message": "here"}))
        .await
        .unwrap();
    let number = std::fs::read_to_string(&pid).unwrap();
    let kill = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(
            Command::new("kill")
                .args(["-9", number.trim()])
                .status()
                .unwrap()
                .success()
        );
    };
    let call = fixture.call(
        "trigger-long-running-operation",
        serde_json::json!({"duration": 30, "steps": 3}),
    );
    let (answer, ()) = futures_util::future::join(call, kill).await;
    let error = answer.unwrap_err();
    assert!(error.contains("Effect unknown"), "{error}");
    fixture
        .call("echo", serde_json::json!({"message": "again"}))
        .await
        .unwrap();
    assert_ne!(std::fs::read_to_string(&pid).unwrap(), number);
}

#[tokio::test]
#[ignore = "needs real servers: .ci/mcp"]
async fn a_model_reads_pages_of_a_file_of_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_large_file(folder.path(), 18_000_000);
    let servers = serde_json::json!({"mcpServers": {"fs": {"command": "node", "args": [module("server-filesystem"), path.parent()]}}});
    std::fs::write(folder.path().join("mcp.json"), servers.to_string()).unwrap();
    let program = "[model]\nname = \"m\"\nprovider = \"scripted\"\n[tools]\nenabled = \
         [\"read_fd\"]\n[mcp]\nconfig_path = \"mcp.json\"\n[tools.mcp]\nfs = \"all\"\n";
    std::fs::write(folder.path().join("main.toml"), program).unwrap();
    let args = serde_json::json!({"path": path}).to_string();
    let model = FnModel(move |request: Request| {
        let args = args.clone();
        async move {
            Ok(match request.messages.len() {
                1 => asks(&[("fs__read_text_file", &args)]),
                3 => asks(&[(
                    "read_fd",
                    r#"{"fd": "fd:1", "start_line": 179999, "end_line": 180000}"#,
                )]),
                _ => says(&results(&request, 0)[0].0),
            })
        }
    });
    let host = LocalHost::new(Permissions::none().allow_run("node"), folder.path()).unwrap();
    let kernel = Kernel::builder()
        .model("m", model)
        .host(host)
        .tool_servers(McpClient::default())
        .build()
        .await
        .unwrap();
    let program = kernel
        .load(folder.path().join("main.toml"))
        .unwrap_or_else(|errors| panic!("{errors}"))
        .program;
    let process = kernel.start(program).input("go").await.unwrap();
    let exit = within_a_minute(process.wait()).await.unwrap();
    assert!(exit.message.contains("    179999 xxx"), "{}", exit.message);
    within_a_minute(kernel.shutdown()).await.unwrap();
}
