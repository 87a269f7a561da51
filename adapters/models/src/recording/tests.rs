//! Tests that recorded requests are served again, and that other requests fail with their first
//! differing byte.

use std::ops::Range;
use std::sync::Mutex;

use dormouse_actors::ports::Model;
use dormouse_kernel::export::MaskTarget;
use dormouse_proto::message::{Block, Message, Role};
use dormouse_proto::model::{StopReason, Usage};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::*;
use crate::scripted::testing::request;

struct Password;

impl Redact for Password {
    fn masks(&self, _: MaskTarget, bytes: &[u8]) -> Vec<Range<usize>> {
        let found = bytes.windows(7).position(|window| window == b"hunter2");
        found.map(|at| at..at + 7).into_iter().collect()
    }
}

/// A model whose calls end with these replies and errors, in order.
struct Ends(Mutex<Vec<Result<Reply, ModelError>>>);

impl Model for Ends {
    fn call<'a>(
        &'a self,
        _request: Request,
        _deltas: &'a (dyn Fn(dormouse_proto::model::Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Reply, ModelError>> {
        std::future::ready(self.0.lock().unwrap().remove(0)).boxed()
    }
}

fn says(text: &str) -> Result<Reply, ModelError> {
    let usage = Usage {
        input_tokens: 3,
        thinking_tokens: 2,
        ..Usage::default()
    };
    Ok(Reply {
        blocks: vec![Block::text(text)],
        stop: StopReason::EndTurn,
        usage,
    })
}

fn user(text: &str) -> Message {
    Message {
        role: Role::User,
        blocks: vec![Block::text(text)],
    }
}

async fn ask(model: &impl Model, messages: &[&str]) -> Result<Reply, ModelError> {
    model
        .call(
            request(messages.iter().map(|text| user(text)).collect()),
            &|_| {},
        )
        .await
}

/// Records these requests with these replies and errors.
async fn recorded(
    calls: Vec<(&[&str], Result<Reply, ModelError>)>,
    redact: Option<Password>,
) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.jsonl");
    let mut recorder = Recorder::create(&path).unwrap();
    if let Some(redact) = redact {
        recorder = recorder.redact(redact);
    }
    let (asked, ends): (Vec<_>, Vec<_>) = calls.into_iter().unzip();
    let model = recorder.model(Ends(Mutex::new(ends.clone())));
    for (messages, end) in asked.iter().zip(ends) {
        assert_eq!(ask(&model, messages).await, end, "it is passed on as it is");
    }
    assert_eq!(recorder.failure(), None);
    assert!(
        Recorder::create(&path).is_err(),
        "a recording is never written over"
    );
    std::fs::read_to_string(&path).unwrap()
}

#[tokio::test]
async fn a_replay_serves_every_reply_and_error_again() {
    let mut overloaded = ModelError::new(ModelErrorKind::Overloaded, "busy");
    overloaded.retry_after = Some(Duration::from_millis(7_000));
    let calls: Vec<(&[&str], _)> = vec![
        (&["hello"], Err(overloaded.clone())),
        (&["hello"], says("hi")),
        (&["hello", "hi", "and?"], says("nothing")),
    ];
    let text = recorded(calls, None).await;
    assert_eq!(
        text.matches("hello").count(),
        1,
        "a part is written once: {text}"
    );
    let cut = format!("{text}{{\"call\":{{\"req");
    for text in [&text, &cut] {
        let replayer = Replayer::parse(text).unwrap();
        assert_eq!(ask(&replayer, &["hello"]).await, Err(overloaded.clone()));
        assert_eq!(
            ask(&replayer, &["hello", "hi", "and?"]).await,
            says("nothing")
        );
        for _ in 0..3 {
            assert_eq!(
                ask(&replayer, &["hello"]).await,
                says("hi"),
                "the last one is given from then on"
            );
        }
    }
}

#[tokio::test]
async fn a_recording_that_is_cut_within_a_character_is_read() {
    let text = recorded(vec![(&["hello"], says("hi"))], None).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jsonl");
    let mut bytes = format!("{text}{{\"part\":\"é").into_bytes();
    bytes.pop();
    std::fs::write(&path, bytes).unwrap();
    let replayer = Replayer::load(&path).unwrap();
    assert_eq!(ask(&replayer, &["hello"]).await, says("hi"));
}

#[tokio::test]
async fn an_unrecorded_request_fails_with_the_first_differing_byte() {
    let text = recorded(
        vec![(&["one", "two"], says("a")), (&["one", "three"], says("b"))],
        None,
    )
    .await;
    let replayer = Replayer::parse(&text).unwrap();
    let error = ask(&replayer, &["one", "threw"]).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Unavailable);
    for part in ["call 2 is nearest", "of message 2:", "three\"", "threw\""] {
        assert!(error.message.contains(part), "{part}: {error}");
    }
    let parts = parts(&request(vec![user("one"), user("threw")]), None).unwrap();
    let at = parts.concat().find("threw").unwrap() + "thre".len();
    assert!(
        error.message.contains(&format!("differs at byte {at},")),
        "{at}: {error}"
    );
    let longer = ask(&replayer, &["one", "two", "more"]).await.unwrap_err();
    assert!(
        longer
            .message
            .contains("of message 3: recorded nothing, asked «"),
        "{longer}"
    );
    let mut other = request(vec![user("one"), user("two")]);
    other.system = "else".into();
    let error = replayer.call(other, &|_| {}).await.unwrap_err();
    assert!(
        error.message.contains("of the system prompt: recorded «"),
        "{error}"
    );
}

#[tokio::test]
async fn a_redacted_recording_holds_no_secret_and_can_be_replayed() {
    let text = recorded(
        vec![(&["my password is hunter2"], says("hunter2 it is"))],
        Some(Password),
    )
    .await;
    assert!(!text.contains("hunter2"), "{text}");
    assert!(
        ask(
            &Replayer::parse(&text).unwrap(),
            &["my password is hunter2"]
        )
        .await
        .is_err()
    );
    let replayer = Replayer::parse(&text).unwrap().redact(Password);
    assert_eq!(
        ask(&replayer, &["my password is hunter2"]).await,
        says("******* it is")
    );
}

#[test]
fn an_invalid_recording_is_refused_with_its_line() {
    let part = "{\"dormouse_recording\":1}\n{\"part\":1}\n";
    let cases = [
        (String::new(), "no recording"),
        ("{\"part\":1}\n".to_owned(), "no recording"),
        ("{\"dormouse_recording\":2}\n".to_owned(), "version 2"),
        (
            format!(
                "{part}{{\"call\":{{\"request\":[1],\"error\":{{\"kind\":\"x\",\"message\":\"\"}}}}}}\n"
            ),
            "line 3",
        ),
        (format!("{part}{{}}\n"), "line 3"),
        (format!("{part}nonsense\n{{\"part\":2}}\n"), "line 3"),
    ];
    for (text, why) in cases {
        let error = Replayer::parse(&text)
            .err()
            .unwrap_or_else(|| panic!("{text}"));
        assert!(error.to_string().contains(why), "{error}");
    }
}
