//! The client under test of the conformance suite of the Model Context Protocol. It connects to the
//! server whose URL is the last argument, lists its tools, and calls each tool once with arguments
//! that match its schema.

use std::sync::Arc;

use anyhow::{Context, anyhow};
use dormouse_actors::ports::{Host, OffersTo, OutputSink, ToolServers};
use dormouse_host::{LocalHost, Permissions};
use dormouse_mcp::McpClient;
use dormouse_proto::id::Pid;
use dormouse_proto::server::{OfferedTool, Server, Transport};
use serde_json::{Map, Value, json};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let url = std::env::args()
        .next_back()
        .context("the last argument is the address of a server")?;
    let permissions = ["localhost", "127.0.0.1", "[::1]"]
        .into_iter()
        .fold(Permissions::none(), Permissions::allow_net);
    let host: Arc<dyn Host> = Arc::new(LocalHost::new(permissions, ".")?);
    let transport = Transport::Http {
        url,
        headers: Vec::new(),
        ca_file: None,
    };
    let name = "conformance".into();
    let server = Arc::new(Server {
        name,
        transport,
        optional: false,
        connect_ms: 15_000,
        shared: None,
        deadline_ms: 15_000,
        max_duration_ms: 15_000,
    });
    let client = McpClient::default();
    for offer in client
        .offers(&host, &server, OffersTo::AnyTree)
        .await
        .map_err(|why| anyhow!(why))?
    {
        let out = OutputSink::with_cap(1 << 20);
        let args = example_arguments(&offer)?.to_string();
        let answer = client
            .call(&host, &server, Pid(1), &offer.name, args, out.clone())
            .await;
        eprintln!("{}: {answer:?} {:?}", offer.name, out.take().bytes);
    }
    client.close().await;
    Ok(())
}

/// Arguments of the types in the schema of the tool.
fn example_arguments(offer: &OfferedTool) -> anyhow::Result<Value> {
    let schema: Value = serde_json::from_str(&offer.schema)?;
    let properties = schema["properties"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    let argument = |(name, property): (String, Value)| {
        let value = match property["type"].as_str() {
            Some("number" | "integer") => json!(5),
            Some("boolean") => json!(true),
            _ => json!("text"),
        };
        (name, value)
    };
    Ok(properties
        .into_iter()
        .map(argument)
        .collect::<Map<_, _>>()
        .into())
}
