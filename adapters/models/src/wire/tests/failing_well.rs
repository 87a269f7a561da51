//! What errors say, and replies that are read although a server frames them carelessly, in every
//! format.

use super::*;

/// Streamed replies with the text `hé`, of which the first event with that text is a delta.
const CHAT: &str = concat!(
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hé\"}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
    "data: [DONE]\n\n",
);
const RESPONSES: &str = concat!(
    "data: {\"type\":\"response.output_item.added\",\"output_index\":0,\"item\":{\"type\":\
     \"message\",\"id\":\"m\",\"role\":\"assistant\",\"content\":[]}}\n\n",
    "data: {\"type\":\"response.output_text.delta\",\"output_index\":0,\"content_index\":0,\
     \"item_id\":\"m\",\"delta\":\"hé\"}\n\n",
    "data: {\"type\":\"response.output_item.done\",\"output_index\":0,\"item\":{\"type\":\
     \"message\",\"id\":\"m\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\
     \"text\":\"hé\"}]}}\n\n",
    "data: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"output\":[],\
     \"usage\":{}}}\n\n",
);
const GEMINI: &str = concat!(
    "data: {\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[{\"text\":\"hé\"}]}}]}\n\n",
    "data: {\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[]},\
     \"finishReason\":\"STOP\"}],\"usageMetadata\":{}}\n\n",
);

async fn call<C: Codec>(answer: Vec<u8>) -> Result<Reply, ModelError> {
    let (url, _served) = serve(answer, 7, Then::Close).await;
    let client = Client::<C>::builder().base_url(url).api_key("sk-canary");
    client.build().unwrap().call(request(), &|_| ()).await
}

async fn is_read<C: Codec>(answer: Vec<u8>, expected: &str) {
    let shown = String::from_utf8_lossy(&answer).into_owned();
    let reply = call::<C>(answer).await;
    let reply = reply.unwrap_or_else(|error| panic!("{}: {error} after {shown}", C::FORMAT));
    assert_eq!(text_of(&reply.blocks), expected, "{}: {shown}", C::FORMAT);
}

async fn careless_framing_is_read<C: Codec>(events: &str, split_pair: &str) {
    let bare = format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{events}");
    is_read::<C>(bare.into_bytes(), "hé").await;
    for kind in ["text/plain", "application/json", "text/event-stream"] {
        is_read::<C>(answer("200 OK", kind, events), "hé").await;
        is_read::<C>(answer("200 OK", kind, events.trim_end()), "hé").await;
        let crlf = events.replace('\n', "\r\n");
        is_read::<C>(answer("200 OK", kind, &crlf), "hé").await;
    }
    let stream = answer("200 OK", "text/event-stream", split_pair);
    is_read::<C>(stream, "h\u{1f600}").await;
}

#[tokio::test]
async fn a_paid_reply_is_read_however_carelessly_it_is_framed() {
    let halves = |event: &str| {
        let first = event.replace("hé", "h\\ud83d");
        let second = event.replace("hé", "\\ude00");
        format!("{first}\n\n{second}\n\n")
    };
    let split = |events: &str| {
        let event = events.split("\n\n").find(|event| event.contains("hé"));
        let event = event.expect("one event holds the text");
        events.replacen(&format!("{event}\n\n"), &halves(event), 1)
    };
    careless_framing_is_read::<Messages>(EVENTS, &split(EVENTS)).await;
    careless_framing_is_read::<Completions>(CHAT, &split(CHAT)).await;
    careless_framing_is_read::<GenerateContent>(GEMINI, &split(GEMINI)).await;
    // The finished item repeats the text, so it has to hold the whole character.
    let responses = split(RESPONSES).replace("\"text\":\"hé\"", "\"text\":\"h\\ud83d\\ude00\"");
    careless_framing_is_read::<Responses>(RESPONSES, &responses).await;
}

async fn error_says<C: Codec>(answer: Vec<u8>, kind: ModelErrorKind, expected: &[&str]) {
    let shown = String::from_utf8_lossy(&answer).into_owned();
    let (url, _served) = serve(answer, 100_000, Then::Close).await;
    let address = url.replace("://", "://user:sk-pass@");
    let client = Client::<C>::builder().base_url(address);
    let client = client.api_key("sk-canary").build().unwrap();
    let error = client.call(request(), &|_| ()).await.unwrap_err();
    assert_eq!(error.kind, kind, "{}: {error} after {shown}", C::FORMAT);
    let asked = format!("(POST {url}/");
    for part in expected.iter().chain([&asked.as_str()]) {
        assert!(error.message.contains(part), "{part:?} is not in {error}");
    }
    for secret in ["canary", "sk-pass", "user"] {
        assert!(!error.to_string().contains(secret), "{error}");
    }
}

async fn errors_say_what_was_asked_and_what_came<C: Codec>() {
    use ModelErrorKind as Kind;
    let ok = |kind: &str, body: &str| answer("200 OK", kind, body);
    let redirect = "308 Permanent Redirect\r\nlocation: https://u:sk-canary@other.example/v2?k=1";
    let cases: [(Vec<u8>, Kind, &[&str]); 8] = [
        (
            ok("text/html; charset=utf-8", "<html>\n<b>busy</b>"),
            Kind::Transport,
            &["a page", "status 200, text/html", "<b>busy</b>", "base URL"],
        ),
        (
            ok("application/json", " \n"),
            Kind::Transport,
            &[
                "without a reply",
                "status 200, application/json, an empty body",
            ],
        ),
        (
            b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nupstream error, key sk-canary".to_vec(),
            Kind::Malformed,
            &[
                "status 200, no content type",
                "upstream error",
                "`provider`",
            ],
        ),
        (
            ok("text/event-stream", "data: {oops}\n\n"),
            Kind::Malformed,
            &["text/event-stream", "data: {oops}", "`base_url`"],
        ),
        (
            ok("application/json", "{\"id\": \"x\", \"cho"),
            Kind::CutStream,
            &["application/json", "{\\\"id\\\": \\\"x\\\", \\\"cho"],
        ),
        (
            ok("text/event-stream", ": nothing follows\n\n"),
            Kind::CutStream,
            &["status 200, text/event-stream"],
        ),
        (
            answer(redirect, "text/plain", ""),
            Kind::InvalidRequest,
            &[
                "308",
                "redirects to https://other.example/v2.",
                "name it in `base_url`",
            ],
        ),
        (
            answer("404 Not Found", "text/html", "<h1>no such page</h1>"),
            Kind::InvalidRequest,
            &["status 404", "no such page"],
        ),
    ];
    for (answer, kind, expected) in cases {
        error_says::<C>(answer, kind, expected).await;
    }
}

#[tokio::test]
async fn errors_name_the_address_the_response_and_the_remedy_in_every_format() {
    errors_say_what_was_asked_and_what_came::<Messages>().await;
    errors_say_what_was_asked_and_what_came::<Completions>().await;
    errors_say_what_was_asked_and_what_came::<Responses>().await;
    errors_say_what_was_asked_and_what_came::<GenerateContent>().await;
}

/// What fails by chance has to be transient, since only that is asked again.
#[tokio::test]
async fn a_page_an_empty_body_and_a_cut_body_may_be_asked_again() {
    let cut = r#"{"type":"message","content":[{"type":"te"#;
    for body in ["<!doctype html><p>busy", "", "\n", cut] {
        let error = call::<Messages>(answer("200 OK", "application/json", body)).await;
        let error = error.unwrap_err();
        assert!(error.is_transient(), "{error} after {body:?}");
    }
    let error = call::<Messages>(answer("200 OK", "", "this is no reply")).await;
    assert!(!error.unwrap_err().is_transient());
}
