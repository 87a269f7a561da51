//! Two sessions that write to each other by name.
//!
//! ```text
//! ping: hears return
//! ping: served
//! pong: hears serve
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use dormouse::models::Scripted;
use dormouse::{Event, Kernel};
use futures_util::StreamExt;

const PROGRAM: &str = "
[model]
name = 'player'
provider = 'scripted'
[tools]
enabled = ['send_message']
";

const SCRIPT: &str = r#"
[[capture]]
name = "heard"
from = "input"
since = "prompt"
pattern = '<message>(\w+)</message>'
[[turn]]
when.prompt = "^begin$"
when.round = 0
calls = [{ tool = "send_message", args = { to = "pong", text = "serve" } }]
[[turn]]
when.prompt = "serve"
when.round = 0
calls = [{ tool = "send_message", args = { to = "ping", text = "return" } }]
[[turn]]
when.prompt = "^begin$"
text = "served"
[[turn]]
text = "hears {{ heard }}"
"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let kernel = Kernel::builder()
        .model("player", Scripted::parse(SCRIPT, "player")?)
        .build()
        .await?;
    let program = kernel.parse(PROGRAM)?.program;
    let mut events = kernel.events();
    let session = |name: &'static str| {
        let start = kernel.start(program.clone()).session().name(name);
        start.without_input()
    };
    let ping = session("ping").await?;
    session("pong").await?;
    ping.input("begin").await?;
    let mut turns = Vec::new();
    while let Some(event) = events.next().await {
        if let Event::TurnEnded { pid, outcome } = event {
            let name = if pid == ping.pid() { "ping" } else { "pong" };
            turns.push(format!("{name}: {}", outcome.message));
            if turns.len() == 3 {
                break;
            }
        }
    }
    turns.sort();
    println!("{}", turns.join("\n"));
    kernel.shutdown().await?;
    Ok(())
}
