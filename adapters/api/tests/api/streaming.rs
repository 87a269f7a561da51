//! The stream of events: nothing that is durable is lost, and what is lost is told.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use dormouse::Event;
use dormouse::id::{FactNumber, Pid};
use futures_util::StreamExt;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use sse_stream::SseStream;
use tokio::net::TcpSocket;

use crate::support::*;

type Sse = futures_util::stream::BoxStream<'static, sse_stream::Sse>;

/// An open stream of events, with the id that a browser would remember.
struct Reader {
    stream: Sse,
    last_id: Option<String>,
}

impl Reader {
    async fn open(world: &World, query: &str, last_id: Option<&str>) -> Self {
        let url = format!("http://{}/v1/events{query}", world.address);
        let mut request = world.client.get(url).bearer_auth(LOOK);
        if let Some(id) = last_id {
            request = request.header("Last-Event-ID", id);
        }
        let response = within(request.send()).await.unwrap();
        assert_eq!(response.status(), 200, "{:?}", response.text().await);
        let kind = response.headers()["content-type"]
            .to_str()
            .unwrap()
            .to_owned();
        assert_eq!(kind, "text/event-stream");
        let stream = SseStream::from_bytes_stream(response.bytes_stream());
        Self::new(stream.map(Result::unwrap).boxed(), last_id).await
    }

    async fn new(stream: Sse, last_id: Option<&str>) -> Self {
        let mut reader = Self {
            stream,
            last_id: last_id.map(str::to_owned),
        };
        let (_, opened) = reader.next().await.unwrap();
        assert_eq!(opened["event"], "opened");
        reader
    }

    /// A client whose connection holds little that was not read yet.
    async fn open_narrow(world: &World) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let stream = socket
            .connect(world.address.parse().unwrap())
            .await
            .unwrap();
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.unwrap();
        tokio::spawn(connection);
        let request = http::Request::get("/v1/events")
            .header("host", &world.address)
            .header("authorization", format!("Bearer {LOOK}"))
            .body(String::new())
            .unwrap();
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), 200);
        let stream = SseStream::new(response.into_body());
        // The connection lives as long as its stream is read.
        let stream = stream.map(move |event| {
            let _sender = &sender;
            event.unwrap()
        });
        Self::new(stream.boxed(), None).await
    }

    /// The id and the data of the next event.
    async fn next(&mut self) -> Option<(Option<String>, Value)> {
        loop {
            let event = within(self.stream.next()).await?;
            if event.id.is_some() {
                self.last_id.clone_from(&event.id);
            }
            // Comments keep the connection open.
            let Some(data) = event.data else { continue };
            let data: Value = serde_json::from_str(&data).unwrap();
            assert_eq!(event.event.as_deref(), data["event"].as_str());
            return Some((event.id, data));
        }
    }

    /// The facts up to and including this one.
    async fn facts_until(&mut self, pid: u64, number: u64) -> Vec<(u64, u64)> {
        let mut facts = Vec::new();
        loop {
            let (id, event) = self.next().await.unwrap();
            if event["event"] != "fact" {
                assert_eq!(id, None, "{event}");
                continue;
            }
            let fact = |key: &str| event[key].as_u64().unwrap();
            let (commit, found) = (fact("commit"), (fact("pid"), fact("number")));
            assert_eq!(id, Some(format!("{commit}.{}.{}", found.0, found.1)));
            facts.push(found);
            if found == (pid, number) {
                return facts;
            }
        }
    }
}

/// All facts of these processes, from the journals.
async fn journals(world: &World) -> BTreeSet<(u64, u64)> {
    let mut facts = BTreeSet::new();
    for info in world.kernel.processes().await.unwrap() {
        let pid = info.row.pid;
        let log = world.kernel.log(pid).await.unwrap();
        facts.extend(log.iter().map(|line| (pid.0, line.number.0)));
    }
    facts
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_sees_what_happens_in_the_order_in_which_it_becomes_durable() {
    let world = World::new().await;
    let mut reader = Reader::open(&world, "", None).await;
    let process = world.session("hello").await;
    let pid = process.pid().0;
    let mut words = Vec::new();
    let mut text = String::new();
    loop {
        let (_, event) = reader.next().await.unwrap();
        let word = match event["event"].as_str().unwrap() {
            "fact" => format!("{} {}", event["number"], event["fact"].as_str().unwrap()),
            "text" => {
                text += event["text"].as_str().unwrap();
                continue;
            }
            other => other.to_owned(),
        };
        assert_eq!(event["pid"], pid, "{event}");
        let is_last = word == "turn_ended";
        words.push(word);
        if is_last {
            break;
        }
    }
    assert_eq!(text, "You said: hello");
    assert_eq!(words[..2], ["0 born", "started"]);
    let numbers: Vec<u64> = words
        .iter()
        .filter_map(|word| word.split_once(' ')?.0.parse().ok())
        .collect();
    // What follows from a fact comes after it.
    assert_eq!(words.last().unwrap(), "turn_ended");
    assert_eq!(numbers, (0..=*numbers.last().unwrap()).collect::<Vec<_>>());
    assert_eq!(*numbers.last().unwrap(), process.view().unwrap().fact.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_connects_again_and_again_loses_no_fact_and_gets_none_twice() {
    let world = World::new().await;
    let mut reader = Reader::open(&world, "?text=false", None).await;
    let mut last_id = reader.last_id.clone();
    let mut seen = Vec::new();
    let mut tasks = Vec::new();
    for _ in 0..8 {
        tasks.push(world.task("many").await);
    }
    // Cut off in the middle of commits, after ever so many facts.
    for round in 0.. {
        for _ in 0..=(round * 7) % 23 {
            let Some(next) = tokio::time::timeout(Duration::from_secs(2), reader.next())
                .await
                .ok()
            else {
                break;
            };
            let (_, event) = next.unwrap();
            if event["event"] == "fact" {
                seen.push((
                    event["pid"].as_u64().unwrap(),
                    event["number"].as_u64().unwrap(),
                ));
                last_id.clone_from(&reader.last_id);
            }
        }
        let have_ended = tasks.iter().all(|task| task.exit().is_some());
        if have_ended && seen.len() >= journals(&world).await.len() {
            break;
        }
        drop(reader);
        reader = Reader::open(&world, "?text=false", last_id.as_deref()).await;
    }
    let expected = journals(&world).await;
    assert!(expected.len() > 8 * 40, "{}", expected.len());
    let distinct: BTreeSet<_> = seen.iter().copied().collect();
    assert_eq!(distinct, expected);
    assert_eq!(seen.len(), expected.len(), "none comes twice");
    // Of one process, facts come in their order.
    let mut last = BTreeMap::new();
    for (pid, number) in seen {
        assert!(last.insert(pid, number) < Some(number));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn facts_of_earlier_kernels_are_sent_as_well_and_of_a_store_at_rest() {
    let world = World::new().await;
    let first = world.session("hello").await.pid().0;
    let world = World::in_folder(world.close().await).await;
    let second = world.session("many").await;
    let expected = journals(&world).await;
    let last = (second.pid().0, second.view().unwrap().fact.0);
    // From the beginning, and from a point in the middle.
    let mut reader = Reader::open(&world, "", Some("0")).await;
    let all = reader.facts_until(last.0, last.1).await;
    assert_eq!(all.iter().copied().collect::<BTreeSet<_>>(), expected);
    assert_eq!(all[0], (first, 0));
    let mut reader = Reader::open(&world, "?after=0", None).await;
    let part = reader.facts_until(all[9].0, all[9].1).await;
    assert_eq!(part, all[..10]);
    let middle = reader.last_id.clone();
    let mut reader = Reader::open(&world, "", middle.as_deref()).await;
    assert_eq!(reader.facts_until(last.0, last.1).await, all[10..]);
    let only = format!("?pid={}", last.0);
    let mut reader = Reader::open(&world, &only, Some("0")).await;
    let of_one = reader.facts_until(last.0, last.1).await;
    assert_eq!(
        of_one,
        (0..=last.1)
            .map(|number| (last.0, number))
            .collect::<Vec<_>>()
    );

    let world = World::at_rest(world.close().await).await;
    let mut reader = Reader::open(&world, "", middle.as_deref()).await;
    let at_rest = reader.facts_until(last.0, last.1).await;
    assert_eq!(at_rest, all[10..]);
    // Nothing further happens, and the stream stays open.
    let nothing = tokio::time::timeout(Duration::from_millis(300), reader.next()).await;
    assert!(nothing.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_is_told_what_it_missed_and_misses_no_fact() {
    let world = World::new().await;
    let mut reader = Reader::open_narrow(&world).await;
    // Far more than all buffers in between hold: the reader has not begun to read.
    let mut tasks = Vec::new();
    for _ in 0..500 {
        tasks.push(world.task("many").await);
    }
    for task in &tasks {
        within(task.wait()).await.unwrap();
    }
    let expected = journals(&world).await;
    let (mut seen, mut missed) = (BTreeSet::new(), 0);
    // If the buffers held everything, nothing would be missed, and this would not end.
    while seen.len() < expected.len() || missed == 0 {
        let (_, event) = reader.next().await.unwrap();
        match event["event"].as_str().unwrap() {
            "fact" => {
                let fact = (
                    event["pid"].as_u64().unwrap(),
                    event["number"].as_u64().unwrap(),
                );
                assert!(seen.insert(fact), "{fact:?} comes once");
            }
            "lagged" => missed += event["missed"].as_u64().unwrap(),
            _ => {}
        }
    }
    assert_eq!(seen, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forged_position_is_refused() {
    let world = World::new().await;
    let process = world.session("hello").await;
    for id in [
        "x",
        "-1",
        "1.2",
        "1.2.3.4",
        "18446744073709551616",
        "0x10",
        "",
        "1 1",
        "1.1.1; DROP",
        "é",
    ] {
        let url = format!("http://{}/v1/events", world.address);
        let request = world
            .client
            .get(url)
            .bearer_auth(LOOK)
            .header("Last-Event-ID", id);
        let (status, kind, message) = error_of(world.send(request).await);
        assert_eq!((status, &*kind), (400, "invalid"), "{id:?}");
        assert!(message.contains("COMMIT.PID.FACT"), "{message}");
    }
    for beyond in ["18446744073709551615", "999999.1.1"] {
        let (status, _, message) = world.get_error(&format!("/v1/events?after={beyond}")).await;
        assert!(
            status == 400 && message.contains("another store"),
            "{message}"
        );
    }
    // A position that names no fact is one all the same: what comes after it is sent.
    let last = process.view().unwrap().fact.0;
    let mut reader = Reader::open(&world, "", Some("0.77.99")).await;
    let facts = reader.facts_until(process.pid().0, last).await;
    assert_eq!(facts.len() as u64, last + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn facts_that_were_collected_are_named() {
    let world = World::new().await;
    let process = world.session("many").await;
    let pid = process.pid();
    drop(process);
    let folder = world.close().await;
    // Another kernel makes snapshots, so that what is before them can be deleted.
    let store = dormouse::store::LogStore::open(store_path(&folder)).unwrap();
    let kernel = builder(dormouse::Kernel::open(store).snapshot_after_facts(5))
        .build()
        .await
        .unwrap();
    let process = kernel.resume(pid).await.unwrap();
    within(process.turn("many")).await.unwrap();
    process.checkpoint("kept").await.unwrap();
    let retention = dormouse::retention::Retention {
        history: dormouse::retention::HistoryRule::FromOldestCheckpoint,
        ..dormouse::retention::Retention::default()
    };
    let mode = dormouse::ports::SweepMode::Free;
    kernel.collect_garbage(retention, mode).await.unwrap();
    kernel.shutdown().await.unwrap();

    let world = World::in_folder(folder).await;
    let log = world.kernel.log(pid).await.unwrap();
    let first = log.first().unwrap().number;
    assert!(
        first > FactNumber(0),
        "nothing was deleted: the test shows nothing"
    );
    let mut reader = Reader::open(&world, "", Some("0")).await;
    let (id, collected) = reader.next().await.unwrap();
    assert_eq!((id, &collected["event"]), (None, &Value::from("collected")));
    assert_eq!(
        (&collected["pid"], &collected["first"]),
        (&pid.0.into(), &first.0.into())
    );
    let last = log.last().unwrap().number;
    let facts = reader.facts_until(pid.0, last.0).await;
    assert_eq!(facts.len() as u64, last.0 - first.0 + 1);
    let page = world.get(&format!("/v1/processes/{pid}/facts")).await;
    assert_eq!(page["first"], first.0);
    assert_eq!(page["facts"][0]["fact"], first.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_events_of_a_kernel_and_its_commits_tell_the_same_facts() {
    let world = World::new().await;
    let (mut events, mut commits) = (world.kernel.events(), world.kernel.commits().await.unwrap());
    world.session("many").await;
    world.session("fork").await;
    world.kernel.clone().shutdown().await.unwrap();
    let mut of_events = BTreeSet::new();
    while let Some(event) = events.next().await {
        if let Event::Fact { pid, number, .. } = event {
            of_events.insert((pid, number));
        }
    }
    let (mut of_commits, mut last) = (BTreeSet::new(), commits.after());
    while let Some(commit) = commits.next().await {
        let commit = commit.unwrap();
        assert!(commit.number() > last);
        last = commit.number();
        let lines = commit.lines();
        assert!(lines.is_sorted_by_key(|(pid, line)| (*pid, line.number)));
        assert!(lines.iter().all(|(_, line)| line.commit == commit.number()));
        of_commits.extend(lines.iter().map(|(pid, line)| (*pid, line.number)));
    }
    let births: BTreeSet<(Pid, FactNumber)> = of_commits.difference(&of_events).copied().collect();
    assert!(
        births.iter().all(|(_, number)| *number == FactNumber(0)),
        "{births:?}"
    );
    assert_eq!(births.len(), 4);
    assert!(of_events.is_subset(&of_commits));
}
