//! Everything that can be looked at, of a running kernel and of a store at rest.

use serde_json::{Value, json};

use crate::support::*;

fn pids(page: &Value) -> Vec<u64> {
    let processes = page["processes"].as_array().unwrap();
    processes
        .iter()
        .map(|process| process["pid"].as_u64().unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_are_listed_in_pages_filtered_and_sorted() {
    let world = World::new().await;
    let forker = world.session("fork").await.pid().0;
    let idle = world.session("hello").await.pid().0;
    let asking = world.task("ask").await.pid().0;
    world
        .wait_for("/v1/pending", |pending| {
            pending["calls"][0]["pid"] == asking
        })
        .await;
    let all = world.get("/v1/processes").await;
    assert_eq!(all["total"], 5);
    assert_eq!(pids(&all), [1, 2, 3, 4, 5]);
    assert!(all["next"].is_null() && all.get("lost").is_none());

    let first = world.get("/v1/processes?limit=2").await;
    assert_eq!((pids(&first), &first["total"]), (vec![1, 2], &json!(5)));
    let after = first["next"].as_str().unwrap();
    let rest = world
        .get(&format!("/v1/processes?limit=3&after={after}"))
        .await;
    assert_eq!((pids(&rest), rest.get("next")), (vec![3, 4, 5], None));

    let below = world.get(&format!("/v1/processes?below={forker}")).await;
    let children: Vec<_> = pids(&below)
        .into_iter()
        .filter(|pid| *pid != forker)
        .collect();
    assert_eq!(children.len(), 2);
    let tree = world.get("/v1/processes?sort=tree").await;
    let expected = [&[forker], &children[..], &[idle, asking]].concat();
    assert_eq!(pids(&tree), expected);
    for (page, next) in [("limit=2", 2), ("limit=4", 4)] {
        let part = world.get(&format!("/v1/processes?sort=tree&{page}")).await;
        let after = part["next"].as_str().unwrap();
        let path = format!("/v1/processes?sort=tree&after={after}");
        assert_eq!(pids(&world.get(&path).await), expected[next..]);
    }

    let urgent = world.get("/v1/processes?sort=attention").await;
    assert_eq!(pids(&urgent)[0], asking);
    assert!(children.contains(pids(&urgent).last().unwrap()));
    let by_status = world.get("/v1/processes?status=asking,done").await;
    assert_eq!(pids(&by_status), [&children[..], &[asking]].concat());
    let roots = world.get("/v1/processes?roots=true&status=alive").await;
    assert_eq!(pids(&roots), [forker, idle, asking]);

    let line = &urgent["processes"][0];
    assert_eq!(line["status"], "asking");
    assert_eq!(line["calls"][0]["tool"], "deploy");
    assert_eq!(line["calls"][0]["held"], true);
    assert_eq!(line["program"], "program");
    assert_eq!(line["model"], "scripted");
    assert!(line["facts"].as_u64().unwrap() > 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_question_gets_an_answer_that_says_what_is_valid() {
    let world = World::new().await;
    let pid = world.session("big").await.pid().0;
    let cases = [
        ("/v1/processes?sort=age".to_owned(), 400, "attention"),
        (
            "/v1/processes?status=dead".to_owned(),
            400,
            "invalid_result",
        ),
        ("/v1/processes?limit=0".to_owned(), 400, "1 to 1000"),
        ("/v1/processes?limit=1001".to_owned(), 400, "1 to 1000"),
        ("/v1/processes?after=x".to_owned(), 400, "next"),
        ("/v1/processes?below=99".to_owned(), 404, "99"),
        ("/v1/processes?colour=red".to_owned(), 400, "colour"),
        ("/v1/processes?sort=tree&after=99".to_owned(), 410, "anew"),
        ("/v1/processes/99".to_owned(), 404, "there is no process 99"),
        ("/v1/processes/-1".to_owned(), 400, "path"),
        ("/v1/processes/1%2F2".to_owned(), 400, "path"),
        ("/v1/processes/18446744073709551616".to_owned(), 400, "path"),
        (
            format!("/v1/processes/{pid}/facts?from=10000"),
            404,
            "its last is",
        ),
        (
            format!("/v1/processes/{pid}/facts?from=1&tail=1"),
            400,
            "not both",
        ),
        ("/v1/processes/99/facts".to_owned(), 404, "99"),
        (
            format!("/v1/processes/{pid}/conversation?at=cp:9"),
            404,
            "cp:9",
        ),
        (
            format!("/v1/processes/{pid}/conversation?at=9000"),
            404,
            "9000",
        ),
        (
            format!("/v1/processes/{pid}/conversation?at=first"),
            400,
            "cp:3",
        ),
        (
            format!("/v1/processes/{pid}/descriptors/fd:9/lines"),
            404,
            "fd:9",
        ),
        (
            format!("/v1/processes/{pid}/descriptors/x/lines"),
            400,
            "fd:3",
        ),
        (
            format!("/v1/processes/{pid}/descriptors/fd:1/lines?from=6000"),
            404,
            "5000",
        ),
        (
            format!("/v1/processes/{pid}/descriptors/fd:1/pages/0"),
            404,
            "valid are",
        ),
        (
            format!("/v1/processes/{pid}/descriptors/fd:1/pages/1?page_size=0"),
            400,
            "100000",
        ),
        (
            format!("/v1/processes/{pid}/descriptors/fd:1/search?query=(&regex=true"),
            400,
            "query",
        ),
        (
            format!("/v1/processes/{pid}/descriptors/fd:1/search"),
            400,
            "query",
        ),
        ("/v1/diff?left=1&right=x".to_owned(), 400, "PID@FACT"),
        ("/v1/checkpoints/cp:7".to_owned(), 404, "cp:7"),
        ("/v1/checkpoints/7".to_owned(), 400, "cp:N"),
        ("/v1/usage?by=colour".to_owned(), 400, "program"),
        ("/v1/nothing".to_owned(), 404, "openapi.json"),
        ("/".to_owned(), 404, "openapi.json"),
    ];
    for (path, status, part) in cases {
        let (found, _, message) = world.get_error(&path).await;
        assert_eq!(found, status, "{path}: {message}");
        assert!(message.contains(part), "{path}: {message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_is_told_with_its_journal_conversation_and_descriptors() {
    let world = World::new().await;
    let process = world.session("big").await;
    let pid = process.pid().0;
    within(process.turn("hello")).await.unwrap();
    process.checkpoint("here").await.unwrap();
    within(process.turn("and more")).await.unwrap();
    let folder = world.close().await;

    // The same of the kernel that has not loaded it, and of the store at rest.
    let world = World::in_folder(folder).await;
    let held = look_at(&world, pid).await;
    let folder = world.close().await;
    let world = World::at_rest(folder).await;
    let at_rest = look_at(&world, pid).await;
    assert_eq!(held, at_rest);
    assert_eq!(world.get("/v1/kernel").await["running"], false);
}

/// Looks at everything of the process, and returns what has to be the same everywhere.
async fn look_at(world: &World, pid: u64) -> Vec<Value> {
    let process = format!("/v1/processes/{pid}");
    let detail = world.get(&process).await;
    assert_eq!(detail["origin"], "started");
    assert_eq!(detail["descriptors"], 1);
    assert!(detail["usage"]["input_tokens"].as_u64().unwrap() > 0);
    assert!(
        detail["tools"]
            .as_array()
            .unwrap()
            .contains(&json!("read_fd"))
    );
    let facts = detail["facts"].as_u64().unwrap();

    let mut journal = Vec::new();
    let mut path = format!("{process}/facts?limit=4");
    loop {
        let page = world.get(&path).await;
        assert!(page["facts"].as_array().unwrap().len() <= 4);
        assert_eq!((&page["first"], &page["last"]), (&json!(0), &json!(facts)));
        journal.extend(page["facts"].as_array().unwrap().clone());
        match page["next"].as_u64() {
            Some(next) => path = format!("{process}/facts?limit=4&from={next}"),
            None => break,
        }
    }
    let numbers: Vec<_> = journal
        .iter()
        .map(|line| line["fact"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, (0..=facts).collect::<Vec<_>>());
    assert_eq!(journal[0]["name"], "born");
    let tail = world.get(&format!("{process}/facts?tail=3")).await;
    assert_eq!(
        tail["facts"].as_array().unwrap()[..],
        journal[journal.len() - 3..]
    );

    let now = world.get(&format!("{process}/conversation")).await;
    let texts = |conversation: &Value| {
        let messages = conversation["messages"].as_array().unwrap();
        messages.iter().map(ToString::to_string).collect::<String>()
    };
    assert!(texts(&now).contains("and more"));
    assert!(now["system"].as_str().unwrap().contains("You are a test."));
    let total = now["total"].as_u64().unwrap();
    let folded = world
        .get(&format!("{process}/conversation?fold=true"))
        .await;
    let answer = &folded["messages"][2]["blocks"][0];
    assert_eq!(answer["type"], "tool_result");
    assert_eq!(answer["text"].as_str().unwrap().chars().count(), 200);
    assert!(answer["folded_chars"].as_u64().unwrap() > 200);
    let part = world
        .get(&format!("{process}/conversation?after=1&limit=2"))
        .await;
    assert_eq!(
        part["messages"].as_array().unwrap()[..],
        now["messages"].as_array().unwrap()[1..3]
    );
    assert_eq!((&part["next"], &part["total"]), (&json!(3), &json!(total)));
    let earlier = world.get(&format!("{process}/conversation?at=cp:1")).await;
    assert!(texts(&earlier).contains("hello") && !texts(&earlier).contains("and more"));
    let birth = world.get(&format!("{process}/conversation?at=0")).await;
    assert_eq!(birth["total"], 0);

    let listed = world.get(&format!("{process}/descriptors")).await;
    assert_eq!(listed[0]["fd"], "fd:1");
    assert_eq!(listed[0]["lines"], 5000);
    assert!(
        world
            .get(&format!("{process}/descriptors?at=0"))
            .await
            .as_array()
            .unwrap()
            .is_empty()
    );
    let fd = format!("{process}/descriptors/fd:1");
    let mut text = String::new();
    let mut number = 1;
    loop {
        let page = world
            .get(&format!("{fd}/pages/{number}?page_size=10000"))
            .await;
        text += page["text"].as_str().unwrap();
        if page["page"] == page["pages"] {
            break;
        }
        number += 1;
    }
    assert!(number > 5);
    assert!(text.starts_with("line 1 of many\n") && text.ends_with("line 5000 of many\n"));
    let lines = world.get(&format!("{fd}/lines?from=41&limit=2")).await;
    assert_eq!(lines["text"], "line 41 of many\nline 42 of many\n");
    assert_eq!(
        (&lines["lines"], &lines["truncated"]),
        (&json!("41-42"), &json!(false))
    );
    let found = world
        .get(&format!("{fd}/search?query=%20499&limit=4"))
        .await;
    let found_lines = |found: &Value| {
        let matches = found["matches"].as_array().unwrap();
        matches
            .iter()
            .map(|found| found["line"].as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(found_lines(&found), [499, 4990, 4991, 4992]);
    assert_eq!(found["next_line"], 4993);
    let rest = world
        .get(&format!("{fd}/search?query=%20499&from=4993"))
        .await;
    assert_eq!(found_lines(&rest), (4993..=4999).collect::<Vec<_>>());
    assert!(rest.get("next_line").is_none());
    let regex = world
        .get(&format!(
            "{fd}/search?query=LINE%2042%20.*%24&regex=true&ignore_case=true"
        ))
        .await;
    assert_eq!(
        regex["matches"],
        json!([{ "line": 42, "column": 0, "text": "line 42 of many" }])
    );

    let checkpoints = world.get("/v1/checkpoints").await;
    assert_eq!(checkpoints[0]["label"], "here");
    assert_eq!(world.get("/v1/checkpoints/cp:1").await, checkpoints[0]);
    let diff = world
        .get(&format!("/v1/diff?left={pid}@cp:1&right={pid}"))
        .await;
    assert_eq!(diff["messages"]["right"].as_array().unwrap().len(), 2);
    let usage = world.get("/v1/usage?by=model").await;
    assert_eq!(usage[0]["key"], "scripted");
    assert_eq!(usage[0]["input_tokens"], detail["usage"]["input_tokens"]);
    for by in ["program", "tree", "process"] {
        let usage = world.get(&format!("/v1/usage?by={by}")).await;
        assert_eq!(usage[0]["processes"], 1, "{by}");
    }
    let effects = world.get(&format!("{process}/effects")).await;
    assert!(effects["effects"].is_array());
    assert_eq!(world.get("/v1/alarms").await, json!([]));
    assert_eq!(world.get(&format!("{process}/alarms")).await, json!([]));
    assert_eq!(world.get("/v1/labels").await, json!([]));
    vec![
        detail,
        json!(journal),
        now,
        folded,
        earlier,
        listed,
        lines,
        found,
        checkpoints,
        diff,
        usage,
        effects,
    ]
}
