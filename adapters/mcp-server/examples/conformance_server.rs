//! A server for the official conformance suite of the Model Context Protocol: the tools that its
//! scenarios call are tools of the host, and a process serves them. `.ci/mcp-proxy` runs the suite
//! against it.
//!
//! Prints its URL, then serves until it is killed.

#![expect(clippy::print_stdout, reason = "an example shows its result")]

use dormouse_actors::handle::{FnTool, Kernel};
use dormouse_actors::ports::{OutputSink, Tool, ToolError};
use dormouse_mcp_server::{
    DescriptorTools, FileExport, HttpSettings, McpServer, ProcessLifetime, ProxiedTools,
    ProxySettings, proxy_program,
};
use dormouse_proto::tool::{ToolPolicy, ToolSpec};
use futures_util::future::{BoxFuture, FutureExt};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::net::TcpListener;

#[derive(Deserialize, JsonSchema)]
struct NoArguments {}

/// A tool whose schema uses keywords of the JSON Schema dialect 2020-12. A client must receive the
/// schema unchanged.
struct DialectTool;

impl Tool for DialectTool {
    fn spec(&self) -> ToolSpec {
        let schema = r##"{
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "$defs": {"address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
            "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
            "additionalProperties": false
        }"##;
        let (name, description) = (
            "json_schema_2020_12_tool".into(),
            "Takes a name and an address.".into(),
        );
        ToolSpec {
            name,
            description,
            schema: schema.into(),
        }
    }

    fn policy(&self) -> ToolPolicy {
        ToolPolicy::default()
    }

    fn call(&self, args: String, out: OutputSink) -> BoxFuture<'static, Result<(), ToolError>> {
        async move {
            // The sink itself reports output that does not fit.
            let _ = out.push(args.as_bytes());
            Ok(())
        }
        .boxed()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let kernel = Kernel::builder()
        .tool(FnTool::new(
            "test_simple_text",
            "Says something short.",
            |NoArguments {}: NoArguments| async {
                Ok::<_, String>("This is a simple text response for testing.")
            },
        ))
        .tool(FnTool::new(
            "test_error_handling",
            "Fails.",
            |NoArguments {}: NoArguments| async {
                Err::<String, _>("This tool intentionally returns an error for testing")
            },
        ))
        .tool(DialectTool)
        .build()
        .await?;
    let settings = ProxySettings {
        threshold_chars: 8000,
        page_chars: 4000,
        files: FileExport::Disabled,
        descriptor_tools: DescriptorTools::Full,
    };
    let tools = [
        "test_simple_text",
        "test_error_handling",
        "json_schema_2020_12_tool",
    ]
    .map(str::to_owned)
    .into();
    let proxied = ProxiedTools {
        tools,
        ..ProxiedTools::default()
    };
    let program = kernel.parse(proxy_program(settings, &proxied))?.program;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}/mcp", listener.local_addr()?);
    let server = McpServer::new(kernel, program, ProcessLifetime::PerSession);
    server
        .serve_http(listener, HttpSettings::default(), std::future::pending())
        .await?;
    Ok(())
}
