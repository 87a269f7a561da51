//! The tool `spawn`: a process gives a task, and one of its descriptors, to a new process of
//! another program.
//!
//! ```text
//! 1 buyer: The clerk says: 3 invoices are unpaid.
//! 2 clerk: 3 invoices are unpaid.
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::collections::BTreeMap;

use bytes::Bytes;
use dormouse::Kernel;
use dormouse::models::Scripted;

const BUYER: &str = "
[model]
name = 'office'
provider = 'scripted'
[tools]
enabled = ['read_fd', 'spawn']
[linked_programs]
clerk = { path = 'clerk.toml', description = 'Counts invoices.' }
";

const CLERK: &str = "
[model]
name = 'office'
provider = 'scripted'
[tools]
enabled = ['search_fd']
";

const SCRIPT: &str = r#"
[[capture]]
name = "count"
pattern = 'matches="(\d+)"'
[[turn]]
when.program = "clerk"
when.round = 0
calls = [{ tool = "search_fd", args = { fd = "fd:1", query = "unpaid" } }]
[[turn]]
when.program = "clerk"
text = "{{ count }} invoices are unpaid."
[[turn]]
when.round = 0
[[turn.calls]]
tool = "spawn"
args = { program_name = "clerk", query = "How many are unpaid?", additional_preload_fds = ["fd:1 lines 1-3"] }
[[turn]]
text = "The clerk says: {{ last }}"
"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let kernel = Kernel::builder()
        .model("office", Scripted::parse(SCRIPT, "office")?)
        .build()
        .await?;
    let files = BTreeMap::from([
        ("buyer.toml".to_owned(), Bytes::from(BUYER)),
        ("clerk.toml".to_owned(), Bytes::from(CLERK)),
    ]);
    let program = kernel.compile("buyer.toml", &files)?.program;
    let invoices = "invoice 17: unpaid\ninvoice 18: unpaid\ninvoice 19: unpaid\n".to_owned()
        + &"an older invoice: paid\n".repeat(500);
    let process = kernel.start(program).input(invoices).await?;
    process.wait().await?;
    for info in kernel.processes().await? {
        if let Some(exit) = info.row.exit {
            println!("{} {}: {}", info.row.pid, info.row.program, exit.message);
        }
    }
    kernel.shutdown().await?;
    Ok(())
}
