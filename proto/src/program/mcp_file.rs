//! Parses a JSON file of tool servers in the format of other MCP clients: an object `mcpServers`
//! (or `servers`) that maps each server's name to its declaration.
//!
//! Keys that only other clients know are ignored. No error shows a value, since it may be a secret;
//! only an unknown `type` is quoted.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::mcp::{ServerSection, TransportKind, VALID_SERVER};
use super::{Keyword, Named, ParseAmountError, WithSpan, parse_duration_ms, shorten};
use crate::server::Server;

/// The first mistake in a file of servers, and its location. It shows no value of the file but a
/// `type`, since a value may be a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ServersFileError(String);

impl From<String> for ServersFileError {
    fn from(message: String) -> Self {
        Self(message)
    }
}

impl From<&str> for ServersFileError {
    fn from(message: &str) -> Self {
        Self(message.to_owned())
    }
}

/// The servers of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclaredServers {
    /// The servers, in the order written, without the disabled ones.
    pub servers: Vec<Server>,
    /// Servers that cannot be reached, since they speak another protocol.
    pub unsupported: Vec<UnsupportedServer>,
}

/// A server that speaks a protocol that this version does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsupportedServer {
    /// Its name.
    pub name: String,
    /// A sentence that says which server it is, and what to do.
    pub advice: String,
}

/// The transport that the protocol replaced by streamable HTTP.
const SSE: &str = "sse";

/// Parses a file of servers.
///
/// # Errors
/// [`ServersFileError`].
pub fn parse_servers(text: &str) -> Result<DeclaredServers, ServersFileError> {
    let value: Value = serde_json::from_str(text).map_err(|error| {
        format!(
            "it is not JSON: a mistake at line {}, column {}",
            error.line(),
            error.column()
        )
    })?;
    let servers = value
        .get("mcpServers")
        .or_else(|| value.get("servers"))
        .and_then(Value::as_object);
    let servers = servers.ok_or("it has no object \"mcpServers\"")?;
    let mut all = DeclaredServers::default();
    for (name, declared) in servers {
        if is_disabled(declared).map_err(|error| with_server_name(name, &error))? {
            continue;
        }
        if declared.get("type").and_then(Value::as_str) == Some(SSE) {
            all.unsupported.push(unsupported_sse(name));
            continue;
        }
        let server = parse_server(name, declared);
        all.servers
            .push(server.map_err(|error| with_server_name(name, &error))?);
    }
    Ok(all)
}

fn is_disabled(declared: &Value) -> Result<bool, ServersFileError> {
    match declared.as_object() {
        Some(declared) => read_flag(declared, "disabled"),
        None => Ok(false),
    }
}

fn unsupported_sse(name: &str) -> UnsupportedServer {
    UnsupportedServer {
        name: name.to_owned(),
        advice: format!(
            "the server `{}` is left out: it is of type \"sse\", which the protocol has replaced. \
             Most such servers also serve \"type\": \"http\", often at a url that ends with /mcp \
             in place of /sse; otherwise put a bridge in front of it: \"command\": \"npx\", \
             \"args\": [\"mcp-remote\", \"<its url>\"]",
            shorten(name)
        ),
    }
}

/// Prefixes an error with the name of its server.
fn with_server_name(name: &str, error: &ServersFileError) -> ServersFileError {
    format!("the server `{}` {error}", shorten(name)).into()
}

fn parse_server(name: &str, declared: &Value) -> Result<Server, ServersFileError> {
    let declared = declared.as_object().ok_or("is no object")?;
    let mut section = ServerSection {
        kind: read_kind(declared)?,
        command: read_text(declared, "command")?,
        url: read_text(declared, "url")?,
        args: read_texts(declared, "args")?,
        env: read_values(declared, "env")?,
        env_file: read_env_file(declared)?,
        headers: read_values(declared, "headers")?,
        ca_file: read_text(declared, "ca_file")?,
        cwd: read_text(declared, "cwd")?,
        optional: read_flag(declared, "optional")?,
        shared: read_optional_flag(declared, "shared")?,
        ..ServerSection::default()
    };
    read_duration(declared, "connect_timeout", &mut section.connect_timeout)?;
    read_duration(declared, "deadline", &mut section.deadline)?;
    read_duration(declared, "max_duration", &mut section.max_duration)?;
    section
        .build(name)
        .map_err(|why| format!("{why}: {VALID_SERVER}").into())
}

fn read_kind(declared: &Map<String, Value>) -> Result<Option<TransportKind>, ServersFileError> {
    let Some(word) = read_text(declared, "type")? else {
        return Ok(None);
    };
    TransportKind::from_word(&word).map(Some).ok_or_else(|| {
        let word = shorten(&word);
        format!("is of type {word:?}, which is not supported. Valid: stdio, http").into()
    })
}

/// The file of variables. Editors start servers in the folder that they call `${workspaceFolder}`.
fn read_env_file(declared: &Map<String, Value>) -> Result<Option<String>, ServersFileError> {
    let path = read_text(declared, "envFile")?;
    Ok(
        path.map(|path| match path.strip_prefix("${workspaceFolder}/") {
            Some(relative) => relative.to_owned(),
            None => path,
        }),
    )
}

/// Reads a duration into `ms`, which keeps its value if the key is not given.
fn read_duration(
    declared: &Map<String, Value>,
    key: &str,
    ms: &mut u64,
) -> Result<(), ServersFileError> {
    if let Some(text) = read_text(declared, key)? {
        let wrong = |error: ParseAmountError| {
            format!("has a `{key}` that is not a duration. {}", error.valid())
        };
        *ms = parse_duration_ms(&text).map_err(wrong)?;
    }
    Ok(())
}

fn read_text(declared: &Map<String, Value>, key: &str) -> Result<Option<String>, ServersFileError> {
    read_key(declared, key, &format!("a `{key}` that is not a text"))
}

/// Reads a flag that is false if the key is not given.
fn read_flag(declared: &Map<String, Value>, key: &str) -> Result<bool, ServersFileError> {
    Ok(read_optional_flag(declared, key)?.unwrap_or_default())
}

fn read_optional_flag(
    declared: &Map<String, Value>,
    key: &str,
) -> Result<Option<bool>, ServersFileError> {
    let wrong = format!("a `{key}` that is neither true nor false");
    read_key(declared, key, &wrong)
}

fn read_texts(declared: &Map<String, Value>, key: &str) -> Result<Vec<String>, ServersFileError> {
    let texts = read_key(
        declared,
        key,
        &format!("`{key}` that is not a list of texts"),
    )?;
    Ok(texts.unwrap_or_default())
}

fn read_values(
    declared: &Map<String, Value>,
    key: &str,
) -> Result<Vec<Named<String>>, ServersFileError> {
    let wrong = format!("`{key}` that is not an object of texts");
    let object: Map<String, Value> = read_key(declared, key, &wrong)?.unwrap_or_default();
    let value = |(name, value): (String, Value)| {
        let name = WithSpan {
            value: name,
            span: 0..0,
        };
        let value = value
            .as_str()
            .ok_or_else(|| format!("has {wrong}"))?
            .to_owned();
        Ok(Named { name, value })
    };
    object.into_iter().map(value).collect()
}

/// The value of a key; `None` if it is not given. If it has another type, the text of the error is
/// "has" followed by `wrong`.
fn read_key<T: DeserializeOwned>(
    declared: &Map<String, Value>,
    key: &str,
    wrong: &str,
) -> Result<Option<T>, ServersFileError> {
    let value = declared.get(key).cloned().unwrap_or_default();
    serde_json::from_value(value).map_err(|_| format!("has {wrong}").into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Transport;

    #[test]
    fn servers_are_read_as_other_clients_write_them() {
        let text = r#"{"mcpServers": {
            "git": {"command": "uvx", "args": ["mcp-server-git"], "env": {"A": "${B}"}, "autoApprove": ["x"]},
            "web": {"type": "streamable-http", "url": "http://h/mcp", "headers": {"Authorization": "Bearer ${T}"}},
            "off": {"command": "x", "disabled": true},
            "old": {"type": "sse", "url": "http://h/sse"},
            "slow": {"command": "y", "optional": true, "deadline": "5m", "shared": true,
                     "max_duration": "2h", "envFile": "${workspaceFolder}/.env"}
        }}"#;
        let DeclaredServers {
            servers,
            unsupported,
        } = parse_servers(text).unwrap();
        assert_eq!(unsupported[0].name, "old");
        assert!(unsupported[0].advice.contains("\"type\": \"http\""));
        let names: Vec<&str> = servers.iter().map(|server| &*server.name).collect();
        assert_eq!(names, ["git", "web", "slow"]);
        let Transport::Stdio(git) = &servers[0].transport else {
            panic!()
        };
        assert_eq!(
            (git.program.as_str(), git.args[0].written(), git.env.len()),
            ("uvx", "mcp-server-git", 1)
        );
        assert!(
            matches!(&servers[1].transport, Transport::Http { url, headers, .. } if url == "http://h/mcp" && headers.len() == 1)
        );
        assert!(servers[2].optional && servers[2].deadline_ms == 300_000);
        assert_eq!((servers[0].shared, servers[2].shared), (None, Some(true)));
        assert_eq!(servers[2].max_duration_ms, 7_200_000);
        assert!(
            matches!(&servers[2].transport, Transport::Stdio(slow) if slow.env_file.as_deref() == Some(".env"))
        );
    }

    #[test]
    fn errors_name_the_mistake_and_show_no_value() {
        let cases = [
            ("{", "it is not JSON: a mistake at line 1"),
            ("[]", "no object \"mcpServers\""),
            (
                r#"{"mcpServers": {"a": "s3cret"}}"#,
                "the server `a` is no object",
            ),
            (
                r#"{"mcpServers": {"a": {}}}"#,
                "neither a command nor a url",
            ),
            (
                r#"{"mcpServers": {"a": {"command": "x", "url": "http://y"}}}"#,
                "both a command and a url",
            ),
            (
                r#"{"mcpServers": {"a": {"url": "ftp://y"}}}"#,
                "neither http nor https",
            ),
            (
                r#"{"mcpServers": {"a": {"type": "ws", "url": "http://y"}}}"#,
                "not supported",
            ),
            (
                r#"{"mcpServers": {"a": {"type": "http", "command": "x"}}}"#,
                "has no url",
            ),
            (
                r#"{"mcpServers": {"a": {"command": "x", "env": {"K": ["s3cret"]}}}}"#,
                "`env` that is not an object",
            ),
            (
                r#"{"mcpServers": {"a": {"url": "http://y", "headers": {"X Key": "s3cret"}}}}"#,
                "the server `a` has a header with an invalid name",
            ),
            (
                r#"{"mcpServers": {"a": {"url": "http://y", "headers": {"": "s3cret"}}}}"#,
                "the server `a` has a header with an invalid name",
            ),
            (
                r#"{"mcpServers": {"a": {"url": "http://y", "headers": {"X-Key": "s3cret\n"}}}}"#,
                "the server `a` has a header whose value has a line end",
            ),
            (
                r#"{"mcpServers": {"a": {"command": "x", "args": "s3cret"}}}"#,
                "not a list of texts",
            ),
            (
                r#"{"mcpServers": {"a": {"command": "x", "deadline": "s3cret"}}}"#,
                "not a duration",
            ),
            (
                r#"{"mcpServers": {"a": {"command": "x", "disabled": "s3cret"}}}"#,
                "the server `a` has a `disabled` that is neither true nor false",
            ),
            (
                r#"{"mcpServers": {"a": {"command": "x", "optional": "s3cret"}}}"#,
                "the server `a` has a `optional` that is neither true nor false",
            ),
        ];
        for (text, expected) in cases {
            let error = parse_servers(text).unwrap_err().to_string();
            assert!(
                error.contains(expected) && !error.contains("s3cret"),
                "{text}: {error}"
            );
        }
    }
}
