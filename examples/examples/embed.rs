//! Embedding the kernel: a tool of the host, a durable session, its events, and its continuation by
//! a second kernel on the same store.
//!
//! ```sh
//! cargo run -p dormouse-examples --example embed
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use dormouse::models::Scripted;
use dormouse::store::LogStore;
use dormouse::{Event, FnTool, Kernel, Process, ProcessView};
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

/// A model without a network: the first turn calls the tool, the second repeats its answer.
const SCRIPT: &str = r#"
[[turn]]
when.round = 0
text = "I look outside."
calls = [{ tool = "temperature", args = { city = "{{ prompt }}" } }]
[[turn]]
text = "In {{ prompt }} it is {{ last }}."
"#;

/// The arguments of the tool. Their JSON schema, which the model sees, is derived from this type.
#[derive(Deserialize, JsonSchema)]
struct TemperatureArgs {
    /// The city's name.
    city: String,
}

async fn kernel(folder: &std::path::Path) -> Result<Kernel, Box<dyn std::error::Error>> {
    let temperature = FnTool::new(
        "temperature",
        "Measures a city's temperature.",
        |TemperatureArgs { city }: TemperatureArgs| async move {
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

/// Prints the tool calls of a session from now on, until its kernel shuts down.
fn print_calls(session: &Process) {
    let mut events = session.events();
    tokio::spawn(async move {
        while let Some(event) = events.next().await {
            if let Event::ToolCalled { tool, args, .. } = event {
                println!("  calls {tool} {args}");
            }
        }
    });
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;

    let first = kernel(folder.path()).await?;
    let program = first.parse(PROGRAM)?.program;
    let session = first.start(program).session().without_input().await?;
    print_calls(&session);
    println!("{}", session.turn("Oslo").await?.message);
    let pid = session.pid();
    first.shutdown().await?;

    let second = kernel(folder.path()).await?;
    let session = second.resume(pid).await?;
    print_calls(&session);
    println!(
        "process {pid} is back with {} messages",
        session.wait_for(ProcessView::is_idle).await?.messages
    );
    println!("{}", session.turn("Rome").await?.message);
    session.kill().await?;
    println!("{}", session.wait().await?.status.word());
    second.shutdown().await?;
    Ok(())
}
