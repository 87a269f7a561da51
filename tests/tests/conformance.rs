//! The conformance cases of descriptors end to end: whole kernels, real files, tools called as a
//! model or an embedder calls them. Each case is data, each kind of case has one function; what is
//! left is printed, with the reason.

use std::collections::BTreeMap;
use std::fs;

use dormouse::host::{LocalHost, Permissions};
use dormouse::models::Scripted;
use dormouse::tool::{Access, Answer};
use dormouse::{FnTool, Kernel, KernelBuilder, Process};
use dormouse_tests::{Case, Requests, check_histories, program, results, turn, within};
use roxmltree::Document;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

#[derive(Deserialize, JsonSchema)]
struct Text {
    text: String,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_case_of_this_version_holds_end_to_end() {
    let mut left: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut held = 0;
    for case in Case::all() {
        match case.op.as_str() {
            "paginate" => within(paginate(&case)).await,
            "read" => within(read(&case)).await,
            "extract" => within(extract(&case)).await,
            "wrap" => within(wrap(&case)).await,
            "user_input" => within(user_input(&case)).await,
            "tool_call" => within(tool_call(&case)).await,
            "create" => within(create(&case)).await,
            "write" => within(write(&case)).await,
            "config" => config(&case).await,
            "fork" => within(fork(&case)).await,
            "isolation" => within(isolation(&case)).await,
            "spawn" => within(spawn(&case)).await,
            "access" => within(access(&case)).await,
            "refs" => within(refs(&case)).await,
            _ => {
                left.entry(case.op).or_default().push(case.name);
                continue;
            }
        }
        held += 1;
    }
    assert_eq!((held, left), (80, BTreeMap::new()), "every case holds");
}

/// A reply with references: each is a descriptor of the process, and of a child that it forks.
async fn refs(case: &Case) {
    let script = format!(
        "[[turn]]\nwhen.round = 0\ntext = {:?}\ncalls = [{{ tool = \"fork\", args = {{ prompts = \
         [\"look\"] }} }}]\n[[turn]]\ntext = \"{{{{ last }}}}\"\n",
        case.content
    );
    let rest =
        "[file_descriptor]\nenable_references = true\n[tools]\nenabled = [\"read_fd\", \"fork\"]\n";
    let process = session(Kernel::builder(), Some(&script), rest).await;
    turn(&process, "go").await;
    let expected = case.expected["refs"].as_object().unwrap();
    for (id, text) in expected {
        assert_eq!(
            read_whole(&process, &format!("ref:{id}")).await,
            text.as_str().unwrap(),
            "{}",
            case.name
        );
    }
    assert_eq!(
        process.view().unwrap().descriptors,
        expected.len(),
        "{}",
        case.name
    );
    let unknown = call(&process, "read_fd", &json!({"fd": "ref:unknown"})).await;
    assert_eq!(
        (unknown.is_error, &*attribute(&unknown, "type")),
        (true, "not_found")
    );
}

/// A session of a program that holds no descriptor yet, and is never asked anything unless a script
/// is given.
async fn session(builder: KernelBuilder, script: Option<&str>, rest: &str) -> Process {
    let model = script.map_or_else(Scripted::without_script, |script| {
        Scripted::parse(script, "case").unwrap()
    });
    let kernel = builder.model("m", model).build().await.unwrap();
    kernel
        .start(program(&kernel, rest))
        .without_input()
        .session()
        .await
        .unwrap()
}

const READ: &str = "[tools]\nenabled = [\"read_fd\"]\n";

async fn opened(case: &Case) -> Process {
    let process = session(Kernel::builder(), None, READ).await;
    let answer = process
        .open("tool:t", case.content.clone(), case.number("page_size"))
        .await
        .unwrap();
    assert!(!answer.is_error, "{}: {}", case.name, answer.text);
    process
}

async fn call(process: &Process, tool: &str, args: &Value) -> Answer {
    process.call(tool, args.to_string()).await.unwrap()
}

/// The text that an answer shows, as an XML parser gives it back.
fn shown(answer: &Answer) -> String {
    let document = Document::parse(&answer.text)
        .unwrap_or_else(|error| panic!("XML-1: {error}: {}", answer.text));
    document
        .root_element()
        .descendants()
        .filter(|node| node.is_text())
        .filter_map(|node| node.text())
        .collect()
}

fn attribute(answer: &Answer, name: &str) -> String {
    Document::parse(&answer.text)
        .unwrap()
        .root_element()
        .attribute(name)
        .unwrap_or("")
        .to_owned()
}

async fn read_whole(process: &Process, fd: &str) -> String {
    shown(&call(process, "read_fd", &json!({"fd": fd, "read_all": true})).await)
}

async fn paginate(case: &Case) {
    let process = opened(case).await;
    let rows = case.expected["page_rows"].as_array().unwrap();
    let mut joined = String::new();
    for (number, row) in (1..).zip(rows) {
        let answer = call(&process, "read_fd", &json!({"fd": "fd:1", "page": number})).await;
        let text = shown(&answer);
        let found = json!({
            "text": text,
            "lines": attribute(&answer, "lines"),
            "continued": attribute(&answer, "continued") == "true",
            "truncated": attribute(&answer, "truncated") == "true",
        });
        assert_eq!(found, *row, "{} page {number}: {}", case.name, answer.text);
        assert_eq!(
            attribute(&answer, "pages"),
            case.expected["pages"].to_string(),
            "{}",
            case.name
        );
        assert_eq!(
            attribute(&answer, "total_lines"),
            case.expected["total_lines"].to_string(),
            "{}",
            case.name
        );
        joined += &text;
    }
    assert_eq!(joined, case.content, "{}: PAGE-1", case.name);
    let beyond = call(
        &process,
        "read_fd",
        &json!({"fd": "fd:1", "page": rows.len() + 1}),
    )
    .await;
    assert!(
        beyond.is_error,
        "{}: there is no page after the last",
        case.name
    );
}

fn read_args(case: &Case) -> Value {
    let mut args = case.params.clone();
    args.remove("page_size");
    args.entry("fd").or_insert("fd:1".into());
    Value::Object(args)
}

async fn read(case: &Case) {
    let process = opened(case).await;
    let answer = call(&process, "read_fd", &read_args(case)).await;
    check_answer(case, &answer);
    assert_eq!(
        read_whole(&process, "fd:1").await,
        case.content,
        "{}: FD-2",
        case.name
    );
}

fn check_answer(case: &Case, answer: &Answer) {
    let text = shown(answer);
    let document = Document::parse(&answer.text).unwrap();
    let root = document.root_element();
    for (key, value) in &case.expected {
        let wanted = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        let attribute = |name: &str| root.attribute(name).unwrap_or("") == wanted;
        let holds = match key.as_str() {
            "text" => text == wanted,
            "error_type" => answer.is_error && root.has_tag_name("fd_error") && attribute("type"),
            "valid_range" => text.contains(&format!("Valid range: {wanted}")),
            "fd" | "page" | "lines" | "continued" | "truncated" => attribute(key),
            "count_served" => attribute("count"),
            "first_char_served" => text.starts_with(&wanted),
            "payload_cannot_close_envelope" => {
                text == case.content && !root.children().any(|node| node.is_element())
            }
            "stored_content_unchanged" | "new_fd" => true,
            _ => panic!("{}: nobody checks {key}", case.name),
        };
        assert!(
            holds,
            "{}: {key} must be {wanted}: {}",
            case.name, answer.text
        );
    }
}

async fn extract(case: &Case) {
    let process = opened(case).await;
    let mut args = read_args(case);
    args["extract_to_new_fd"] = json!(true);
    let answer = call(&process, "read_fd", &args).await;
    let descriptors = process.view().unwrap().descriptors;
    if case.expected["new_fd"] == Value::Null {
        assert_eq!(
            descriptors, 1,
            "{}: a refused extraction opens nothing",
            case.name
        );
        return check_answer(case, &answer);
    }
    let content = case.expected["new_content"].as_str().unwrap();
    assert_eq!(
        (descriptors, attribute(&answer, "new_fd")),
        (2, "fd:2".to_owned()),
        "{}",
        case.name
    );
    assert_eq!(case.expected["new_fd"], "fd:2", "{}", case.name);
    assert_eq!(read_whole(&process, "fd:2").await, content, "{}", case.name);
    assert!(
        content.is_empty() || !answer.text.contains(content),
        "{}: only the id comes back",
        case.name
    );
    assert_eq!(
        read_whole(&process, "fd:1").await,
        case.content,
        "{}: FD-2",
        case.name
    );
}

fn text_tool() -> impl dormouse::ports::Tool {
    FnTool::new(
        "t",
        "Gives its text back.",
        |Text { text }: Text| async move { Ok::<_, String>(text) },
    )
}

async fn wrap(case: &Case) {
    let tool = case.params["tool"].as_str().unwrap();
    if tool != "t" {
        return wrap_descriptor_tool(case, tool).await;
    }
    let rest = format!(
        "[tools]\nenabled = [\"read_fd\", \"t\"]\n[file_descriptor]\nmax_direct_output_chars = \
         {}\ndefault_page_size = 10\n",
        case.params["threshold"]
    );
    let is_binary = case.name == "wrap_bytes_as_base64";
    let content = case.content.clone();
    let t = FnTool::new("t", "Gives the content of the case.", move |()| {
        let bytes = if is_binary {
            [0x00, 0xff].repeat(40)
        } else {
            content.clone().into_bytes()
        };
        async move { Ok::<_, String>(bytes) }
    });
    let process = session(Kernel::builder().tool(t), None, &rest).await;
    let answer = process.call("t", "null").await.unwrap();
    let created = process.view().unwrap().descriptors == 1;
    assert_eq!(
        case.expected["fd_created"], created,
        "{}: {}",
        case.name, answer.text
    );
    assert_eq!(
        answer.text.starts_with("<fd_result"),
        created,
        "{}: {}",
        case.name,
        answer.text
    );
    for key in ["fd", "encoding"] {
        if let Some(expected) = case.expected.get(key) {
            assert_eq!(
                *expected,
                attribute(&answer, key),
                "{}: {}",
                case.name,
                answer.text
            );
        }
    }
}

async fn wrap_descriptor_tool(case: &Case, tool: &str) {
    let (host, _folder) = host();
    let rest = format!(
        "[tools]\nenabled = [\"read_fd\", \
         \"fd_to_file\"]\n[file_descriptor]\nmax_direct_output_chars = {}\ndefault_page_size = \
         10\n",
        case.params["threshold"]
    );
    let process = session(Kernel::builder().host(host), None, &rest).await;
    process
        .open("tool:t", case.content.clone(), None)
        .await
        .unwrap();
    let args = match tool {
        "read_fd" => json!({"fd": "fd:1", "read_all": true}),
        _ => json!({"fd": "fd:1", "file_path": "out.txt"}),
    };
    let answer = call(&process, tool, &args).await;
    assert!(
        answer.text.chars().count() > 20 && !answer.is_error,
        "{}: {}",
        case.name,
        answer.text
    );
    assert!(
        !answer.text.starts_with("<fd_result"),
        "{}: {}",
        case.name,
        answer.text
    );
    assert_eq!(process.view().unwrap().descriptors, 1, "{}", case.name);
}

async fn user_input(case: &Case) {
    let requests = Requests::default();
    let model = requests.record(Scripted::parse("[[turn]]\ntext = 'heard'", "case").unwrap());
    let kernel = Kernel::builder().model("m", model).build().await.unwrap();
    let rest = format!(
        "{READ}[file_descriptor]\ndefault_page_size = 10\nmax_input_chars = {}\n",
        case.params["max_input_chars"]
    );
    // The first input of a process and a later one are admitted alike.
    let process = kernel
        .start(program(&kernel, &rest))
        .input(case.content.clone())
        .session()
        .await
        .unwrap();
    let second = kernel
        .start(program(&kernel, &rest))
        .without_input()
        .session()
        .await
        .unwrap();
    turn(&second, &case.content).await;
    let first_pid = process.pid();
    let ended = dormouse_tests::events_until(
        process.events(),
        |event| matches!(event, dormouse::Event::TurnEnded { pid, .. } if *pid == first_pid),
    );
    ended.await;
    for (which, pid) in [("first", process.pid()), ("later", second.pid())] {
        let said = requests.of(pid.0)[0].messages[0].text();
        let replaced = said.starts_with("<fd_result");
        assert_eq!(
            case.expected["replaced"], replaced,
            "{} {which}: {said}",
            case.name
        );
        if replaced {
            Document::parse(&said).unwrap_or_else(|error| panic!("{}: {error}: {said}", case.name));
        } else {
            assert_eq!(said, case.content, "{} {which}", case.name);
        }
    }
    if case.expected["replaced"] == true {
        assert_eq!(
            read_whole(&process, "fd:1").await,
            case.content,
            "{}",
            case.name
        );
    }
}

/// Called by the model, seen by the model.
async fn tool_call(case: &Case) {
    let script = format!(
        "[[turn]]\nwhen.round = 0\ncalls_json = '[{{\"tool\": \"{}\", \"args\": \
         {}}}]'\n[[turn]]\ntext = 'seen'\n",
        case.params["tool"].as_str().unwrap(),
        case.params["args"]
    );
    let requests = Requests::default();
    let model = requests.record(Scripted::parse(&script, "case").unwrap());
    let kernel = Kernel::builder().model("m", model).build().await.unwrap();
    let process = kernel
        .start(program(&kernel, READ))
        .input("read")
        .await
        .unwrap();
    assert_eq!(&*process.wait().await.unwrap().message, "seen");
    let (text, is_error) = results(&requests.all()[1], 0).remove(0);
    assert_eq!(case.expected["is_error"], is_error, "{}: {text}", case.name);
    assert!(
        text.starts_with(case.expected["text_starts_with"].as_str().unwrap()),
        "{}: {text}",
        case.name
    );
}

async fn create(case: &Case) {
    let rest = "[tools]\nenabled = [\"read_fd\", \
         \"t\"]\n[file_descriptor]\nmax_direct_output_chars = 1\ndefault_page_size = 1\n";
    let process = session(Kernel::builder().tool(text_tool()), None, rest).await;
    let mut ids = Vec::new();
    for text in case.content.split('|') {
        // One character more than the threshold.
        ids.push(attribute(
            &call(&process, "t", &json!({"text": format!("{text}!")})).await,
            "fd",
        ));
    }
    assert_eq!(case.expected["ids"], json!(ids), "{}", case.name);
}

fn host() -> (LocalHost, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let permissions = Permissions::none()
        .allow_read(folder.path())
        .allow_write(folder.path());
    (LocalHost::new(permissions, folder.path()).unwrap(), folder)
}

async fn write(case: &Case) {
    let (host, folder) = host();
    let mut args = case.params.clone();
    let before = args
        .remove("file_before")
        .and_then(|text| text.as_str().map(str::to_owned));
    let path = args
        .entry("file_path")
        .or_insert("out.txt".into())
        .as_str()
        .unwrap()
        .to_owned();
    args.insert("fd".into(), "fd:1".into());
    let file = folder.path().join(&path);
    if let Some(before) = before {
        fs::write(&file, before).unwrap();
    }
    let process = session(
        Kernel::builder().host(host),
        None,
        "[tools]\nenabled = [\"fd_to_file\"]\n",
    )
    .await;
    process
        .open("tool:t", case.content.clone(), None)
        .await
        .unwrap();
    let answer = call(&process, "fd_to_file", &Value::Object(args)).await;
    let after = fs::read_to_string(&file).ok();
    let document = Document::parse(&answer.text).unwrap();
    let inner = |name| {
        document
            .descendants()
            .find(|node| node.has_tag_name(name))
            .and_then(|node| node.text())
    };
    for (key, value) in &case.expected {
        let wanted = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        let root = document.root_element();
        let holds = match (key.as_str(), wanted.as_str()) {
            ("outcome", "ok") => {
                root.has_tag_name("fd_write") && root.attribute("success") == Some("true")
            }
            ("outcome", kind) => answer.is_error && root.attribute("type") == Some(kind),
            ("file_after", _) => after.as_deref() == value.as_str(),
            ("bytes" | "bytes_written", _) => inner("bytes") == Some(&wanted),
            ("lines", _) => inner("lines") == Some(&wanted),
            _ => panic!("{}: nobody checks {key}", case.name),
        };
        assert!(
            holds,
            "{}: {key} must be {wanted}: {} and the file {after:?}",
            case.name, answer.text
        );
    }
    let strangers = fs::read_dir(folder.path()).unwrap().filter(|entry| {
        let name = entry.as_ref().unwrap().file_name();
        !path.starts_with(name.to_str().unwrap())
    });
    assert_eq!(
        strangers.count(),
        0,
        "{}: no temporary file is left behind",
        case.name
    );
}

async fn config(case: &Case) {
    let kernel = Kernel::builder().build().await.unwrap();
    let mut text = "[model]\nname = \"m\"\nprovider = \"scripted\"\n".to_owned();
    for (section, keys) in &case.params {
        text += &format!("[{section}]\n");
        for (key, value) in keys.as_object().unwrap() {
            text += &format!("{key} = {value}\n");
        }
    }
    match (
        case.expected["outcome"].as_str().unwrap(),
        kernel.parse(text.clone()),
    ) {
        ("ok", Ok(compiled)) => {
            assert_eq!(
                case.expected["fd_enabled"],
                compiled.program.descriptors().is_some(),
                "{}",
                case.name
            );
        }
        ("error", Err(errors)) => assert!(
            errors.to_string().contains("file_descriptor"),
            "{}: {errors}",
            case.name
        ),
        (outcome, found) => panic!("{}: {outcome} expected of\n{text}\n{found:?}", case.name),
    }
}

async fn fork(case: &Case) {
    let script = r#"
        [[turn]]
        when = { prompt = "^split", round = 0 }
        calls = [{ tool = "fork", args = { prompts = ["child"] } }]
        [[turn]]
        when = { prompt = "^child", round = 0 }
        calls = [{ tool = "read_fd", args = { fd = "fd:2" } }, { tool = "t", args = { text = "child-own" } }]
        [[turn]]
        when = { prompt = "^child", round = 1 }
        calls = [{ tool = "read_fd", args = { fd = "fd:1" } }, { tool = "read_fd", args = { fd = "fd:2" } }]
        [[turn]]
        when = { prompt = "^child" }
        text = "done"
        [[turn]]
        when = { prompt = "^split", round = 1 }
        calls = [{ tool = "t", args = { text = "parent-own" } }]
        [[turn]]
        text = "joined"
    "#;
    let requests = Requests::default();
    let model = requests.record(Scripted::parse(script, "fork").unwrap());
    let admin = FnTool::new("for_admins", "Needs admin.", |()| async {
        Ok::<_, String>("yes")
    })
    .access(Access::Admin);
    let kernel = Kernel::builder()
        .model("m", model)
        .tool(text_tool())
        .tool(admin)
        .build()
        .await
        .unwrap();
    let rest = "[tools]\nenabled = [\"read_fd\", \"fork\", \"t\", \
         \"for_admins\"]\n[file_descriptor]\nmax_direct_output_chars = 8\ndefault_page_size = 8\n";
    let parent = kernel
        .start(program(&kernel, rest))
        .without_input()
        .session()
        .await
        .unwrap();
    parent
        .open("user", case.content.clone(), None)
        .await
        .unwrap();
    assert_eq!(turn(&parent, "split").await, "joined");
    check_histories(&requests);
    let child = requests.of(2);
    assert!(
        results(&child[1], 0)[0].1,
        "the child begins with fd:1 alone"
    );
    let reads = results(child.last().unwrap(), 0);
    let text = |answer: &(String, bool)| {
        assert!(!answer.1, "{}", answer.0);
        shown(&Answer {
            opened: Vec::new(),
            text: answer.0.as_str().into(),
            is_error: false,
            media: Vec::new(),
        })
    };
    assert_eq!(text(&reads[0]), case.content);
    let whole = read_whole(&parent, "fd:2").await;
    let found = json!({
        "child_manager_ids": ["fd:1"],
        "child_fd2": "child-own",
        "parent_fd2": whole,
        "child_tool_reads_fd1": if reads[0].1 { "error" } else { "ok" },
        "parent_tool_reads_fd1_after_fork": if read_whole(&parent, "fd:1").await == case.content { "ok" } else { "error" },
        "parent_level_after_fork": if parent.call("for_admins", "null").await.unwrap().is_error { "less" } else { "admin" },
        // Pages are of 8 characters: the first is shown.
        "child_tool_reads_own_fd2_gets": if text(&reads[1]) == "child-ow" { "child-own" } else { "something \
             else" },
    });
    assert_eq!(Value::Object(case.expected.clone()), found, "{}", case.name);
}

async fn isolation(case: &Case) {
    let kernel = Kernel::builder()
        .model("m", Scripted::without_script())
        .build()
        .await
        .unwrap();
    let shared = program(&kernel, READ);
    let a = kernel
        .start(shared.clone())
        .without_input()
        .session()
        .await
        .unwrap();
    let b = kernel
        .start(shared)
        .without_input()
        .session()
        .await
        .unwrap();
    let (a_data, b_data) = case.content.split_once(" / ").unwrap();
    a.open("user", a_data.to_owned(), None).await.unwrap();
    b.open("user", b_data.to_owned(), None).await.unwrap();
    assert_eq!(
        case.expected["process_a_reads_fd1"],
        read_whole(&a, "fd:1").await,
        "{}",
        case.name
    );
    assert_eq!(
        case.expected["process_b_reads_fd1"],
        read_whole(&b, "fd:1").await,
        "{}",
        case.name
    );
}

async fn spawn(case: &Case) {
    let (host, folder) = host();
    let model = "[model]\nname = \"m\"\nprovider = \"scripted\"\n";
    let main = format!(
        "{model}[tools]\nenabled = [\"read_fd\", \"spawn\"]\n[linked_programs]\nhelper = \
         \"helper.toml\"\n"
    );
    fs::write(folder.path().join("main.toml"), main).unwrap();
    fs::write(folder.path().join("helper.toml"), format!("{model}{READ}")).unwrap();
    let script = format!(
        r#"
        [[turn]]
        when = {{ program = "main", round = 0 }}
        calls_json = '[{{"tool": "spawn", "args": {{"program_name": "helper", "query": "look", "additional_preload_fds": {}}}}}]'
        [[turn]]
        when = {{ program = "helper", round = 0 }}
        calls = [{{ tool = "read_fd", args = {{ fd = "fd:1" }} }}]
        [[turn]]
        text = "done: {{{{ last }}}}"
        "#,
        case.params["additional_preload_fds"]
    );
    let requests = Requests::default();
    let recorded = requests.record(Scripted::parse(&script, "spawn").unwrap());
    let kernel = Kernel::builder()
        .model("m", recorded)
        .host(host)
        .build()
        .await
        .unwrap();
    let main = kernel
        .load(folder.path().join("main.toml"))
        .unwrap()
        .program;
    let parent = kernel.start(main).without_input().session().await.unwrap();
    parent
        .open("user", case.content.clone(), None)
        .await
        .unwrap();
    turn(&parent, "go").await;
    let child = requests.of(2);
    let preloaded = child[0].system.contains(&case.content);
    assert_eq!(
        case.expected["preloaded_fd_in_child_system_prompt"], preloaded,
        "{}: {}",
        case.name, child[0].system
    );
    assert!(
        results(&child[1], 0)[0].0.contains(&case.content),
        "the child reads it under the same id"
    );
}

async fn access(case: &Case) {
    let kernel = Kernel::builder()
        .model("m", Scripted::without_script())
        .build()
        .await
        .unwrap();
    let level = match case.params["process_level"].as_str().unwrap() {
        "read" => Access::Read,
        "write" => Access::Write,
        _ => Access::Admin,
    };
    let start = kernel
        .start(program(&kernel, READ))
        .without_input()
        .session()
        .access(level);
    let process = start.await.unwrap();
    process
        .open("user", case.content.clone(), None)
        .await
        .unwrap();
    let answer = call(&process, "read_fd", &json!({"fd": "fd:1"})).await;
    assert_eq!(
        case.expected["allowed"], !answer.is_error,
        "{}: {}",
        case.name, answer.text
    );
}
