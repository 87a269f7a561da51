//! What the tests of this crate share: entries to write, and folders to damage.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use std::ops::ControlFlow;

use dormouse_actors::garbage::Piece;
use dormouse_actors::ports::inventory::Inventory;
use dormouse_actors::ports::{
    Batch, Bounds, Contents, Entry, Forgotten, MarkToken, OwnerToken, Purpose, Step, StockTaking,
    Store, StoreError, Sweep, Swept, TempFileChange,
};
use dormouse_proto::checkpoint::Scope;
use dormouse_proto::id::{CheckpointId, ContentHash, FactNumber, Pid};
use dormouse_proto::process::{Exit, ExitStatus, ProcessRow};
use dormouse_store::{Compression, LogStore, Options, StoreSecret};

/// The ways to keep a store that change its bytes and no answer.
pub(crate) fn coded() -> Vec<(&'static str, Options)> {
    let compressed = || LogStore::options().compression(Compression::Zstd(3));
    vec![
        ("encrypted", LogStore::options().key(secret(1))),
        ("compressed", compressed()),
        ("compressed and encrypted", compressed().key(secret(1))),
    ]
}

pub(crate) fn secret(byte: u8) -> StoreSecret {
    StoreSecret::new([byte; 32])
}

/// All files below a folder, in order.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path))
        } else {
            found.push(path)
        }
    }
    found.sort();
    found
}

/// When everything happens.
pub(crate) const NOW_MS: u64 = 1_700_000_000_000;

pub(crate) fn row(pid: u64) -> ProcessRow {
    ProcessRow::started(Pid(pid), "worker")
}

pub(crate) fn born(pid: u64) -> Entry {
    Entry::Born {
        row: row(pid),
        image: format!("image of {pid}").into_bytes(),
    }
}

pub(crate) fn fact(pid: u64, number: u64) -> Vec<u8> {
    format!("fact {number} of {pid}").into_bytes()
}

/// The facts `numbers` of a process, in one entry.
pub(crate) fn facts(pid: u64, numbers: std::ops::RangeInclusive<u64>) -> Entry {
    let first = FactNumber(*numbers.start());
    Entry::Facts {
        pid: Pid(pid),
        first,
        facts: numbers.map(|number| fact(pid, number)).collect(),
    }
}

pub(crate) fn snapshot(pid: u64, at: u64) -> Entry {
    Entry::Snapshot {
        pid: Pid(pid),
        at: FactNumber(at),
        image: format!("image of {pid} at {at}").into_bytes(),
    }
}

pub(crate) fn ended(pid: u64) -> Entry {
    Entry::Ended {
        pid: Pid(pid),
        exit: exit(),
    }
}

/// How far a segment is written: behind that stands room that is reserved.
pub(crate) fn written(segment: &Path) -> u64 {
    let bytes = std::fs::read(segment).unwrap();
    bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last as u64 + 1)
}

/// Both files of HEAD are gone.
pub(crate) fn lose_head(folder: &Path) {
    ["HEAD", "HEAD2"]
        .iter()
        .for_each(|file| fs::remove_file(folder.join(file)).unwrap());
}

/// The bytes of a change of temporary files.
pub(crate) fn change(root: u64, number: u64) -> Vec<u8> {
    format!("change {number} of the files of {root}").into_bytes()
}

pub(crate) fn temp_file(root: u64, number: u64) -> Entry {
    Entry::TempFile {
        root: Pid(root),
        number,
        record: change(root, number),
    }
}

/// What the changes say.
pub(crate) fn records(changes: Vec<TempFileChange>) -> Vec<Vec<u8>> {
    changes.into_iter().map(|change| change.record).collect()
}

pub(crate) fn checkpoint(id: u64, members: &[u64]) -> Entry {
    Entry::Checkpoint {
        id: CheckpointId(id),
        label: "before".into(),
        of: Pid(1),
        root: Pid(1),
        scope: Scope::Tree,
        members: members.iter().copied().map(Pid).collect(),
    }
}

pub(crate) fn exit() -> Exit {
    Exit::new(ExitStatus::Done, "all found")
}

/// A content that is like no other of another seed or length.
pub(crate) fn bytes(seed: u8, length: usize) -> Bytes {
    (0..length)
        .map(|at| (at / 251 + at * 7) as u8 ^ seed)
        .collect()
}

pub(crate) fn hash(bytes: &[u8]) -> ContentHash {
    ContentHash(*blake3::hash(bytes).as_bytes())
}

pub(crate) fn content(bytes: &Bytes) -> Entry {
    Entry::Content {
        hash: hash(bytes),
        bytes: bytes.clone(),
        index: Bytes::new(),
    }
}

/// All bytes of a content.
pub(crate) fn read(store: &dyn Store, hash: ContentHash) -> Result<Bytes, StoreError> {
    let backing = store.content(hash)?;
    backing
        .slice(0..backing.length())
        .map_err(|error| StoreError::Damaged {
            what: error.to_string(),
        })
}

/// Commits entries under the newest token, whichever that is.
pub(crate) fn commit(store: &dyn Store, owner: OwnerToken, entries: &[Entry]) {
    store
        .commit(owner, Batch::durable(entries, NOW_MS))
        .unwrap_or_else(|error| panic!("{entries:?} is refused: {error}"));
}

/// A folder for a store, in memory where the machine has that: no test waits for a disk that loses
/// no power meanwhile. What a loss of power takes is shown on a disk of our own (`power_tests`).
pub(crate) fn tempdir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

pub(crate) fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Segments of whatever is live but for a little, in small steps.
pub(crate) const THOROUGH: Bounds = Bounds {
    live_percent: 99,
    step_bytes: 400,
    close_bytes: u64::MAX,
};

/// The contents that something refers to; none where all stay, whatever refers to them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Live(Option<Vec<ContentHash>>);

impl Live {
    pub(crate) fn contain(&self, hash: ContentHash) -> bool {
        self.0.as_ref().is_none_or(|hashes| hashes.contains(&hash))
    }
}

/// Only these contents stay: every piece of a journal refers to each of them.
pub(crate) fn only(contents: &[&Bytes]) -> Live {
    Live(Some(contents.iter().map(|bytes| hash(bytes)).collect()))
}

/// A sweep by a fresh inventory.
pub(crate) struct Order {
    pub(crate) mark: MarkToken,
    pub(crate) purpose: Purpose,
    pub(crate) bounds: Bounds,
}

pub(crate) fn sweep_as(
    store: &dyn Store,
    owner: OwnerToken,
    live: &Live,
    Order {
        mark,
        purpose,
        bounds,
    }: Order,
    watch: &mut dyn FnMut(Step) -> ControlFlow<()>,
) -> Result<Swept, StoreError> {
    let inventory = &mut Inventory::default();
    let references = &mut |_: Piece<'_>| Ok(live.0.clone().unwrap_or_default());
    store.take_stock(StockTaking {
        inventory,
        references,
        watch: &mut || ControlFlow::Continue(()),
    })?;
    let contents = if live.0.is_some() {
        Contents::Referred
    } else {
        Contents::All
    };
    store.sweep(
        owner,
        Sweep {
            mark,
            inventory,
            contents,
            forgotten: &Forgotten::default(),
            purpose,
            bounds,
            watch,
        },
    )
}

/// Sweeps as thoroughly as can be, and asks `watch` before each step.
pub(crate) fn sweep_watched(
    store: &dyn Store,
    owner: OwnerToken,
    mark: MarkToken,
    live: &Live,
    watch: &mut dyn FnMut(Step) -> ControlFlow<()>,
) -> Result<Swept, StoreError> {
    sweep_as(
        store,
        owner,
        live,
        Order {
            mark,
            purpose: Purpose::Free,
            bounds: THOROUGH,
        },
        watch,
    )
}

/// Begins a mark and sweeps as thoroughly as can be.
pub(crate) fn sweep(store: &dyn Store, owner: OwnerToken, live: &Live) -> Swept {
    let mark = store.begin_mark(owner).unwrap();
    sweep_watched(store, owner, mark, live, &mut |_| ControlFlow::Continue(())).unwrap()
}

/// What a sweep would do.
pub(crate) fn count(store: &dyn Store, owner: OwnerToken, live: &Live) -> Swept {
    let order = Order {
        mark: MarkToken::default(),
        purpose: Purpose::Count,
        bounds: THOROUGH,
    };
    sweep_as(
        store,
        owner,
        live,
        order,
        &mut |_| ControlFlow::Continue(()),
    )
    .unwrap()
}

pub(crate) fn forgotten(pid: u64) -> Entry {
    Entry::Forgotten { pid: Pid(pid) }
}

pub(crate) fn shortened(pid: u64, below: u64) -> Entry {
    Entry::Shortened {
        pid: Pid(pid),
        below: FactNumber(below),
    }
}
