//! A tool server of the Model Context Protocol: the kernel starts a few lines of Python, and a
//! process calls the tool that they offer.
//!
//! ```text
//! The server says: 42 backwards is 24.
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use dormouse::Kernel;
use dormouse::host::{LocalHost, Permissions};
use dormouse::mcp::McpClient;
use dormouse::models::Scripted;
use dormouse::program::{ProgramBuilder, Provider};

/// Answers the four requests that a client makes.
const SERVER: &str = r#"
import json, sys
tool = {"name": "reverse", "description": "Reverses a text.",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
        "annotations": {"readOnlyHint": True}}
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    if request["method"] == "initialize":
        version = request["params"]["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": {"tools": {}},
                  "serverInfo": {"name": "mirror", "version": "1"}}
    elif request["method"] == "tools/list":
        result = {"tools": [tool]}
    elif request["method"] == "tools/call":
        text = request["params"]["arguments"]["text"]
        result = {"content": [{"type": "text", "text": f"{text} backwards is {text[::-1]}."}]}
    else:
        result = {}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"#;

const SCRIPT: &str = r#"
[[turn]]
when.round = 0
calls = [{ tool = "mirror__reverse", args = { text = "42" } }]
[[turn]]
text = "The server says: {{ last }}"
"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A system that cannot confine the server runs it unconfined.
    let permissions = Permissions::none()
        .allow_run("python3")
        .allow_without_confinement();
    let kernel = Kernel::builder()
        .model("m", Scripted::parse(SCRIPT, "m")?)
        .host(LocalHost::new(permissions, ".")?)
        .tool_servers(McpClient::default())
        .build()
        .await?;
    let program = ProgramBuilder::new("m", Provider::Scripted)
        .set(&["mcp", "servers", "mirror", "command"], "python3")
        .set(&["mcp", "servers", "mirror", "args"], vec!["-c", SERVER])
        .set(&["tools", "mcp", "mirror"], "all");
    let program = kernel.parse(program)?.program;
    let process = kernel.start(program).input("What is 42 backwards?").await?;
    println!("{}", process.wait().await?.message);
    kernel.shutdown().await?;
    Ok(())
}
