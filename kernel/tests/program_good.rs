//! Programs that compile, and what they compile to.

use std::collections::BTreeMap;
use std::path::Path;

use crate::program_support::compile_files;
use bytes::Bytes;
use dormouse_kernel::program::{
    CacheTtl, EnvCommand, EnvVar, ForkRelease, KnownProviders, Limits, Program, Provider,
    Registered, ServedTools, Variable, compile, compile_bundle,
};
use dormouse_proto::budget::NANOS_PER_UNIT;
use dormouse_proto::command::{Command, CommandLimits, Parameter, ParameterKind};
use dormouse_proto::descriptor::{DescriptorSettings, HintableTools, Preview};
use dormouse_proto::server::Transport;
use dormouse_proto::tool::{Access, ToolPolicy};
use serde_json::json;

/// Compiles a program that names no other file and gives no warning.
fn program(text: &str) -> Program {
    let compiled = compile_files(&[("demo/main.toml", text)])
        .unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    assert!(
        compiled.warnings.is_empty(),
        "{:?}\n{text}",
        compiled.warnings
    );
    compiled.program
}

const MODEL: &str = "[model]\nname = \"m\"\nprovider = \"anthropic\"\n";

fn with_model(rest: &str) -> Program {
    program(&format!("{MODEL}{rest}"))
}

#[test]
fn what_is_not_written_has_its_default() {
    let program = program(MODEL);
    assert_eq!((program.name(), program.key()), ("main", "main.toml"));
    let model = program.model();
    assert_eq!(
        (
            model.name.as_str(),
            model.provider.clone(),
            model.max_iterations
        ),
        ("m", Provider::Anthropic, 10)
    );
    assert_eq!((program.system(), program.user()), ("", None));
    let limits = Limits {
        max_fork_children: 8,
        max_children: 32,
        max_depth: 3,
        fork_release: ForkRelease::First,
        max_mailbox: 256,
        max_alarms: 32,
        max_reopenings: 100,
        max_restores: 8,
        commands: CommandLimits::default(),
    };
    assert_eq!(program.limits(), limits);
    assert_eq!(program.descriptors(), None);
    assert!(
        program.tools().is_empty()
            && program.commands().is_empty()
            && program.preloads().is_empty()
    );
    assert!(program.environment().is_empty() && program.parameters().is_empty());
    assert!(program.script(program.model()).is_none() && program.linked().next().is_none());
    assert!(program.demo().pause_between_prompts && !program.references());
}

#[test]
fn a_scripted_model_needs_neither_name_nor_script() {
    let program = program("[model]\nprovider = \"scripted\"\nmax_iterations = 3\n");
    assert_eq!(
        (
            program.model().name.as_str(),
            program.model().max_iterations
        ),
        ("scripted", 3)
    );
    assert!(program.script(program.model()).is_none());
}

#[test]
fn aliases_mean_the_same() {
    for system in ["system", "system_prompt"] {
        for user in ["user", "user_prompt"] {
            let program = with_model(&format!("[prompt]\n{system} = \"S\"\n{user} = \"U\"\n"));
            assert_eq!(
                (program.system(), program.user()),
                ("S", Some("U")),
                "{system} {user}"
            );
        }
    }
    for enabled in ["enabled", "builtin"] {
        let program = with_model(&format!("[tools]\n{enabled} = [\"read_fd\", \"grep\"]\n"));
        let names: Vec<_> = program.tools().iter().map(|tool| tool.called()).collect();
        assert_eq!(names, ["read_fd", "grep"], "{enabled}");
    }
    let names = [
        ("[demo]\ndisplay_name = \"D\"\n", "D"),
        ("display_name = \"M\"\n[demo]\ndisplay_name = \"D\"\n", "D"),
        ("display_name = \"M\"\n", "M"),
        ("display_name = \" \"\n", "main"),
    ];
    for (written, name) in names {
        assert_eq!(with_model(written).name(), name, "{written}");
    }
}

#[test]
fn tools_keep_their_order_their_alias_and_their_access() {
    let program = with_model(
        r#"
        [tools]
        enabled = [
            "fd_to_file",
            { name = "http-get", alias = "fetch", description = "Fetches.", access = "read" },
            { name = "read_fd", alias = "read_fd" },
            { name = "grep", access = "admin" },
        ]
        "#,
    );
    let tools: Vec<_> = program
        .tools()
        .iter()
        .map(|t| (t.name.as_str(), t.called(), t.access))
        .collect();
    let expected = [
        ("fd_to_file", "fd_to_file", None),
        ("http-get", "fetch", Some(Access::Read)),
        ("read_fd", "read_fd", None),
        ("grep", "grep", Some(Access::Admin)),
    ];
    assert_eq!(tools, expected);
    assert_eq!(program.tools()[1].description.as_deref(), Some("Fetches."));
}

#[test]
fn a_descriptor_tool_switches_descriptors_on() {
    let default = DescriptorSettings::default();
    let written = DescriptorSettings {
        max_direct_output_chars: 2_000,
        max_direct_output_tokens: Some(600),
        page_chars: 1_000,
        max_input_chars: 3_000,
        page_user_input: false,
        max_read_chars: 50_000,
        max_content_bytes: 64_000_000,
        auto_summary_chars: Some(5_000),
        hintable_tools: default.hintable_tools,
        preview: Preview::HeadTail,
        pretty_json: true,
        line_numbers: true,
    };
    let all = "max_direct_output_chars = 2_000\nmax_direct_output_tokens = 600\ndefault_page_size = 0x3e8\nmax_input_chars = 3000\n\
               page_user_input = false\nmax_read_chars = 50000\nmax_content_bytes = \"64MB\"\n\
               auto_summary_chars = 5000\n\
               preview = \"head_tail\"\npretty_json = true\nline_numbers = true\n";
    let cases = [
        ("[tools]\nenabled = [\"fork\"]\n".to_owned(), None),
        (
            "[tools]\nenabled = [\"read_fd\"]\n".to_owned(),
            Some(default),
        ),
        (
            "[tools]\nenabled = [{name = \"search_fd\", alias = \"find\"}]\n".to_owned(),
            Some(default),
        ),
        (
            "[tools]\nenabled = [\"fd_to_file\"]\n[file_descriptor]\n".to_owned(),
            Some(default),
        ),
        (
            format!("[file_descriptor]\nenabled = true\n{all}[tools]\nenabled = [\"read_fd\"]\n"),
            Some(written),
        ),
    ];
    for (text, expected) in cases {
        let program = with_model(&text);
        let found = program.descriptors();
        if let Some(found) = found {
            // Hints name the tools that are enabled, and no others.
            for tool in ["read_fd", "search_fd", "mark_fd_section"] {
                assert_eq!(
                    found.hintable_tools.contains(tool),
                    text.contains(tool),
                    "{text}"
                );
            }
        }
        let expected = expected
            .zip(found)
            .map(|(expected, found)| DescriptorSettings {
                hintable_tools: found.hintable_tools,
                ..expected
            });
        assert_eq!(found, expected.as_ref(), "{text}");
    }
}

#[test]
fn parameters_are_passed_on_as_they_stand() {
    let program = with_model(
        r#"
        [parameters]
        temperature = 1
        top_p = 0.5
        stop = ["a", 'b']
        max_tokens = 9223372036854775807
        [parameters.extra_headers]
        anthropic-beta = "x"
        [parameters.thinking]
        type = "enabled"
        nested = { deep = [{ er = true }] }
        "#,
    );
    let expected = json!({
        "temperature": 1, "top_p": 0.5, "stop": ["a", "b"], "max_tokens": i64::MAX,
        "extra_headers": {"anthropic-beta": "x"},
        "thinking": {"type": "enabled", "nested": {"deep": [{"er": true}]}},
    });
    assert_eq!(
        serde_json::to_string(&*program.parameters()).unwrap(),
        expected.to_string()
    );
}

#[test]
fn files_are_read_from_the_folder_of_the_program_that_names_them() {
    let main = format!(
        "{MODEL}[prompt]\nsystem = \"First.\"\nsystem_prompt_file = \"prompts/system.md\"\n\
         [preload]\nfiles = [\"./a.txt\", \"../b.txt\", \"/etc/c.txt\"]\n\
         [tools]\nenabled = [\"spawn\"]\n[linked_programs]\nhelper = \"sub/../sub/helper.toml\"\n"
    );
    let helper = format!("{MODEL}[prompt]\nsystem_prompt_file = \"system.md\"\n");
    let files = [
        ("demo/main.toml", main.as_str()),
        ("demo/prompts/system.md", "Second."),
        ("demo/a.txt", "a"),
        ("b.txt", "b"),
        ("/etc/c.txt", "c"),
        ("demo/sub/helper.toml", helper.as_str()),
        ("demo/sub/system.md", "Help."),
    ];
    let program = compile_files(&files).unwrap().program;
    assert_eq!(program.system(), "First.\n\nSecond.");
    let preloads: Vec<_> = program
        .preloads()
        .iter()
        .map(|file| (file.path.as_str(), &file.bytes[..]))
        .collect();
    assert_eq!(
        preloads,
        [
            ("./a.txt", &b"a"[..]),
            ("../b.txt", b"b"),
            ("/etc/c.txt", b"c")
        ]
    );
    assert_eq!(program.linked_program("helper").unwrap().system(), "Help.");
    let bundle = program.bundle();
    let names: Vec<_> = bundle.names().collect();
    let expected = [
        "../b.txt",
        "/etc/c.txt",
        "a.txt",
        "main.toml",
        "prompts/system.md",
        "sub/helper.toml",
    ];
    assert_eq!(names, [&expected[..], &["sub/system.md"]].concat());
}

#[test]
fn preloads_of_the_working_directory_are_not_those_of_the_program() {
    let main = format!(
        "{MODEL}[preload]\nfiles = [\"a.txt\"]\nrelative_to = \
         \"cwd\"\n[prompt]\nsystem_prompt_file = \"a.txt\"\n"
    );
    let files = [
        ("demo/main.toml", main.as_str()),
        ("demo/a.txt", "of the program"),
        ("a.txt", "of the directory"),
    ];
    let program = compile_files(&files).unwrap().program;
    assert_eq!(
        (program.system(), &program.preloads()[0].bytes[..]),
        ("of the program", &b"of the directory"[..])
    );
}

#[test]
fn a_script_is_read_and_named() {
    let text = "[model]\nprovider = \"scripted\"\nscript = \"turns.toml\"\n";
    let program = compile_files(&[("main.toml", text), ("turns.toml", "[[turn]]\n")])
        .unwrap()
        .program;
    let script = program.script(program.model()).unwrap();
    assert_eq!((script.name, script.text), ("turns.toml", "[[turn]]\n"));
    assert_eq!(program.model().script.as_deref(), Some("turns.toml"));
}

#[test]
fn a_command_compiles_to_what_the_host_runs() {
    let program = with_model(
        r#"
        [[tools.command]]
        name = "log"
        description = "Shows the log."
        argv = ["git", "log", "--max-count={count}", "{path}", '{"braces": 1}']
        access = "read"
        idempotent = true
        deadline = "1.5m"
        output_cap = "64MB"
        env = ["HOME"]
        [tools.command.parameters]
        path = { type = "string", description = "Where.", optional = true }
        count = { type = "integer", default = 10, choices = [10, 100] }

        [[tools.command]]
        name = "date"
        description = "Tells the day."
        argv = ["date"]
        deadline = 5
        output_cap = 100

        [tools]
        enabled = [{ name = "date", alias = "today" }, "grep"]
        "#,
    );
    let parameter = |name: &str, kind, description: &str| Parameter {
        name: name.to_owned(),
        kind,
        description: description.to_owned(),
        default: None,
        optional: false,
        choices: vec![],
    };
    let log = Command {
        name: "log".to_owned(),
        description: "Shows the log.".to_owned(),
        argv: [
            "git",
            "log",
            "--max-count={count}",
            "{path}",
            "{\"braces\": 1}",
        ]
        .map(str::to_owned)
        .to_vec(),
        parameters: vec![
            Parameter {
                optional: true,
                ..parameter("path", ParameterKind::String, "Where.")
            },
            Parameter {
                default: Some("10".to_owned()),
                choices: vec!["10".to_owned(), "100".to_owned()],
                ..parameter("count", ParameterKind::Integer, "")
            },
        ],
        env: vec!["HOME".to_owned()],
        limits: CommandLimits::default(),
        policy: ToolPolicy {
            access: Access::Read,
            idempotent: true,
            deadline_ms: 90_000,
            output_cap_bytes: 64_000_000,
        },
    };
    assert_eq!(program.commands()[0], log);
    let policy = program.commands()[1].policy;
    assert_eq!(
        policy,
        ToolPolicy {
            deadline_ms: 5_000,
            output_cap_bytes: 100,
            ..ToolPolicy::default()
        }
    );
    let called: Vec<_> = program
        .tools()
        .iter()
        .map(|tool| (tool.name.as_str(), tool.called()))
        .collect();
    assert_eq!(
        called,
        [("date", "today"), ("grep", "grep"), ("log", "log")]
    );
}

#[test]
fn the_environment_is_chosen_by_name() {
    let standard = [
        Variable::WorkingDirectory,
        Variable::Platform,
        Variable::Date,
        Variable::Hostname,
        Variable::Username,
    ];
    let cases: [(&str, &[Variable]); 3] = [
        (
            "[\"date\", \"platform\", \"date\"]",
            &[Variable::Date, Variable::Platform],
        ),
        ("\"date\"", &[Variable::Date]),
        ("\"all\"", &standard),
    ];
    for (written, expected) in cases {
        let program = with_model(&format!("[env_info]\nvariables = {written}\n"));
        assert_eq!(program.environment().variables, expected, "{written}");
    }
    let program = with_model("[env_info]\nteam = \"red\"\n");
    assert_eq!(
        program.environment().custom,
        [("team".to_owned(), "red".to_owned())]
    );
}

#[test]
fn an_environment_that_cannot_be_told_is_warned_of() {
    let text = "[model]\nname = \"m\"\nprovider = \"anthropic\"\n[env_info]\nvariables = \
         [\"file_map\"]\nfile_map_root = \"src\"\n";
    let compiled = compile_files(&[("p.toml", text)]).expect("it compiles");
    let warnings: Vec<_> = compiled.warnings.iter().map(ToString::to_string).collect();
    for word in ["file_map", "file_map_root"] {
        assert!(
            warnings.iter().any(|warning| warning.contains(word)),
            "{word}: {warnings:?}"
        );
    }
}

#[test]
fn variables_and_commands_of_the_environment_are_kept_in_order() {
    let program = with_model(
        "[env_info]\ncommands = [\"git log -1 'a b'\", [\"sh\", \"-c\", \"ls | wc\"]]\nenv_vars = \
         { region = \"MY_REGION\", a = \"B\" }\n",
    );
    let choice = program.environment();
    assert!(choice.needs_gathering() && !choice.is_empty());
    let command = |written: &str, argv: &[&str]| EnvCommand {
        written: written.to_owned(),
        argv: Some(argv.iter().map(|word| (*word).to_owned()).collect()),
    };
    let log = command("git log -1 'a b'", &["git", "log", "-1", "a b"]);
    assert_eq!(
        choice.commands,
        [log, command("sh -c ls | wc", &["sh", "-c", "ls | wc"])]
    );
    let var = |label: &str, name: &str| EnvVar {
        label: label.to_owned(),
        name: name.to_owned(),
    };
    assert_eq!(choice.env_vars, [var("region", "MY_REGION"), var("a", "B")]);
    let listed = with_model("[env_info]\nenv_vars = [\"LANG\"]\n");
    assert_eq!(listed.environment().env_vars, [var("LANG", "LANG")]);
}

#[test]
fn descriptions_of_parameters_must_fit_the_tools_of_the_host() {
    let text = format!(
        "{MODEL}[tools]\nenabled = [{{ name = \"grep\", param_descriptions = {{ pattren = \
         \"What.\" }} }}]\n"
    );
    let compiled =
        compile_files(&[("p.toml", &text)]).expect("what the host's tools take is not known yet");
    let schema = |name: &str| {
        json!({ "type": "object", "properties": { name: { "type": "string" } } }).to_string()
    };
    let (good, bad) = (schema("pattren"), schema("pattern"));
    assert!(
        compiled
            .clone()
            .check_parameters(&BTreeMap::from([("grep", good.as_str())]))
            .is_ok()
    );
    assert!(
        compiled
            .clone()
            .check_parameters(&BTreeMap::from([("other", bad.as_str())]))
            .is_ok()
    );
    let errors = compiled
        .check_parameters(&BTreeMap::from([("grep", bad.as_str())]))
        .unwrap_err();
    let [error] = errors.errors() else {
        panic!("{errors}")
    };
    assert_eq!(
        (error.line(), error.to_string().as_str()),
        (Some(5), "`grep` has no parameter `pattren`")
    );
    assert!(
        error
            .advice()
            .unwrap()
            .starts_with("did you mean `pattern`?"),
        "{error:?}"
    );
}

/// A misspelt name would be a rule about nothing.
#[test]
fn a_rule_names_a_tool_that_a_server_may_provide() {
    let listed = r#"["push", "a.b", { name = "tag", alias = "label" }]"#;
    let without_prefix = r#"{ tools = ["push"], prefix = "" }"#;
    let cases = [
        (listed, "git__push", true),
        (listed, "git__a_b", true),
        (listed, "label", true),
        (listed, "git__psuh", false),
        (listed, "git__push2", false),
        (listed, "git__tag", false),
        (listed, "push", false),
        (without_prefix, "push", true),
        // The name of another tool may be in the way.
        (without_prefix, "git__push", true),
        (without_prefix, "git__push_2", true),
        (without_prefix, "psuh", false),
        (r#""all""#, "git__anything", true),
        (r#""all""#, "anything", false),
    ];
    for (selection, name, is_valid) in cases {
        let text = format!(
            "{MODEL}[tools]\nask = [\"{name}\"]\n[tools.mcp]\ngit = \
             {selection}\n[mcp.servers.git]\ncommand = \"git-mcp\"\n"
        );
        let compiled = compile_files(&[("p.toml", &text)]);
        assert_eq!(compiled.is_ok(), is_valid, "{selection} {name}");
    }
}

const SERVERS: &str = r#"{"mcpServers": {"everything": {"command": "npx", "args": ["everything"]}, "other": {"url": "http://o"}}}"#;

#[test]
fn a_program_of_the_reference_runs_without_the_tools_that_are_not_here() {
    let text = format!(
        "{MODEL}disable_automatic_caching = true\n[prompt]\nsystem_prompt = \"S\"\nuser = \
         \"U\"\n[parameters]\nmax_tokens = 10\n[parameters.extra_headers]\nbeta = \
         \"b\"\n[tools]\nbuiltin = [\"fork\", {{ name = \"read_file\", alias = \"read\", access = \
         \"read\" }}, \"goto\", \"read_fd\"]\n[tools.mcp]\neverything = \
         [\"add\"]\n[mcp]\nconfig_path = \"servers.json\"\n[file_descriptor]\nenabled = \
         true\nmax_direct_output_chars = 4000\ndefault_page_size = 2000\nenable_references = \
         true\n[preload]\nfiles = [\"notes.md\"]\nrelative_to = \"program\"\n[env_info]\nvariables \
         = [\"working_directory\", \"platform\", \"date\", \"python_version\"]\nenv_vars = {{ \
         region = \"MY_REGION\" }}\ncommands = [\"echo example\"]\n[demo]\nprompts = \
         [\"p\"]\ndisplay_name = \"D\"\n"
    );
    let compiled = compile_files(&[
        ("p.toml", &text),
        ("notes.md", "N"),
        ("servers.json", SERVERS),
    ])
    .unwrap_or_else(|errors| panic!("{errors}"));
    let warnings: Vec<_> = compiled.warnings.iter().map(ToString::to_string).collect();
    let named = ["read_file", "python_version"];
    for name in named {
        assert!(
            warnings
                .iter()
                .any(|warning| warning.contains(&format!("`{name}`"))),
            "{name}: {warnings:?}"
        );
    }
    let program = compiled.program;
    let [choice] = program.servers() else {
        panic!("{:?}", program.servers())
    };
    assert_eq!(
        (&*choice.server.name, choice.server.deadline_ms),
        ("everything", 120_000)
    );
    let ServedTools::Named(tools) = &choice.served else {
        panic!("{:?}", choice.served)
    };
    assert_eq!(
        tools
            .iter()
            .map(|tool| tool.name.as_str())
            .collect::<Vec<_>>(),
        ["add"]
    );
    let called: Vec<_> = program.tools().iter().map(|tool| tool.called()).collect();
    assert!(
        called.contains(&"fork") && called.contains(&"read_fd") && !called.contains(&"read"),
        "{called:?}"
    );
    assert!(
        program.references()
            && program.environment().needs_gathering()
            && program.preloads().len() == 1
    );
    assert_eq!(program.model().cache_ttl, None);
}

#[test]
fn a_model_names_its_server_and_the_variable_of_its_key() {
    let words = [
        ("anthropic", Provider::Anthropic),
        ("openai", Provider::OpenAi),
        ("openai-chat", Provider::OpenAiChat),
        ("gemini", Provider::Gemini),
    ];
    for (word, provider) in words {
        let model = program(&format!("[model]\nname = \"m\"\nprovider = \"{word}\"\n"))
            .model()
            .clone();
        assert_eq!((&model.provider, model.provider.word()), (&provider, word));
        assert_eq!(
            (model.base_url, model.api_key_env, model.cache_ttl),
            (None, None, Some(CacheTtl::FiveMinutes))
        );
        let server = "base_url = \"http://localhost:8080/v1\"\napi_key_env = \
             \"THEIR_KEY\"\ndisable_automatic_caching = true\n";
        let model = program(&format!(
            "[model]\nname = \"m\"\nprovider = \"{word}\"\n{server}"
        ))
        .model()
        .clone();
        let written = (
            model.base_url.as_deref(),
            model.api_key_env.as_deref(),
            model.cache_ttl,
        );
        assert_eq!(
            written,
            (Some("http://localhost:8080/v1"), Some("THEIR_KEY"), None)
        );
    }
}

#[test]
fn references_are_switched_on() {
    let program = with_model(
        "[file_descriptor]\nenable_references = true\n[tools]\nenabled = [\"read_fd\"]\n",
    );
    assert!(program.references() && !program.message_references());
    let program = with_model(
        "[file_descriptor]\nreference_messages = true\n[tools]\nenabled = [\"read_fd\"]\n",
    );
    assert!(program.message_references() && !program.references());
}

#[test]
fn handles_are_expanded_where_the_program_says() {
    let rest = "[tools]\nenabled = [\"read_fd\"]\n[[tools.command]]\nname = \"mail\"\ndescription \
         = \"d\"\nargv = [\"mail\"]\n";
    for (expand, mail, other) in [
        ("false", false, false),
        ("true", true, true),
        ("[\"mail\"]", true, false),
    ] {
        let program = with_model(&format!("[file_descriptor]\nexpand_fds = {expand}\n{rest}"));
        assert_eq!(
            (program.expands("mail"), program.expands("other")),
            (mail, other),
            "{expand}"
        );
        assert_eq!(program.expands_any(), mail, "{expand}");
    }
}

#[test]
fn summaries_come_from_the_programs_model_or_another() {
    let program = |section: &str| {
        with_model(&format!(
            "[file_descriptor]\n{section}[tools]\nenabled = [\"read_fd\"]\n"
        ))
    };
    let own = program("");
    assert_eq!(own.summary_model(), own.model().name);
    assert_eq!(
        program("summary_model = \"small\"\n").summary_model(),
        "small"
    );
}

#[test]
fn limits_and_demo_are_kept() {
    let program = with_model(
        "[limits]\nmax_fork_children = 2\nmax_depth = 1\nfork_release = \"all\"\n[demo]\nprompts = \
         [\"a\", \"b\"]\npause_between_prompts = false\n",
    );
    let limits = Limits {
        max_fork_children: 2,
        max_children: 32,
        max_depth: 1,
        fork_release: ForkRelease::All,
        max_mailbox: 256,
        max_alarms: 32,
        max_reopenings: 100,
        max_restores: 8,
        commands: CommandLimits::default(),
    };
    assert_eq!(program.limits(), limits);
    for (written, max_children) in [("max_fork_children = 100", 100), ("max_children = 5", 5)] {
        assert_eq!(
            with_model(&format!("[limits]\n{written}\n"))
                .limits()
                .max_children,
            max_children,
            "{written}"
        );
    }
    assert_eq!(
        (
            program.demo().prompts.len(),
            program.demo().pause_between_prompts
        ),
        (2, false)
    );
}

#[test]
fn a_text_in_many_styles_is_the_same_program() {
    let styles = [
        "model = { name = \"m\", provider = \"anthropic\" }\ntools.enabled = [\"read_fd\"]\n",
        "\u{feff}[model]\r\nname = 'm'\r\nprovider = \"\"\"anthropic\"\"\"\r\n[tools]\r\nenabled = \
         [\r\n\"read_fd\", # why\r\n]\r\n",
        "model.name = \"m\"\nmodel.provider = \"anthropic\"\n[\"tools\"]\n\"enabled\" = \
         ['''read_fd''']\n",
    ];
    for text in styles {
        let program = program(text);
        assert_eq!(
            (program.model().name.as_str(), program.tools().len()),
            ("m", 1),
            "{text}"
        );
    }
}

#[test]
fn the_configurations_of_the_specification_compile() {
    let settings = "max_direct_output_chars = 8000\ndefault_page_size = 4000\nmax_input_chars = \
         8000\npage_user_input = true\n";
    let tools = [
        &["read_fd"][..],
        &["read_fd", "fd_to_file"],
        &["read_fd", "fd_to_file", "fork"],
    ];
    for enabled in tools {
        let tools = format!("[tools]\nenabled = {enabled:?}\n");
        for section in [
            "",
            "[file_descriptor]\n",
            "[file_descriptor]\nenabled = true\n",
        ] {
            let settings = if section.is_empty() { "" } else { settings };
            let program = with_model(&format!("{tools}{section}{settings}"));
            let expected = DescriptorSettings {
                hintable_tools: HintableTools::of(["read_fd"]),
                ..DescriptorSettings::default()
            };
            assert_eq!(program.descriptors(), Some(&expected), "{tools}{section}");
        }
    }
}

#[test]
fn a_model_has_headers_and_times_of_its_own() {
    let model = program(
        "[model]\nname = \"m\"\nprovider = \"anthropic\"\ntimeout = \"1h\"\nidle_timeout = 90\n\
         [model.headers]\nanthropic-beta = \"a,b\"\nx-key = \"${GATEWAY_KEY}\"\n",
    );
    let choice = model.model();
    assert_eq!(
        (choice.timeout_ms, choice.idle_timeout_ms),
        (Some(3_600_000), Some(90_000))
    );
    let names: Vec<_> = choice
        .headers
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(names, ["anthropic-beta", "x-key"]);
    let needed = format!("{:?}", model.requirements());
    assert!(needed.contains("GATEWAY_KEY"), "{needed}");
}

#[test]
fn a_model_of_a_cloud_has_a_project_and_a_region() {
    let text = "[model]\nname = \"claude\"\nprovider = \"anthropic_vertex\"\nproject_id = \
                \"p\"\nregion = \"global\"\ncache_ttl = \"1h\"\n";
    let mut read = |_: &Path| Ok(Bytes::from(text));
    let registered = Registered {
        tools: &[],
        providers: KnownProviders::Only(&["anthropic_vertex"]),
    };
    let compiled = compile(Path::new("main.toml"), &mut read, registered).unwrap();
    assert!(compiled.warnings.is_empty(), "{:?}", compiled.warnings);
    let model = compiled.program.model();
    assert_eq!(model.provider, Provider::AnthropicVertex);
    assert_eq!(model.provider.wire_format(), Some("anthropic"));
    let location = (model.project_id.as_deref(), model.region.as_deref());
    assert_eq!(location, (Some("p"), Some("global")));
    // A program that was compiled elsewhere can be looked at, though not run.
    let bundle = compiled.program.bundle();
    assert!(compile_bundle(&bundle, &[]).is_ok());
}

#[test]
fn the_certificates_of_an_authority_are_files_of_the_program() {
    let pem = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n";
    let entry = |model: &str, server: &str| {
        format!(
            "[model]\nname = \"m\"\nprovider = \"anthropic\"\nbase_url = \"https://h\"\nca_file = \"{model}\"\n\
             [tools.mcp]\nfar = \"all\"\n[mcp.servers.far]\nurl = \"https://h/mcp\"\n\
             ca_file = \"{server}\"\n[mcp.servers.unused]\nurl = \"https://h\"\n\
             ca_file = \"absent.pem\"\n"
        )
    };
    let compiled = |model: &str, server: &str| {
        let text = entry(model, server);
        let other = [
            "[model]\nprovider = \"scripted\"\n[tools]\nenabled = [\"spawn\"]\n\
                      [linked_programs]\nmain = \"sub/main.toml\"\n",
        ];
        let key = "-----BEGIN EC PRIVATE KEY-----\n";
        compile_files(&[
            ("entry.toml", other[0]),
            ("sub/main.toml", &text),
            ("sub/ca.pem", pem),
            ("corp/ca.pem", pem),
            ("sub/ca.der", "0\u{82}"),
            ("sub/key.pem", key),
        ])
    };
    let program = compiled("ca.pem", "../corp/ca.pem").unwrap().program;
    let main = program.linked_program("main").unwrap();
    let of_model = main.model().ca_file.clone().unwrap();
    assert_eq!((of_model.path.as_str(), &*of_model.pem), ("ca.pem", pem));
    let Transport::Http { ca_file, .. } = &main.servers()[0].server.transport else {
        panic!("it has a url")
    };
    assert_eq!(ca_file.as_ref().map(|file| &*file.pem), Some(pem));
    let names: Vec<_> = program.bundle().names().map(str::to_owned).collect();
    let expected = ["corp/ca.pem", "entry.toml", "sub/ca.pem", "sub/main.toml"];
    assert_eq!(names, expected);
    let needed = format!("{:?}", program.requirements());
    assert!(
        needed.contains("Authorities(\"../corp/ca.pem\")"),
        "{needed}"
    );

    let cases = [
        ("absent.pem", "sub/absent.pem is not there"),
        ("ca.der", "sub/ca.der holds no certificate"),
        ("key.pem", "sub/key.pem holds a private key"),
    ];
    for (file, expected) in cases {
        for (model, server) in [(file, "ca.pem"), ("ca.pem", file)] {
            let errors = compiled(model, server).unwrap_err().to_string();
            assert!(errors.contains(expected), "{errors}");
        }
    }
}

#[test]
fn writes_to_the_cache_of_an_hour_have_their_own_price() {
    let prices = "[prices.m]\ninput = 3\noutput = 15\ncache_write = 3.75\ncache_write_1h = 6\n";
    let priced = |model: &str, rest: &str| {
        let program = program(&format!(
            "[model]\nname = \"m\"\nprovider = \"anthropic\"\n{model}{prices}{rest}"
        ));
        let ttl = program.model().cache_ttl.unwrap();
        let price = program.price("m", &BTreeMap::new()).unwrap();
        (ttl, price.cache_write)
    };
    let hour = "[parameters]\ncache_control = { type = \"ephemeral\", ttl = \"1h\" }\n";
    assert_eq!(
        priced("", ""),
        (CacheTtl::FiveMinutes, 15 * NANOS_PER_UNIT / 4)
    );
    assert_eq!(
        priced("cache_ttl = \"1h\"\n", ""),
        (CacheTtl::OneHour, 6 * NANOS_PER_UNIT)
    );
    assert_eq!(
        priced("", hour),
        (CacheTtl::FiveMinutes, 6 * NANOS_PER_UNIT),
        "in the provider's syntax"
    );
    let one_price = priced(
        "cache_ttl = \"1h\"\n",
        "[prices.n]\ninput = 1\noutput = 1\n",
    );
    assert_eq!(one_price.1, 6 * NANOS_PER_UNIT);
}
