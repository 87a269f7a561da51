//! A command's own folder for temporary files.
//!
//! What a command makes in it may be made to hurt who removes it: folders in folders, thousands deep. So it is removed by a thread with
//! room for that, or by the command's guard, which has nothing to lose.

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use tempfile::TempDir;

/// Address space for the recursion; memory is used only as deep as it goes.
const STACK_BYTES: usize = 512 << 20;

/// A folder that is removed when this is dropped.
#[derive(Debug)]
pub(super) struct TempFolder(Option<PathBuf>);

impl TempFolder {
    pub(super) fn new(folder: TempDir) -> Self {
        Self(Some(folder.keep()))
    }

    pub(super) fn path(&self) -> &Path {
        self.0.as_deref().expect("it is taken only where it is consumed")
    }

    /// A guard removes it from now on, when all that could write to it has ended.
    pub(super) fn leave_to_guard(mut self) {
        self.0 = None;
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            drop(remove_on_a_thread(path));
        }
    }
}

/// Removes a folder and all below it, beside the caller. What cannot be removed stays behind, as any temporary file does.
pub(super) fn remove_on_a_thread(folder: PathBuf) -> Option<JoinHandle<()>> {
    let builder = std::thread::Builder::new().name("removing".to_owned()).stack_size(STACK_BYTES);
    builder.spawn(move || drop(std::fs::remove_dir_all(folder))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_with_its_last_holder_unless_a_guard_removes_it() {
        let make = || TempFolder::new(tempfile::tempdir().unwrap());
        let left = make();
        let path = left.path().to_owned();
        left.leave_to_guard();
        assert!(path.exists());
        remove_on_a_thread(path.clone()).unwrap().join().unwrap();
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
