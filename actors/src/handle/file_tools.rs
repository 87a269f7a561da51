//! The tools `read_file` and `list_dir`, for files that the host permits to be read. Every kernel
//! offers them to its programs.
//!
//! Both return complete results: output that is too large for a context becomes a descriptor. A
//! tool of the same name that the embedder registers replaces them.

use std::path::Path;
use std::sync::Arc;

use dormouse_content::CappedBytes;
use dormouse_kernel::table::attachment::shown_type;
use dormouse_proto::file::{DirEntry, EntryKind, FileError, Listing};
use dormouse_proto::tool::{Access, Attachment};
use schemars::JsonSchema;
use serde::Deserialize;

use super::FnTool;
use crate::ports::{Host, OutputSink, Tool, ToolError};

/// The most bytes of a file that are read.
const READ_BYTES: u64 = 256 << 20;

const READ_FILE: &str = "Reads a file, whole. A long one becomes a file descriptor, and you see \
its first page; an image or a PDF is shown to you.";
const LIST_DIR: &str = "Lists a directory, one entry a line: directories end with /, links with @, \
and files are followed by their size in bytes.";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReadFile {
    /// The file, by its path from the working directory, or by its full path.
    #[serde(alias = "path")]
    file_path: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListDir {
    /// The directory; the working directory, where none is given.
    #[serde(alias = "path", default = "default_directory")]
    directory_path: String,
    /// Whether entries whose names begin with a dot are listed too.
    #[serde(default)]
    all: bool,
}

fn default_directory() -> String {
    ".".to_owned()
}

/// Builds both tools. Each is returned with its name.
pub(super) fn file_tools(host: &Arc<dyn Host>) -> [(&'static str, Arc<dyn Tool>); 2] {
    let reading = host.clone();
    let read = FnTool::streaming(
        "read_file",
        READ_FILE,
        move |ReadFile { file_path }: ReadFile, out: OutputSink| {
            let host = reading.clone();
            run_blocking(move || read_file(&*host, &file_path, &out))
        },
    );
    let listing = host.clone();
    let list = FnTool::new(
        "list_dir",
        LIST_DIR,
        move |ListDir {
                  directory_path,
                  all,
              }: ListDir| {
            let host = listing.clone();
            run_blocking(move || {
                list_dir(
                    &*host,
                    &directory_path,
                    if all {
                        HiddenEntries::Listed
                    } else {
                        HiddenEntries::LeftOut
                    },
                )
            })
        },
    );
    [
        (
            "read_file",
            Arc::new(
                read.access(Access::Read)
                    .idempotent()
                    .output_cap(READ_BYTES),
            ),
        ),
        ("list_dir", Arc::new(list.access(Access::Read).idempotent())),
    ]
}

/// Runs `work` on a blocking thread.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(format!("the host failed internally: {error}").into()))
}

fn read_file(host: &dyn Host, path: &str, out: &OutputSink) -> Result<(), ToolError> {
    let CappedBytes { bytes, cut_bytes } = host
        .read_capped(Path::new(path), READ_BYTES)
        .map_err(to_tool_error)?;
    // The sink itself reports output that does not fit.
    let _ = match shown_type(&bytes).filter(|_| cut_bytes == 0) {
        Some(media_type) => {
            let name = Path::new(path)
                .file_name()
                .map(|name| name.to_string_lossy().into());
            out.attach(Attachment {
                name,
                media_type: media_type.into(),
                bytes,
            })
        }
        None => out.push(&bytes),
    };
    match cut_bytes {
        0 => Ok(()),
        _ => Err(format!(
            "{path} is longer: the text above is its first {READ_BYTES} bytes; {cut_bytes} more \
             follow."
        )
        .into()),
    }
}

/// Whether entries whose names begin with a dot are listed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HiddenEntries {
    Listed,
    LeftOut,
}

fn list_dir(host: &dyn Host, path: &str, hidden: HiddenEntries) -> Result<String, ToolError> {
    let Listing { entries, left_out } = host.list(Path::new(path)).map_err(to_tool_error)?;
    let is_listed =
        |entry: &&DirEntry| hidden == HiddenEntries::Listed || !entry.name.starts_with('.');
    let mut lines: Vec<_> = entries.iter().filter(is_listed).map(format_entry).collect();
    let hidden_count = entries.len() - lines.len();
    if left_out > 0 {
        lines.push(format!(
            "({left_out} more are not listed: the directory has too many entries.)"
        ));
    }
    Ok(match (lines.is_empty(), hidden_count) {
        (true, 0) => format!("{path} is empty."),
        (true, _) => format!(
            "{path} has nothing but entries whose names begin with a dot: {hidden_count}. With `all` \
             they are listed."
        ),
        (false, _) => lines.join("\n") + "\n",
    })
}

/// Formats an entry as a line.
fn format_entry(DirEntry { name, kind }: &DirEntry) -> String {
    // A file name may contain control characters; they are escaped so that each entry is one line.
    let name = name
        .chars()
        .fold(String::with_capacity(name.len()), |mut line, character| {
            if character.is_control() {
                line.extend(character.escape_default())
            } else {
                line.push(character)
            }
            line
        });
    match kind {
        EntryKind::File { bytes } => format!("{name}  {bytes}"),
        EntryKind::Directory => format!("{name}/"),
        EntryKind::Link => format!("{name}@"),
        EntryKind::Other => format!("{name}  (neither file nor directory)"),
        EntryKind::Unknown => format!("{name}  (its type cannot be determined)"),
    }
}

fn to_tool_error(error: FileError) -> ToolError {
    error.message.into()
}
