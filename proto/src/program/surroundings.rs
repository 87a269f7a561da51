//! The small sections around a program: `[preload]`, `[linked_programs]`, `[demo]`, `[limits]`.

use toml::de::DeValue;

use super::At;
use super::amount::{parse_total_bytes, read_amount};
use super::reader::Reader;
use crate::command::CommandLimits;

/// The most programs that one may link.
const MOST_LINKS: usize = 256;
/// The most children of one fork, and of one process at a time.
const MOST_CHILDREN: u64 = 1_000;
/// The deepest tree.
const MOST_DEPTH: u64 = 64;
/// The most messages that a program may let wait for one process.
const MOST_MAIL: u64 = 10_000;
const MOST_RESTORES: u64 = 1_000;
/// The most processes of one command.
const MOST_PROCESSES: u64 = 100_000;
/// The most files that a process of a command holds open.
const MOST_OPEN_FILES: u64 = 1_000_000;
/// The words for when the children of a fork begin.
const FORK_RELEASE: [(&str, ForkRelease); 2] =
    [("first", ForkRelease::First), ("all", ForkRelease::All)];

/// `[preload]` as written: files whose text the model is given from the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PreloadSection {
    /// The files.
    pub files: Vec<At<String>>,
    /// Where relative ones start.
    pub relative_to: RelativeTo,
}

/// Where the relative paths of `[preload]` start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RelativeTo {
    /// In the folder of the program file.
    #[default]
    Program,
    /// In the working directory of whoever compiles.
    WorkingDirectory,
}

pub(super) fn read_preload(root: &mut Reader<'_>) -> PreloadSection {
    let Some(mut section) = root.section("preload") else {
        return PreloadSection::default();
    };
    let words = [
        ("program", RelativeTo::Program),
        ("cwd", RelativeTo::WorkingDirectory),
    ];
    let files = section.texts("files");
    let relative_to = section
        .word("relative_to", &words)
        .map(|word| word.value)
        .unwrap_or_default();
    section.finish();
    PreloadSection { files, relative_to }
}

/// An entry of `[linked_programs]`: a program that may be spawned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The name that the model spawns it by.
    pub name: At<String>,
    /// The program file.
    pub path: At<String>,
    /// What it is good for; may be empty.
    pub description: String,
}

pub(super) fn read_links(root: &mut Reader<'_>) -> Vec<Link> {
    let mut links = Vec::new();
    let Some(node) = root.get("linked_programs") else {
        return links;
    };
    let count = node.get_ref().as_table().map_or(0, |table| table.len());
    if !root.is_within("linked_programs", node, count, MOST_LINKS) {
        return links;
    }
    let Some(mut section) = root.section("linked_programs") else {
        return links;
    };
    for (name, node) in section.entries() {
        match node.get_ref() {
            DeValue::String(path) => {
                let path = At {
                    value: path.to_string(),
                    span: node.span(),
                };
                links.push(Link {
                    name,
                    path,
                    description: String::new(),
                });
            }
            DeValue::Table(table) => {
                let mut entry = section.inner(&name.value, table, node.span());
                let path = entry.required_text("path");
                let description = entry
                    .text("description")
                    .map(|text| text.value)
                    .unwrap_or_default();
                entry.finish();
                links.push(Link {
                    name,
                    path,
                    description,
                });
            }
            _ => section.wrong_type(
                &name.value,
                node,
                "a path, or a table of `path` and `description`",
            ),
        }
    }
    links
}

/// `[demo]` as written: what a demonstration would ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DemoSection {
    /// The inputs, one after the other.
    pub prompts: Vec<String>,
    /// Whether a demonstration waits between them; on unless said otherwise.
    pub pause_between_prompts: Option<bool>,
    /// How the program is called in listings.
    pub display_name: Option<String>,
}

pub(super) fn read_demo(root: &mut Reader<'_>) -> DemoSection {
    let Some(mut section) = root.section("demo") else {
        return DemoSection::default();
    };
    let demo = DemoSection {
        prompts: section
            .texts("prompts")
            .into_iter()
            .map(|prompt| prompt.value)
            .collect(),
        pause_between_prompts: section.flag("pause_between_prompts").map(|flag| flag.value),
        display_name: section.text("display_name").map(|name| name.value),
    };
    section.finish();
    demo
}

/// When the children of a fork begin to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForkRelease {
    /// The first at once, the others once something has come of it: what the first has sent is then
    /// in the provider's cache.
    #[default]
    First,
    /// All at once.
    All,
}

/// `[limits]` as written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitsSection {
    /// Children of one fork call.
    pub max_fork_children: Option<u32>,
    /// Children of one process that run at a time.
    pub max_children: Option<u32>,
    /// Levels of processes below a root.
    pub max_depth: Option<u32>,
    /// When the children of a fork begin to run.
    pub fork_release: Option<ForkRelease>,
    /// Messages that wait for one process.
    pub max_mailbox: Option<u32>,
    /// How often a process takes itself back to a checkpoint.
    pub max_restores: Option<u32>,
    /// What one run of a command, or a tool server, may use of the machine.
    pub commands: CommandLimits,
}

fn read_command_limits(section: &mut Reader<'_>) -> CommandLimits {
    let default = CommandLimits::default();
    let mut bytes = |key| read_amount(section, key, parse_total_bytes, 1);
    let memory_bytes = bytes("command_memory").unwrap_or(default.memory_bytes);
    let file_bytes = bytes("command_file_size").unwrap_or(default.file_bytes);
    let mut count = |key, most| {
        section
            .number(key, 1..=most)
            .and_then(|number| u32::try_from(number.value).ok())
    };
    let processes = count("command_processes", MOST_PROCESSES).unwrap_or(default.processes);
    let open_files = count("command_open_files", MOST_OPEN_FILES).unwrap_or(default.open_files);
    CommandLimits {
        memory_bytes,
        processes,
        file_bytes,
        open_files,
    }
}

pub(super) fn read_limits(root: &mut Reader<'_>) -> LimitsSection {
    let Some(mut section) = root.section("limits") else {
        return LimitsSection::default();
    };
    let mut limit = |key, most| {
        section
            .number(key, 1..=most)
            .and_then(|number| u32::try_from(number.value).ok())
    };
    let limits = LimitsSection {
        max_fork_children: limit("max_fork_children", MOST_CHILDREN),
        max_children: limit("max_children", MOST_CHILDREN),
        max_depth: limit("max_depth", MOST_DEPTH),
        max_mailbox: limit("max_mailbox", MOST_MAIL),
        max_restores: limit("max_restores", MOST_RESTORES),
        fork_release: section
            .word("fork_release", &FORK_RELEASE)
            .map(|word| word.value),
        commands: read_command_limits(&mut section),
    };
    section.finish();
    limits
}
