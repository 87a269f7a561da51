use super::*;

fn opaque(format: &str, json: &Value) -> Block {
    Block::Opaque(Raw::new(format, json.to_string()))
}

/// The tool, its calls, its input, and text, media types and failure of what it returned.
type Read = (String, u32, String, Option<(String, Vec<String>, bool)>);

fn read(block: &Block) -> Vec<Read> {
    let read = |block: ServerBlock| {
        let output = block.output.map(|output| {
            let types = output.media.into_iter().map(|media| media.media_type);
            (output.text, types.collect(), output.is_error)
        });
        (block.tool, block.calls, block.input, output)
    };
    server_blocks(block).into_iter().map(read).collect()
}

/// As [`Read`].
type Expected<'a> = (
    &'a str,
    u32,
    &'a str,
    Option<(&'a str, &'a [&'a str], bool)>,
);

fn check(format: &str, json: Value, expected: &[Expected<'_>]) {
    let found = read(&opaque(format, &json));
    let expected: Vec<Read> = expected
        .iter()
        .map(|(tool, calls, input, output)| {
            let output = output.map(|(text, types, is_error)| {
                let types = types.iter().map(|kind| (*kind).to_owned()).collect();
                (text.to_owned(), types, is_error)
            });
            ((*tool).to_owned(), *calls, (*input).to_owned(), output)
        })
        .collect();
    assert_eq!(found, expected, "{format} {json}");
}

use serde_json::json;

#[test]
fn blocks_of_anthropic_are_calls_and_results() {
    let format = "anthropic";
    check(
        format,
        json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}}),
        &[("web_search", 1, r#"{"query":"x"}"#, None)],
    );
    check(
        format,
        json!({"type": "mcp_tool_use", "name": "ask", "server_name": "wiki", "input": {}}),
        &[("wiki/ask", 1, "{}", None)],
    );
    check(
        format,
        json!({"type": "web_search_tool_result", "content": [{"type": "web_search_result", "title": "T", "url": "https://t", "encrypted_content": "xx", "page_age": "1 hour"}]}),
        &[("web_search", 0, "", Some(("T\nhttps://t", &[], false)))],
    );
    check(
        format,
        json!({"type": "bash_code_execution_tool_result", "content": {"type": "bash_code_execution_result", "stdout": "7\n", "stderr": "bad", "return_code": 1, "content": []}}),
        &[("bash_code_execution", 0, "", Some(("7\nbad", &[], false)))],
    );
    let fetched = |source: Value| json!({"type": "web_fetch_tool_result", "content": {"type": "web_fetch_result", "url": "https://u", "content": {"type": "document", "title": "D", "source": source}}});
    check(
        format,
        fetched(json!({"type": "text", "media_type": "text/plain", "data": "page"})),
        &[("web_fetch", 0, "", Some(("https://u\nD\npage", &[], false)))],
    );
    check(
        format,
        fetched(json!({"type": "base64", "media_type": "application/pdf", "data": "JVBE"})),
        &[(
            "web_fetch",
            0,
            "",
            Some(("https://u\nD", &["application/pdf"], false)),
        )],
    );
    check(
        format,
        json!({"type": "web_search_tool_result", "content": {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}}),
        &[("web_search", 0, "", Some(("max_uses_exceeded", &[], true)))],
    );
    check(
        format,
        json!({"type": "mcp_tool_result", "is_error": true, "content": [{"type": "text", "text": "no"}]}),
        &[("mcp", 0, "", Some(("no", &[], true)))],
    );
    for other in [
        json!({"type": "thinking", "thinking": "t"}),
        json!({"type": "compaction"}),
    ] {
        check(format, other, &[]);
    }
}

#[test]
fn items_of_responses_hold_call_and_result() {
    let format = "openai-responses";
    check(
        format,
        json!({"type": "web_search_call", "status": "completed", "action": {"query": "x"}}),
        &[("web_search", 1, r#"{"query":"x"}"#, None)],
    );
    check(
        format,
        json!({"type": "mcp_call", "server_label": "w", "name": "ask", "arguments": "{}", "output": "so", "error": null}),
        &[("w/ask", 1, "{}", Some(("so", &[], false)))],
    );
    check(
        format,
        json!({"type": "mcp_call", "server_label": "w", "name": "ask", "arguments": "{}", "output": null, "error": {"type": "http_error", "message": "404"}}),
        &[("w/ask", 1, "{}", Some(("404", &[], true)))],
    );
    check(
        format,
        json!({"type": "code_interpreter_call", "code": "1+1", "outputs": [{"type": "logs", "logs": "2"}, {"type": "image", "url": "data:image/png;base64,iVBO"}]}),
        &[(
            "code_interpreter",
            1,
            "1+1",
            Some(("2", &["image/png"], false)),
        )],
    );
    check(
        format,
        json!({"type": "file_search_call", "queries": ["q"], "results": [{"file_id": "f", "filename": "a.txt", "text": "t", "score": 0.5}]}),
        &[("file_search", 1, r#"["q"]"#, Some(("a.txt\nt", &[], false)))],
    );
    check(
        format,
        json!({"type": "image_generation_call", "status": "completed", "revised_prompt": "a cat", "output_format": "webp", "result": "UklG"}),
        &[(
            "image_generation",
            1,
            "a cat",
            Some(("", &["image/webp"], false)),
        )],
    );
    for client in [
        "computer_call",
        "custom_tool_call",
        "local_shell_call",
        "function_call",
    ] {
        check(format, json!({"type": client, "call_id": "c"}), &[]);
    }
    check(format, json!({"type": "reasoning", "summary": []}), &[]);
}

#[test]
fn parts_and_metadata_of_gemini_are_read() {
    let format = "gemini";
    check(
        format,
        json!({"toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "args": {"queries": ["q"]}, "id": "i"}}),
        &[("google_search_web", 1, r#"{"queries":["q"]}"#, None)],
    );
    check(
        format,
        json!({"executableCode": {"language": "PYTHON", "code": "1+1"}}),
        &[("code_execution", 1, "1+1", None)],
    );
    check(
        format,
        json!({"codeExecutionResult": {"outcome": "OUTCOME_FAILED", "output": "no"}}),
        &[("code_execution", 0, "", Some(("no", &[], true)))],
    );
    let image =
        json!({"inlineData": {"mimeType": "image/png", "data": "iVBO"}, "thoughtSignature": "s"});
    check(
        format,
        image.clone(),
        &[("reply", 0, "", Some(("", &["image/png"], false)))],
    );
    let mut thought = image;
    thought["thought"] = json!(true);
    check(format, thought, &[]);
    let grounded = json!({"text": "so", "groundingMetadata": {"webSearchQueries": ["a", "b"]}, "urlContextMetadata": {"urlMetadata": [{"retrievedUrl": "https://u"}]}});
    let expected = [
        ("google_search", 2, "a\nb", None),
        ("url_context", 1, "https://u", None),
    ];
    check(format, grounded.clone(), &expected);
    let text = Block::Text {
        text: "so".into(),
        raw: Some(Raw::new(format, grounded.to_string())),
    };
    let twice = [text.clone(), text];
    assert_eq!(
        count_calls(&twice),
        [
            ("google_search".to_owned(), 4),
            ("url_context".to_owned(), 2)
        ]
    );
}

#[test]
fn an_adapter_block_is_a_file_that_is_there_or_missing() {
    let block = |json: Value| Block::Opaque(Raw::adapter_block(json.to_string()));
    let file = json!({"type": "file", "tool": "code_execution", "id": "f1", "name": "a\n b.png",
        "media_type": "image/png", "data": "cG5n"});
    let found = server_blocks(&block(file));
    let output = found[0].output.as_ref().unwrap();
    let media = Media {
        name: Some("a b.png".to_owned()),
        media_type: "image/png".to_owned(),
        base64: "cG5n".to_owned(),
    };
    assert_eq!((&*found[0].tool, found[0].calls), ("code_execution", 0));
    assert_eq!(output.media, [media]);
    let cases = [
        (
            json!({"type": "file", "tool": "t", "id": "f1", "name": "a.png", "error": "status 404"}),
            "a.png (f1) is at the provider and could not be fetched: status 404",
        ),
        (
            json!({"type": "file", "tool": "t", "id": "f1", "media_type": "image/png"}),
            "f1 is at the provider and could not be fetched: why is not known",
        ),
    ];
    for (json, missing) in cases {
        let output = server_blocks(&block(json)).remove(0).output.unwrap();
        assert_eq!((output.media.len(), &*output.missing[0]), (0, missing));
    }
    for json in [
        json!({"type": "container", "id": "c"}),
        json!([]),
        json!({"type": 7}),
    ] {
        assert_eq!(server_blocks(&block(json)), []);
    }
}
