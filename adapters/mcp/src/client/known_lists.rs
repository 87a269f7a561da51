//! Keeps what servers last said of themselves, in a folder, so that the next kernel serves it
//! before any server runs.
//!
//! * A file holds what one server said, and nothing of its declaration. Its name is a hash of those
//!   parts of the declaration that decide what is listed: values of variables and headers may be
//!   secrets, so they do not enter the hash.
//! * A server that gets a header of the downstream client may list something else for each client,
//!   so its lists are not kept.
//! * Several kernels can use one folder. Files are replaced as a whole. A file that cannot be read
//!   counts as absent.

use std::collections::HashMap;
use std::fs::{self, DirBuilder};
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
/// The largest file.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// The most files; the oldest go first.
const MAX_FILES: usize = 256;
/// Files that were not used for this long are deleted.
const MAX_AGE: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// What servers said of themselves when they last ran: their introductions, tools, prompts and
/// resources. See [`McpClient::start_when_called`](crate::McpClient::start_when_called).
#[derive(Debug, Default)]
pub struct KnownLists {
    /// `None`: the lists end with this value.
    folder: Option<PathBuf>,
    by_name: Mutex<HashMap<String, Arc<ServerLists>>>,
}

/// The name under which the lists of a server are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListsName(String);

impl ListsName {
    /// The name for a server, for clients with these capabilities, since a server may offer more to
    /// a client that it can ask for something. `None` if the lists of the server must not be kept.
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
                let is_of_client =
                    |(_, value): &(String, ServerValue)| value.written().contains("${client:");
                if headers.iter().any(is_of_client) {
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
    /// Keeps the lists in this folder, which is created if it is absent, for this user alone.
    /// Without a folder ([`Default`]), they are forgotten with the kernel.
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
        let path = self.folder.as_ref()?.join(&name.0);
        let is_read = fs::metadata(&path).is_ok_and(|file| file.len() <= MAX_FILE_BYTES);
        let text = is_read.then(|| fs::read(path).ok()).flatten()?;
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
        if let Err(error) = replace_file(folder, &name.0, &lists.to_json()) {
            let folder = folder.display();
            tracing::warn!("the list of a tool server is not kept in {folder}: {error}");
        }
    }

    fn by_name(&self) -> MutexGuard<'_, HashMap<String, Arc<ServerLists>>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes a file that only this user can read. Others see the file before or the whole new one.
fn replace_file(folder: &Path, name: &str, text: &str) -> io::Result<()> {
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(text.as_bytes())?;
    // A power cut must not leave an empty file under the name: that one would count as absent, and
    // its list would be lost.
    file.as_file().sync_all()?;
    file.persist(folder.join(name))?;
    Ok(())
}

/// Deletes files beyond the maximum age, and the oldest ones beyond the maximum number.
fn prune(folder: &Path) -> io::Result<()> {
    let mut files: Vec<(SystemTime, PathBuf)> = fs::read_dir(folder)?
        .filter_map(Result::ok)
        .filter_map(|entry| {
            let metadata = entry.metadata().ok().filter(fs::Metadata::is_file)?;
            Some((metadata.modified().ok()?, entry.path()))
        })
        .collect();
    files.sort_by(|a, b| b.cmp(a));
    for (number, (written, path)) in files.into_iter().enumerate() {
        if number >= MAX_FILES || written.elapsed().is_ok_and(|age| age >= MAX_AGE) {
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
        let old = SystemTime::now() - MAX_AGE;
        let file = fs::File::options().write(true).open(files[0].path());
        file.unwrap().set_modified(old).unwrap();
        KnownLists::open(&folder).unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
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
