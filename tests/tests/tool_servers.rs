//! Tool servers from end to end, without a protocol: what a process is given at its birth, and
//! keeps.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};

use dormouse::host::{LocalHost, Permissions};
use dormouse::id::Pid;
use dormouse::model::Request;
use dormouse::ports::{
    Host, OffersTo, OutputSink, ServerAnswer, ServerClient, ServerRequestError, ToolError,
    ToolServers,
};
use dormouse::process::ExitStatus;
use dormouse::server::{OfferedTool, Server};
use dormouse::store::LogStore;
use dormouse::tool::ToolPolicy;
use dormouse::{Event, Kernel, KernelBuilder, KernelError, StartError};
use dormouse_tests::{
    FnModel, Gate, Requests, asks, events_until, program, results, says, turn, within,
};
use futures_util::future::{BoxFuture, FutureExt};
use serde_json::{Value, json};

/// Servers that offer what they are told to, by their names; one that is not known cannot be
/// reached.
#[derive(Clone, Default)]
struct Servers {
    offered: Arc<Mutex<BTreeMap<String, Vec<OfferedTool>>>>,
    calls: Arc<Mutex<Vec<String>>>,
    /// The trees whose tools were listed: their roots, or 0 for a tree that is not created yet.
    listed_for: Arc<Mutex<Vec<u64>>>,
    /// The requests beyond calls, each with the root of the tree that it is for.
    requests: Arc<Mutex<Vec<(String, u64)>>>,
    /// Stands in the way of whoever asks what is offered, or not.
    asked: Option<Gate>,
    closed: Arc<Mutex<usize>>,
    /// The trees whose connections were ended.
    ended: Arc<Mutex<Vec<Pid>>>,
}

impl Servers {
    fn offer(self, server: &str, tools: &[(&str, &str)]) -> Self {
        let offer = |(name, description): &(&str, &str)| OfferedTool {
            server: server.into(),
            name: (*name).into(),
            description: (*description).into(),
            schema: r#"{"type":"object"}"#.into(),
            policy: ToolPolicy::default(),
        };
        self.offered
            .lock()
            .unwrap()
            .insert(server.to_owned(), tools.iter().map(offer).collect());
        self
    }

    fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }

    fn note(&self, method: &str, root: Pid) {
        let request = (method.to_owned(), root.0);
        self.requests.lock().unwrap().push(request);
    }
}

impl ToolServers for Servers {
    fn offers(
        &self,
        _host: &Arc<dyn Host>,
        server: &Arc<Server>,
        to: OffersTo,
    ) -> BoxFuture<'static, Result<Vec<OfferedTool>, ToolError>> {
        self.listed_for.lock().unwrap().push(match to {
            OffersTo::Tree(root) => root.0,
            OffersTo::AnyTree | OffersTo::NewTree(_) => 0,
        });
        let (servers, name) = (self.clone(), server.name.clone());
        async move {
            if let Some(gate) = &servers.asked {
                gate.pass().await;
            }
            let offered = servers.offered.lock().unwrap().get(&*name).cloned();
            offered.ok_or_else(|| "nobody listens".into())
        }
        .boxed()
    }

    fn call(
        &self,
        _host: &Arc<dyn Host>,
        server: &Arc<Server>,
        _root: Pid,
        tool: &str,
        args: String,
        out: OutputSink,
    ) -> BoxFuture<'static, Result<(), ToolError>> {
        let called = format!("{}/{tool} {args}", server.name);
        self.calls.lock().unwrap().push(called.clone());
        let is_there = self.offered.lock().unwrap()[&*server.name]
            .iter()
            .any(|offer| *offer.name == *tool);
        async move {
            if !is_there {
                return Err(format!("no tool {called}").into());
            }
            let _ = out.push(called.as_bytes());
            Ok(())
        }
        .boxed()
    }

    fn introduction(
        &self,
        _host: &Arc<dyn Host>,
        _server: &Arc<Server>,
        root: Pid,
    ) -> BoxFuture<'static, Result<Value, ToolError>> {
        self.note("initialize", root);
        std::future::ready(Ok(Value::Null)).boxed()
    }

    fn request(
        &self,
        _host: &Arc<dyn Host>,
        _server: &Arc<Server>,
        root: Pid,
        method: &str,
        _params: Value,
    ) -> BoxFuture<'static, ServerAnswer> {
        self.note(method, root);
        std::future::ready(Ok(Value::Null)).boxed()
    }

    fn notify(&self, root: Pid, method: &str, _params: Value) -> BoxFuture<'static, ()> {
        self.note(method, root);
        std::future::ready(()).boxed()
    }

    fn serve_client(&self, root: Pid, _client: Weak<dyn ServerClient>) {
        self.note("serve_client", root);
    }

    fn end_tree(&self, root: Pid) -> BoxFuture<'static, ()> {
        self.ended.lock().unwrap().push(root);
        std::future::ready(()).boxed()
    }

    fn close(&self) -> BoxFuture<'static, ()> {
        *self.closed.lock().unwrap() += 1;
        std::future::ready(()).boxed()
    }
}

/// Calls `s__a` in each turn, then says what came of it.
fn calls_a(requests: &Requests) -> impl dormouse::ports::Model {
    requests.record(FnModel(|request: Request| async move {
        Ok(match results(&request, 0).as_slice() {
            [] => asks(&[("s__a", r#"{"q": 1}"#)]),
            results => says(&format!("{results:?}")),
        })
    }))
}

fn open(folder: &Path, requests: &Requests, servers: &Servers) -> KernelBuilder {
    Kernel::open(LogStore::open(folder).unwrap())
        .model("m", calls_a(requests))
        .tool_servers(servers.clone())
}

const USES: &str = "[tools.mcp]\ns = \"all\"\n[mcp.servers.s]\ncommand = \"s\"\n";

#[tokio::test]
async fn a_server_that_changed_its_list_changes_nothing_that_a_process_was_sent() {
    let (folder, requests) = (tempfile::tempdir().unwrap(), Requests::default());
    let servers = Servers::default().offer("s", &[("a", "first"), ("b", "second")]);
    let kernel = open(folder.path(), &requests, &servers)
        .build()
        .await
        .unwrap();
    let process = kernel
        .start(program(&kernel, USES))
        .without_input()
        .session()
        .await
        .unwrap();
    assert_eq!(turn(&process, "go").await, r#"[("s/a {\"q\": 1}", false)]"#);
    let pid = process.pid();
    within(kernel.shutdown()).await.unwrap();
    assert_eq!(*servers.closed.lock().unwrap(), 1);

    let servers = Servers::default().offer("s", &[("c", "new"), ("b", "of another kind")]);
    let kernel = open(folder.path(), &requests, &servers)
        .build()
        .await
        .unwrap();
    let process = kernel.resume(pid).await.unwrap();
    assert_eq!(
        turn(&process, "go on").await,
        r#"[("no tool s/a {\"q\": 1}", true)]"#,
        "a tool that has gone"
    );
    let sent = requests.all();
    assert!(
        sent.iter().all(|request| request.tools == sent[0].tools),
        "HIST-1"
    );
    let young = kernel
        .start(program(&kernel, USES))
        .input("go")
        .await
        .unwrap();
    let exit = within(young.wait()).await.unwrap();
    assert!(
        exit.message
            .contains("There is no tool 's__a'. The tools are: s__c, s__b"),
        "{}",
        exit.message
    );
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_ends_the_birth_unless_it_is_optional() {
    let (folder, requests) = (tempfile::tempdir().unwrap(), Requests::default());
    let kernel = open(folder.path(), &requests, &Servers::default())
        .build()
        .await
        .unwrap();
    let error = kernel
        .start(program(&kernel, USES))
        .input("go")
        .await
        .unwrap_err();
    let expected = "the process cannot start: the tool server `s` cannot be used: nobody listens";
    assert!(
        matches!(&error, KernelError::Start(StartError::UnmetRequirement(_)))
            && error.to_string() == expected,
        "{error}"
    );
    let optional = program(&kernel, &format!("{USES}optional = true\n"));
    let exit = within(kernel.start(optional).input("go").await.unwrap().wait())
        .await
        .unwrap();
    assert!(
        exit.message.contains("There is no tool 's__a'"),
        "{}",
        exit.message
    );
    let kernel = Kernel::builder()
        .model("m", calls_a(&requests))
        .build()
        .await
        .unwrap();
    let error = kernel
        .start(program(&kernel, USES))
        .input("go")
        .await
        .unwrap_err();
    assert!(error.to_string().contains(".tool_servers("), "{error}");
}

/// A folder with `main.toml`, which spawns `child.toml`, which uses the server.
fn family() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let model = "[model]\nname = \"m\"\nprovider = \"scripted\"\n";
    let main = "[tools]\nenabled = [\"spawn\"]\n[linked_programs]\nchild = \"child.toml\"\n";
    for (file, text) in [("main.toml", main), ("child.toml", USES)] {
        std::fs::write(folder.path().join(file), format!("{model}{text}")).unwrap();
    }
    folder
}

/// A model that spawns a child, which calls its tool; both say what came of it.
fn spawning(requests: &Requests) -> impl dormouse::ports::Model {
    requests.record(FnModel(|request: Request| async move {
        Ok(match (&*request.program, results(&request, 0).as_slice()) {
            ("main", []) => asks(&[("spawn", r#"{"program_name": "child", "query": "look"}"#)]),
            (_, []) => asks(&[("s__a", "{}")]),
            (_, results) => says(&results[0].0),
        })
    }))
}

#[tokio::test]
async fn a_spawned_process_is_given_what_its_own_servers_offer() {
    let (folder, requests) = (family(), Requests::default());
    let host = || LocalHost::new(Permissions::none().allow_read("."), folder.path()).unwrap();
    let servers = Servers::default().offer("s", &[("a", "first")]);
    let builder = Kernel::builder()
        .model("m", spawning(&requests))
        .host(host());
    let kernel = builder.tool_servers(servers.clone()).build().await.unwrap();
    let main = kernel
        .load(folder.path().join("main.toml"))
        .unwrap()
        .program;
    let exit = within(kernel.start(main).input("go").await.unwrap().wait())
        .await
        .unwrap();
    assert!(exit.message.contains("s/a {}"), "{}", exit.message);
    assert_eq!(servers.calls(), ["s/a {}"]);
    assert_eq!(
        *servers.listed_for.lock().unwrap(),
        [1],
        "the child has the tools that its tree is offered, on whose connection it calls them"
    );

    let builder = Kernel::builder()
        .model("m", spawning(&requests))
        .host(host());
    let kernel = builder
        .tool_servers(Servers::default())
        .build()
        .await
        .unwrap();
    let main = kernel
        .load(folder.path().join("main.toml"))
        .unwrap()
        .program;
    let process = kernel.start(main).input("go").await.unwrap();
    let exit = within(process.wait()).await.unwrap();
    let expected = "No child was made: the tool server `s` cannot be used: nobody listens";
    assert_eq!(exit.status, ExitStatus::Done);
    assert!(exit.message.contains(expected), "{}", exit.message);
}

#[tokio::test]
async fn giving_up_a_spawn_ends_the_asking_of_servers() {
    let (folder, requests, gate) = (family(), Requests::default(), Gate::default());
    let host = LocalHost::new(Permissions::none().allow_read("."), folder.path()).unwrap();
    let servers = Servers {
        asked: Some(gate.clone()),
        ..Servers::default().offer("s", &[("a", "first")])
    };
    let builder = Kernel::builder().model("m", spawning(&requests)).host(host);
    let kernel = builder.tool_servers(servers).build().await.unwrap();
    let main = kernel
        .load(folder.path().join("main.toml"))
        .unwrap()
        .program;
    let process = kernel.start(main).input("go").session().await.unwrap();
    within(gate.entered()).await;
    let events = process.events();
    process.interrupt().await.unwrap();
    within(events_until(events, |event| {
        matches!(event, Event::TurnEnded { .. })
    }))
    .await;
    gate.open();
    assert_eq!(
        kernel.processes().await.unwrap().len(),
        1,
        "no child is born"
    );
}

#[tokio::test]
async fn a_child_that_ends_after_its_root_leaves_no_connection_behind() {
    let (folder, gate) = (family(), Gate::default());
    let host = LocalHost::new(Permissions::none().allow_read("."), folder.path()).unwrap();
    let servers = Servers::default().offer("s", &[("a", "first")]);
    let waits = FnModel({
        let gate = gate.clone();
        move |request: Request| {
            let gate = gate.clone();
            async move {
                if *request.program == *"main" {
                    let child = r#"{"program_name": "child", "query": "look"}"#;
                    return Ok(asks(&[("spawn", child)]));
                }
                gate.pass().await;
                Ok(says("done"))
            }
        }
    });
    let builder = Kernel::builder().model("m", waits).host(host);
    let kernel = builder.tool_servers(servers.clone()).build().await.unwrap();
    let main = kernel.load(folder.path().join("main.toml")).unwrap();
    let root = kernel.start(main.program).input("go").await.unwrap();
    within(gate.entered()).await;
    let events = kernel.events();
    root.kill().await.unwrap();
    let is_end_of_child = |event: &Event| matches!(event, Event::Exited { pid: Pid(2), .. });
    within(events_until(events, is_end_of_child)).await;
    // The supervisor answers after it has handled the end.
    kernel.processes().await.unwrap();
    assert_eq!(
        *servers.ended.lock().unwrap(),
        [root.pid(), root.pid()],
        "once for the root, and once for what the child may have begun since"
    );
}

/// Connections are those of trees, so what is asked through a child is asked for its root.
#[tokio::test]
async fn a_request_through_a_child_is_one_of_its_tree() {
    let (folder, gate) = (family(), Gate::default());
    let host = LocalHost::new(Permissions::none().allow_read("."), folder.path()).unwrap();
    let servers = Servers::default().offer("s", &[("a", "first")]);
    let stands = gate.clone();
    let model = FnModel(move |request: Request| {
        let gate = stands.clone();
        async move {
            if &*request.program == "main" {
                let args = r#"{"program_name": "child", "query": "look"}"#;
                return Ok(asks(&[("spawn", args)]));
            }
            gate.pass().await;
            Ok(says("done"))
        }
    });
    let builder = Kernel::builder().model("m", model).host(host);
    let kernel = builder.tool_servers(servers.clone()).build().await.unwrap();
    let main = kernel.load(folder.path().join("main.toml")).unwrap();
    kernel.start(main.program).input("go").await.unwrap();
    within(gate.entered()).await;
    let child = kernel.process(Pid(2)).await.unwrap();
    let server = child.view().unwrap().program.servers()[0].server.clone();
    child.server_introduction(&server).await.unwrap();
    let listed = child.request_server(&server, "prompts/list", json!({}));
    listed.await.unwrap();
    child.notify_servers("notifications/x", json!({})).await;
    // Its conversation has begun, so its tools stay; the list is asked for.
    let _ = child.update_mcp_tools().await;
    let requests = servers.requests.lock().unwrap().clone();
    let methods = ["initialize", "prompts/list", "notifications/x"];
    assert_eq!(requests, methods.map(|method| (method.to_owned(), 1)));
    assert_eq!(*servers.listed_for.lock().unwrap(), [1, 1]);
}

/// A client that answers no request.
struct NoAnswers;

impl ServerClient for NoAnswers {
    fn capabilities(&self) -> Value {
        json!({})
    }

    fn request(
        &self,
        _server: &Arc<str>,
        method: &str,
        _params: Value,
    ) -> BoxFuture<'static, ServerAnswer> {
        std::future::ready(Err(ServerRequestError::unknown_method(method))).boxed()
    }

    fn notify(&self, _server: &Arc<str>, _method: &str, _params: Value) {}
}

/// A process may call its servers before its start is reported to the caller.
#[tokio::test]
async fn servers_know_the_client_of_a_process_whose_start_was_given_up() {
    let servers = Servers::default();
    let kernel = Kernel::builder()
        .model("m", FnModel(|_| async { Ok(says("ok")) }))
        .tool_servers(servers.clone())
        .build()
        .await
        .unwrap();
    let client: Arc<dyn ServerClient> = Arc::new(NoAnswers);
    let start = kernel
        .start(program(&kernel, ""))
        .session()
        .without_input()
        .serve_client(Arc::downgrade(&client));
    let mut start = start.into_future();
    while kernel.processes().await.unwrap().is_empty() {
        assert!((&mut start).now_or_never().is_none());
    }
    drop(start);
    let serve = ("serve_client".to_owned(), 1);
    let is_served = || servers.requests.lock().unwrap().contains(&serve);
    within(async {
        while !is_served() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    within(kernel.shutdown()).await.unwrap();
}
