//! What the compiler says of programs that are wrong or odd, as a user sees it.
//!
//! Each case has a golden file with the findings as `miette` renders them. `UPDATE_GOLDEN=1` writes
//! them anew.

use std::path::{Path, PathBuf};

use crate::program_support::{File, compile_files};
use dormouse_kernel::program::{Finding, compile};
use dormouse_proto::file::{FileError, FileErrorKind};
use miette::{GraphicalReportHandler, GraphicalTheme};

const MODEL: &str = "[model]\nname = \"m\"\nprovider = \"anthropic\"\n\n";

/// Cases of one program file, without its `[model]`.
const CASES: [(&str, &str); 56] = [
    ("unknown_section", "[tool]\nenabled = []\n"),
    (
        "unknown_key_near",
        "[file_descriptor]\nmax_direct_output = 5\n\n[tools]\nenabled = [\"read_fd\"]\n",
    ),
    (
        "budget",
        "[budget]\ninput_tokens = 0\noutput_tokens = \"many\"\ncost = \"2,50\"\nwall_time = \
         \"3d\"\nprocesses = 2_000_000\ndepth = 0\nresident_bytes = \"2 PB\"\ntokens = 5\n",
    ),
    (
        "prices",
        "[budget]\ncost = 0.0\n\n[prices.m]\ninput = -1\ncache = 0.3\n\n[prices.\"x y\"]\ninput = \
         1e3\noutput = true\ncache_read = 0.0000000001\n\n[prices]\nz = 5\n",
    ),
    (
        "result_schema",
        "[tools]\nenabled = [\"submit_result\"]\n\n[result]\nattempts = 0\nschema = { type = \
         \"object\", properties = { \"a/b\" = { type = \"array\", items = { type = \"strin\" } } } }\n",
    ),
    (
        "result_schema_elsewhere",
        "[result]\nschema = { \"$ref\" = \"https://example.com/schema.json\" }\n",
    ),
    (
        "result_without_schema",
        "[tools]\nenabled = [\"submit_result\"]\n\n[result]\nattempts = 5\n",
    ),
    ("unknown_key_far", "[prompt]\ncolour = \"red\"\n"),
    (
        "wrong_types",
        "[prompt]\nsystem = 1\n\n[tools]\nenabled = \"read_fd\"\n\n[demo]\nprompts = [1979-05-27, \
         [], \"ok\"]\n",
    ),
    (
        "several_mistakes",
        "[prompt]\nsytem = \"x\"\n\n[limits]\nmax_depth = 0\n\n[tools]\nenabled = [\"red_fd\"]\n",
    ),
    (
        "alias_twice",
        "[prompt]\nsystem = \"a\"\nsystem_prompt = \"b\"\n",
    ),
    ("syntax", "[prompt]\nsystem = \"a\nuser = b\n"),
    ("duplicate_key", "[prompt]\nuser = \"a\"\nuser = \"b\"\n"),
    (
        "too_deep",
        "[parameters]\na = [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\n",
    ),
    (
        "out_of_range",
        "[file_descriptor]\ndefault_page_size = 0\nmax_input_chars = 1_000_000_001\nmax_read_chars \
         = -5\n\n[tools]\nenabled = [\"read_fd\"]\n",
    ),
    (
        "parameters_without_json",
        "[parameters]\nsince = 2026-01-01\nseed = 0xffffffffffffffffff\ntop_p = nan\n",
    ),
    ("tool_unknown_near", "[tools]\nenabled = [\"read_df\"]\n"),
    ("tool_unknown_far", "[tools]\nenabled = [\"telescope\"]\n"),
    (
        "tool_of_the_reference",
        "[tools]\nenabled = [\"calculator\", { name = \"list_dir\", alias = \"dir\" }]\n",
    ),
    ("tool_twice", "[tools]\nenabled = [\"grep\", \"grep\"]\n"),
    (
        "tool_twice_differently",
        "[tools]\nenabled = [\"grep\", { name = \"grep\", alias = \"search\" }]\n",
    ),
    (
        "tool_access",
        "[tools]\nenabled = [{ name = \"grep\", access = \"wirte\" }]\n",
    ),
    (
        "tool_parameters",
        "[tools]\nenabled = [{ name = \"read_fd\", param_descriptions = { fd = \"d\", paeg = \"d\" \
         } }, { name = \"spawn\", param_descriptions = { prompt = \"d\" } }, { name = \"x\", \
         param_descriptions = { b = 1, c = \"d\" } }]\n[linked_programs]\na = \
         \"main.toml\"\n[[tools.command]]\nname = \"x\"\ndescription = \"d\"\nargv = [\"x\"]\n",
    ),
    (
        "tool_entry",
        "[tools]\nenabled = [1, {}, { name = \"\" }]\n",
    ),
    (
        "alias_is_a_tool",
        "[tools]\nenabled = [{ name = \"grep\", alias = \"fork\" }]\n",
    ),
    (
        "alias_of_two",
        "[tools]\nenabled = [{ name = \"grep\", alias = \"x\" }, { name = \"http-get\", alias = \
         \"x\" }]\n",
    ),
    (
        "alias_invalid",
        "[tools]\nenabled = [{ name = \"grep\", alias = \"my tool\" }]\n",
    ),
    (
        "descriptors_without_tools",
        "[file_descriptor]\nenabled = true\n",
    ),
    (
        "descriptors_section_alone",
        "[file_descriptor]\nmax_input_chars = 100\n",
    ),
    (
        "descriptors_disabled_in_vain",
        "[file_descriptor]\nenabled = false\n\n[tools]\nenabled = [\"search_fd\"]\n",
    ),
    (
        "descriptors_sizes",
        "[file_descriptor]\ndefault_page_size = 9000\nmax_read_chars = 100\n\n[tools]\nenabled = \
         [\"read_fd\"]\n",
    ),
    (
        "descriptors_handles",
        "[file_descriptor]\nexpand_fds = [\"grep\", \"read_fd\", \"nowhere\"]\npreview = \
         \"tail\"\nmax_content_bytes = \"9 TB\"\n\n[tools]\nenabled = [\"read_fd\", \"grep\"]\n",
    ),
    ("spawn_without_programs", "[tools]\nenabled = [\"spawn\"]\n"),
    (
        "programs_without_spawn",
        "[linked_programs]\nme = \"main.toml\"\n",
    ),
    (
        "link_missing",
        "[tools]\nenabled = [\"spawn\"]\n\n[linked_programs]\na = \"nowhere.toml\"\nb = { path = \
         \"..\" }\nc = {}\nd = 5\n\"e f\" = \"main.toml\"\n",
    ),
    (
        "link_yaml",
        "[tools]\nenabled = [\"spawn\"]\n\n[linked_programs]\nexpert = \"programs/expert.yaml\"\n",
    ),
    (
        "files_missing",
        "[prompt]\nsystem_prompt_file = \"system.md\"\n\n[preload]\nfiles = [\"a.md\", \
         \"\"]\nrelative_to = \"home\"\n",
    ),
    (
        "preload_parts",
        "[preload]\nfiles = [{ lines = \"1-2\" }, { path = \"main.toml\", lines = \"9-2\" }, \
         { path = \"main.toml\", lines = \"400-500\" }, { path = \"main.toml\", lines = \"1\", full = \
         true }, { path = \"main.toml\", pages = 1 }, 7]\n",
    ),
    (
        "mcp_file",
        "[mcp]\nconfig_path = \"mcp.json\"\n\n[tools.mcp]\nserver = \"all\"\n",
    ),
    (
        "mcp_servers",
        "[mcp.servers.git]\ncommand = \"git-mcp\"\n[mcp.servers.web]\nurl = \"ftp://x\"\nheader = \
         {}\n[mcp.servers.both]\ncommand = \"a\"\nurl = \"http://b\"\n\n[tools.mcp]\ngti = \
         \"all\"\n",
    ),
    (
        "mcp_tools",
        "[mcp.servers.s]\ncommand = \"s\"\n\n[tools]\nenabled = [\"read_fd\"]\n\n[tools.mcp]\ns = \
         [\"a\", \"a\", { name = \"b\", alias = \"read_fd\" }, { name = \"c\", alias = \"x y\" }, \
         { name = \"d\", acess = \"read\" }, 5]\nt = 5\n",
    ),
    (
        "mcp_prefixes",
        "[mcp.servers.s]\ncommand = \"s\"\n\n[tools.mcp]\ns = { tools = \"all\", prefix = \"a b\" \
         }\n[mcp.servers.t]\ncommand = \"s\"\n[tools.mcp.t]\ntools = \"all\"\nprefix = \
         \"a23456789b123456789c123456789d123\"\n",
    ),
    (
        "environment",
        "[env_info]\nvariables = [\"date\", \"python_version\", \"plattform\"]\ncomands = \
         \"ls\"\ncount = 5\nenv_vars = { a = 1 }\n",
    ),
    (
        "environment_commands",
        "[env_info]\ncommands = [\"\", [], 5, [\"sh\", \"-c\", \"ls | wc\"], \"git status\"]\n",
    ),
    (
        "environment_shell",
        "[env_info]\ncommands = [\"git log | head\", \"echo 'a\", \"echo '$a'\"]\nfile_map_root = \
         \".\"\n",
    ),
    (
        "environment_variables",
        "[env_info]\nenv_vars = [\"HOME\", \"A=B\", 1]\n",
    ),
    ("command_empty", "[[tools.command]]\n"),
    (
        "command_names",
        "[[tools.command]]\nname = \"fork\"\ndescription = \"d\"\nargv = \
         [\"a\"]\n\n[[tools.command]]\nname = \"grep\"\ndescription = \"d\"\nargv = \
         [\"a\"]\n\n[[tools.command]]\nname = \"x\"\ndescription = \"d\"\nargv = \
         [\"a\"]\n\n[[tools.command]]\nname = \"x\"\ndescription = \"d\"\nargv = \
         [\"a\"]\n\n[[tools.command]]\nname = \"é\"\ndescription = \"d\"\nargv = [\"a\"]\n",
    ),
    (
        "command_program",
        "[[tools.command]]\nname = \"x\"\ndescription = \"d\"\nargv = [\"{program}\", \
         \"a\\u0000b\"]\nparameters.program.type = \"string\"\n\n[[tools.command]]\nname = \
         \"y\"\ndescription = \"d\"\nargv = [\" \"]\n\n[[tools.command]]\nname = \
         \"z\"\ndescription = \"d\"\nargv = []\n",
    ),
    (
        "command_placeholders",
        "[[tools.command]]\nname = \"x\"\ndescription = \"d\"\nargv = [\"x\", \"{a}\", \
         \"{c}\"]\nparameters = { a = { type = \"string\" }, b = { type = \"string\" }, \"c d\" = \
         { type = \"string\" } }\n",
    ),
    (
        "command_parameters",
        "[[tools.command]]\nname = \"x\"\ndescription = \"d\"\nargv = [\"x\", \
         \"{a}{b}{c}{d}\"]\n[tools.command.parameters]\na = { type = \"text\" }\nb = { type = \
         \"integer\", default = \"10\", choices = [1, \"2\"] }\nc = { type = \"string\", default = \
         \"z\", choices = [\"x\", \"y\"] }\nd = { description = \"d\", choices = [], size = 1 }\n",
    ),
    (
        "command_amounts",
        "[[tools.command]]\nname = \"x\"\ndescription = \"d\"\nargv = [\"x\"]\ndeadline = \
         \"soon\"\noutput_cap = \"64 megs\"\n\n[[tools.command]]\nname = \"y\"\ndescription = \
         \"d\"\nargv = [\"y\"]\ndeadline = 0\noutput_cap = \"2GB\"\n\n[[tools.command]]\nname = \
         \"z\"\ndescription = \"d\"\nargv = [\"z\"]\ndeadline = true\noutput_cap = 1.5\n",
    ),
    (
        "command_environment",
        "[[tools.command]]\nname = \"x\"\ndescription = \"d\"\nargv = [\"x\"]\nenv = [\"HOME\", \
         \"KEY=secret\"]\n",
    ),
    ("command_section", "[tools.command]\nname = \"x\"\n"),
    (
        "limits",
        "[limits]\nmax_fork_children = 1001\nmax_depth = \"3\"\nmax_width = 1\nfork_release = \
         \"frist\"\n",
    ),
    (
        "not_ascii",
        "[prompt]\nsystem = \"größer\" # größer\nüser = \"日本\"\n",
    ),
];

/// Cases that are about `[model]`, or about several files.
const FILES: [(&str, &[File<'_>]); 14] = [
    ("empty", &[("main.toml", "")]),
    ("model_empty", &[("main.toml", "[model]\n")]),
    (
        "model_provider",
        &[(
            "main.toml",
            "[model]\nname = \"gpt\"\nprovider = \"open-ai\"\n",
        )],
    ),
    (
        "model_server",
        &[(
            "main.toml",
            "[model]\nname = \"m\"\nprovider = \"openai-chat\"\nbase_url = \
             \"https://user:secret@host/v1\"\napi_key_env = \
             \"sk-secret\"\ndisable_automatic_caching = 1\nbase_ulr = \"x\"\n",
        )],
    ),
    (
        "model_server_of_a_script",
        &[(
            "main.toml",
            "[model]\nprovider = \"scripted\"\nbase_url = \"http://localhost:1\"\napi_key_env = \
             \"KEY\"\n",
        )],
    ),
    (
        "model_name_missing",
        &[(
            "main.toml",
            "[model]\nprovider = \"anthropic\"\nmax_iterations = 0\n",
        )],
    ),
    (
        "model_script",
        &[
            (
                "main.toml",
                "[model]\nname = \"m\"\nprovider = \"anthropic\"\nscript = \"s.toml\"\n",
            ),
            ("s.toml", ""),
        ],
    ),
    (
        "model_of_the_reference",
        &[(
            "main.toml",
            "[model]\nname = \"m\"\nprovider = \"anthropic\"\nregion = \"x\"\n",
        )],
    ),
    (
        "model_unused_keys",
        &[(
            "main.toml",
            "[model]\nname = \"m\"\nprovider = \"openai\"\ncache_ttl = \"1h\"\nproject_id = \
             \"p\"\ntimeout = \"5m\"\nidle_timeout = \"5m\"\n",
        )],
    ),
    (
        "model_ca_file",
        &[
            (
                "main.toml",
                "[model]\nname = \"m\"\nprovider = \"openai\"\nca_file = \"ca.pem\"\n\
                 [[model.fallback]]\nname = \"m\"\nprovider = \"openai\"\nbase_url = \
                 \"https://h\"\nca_file = \"ca.pem\"\n",
            ),
            ("ca.pem", "no certificate"),
        ],
    ),
    (
        "model_of_a_feature",
        &[(
            "main.toml",
            "[model]\nname = \"m\"\nprovider = \"anthropic_vertex\"\nregion = \
             \"global\"\n[[model.fallback]]\nname = \"m\"\nprovider = \
             \"anthropic_bedrock\"\nheaders = { Anthropic-Beta = \"x\" }\n",
        )],
    ),
    (
        "wrong_section_types",
        &[(
            "main.toml",
            "model = 1\nprompt = 3\ntools = []\nlinked_programs = true\n",
        )],
    ),
    (
        "mistakes_of_several_files",
        &[
            (
                "main.toml",
                "[model]\nprovider = \"scripted\"\n[tools]\nenabled = \
                 [\"spawn\"]\n[linked_programs]\na = \"sub/a.toml\"\n[demo]\nx = 1\n",
            ),
            (
                "sub/a.toml",
                "[model]\nprovider = \"scripted\"\nscript = \"b.toml\"\n",
            ),
        ],
    ),
    (
        "warnings_of_several_files",
        &[
            (
                "main.toml",
                "[model]\nprovider = \"scripted\"\n[linked_programs]\na = \"sub/a.toml\"\n",
            ),
            (
                "sub/a.toml",
                "[model]\nprovider = \"scripted\"\n[tools]\nenabled = [\"spawn\"]\n",
            ),
        ],
    ),
];

fn rendered(findings: &[Finding]) -> String {
    let handler =
        GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor()).with_width(110);
    let mut text = String::new();
    for finding in findings {
        handler
            .render_report(&mut text, finding)
            .expect("writing to a string succeeds");
        text.push('\n');
    }
    text.lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect()
}

fn findings(files: &[File<'_>]) -> String {
    match compile_files(files) {
        Ok(compiled) => format!("compiles\n\n{}", rendered(&compiled.warnings)),
        Err(errors) => format!("{errors}\n\n{}", rendered(errors.errors())),
    }
}

/// Whether the findings are those of the golden file; says what differs if not.
fn check(name: &str, found: &str) -> Result<(), String> {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/program_{name}.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        return std::fs::write(&path, found).map_err(|error| error.to_string());
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    if golden == found {
        Ok(())
    } else {
        Err(format!("{name}: found\n{found}\nbut golden is\n{golden}"))
    }
}

#[test]
fn findings_read_as_they_should() {
    let mut differences = Vec::new();
    for (name, rest) in CASES {
        let text = format!("{MODEL}{rest}");
        differences.extend(check(name, &findings(&[("main.toml", &text)])).err());
    }
    for (name, files) in FILES {
        differences.extend(check(name, &findings(files)).err());
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn a_finding_can_be_told_without_a_report_handler() {
    let errors = compile_files(&[("main.toml", "[model]\nprovider = \"scripted\"\nnmae = 1\n")])
        .unwrap_err();
    let [error] = errors.errors() else {
        panic!("{errors}")
    };
    assert_eq!(
        (error.file(), error.line(), error.to_string().as_str()),
        ("main.toml", Some(3), "unknown key `nmae`")
    );
    assert!(error.advice().unwrap().starts_with("did you mean `name`?"));
    assert_eq!(
        errors.to_string(),
        "main.toml does not compile: main.toml:3: unknown key `nmae`"
    );
}

#[test]
fn an_entry_that_cannot_be_read_is_told_with_its_name() {
    let missing = |_: &Path| {
        Err(FileError {
            kind: FileErrorKind::FileNotFound,
            message: "nothing is there".to_owned(),
        })
    };
    let errors = compile(Path::new("demo/main.toml"), &mut { missing }, &[]).unwrap_err();
    assert_eq!(
        errors.to_string(),
        "main.toml does not compile: main.toml: nothing is there"
    );
}

#[test]
fn a_program_in_yaml_is_refused_with_how_to_convert_it() {
    for name in ["main.yaml", "programs/main.YML"] {
        let file = (name, "model:\n  name: m\n  provider: anthropic\n");
        let error = compile(Path::new(name), &mut |_| Ok(file.1.into()), &[]).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("is YAML, and programs are TOML") && text.contains("`[model]`"),
            "{text}"
        );
    }
}
