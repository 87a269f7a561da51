//! What grows: a line each minute, and at the end how the last third compares with the one before.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;

use super::Soak;

/// How many lines are printed, at most one in a minute.
const LINES: u32 = 60;

/// Counted since the line before, but for what stands as it is.
#[derive(Default)]
pub(super) struct Figures {
    acted: AtomicU64,
    refused: AtomicU64,
    opened: AtomicU64,
    rows: AtomicU64,
    living: AtomicU64,
    /// How long each collection took, and how many records it looked at.
    collections: Mutex<Vec<(Duration, u64)>>,
    lines: Mutex<Vec<Line>>,
}

#[derive(Clone, Copy, Debug)]
struct Line {
    rows: u64,
    living: u64,
    resident: u64,
    contents: u64,
    disk: u64,
    files: u64,
    tasks: u64,
    collection: Duration,
    looked_at: u64,
}

impl Figures {
    pub(super) fn acted(&self) {
        self.acted.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn opened(&self) {
        self.opened.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn counted(&self, rows: usize, living: usize) {
        self.rows.store(rows as u64, Ordering::Relaxed);
        self.living.store(living as u64, Ordering::Relaxed);
    }

    pub(super) fn collected(&self, lasted: Duration, looked_at: u64) {
        self.collections.lock().unwrap().push((lasted, looked_at));
    }

    /// How the last third of the lines compares with the second, where there are so many.
    pub(super) fn print_end(&self) {
        let lines = self.lines.lock().unwrap();
        let third = lines.len() / 3;
        if third == 0 {
            return;
        }
        let mean = |of: &dyn Fn(&Line) -> f64, lines: &[Line]| {
            lines.iter().map(of).sum::<f64>() / lines.len() as f64
        };
        let grown = |name: &str, of: &dyn Fn(&Line) -> f64| {
            let (before, after) = (
                mean(of, &lines[third..2 * third]),
                mean(of, &lines[2 * third..]),
            );
            eprintln!(
                "soak: {name}: {:.2} times what it was in the third before",
                after / before.max(1e-9)
            );
        };
        grown("rows", &|line| line.rows as f64);
        grown("memory", &|line| line.resident as f64);
        grown("disk", &|line| line.disk as f64);
        grown("open files", &|line| line.files as f64);
        grown("tasks", &|line| line.tasks as f64);
        grown("time of a collection", &|line| {
            line.collection.as_secs_f64()
        });
        grown("records that a collection looks at", &|line| {
            line.looked_at as f64
        });
    }
}

/// Prints how things stand, until the end.
pub(super) async fn print(soak: Arc<Soak>) {
    eprintln!(
        "soak:  min      acts   refused  opened    rows  living   anon MB  contents MB  disk MB  \
         files  tasks   gc ms  gc records  twice"
    );
    let pause = (soak.plan.lasts / LINES)
        .max(Duration::from_secs(60))
        .min(soak.plan.lasts / 3);
    while !soak.is_over() {
        soak.pause(pause).await;
        let contents = soak.open().await.kernel.resident_bytes();
        let figures = &soak.figures;
        let taken = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        let collections = std::mem::take(&mut *figures.collections.lock().unwrap());
        let line = Line {
            rows: figures.rows.load(Ordering::Relaxed),
            living: figures.living.load(Ordering::Relaxed),
            // Not what is mapped of the store's files, which the system takes back.
            resident: status("RssAnon:") * 1024,
            contents,
            disk: size(&soak.folder),
            files: fs::read_dir("/proc/self/fd").map_or(0, |open| open.count() as u64),
            tasks: Handle::current().metrics().num_alive_tasks() as u64,
            collection: collections
                .iter()
                .map(|(lasted, _)| *lasted)
                .sum::<Duration>()
                / collections.len().max(1) as u32,
            looked_at: collections
                .iter()
                .map(|(_, looked_at)| looked_at)
                .sum::<u64>()
                / collections.len().max(1) as u64,
        };
        let (explained, unexplained) = soak.calls.counts();
        eprintln!(
            "soak: {:4.1} {:9} {:9} {:7} {:7} {:7} {:8} {:12} {:8} {:6} {:6} {:7} {:11} \
             {explained}+{unexplained}",
            soak.began.elapsed().as_secs_f64() / 60.0,
            taken(&figures.acted),
            taken(&figures.refused),
            taken(&figures.opened),
            line.rows,
            line.living,
            line.resident >> 20,
            line.contents >> 20,
            line.disk >> 20,
            line.files,
            line.tasks,
            line.collection.as_millis(),
            line.looked_at,
        );
        figures.lines.lock().unwrap().push(line);
    }
}

/// A number of this process's status; 0 where the system has no such file.
fn status(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

/// What stands below a folder, in bytes on the disk.
fn size(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = fs::read_dir(folder) else {
        return 0;
    };
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size(&entry.path()),
        Ok(metadata) => metadata.blocks() * 512,
        Err(_) => 0,
    };
    entries.flatten().map(size).sum()
}
