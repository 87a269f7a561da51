//! What `dormouse mcp` keeps outside of a store: the contents of sessions, in a temporary store,
//! and outputs that outlive their session.

use std::path::{Path, PathBuf};
use std::time::Duration;

use dormouse::Kernel;
use dormouse::mcp::KnownLists;
use dormouse::ports::SweepMode;
use dormouse::retention::{EndedRule, Retention};
use dormouse_mcp_server::{KeepLimits, KeptOutputs};

use crate::failure::Failure;
use crate::temporary_store::{TemporaryStore, cache_folder};
use crate::terminal;

/// How often the space of sessions that have ended is freed in a temporary store.
const COLLECTION_INTERVAL: Duration = Duration::from_secs(60);

/// The folder for what is kept outside of a store. Without one, all outputs are in memory.
pub(super) fn cache_folder_or_warn() -> Option<PathBuf> {
    let folder = cache_folder();
    if folder.is_none() {
        terminal::print_stderr(
            "warning: neither HOME nor XDG_CACHE_HOME is set: without --store, outputs stay in \
             memory, none outlives its session, and no list of a server is kept",
        );
    }
    folder
}

pub(super) fn create_temporary_store(cache: &Path) -> Result<TemporaryStore, Failure> {
    let parent = cache.join("temporary");
    TemporaryStore::create(&parent).map_err(|error| {
        Failure::Usage(format!(
            "{} cannot be used: {error}. Name another folder by XDG_CACHE_HOME, or --store",
            parent.display()
        ))
    })
}

/// The folder of outputs that outlive their session. If it cannot be used, none does.
pub(super) fn open_kept_outputs(cache: Option<&Path>, age_ms: u64) -> Option<KeptOutputs> {
    if age_ms == 0 {
        return None;
    }
    let limits = KeepLimits {
        age: Duration::from_millis(age_ms),
        ..KeepLimits::default()
    };
    let folder = cache?.join("outputs");
    KeptOutputs::open(&folder, limits)
        .inspect_err(|error| {
            let folder = folder.display();
            terminal::print_stderr(&format!("warning: no output is kept in {folder}: {error}"));
        })
        .ok()
}

/// Frees the space of sessions that have ended, again and again.
pub(super) async fn collect_ended(kernel: Kernel) {
    let retention = Retention {
        ended: EndedRule::ForMs(0),
        ..Retention::default()
    };
    loop {
        tokio::time::sleep(COLLECTION_INTERVAL).await;
        // What was not freed is tried again next time.
        if let Err(error) = kernel
            .collect_garbage(retention.clone(), SweepMode::Free)
            .await
        {
            terminal::print_stderr(&format!(
                "warning: the space of ended sessions is not free yet: {error}"
            ));
        }
    }
}

/// What the servers listed at earlier starts, so that a client gets their tools before they run. If
/// the folder cannot be used, each start waits for the servers.
pub(super) fn open_known_lists(cache: Option<&Path>) -> KnownLists {
    let folder = cache.map(|cache| cache.join("lists"));
    let opened = folder.map(|folder| {
        KnownLists::open(&folder).inspect_err(|error| {
            let folder = folder.display();
            terminal::print_stderr(&format!(
                "warning: no list of a server is kept in {folder}: {error}"
            ));
        })
    });
    opened.and_then(Result::ok).unwrap_or_default()
}
