//! A server that is a program.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse_actors::ports::{OutputSink, ToolServers};
use dormouse_host::{LocalHost, Permissions};
use dormouse_mcp::McpClient;
use dormouse_proto::server::{ServerValue, Transport};
use dormouse_proto::tool::{Access, Progress};
use dormouse_tests::within;

use crate::support::Place;

#[tokio::test]
async fn tools_are_offered_page_by_page_with_what_they_say_of_themselves() {
    let place = Place::new(McpClient::default(), "good");
    let offers = place.offers().await.unwrap();
    let of = |name: &str| {
        let policy = offers
            .iter()
            .find(|offer| &*offer.name == name)
            .unwrap_or_else(|| panic!("{name}"))
            .policy;
        (policy.access, policy.idempotent)
    };
    assert_eq!(of("echo"), (Access::Read, false), "a hint is no promise");
    assert_eq!(of("write"), (Access::Write, false));
    assert_eq!(of("set"), (Access::Write, false));
    assert_eq!(of("stuck"), (Access::Write, false), "the last page");
    assert_eq!(
        (of("read_resource"), of("list_resources")),
        ((Access::Read, true), (Access::Read, true))
    );
    assert_eq!(place.call("echo", "<é>").await.unwrap(), "echo: <é>");
    assert_eq!(
        place.call("list_resources", "").await.unwrap(),
        "[resource note://1] one: A note\n\nThese are all."
    );
    let out = OutputSink::with_cap(1_000);
    let read = place.client.call(
        &place.host,
        &place.server,
        "read_resource",
        r#"{"uri": "note://1"}"#.into(),
        out.clone(),
    );
    within(read).await.unwrap();
    assert_eq!(out.take().bytes, "[note://1]\nwhat note://1 says");
    assert_eq!(place.lives(), 1, "all of it in one session");
}

#[tokio::test]
async fn a_result_of_many_kinds_is_told_once_each() {
    let place = Place::new(McpClient::default(), "good");
    let out = OutputSink::with_cap(1_000);
    within(
        place
            .client
            .call(&place.host, &place.server, "many", "{}".into(), out.clone()),
    )
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
async fn what_a_server_says_of_its_progress_is_told_to_who_watches() {
    let place = Place::new(McpClient::default(), "good");
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = told.clone();
    let out = OutputSink::with_cap(1_000)
        .with_progress_watcher(move |progress| heard.lock().unwrap().push(progress));
    within(
        place
            .client
            .call(&place.host, &place.server, "steps", "{}".into(), out),
    )
    .await
    .unwrap();
    let step = |done: f64| Progress {
        done,
        total: Some(2.0),
        message: format!("step {done}").into(),
    };
    assert_eq!(*told.lock().unwrap(), [step(1.0), step(2.0)]);
}

#[tokio::test]
async fn a_server_that_dies_in_a_call_leaves_its_effect_unknown_and_is_begun_anew() {
    let place = Place::new(McpClient::default(), "good");
    let error = place.call("die", "").await.unwrap_err();
    assert!(
        error.contains("Effect unknown") && error.contains("was not repeated"),
        "{error}"
    );
    assert_eq!(place.call("echo", "again").await.unwrap(), "echo: again");
    assert_eq!(
        place.lives(),
        2,
        "the call that was in flight was not made again"
    );
}

#[tokio::test]
async fn what_a_server_gets_wrong_is_an_answer() {
    let place = Place::new(McpClient::default(), "good");
    assert_eq!(place.call("echo", "here").await.unwrap(), "echo: here");
    for (tool, text, expected) in [
        ("wrong_json", "", None),
        ("wrong_id", "", None),
        ("strange", "", Some(Ok("\"content\":\"no list\""))),
        ("fails", "", Some(Err("it does not want to (code -32000)"))),
        ("junk", "2000", Some(Ok("junk: 2000"))),
        ("none", "", Some(Ok("none: "))),
    ] {
        // What never comes is waited for a while.
        let patience = Duration::from_millis(if expected.is_none() { 300 } else { 10_000 });
        let answer = tokio::time::timeout(patience, place.call(tool, text)).await;
        match (answer, expected) {
            (Err(_), None) => {}
            (Ok(Ok(said)), Some(Ok(part))) => assert!(said.contains(part), "{tool}: {said}"),
            (Ok(Err(said)), Some(Err(part))) => assert!(said.contains(part), "{tool}: {said}"),
            (answer, _) => panic!("{tool}: {answer:?}"),
        }
    }
    assert_eq!(place.call("echo", "still").await.unwrap(), "echo: still");
    assert_eq!(place.lives(), 1, "none of it ends the session");
}

#[tokio::test]
async fn a_long_answer_comes_whole_and_one_that_is_too_long_is_an_error_of_its_call() {
    let place = Place::new(McpClient::default(), "good");
    assert_eq!(
        place.call("huge", "20000000").await.unwrap().len(),
        20_000_000
    );
    let place = Place::new(McpClient::default().max_message_bytes(1 << 20), "good");
    let error = place.call("huge", "20000000").await.unwrap_err();
    assert!(error.contains("longer than 1048576 bytes"), "{error}");
    assert_eq!(place.call("echo", "still").await.unwrap(), "echo: still");
    assert_eq!(place.lives(), 1);
}

#[tokio::test]
async fn a_call_that_is_given_up_is_cancelled_at_the_server() {
    let place = Place::new(McpClient::default(), "good");
    assert_eq!(place.call("echo", "here").await.unwrap(), "echo: here");
    let given_up = tokio::time::timeout(Duration::from_millis(50), place.call("never", "")).await;
    assert!(given_up.is_err());
    assert_eq!(
        place.call("cancelled", "").await.unwrap(),
        "1 cancelled: the call was given up"
    );
}

#[tokio::test]
async fn a_server_that_asks_or_tells_without_end_is_left_with_an_error_that_says_so() {
    for (said, expected) in [
        ("ping", "asked without reading its answers"),
        ("roots", "asked without reading its answers"),
        ("sampling", "asked without reading its answers"),
        ("unknown", "asked without reading its answers"),
        ("changed", "messages that nobody asked for"),
        ("log", "messages that nobody asked for"),
        ("cancelled", "messages that nobody asked for"),
        ("progress", "messages that nobody asked for"),
    ] {
        let place = Place::new(McpClient::default(), "good");
        let error = place.call("endless", said).await.unwrap_err();
        assert!(
            error.contains(expected) && error.contains("Effect unknown"),
            "{said}: {error}"
        );
        assert_eq!(place.call("echo", "again").await.unwrap(), "echo: again");
        assert_eq!(place.lives(), 2);
    }
}

#[tokio::test]
async fn a_server_that_hangs_is_left_and_begun_anew() {
    let place = Place::new(McpClient::default(), "good");
    let given_up = tokio::time::timeout(Duration::from_secs(2), place.call("stuck", "")).await;
    assert!(given_up.is_err());
    assert_eq!(place.call("echo", "again").await.unwrap(), "echo: again");
    assert_eq!(place.lives(), 2);
}

#[tokio::test]
async fn a_server_that_is_busy_with_a_long_call_stays_for_it() {
    let place = Place::new(McpClient::default(), "good");
    assert_eq!(place.call("echo", "here").await.unwrap(), "echo: here");
    let others = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let given_up =
            tokio::time::timeout(Duration::from_millis(100), place.call("echo", "first")).await;
        assert!(given_up.is_err());
        place.call("echo", "second").await
    };
    // Longer than a sign of life is waited for.
    let (long, second) = tokio::join!(place.call("busy", "6"), others);
    assert_eq!(
        (long.as_deref(), second.as_deref()),
        (Ok("busy: 6"), Ok("echo: second"))
    );
    assert_eq!(place.lives(), 1);
}

#[tokio::test]
async fn a_ping_is_answered_and_everything_else_refused() {
    let place = Place::new(McpClient::default(), "good");
    let heard = place.call("ask", "").await.unwrap();
    let expected = r#"{"elicitation/create": -32601, "ping": "answered", "roots/list": -32601, "sampling/createMessage": -32601}"#;
    assert_eq!(heard, expected);
}

#[tokio::test]
async fn a_server_that_knows_no_handshake_is_reached_without_one() {
    let place = Place::new(McpClient::default(), "modern");
    assert_eq!(place.offers().await.unwrap().len(), 17);
    assert_eq!(place.call("echo", "young").await.unwrap(), "echo: young");
}

#[tokio::test]
async fn a_list_that_changed_is_told_to_whoever_asks_next() {
    let place = Place::new(McpClient::default(), "good");
    let before = place.offers().await.unwrap().len();
    place.call("change", "new").await.unwrap();
    let offers = place.offers().await.unwrap();
    assert_eq!(offers.len(), before + 1);
    assert!(offers.iter().any(|offer| &*offer.name == "new"));
    // A tool of the server's own goes before ours.
    place.call("change", "read_resource").await.unwrap();
    assert_eq!(
        place.call("read_resource", "mine").await.unwrap(),
        "read_resource: mine"
    );
}

#[tokio::test]
async fn a_server_that_does_not_begin_is_an_error_with_its_cause() {
    let impatient = |mode| {
        Place::changed(McpClient::default(), mode, |server| {
            server.connect_ms = 1_000
        })
    };
    for (mode, expected) in [
        ("mute", "not ready within 1000 ms"),
        ("exit", "ended or closed its connection before it was ready"),
        ("refuses", "the API key is missing"),
        ("flood", "the server wrote much that is no message"),
    ] {
        let error = impatient(mode).offers().await.unwrap_err();
        assert!(
            error.contains(expected) || (mode == "flood" && error.contains("not ready")),
            "{mode}: {error}"
        );
    }
    let place = Place::new(McpClient::default(), "exit");
    let error = place.call("echo", "").await.unwrap_err();
    assert!(error.contains("The call was not made"), "{error}");
    let _ = place.call("echo", "").await.unwrap_err();
    assert_eq!(place.lives(), 2, "it is tried again with each call");
}

#[tokio::test]
async fn what_is_not_permitted_is_not_begun_and_no_secret_is_shown() {
    let place = Place::changed(McpClient::default(), "good", |server| {
        let Transport::Stdio(command) = &mut server.transport else {
            panic!()
        };
        command
            .env
            .push(("KEY".into(), ServerValue::new("s3cret-${PRIVATE_KEY}")));
    });
    let error = place.offers().await.unwrap_err();
    assert!(
        error.contains("--allow-env=PRIVATE_KEY") && !error.contains("s3cret"),
        "{error}"
    );
    assert!(!format!("{:?}", place.client).contains("s3cret"));
    let place = Place {
        host: std::sync::Arc::new(LocalHost::new(Permissions::none(), ".").unwrap()),
        ..Place::new(McpClient::default(), "good")
    };
    let error = place.offers().await.unwrap_err();
    assert!(error.contains("--allow-run=python3"), "{error}");
    assert_eq!(place.lives(), 0);
}

#[tokio::test]
async fn one_session_serves_all_who_ask_at_once_and_ends_with_the_client() {
    let place = Place::new(McpClient::default(), "good");
    let asked = (0..20).map(|number| {
        let (place, text) = (&place, number.to_string());
        async move { place.call("echo", &text).await.unwrap() }
    });
    let said = futures_util::future::join_all(asked).await;
    assert!(
        said.iter()
            .enumerate()
            .all(|(number, said)| *said == format!("echo: {number}")),
        "{said:?}"
    );
    assert_eq!(place.lives(), 1);
    within(place.client.close()).await;
    let error = place.call("echo", "").await.unwrap_err();
    assert!(error.contains("shutting down"), "{error}");
    assert_eq!(place.lives(), 1);
}
