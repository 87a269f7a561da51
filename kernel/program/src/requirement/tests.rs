//! Tests the list of what a program needs.

use std::path::Path;

use bytes::Bytes;

use super::super::compile;
use super::*;
use crate::KernelTool;

const ENTRY: &str = r#"
[model]
name = "m"
provider = "openai-chat"
base_url = "https://models.example/v1"
api_key_env = "THEIR_KEY"
[tools]
enabled = ["fd_to_file", "read_fd", "list_dir", "spawn"]
[tools.mcp]
files = "all"
far = "all"
[mcp.servers.files]
command = "npx"
args = ["server", "/tmp"]
env = { TOKEN = "${SECRET:-none}", LD_PRELOAD = "./theirs.so" }
cwd = "/srv"
[mcp.servers.far]
url = "https://tools.example/mcp"
headers = { Authorization = "Bearer ${FAR_KEY}" }
[[tools.command]]
name = "log"
description = "Shows the history."
argv = ["git", "log", "{file}"]
parameters.file = { type = "string", description = "A file." }
env = ["GIT_DIR"]
[limits]
command_processes = 9000
[linked_programs]
deep = "deep.toml"
"#;
const DEEP: &str = r#"
[model]
name = "d"
provider = "scripted"
[tools]
enabled = ["spawn"]
[env_info]
commands = ["uname -a"]
env_vars = { region = "REGION" }
[linked_programs]
back = "entry.toml"
"#;

#[test]
fn the_requirements_of_linked_programs_are_listed() {
    let mut read = |path: &Path| {
        Ok(Bytes::from(if path.ends_with("deep.toml") {
            DEEP
        } else {
            ENTRY
        }))
    };
    let tools = ["fd_to_file", "read_fd", "spawn"].map(|name| KernelTool {
        name,
        is_for_descriptors: name != "spawn",
        parameters: Vec::new(),
    });
    let entry = Path::new("entry.toml");
    let compiled = compile(entry, &mut read, &tools, &["list_dir"]);
    let program = compiled.unwrap().program;
    let words =
        |words: &[&str]| Resource::Command(words.iter().map(|word| (*word).to_owned()).collect());
    let variable = |name: &str| Resource::Variable(name.into());
    let (model, log) = (
        NeededBy::Model("m".into()),
        NeededBy::Command("log".into(), Access::Write),
    );
    let (files, far) = (
        NeededBy::Server("files".into()),
        NeededBy::Server("far".into()),
    );
    let preloaded = Resource::SetVariable {
        name: "LD_PRELOAD".into(),
        value: Some("./theirs.so".into()),
    };
    let limits = CommandLimits {
        processes: 9_000,
        ..CommandLimits::default()
    };
    let expected = [
        (
            "entry.toml",
            model.clone(),
            parse_address("https://models.example/v1"),
        ),
        ("entry.toml", model, variable("THEIR_KEY")),
        ("entry.toml", log.clone(), words(&["git", "log", "{file}"])),
        ("entry.toml", log.clone(), variable("GIT_DIR")),
        ("entry.toml", log, Resource::Limits(limits)),
        (
            "entry.toml",
            files.clone(),
            words(&["npx", "server", "/tmp"]),
        ),
        ("entry.toml", files.clone(), variable("SECRET")),
        (
            "entry.toml",
            files.clone(),
            Resource::SetVariable {
                name: "TOKEN".into(),
                value: None,
            },
        ),
        ("entry.toml", files.clone(), preloaded),
        ("entry.toml", files.clone(), Resource::Folder("/srv".into())),
        ("entry.toml", files, Resource::Limits(limits)),
        (
            "entry.toml",
            far.clone(),
            parse_address("https://tools.example/mcp"),
        ),
        ("entry.toml", far, variable("FAR_KEY")),
        (
            "entry.toml",
            NeededBy::Tool("fd_to_file".into()),
            Resource::Files(FileUse::Write),
        ),
        (
            "entry.toml",
            NeededBy::Tool("list_dir".into()),
            Resource::Files(FileUse::Read),
        ),
        ("deep.toml", NeededBy::Environment, words(&["uname", "-a"])),
        ("deep.toml", NeededBy::Environment, variable("REGION")),
    ];
    let expected = expected.map(|(program, needed_by, resource)| Requirement {
        program: program.to_owned(),
        needed_by,
        resource,
    });
    assert_eq!(program.requirements(), expected);
    let linked = program.linked_program("deep").unwrap();
    assert_eq!(
        linked.requirements().len(),
        expected.len(),
        "the linked program links back to the entry"
    );
    assert_eq!(linked.requirements()[0].program, "deep.toml");
}

#[test]
fn an_address_is_parsed_as_http_clients_do_and_shows_no_secret() {
    let at = |machine: &str, port| Some((machine.to_owned(), port));
    for (written, url, endpoint) in [
        (
            "https://me:secret@a.example/x?key=secret#y",
            "https://a.example/x",
            at("a.example", 443),
        ),
        (
            "https://a.example\\@b.example:1/",
            "https://a.example/@b.example:1/",
            at("a.example", 443),
        ),
        ("http://[::1]:9", "http://[::1]:9/", at("[::1]", 9)),
        ("http://127.1", "http://127.0.0.1/", at("127.0.0.1", 80)),
        ("nowhere", "nowhere", None),
        (
            "http://me:secret@a.example:99999/x?key=secret#y",
            "http://a.example:99999/x",
            None,
        ),
        ("http://me:se/cr?et@a.example", "http://a.example", None),
        ("me:secret@a b", "a b", None),
        ("https://bad host/?key=abc@def", "https://bad host/", None),
        ("https://me:secret@bad host/#a@b", "https://bad host/", None),
    ] {
        assert_eq!(
            parse_address(written),
            Resource::Address {
                url: url.into(),
                endpoint
            },
            "{written}"
        );
    }
}
