//! Compares what we send with what was recorded: a client of ours asks a server that has the
//! recorded reply, and the request that arrives there is laid beside the recorded one.

use std::collections::BTreeMap;

use dormouse_actors::ports::Model;
use dormouse_models::wire::{Client, Codec, Delivery, Version};
use dormouse_proto::model::{ModelErrorKind, TokenCount};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::asks::Taken;
use crate::check::Recorded;
use crate::reader::{Answer, Interaction};

/// Headers that belong to a connection or to the client that was recorded.
const OF_THE_CLIENT: [&str; 8] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-length",
    "cookie",
    "host",
    "user-agent",
    "x-goog-api-client",
];

/// What a comparison found.
pub(crate) struct Compared {
    /// Whether a body of ours could be compared, or why there is none.
    pub(crate) body: Result<(), String>,
    /// What differs.
    pub(crate) differences: Vec<String>,
}

struct Arrived {
    target: String,
    headers: BTreeMap<String, String>,
    body: Value,
}

/// Sends what `taken` says, or else a request of one word, to a server with the recorded reply.
pub(crate) async fn compare<R: Recorded>(
    interaction: &Interaction,
    taken: Taken,
    without: impl Fn(Value) -> Value,
) -> Compared {
    let counts = R::counts(interaction);
    let delivery = match &interaction.answer {
        Answer::Events(_) => Delivery::Stream,
        _ if interaction.asked["stream"] == true => Delivery::Stream,
        _ => Delivery::Whole,
    };
    let (request, body) = match taken {
        Ok(request) => (request, Ok(())),
        Err(why) => {
            let word = json!({"model": R::model(interaction)});
            let request = R::take(&word, &R::model(interaction)).expect("it has nothing else");
            (request, Err(why))
        }
    };
    let (address, arrived) = serve(interaction).await;
    let mut builder = Client::<R::Codec>::builder()
        .base_url(format!("http://{address}{}", R::prefix(&interaction.path)))
        .api_key("sk-test")
        .delivery(delivery);
    let recorded_headers = interaction.headers.iter();
    let own = recorded_headers.filter(|(name, _)| !OF_THE_CLIENT.contains(&name.as_str()));
    for (name, value) in own.clone().filter(|(name, _)| *name != "content-type") {
        builder = builder.header(name, value);
    }
    let model = builder.build().expect("it is an address");
    let mut differences = Vec::new();
    if counts {
        let counted = model.count_tokens(&request).await;
        if !matches!(counted, Ok(TokenCount::Counted(_))) {
            differences.push(format!("counted {counted:?}"));
        }
    } else if let Err(error) = model.call(request, &|_| ()).await {
        // What a failure says is looked at where it is decoded.
        if interaction.status == 200 || error.kind == ModelErrorKind::Transport {
            differences.push(format!("the reply: {error}"));
        }
    }
    // Nothing arrives if the client refuses to send.
    if !differences.is_empty() {
        arrived.abort();
        return Compared { body, differences };
    }
    let arrived = arrived.await.expect("the server does not panic");
    let expected = [&interaction.path, R::query(&interaction.query)].concat();
    if arrived.target != expected {
        differences.push(format!("the address {} is not {expected}", arrived.target));
    }
    let default = default_address::<R::Codec>();
    if interaction.host == default.0 && R::prefix(&interaction.path) != default.1 {
        differences.push(format!("by itself it asks {}{}", default.0, default.1));
    }
    for (name, value) in own {
        let ours = arrived.headers.get(name);
        if ours != Some(value) {
            differences.push(format!("the header {name} is {ours:?} and not {value}"));
        }
    }
    let service = R::Codec::SERVICE;
    let known = service.headers.iter().map(|(name, _)| *name);
    let known: Vec<&str> = known.chain([service.key_header]).collect();
    for name in arrived.headers.keys() {
        let is_recorded = interaction.headers.contains_key(name);
        let is_known = OF_THE_CLIENT.contains(&name.as_str()) || known.contains(&name.as_str());
        if !is_recorded && !is_known {
            differences.push(format!("the header {name} is not known"));
        }
    }
    if body.is_ok() {
        let (ours, theirs) = (without(arrived.body), without(interaction.asked.clone()));
        differences.extend(difference("", &ours, &theirs));
    }
    Compared { body, differences }
}

/// The host that a format asks by itself, and the path in front of its own paths.
fn default_address<C: Codec>() -> (String, String) {
    let url = C::SERVICE.base_url;
    let address = url.split_once("://").map_or(url, |(_, rest)| rest);
    let (Version::Always(version) | Version::IfNoPath(version)) = C::SERVICE.version;
    (address.to_owned(), version.to_owned())
}

/// Serves the recorded reply once.
async fn serve(interaction: &Interaction) -> (String, tokio::task::JoinHandle<Arrived>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (kind, body) = match &interaction.answer {
        Answer::Whole(body) => ("application/json", body.to_string()),
        Answer::Events(events) => ("text/event-stream", events.clone()),
        Answer::Nothing => ("text/plain", String::new()),
    };
    let status = interaction.status;
    let answer = format!(
        "HTTP/1.1 {status} Recorded\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n{body}"
    );
    let served = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut bytes = Vec::new();
        let arrived = loop {
            assert_ne!(socket.read_buf(&mut bytes).await.unwrap(), 0);
            if let Some(arrived) = parse(&String::from_utf8_lossy(&bytes)) {
                break arrived;
            }
        };
        // The client may have what it needs before the end.
        let _ = socket.write_all(answer.as_bytes()).await;
        arrived
    });
    (address, served)
}

/// A request, once it is complete.
fn parse(text: &str) -> Option<Arrived> {
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let target = lines.next()?.split(' ').nth(1)?.to_owned();
    let headers: BTreeMap<_, _> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let length: usize = headers.get("content-length")?.parse().ok()?;
    (body.len() >= length).then(|| Arrived {
        target,
        headers,
        body: serde_json::from_str(body).expect("we send JSON"),
    })
}

/// The first difference of two values, with the path that leads to it.
pub(crate) fn difference(path: &str, ours: &Value, theirs: &Value) -> Option<String> {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            let names = a
                .keys()
                .chain(b.keys().filter(|name| !a.contains_key(*name)));
            let null = Value::Null;
            names
                .filter_map(|name| {
                    let (a, b) = (a.get(name).unwrap_or(&null), b.get(name).unwrap_or(&null));
                    difference(&format!("{path}.{name}"), a, b)
                })
                .next()
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let mut pairs = a.iter().zip(b).zip(0..);
            pairs.find_map(|((a, b), n)| difference(&format!("{path}[{n}]"), a, b))
        }
        (Value::Number(a), Value::Number(b)) if a.as_f64() == b.as_f64() => None,
        _ if ours == theirs => None,
        _ => {
            let cut = |value: &Value| value.to_string().chars().take(300).collect::<String>();
            Some(format!(
                "body{path}: ours {}, theirs {}",
                cut(ours),
                cut(theirs)
            ))
        }
    }
}

/// Fields whose content is not the format's, so that it keeps its spelling.
const FOREIGN: [&str; 4] = [
    "args",
    "response",
    "parametersJsonSchema",
    "parameters_json_schema",
];

/// A value with the names of its fields in camel case, which Google's servers take either way.
pub(crate) fn camel_case(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let renamed = fields.into_iter().map(|(name, value)| {
                let value = match FOREIGN.contains(&name.as_str()) {
                    true => value,
                    false => camel_case(value),
                };
                let mut parts = name.split('_').filter(|part| !part.is_empty());
                let first = parts.next().unwrap_or(&name).to_owned();
                let name = parts.fold(first, |name, part| {
                    let (head, tail) = part.split_at(1);
                    name + &head.to_uppercase() + tail
                });
                (name, value)
            });
            Value::Object(renamed.collect::<Map<_, _>>())
        }
        Value::Array(values) => values.into_iter().map(camel_case).collect(),
        leaf => leaf,
    }
}

/// Applies `change` to every object in a value, the outer ones last.
pub(crate) fn each_object(value: &mut Value, change: &dyn Fn(&mut Map<String, Value>)) {
    match value {
        Value::Object(fields) => {
            fields
                .values_mut()
                .for_each(|value| each_object(value, change));
            change(fields);
        }
        Value::Array(values) => values
            .iter_mut()
            .for_each(|value| each_object(value, change)),
        _ => {}
    }
}
