//! Embedding the kernel: a tool of the host, a durable session, its events, and going on with it in
//! a second life.
//!
//! ```sh
//! cargo run -p dormouse-examples --example embed
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use dormouse::models::Scripted;
use dormouse::store::LogStore;
use dormouse::{Event, FnTool, Kernel, KernelError, View};
use futures_util::StreamExt;
use schemars::JsonSchema;
use serde::Deserialize;

const PROGRAM: &str = r#"
[model]
name = "weather"
provider = "scripted"
[tools]
enabled = ["temperature"]
"#;

/// A model without a network: the first turn asks the tool, the second says what came back.
const SCRIPT: &str = r#"
[[turn]]
when.round = 0
text = "I look outside."
calls = [{ tool = "temperature", args = { city = "{{ prompt }}" } }]
[[turn]]
text = "In {{ prompt }} it is {{ last }}."
"#;

/// What the model has to give; the JSON schema that it sees is derived from this.
#[derive(Deserialize, JsonSchema)]
struct Place {
    /// The city's name.
    city: String,
}

async fn kernel(folder: &std::path::Path) -> Result<Kernel, Box<dyn std::error::Error>> {
    let temperature = FnTool::new(
        "temperature",
        "Measures a city's temperature.",
        |Place { city }: Place| async move {
            match city.as_str() {
                "Oslo" => Ok("4 °C"),
                "Rome" => Ok("19 °C"),
                _ => Err(format!("there is no thermometer in {city}")),
            }
        },
    );
    let store = LogStore::open(folder)?;
    Ok(Kernel::open(store)
        .model("weather", Scripted::parse(SCRIPT, "weather")?)
        .tool(temperature.idempotent())
        .build()
        .await?)
}

/// Says something to a session and returns what it answered.
async fn turn(session: &dormouse::Process, text: &str) -> Result<String, KernelError> {
    let mut events = session.events();
    session.input(text).await?;
    while let Some(event) = events.next().await {
        match event {
            Event::ToolCalled { tool, args, .. } => println!("  calls {tool} {args}"),
            Event::TurnEnded { outcome, .. } => return Ok(outcome.message.to_string()),
            _ => {}
        }
    }
    Err(KernelError::Closed)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;

    let first = kernel(folder.path()).await?;
    let program = first.parse(PROGRAM)?.program;
    let session = first.start(program).session().without_input().await?;
    println!("{}", turn(&session, "Oslo").await?);
    let pid = session.pid();
    first.shutdown().await?;

    let second = kernel(folder.path()).await?;
    let session = second.resume(pid).await?;
    println!(
        "process {pid} is back with {} messages",
        session.wait_for(View::is_idle).await?.messages
    );
    println!("{}", turn(&session, "Rome").await?);
    session.kill().await?;
    println!("{}", session.wait().await?.status.word());
    second.shutdown().await?;
    Ok(())
}
