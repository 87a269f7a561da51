//! Tests with a server over its standard streams.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse_actors::ports::{OutputSink, ToolServers};
use dormouse_host::{LocalHost, Permissions};
use dormouse_mcp::{KnownLists, McpClient};
use dormouse_proto::id::Pid;
use dormouse_proto::server::{ServerValue, Transport};
use dormouse_proto::tool::{Access, Progress};
use dormouse_tests::within;

use crate::support::Fixture;

#[tokio::test]
async fn tools_of_all_pages_are_offered_with_their_hints() {
    let fixture = Fixture::new(McpClient::default(), "good");
    let offers = fixture.offers().await.unwrap();
    let access = |name: &str| {
        let policy = offers
            .iter()
            .find(|offer| &*offer.name == name)
            .unwrap_or_else(|| panic!("{name}"))
            .policy;
        (policy.access, policy.idempotent)
    };
    assert_eq!(
        access("echo"),
        (Access::Read, false),
        "a hint is not a promise"
    );
    assert_eq!(access("write"), (Access::Write, false));
    assert_eq!(access("set"), (Access::Write, false));
    assert_eq!(access("stuck"), (Access::Write, false), "the last page");
    assert_eq!(
        (access("read_resource"), access("list_resources")),
        ((Access::Read, true), (Access::Read, true))
    );
    assert_eq!(fixture.call("echo", "<é>").await.unwrap(), "echo: <é>");
    assert_eq!(
        fixture.call("list_resources", "").await.unwrap(),
        "[resource note://1] one: A note\n\nThese are all."
    );
    let out = OutputSink::with_cap(1_000);
    let read = fixture.client.call(
        &fixture.host,
        &fixture.server,
        Pid(1),
        "read_resource",
        r#"{"uri": "note://1"}"#.into(),
        out.clone(),
    );
    within(read).await.unwrap();
    assert_eq!(out.take().bytes, "[note://1]\nwhat note://1 says");
    assert_eq!(fixture.starts(), 1, "all calls used one session");
}

#[tokio::test]
async fn each_part_of_a_mixed_result_is_returned_once() {
    let fixture = Fixture::new(McpClient::default(), "good");
    let out = OutputSink::with_cap(1_000);
    within(fixture.client.call(
        &fixture.host,
        &fixture.server,
        Pid(1),
        "many",
        "{}".into(),
        out.clone(),
    ))
    .await
    .unwrap();
    assert_eq!(out.take().bytes, "{\"n\": 1}\n\n[resource note://1] one");
    let attached = out.take_attached();
    assert_eq!(
        (
            attached.len(),
            &*attached[0].media_type,
            &attached[0].bytes[..]
        ),
        (1, "image/png", &b"\x89PNG"[..])
    );
}

#[tokio::test]
async fn the_progress_of_a_server_reaches_the_watcher() {
    let fixture = Fixture::new(McpClient::default(), "good");
    let reported = Arc::new(Mutex::new(Vec::new()));
    let sink = reported.clone();
    let out = OutputSink::with_cap(1_000)
        .with_observer(move |progress: Progress| sink.lock().unwrap().push(progress));
    within(fixture.client.call(
        &fixture.host,
        &fixture.server,
        Pid(1),
        "steps",
        "{}".into(),
        out,
    ))
    .await
    .unwrap();
    let step = |done: f64| Progress {
        done,
        total: Some(2.0),
        message: format!("step {done}").into(),
    };
    assert_eq!(*reported.lock().unwrap(), [step(1.0), step(2.0)]);
}

#[tokio::test]
async fn after_a_server_dies_in_a_call_the_effect_is_unknown_and_it_is_restarted() {
    let fixture = Fixture::new(McpClient::default(), "good");
    let error = fixture.call("die", "").await.unwrap_err();
    assert!(
        error.contains("Effect unknown") && error.contains("was not repeated"),
        "{error}"
    );
    assert_eq!(fixture.call("echo", "again").await.unwrap(), "echo: again");
    assert_eq!(
        fixture.starts(),
        2,
        "the call that was in flight was not made again"
    );
}

#[tokio::test]
async fn a_fault_of_a_server_does_not_end_the_session() {
    let fixture = Fixture::new(McpClient::default(), "good");
    assert_eq!(fixture.call("echo", "here").await.unwrap(), "echo: here");
    for (tool, text, expected) in [
        ("wrong_json", "", None),
        ("wrong_id", "", None),
        ("strange", "", Some(Ok("\"content\":\"no list\""))),
        ("fails", "", Some(Err("it does not want to (code -32000)"))),
        ("junk", "2000", Some(Ok("junk: 2000"))),
        ("none", "", Some(Ok("none: "))),
    ] {
        // An answer that never arrives is awaited for a short time.
        let timeout = Duration::from_millis(if expected.is_none() { 300 } else { 10_000 });
        let answer = tokio::time::timeout(timeout, fixture.call(tool, text)).await;
        match (answer, expected) {
            (Err(_), None) => {}
            (Ok(Ok(text)), Some(Ok(part))) => assert!(text.contains(part), "{tool}: {text}"),
            (Ok(Err(error)), Some(Err(part))) => {
                assert!(error.contains(part), "{tool}: {error}")
            }
            (answer, _) => panic!("{tool}: {answer:?}"),
        }
    }
    assert_eq!(fixture.call("echo", "still").await.unwrap(), "echo: still");
    assert_eq!(fixture.starts(), 1, "no fault ends the session");
}

#[tokio::test]
async fn a_long_answer_is_returned_whole_and_one_over_the_limit_is_an_error() {
    let fixture = Fixture::new(McpClient::default(), "good");
    assert_eq!(
        fixture.call("huge", "20000000").await.unwrap().len(),
        20_000_000
    );
    let fixture = Fixture::new(McpClient::default().max_message_bytes(1 << 20), "good");
    let error = fixture.call("huge", "20000000").await.unwrap_err();
    assert!(error.contains("longer than 1048576 bytes"), "{error}");
    assert_eq!(fixture.call("echo", "still").await.unwrap(), "echo: still");
    assert_eq!(fixture.starts(), 1);
}

#[tokio::test]
async fn a_dropped_call_is_cancelled_at_the_server() {
    let fixture = Fixture::new(McpClient::default(), "good");
    assert_eq!(fixture.call("echo", "here").await.unwrap(), "echo: here");
    let cancelled =
        tokio::time::timeout(Duration::from_millis(50), fixture.call("never", "")).await;
    assert!(cancelled.is_err());
    assert_eq!(
        fixture.call("cancelled", "").await.unwrap(),
        "1 cancelled: the call was given up"
    );
}

#[tokio::test]
async fn a_flood_of_messages_from_a_server_ends_the_session_with_the_reason() {
    for (message, expected) in [
        ("ping", "asked without reading its answers"),
        ("roots", "asked without reading its answers"),
        ("sampling", "asked without reading its answers"),
        ("unknown", "asked without reading its answers"),
        ("changed", "messages that nobody asked for"),
        ("log", "messages that nobody asked for"),
        ("cancelled", "messages that nobody asked for"),
        ("progress", "messages that nobody asked for"),
    ] {
        let fixture = Fixture::new(McpClient::default(), "good");
        let error = fixture.call("endless", message).await.unwrap_err();
        assert!(
            error.contains(expected) && error.contains("Effect unknown"),
            "{message}: {error}"
        );
        assert_eq!(fixture.call("echo", "again").await.unwrap(), "echo: again");
        assert_eq!(fixture.starts(), 2);
    }
}

#[tokio::test]
async fn a_server_that_hangs_is_restarted() {
    let fixture = Fixture::new(McpClient::default(), "good");
    let cancelled = tokio::time::timeout(Duration::from_secs(2), fixture.call("stuck", "")).await;
    assert!(cancelled.is_err());
    assert_eq!(fixture.call("echo", "again").await.unwrap(), "echo: again");
    assert_eq!(fixture.starts(), 2);
}

#[tokio::test]
async fn a_server_that_is_busy_with_a_long_call_is_not_restarted() {
    let fixture = Fixture::new(McpClient::default(), "good");
    assert_eq!(fixture.call("echo", "here").await.unwrap(), "echo: here");
    let others = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let cancelled =
            tokio::time::timeout(Duration::from_millis(100), fixture.call("echo", "first")).await;
        assert!(cancelled.is_err());
        fixture.call("echo", "second").await
    };
    // The call takes longer than the timeout of a ping.
    let (long, second) = tokio::join!(fixture.call("busy", "6"), others);
    assert_eq!(
        (long.as_deref(), second.as_deref()),
        (Ok("busy: 6"), Ok("echo: second"))
    );
    assert_eq!(fixture.starts(), 1);
}

#[tokio::test]
async fn a_ping_of_the_server_is_answered_and_other_requests_are_refused() {
    let fixture = Fixture::new(McpClient::default(), "good");
    let answers = fixture.call("ask", "").await.unwrap();
    let expected = r#"{"elicitation/create": -32601, "ping": "answered", "roots/list": -32601, "sampling/createMessage": -32601}"#;
    assert_eq!(answers, expected);
}

#[tokio::test]
async fn a_server_without_handshake_is_reached_by_the_newer_protocol() {
    let fixture = Fixture::new(McpClient::default(), "modern");
    assert_eq!(fixture.offers().await.unwrap().len(), 17);
    assert_eq!(fixture.call("echo", "young").await.unwrap(), "echo: young");
}

#[tokio::test]
async fn a_changed_list_of_tools_is_offered_from_then_on() {
    let fixture = Fixture::new(McpClient::default(), "good");
    let before = fixture.offers().await.unwrap().len();
    fixture.call("change", "new").await.unwrap();
    let offers = fixture.offers().await.unwrap();
    assert_eq!(offers.len(), before + 1);
    assert!(offers.iter().any(|offer| &*offer.name == "new"));
    // A tool of the server takes precedence over a tool of this client with the same name.
    fixture.call("change", "read_resource").await.unwrap();
    assert_eq!(
        fixture.call("read_resource", "mine").await.unwrap(),
        "read_resource: mine"
    );
}

#[tokio::test]
async fn a_tool_that_is_added_while_the_tools_are_listed_is_called() {
    let fixture = Fixture::new(McpClient::default(), "restless");
    fixture.offers().await.unwrap();
    assert_eq!(
        fixture.call("read_resource", "mine").await.unwrap(),
        "read_resource: mine"
    );
}

#[tokio::test]
async fn a_server_that_does_not_start_is_an_error_with_its_cause() {
    // Only the server that says nothing has to be waited for.
    let with_timeout = |mode, connect_ms| {
        Fixture::with_change(McpClient::default(), mode, |server| {
            server.connect_ms = connect_ms
        })
    };
    let error = with_timeout("mute", 1_000).offers().await.unwrap_err();
    assert!(error.contains("not ready within 1000 ms"), "{error}");
    for (mode, expected) in [
        ("exit", "ended or closed its connection before it was ready"),
        ("refuses", "the API key is missing"),
        (
            "flood",
            "the server wrote too many lines that are not messages",
        ),
    ] {
        let error = with_timeout(mode, 30_000).offers().await.unwrap_err();
        assert!(error.contains(expected), "{mode}: {error}");
    }
    let fixture = Fixture::new(McpClient::default(), "exit");
    let error = fixture.call("echo", "").await.unwrap_err();
    assert!(error.contains("The call was not made"), "{error}");
    let _ = fixture.call("echo", "").await.unwrap_err();
    assert_eq!(fixture.starts(), 2, "each call starts the server again");
}

#[tokio::test]
async fn a_server_that_ended_before_it_was_listed_is_started_again_for_its_lists() {
    let folder = tempfile::tempdir().unwrap();
    let known = KnownLists::open(folder.path()).unwrap();
    let client = McpClient::default().start_when_called(known, Duration::ZERO);
    let fixture = Fixture::new(client, "brief");
    fixture.offers().await.unwrap_err();
    let listed = async {
        while fixture.offers().await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(listed).await;
    assert_eq!(fixture.starts(), 2);
}

#[tokio::test]
async fn a_server_that_is_not_permitted_is_not_started_and_no_secret_is_shown() {
    let fixture = Fixture::with_change(McpClient::default(), "good", |server| {
        let Transport::Stdio(command) = &mut server.transport else {
            panic!()
        };
        command
            .env
            .push(("KEY".into(), ServerValue::new("s3cret-${PRIVATE_KEY}")));
    });
    let error = fixture.offers().await.unwrap_err();
    assert!(
        error.contains("--allow-env=PRIVATE_KEY") && !error.contains("s3cret"),
        "{error}"
    );
    assert!(!format!("{:?}", fixture.client).contains("s3cret"));
    let fixture = Fixture {
        host: std::sync::Arc::new(LocalHost::new(Permissions::none(), ".").unwrap()),
        ..Fixture::new(McpClient::default(), "good")
    };
    let error = fixture.offers().await.unwrap_err();
    assert!(error.contains("--allow-run=python3"), "{error}");
    assert_eq!(fixture.starts(), 0);
}

#[tokio::test]
async fn concurrent_calls_share_one_session_which_ends_with_the_client() {
    let fixture = Fixture::new(McpClient::default(), "good");
    let calls = (0..20).map(|number| {
        let (fixture, text) = (&fixture, number.to_string());
        async move { fixture.call("echo", &text).await.unwrap() }
    });
    let answers = futures_util::future::join_all(calls).await;
    assert!(
        answers
            .iter()
            .enumerate()
            .all(|(number, answer)| *answer == format!("echo: {number}")),
        "{answers:?}"
    );
    assert_eq!(fixture.starts(), 1);
    within(fixture.client.close()).await;
    let error = fixture.call("echo", "").await.unwrap_err();
    assert!(error.contains("shutting down"), "{error}");
    assert_eq!(fixture.starts(), 1);
}
