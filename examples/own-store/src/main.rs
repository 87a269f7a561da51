//! A session whose conversation is stored in a SQLite file. Each run of this program adds a turn.
//!
//! ```sh
//! cargo run --manifest-path examples/own-store/Cargo.toml -- target/session.db "Good morning."
//! ```

use std::path::PathBuf;

use dormouse::Kernel;
use dormouse::models::Scripted;
use dormouse_own_store::SqliteLog;

const PROGRAM: &str = "
[model]
name = 'counts'
provider = 'scripted'
";

/// A model without a network. It counts its replies in the conversation, which the store keeps.
const SCRIPT: &str = "
[[turn]]
text = 'This is turn {{ turn }} of our conversation.'
";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let file: PathBuf = args
        .next()
        .ok_or("usage: dormouse-own-store FILE TEXT")?
        .into();
    let text = args.next().ok_or("usage: dormouse-own-store FILE TEXT")?;
    let kernel = Kernel::open(SqliteLog::open(&file)?)
        .model("counts", Scripted::parse(SCRIPT, "counts")?)
        .build()
        .await?;
    let session = match kernel.process_named("session").await {
        Ok(session) => session,
        Err(_) => {
            let start = kernel.start(kernel.parse(PROGRAM)?.program);
            start.session().name("session").without_input().await?
        }
    };
    println!("{}", session.turn(text).await?.message);
    kernel.shutdown().await?;
    Ok(())
}
