//! Everything that can be done, and what stops whom.

use dormouse::process::ExitStatus;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::*;

const PROGRAM: &str = "[model]\nname = \"scripted\"\nprovider = \"scripted\"\n[tools]\nenabled = [\"deploy\", \
                       \"ask_user\", \"hang\", \"echo\", \"read_fd\"]\nask = [\"deploy\"]\n";

async fn start(world: &World, input: &str, more: Value) -> u64 {
    let mut body = json!({ "program": "p.toml", "files": { "p.toml": PROGRAM } });
    if !input.is_empty() {
        body["input"] = json!({ "text": input });
    }
    body.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    world.post("/v1/processes", body).await["pid"]
        .as_u64()
        .unwrap()
}

async fn wait_for_status(world: &World, pid: u64, status: &str) -> Value {
    let path = format!("/v1/processes/{pid}");
    world
        .wait_for(&path, |process| process["status"] == status)
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_is_started_spoken_to_and_ended() {
    let world = World::new().await;
    let settings = json!({
        "session": true, "name": "helper", "labels": { "user": "anna" }, "priority": "high",
        "budget": { "input_tokens": 1000000, "cost": "2.50", "wall_time": "10m" },
    });
    let prices = world.post_error("/v1/processes", {
        let mut body = json!({ "program": "p", "files": { "p": PROGRAM } });
        body.as_object_mut()
            .unwrap()
            .extend(settings.as_object().unwrap().clone());
        body
    });
    // The scripted model has no price, so money cannot be limited.
    assert!(prices.await.2.contains("price"));
    let mut settings = settings;
    settings["budget"].as_object_mut().unwrap().remove("cost");
    let pid = start(&world, "", settings).await;
    let process = wait_for_status(&world, pid, "idle").await;
    assert_eq!(process["name"], "helper");
    assert_eq!(process["labels"], json!(["user=anna"]));
    assert_eq!(process["budget"]["input_tokens"]["limit"], "1000000");
    assert_eq!(process["budget"]["wall_time"]["limit"], "600s");

    let input = json!({ "text": "hello", "parts": [
        { "source": "file:a.txt", "text": "from a file" },
        { "source": "file:long.txt", "text": "x".repeat(20_000) },
        { "source": "file:b.bin", "base64": "AAEC/w==" },
    ] });
    let done = world
        .post(&format!("/v1/processes/{pid}/input"), input)
        .await;
    assert_eq!(done, json!({ "pid": pid, "done": true }));
    let path = format!("/v1/processes/{pid}/conversation");
    let conversation = world
        .wait_for(&path, |conversation| conversation["total"] == 2)
        .await;
    let text = conversation.to_string();
    assert!(text.contains("hello") && text.contains("from a file"));
    let fds = world.get(&format!("/v1/processes/{pid}/descriptors")).await;
    assert_eq!(
        (&fds[0]["source"], &fds[0]["bytes"]),
        (&json!("file:long.txt"), &json!(20_000))
    );

    world
        .post(
            &format!("/v1/processes/{pid}/signal"),
            json!({ "signal": "kill" }),
        )
        .await;
    wait_for_status(&world, pid, "killed").await;
    let (status, kind, _) = world
        .post_error(
            &format!("/v1/processes/{pid}/input"),
            json!({ "text": "?" }),
        )
        .await;
    assert_eq!((status, &*kind), (409, "conflict"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_started_says_why() {
    let world = World::new().await;
    let files = json!({ "p": PROGRAM });
    for (body, part) in [
        (json!({}), "program"),
        (
            json!({ "program": "p", "files": files, "colour": 1 }),
            "colour",
        ),
        (json!({ "program": "absent.toml" }), "absent.toml"),
        (json!({ "program": "q", "files": files }), "q"),
        (
            json!({ "program": "p", "files": { "p": "[model]\nnam = 1" } }),
            "model.nam",
        ),
        (json!({ "program": "p", "files": files }), "input"),
        (
            json!({ "program": "p", "files": files, "input": { "text": " " } }),
            "empty",
        ),
        (
            json!({ "program": "p", "files": files, "session": true, "name": "1" }),
            "name",
        ),
        (
            json!({ "program": "p", "files": files, "session": true, "priority": "top" }),
            "low",
        ),
        (
            json!({ "program": "p", "files": files, "session": true, "budget": { "cost": "x" } }),
            "cost",
        ),
        (
            json!({ "program": "p", "files": files, "input": { "parts": [{ "source": "s" }] } }),
            "base64",
        ),
        (
            json!({ "program": "p", "files": files, "session": true, "labels": { "": "x" } }),
            "label",
        ),
    ] {
        let (status, kind, message) = world.post_error("/v1/processes", body.clone()).await;
        assert_eq!((status, &*kind), (400, "invalid"), "{body}: {message}");
        assert!(message.contains(part), "{body}: {message}");
    }
    assert_eq!(world.get("/v1/processes").await["total"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn held_calls_are_approved_edited_refused_and_answered() {
    let world = World::new().await;
    let verdict = |call: &Value| {
        let (pid, call) = call["call"].as_str().unwrap().split_once('/').unwrap();
        format!("/v1/processes/{pid}/calls/{call}/verdict")
    };
    for (body, expected) in [
        (json!({ "verdict": "approve" }), "deployed to live"),
        (
            json!({ "verdict": "approve", "args": { "host": "test" } }),
            "deployed to test",
        ),
        (
            json!({ "verdict": "refuse", "why": "not today" }),
            "not today",
        ),
    ] {
        let pid = start(&world, "ask", json!({})).await;
        let is_held = |pending: &Value| pending["calls"][0]["pid"] == pid;
        let call = world.wait_for("/v1/pending", is_held).await["calls"][0].clone();
        assert_eq!(
            (&call["tool"], &call["rule"]),
            (&json!("deploy"), &json!("deploy"))
        );
        assert_eq!(call["args"], r#"{"host":"live"}"#);
        world.post(&verdict(&call), body.clone()).await;
        wait_for_status(&world, pid, "done").await;
        let said = world
            .get(&format!("/v1/processes/{pid}/conversation"))
            .await;
        assert!(said.to_string().contains(expected), "{body}: {said}");
        // A verdict is used once.
        let (status, ..) = world.post_error(&verdict(&call), body).await;
        assert_eq!(status, 409);
    }
    let pid = start(&world, "question", json!({})).await;
    let is_held = |pending: &Value| pending["calls"][0]["pid"] == pid;
    let call = world.wait_for("/v1/pending", is_held).await["calls"][0].clone();
    assert_eq!(call["question"]["choices"], json!(["left", "right"]));
    let path = verdict(&call).replace("verdict", "answer");
    let (status, _, message) = world.post_error(&path, json!({ "value": "up" })).await;
    assert!(status == 409 && message.contains("left"), "{message}");
    let answer = world
        .request(Method::POST, &path, SPEAK)
        .json(&json!({ "value": "left" }));
    assert_eq!(world.send(answer).await.0, 200);
    wait_for_status(&world, pid, "done").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_speak_approves_nothing() {
    let world = World::new().await;
    let pid = start(&world, "ask", json!({})).await;
    let is_held = |pending: &Value| pending["calls"][0]["pid"] == pid;
    let pending = world.wait_for("/v1/pending", is_held).await;
    let call = pending["calls"][0]["call"].as_str().unwrap();
    let (pid, call) = call.split_once('/').unwrap();
    // As an answer to a question, an approval is none.
    for value in [json!(true), json!({ "host": "x" }), json!("approve")] {
        let path = format!("/v1/processes/{pid}/calls/{call}/answer");
        let request = world
            .request(Method::POST, &path, SPEAK)
            .json(&json!({ "value": value }));
        assert_eq!(error_of(world.send(request).await).0, 409);
    }
    let path = format!("/v1/processes/{pid}/calls/{call}/verdict");
    let request = world
        .request(Method::POST, &path, SPEAK)
        .json(&json!({ "verdict": "approve" }));
    let (status, kind, message) = error_of(world.send(request).await);
    assert_eq!((status, &*kind), (403, "forbidden"));
    assert!(message.contains("control"), "{message}");
    assert_eq!(
        world.get("/v1/pending").await["calls"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_are_stopped_continued_interrupted_hibernated_and_woken() {
    let world = World::new().await;
    let pid = start(&world, "hang", json!({ "session": true })).await;
    let path = |action: &str| format!("/v1/processes/{pid}/{action}");
    let signal = |word: &str, tree: bool| json!({ "signal": word, "tree": tree });
    wait_for_status(&world, pid, "acting").await;
    world
        .post(&path("signal"), signal("interrupt", false))
        .await;
    wait_for_status(&world, pid, "idle").await;
    world.post(&path("signal"), signal("stop", true)).await;
    wait_for_status(&world, pid, "stopped").await;
    world.post(&path("signal"), signal("continue", true)).await;
    wait_for_status(&world, pid, "idle").await;
    world.post(&path("hibernate"), json!(null)).await;
    let asleep = wait_for_status(&world, pid, "hibernated").await;
    assert_eq!(asleep["loaded"], false);
    world.post(&path("wake"), json!(null)).await;
    let awake = wait_for_status(&world, pid, "idle").await;
    assert_eq!(awake["loaded"], true);
    let (status, _, message) = world
        .post_error(&path("signal"), signal("hup", false))
        .await;
    assert!(status == 400 && message.contains("interrupt"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn points_are_made_gone_back_to_and_branched_from() {
    let world = World::new().await;
    let process = world.session("first").await;
    let pid = process.pid().0;
    let path = |action: &str| format!("/v1/processes/{pid}/{action}");
    let made = world
        .post(&path("checkpoint"), json!({ "label": "one", "tree": true }))
        .await;
    assert_eq!((&made["id"], &made["scope"]), (&json!(1), &json!("Tree")));
    within(process.turn("second")).await.unwrap();

    let branch = world
        .post(
            &path("branch"),
            json!({ "at": "cp:1", "effects": "recorded" }),
        )
        .await;
    let branch = branch["pid"].as_u64().unwrap();
    let detail = world.get(&format!("/v1/processes/{branch}")).await;
    assert!(
        detail["branched_from"]
            .as_str()
            .unwrap()
            .starts_with(&format!("{pid}@"))
    );
    assert_eq!(
        world
            .get(&format!("/v1/processes/{branch}/conversation"))
            .await["total"],
        2
    );
    let now = world
        .post(&path("branch"), json!({ "stopped": true }))
        .await["pid"]
        .as_u64()
        .unwrap();
    wait_for_status(&world, now, "stopped").await;
    let (status, _, message) = world
        .post_error(&path("branch"), json!({ "effects": "twice" }))
        .await;
    assert!(status == 400 && message.contains("recorded"), "{message}");

    world
        .post(&path("restore"), json!({ "checkpoint": "cp:1" }))
        .await;
    let restored = world.get(&path("conversation")).await.to_string();
    assert!(!restored.contains("second"), "{restored}");
    world
        .post(
            &path("goto"),
            json!({ "position": "msg:1", "message": "other" }),
        )
        .await;
    let is_said = |conversation: &Value| conversation.to_string().contains("You said: other");
    world.wait_for(&path("conversation"), is_said).await;
    let (status, _, message) = world
        .post_error(
            &path("goto"),
            json!({ "position": "msg:99", "message": "x" }),
        )
        .await;
    assert!(status == 400 && message.contains("msg:"), "{message}");

    let request = world.request(Method::DELETE, "/v1/checkpoints/cp:1", CONTROL);
    assert_eq!(world.send(request).await.0, 200);
    assert_eq!(world.get("/v1/checkpoints").await, json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_process_goes_on_once_its_limit_is_raised() {
    let world = World::new().await;
    let program = format!("{PROGRAM}[budget]\ninput_tokens = 10\nat_limit = \"pause\"\n");
    let body = json!({ "program": "p", "files": { "p": program }, "session": true });
    let pid = world.post("/v1/processes", body).await["pid"]
        .as_u64()
        .unwrap();
    let path = |action: &str| format!("/v1/processes/{pid}/{action}");
    for input in ["one", "two"] {
        world.post(&path("input"), json!({ "text": input })).await;
    }
    let paused = wait_for_status(&world, pid, "paused").await;
    assert_eq!(paused["paused"]["amount"], "input_tokens");
    let (status, _, message) = world.post_error(&path("raise"), json!({})).await;
    assert!(status == 400 && message.contains("cost"), "{message}");
    let raised = world
        .post(&path("raise"), json!({ "input_tokens": 100000 }))
        .await;
    assert_eq!(raised, json!({ "pid": pid, "paused": null }));
    wait_for_status(&world, pid, "idle").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_get_budgets() {
    let world = World::new().await;
    let path = "/v1/labels/user=anna";
    let budget = json!({ "per": "day", "zone": "Europe/Berlin", "output_tokens": 50 });
    let request = world.request(Method::PUT, path, CONTROL).json(&budget);
    let (status, answer) = world.send(request).await;
    assert_eq!(status, 200, "{answer}");
    let labels = world.get("/v1/labels").await;
    assert_eq!(
        labels[0]["limits"]["output_tokens"],
        json!({ "used": "0", "limit": "50" })
    );
    assert_eq!(labels[0]["zone"], "Europe/Berlin");
    for (path, body, part) in [
        (path, json!({ "per": "week", "output_tokens": 1 }), "month"),
        (path, json!({ "per": "day" }), "limit"),
        (
            path,
            json!({ "per": "day", "zone": "Mars", "output_tokens": 1 }),
            "Mars",
        ),
        (
            "/v1/labels/anna",
            json!({ "per": "day", "output_tokens": 1 }),
            "anna",
        ),
    ] {
        let request = world.request(Method::PUT, path, CONTROL).json(&body);
        let (status, _, message) = error_of(world.send(request).await);
        assert!(status == 400 && message.contains(part), "{body}: {message}");
    }
    let delete = || world.request(Method::DELETE, path, CONTROL);
    assert_eq!(world.send(delete()).await.0, 200);
    assert_eq!(error_of(world.send(delete()).await).0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_done_to_a_store_at_rest() {
    let world = World::new().await;
    let process = world.session("ask me not").await;
    let pid = process.pid().0;
    assert!(
        process
            .exit()
            .is_none_or(|exit| exit.status == ExitStatus::Done)
    );
    let world = World::at_rest(world.close().await).await;
    let before = world.get(&format!("/v1/processes/{pid}")).await;
    for (method, path, body) in [
        (
            Method::POST,
            "/v1/processes".to_owned(),
            json!({ "program": "p" }),
        ),
        (
            Method::POST,
            format!("/v1/processes/{pid}/input"),
            json!({ "text": "x" }),
        ),
        (
            Method::POST,
            format!("/v1/processes/{pid}/signal"),
            json!({ "signal": "kill" }),
        ),
        (
            Method::POST,
            format!("/v1/processes/{pid}/wake"),
            json!(null),
        ),
        (
            Method::POST,
            format!("/v1/processes/{pid}/branch"),
            json!({}),
        ),
        (
            Method::PUT,
            "/v1/labels/user=anna".to_owned(),
            json!({ "per": "day", "cost": "1" }),
        ),
        (
            Method::DELETE,
            "/v1/checkpoints/cp:1".to_owned(),
            json!(null),
        ),
    ] {
        let request = world.request(method, &path, CONTROL).json(&body);
        let (status, kind, message) = error_of(world.send(request).await);
        assert_eq!((status, &*kind), (409, "read_only"), "{path}: {message}");
        assert!(message.contains("dormouse resume"), "{message}");
    }
    assert_eq!(world.get(&format!("/v1/processes/{pid}")).await, before);
}
