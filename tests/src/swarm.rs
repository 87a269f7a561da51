//! A swarm of processes that is killed and goes on: what it is made of, and one life of it.
//!
//! A coordinator forks, spawns in the foreground and in the background, and shares a temporary file
//! with all of them; they write to each other and to a clerk, who is a session of a tree of its
//! own. A life opens the store, looks that all is there that was acknowledged before, resumes what
//! there is, and tells on its output what is acknowledged from then on. It is meant to be killed;
//! the next goes on.

mod acknowledged;
mod mind;
mod talk;
mod tools;

use std::error::Error;
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use dormouse::host::{LocalHost, Permissions};
use dormouse::id::Pid;
use dormouse::model::Request;
use dormouse::ports::Store;
use dormouse::store::LogStore;
use dormouse::{Events, Kernel, Process};
use futures_util::StreamExt;

use crate::FnModel;

pub use acknowledged::{Held, Line};
pub use tools::Ledger;

/// How often the journals of a swarm are written anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Snapshots {
    /// So often that kills fall before, into and after it.
    Often,
    /// Never, so that every fact can be read.
    Never,
}

impl Snapshots {
    /// The word for it on a command line.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Often => "often",
            Self::Never => "never",
        }
    }

    /// The one that a word stands for.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        [Self::Often, Self::Never]
            .into_iter()
            .find(|snapshots| snapshots.word() == word)
    }

    fn after_facts(self) -> u64 {
        match self {
            Self::Often => 10,
            Self::Never => u64::MAX,
        }
    }
}

/// Small, so that kills fall into the beginning of a segment.
const SEGMENT_BYTES: u64 = 128 << 10;

/// What a life says when it has begun, before it opens the store.
pub const BEGUN: &str = "begun";

/// What stands before the microseconds that it took to open the store.
pub const OPENED: &str = "opened ";

/// What stands before the microseconds that it took to resume all.
pub const RESUMED: &str = "resumed ";

/// What stands before the coordinator's last word.
pub const RESULT: &str = "result ";

/// The file into which whoever kills a life writes what it had acknowledged.
pub const ACKNOWLEDGED: &str = "acknowledged";

/// The folder of the store.
pub const STORE: &str = "store";

const MODEL: &str = "[model]\nname = \"m\"\nprovider = \"scripted\"\nmax_iterations = 500\n";

/// The programs, by file.
const PROGRAMS: [(&str, &str); 3] = [
    (
        "coordinator.toml",
        "[tools]\nenabled = [\"record\", \"look\", \"survey\", \"read_fd\", \"search_fd\", \
         \"fd_to_file\", \"fork\", \"spawn\", \"wait\", \"send_message\", \"receive_messages\", \
         \"create_temp_file\", \"read_temp_file\", \
         \"append_temp_file\"]\n[file_descriptor]\nmax_direct_output_chars = \
         2000\ndefault_page_size = 1000\n[linked_programs]\nscout = \
         \"scout.toml\"\n[budget]\noutput_tokens = 1000000\n",
    ),
    (
        "scout.toml",
        "[tools]\nenabled = [\"record\", \"look\", \"read_fd\", \"send_message\", \
         \"receive_messages\", \"append_temp_file\"]\n",
    ),
    ("clerk.toml", "[tools]\nenabled = [\"send_message\"]\n"),
];

/// Makes what a swarm needs in `folder` before its first life.
///
/// # Errors
/// Those of the files.
pub fn prepare(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir(folder.join("out"))?;
    std::fs::write(folder.join(ACKNOWLEDGED), "")?;
    PROGRAMS
        .iter()
        .try_for_each(|(file, rest)| std::fs::write(folder.join(file), format!("{MODEL}{rest}")))
}

/// One life of the swarm in `folder`, to its end if nobody kills it.
///
/// # Errors
/// Whatever keeps the swarm from its end, and anything acknowledged that is not there.
pub async fn live(folder: &Path, snapshots: Snapshots) -> Result<(), Box<dyn Error>> {
    tell(BEGUN);
    let began = Instant::now();
    let store = LogStore::options()
        .segment_bytes(SEGMENT_BYTES)
        .open(folder.join(STORE))?;
    tell(&format!("{OPENED}{}", began.elapsed().as_micros()));
    let acknowledged = std::fs::read_to_string(folder.join(ACKNOWLEDGED))?;
    if let Some(lost) = Held::of(&store)?.lost(&acknowledged) {
        return Err(format!("'{lost}' was acknowledged and is not there").into());
    }
    let began = Instant::now();
    let kernel = kernel(store, folder, snapshots).await?;
    let telling = tokio::spawn(tell_all(kernel.events()));
    kernel.resume_all().await?;
    tell(&format!("{RESUMED}{}", began.elapsed().as_micros()));
    let exit = coordinator(&kernel, folder).await?.wait().await?;
    kernel.shutdown().await?;
    telling.await??;
    tell(&format!(
        "{RESULT}{}: {:?}",
        exit.status.word(),
        exit.message
    ));
    Ok(())
}

/// A kernel that has what the swarm in `folder` needs.
///
/// # Errors
/// Those of building it.
pub async fn kernel(
    store: impl Store,
    folder: &Path,
    snapshots: Snapshots,
) -> Result<Kernel, Box<dyn Error>> {
    let permissions = Permissions::none().allow_write("out").seal(STORE);
    let builder = Kernel::open(store)
        .snapshot_after_facts(snapshots.after_facts())
        .host(LocalHost::new(permissions, folder)?);
    let model = FnModel(|request: Request| async move { Ok(mind::reply(&request)) });
    Ok(
        tools::with_tools(builder.model("m", model), &Ledger::of(folder))
            .build()
            .await?,
    )
}

/// The coordinator. It and the clerk are started where they are not there yet.
///
/// # Errors
/// Those of the kernel, and of the programs.
pub async fn coordinator(kernel: &Kernel, folder: &Path) -> Result<Process, Box<dyn Error>> {
    let load = |file: &str| {
        kernel
            .load(folder.join(file))
            .map(|compiled| compiled.program)
    };
    let born = kernel.processes().await?.len();
    if born < 1 {
        kernel
            .start(load("clerk.toml")?)
            .session()
            .without_input()
            .name("clerk")
            .await?;
    }
    Ok(match born {
        0 | 1 => kernel.start(load("coordinator.toml")?).input("go").await?,
        _ => kernel.process(Pid(2)).await?,
    })
}

async fn tell_all(mut events: Events) -> Result<(), dormouse::record::codec::CodecError> {
    while let Some(event) = events.next().await {
        if let Some(line) = Line::of(&event)? {
            tell(&line.to_string());
        }
    }
    Ok(())
}

/// One line, and whole: who reads it may kill at any time.
fn tell(line: &str) {
    let told = std::io::stdout()
        .lock()
        .write_all(format!("{line}\n").as_bytes());
    told.expect("who reads the lines lives longer");
}
