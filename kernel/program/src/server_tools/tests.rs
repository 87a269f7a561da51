use std::path::Path;

use bytes::Bytes;
use serde_json::json;

use crate::{KernelTool, ProgramErrors, compile};

fn compiled(program: &str) -> Result<crate::Compiled, ProgramErrors> {
    let text = program.to_owned();
    let mut read = |_: &Path| Ok(Bytes::from(text.clone()));
    let read_fd = KernelTool {
        name: "read_fd",
        is_for_descriptors: true,
        parameters: vec!["fd"],
    };
    compile(Path::new("p.toml"), &mut read, &[read_fd], &[])
}

fn program(provider: &str, tools: &str) -> String {
    let model = format!("[model]\nprovider = \"{provider}\"\nname = \"m\"\n");
    format!("{model}{tools}\n")
}

#[test]
fn each_format_says_what_a_tool_of_the_provider_needs() {
    let cases = [
        (
            "anthropic",
            "type = \"web_search_20250305\"\nname = \"web_search\"",
            "",
        ),
        (
            "anthropic",
            "type = \"mcp_toolset\"\nmcp_server_name = \"s\"",
            "",
        ),
        ("anthropic", "type = \"web_search_20250305\"", "no `name`"),
        ("anthropic", "name = \"web_search\"", "no `type`"),
        ("anthropic", "", "names nothing"),
        (
            "anthropic",
            "type = \"custom\"\nname = \"x\"",
            "not the provider's",
        ),
        (
            "anthropic",
            "type = \"t\"\nname = \"read_fd\"",
            "name of another tool",
        ),
        ("openai", "type = \"web_search\"", ""),
        (
            "openai",
            "type = \"function\"\nname = \"x\"",
            "not the provider's",
        ),
        ("openai", "google_search = {}", "no `type`"),
        ("openai-chat", "type = \"browser_search\"", ""),
        ("openai-chat", "web_search_options = {}", "[parameters]"),
        ("gemini", "google_search = {}", ""),
        ("gemini", "type = \"google_search\"", "google_search = {}"),
        ("gemini", "google_search = true", "not a table"),
        ("gemini", "functionDeclarations = []", "by the kernel"),
        ("scripted", "type = \"anything\"", ""),
    ];
    for (provider, table, expected) in cases {
        let tools = format!("[tools]\nenabled = [\"read_fd\"]\n[[tools.server]]\n{table}");
        let found = compiled(&program(provider, &tools));
        match (expected, found) {
            ("", found) => {
                let sent = found.unwrap().program;
                let sent = sent.provider_tools(sent.model());
                assert_eq!(sent.server.len(), 1, "{provider} {table}");
            }
            (expected, found) => {
                let error = found.map(|_| ()).unwrap_err();
                let error = format!("{error:?}");
                assert!(error.contains(expected), "{provider} {table}: {error}");
            }
        }
    }
    for wrong in [
        "[tools]\nserver = { type = \"x\" }",
        "[tools]\nserver = [1]",
    ] {
        let error = compiled(&program("openai", wrong)).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("[[tools.server]]"), "{error}");
    }
}

#[test]
fn a_table_is_sent_as_it_is_and_only_to_the_provider_whose_words_it_has() {
    let tools = "[[model.fallback]]\nprovider = \"gemini\"\nname = \"g\"\n[[tools.server]]\ntype = \
                 \"mcp\"\nserver_url = \"https://x\"\nallowed_tools = [\"a\"]\nheaders = { k = \
                 1.5 }";
    let compiled = compiled(&program("openai", tools)).unwrap();
    let warnings: Vec<_> = compiled.warnings.iter().map(ToString::to_string).collect();
    assert!(warnings.concat().contains("without the provider's tools"));
    let program = compiled.program;
    let sent = program.provider_tools(&program.models()[0]);
    let expected = json!([{"type": "mcp", "server_url": "https://x", "allowed_tools": ["a"], "headers": {"k": 1.5}}]);
    assert_eq!(json!(sent.server), expected);
    assert!(
        program
            .provider_tools(&program.models()[1])
            .server
            .is_empty()
    );
}

#[test]
fn each_fallback_of_another_maker_is_told_with_all_that_it_does_not_get() {
    let fallback =
        |provider: &str| format!("[[model.fallback]]\nprovider = \"{provider}\"\nname = \"g\"\n");
    let fallbacks = ["gemini", "openai", "anthropic"].map(fallback).concat();
    let form = "[tools]\nenabled = [{ name = \"read_fd\", provider_fields = { x = 1 } }]\n";
    let table = "[[tools.server]]\ntype = \"web_search\"\n";
    for (tools, missing) in [
        (form.to_owned(), &["`provider_fields`"][..]),
        (table.to_owned(), &["the provider's tools"]),
        (
            format!("{form}{table}"),
            &["the provider's tools", "`provider_fields`"],
        ),
    ] {
        let compiled = compiled(&program("openai", &format!("{fallbacks}{tools}"))).unwrap();
        let warnings: Vec<_> = compiled.warnings.iter().map(ToString::to_string).collect();
        let told = |words: &[&str]| {
            let has_all = |warning: &&String| words.iter().all(|word| warning.contains(word));
            warnings.iter().filter(has_all).count()
        };
        assert_eq!(
            told(&["is called without"]),
            2 * missing.len(),
            "{warnings:?}"
        );
        for word in missing {
            assert_eq!(told(&["at gemini", word]), 1, "{warnings:?}");
            assert_eq!(told(&["at anthropic", word]), 1, "{warnings:?}");
        }
    }
}

#[test]
fn no_tool_of_the_provider_shares_its_name() {
    let web = "[[tools.server]]\ntype = \"web_search_1\"\nname = \"web_search\"\n";
    let servers =
        |tools: &str| format!("[mcp.servers.s]\ncommand = \"s\"\n[tools.mcp]\ns = {tools}\n{web}");
    let taken = [
        format!("{web}{web}"),
        servers("[{ name = \"find\", alias = \"web_search\" }]"),
    ];
    for tools in taken {
        let error = compiled(&program("anthropic", &tools))
            .map(drop)
            .unwrap_err();
        let error = format!("{error:?}");
        assert!(error.contains("name of another tool"), "{tools}: {error}");
    }
    let renamed_at_birth = servers("{ tools = [\"web_search\"], prefix = \"\" }");
    let found = compiled(&program("anthropic", &renamed_at_birth));
    assert!(found.is_ok(), "{found:?}");
}

#[test]
fn only_a_tool_whose_parameters_are_known_is_refused_a_grammar() {
    let grammar =
        "input_format = { type = \"grammar\", syntax = \"lark\", definition = \"start: /a/\" }";
    let command = "[[tools.command]]\nname = \"find\"\ndescription = \"d\"\nargv = [\"find\", \"{a}\", \"{b}\"]\nparameters.a = { type = \"string\", description = \"a\" }\nparameters.b = { type = \"string\", description = \"b\" }\n";
    let served = format!(
        "[mcp.servers.s]\ncommand = \"s\"\n[tools.mcp]\ns = {{ tools = [{{ name = \"find\", {grammar} }}], prefix = \"s_\" }}\n"
    );
    let enabled = |name: &str| format!("[tools]\nenabled = [{{ name = \"{name}\", {grammar} }}]\n");
    for (tools, refused) in [
        (format!("{}{command}", enabled("find")), "`find` takes more"),
        (enabled("read_fd"), "`read_fd` takes more"),
        // The tool of the server is another one than the command.
        (format!("{served}{command}"), ""),
    ] {
        match compiled(&program("openai", &tools)) {
            Ok(_) => assert_eq!(refused, "", "{tools}"),
            Err(errors) => {
                let errors = format!("{errors:?}");
                let is_expected = !refused.is_empty() && errors.contains(refused);
                assert!(is_expected, "{tools}: {errors}");
            }
        }
    }
}

#[test]
fn strictness_and_grammars_are_checked_against_the_format() {
    let own = |provider: &str, options: &str| {
        let command = "[[tools.command]]\nname = \"sum\"\ndescription = \"d\"\nargv = [\"sum\", \"{input}\"]\nparameters.input = { type = \"string\", description = \"i\" }\n";
        let tools = format!("[tools]\nenabled = [{{ name = \"sum\", {options} }}]\n{command}");
        compiled(&program(provider, &tools))
    };
    let grammar =
        "input_format = { type = \"grammar\", syntax = \"lark\", definition = \"start: /a/\" }";
    let cases = [
        ("anthropic", "strict = true", ""),
        (
            "openai",
            "strict = true, provider_fields = { defer_loading = true }",
            "",
        ),
        ("gemini", "strict = true", "VALIDATED"),
        ("openai", grammar, ""),
        ("openai-chat", grammar, ""),
        ("anthropic", grammar, "has no `input_format`"),
        ("openai", "input_format = {}", "no `type`"),
    ];
    for (provider, options, expected) in cases {
        match (expected, own(provider, options)) {
            ("", found) => {
                let program = found.unwrap().program;
                let sent = program.provider_tools(program.model());
                let form = sent.form("sum").unwrap();
                assert_eq!(form.strict, options.contains("strict"));
                assert_eq!(form.input_format.is_some(), options.contains("grammar"));
                assert_eq!(
                    form.fields.contains_key("defer_loading"),
                    options.contains("defer")
                );
            }
            (expected, found) => {
                let error = found.map(|_| ()).unwrap_err();
                let error = format!("{error:?}");
                assert!(error.contains(expected), "{provider} {options}: {error}");
            }
        }
    }
}
