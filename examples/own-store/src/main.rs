//! A session whose conversation is kept in a SQLite file: each run of this program continues it.
//!
//! ```sh
//! cargo run --manifest-path examples/own-store/Cargo.toml -- target/session.db "Good morning."
//! ```

use std::path::PathBuf;

use dormouse::models::Scripted;
use dormouse::{Event, Kernel};
use dormouse_own_store::SqliteLog;
use futures_util::StreamExt;

const PROGRAM: &str = "
[model]
name = 'counts'
provider = 'scripted'
";

/// A model that is asked without a network: it knows how often it replied, which the store keeps.
const SCRIPT: &str = "
[[turn]]
text = 'This is turn {{ turn }} of our conversation.'
";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let file: PathBuf = args.next().ok_or("name a file, and say something")?.into();
    let text = args.next().ok_or("say something")?;
    let kernel = Kernel::open(SqliteLog::open(&file)?)
        .model("counts", Scripted::parse(SCRIPT, "counts")?)
        .build()
        .await?;
    let session = match kernel.named("session").await {
        Ok(session) => session,
        Err(_) => {
            let start = kernel.start(kernel.parse(PROGRAM)?.program);
            start.session().name("session").without_input().await?
        }
    };
    let mut events = session.events();
    session.input(text).await?;
    while let Some(event) = events.next().await {
        if let Event::TurnEnded { outcome, .. } = event {
            println!("{}", outcome.message);
            break;
        }
    }
    kernel.shutdown().await?;
    Ok(())
}
