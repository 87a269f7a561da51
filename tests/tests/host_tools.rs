//! Tools of the host: functions that become tools, and the files that a host permits.

use dormouse::host::{LocalHost, Permissions};
use dormouse::models::Scripted;
use dormouse::ports::{OutputSink, Tool};
use dormouse::tool::{Access, Answer};
use dormouse::{Kernel, Process};

/// Counts the words of a text.
///
/// Words are what blanks are between.
#[dormouse::tool(
    access = "read",
    idempotent,
    deadline_ms = 5_000,
    output_cap_bytes = 100
)]
async fn count_words(
    /// The text.
    text: String,
    /// Words that are shorter are not counted.
    at_least: Option<usize>,
) -> Result<String, String> {
    let words = text
        .split_whitespace()
        .filter(|word| word.len() >= at_least.unwrap_or(0));
    Ok(words.count().to_string())
}

/// Counts up to a number, a line each, and then fails.
#[dormouse::tool(name = "count-up")]
async fn count_up(to: u32, out: OutputSink) -> Result<(), &'static str> {
    for number in 1..=to {
        out.push(format!("{number}\n").as_bytes())
            .map_err(|_| "full")?;
    }
    Err("there it ends")
}

/// Says hello.
#[dormouse::tool]
async fn hello() -> Result<&'static str, std::convert::Infallible> {
    Ok("hello")
}

/// Repeats a query.
#[dormouse::tool]
async fn query(query: String, argument_0: String) -> Result<String, String> {
    Ok(format!("{query} {argument_0}"))
}

/// Writes to a place.
#[dormouse::tool]
async fn argument_0(out: String, sink: OutputSink) -> Result<(), &'static str> {
    sink.push(out.as_bytes()).map_err(|_| "full")
}

/// A process that may call these.
async fn process(kernel: &Kernel, tools: &str) -> Process {
    let program =
        format!("[model]\nname = \"m\"\nprovider = \"scripted\"\n[tools]\nenabled = [{tools}]\n");
    let program = kernel.parse(program).unwrap().program;
    kernel
        .start(program)
        .session()
        .without_input()
        .await
        .unwrap()
}

fn builder() -> dormouse::KernelBuilder {
    Kernel::builder().model("m", Scripted::without_script())
}

async fn call(process: &Process, tool: &str, args: &str) -> (String, bool) {
    let Answer { text, is_error, .. } = process.call(tool, args).await.unwrap();
    (text.to_string(), is_error)
}

#[tokio::test]
async fn a_function_with_an_attribute_is_a_tool() {
    let (spec, policy) = (count_words().spec(), count_words().policy());
    assert_eq!(&*spec.name, "count_words");
    assert_eq!(
        &*spec.description,
        "Counts the words of a text.\n\nWords are what blanks are between."
    );
    let schema: serde_json::Value = serde_json::from_str(&spec.schema).unwrap();
    assert_eq!(schema["properties"]["text"]["description"], "The text.");
    assert_eq!(schema["required"], serde_json::json!(["text"]));
    assert_eq!((policy.access, policy.idempotent), (Access::Read, true));
    assert_eq!((policy.deadline_ms, policy.output_cap_bytes), (5_000, 100));
    let kernel = builder()
        .tool(count_words())
        .tool(count_up())
        .tool(hello())
        .build()
        .await
        .unwrap();
    let process = process(&kernel, "\"count_words\", \"count-up\", \"hello\"").await;
    for (tool, args, text, is_error) in [
        ("count_words", r#"{"text": "a bb ccc"}"#, "3", false),
        (
            "count_words",
            r#"{"text": "a bb ccc", "at_least": 2}"#,
            "2",
            false,
        ),
        (
            "count_words",
            r#"{"text": "a bb ccc", "at_least": "3"}"#,
            "1",
            false,
        ),
        ("count-up", r#"{"to": 2}"#, "1\n2\n\n\nthere it ends", true),
        ("hello", "{}", "hello", false),
    ] {
        assert_eq!(
            call(&process, tool, args).await,
            (text.to_owned(), is_error),
            "{tool} {args}"
        );
    }
    let (text, is_error) = call(&process, "count_words", r#"{"txet": "a"}"#).await;
    assert!(
        is_error && text.contains("txet") && text.contains("text"),
        "{text}"
    );
}

#[tokio::test]
async fn a_parameter_may_be_named_as_its_function_and_as_a_sink() {
    let schema: serde_json::Value = serde_json::from_str(&query().spec().schema).unwrap();
    assert_eq!(
        schema["required"],
        serde_json::json!(["query", "argument_0"])
    );
    let kernel = builder()
        .tool(query())
        .tool(argument_0())
        .build()
        .await
        .unwrap();
    let process = process(&kernel, "\"query\", \"argument_0\"").await;
    let said = call(&process, "query", r#"{"query": "a", "argument_0": "b"}"#).await;
    assert_eq!(said, ("a b".to_owned(), false));
    assert_eq!(
        call(&process, "argument_0", r#"{"out": "there"}"#).await,
        ("there".to_owned(), false)
    );
}

#[tokio::test]
async fn permitted_files_are_read_and_listed_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &str| dir.path().join(path);
    std::fs::create_dir_all(at("docs/deep")).unwrap();
    std::fs::create_dir(at("secret")).unwrap();
    std::fs::write(at("docs/a.txt"), "one\ntwo\n").unwrap();
    std::fs::write(at("docs/.hidden"), "h").unwrap();
    std::fs::write(at("docs/line\nfeed"), "").unwrap();
    std::fs::write(at("docs/long.txt"), "line\n".repeat(4_000)).unwrap();
    std::fs::write(at("secret/key"), "canary").unwrap();
    std::os::unix::fs::symlink(at("secret"), at("docs/way")).unwrap();
    let host = LocalHost::new(Permissions::none().allow_read("docs"), dir.path()).unwrap();
    let kernel = builder().host(host).build().await.unwrap();
    let process = process(&kernel, "\"read_file\", \"list_dir\", \"read_fd\"").await;
    let listed = "a.txt  8\ndeep/\nline\\nfeed  0\nlong.txt  20000\nway@\n";
    for path in [
        "docs",
        "docs/",
        "./docs/.",
        "docs/deep/..",
        dir.path().join("docs").to_str().unwrap(),
    ] {
        let args = serde_json::json!({ "directory_path": path }).to_string();
        assert_eq!(
            call(&process, "list_dir", &args).await,
            (listed.to_owned(), false),
            "{path}"
        );
    }
    let (all, _) = call(
        &process,
        "list_dir",
        r#"{"directory_path": "docs", "all": true}"#,
    )
    .await;
    assert!(all.starts_with(".hidden  1\n"), "{all}");
    let (empty, _) = call(&process, "list_dir", r#"{"path": "docs/deep"}"#).await;
    assert_eq!(empty, "docs/deep is empty.");
    std::fs::write(at("docs/deep/.kept"), "").unwrap();
    let (hidden, _) = call(&process, "list_dir", r#"{"path": "docs/deep"}"#).await;
    assert_eq!(
        hidden,
        "docs/deep has nothing but entries whose names begin with a dot: 1. With `all` they are \
         listed."
    );
    assert_eq!(
        call(&process, "read_file", r#"{"file_path": "docs/a.txt"}"#).await,
        ("one\ntwo\n".to_owned(), false)
    );
    std::fs::write(
        at("docs/a.png"),
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x20\0\0\0\x10 and so on",
    )
    .unwrap();
    let image = process
        .call("read_file", r#"{"file_path": "docs/a.png"}"#)
        .await
        .unwrap();
    assert!(
        image
            .text
            .starts_with("<fd_attachment fd=\"fd:1\" source=\"tool:read_file\" name=\"a.png\""),
        "{image:?}"
    );
    assert_eq!(&*image.media[0].media_type, "image/png");
    let (long, is_error) = call(&process, "read_file", r#"{"file_path": "docs/long.txt"}"#).await;
    assert!(
        !is_error && long.starts_with("<fd_result fd=\"fd:2\" source=\"tool:read_file\""),
        "{long}"
    );
    for (tool, args) in [
        ("read_file", r#"{"file_path": "secret/key"}"#),
        ("read_file", r#"{"file_path": "docs/way/key"}"#),
        ("read_file", r#"{"file_path": "docs/../secret/key"}"#),
        ("read_file", r#"{"file_path": "docs"}"#),
        ("list_dir", r#"{"directory_path": "secret"}"#),
        ("list_dir", r#"{"directory_path": "docs/way"}"#),
        ("list_dir", r#"{"directory_path": "docs/none"}"#),
        ("list_dir", "{}"),
    ] {
        let (text, is_error) = call(&process, tool, args).await;
        assert!(
            is_error && !text.contains("canary") && text.contains("cannot be"),
            "{tool} {args}: {text}"
        );
    }
}

#[tokio::test]
async fn a_tool_of_the_embedder_takes_the_place_of_the_kernels_own() {
    /// Reads nothing.
    #[dormouse::tool]
    async fn read_file() -> Result<&'static str, String> {
        Ok("mine")
    }
    let kernel = builder().tool(read_file()).build().await.unwrap();
    let process = process(&kernel, "\"read_file\", \"list_dir\"").await;
    assert_eq!(call(&process, "read_file", "{}").await.0, "mine");
    let (text, is_error) = call(&process, "list_dir", "{}").await;
    assert!(
        is_error && text.contains("lists no directory"),
        "there is no host: {text}"
    );
}
