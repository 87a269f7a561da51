//! The tool `fork`: a process gives tasks to copies of itself, which have its whole conversation
//! and its descriptors.
//!
//! ```text
//! 1 done: apples: 120, pears: 80
//! 2 done: apples: 120
//! 3 done: pears: 80
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use dormouse::Kernel;
use dormouse::models::Scripted;

const PROGRAM: &str = "
[model]
name = 'counter'
provider = 'scripted'
[tools]
enabled = ['search_fd', 'fork']
";

/// The script of the model. Each child searches the basket for its prompt and reports the number of
/// matches (`count`). The parent forks, and joins what its children reported (`said`).
const SCRIPT: &str = r#"
[[capture]]
name = "count"
pattern = 'matches="(\d+)"'
since = "prompt"
[[capture]]
name = "said"
pattern = '[a-z]+: \d+'
from = "last"
take = "all"
[[turn]]
when.contains = "You are child"
calls = [{ tool = "search_fd", args = { fd = "fd:1", query = "{{ prompt }}" } }]
[[turn]]
when.tool = "search_fd"
text = "{{ prompt }}s: {{ count }}"
[[turn]]
when.round = 0
calls = [{ tool = "fork", args = { prompts = ["apple", "pear"] } }]
[[turn]]
text = "{{ said | join(', ') }}"
"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let kernel = Kernel::builder()
        .model("counter", Scripted::parse(SCRIPT, "counter")?)
        .build()
        .await?;
    let program = kernel.parse(PROGRAM)?.program;
    // More than 8,000 characters: the input becomes fd:1, which the children inherit.
    let basket = "an apple a day\n".repeat(120) + &"a ripe pear, and another day\n".repeat(80);
    let process = kernel
        .start(program)
        .input(basket + &".".repeat(8_000))
        .await?;
    process.wait().await?;
    for info in kernel.processes().await? {
        if let Some(exit) = info.row.exit {
            println!("{} {}: {}", info.row.pid, exit.status.word(), exit.message);
        }
    }
    kernel.shutdown().await?;
    Ok(())
}
