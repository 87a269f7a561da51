//! What the system prompt says of descriptors: exactly the tools that a process has.

/// A part of the instructions, and the tool without which it is left out.
type Line = (&'static str, &'static str);

/// The name of what is no tool and is told of like one: parts of replies that a model marks itself.
pub const REFERENCES: &str = "references";

const COMMANDS: [Line; 9] = [
    ("read_fd", "read_fd(fd=\"fd:1\", page=2) - read page 2"),
    ("read_fd", "read_fd(fd=\"fd:1\", start_line=45, end_line=90) - read lines 45 to 90"),
    ("read_fd", "read_fd(fd=\"fd:1\", mode=\"char\", start=100, count=200) - read 200 characters from position 100 on"),
    ("read_fd", "read_fd(fd=\"fd:1\", read_all=true) - read everything"),
    ("read_fd", "read_fd(fd=\"fd:1\", page=2, extract_to_new_fd=true) - make page 2 a descriptor of its own"),
    (
        "search_fd",
        "search_fd(fd=\"fd:1\", query=\"error\", case_sensitive=false, context=2) - find text, with 2 lines around it",
    ),
    ("fd_to_file", "fd_to_file(fd=\"fd:1\", file_path=\"out.txt\") - write everything to a file"),
    (
        "fd_to_file",
        "fd_to_file(fd=\"fd:1\", file_path=\"out.txt\", page=2, mode=\"append\") - add page 2 to the end of a file",
    ),
    (
        "fd_to_file",
        "fd_to_file(fd=\"fd:1\", file_path=\"out.txt\", exist_ok=false) - write, but never over a file that is there",
    ),
];

const TIPS: [Line; 6] = [
    (
        "read_fd",
        "continued=\"true\" means that a part begins inside a line, truncated=\"true\" that it ends inside one.",
    ),
    (
        "read_fd",
        "complete=\"false\" means that more was asked for than one answer shows: go on as next_mode, next_start and next_count say.",
    ),
    ("search_fd", "Search before you read: each match names its line, its page and its character position."),
    ("fd_to_file", "A file gets the exact content. You never have to repeat it yourself."),
    (
        REFERENCES,
        "Mark a part of what you say as <ref id=\"plan\">…</ref>: it is kept as ref:plan, usable wherever a descriptor is.",
    ),
    ("fork", "Children of a fork have the same descriptors under the same names: give each of them a part to work on."),
];

/// The instructions for a process that has these tools; empty if none of them is a descriptor tool. Only what the process
/// can do is mentioned.
#[must_use]
pub fn instructions(enabled: &[&str]) -> String {
    let commands = listed(&COMMANDS, enabled);
    if commands.is_empty() {
        return String::new();
    }
    let tips = listed(&TIPS, enabled);
    format!(
        "<file_descriptor_instructions>\n\
         Content that is too large for this conversation is kept in file descriptors (fd:1, fd:2, and so on). In its place you \
         see its first page and its size. Nothing of it is lost, and it stays available until you end.\n\n\
         Commands:\n{commands}\nTips:\n{tips}\
         </file_descriptor_instructions>"
    )
}

fn listed(lines: &[Line], enabled: &[&str]) -> String {
    lines.iter().filter(|(tool, _)| enabled.contains(tool)).map(|(_, line)| format!("- {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_enabled_tools_are_mentioned() {
        let tools = ["read_fd", "search_fd", "fd_to_file", "fork", REFERENCES];
        for enabled in [&tools[..1], &tools[..2], &tools[1..3], &tools[..], &["read_fd", "fork"]] {
            let text = instructions(enabled).replace("<ref id", REFERENCES);
            for tool in tools {
                assert_eq!(text.contains(tool), enabled.contains(&tool), "{tool} with {enabled:?}: {text}");
            }
        }
        for none in [&[][..], &["fork"], &["grep"]] {
            assert_eq!(instructions(none), "");
        }
    }
}
