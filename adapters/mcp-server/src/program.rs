//! The program that stands between a client and other servers: their tools, and those that read
//! descriptors.

use std::fmt::Write;

use dormouse_kernel::syscall::{Group, names_of};
use serde_json::json;

/// What one call reads at most, unless a page is longer.
const MAX_READ_CHARS: u32 = 100_000;

/// Whether clients can have contents written into files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Files {
    /// They can, as far as the host permits it.
    Written,
    /// They cannot: there is no tool for it.
    Untouched,
}

/// What can be said of such a program.
#[derive(Clone, Copy, Debug)]
pub struct ProxySettings {
    /// An output of more characters becomes a descriptor.
    pub threshold_chars: u32,
    /// Characters of a page.
    pub page_chars: u32,
    /// Whether there is `fd_to_file`.
    pub files: Files,
}

/// What stands behind such a program.
#[derive(Clone, Debug, Default)]
pub struct Upstream {
    /// Tools of the host, by their names.
    pub tools: Vec<String>,
    /// The file that declares tool servers (`mcpServers`), by its name beside the program, and the
    /// servers in it. The tools of one keep their names, those of several are called
    /// `server__tool`.
    pub servers: Option<(String, Vec<String>)>,
}

/// The program as text, as a file would hold it. Its model is never asked: tools that ask one, and
/// those that make processes, are not in it. An argument that is exactly `{{fd:3}}` is replaced by
/// what that descriptor holds, so that large contents go from one tool to another past the client.
#[must_use]
pub fn proxy_program(settings: ProxySettings, upstream: &Upstream) -> String {
    let ProxySettings {
        threshold_chars,
        page_chars,
        files,
    } = settings;
    let is_given =
        |name: &&str| *name != "summarize_fd" && (*name != "fd_to_file" || files == Files::Written);
    let own = names_of(Group::Descriptors)
        .filter(is_given)
        .map(|name| -> &str { name });
    let enabled: Vec<&str> = upstream
        .tools
        .iter()
        .map(String::as_str)
        .chain(own)
        .collect();
    let mut text = String::from("[model]\nname = \"none\"\nprovider = \"scripted\"\n\n[tools]\n");
    // Texts and lists of texts are the same in JSON and in TOML.
    let _ = writeln!(text, "enabled = {}\n", json!(enabled));
    if let Some((path, names)) = &upstream.servers {
        let _ = writeln!(text, "[mcp]\nconfig_path = {}\n\n[tools.mcp]", json!(path));
        for name in names {
            let selection = if names.len() == 1 {
                "{ tools = \"all\", prefix = \"\" }"
            } else {
                "\"all\""
            };
            let _ = writeln!(text, "{} = {selection}", json!(name));
        }
    }
    let expands = upstream.servers.is_some() || !upstream.tools.is_empty();
    let _ = writeln!(text, "\n[file_descriptor]\nexpand_fds = {expands}");
    let _ = writeln!(
        text,
        "max_direct_output_chars = {threshold_chars}\ndefault_page_size = {page_chars}"
    );
    // A page is read whole, however large it is wanted.
    let _ = writeln!(text, "max_read_chars = {}", MAX_READ_CHARS.max(page_chars));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tools_of_one_server_keep_their_names_and_nobody_writes_files_unasked() {
        let settings = ProxySettings {
            threshold_chars: 5,
            page_chars: 4,
            files: Files::Untouched,
        };
        let servers = |names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            proxy_program(
                settings,
                &Upstream {
                    servers: Some(("s.json".into(), names)),
                    ..Upstream::default()
                },
            )
        };
        let one = servers(&["a \"quoted\" name"]);
        assert!(
            one.contains("\"a \\\"quoted\\\" name\" = { tools = \"all\", prefix = \"\" }"),
            "{one}"
        );
        assert!(
            one.contains("read_fd") && !one.contains("fd_to_file") && !one.contains("summarize_fd"),
            "{one}"
        );
        let two = servers(&["a", "b"]);
        assert!(two.contains("\"a\" = \"all\"\n\"b\" = \"all\"\n"), "{two}");
    }
}
