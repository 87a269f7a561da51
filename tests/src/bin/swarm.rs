//! One life of the swarm that is killed: `swarm FOLDER often|never`. See `dormouse_tests::swarm`.

use std::error::Error;
use std::path::PathBuf;

use dormouse_tests::swarm::{Snapshots, live};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1);
    let folder = args.next().map(PathBuf::from);
    let snapshots = args.next().and_then(|word| Snapshots::of(word.to_str()?));
    let (Some(folder), Some(snapshots)) = (folder, snapshots) else {
        return Err("usage: swarm FOLDER often|never".into());
    };
    live(&folder, snapshots).await
}
