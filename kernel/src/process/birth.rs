//! The image that a new process starts from: system prompt and tools are composed here, once, and frozen.

use std::sync::Arc;

use dormouse_proto::descriptor::DescriptorSettings;
use dormouse_proto::message::{Block, Message, Role};
use dormouse_proto::model::Usage;
use dormouse_proto::program::Variable;
use dormouse_proto::record::{Lifetime, Phase, Tally};
use dormouse_proto::spoken::Spoken;
use dormouse_proto::tool::Access;
use dormouse_proto::xml::Element;
use time::OffsetDateTime;

use super::toolbox::{Surroundings, Toolbox};
use super::{Image, Preloads};
use crate::content::Content;
use crate::program::Program;
use crate::syscall;
use crate::table::Table;
use crate::table::admission::{self, Admission};

/// What a new process gets beside its program.
#[derive(Clone, Copy, Debug)]
pub struct Birth<'a> {
    /// What it may do.
    pub access: Access,
    /// How many ancestors it has.
    pub depth: u32,
    /// How long it lives.
    pub lifetime: Lifetime,
    /// What it starts with beside what its program says.
    pub preloads: &'a Preloads,
    /// The first thing said to it.
    pub input: Option<&'a Spoken>,
}

/// The image of a new process. Costs what its preloads and input bring.
#[must_use]
pub fn born(program: &Program, around: &Surroundings, birth: Birth<'_>, now_ms: u64) -> Image {
    let toolbox = Toolbox::new(program, around);
    let mut table = Table::default();
    // Where descriptors are off, nothing could read one.
    for (id, entry) in birth.preloads.descriptors.iter().filter(|_| program.descriptors().is_some()) {
        table.insert(id.clone(), entry.clone());
    }
    let said = birth.input.filter(|spoken| !spoken.parts.is_empty());
    let mailbox = said.map(|spoken| admit(&mut table, spoken, program.descriptors(), now_ms));
    Image {
        bundle: Content::new(program.bundle().to_bytes()),
        program: program.key().into(),
        system: system_prompt(program, &toolbox, around, &birth, now_ms).into(),
        tools: toolbox.specs().to_vec(),
        access: birth.access,
        depth: birth.depth,
        lifetime: birth.lifetime,
        messages: Vec::new(),
        mailbox: mailbox.into_iter().collect(),
        background: Vec::new(),
        next_fd: table.next_fd(),
        table: table.iter().map(|(id, entry)| (id.clone(), entry.clone())).collect(),
        epoch: 0,
        next_seq: 0,
        iterations: 0,
        phase: Phase::Idle,
        usage: Usage::default(),
        tally: Tally::default(),
    }
}

fn admit(table: &mut Table, spoken: &Spoken, settings: Option<&DescriptorSettings>, now_ms: u64) -> Arc<Message> {
    let mut blocks = Vec::with_capacity(spoken.parts.len());
    for part in &spoken.parts {
        let text = match admission::admit_input(table, part, settings, now_ms) {
            Admission::Direct(answer) => answer.text,
            Admission::Opened { id, entry, answer } => {
                table.insert(id, entry);
                answer.text
            }
        };
        blocks.push(Block::text(text));
    }
    Arc::new(Message { role: Role::User, blocks })
}

/// The program's own words, then what was preloaded, the environment, and how to use descriptors.
fn system_prompt(
    program: &Program,
    toolbox: &Toolbox,
    around: &Surroundings,
    birth: &Birth<'_>,
    now_ms: u64,
) -> String {
    let mut parts = vec![program.system().to_owned()];
    let preloads = preloaded(program, birth.preloads);
    if !preloads.is_empty() {
        parts.push(format!("<preload>\n{}\n</preload>", preloads.join("\n")));
    }
    let lines = environment(program, around, now_ms);
    if !lines.is_empty() {
        parts.push(Element::new("env_info").text(lines.join("\n")).to_xml());
    }
    if program.descriptors().is_some() {
        let mut named = toolbox.kernel_tools();
        named.extend(program.references().then_some(syscall::REFERENCES));
        named.extend(program.message_references().then_some(syscall::MESSAGES));
        named.extend(program.expands_any().then_some(syscall::HANDLES));
        parts.push(syscall::instructions(&named, &toolbox.aliases()));
    }
    parts.retain(|part| !part.is_empty());
    parts.join("\n\n")
}

/// Each preload as an element: those of the program, then those of this process.
fn preloaded(program: &Program, given: &Preloads) -> Vec<String> {
    let shown = |element: Element, content: &Content| {
        let encoding = content.is_binary().then_some("base64");
        element.attribute_if("encoding", encoding).text(content.text()).to_xml()
    };
    let file = |path: &str, content: &Content| shown(Element::new("preload_file").attribute("path", path), content);
    let of_program = program.preloads().iter().map(|(path, bytes)| file(path, &Content::new(bytes.clone())));
    let files = given.files.iter().map(|(path, content)| file(path, content));
    let temp_files = given.temp_files.iter().map(|(id, version, content)| {
        let element = Element::new("preload_temp_file").attribute("temp_file_id", id).attribute("version", version);
        shown(element, content)
    });
    let descriptors = given.descriptors.iter().map(|(id, entry)| {
        let element = Element::new("preload_fd")
            .attribute("fd", id)
            .attribute_if("name", entry.notes.name.as_ref())
            .attribute("source", &entry.source)
            .attribute_if("summary", entry.notes.summary.as_ref());
        shown(element, &entry.content)
    });
    of_program.chain(files).chain(temp_files).chain(descriptors).collect()
}

/// What the program asks to be told of the environment: a line each, as far as it is known.
fn environment(program: &Program, around: &Surroundings, now_ms: u64) -> Vec<String> {
    let choice = program.environment();
    let variables = choice.variables.iter().filter_map(|variable| {
        let value = match variable {
            Variable::Date => Some(date(now_ms)),
            other => around.environment.get(other.word()).cloned(),
        };
        Some(format!("{}: {}", variable.word(), value?))
    });
    variables.chain(choice.custom.iter().map(|(label, text)| format!("{label}: {text}"))).collect()
}

/// The day of a time, UTC, as `2026-01-31`.
fn date(now_ms: u64) -> String {
    let seconds = i64::try_from(now_ms / 1000).unwrap_or(i64::MAX);
    OffsetDateTime::from_unix_timestamp(seconds).map_or_else(|_| "unknown".to_owned(), |time| time.date().to_string())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bytes::Bytes;
    use dormouse_proto::record::Lifetime;
    use dormouse_proto::tool::Access;

    use super::*;
    use crate::program::compile;

    #[test]
    fn a_model_is_told_which_of_its_tools_an_answer_means() {
        const PROGRAM: &str = r#"
[model]
name = "m"
provider = "scripted"
[tools]
enabled = [{ name = "read_fd", alias = "look" }, "list_fds"]
"#;
        let read = &mut |_: &Path| Ok(Bytes::from_static(PROGRAM.as_bytes()));
        let (program, around) = (compile(Path::new("p.toml"), read, &[]).unwrap().program, Surroundings::default());
        let birth = Birth {
            access: Access::Read,
            depth: 0,
            lifetime: Lifetime::Task,
            preloads: &Preloads::default(),
            input: None,
        };
        let prompt = system_prompt(&program, &Toolbox::new(&program, &around), &around, &birth, 0);
        assert!(prompt.contains("- read_fd, here and in answers, is your tool look.\n"), "{prompt}");
        assert_eq!(prompt.matches("is your tool").count(), 1, "{prompt}");
    }

    #[test]
    fn days_have_their_dates() {
        let cases =
            [(0, "1970-01-01"), (86_399_999, "1970-01-01"), (1_709_164_800_000, "2024-02-29"), (u64::MAX, "unknown")];
        for (now_ms, expected) in cases {
            assert_eq!(date(now_ms), expected);
        }
    }
}
