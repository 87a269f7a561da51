//! Generates the program of a proxy, which is `dormouse mcp` between a client and tool servers: its
//! processes have the tools of those servers and the tools that read descriptors.

use std::fmt::Write;

use dormouse_kernel::syscall::{Group, names_of};
use serde_json::json;

use crate::lean_tools::{self, DescriptorTools};

/// The most characters that one call of `read_fd` returns, unless a page is longer.
const MAX_READ_CHARS: u32 = 100_000;

/// Whether clients can write contents into files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileExport {
    /// They can, if the host permits it.
    Enabled,
    /// They cannot: the program does not have the tool.
    Disabled,
}

/// The settings of a proxy program.
#[derive(Clone, Copy, Debug)]
pub struct ProxySettings {
    /// An output of more characters becomes a descriptor.
    pub threshold_chars: u32,
    /// Characters of a page.
    pub page_chars: u32,
    /// Whether the program has the tool `fd_to_file`.
    pub files: FileExport,
    /// Which other tools for descriptors the program has. For short descriptions, tell the server
    /// too: [`McpServer::descriptor_tools`](crate::McpServer::descriptor_tools).
    pub descriptor_tools: DescriptorTools,
}

/// The tools that a proxy program offers to its clients.
#[derive(Clone, Debug, Default)]
pub struct ProxiedTools {
    /// Tools of the host, by their names.
    pub tools: Vec<String>,
    /// The file that declares tool servers (`mcpServers`), by its path relative to the program, and
    /// the names of the servers in it. Tools keep their names, unless tools of several servers or a
    /// descriptor tool have the same one: then they are called `server__tool`.
    pub servers: Option<(String, Vec<String>)>,
}

/// The program as TOML text. Its model is never called, so it has no tools that call a model and
/// none that create processes. An argument that is exactly `{{fd:3}}` is replaced by the content of
/// that descriptor, so that large contents go from one tool to another without passing the client.
#[must_use]
pub fn proxy_program(settings: ProxySettings, proxied: &ProxiedTools) -> String {
    let ProxySettings {
        threshold_chars,
        page_chars,
        files,
        descriptor_tools,
    } = settings;
    let is_included = |name: &&str| match *name {
        "summarize_fd" => false,
        "fd_to_file" => files == FileExport::Enabled,
        name => {
            descriptor_tools == DescriptorTools::Full
                || lean_tools::names().any(|lean| lean == name)
        }
    };
    let enabled_tools = names_of(Group::Descriptors)
        .filter(is_included)
        .map(|name| -> &str { name });
    let enabled: Vec<&str> = proxied
        .tools
        .iter()
        .map(String::as_str)
        .chain(enabled_tools)
        .collect();
    let mut text = String::from("[model]\nname = \"none\"\nprovider = \"scripted\"\n\n[tools]\n");
    // A string or a list of strings has the same syntax in JSON and in TOML.
    let _ = writeln!(text, "enabled = {}\n", json!(enabled));
    if let Some((path, names)) = &proxied.servers {
        let _ = writeln!(text, "[mcp]\nconfig_path = {}\n\n[tools.mcp]", json!(path));
        for name in names {
            let _ = writeln!(
                text,
                "{} = {{ tools = \"all\", prefix = \"\" }}",
                json!(name)
            );
        }
    }
    let expands_fds = proxied.servers.is_some() || !proxied.tools.is_empty();
    let _ = writeln!(text, "\n[file_descriptor]\nexpand_fds = {expands_fds}");
    let _ = writeln!(
        text,
        "max_direct_output_chars = {threshold_chars}\ndefault_page_size = {page_chars}"
    );
    // One call can always read a whole page, even if pages are larger than the default limit.
    let _ = writeln!(text, "max_read_chars = {}", MAX_READ_CHARS.max(page_chars));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tools_of_a_single_server_keep_their_names_and_files_are_not_written_by_default() {
        let settings = ProxySettings {
            threshold_chars: 5,
            page_chars: 4,
            files: FileExport::Disabled,
            descriptor_tools: DescriptorTools::Full,
        };
        let servers = |names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            proxy_program(
                settings,
                &ProxiedTools {
                    servers: Some(("s.json".into(), names)),
                    ..ProxiedTools::default()
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
        assert!(
            two.contains("\"b\" = { tools = \"all\", prefix = \"\" }"),
            "{two}"
        );
    }
}
