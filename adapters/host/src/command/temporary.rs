//! A command's own folder for temporary files.
//!
//! What a command makes in it may be made to hurt who removes it: folders in folders, thousands deep. So it is removed by a thread with
//! room for that, or by the command's guard, which has nothing to lose.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::TempDir;

/// Address space for the way down; memory is used as far as it goes.
const STACK_BYTES: usize = 512 << 20;

/// A folder that is removed when it is dropped, unless a guard does so.
#[derive(Debug)]
pub(super) struct Temporary {
    path: PathBuf,
    is_left: AtomicBool,
}

impl Temporary {
    pub(super) fn new(folder: TempDir) -> Self {
        Self { path: folder.keep(), is_left: AtomicBool::new(false) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A guard removes it, when all that could write to it has ended.
    pub(super) fn leave_to_guard(&self) {
        self.is_left.store(true, Ordering::Relaxed);
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.is_left.load(Ordering::Relaxed) {
            drop(removing(std::mem::take(&mut self.path)));
        }
    }
}

/// Removes a folder and all below it, beside the caller. What cannot be removed stays behind, as any temporary file does.
pub(super) fn removing(folder: PathBuf) -> Option<std::thread::JoinHandle<()>> {
    let builder = std::thread::Builder::new().name("removing".to_owned()).stack_size(STACK_BYTES);
    builder.spawn(move || drop(std::fs::remove_dir_all(folder))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_with_its_last_holder_unless_a_guard_removes_it() {
        let make = || Temporary::new(tempfile::tempdir().unwrap());
        let left = make();
        left.leave_to_guard();
        let path = left.path().to_owned();
        drop(left);
        assert!(path.exists());
        removing(path.clone()).unwrap().join().unwrap();
        assert!(!path.exists());
        let dropped = make();
        let path = dropped.path().to_owned();
        std::fs::create_dir_all(path.join("a/b")).unwrap();
        drop(dropped);
        let began = std::time::Instant::now();
        while path.exists() {
            assert!(began.elapsed() < std::time::Duration::from_secs(10));
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }
}
