//! A function of yours as a tool. Its long output becomes a descriptor, of which the model reads
//! only one line.
//!
//! ```text
//! The tools returned 110154 characters, and 4404 of them entered the context.
//! The answer: line 07777
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use dormouse::Kernel;
use dormouse::models::Scripted;

const PROGRAM: &str = "
[model]
name = 'reader'
provider = 'scripted'
[tools]
enabled = ['numbers', 'read_fd']
";

const SCRIPT: &str = r#"
[[capture]]
name = "found"
pattern = '>(?<line>line \d+)\s*</fd_content>'
[[turn]]
when.round = 0
calls = [{ tool = "numbers", args = { count = 9999 } }]
[[turn]]
when.round = 1
calls = [{ tool = "read_fd", args = { fd = "fd:1", mode = "line", start = 7777, count = 1 } }]
[[turn]]
text = "{{ found.line }}"
"#;

/// Prints numbered lines.
#[dormouse::tool(access = "read", idempotent)]
async fn numbers(
    /// The number of lines.
    count: u32,
) -> Result<String, String> {
    Ok((1..=count)
        .map(|number| format!("line {number:05}\n"))
        .collect())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let kernel = Kernel::builder()
        .model("reader", Scripted::parse(SCRIPT, "reader")?)
        .tool(numbers())
        .build()
        .await?;
    let program = kernel.parse(PROGRAM)?.program;
    let process = kernel.start(program).input("Which is line 7777?").await?;
    let exit = process.wait().await?;
    let output_totals = process.view().ok_or("the process is gone")?.output_totals;
    println!(
        "The tools returned {} characters, and {} of them entered the context.",
        output_totals.produced_chars, output_totals.entered_chars
    );
    println!("The answer: {}", exit.message);
    kernel.shutdown().await?;
    Ok(())
}
