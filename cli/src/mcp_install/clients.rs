//! The clients whose configuration is known, as a table: where their files are, and in which form
//! they keep their servers.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

/// The syntax of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syntax {
    /// JSON, possibly with comments and trailing commas.
    Json,
    Toml,
}

/// How an entry says which command starts its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryForm {
    /// `command` and `args`.
    CommandAndArgs,
    /// The same, with a key that a new entry needs in addition.
    With(&'static str, &'static str),
    /// `command` is the whole list, and `type` is `local`.
    CommandList,
}

/// A client.
#[derive(Debug)]
pub(super) struct KnownClient {
    /// The name for `--client`.
    pub(super) name: &'static str,
    /// Its files, relative to the home of the user: those of Linux first, then those of macOS.
    /// `.config` is `$XDG_CONFIG_HOME`.
    files: &'static [&'static str],
    pub(super) syntax: Syntax,
    /// The key of the table of servers.
    pub(super) servers_key: &'static str,
    pub(super) form: EntryForm,
}

pub(super) const CLIENTS: [KnownClient; 9] = [
    KnownClient {
        name: "claude-desktop",
        files: &[
            ".config/Claude/claude_desktop_config.json",
            "Library/Application Support/Claude/claude_desktop_config.json",
        ],
        syntax: Syntax::Json,
        servers_key: "mcpServers",
        form: EntryForm::CommandAndArgs,
    },
    KnownClient {
        name: "claude-code",
        files: &[".claude.json"],
        syntax: Syntax::Json,
        servers_key: "mcpServers",
        form: EntryForm::With("type", "stdio"),
    },
    KnownClient {
        name: "cursor",
        files: &[".cursor/mcp.json"],
        syntax: Syntax::Json,
        servers_key: "mcpServers",
        form: EntryForm::CommandAndArgs,
    },
    KnownClient {
        name: "vscode",
        files: &[
            ".config/Code/User/mcp.json",
            "Library/Application Support/Code/User/mcp.json",
        ],
        syntax: Syntax::Json,
        servers_key: "servers",
        form: EntryForm::With("type", "stdio"),
    },
    KnownClient {
        name: "windsurf",
        files: &[".codeium/windsurf/mcp_config.json"],
        syntax: Syntax::Json,
        servers_key: "mcpServers",
        form: EntryForm::CommandAndArgs,
    },
    KnownClient {
        name: "zed",
        files: &[".config/zed/settings.json"],
        syntax: Syntax::Json,
        servers_key: "context_servers",
        form: EntryForm::With("source", "custom"),
    },
    KnownClient {
        name: "codex",
        files: &[".codex/config.toml"],
        syntax: Syntax::Toml,
        servers_key: "mcp_servers",
        form: EntryForm::CommandAndArgs,
    },
    KnownClient {
        name: "gemini-cli",
        files: &[".gemini/settings.json"],
        syntax: Syntax::Json,
        servers_key: "mcpServers",
        form: EntryForm::CommandAndArgs,
    },
    KnownClient {
        name: "opencode",
        files: &[
            ".config/opencode/opencode.jsonc",
            ".config/opencode/opencode.json",
        ],
        syntax: Syntax::Json,
        servers_key: "mcp",
        form: EntryForm::CommandList,
    },
];

impl KnownClient {
    /// The file of the client: the first that exists, otherwise the last whose folder exists.
    /// `None` if there is neither: the client is not installed. The home does not count as such a
    /// folder, since it always exists.
    pub(super) fn find_file(&self, home: &Path, config: &Path) -> Option<PathBuf> {
        let paths = || {
            self.files
                .iter()
                .map(|file| match file.strip_prefix(".config/") {
                    Some(rest) => config.join(rest),
                    None => home.join(file),
                })
        };
        let has_folder = |path: &PathBuf| {
            path.parent()
                .is_some_and(|folder| folder != home && folder.is_dir())
        };
        paths()
            .find(|path| path.is_file())
            .or_else(|| paths().rfind(has_folder))
    }
}

impl EntryForm {
    /// The command of an entry; `None` if the entry has none, because its server is reached by a
    /// URL.
    pub(super) fn command(self, entry: &Value) -> Option<Vec<String>> {
        let texts = |values: &Value| -> Option<Vec<String>> {
            let texts = values.as_array()?.iter();
            texts.map(|text| Some(text.as_str()?.to_owned())).collect()
        };
        if self == Self::CommandList {
            return texts(&entry["command"]).filter(|command| !command.is_empty());
        }
        let mut command = vec![entry["command"].as_str()?.to_owned()];
        if !entry["args"].is_null() {
            command.extend(texts(&entry["args"])?);
        }
        Some(command)
    }

    /// The keys of an entry that say its command.
    pub(super) fn command_keys(self, command: &[String]) -> Map<String, Value> {
        let keys = match (self, command) {
            (Self::CommandList, command) => json!({ "command": command }),
            (_, [program, args @ ..]) => json!({ "command": program, "args": args }),
            (_, []) => json!({}),
        };
        into_map(keys)
    }

    /// The keys of a new entry.
    pub(super) fn new_entry(self, command: &[String]) -> Map<String, Value> {
        let mut entry = match self {
            Self::CommandAndArgs => Map::new(),
            Self::With(key, value) => into_map(json!({ key: value })),
            Self::CommandList => into_map(json!({ "type": "local", "enabled": true })),
        };
        entry.extend(self.command_keys(command));
        entry
    }
}

fn into_map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
