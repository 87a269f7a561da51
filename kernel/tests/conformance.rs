//! The conformance cases of descriptors, as far as they can be decided without a runtime: each case
//! is data, each kind of case has one function. What the kernel leaves to others (files, processes,
//! program files) is printed, by name.

use std::collections::BTreeMap;

use dormouse_content::Content;
use dormouse_kernel::syscall::Call;
use dormouse_kernel::syscall::{Outcome, fd_to_file, read_fd};
use dormouse_kernel::table::Table;
use dormouse_kernel::table::placement::{Placement, Placer};
use dormouse_proto::descriptor::DescriptorSettings;
use dormouse_proto::file::{FileError, FileErrorKind, Presence, WriteMode};
use dormouse_proto::id::FdId;
use dormouse_proto::record::Entry;
use dormouse_proto::tool::{Answer, ToolOutput};
use dormouse_proto::user_input::InputPart;
use roxmltree::Document;
use serde_json::{Map, Value, json};

#[derive(Debug)]
struct Case {
    name: String,
    op: String,
    params: Map<String, Value>,
    content: String,
    expected: Map<String, Value>,
}

fn cases() -> Vec<Case> {
    let text = include_str!("../../tests/conformance/fd_cases.json");
    let cases: Vec<Value> = serde_json::from_str(text).expect("the cases are a JSON list");
    let case = |case: &Value| Case {
        name: case["name"].as_str().expect("a name").to_owned(),
        op: case["op"].as_str().expect("an op").to_owned(),
        params: case["params"].as_object().expect("params").clone(),
        content: case["content"].as_str().expect("content").to_owned(),
        expected: case["expected"].as_object().expect("expected").clone(),
    };
    cases.iter().map(case).collect()
}

#[test]
fn every_case_of_this_room_holds() {
    let mut left: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut held = 0;
    for case in cases() {
        match case.op.as_str() {
            "paginate" => paginate(&case),
            "read" | "tool_call" => read(&case),
            "extract" => extract(&case),
            "wrap" => wrap(&case),
            "user_input" => user_input(&case),
            "create" => create(&case),
            "write" => write(&case),
            _ => {
                left.entry(case.op).or_default().push(case.name);
                continue;
            }
        }
        held += 1;
    }
    assert_eq!(held, 69, "no case of this room may be skipped");
    assert_eq!(
        left.values().map(Vec::len).sum::<usize>(),
        11,
        "left for other rooms: {left:?}"
    );
    eprintln!("{held} cases hold; left for other rooms: {left:?}");
}

fn table(content: &str, page_size: &Value) -> Table {
    let page_chars = page_size
        .as_u64()
        .and_then(|size| u32::try_from(size).ok())
        .unwrap_or(4000);
    let content = Content::new(content.to_owned());
    let mut table = Table::new();
    table.insert(
        table.next_id(),
        Entry::new(content, page_chars, "tool:t", 0),
    );
    table
}

fn param(case: &Case, key: &str) -> Value {
    case.params.get(key).cloned().unwrap_or(Value::Null)
}

fn paginate(case: &Case) {
    let page_size =
        u32::try_from(param(case, "page_size").as_u64().expect("a size")).expect("it fits");
    let content = Content::new(case.content.clone());
    let rows: Vec<_> = (1..=content.unlimited_reader().total_pages(page_size).expect("it is in memory"))
        .map(|number| {
            content
                .unlimited_reader()
                .page(page_size, number)
                .expect("it is in memory")
                .expect("it is within the number of pages")
        })
        .map(|page| {
            let lines = format!("{}-{}", page.first_line, page.last_line);
            json!({"text": &*page.text, "lines": lines, "continued": page.continued, "truncated": page.truncated})
        })
        .collect();
    let joined: String = rows.iter().filter_map(|row| row["text"].as_str()).collect();
    let found = json!({
        "pages": rows.len(),
        "page_rows": rows,
        "total_lines": content.unlimited_reader().total_lines().expect("it is in memory"),
        "concat_of_pages_equals_content": joined == case.content,
        "max_page_chars": page_size,
    });
    assert_eq!(found, Value::Object(case.expected.clone()), "{}", case.name);
}

/// The arguments of a `read_fd` call: the parameters of the case, but for those that set it up.
fn read_args(case: &Case) -> Value {
    if let Some(args) = case.params.get("args") {
        return args.clone();
    }
    let mut args = case.params.clone();
    args.remove("page_size");
    args.entry("fd").or_insert("fd:1".into());
    Value::Object(args)
}

fn call_read(case: &Case, args: &Value) -> (Table, Outcome) {
    let table = table(&case.content, &param(case, "page_size"));
    let outcome = read_fd(&Call::unlimited(
        &table,
        &args.to_string(),
        &DescriptorSettings::default(),
        0,
    ));
    let stored = &table.get(&FdId::Fd(1)).expect("it was put in").content;
    assert_eq!(
        &*stored.unlimited_reader().text().expect("it is in memory"),
        case.content,
        "{}: FD-2",
        case.name
    );
    (table, outcome)
}

fn read(case: &Case) {
    let (_, outcome) = call_read(case, &read_args(case));
    let Outcome::Answer(answer) = outcome else {
        panic!("{}: reading opens and writes nothing", case.name)
    };
    check_answer(case, &answer);
}

/// What an answer says, compared key by key with what is expected of it.
fn check_answer(case: &Case, answer: &Answer) {
    let document =
        Document::parse(&answer.text).unwrap_or_else(|error| panic!("{}: {error}", case.name));
    let root = document.root_element();
    let text: String = root
        .descendants()
        .filter(|node| node.is_text())
        .filter_map(|node| node.text())
        .collect();
    let attribute = |name: &str| root.attribute(name).unwrap_or("");
    for (key, value) in &case.expected {
        let wanted = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        let holds = match key.as_str() {
            "text" => text == wanted,
            "error_type" => {
                answer.is_error && root.has_tag_name("fd_error") && attribute("type") == wanted
            }
            "valid_range" => text.contains(&format!("Valid range: {wanted}")),
            "fd" | "page" | "lines" | "continued" | "truncated" => attribute(key) == wanted,
            "count_served" => attribute("count") == wanted,
            "first_char_served" => text.starts_with(&wanted),
            "is_error" => answer.is_error == value.as_bool().expect("a flag"),
            "text_starts_with" => answer.text.starts_with(&wanted),
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

fn extract(case: &Case) {
    let mut args = read_args(case);
    args["extract_to_new_fd"] = json!(true);
    let (table, outcome) = call_read(case, &args);
    let (id, entry, answer) = match outcome {
        Outcome::Opened(extracted) => {
            let id = table.next_id();
            let answer = extracted.answer(&id);
            (id, extracted.entry, answer)
        }
        Outcome::Answer(answer) => {
            assert_eq!(case.expected["new_fd"], Value::Null, "{}", case.name);
            return check_answer(case, &answer);
        }
        other => panic!("{}: an extraction opens a descriptor: {other:?}", case.name),
    };
    let content = entry
        .content
        .unlimited_reader()
        .text()
        .expect("it is in memory");
    assert_eq!(case.expected["new_fd"], id.to_string(), "{}", case.name);
    assert_eq!(case.expected["new_content"], *content, "{}", case.name);
    assert!(
        content.is_empty() || !answer.text.contains(&*content),
        "{}: {}",
        case.name,
        answer.text
    );
    assert!(
        answer.text.contains(&format!("new_fd=\"{id}\"")),
        "{}: {}",
        case.name,
        answer.text
    );
}

fn settings(case: &Case) -> DescriptorSettings {
    let chars = |key: &str| param(case, key).as_u64().unwrap_or(8000);
    DescriptorSettings {
        max_direct_output_chars: chars("threshold"),
        max_input_chars: chars("max_input_chars"),
        page_chars: 10,
        ..DescriptorSettings::default()
    }
}

fn wrap(case: &Case) {
    let tool = param(case, "tool");
    let tool = tool.as_str().expect("a tool");
    if ["read_fd", "fd_to_file"].contains(&tool) {
        return descriptor_tools_are_not_wrapped(case);
    }
    let bytes = match case.name.as_str() {
        "wrap_bytes_as_base64" => [0x00, 0xff].repeat(40),
        _ => case.content.clone().into_bytes(),
    };
    let source = format!("tool:{tool}");
    let placement = Placer::unlimited(Some(&settings(case)), 0)
        .output(ToolOutput::ok(bytes), &source)
        .placement;
    let Placement::Descriptor(new) = placement else {
        return assert_eq!(case.expected["fd_created"], false, "{}", case.name);
    };
    let id = Table::new().next_id();
    let answer = new.answer(&id);
    assert_eq!(case.expected["fd_created"], true, "{}", case.name);
    for (name, value) in [("fd", id.to_string()), ("encoding", "base64".to_owned())] {
        if let Some(expected) = case.expected.get(name) {
            assert_eq!(*expected, value, "{}", case.name);
            assert!(
                answer.text.contains(&format!("{name}=\"{value}\"")),
                "{}: {}",
                case.name,
                answer.text
            );
        }
    }
}

/// The guard is a type: what a descriptor tool gives is an `Answer`, and placement takes none. Seen
/// from outside: however much more than the threshold it shows, the answer is the text itself and
/// nothing is opened.
fn descriptor_tools_are_not_wrapped(case: &Case) {
    let table = table(&case.content, &Value::Null);
    let args = r#"{"fd": "fd:1", "read_all": true}"#;
    let outcome = read_fd(&Call::unlimited(&table, args, &settings(case), 0));
    assert!(
        matches!(&outcome, Outcome::Answer(answer) if answer.text.contains(&case.content)),
        "{}",
        case.name
    );
}

fn user_input(case: &Case) {
    let placement =
        Placer::unlimited(Some(&settings(case)), 0).input(&InputPart::text(&case.content));
    let replaced = matches!(placement, Placement::Descriptor(_));
    assert_eq!(case.expected["replaced"], replaced, "{}", case.name);
    if let Placement::Descriptor(new) = placement {
        let (answer, entry) = (new.answer(&Table::new().next_id()), new.entry);
        assert_eq!(
            *entry
                .content
                .unlimited_reader()
                .text()
                .expect("it is in memory"),
            case.content,
            "{}",
            case.name
        );
        let document = Document::parse(&answer.text).expect("XML-1");
        let preview = document
            .descendants()
            .find(|node| node.has_tag_name("preview"))
            .expect("a preview");
        let text: String = preview.children().filter_map(|node| node.text()).collect();
        assert_eq!(
            text,
            *entry
                .content
                .unlimited_reader()
                .page(entry.page_chars, 1)
                .expect("it is in memory")
                .expect("the first page")
                .text,
            "{}",
            case.name
        );
    }
}

fn create(case: &Case) {
    let mut table = Table::new();
    let ids = case.content.split('|').map(|text| {
        let id = table.next_id();
        let content = Content::new(text.to_owned());
        table.insert(id.clone(), Entry::new(content, 10, "tool:t", 0));
        id.to_string()
    });
    assert_eq!(
        case.expected["ids"],
        json!(ids.collect::<Vec<_>>()),
        "{}",
        case.name
    );
}

/// What the host is asked for, on a host of one file that is or is not there.
fn write(case: &Case) {
    let mut args = case.params.clone();
    let before = args
        .remove("file_before")
        .and_then(|text| text.as_str().map(str::to_owned));
    args.entry("file_path").or_insert("out.txt".into());
    args.insert("fd".into(), "fd:1".into());
    let table = table(&case.content, &Value::Null);
    let args = Value::Object(args).to_string();
    let Outcome::Write(pending) = fd_to_file(&Call::unlimited(
        &table,
        &args,
        &DescriptorSettings::default(),
        0,
    )) else {
        panic!("{}: {args} must ask the host to write", case.name)
    };
    let is_folder = pending.write.path == ".";
    let result = match (pending.write.presence, &before) {
        _ if is_folder => Err(FileErrorKind::WriteError),
        (Presence::Absent | Presence::Neither, Some(_)) => Err(FileErrorKind::FileExists),
        (Presence::Present | Presence::Neither, None) => Err(FileErrorKind::FileNotFound),
        _ => Ok(()),
    };
    let added = std::str::from_utf8(&pending.write.bytes)
        .expect("every case is text")
        .to_owned();
    let after = match (result, pending.write.mode, before) {
        (Err(_), _, before) => before,
        (Ok(()), WriteMode::Append, Some(before)) => Some(before + &added),
        (Ok(()), ..) => Some(added),
    };
    let answer = pending.answer(result.map_err(|kind| FileError {
        kind,
        message: "out.txt".into(),
    }));
    check_write(case, &answer, after.as_deref());
}

fn check_write(case: &Case, answer: &Answer, after: Option<&str>) {
    let document = Document::parse(&answer.text).expect("XML-1");
    let root = document.root_element();
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
        let holds = match (key.as_str(), wanted.as_str()) {
            ("outcome", "ok") => {
                root.has_tag_name("fd_write") && root.attribute("success") == Some("true")
            }
            ("outcome", kind) => answer.is_error && root.attribute("type") == Some(kind),
            ("file_after", _) => after == value.as_str(),
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
}
