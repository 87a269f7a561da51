//! Keeps what servers last said of themselves, in a folder, so that the next kernel serves it
//! before any server runs.
//!
//! * A file holds what one server said, and nothing of its declaration: what the program or a
//!   configuration file says of the server. Its name is a hash of the declaration. Values of
//!   variables and headers may be secrets, so only their names enter the hash: of two declarations
//!   that differ in a value, each may be shown the list of the other until its server runs.
//! * A server that gets a header of the downstream client may list something else for each client,
//!   so its lists are not kept.
//! * Several kernels can use one folder. Files are replaced as a whole. A file that cannot be read
//!   counts as absent.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use dormouse_proto::server::{Server, ServerValue, Transport};
use serde_json::{Value, json};

use super::server_lists::ServerLists;

/// Part of each name: a program that writes another form ignores these files.
const FORMAT: u32 = 1;
/// How the names of files begin that are not complete yet.
const TEMPORARY_PREFIX: &str = ".tmp-list-";
/// The largest file.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// The most files; the oldest go first.
const MAX_FILES: usize = 256;
/// Files that were neither read nor written for this long are deleted.
const MAX_AGE: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// What servers said of themselves when they last ran: their introductions, tools, prompts and
/// resources. See [`McpClient::start_when_called`](crate::McpClient::start_when_called).
#[derive(Debug, Default)]
pub struct KnownLists {
    /// `None`: the lists are kept in memory only.
    folder: Option<PathBuf>,
    by_name: Mutex<HashMap<String, Arc<ServerLists>>>,
}

/// The name under which the lists of a server are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListsName(String);

impl ListsName {
    /// The name for a server and clients with these capabilities: a server may list more for a
    /// client that supports, say, sampling. `None` if the lists of the server must not be kept.
    pub(super) fn of(server: &Server, capabilities: &Value) -> Option<Self> {
        let names = |values: &[(String, ServerValue)]| -> Vec<String> {
            values.iter().map(|(name, _)| name.clone()).collect()
        };
        let transport = match &server.transport {
            Transport::Stdio(command) => {
                let args: Vec<_> = command.args.iter().map(ServerValue::written).collect();
                let env = names(&command.env);
                json!([command.program, args, env, command.env_file, command.cwd])
            }
            Transport::Http { url, headers, .. } => {
                if headers.iter().any(|(_, value)| value.refers_to_client()) {
                    return None;
                }
                json!([url, names(headers)])
            }
        };
        let named = json!([FORMAT, &*server.name, transport, capabilities]);
        let hash = blake3::hash(named.to_string().as_bytes());
        Some(Self(hash.to_hex().to_string()))
    }
}

impl KnownLists {
    /// Keeps the lists in this folder, which is created if it is absent, for this user alone. Old
    /// files that earlier kernels kept there are deleted; other files stay as they are. Without a
    /// folder ([`Default`]), they are forgotten with the kernel.
    ///
    /// # Errors
    /// The folder cannot be created or read.
    pub fn open(folder: impl Into<PathBuf>) -> io::Result<Self> {
        let folder = folder.into();
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)?;
        prune(&folder)?;
        Ok(Self {
            folder: Some(folder),
            by_name: Mutex::default(),
        })
    }

    /// What a server last said. Reads a file the first time; call it on a thread that may block.
    pub(super) fn get(&self, name: &ListsName) -> Option<Arc<ServerLists>> {
        if let Some(lists) = self.by_name().get(&name.0) {
            return Some(lists.clone());
        }
        let text = read_file(&self.folder.as_ref()?.join(&name.0))?;
        let lists = Arc::new(ServerLists::from_json(&text)?);
        // What a server said meanwhile is newer.
        let mut by_name = self.by_name();
        Some(by_name.entry(name.0.clone()).or_insert(lists).clone())
    }

    /// Keeps what a server says now. Writes a file; call it on a thread that may block.
    pub(super) fn put(&self, name: &ListsName, lists: &Arc<ServerLists>) {
        self.by_name().insert(name.0.clone(), lists.clone());
        let Some(folder) = &self.folder else {
            return;
        };
        // Without the file, the next kernel serves an older list, or waits for the server.
        let text = lists.to_json();
        let replaced = match text.len() as u64 {
            0..=MAX_FILE_BYTES => replace_file(folder, &name.0, &text),
            bytes => Err(io::Error::other(format!(
                "it has {bytes} bytes, more than the {MAX_FILE_BYTES} that are read"
            ))),
        };
        if let Err(error) = replaced {
            let folder = folder.display();
            tracing::warn!("the list of a tool server is not kept in {folder}: {error}");
        }
    }

    fn by_name(&self) -> MutexGuard<'_, HashMap<String, Arc<ServerLists>>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a file, and marks it as used. `None` if it cannot be read or is too large.
fn read_file(path: &Path) -> Option<Vec<u8>> {
    let metadata = fs::metadata(path).ok()?;
    if metadata.len() > MAX_FILE_BYTES {
        return None;
    }
    let text = fs::read(path).ok()?;
    // The time decides only when the file is deleted. A folder that is read-only stays as it is.
    let _ = File::options()
        .write(true)
        .open(path)
        .and_then(|file| file.set_modified(SystemTime::now()));
    Some(text)
}

/// Writes a file that only this user can read. Others see the file before or the whole new one.
fn replace_file(folder: &Path, name: &str, text: &str) -> io::Result<()> {
    let mut file = tempfile::Builder::new()
        .prefix(TEMPORARY_PREFIX)
        .tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    // A power cut must not leave an empty file under the name: an empty file counts as absent, and
    // the list before it would be lost.
    file.as_file().sync_all()?;
    file.persist(folder.join(name))?;
    Ok(())
}

/// Whether [`replace_file`] made a file of this name: a hash, or what it leaves behind if it is
/// killed.
fn is_own_file(name: &str) -> bool {
    let is_hash = name.len() == 2 * blake3::OUT_LEN && name.bytes().all(|c| c.is_ascii_hexdigit());
    is_hash || name.starts_with(TEMPORARY_PREFIX)
}

/// Deletes files of this module beyond the maximum age, and the oldest ones beyond the maximum
/// number.
fn prune(folder: &Path) -> io::Result<()> {
    let mut files: Vec<(SystemTime, PathBuf)> = fs::read_dir(folder)?
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_str().is_some_and(is_own_file))
        .filter_map(|entry| {
            let metadata = entry.metadata().ok().filter(fs::Metadata::is_file)?;
            Some((metadata.modified().ok()?, entry.path()))
        })
        .collect();
    files.sort_by(|a, b| b.cmp(a));
    for (number, (used, path)) in files.into_iter().enumerate() {
        if number >= MAX_FILES || used.elapsed().is_ok_and(|age| age >= MAX_AGE) {
            // Another kernel may have deleted it.
            let _ = fs::remove_file(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use dormouse_proto::program::parse_servers;

    use super::*;

    fn name_of(entry: Value) -> Option<ListsName> {
        let file = json!({ "mcpServers": { "s": entry } }).to_string();
        let servers = parse_servers(&file).unwrap().servers;
        ListsName::of(&servers[0], &json!({}))
    }

    fn lists(tool: &str) -> Arc<ServerLists> {
        let text = json!({ "introduction": {}, "entries": { "tools/list": [{ "name": tool }] } });
        Arc::new(ServerLists::from_json(text.to_string().as_bytes()).unwrap())
    }

    #[test]
    fn the_last_list_is_read_by_the_next_kernel_and_by_this_user_alone() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("lists");
        let name = name_of(json!({ "command": "x" })).unwrap();
        let first = KnownLists::open(&folder).unwrap();
        assert_eq!(first.get(&name), None);
        for tool in ["old", "new"] {
            first.put(&name, &lists(tool));
        }
        let next = KnownLists::open(&folder).unwrap();
        assert_eq!(next.get(&name), Some(lists("new")));
        let files: Vec<_> = fs::read_dir(&folder).unwrap().map(Result::unwrap).collect();
        assert_eq!(files.len(), 1, "{files:?}");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&files[0].path())), (0o700, 0o600));

        fs::write(files[0].path(), "{").unwrap();
        assert_eq!(KnownLists::open(&folder).unwrap().get(&name), None);
    }

    fn make_old(path: &Path) {
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - MAX_AGE).unwrap();
    }

    #[test]
    fn files_that_are_not_used_are_deleted_and_those_of_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let name = name_of(json!({ "command": "x" })).unwrap();
        let unused = name_of(json!({ "command": "y" })).unwrap();
        let known = KnownLists::open(folder.path()).unwrap();
        let temporary = format!("{TEMPORARY_PREFIX}x");
        fs::write(folder.path().join("own.txt"), "of another program").unwrap();
        fs::write(folder.path().join(&temporary), "").unwrap();
        for kept in [&name, &unused] {
            known.put(kept, &lists("a"));
        }
        for file in ["own.txt", &temporary, &name.0, &unused.0] {
            make_old(&folder.path().join(file));
        }
        // A kernel that reads a file keeps it for the next one.
        assert_eq!(
            KnownLists {
                folder: Some(folder.path().to_owned()),
                by_name: Mutex::default()
            }
            .get(&name),
            Some(lists("a"))
        );
        KnownLists::open(folder.path()).unwrap();
        let files = fs::read_dir(folder.path()).unwrap();
        let mut left: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
        left.sort();
        let mut expected = [name.0.as_str(), "own.txt"];
        expected.sort_unstable();
        assert_eq!(left, expected);
    }

    #[test]
    fn a_list_that_would_not_be_read_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let name = name_of(json!({ "command": "x" })).unwrap();
        let known = KnownLists::open(folder.path()).unwrap();
        let max = usize::try_from(MAX_FILE_BYTES).unwrap();
        known.put(&name, &lists(&"x".repeat(max)));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_name_follows_from_what_decides_the_list_and_from_no_secret() {
        let name = name_of(json!({ "command": "x", "args": ["a"], "env": { "K": "1" } }));
        for (entry, is_same) in [
            (
                json!({ "command": "x", "args": ["a"], "env": { "K": "2" } }),
                true,
            ),
            (
                json!({ "command": "x", "args": ["b"], "env": { "K": "1" } }),
                false,
            ),
            (
                json!({ "command": "y", "args": ["a"], "env": { "K": "1" } }),
                false,
            ),
        ] {
            assert_eq!(name_of(entry.clone()) == name, is_same, "{entry}");
        }
        let of_header = |value: &str| {
            name_of(json!({ "url": "https://h/mcp", "headers": { "Authorization": value } }))
        };
        assert_eq!(of_header("a"), of_header("${B}"));
        assert_eq!(of_header("Bearer ${client:X-Token}"), None);
    }
}
