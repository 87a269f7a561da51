//! Tests of complete replies of scripted models.

use std::sync::Mutex;

use dormouse_proto::message::Message;

use super::testing::{answer, request, said, used};
use super::*;

async fn call(
    script: &Scripted,
    messages: Vec<Message>,
) -> (Result<Reply, ModelError>, Vec<Delta>) {
    let deltas = Mutex::new(Vec::new());
    let reply = script
        .call(request(messages), &|delta| {
            deltas.lock().unwrap().push(delta)
        })
        .await;
    (reply, deltas.into_inner().unwrap())
}

fn script(text: &str) -> Scripted {
    Scripted::parse(text, "test.toml").unwrap()
}

/// A worker that pages through the hits of a search and reports on them.
const WORKER: &str = r#"
[[capture]]
name = "hits"
pattern = 'hit (?<name>\w+) (?<version>[\d.]+) (?<licence>\w+)'
take = "all"
unique = true
since = "prompt"

[[capture]]
name = "next"
pattern = 'next_start="(\d+)"'
from = "last"

[[turn]]
name = "start"
when.round = 0
calls = [{ tool = "search_fd", args = { fd = "fd:1", pattern = "hit" } }]

[[turn]]
name = "go on"
when = { tool = "search_fd", holds = "next is defined" }
calls = [{ tool = "search_fd", args = { fd = "fd:1", pattern = "hit", start = "{{ next }}" } }]

[[turn]]
name = "report"
when.tool = "search_fd"
text = '''
{{ hits | length }} in {{ prompt }}
{% for licence, of in hits | groupby("licence") %}
- {{ licence }}: {{ of | length }}
{% endfor %}
{% for name, of in hits | groupby("name") if of | length > 1 %}
{{ name }} has {{ of | map(attribute="version") | join(", ") }}
{% endfor %}
'''
"#;

#[tokio::test]
async fn a_loop_of_turns_gathers_pages_and_reports_on_all_of_them() {
    let worker = script(WORKER);
    let pages = [
        r#"<fd_search next_start="3">hit a 1.0 MIT hit b 1.0 ISC hit a 1.0 MIT</fd_search>"#,
        r#"<fd_search next_start="9">hit a 2.0 MIT</fd_search>"#,
        r#"<fd_search>hit c 1.0 MIT</fd_search>"#,
    ];
    // A search before the prompt is not the worker's own.
    let mut messages = vec![
        said("old"),
        used("x", "search_fd", "{}"),
        answer("x", "hit z 9 BSD"),
        said("it"),
    ];
    let mut asked = Vec::new();
    for page in pages {
        let blocks = call(&worker, messages.clone()).await.0.unwrap().blocks;
        let [Block::ToolUse { id, args, .. }] = &blocks[..] else {
            panic!("one call, not {blocks:?}")
        };
        asked.push(args.to_string());
        let id = id.clone();
        messages.push(Message {
            role: Role::Assistant,
            blocks,
        });
        messages.push(answer(&id, page));
    }
    assert_eq!(
        asked[1..],
        [
            r#"{"fd":"fd:1","pattern":"hit","start":"3"}"#,
            r#"{"fd":"fd:1","pattern":"hit","start":"9"}"#
        ]
    );
    let (reply, deltas) = call(&worker, messages).await;
    let reply = reply.unwrap();
    let text = dormouse_proto::message::text_of(&reply.blocks);
    assert_eq!(text, "4 in it\n- ISC: 1\n- MIT: 3\na has 1.0, 2.0\n");
    assert_eq!(reply.stop, StopReason::EndTurn);
    let streamed: String = deltas
        .iter()
        .map(|d| {
            if let Delta::Text(text) = d {
                text.as_str()
            } else {
                ""
            }
        })
        .collect();
    assert_eq!((streamed, deltas.len()), (text, STREAM_CHUNKS));
}

#[tokio::test]
async fn the_same_request_gets_the_same_reply_and_names_do_not_repeat() {
    let worker =
        script("[[turn]]\ntext = 'so'\ncalls = [{tool = 'a'}, {tool = 'b', args = {n = 1}}]");
    let mut messages = vec![said("go")];
    let mut ids = std::collections::HashSet::new();
    for _ in 0..3 {
        let (first, deltas) = call(&worker, messages.clone()).await;
        assert_eq!(
            call(&worker.clone(), messages.clone()).await,
            (first.clone(), deltas)
        );
        let reply = first.unwrap();
        assert_eq!(reply.stop, StopReason::ToolUse);
        for block in &reply.blocks[1..] {
            let Block::ToolUse { id, .. } = block else {
                panic!("{block:?}")
            };
            assert!(ids.insert(id.clone()), "{id} stands twice");
        }
        messages.push(Message {
            role: Role::Assistant,
            blocks: reply.blocks,
        });
        messages.push(said("again"));
    }
}

#[tokio::test]
async fn the_names_of_calls_that_stay_after_a_compaction_are_not_given_again() {
    let worker = script("[[turn]]\ncalls = [{tool = 'a'}]");
    let messages = vec![
        said("summary"),
        used("toolu_1_0", "a", "{}"),
        answer("toolu_1_0", "x"),
    ];
    let reply = call(&worker, messages).await.0.unwrap();
    let [Block::ToolUse { id, .. }] = &reply.blocks[..] else {
        panic!("one call, not {:?}", reply.blocks)
    };
    assert_eq!(**id, *"toolu_2_0");
}

#[tokio::test]
async fn forked_children_are_distinguished_by_their_prompts() {
    let forks = script(
        "[[turn]]\nwhen.prompt = 'licences'\ntext = 'L'\n[[turn]]\nwhen = {prompt = 'versions', \
         tool = 'fork'}\ntext = 'V'\n[[turn]]\nwhen.tool = 'fork'\ntext = 'parent'",
    );
    let fork = || {
        vec![
            said("go"),
            used(
                "f",
                "fork",
                r#"{"prompts": ["the licences", "the versions"]}"#,
            ),
        ]
    };
    let cases = [
        ("You are child 1 of 2.", "L"),
        ("You are child 2 of 2.", "V"),
        ("1: licences, 2: versions", "parent"),
    ];
    for (text, expected) in cases {
        let messages = fork().into_iter().chain([answer("f", text)]).collect();
        let reply = call(&forks, messages).await.0.unwrap();
        assert_eq!(
            dormouse_proto::message::text_of(&reply.blocks),
            expected,
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_script_without_a_matching_turn_reports_what_is_missing() {
    let cases = [
        (
            Scripted::without_script(),
            ModelErrorKind::Unavailable,
            vec!["'auditor'", "[[turn]]"],
        ),
        (
            script("[[turn]]\nname = 'greet'\nwhen.contains = 'hello'\ntext = 'x'"),
            ModelErrorKind::Unavailable,
            vec!["test.toml", "\"something\"", "greet: contains = \"hello\""],
        ),
        (
            script("[[turn]]\nname = 'greet'\ntext = '{{ big.fd }}'"),
            ModelErrorKind::Unavailable,
            vec!["test.toml", "greet", "{{ big.fd }}", "prompt"],
        ),
        (
            script("[[turn]]\nfail = 'overloaded'"),
            ModelErrorKind::Overloaded,
            vec!["turn 1"],
        ),
    ];
    for (model, kind, parts) in cases {
        let error = call(&model, vec![said("something")]).await.0.unwrap_err();
        assert_eq!(error.kind, kind);
        for part in parts {
            assert!(error.message.contains(part), "{part:?} is not in: {error}");
        }
    }
}

#[tokio::test]
async fn a_turn_has_a_text_and_a_stop_reason() {
    let cases = [
        (
            "text = 'no: {{ last }}'\nstop = 'refusal'",
            "no: go",
            StopReason::Refusal,
        ),
        (
            "text = 'so f'\nstop = 'max_tokens'\ncalls = [{tool = 'a'}]",
            "so f",
            StopReason::MaxTokens,
        ),
        ("stop = 'context_window'", "", StopReason::ContextWindow),
        ("text = 'I'\nstop = 'pause'", "I", StopReason::Pause),
        ("text = 'I'\ncalls_json = '[]'", "I", StopReason::EndTurn),
    ];
    for (turn, text, stop) in cases {
        let reply = call(&script(&format!("[[turn]]\n{turn}")), vec![said("go")])
            .await
            .0
            .unwrap();
        assert_eq!(
            (
                &*dormouse_proto::message::text_of(&reply.blocks),
                reply.stop
            ),
            (text, stop),
            "{turn}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_delay_is_kept() {
    let began = tokio::time::Instant::now();
    call(
        &script("[[turn]]\ntext = 'x'\ndelay_ms = 250"),
        vec![said("go")],
    )
    .await
    .0
    .unwrap();
    assert_eq!(began.elapsed().as_millis(), 250);
}
