//! What holds for every format.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use dormouse_models::wire::{Codec, Completeness, Decoder, Delivery, Purpose, encode};
use dormouse_proto::id::Pid;
use dormouse_proto::message::{Block, Message, Role, text_of};
use dormouse_proto::model::{Delta, ModelErrorKind, Reply, Request};
use dormouse_proto::tool::ToolSpec;
use futures_util::FutureExt;
use serde_json::{Value, json};

use crate::asks::Taken;
use crate::compare::compare;
use crate::counts::Counts;
use crate::failures::refused;
use crate::reader::{self, Answer, Interaction};
use crate::shape::shapes;
use crate::skip::skip;

/// What a format's recordings look like, seen from outside.
pub(crate) trait Recorded {
    type Codec: Codec;

    /// Whether an interaction is of this format at all.
    fn is_of(interaction: &Interaction) -> bool;
    /// Why it is not looked at.
    fn out_of_scope(interaction: &Interaction) -> Option<String>;
    /// Whether it counts tokens.
    fn counts(interaction: &Interaction) -> bool;
    /// The parts of a whole reply that go back, as they came.
    fn parts(whole: &Value) -> Vec<Value>;
    /// The parts of a request's last message of the model.
    fn sent(request: &Value) -> Vec<Value>;
    /// The whole form of a streamed reply, put together by other means than the decoder's: on JSON
    /// values, line by line.
    fn rebuilt(events: &[Value]) -> Value;
    /// A request without what came from the model and goes back.
    fn ours(request: Value) -> Value;
    /// The model that a request names.
    fn model(interaction: &Interaction) -> String {
        let model = interaction.asked["model"].as_str();
        model.unwrap_or_default().to_owned()
    }
    /// A request of ours that says what a recorded one says.
    fn take(body: &Value, model: &str) -> Taken;
    /// The part of a path that belongs to the server, not to the format.
    fn prefix(path: &str) -> String;
    /// The query that we send where this one was recorded.
    fn query(recorded: &str) -> &str {
        recorded
    }
    /// A body without what may be written in several ways that mean the same.
    fn canonical(body: Value) -> Value;
    /// Whether a cloud serves the model, in a form of its own.
    fn is_cloud(_interaction: &Interaction) -> bool {
        false
    }
    /// The events in which a server would stream this reply, where too few streams are recorded.
    fn events_of(_whole: &Value) -> Option<String> {
        None
    }
    /// Shapes that we send and that nothing recorded has, and why they are right.
    const BEYOND: &'static [(&'static str, &'static str)];
    /// Why the bodies of some recorded requests cannot be compared, and how many there are at most.
    const NOT_COMPARED: &'static [(&'static str, usize)];
}

/// Requests to clouds are compared where their codecs are (`clouds`).
pub(crate) const CLOUD: &str = "a cloud: its codec is behind a feature";
pub(crate) const NO_BODY: &str = "no body is recorded";

/// Looks at every interaction of a format, and goes on after a failure: all of them are reported at
/// the end.
pub(crate) async fn check<R: Recorded>() {
    let name = R::Codec::FORMAT;
    let Some(corpus) = reader::corpus() else {
        let why = format!("{name}: there are no recordings; DORMOUSE_SHARED names their folder");
        return skip("recordings", &why);
    };
    for file in &corpus.foreign {
        eprintln!("{name}: no recording: {file}");
    }
    let all = corpus.interactions.len();
    let interactions: Vec<_> = corpus.interactions.into_iter().filter(R::is_of).collect();
    if interactions.is_empty() {
        let why = format!("{name}: none of {all} recorded interactions is of this format");
        return skip("recordings", &why);
    }
    let (mut counts, mut wrong) = (Counts::default(), Vec::new());
    let mut accepted = BTreeSet::new();
    for interaction in interactions
        .iter()
        .filter(|interaction| interaction.status == 200)
    {
        accepted.extend(shapes(&interaction.asked));
    }
    accepted.extend(R::BEYOND.iter().map(|(shape, _)| (*shape).to_owned()));
    let mut beyond = BTreeSet::new();
    for interaction in &interactions {
        let looked = AssertUnwindSafe(async {
            let reply = look::<R>(interaction, &mut counts).await;
            let differences = compare_request::<R>(interaction, &mut counts).await;
            let shapes = reply.map(|reply| shapes_of::<R>(&reply, &accepted, &mut counts));
            (differences, shapes.unwrap_or_default())
        });
        match looked.catch_unwind().await {
            Ok((differences, shapes)) => {
                let name = &interaction.name;
                wrong.extend(
                    differences
                        .into_iter()
                        .map(|what| format!("{name}: {what}")),
                );
                beyond.extend(shapes);
            }
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                wrong.push(text.unwrap_or_else(|| format!("{}: it panicked", interaction.name)));
            }
        }
    }
    wrong.extend(
        beyond
            .iter()
            .map(|field| format!("nothing recorded has our field {field}")),
    );
    counts.print(name, interactions.len(), wrong.len());
    assert!(wrong.is_empty(), "{name}: {wrong:#?}");
    assert!(
        counts.whole > 0,
        "{name}: no reply in one piece is recorded"
    );
    assert!(counts.bodies > 0, "{name}: no body was compared");
    for (why, times) in &counts.without_body {
        let known = R::NOT_COMPARED.iter().find(|(known, _)| known == why);
        let most = known.map_or(0, |(_, most)| *most);
        assert!(*times <= most, "{name}: {times} bodies not compared: {why}");
    }
}

/// Compares our request with a recorded one that was accepted.
async fn compare_request<R: Recorded>(
    interaction: &Interaction,
    counts: &mut Counts,
) -> Vec<String> {
    if R::out_of_scope(interaction).is_some() {
        return Vec::new();
    }
    if R::is_cloud(interaction) {
        let why = CLOUD.to_owned();
        *counts.without_body.entry(why).or_default() += 1;
        return Vec::new();
    }
    if !interaction.asked.is_object() {
        let why = NO_BODY.to_owned();
        *counts.without_body.entry(why).or_default() += 1;
        return Vec::new();
    }
    let taken = R::take(&interaction.asked, &R::model(interaction));
    let compared = compare::<R>(interaction, taken, R::canonical).await;
    counts.addresses += 1;
    match compared.body {
        Ok(()) => counts.bodies += 1,
        Err(why) => *counts.without_body.entry(why).or_default() += 1,
    }
    compared.differences
}

/// The reply of an interaction, if it holds one.
async fn look<R: Recorded>(interaction: &Interaction, counts: &mut Counts) -> Option<Reply> {
    let name = &interaction.name;
    if let Some(why) = R::out_of_scope(interaction) {
        counts.out_of_scope.push(format!("{name}: {why}"));
        return None;
    }
    let codec = R::Codec::default();
    match &interaction.answer {
        Answer::Whole(body) if interaction.status != 200 => {
            refused::<R::Codec>(name, interaction.status, body).await;
            counts.failures += 1;
            None
        }
        Answer::Whole(body) if R::counts(interaction) => {
            let count = codec.decode_count(&body.to_string());
            assert!(count.is_some_and(|count| count > 0), "{name}: {body}");
            counts.counted += 1;
            None
        }
        Answer::Whole(body) => {
            let reply = codec
                .decode(&body.to_string())
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            goes_back::<R>(name, &reply, &R::parts(body));
            if let Some(events) = R::events_of(body) {
                let streamed = streamed::<R>(name, &events).await;
                assert_eq!(
                    understood(&streamed),
                    understood(&reply),
                    "{name} as a stream"
                );
                counts.cuts += cut::<R>(name, &events, &streamed).await;
                counts.made += 1;
            }
            counts.whole += 1;
            counts.blocks += reply.blocks.len();
            Some(reply)
        }
        Answer::Events(events) => {
            let reply = streamed::<R>(name, events).await;
            counts.cuts += cut::<R>(name, events, &reply).await;
            let whole = R::rebuilt(&reader::lines(events));
            let expected = codec
                .decode(&whole.to_string())
                .unwrap_or_else(|error| panic!("{name}: {error} in {whole}"));
            assert_eq!(understood(&reply), understood(&expected), "{name}");
            goes_back::<R>(name, &reply, &R::parts(&whole));
            counts.streamed += 1;
            counts.blocks += reply.blocks.len();
            Some(reply)
        }
        Answer::Nothing => panic!("{name}: no answer is recorded"),
    }
}

async fn streamed<R: Recorded>(name: &str, events: &str) -> Reply {
    let deltas = RefCell::new(Vec::new());
    let mut decoder = <R::Codec as Codec>::Decoder::default();
    for data in reader::datas(events).await {
        decoder
            .feed(&data, &|delta| deltas.borrow_mut().push(delta))
            .unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let reply = decoder
        .finish()
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    let told = deltas
        .borrow()
        .iter()
        .filter_map(|d| {
            if let Delta::Text(t) = d {
                Some(t.as_str())
            } else {
                None
            }
        })
        .collect::<String>();
    let said = text_of(&reply.blocks);
    assert!(
        said.is_empty() == told.is_empty() && said.ends_with(&told),
        "{name}: what was told is what came: {told}"
    );
    reply
}

/// A stream that ends at any event is cut, unless all that was said had come. How many places that
/// are.
async fn cut<R: Recorded>(name: &str, events: &str, reply: &Reply) -> usize {
    let datas = reader::datas(events).await;
    for upto in 0..datas.len() {
        let mut decoder = <R::Codec as Codec>::Decoder::default();
        for data in &datas[..upto] {
            decoder
                .feed(data, &|_| ())
                .unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        let completeness = decoder.completeness();
        match decoder.finish() {
            Ok(early) => {
                assert_ne!(
                    completeness,
                    Completeness::Open,
                    "{name}: a stream of {upto} events is no whole one"
                );
                assert_eq!(
                    (early.blocks, early.stop),
                    (reply.blocks.clone(), reply.stop),
                    "{name}: after {upto} events"
                );
            }
            Err(error) => assert_eq!(
                error.kind,
                ModelErrorKind::CutStream,
                "{name}: after {upto} events: {error}"
            ),
        }
    }
    datas.len()
}

/// Sends the reply back as the next turn of a conversation and compares what goes over the wire
/// with what came.
fn goes_back<R: Recorded>(name: &str, reply: &Reply, came: &[Value]) {
    let said = vec![Message {
        role: Role::Assistant,
        blocks: reply.blocks.clone(),
    }];
    let sent = R::sent(&body::<R>(&request(said, &[]), Delivery::Whole));
    assert_eq!(sent, came, "{name}");
}

fn understood(reply: &Reply) -> (Vec<String>, String) {
    let parsed = |json: &str| serde_json::from_str::<Value>(json).unwrap();
    let words = |block: &Block| match block {
        Block::Text { text, .. } => format!("text {text}"),
        Block::ToolUse { id, name, args, .. } => format!("use {id} {name} {}", parsed(args)),
        Block::Opaque(raw) => format!("opaque {}", parsed(&raw.json)),
        Block::ToolResult { .. } | Block::Media { .. } => "result".to_owned(),
    };
    (
        reply.blocks.iter().map(words).collect(),
        format!("{:?} {:?}", reply.stop, reply.usage),
    )
}

/// What we would send next has no field, and no type, that was never accepted.
fn shapes_of<R: Recorded>(
    reply: &Reply,
    accepted: &BTreeSet<String>,
    counts: &mut Counts,
) -> BTreeSet<String> {
    let results = reply.blocks.iter().filter_map(|block| match block {
        Block::ToolUse { id, .. } => Some(Block::ToolResult {
            id: id.clone(),
            text: "so".into(),
            is_error: false,
        }),
        _ => None,
    });
    let said = vec![
        Message::user("go"),
        Message {
            role: Role::Assistant,
            blocks: reply.blocks.clone(),
        },
        Message {
            role: Role::User,
            blocks: results.chain([Block::text("and")]).collect(),
        },
    ];
    let request = request(said, &["look", "read"]);
    let sent = [Delivery::Stream, Delivery::Whole]
        .map(|delivery| shapes(&R::ours(body::<R>(&request, delivery))));
    let sent: BTreeSet<_> = sent.into_iter().flatten().collect();
    counts.shapes += sent.len();
    sent.difference(accepted).cloned().collect()
}

fn body<R: Recorded>(request: &Request, delivery: Delivery) -> Value {
    let body = encode(
        &R::Codec::default(),
        request,
        Purpose::Reply(delivery),
        None,
    )
    .unwrap();
    serde_json::from_str(&body).unwrap()
}

pub(crate) fn request(messages: Vec<Message>, tools: &[&str]) -> Request {
    let schema =
        json!({"type": "object", "properties": {}, "additionalProperties": false}).to_string();
    let tool = |name: &&str| ToolSpec {
        name: (*name).into(),
        description: "d".into(),
        schema: schema.clone().into(),
    };
    Request {
        pid: Pid(1),
        program: "p".into(),
        model: "m".into(),
        system: if tools.is_empty() {
            "".into()
        } else {
            "be brief".into()
        },
        tools: tools.iter().map(tool).collect(),
        messages: messages.into_iter().map(Arc::new).collect(),
        parameters: Arc::default(),
        forked_at: Vec::new(),
        provider_tools: Default::default(),
        media: Default::default(),
    }
}
