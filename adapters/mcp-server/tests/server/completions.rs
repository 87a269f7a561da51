//! Suggestions for the arguments of prompts and resource templates, which tool servers make.

use std::sync::Arc;

use dormouse_actors::handle::Kernel;
use dormouse_actors::ports::{
    Host, OffersTo, OutputSink, ServerAnswer, ServerRequestError, ToolError, ToolServers,
};
use dormouse_mcp_server::{McpServer, ProcessLifetime};
use dormouse_proto::id::Pid;
use dormouse_proto::server::{OfferedTool, Server};
use futures_util::future::{BoxFuture, FutureExt};
use serde_json::{Value, json};

use crate::support::Client;

/// Servers that suggest what their names say: `none` nothing, `refuses` an error.
struct Suggesting;

impl ToolServers for Suggesting {
    fn offers(
        &self,
        _host: &Arc<dyn Host>,
        _server: &Arc<Server>,
        _to: OffersTo,
    ) -> BoxFuture<'static, Result<Vec<OfferedTool>, ToolError>> {
        std::future::ready(Ok(Vec::new())).boxed()
    }

    fn call(
        &self,
        _host: &Arc<dyn Host>,
        _server: &Arc<Server>,
        _root: Pid,
        _tool: &str,
        _args: String,
        _out: OutputSink,
    ) -> BoxFuture<'static, Result<(), ToolError>> {
        std::future::ready(Ok(())).boxed()
    }

    fn introduction(
        &self,
        _host: &Arc<dyn Host>,
        _server: &Arc<Server>,
        _root: Pid,
    ) -> BoxFuture<'static, Result<Value, ToolError>> {
        let capabilities = json!({ "completions": {}, "resources": {} });
        std::future::ready(Ok(json!({ "capabilities": capabilities }))).boxed()
    }

    fn request(
        &self,
        _host: &Arc<dyn Host>,
        server: &Arc<Server>,
        _root: Pid,
        method: &str,
        _params: Value,
    ) -> BoxFuture<'static, ServerAnswer> {
        let answer = match (method, &*server.name) {
            ("completion/complete", "none") => Ok(json!({ "completion": { "values": [] } })),
            ("completion/complete", "some") => Ok(json!({ "completion": { "values": ["x"] } })),
            _ => Err(ServerRequestError::unknown_method(method)),
        };
        std::future::ready(answer).boxed()
    }

    fn end_tree(&self, _root: Pid) -> BoxFuture<'static, ()> {
        std::future::ready(()).boxed()
    }

    fn close(&self) -> BoxFuture<'static, ()> {
        std::future::ready(()).boxed()
    }
}

/// The suggestions of these servers for a resource template; `None` for an error.
async fn suggestions(servers: &[&str]) -> Option<Value> {
    let kernel = Kernel::builder().tool_servers(Suggesting);
    let kernel = kernel.build().await.unwrap();
    let mut text = "[model]\nname = \"none\"\nprovider = \"scripted\"\n".to_owned();
    for server in servers {
        text.push_str(&format!(
            "[mcp.servers.{server}]\ncommand = \"s\"\n[tools.mcp.{server}]\ntools = \"all\"\n"
        ));
    }
    let program = kernel.parse(text).unwrap().program;
    let server = McpServer::new(kernel.clone(), program, ProcessLifetime::PerSession);
    let mut client = Client::initialized(&server).await;
    let reference = json!({ "type": "ref/resource", "uri": "file:///{path}" });
    let params = json!({ "ref": reference, "argument": { "name": "path", "value": "a" } });
    let answer = client.request("completion/complete", params).await;
    kernel.shutdown().await.unwrap();
    answer["result"]["completion"].get("values").cloned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_suggestions_does_not_hide_those_of_the_next_one() {
    let cases: [(&[&str], Option<Value>); 5] = [
        (&["none", "some"], Some(json!(["x"]))),
        (&["refuses", "some"], Some(json!(["x"]))),
        (&["none", "refuses"], Some(json!([]))),
        (&["refuses", "none"], Some(json!([]))),
        (&["refuses"], None),
    ];
    for (servers, expected) in cases {
        assert_eq!(suggestions(servers).await, expected, "{servers:?}");
    }
}
