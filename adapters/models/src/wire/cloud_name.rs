//! Checks the names that become part of a cloud's addresses.

use dormouse_proto::model::ModelError;

use super::excerpt::{beginning, invalid};

/// A region or a project. It becomes part of a host or a path, so it has no character that could
/// name another host.
///
/// # Errors
/// There is no `name`, or it has other characters than letters, digits, `-`, and `.` and `:` for
/// projects of an organization. `help` says where to write it.
pub(crate) fn checked<'a>(
    what: &str,
    name: Option<&'a str>,
    further_chars: &[char],
    help: &str,
) -> Result<&'a str, ModelError> {
    let name = name.ok_or_else(|| invalid(format!("no {what}: set {help}")))?;
    let is_valid = |c: char| c.is_ascii_alphanumeric() || c == '-' || further_chars.contains(&c);
    if !name.is_empty() && name.chars().all(is_valid) {
        return Ok(name);
    }
    let shown = beginning(name);
    Err(invalid(format!(
        "'{shown}' is not the name of a {what}: set {help}"
    )))
}

/// A text as one segment of a path: every character that may mean something there is escaped.
pub(crate) fn path_segment(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
            char::from(byte).to_string()
        }
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}
